-- What the index of a store of files is asked on top of what every store is asked.

-- last_place: where the newest record of a session is.
select body from records where place >= ? and place < ? order by place desc limit 1;

-- set_place: says where a record is.
update records set body = ? where place = ?;

-- ends: every session's newest record and the segment in force.
select j.session, r.place & 4294967295, r.id, r.body, s.head, s.last
from journals j
left join records r on r.place = (select max(place) from records where place > j.sid << 32 and place < (j.sid + 1) << 32)
left join sessions s on s.id = j.session;

-- end_of: the same of one session.
select r.place & 4294967295, r.id, r.body, s.head
from journals j
join records r on r.place = (select max(place) from records where place > j.sid << 32 and place < (j.sid + 1) << 32)
join sessions s on s.id = j.session
where j.session = ?;

-- placed: every record of a session in the order of their numbers, and where it is.
select place, body from records where place >= ? and place < ? order by place;

-- gone: every session that was deleted.
select distinct session from tombstones;

-- damaged: what is known to be wrong with the files of sessions.
select substr(name, 9), value from meta where name >= 'damaged ' and name < 'damaged!';

-- damage_of: the same of one session.
select value from meta where name = 'damaged ' || ?;

-- put_damage: keeps it.
insert into meta (name, value) values ('damaged ' || ?, ?) on conflict (name) do update set value = excluded.value;

-- drop_damage: it was mended.
delete from meta where name = 'damaged ' || ?;

-- begin_fold: what is folded from here on can be taken back.
savepoint fold;

-- undo_fold: takes it back.
rollback to fold;

-- end_fold: keeps it.
release fold;
