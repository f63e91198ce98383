-- Turns, forks, undo, pins and notes, erasure.
-- undo: no

alter table sessions add column turn integer not null default 0;
alter table sessions add column parent text;
alter table sessions add column forked_at integer not null default 0;
alter table sessions add column aliases integer not null default 0;
update sessions set aliases = (select count(*) from aliases where aliases.session = sessions.id);
create index forks_of_a_session on sessions (parent, id) where parent is not null;

alter table segments add column rest text not null default '{}';  -- hidden, redo, keeper, as JSON

-- Few of all records, and looked up together.
create index marks on records (session, number) where kind in ('pin.added', 'pin.removed', 'note', 'alias');

-- Who is left alone with a turn, and until when. Apart from the rest: nothing is unsafe without it.
create table turn_leases (
  session text primary key,
  turn    text    not null,
  fence   integer not null,
  until   real    not null,
  length  real    not null
) without rowid;

-- Ids of sessions that were deleted, so that a late append does not bring them back.
create table tombstones (
  id      text primary key,
  session text not null,
  at      real not null
) without rowid;
