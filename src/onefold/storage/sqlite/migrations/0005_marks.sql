-- A message is known by its role to be no mark, which is cheaper than comparing its kind with four words at each append.
-- undo: yes

drop index if exists marks;
create index marks on records (place)
where role is null and kind in ('pin.added', 'pin.removed', 'note', 'alias');
