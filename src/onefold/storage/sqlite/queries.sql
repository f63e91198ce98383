-- One query a paragraph: its name, a sentence on what it does, the statement.

-- meta: one fact about the store.
select value from meta where name = ?;

-- put_meta: sets one fact about the store.
insert into meta (name, value) values (?, ?) on conflict (name) do update set value = excluded.value;

-- drop_meta: forgets one fact about the store.
delete from meta where name = ?;

-- journal: a session's number in this store.
select sid from journals where session = ?;

-- journals: the numbers of some sessions, which are given as a JSON array.
select session, sid from journals where session in (select value from json_each(?));

-- add_journal: gives a session its number in this store.
insert into journals (session) values (?) returning sid;

-- drop_journal: takes it away, with the journal.
delete from journals where session = ?;

-- add_record: one more record; fails if its number is taken.
insert into records (place, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- records: a page of a session's journal.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from records where place >= ? and place < ? order by place limit ?;

-- messages: those in a range, whole.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from records where place >= ? and place < ? and kind = 'message' order by place;

-- some: the messages at some places, which are given as a JSON array. The cross join keeps it from reading all of them.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from (select value as wanted from json_each(?)) cross join records on place = wanted
where kind = 'message' order by place;

-- headers: what the planner needs to know of the messages in a range.
select number, role, tokens, opens, closes, turn
from records where place >= ? and place < ? and kind = 'message' order by place;

-- tool_headers: the same of those that make or answer calls.
select number, role, tokens, opens, closes, turn
from records where place >= ? and place < ? and kind = 'message'
  and (opens is not null or closes is not null) order by place;

-- tokens: the size of all messages in a range.
select coalesce(sum(tokens), 0) from records where place >= ? and place < ? and kind = 'message';

-- last_user: the newest message of a user in a range.
select number from records where place >= ? and place < ? and kind = 'message' and role in ('user', 'program')
order by place desc limit 1;

-- marks: pins, notes and aliases in a range.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from records where place >= ? and place < ?
  and role is null and kind in ('pin.added', 'pin.removed', 'note', 'alias') order by place;

-- rewrite: a tombstone in a record's place.
update records set kind = ?, format = ?, role = ?, tokens = ?, opens = ?, closes = ?, body = ?
where place = ?;

-- last_number: the highest number in the journal itself.
select coalesce(max(place), ?1) - ?1 from records where place >= ?1 and place < ?2;

-- commit_probe: the id of the record at a number, to read back what a commit did.
select id from records join journals on place = (sid << 32) + ?2 where session = ?1;

-- session: one session's state.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from sessions where id = ?;

-- burst: what came after a session's row was written: how many records, how many of them no messages, their size.
select count(*), total(kind <> 'message'), coalesce(sum(tokens), 0), max(place), at from records
where place >= ? and place < ?;

-- put_session: sets one session's state. Not `insert or replace`, which takes the row out of its tree and its index first.
insert into sessions (id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions,
  committed, open, pending, failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (id) do update set created_at = excluded.created_at, touched_at = excluded.touched_at,
  last = excluded.last, head = excluded.head, cut = excluded.cut, messages = excluded.messages,
  tokens = excluded.tokens, segments = excluded.segments, compactions = excluded.compactions,
  committed = excluded.committed, open = excluded.open, pending = excluded.pending, failures = excluded.failures,
  failed_tokens = excluded.failed_tokens, turn = excluded.turn, parent = excluded.parent,
  forked_at = excluded.forked_at, aliases = excluded.aliases, paid = excluded.paid, rests = excluded.rests,
  limits = excluded.limits, "window" = excluded."window", seal = excluded.seal;

-- touch_session: what an append changes of a session's state.
update sessions set touched_at = ?, last = ?, messages = ?, tokens = ?, seal = ? where id = ?;

-- sessions: a page of all sessions, the latest activity first.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from sessions where (touched_at, id) < (?, ?) order by touched_at desc, id desc limit ?;

-- forks: the sessions that have this one as their parent.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from sessions where parent = ? order by id;

-- drop_session: forgets a derived row, never a record.
delete from sessions where id = ?;

-- segment: by the number of the record that opened it.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from segments where session = ? and number = ?;

-- segment_at: the one in force at a number.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from segments where session = ? and number <= ? order by number desc limit 1;

-- successor: the segment that replaced this one.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from segments where session = ? and base = ?;

-- segments: all of a session, the oldest first.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from segments where session = ? order by number;

-- add_segment: one more; fails if its base has a successor.
insert into segments (session, number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after,
  rest)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- drop_segments: forgets derived rows, never a record.
delete from segments where session = ?;

-- compaction: one, by its id.
select session, id, state, requested_at, rest from compactions where session = ? and id = ?;

-- put_compaction: sets one compaction.
insert or replace into compactions (session, id, state, requested_at, rest) values (?, ?, ?, ?, ?);

-- compactions: all of one session, the oldest first.
select session, id, state, requested_at, rest from compactions where session = ? order by requested_at, id;

-- open_compactions: those of all sessions that are not settled, the longest waiting first.
select session, id, state, requested_at, rest from compactions
where state in ('requested', 'running') order by requested_at, session, id;

-- all_compactions: those of all sessions, the oldest first.
select session, id, state, requested_at, rest from compactions order by requested_at, session, id;

-- drop_compactions: forgets derived rows, never a record.
delete from compactions where session = ?;

-- key: what an idempotency key was used for.
select first, count, digest from keys where session = ? and key = ?;

-- put_key: notes the use of an idempotency key.
insert or replace into keys (session, key, first, count, digest) values (?, ?, ?, ?, ?);

-- keys: all of a session.
select key, first, count, digest from keys where session = ?;

-- drop_keys: forgets derived rows, never a record.
delete from keys where session = ?;

-- add_input: an input begins to wait.
insert into inputs (session, number) values (?, ?);

-- drop_input: an input was taken.
delete from inputs where session = ? and number = ?;

-- next_input: the input that waits longest.
select min(number) from inputs where session = ?;

-- inputs: all that wait.
select number from inputs where session = ?;

-- drop_inputs: forgets derived rows, never a record.
delete from inputs where session = ?;

-- add_alias: one more id that a session is known by; fails if any session has it.
insert into aliases (alias, session) values (?, ?);

-- owner: the session that is known by another id.
select session from aliases where alias = ?;

-- aliases: all of a session.
select alias from aliases where session = ?;

-- drop_aliases: forgets derived rows, never a record.
delete from aliases where session = ?;

-- counts: how many derived rows a session has, for the check at open.
select (select count(*) from segments where session = ?1), (select count(*) from compactions where session = ?1),
  (select count(*) from inputs where session = ?1), (select count(*) from aliases where session = ?1),
  (select max(number) from segments where session = ?1);

-- lease: who is left alone with this session's compaction.
select compaction, fence, until, length from leases where session = ?;

-- put_lease: leaves somebody alone.
insert or replace into leases (session, compaction, fence, until, length) values (?, ?, ?, ?, ?);

-- drop_lease: nobody is left alone any more.
delete from leases where session = ?;

-- turn_lease: who is left alone with this session's turn.
select turn, fence, until, length from turn_leases where session = ?;

-- put_turn_lease: leaves somebody alone.
insert or replace into turn_leases (session, turn, fence, until, length) values (?, ?, ?, ?, ?);

-- drop_turn_lease: nobody is left alone any more.
delete from turn_leases where session = ?;

-- blank_records: writes over what a session's records say, in place, before they are removed.
update records set body = printf('%*s', length(cast(body as blob)), '') where place >= ? and place < ?;

-- wipe_records: removes a session's journal. For people who delete, and for nothing else.
delete from records where place >= ? and place < ?;

-- put_tombstone: keeps an id of a session that was deleted.
insert or replace into tombstones (id, session, at) values (?, ?, ?);

-- deleted: the session that an id was of.
select session from tombstones where id = ?;

-- tombstones: a page of all ids of deleted sessions.
select id, session from tombstones where id > ? order by id limit ?;

-- walk: a page of all sessions with a record or a derived row, by their ids, from one to the next through the indexes.
with recursive walk (id, nth) as (
  select ?1, 0
  union all
  select (
    select min(next) from (
      select (select session from journals where session > walk.id order by session limit 1) as next
      union all select (select id from sessions where id > walk.id order by id limit 1)
      union all select (select session from segments where session > walk.id order by session limit 1)
      union all select (select session from compactions where session > walk.id order by session limit 1)
      union all select (select session from keys where session > walk.id order by session limit 1)
      union all select (select session from inputs where session > walk.id order by session limit 1)
      union all select (select session from aliases where session > walk.id order by session limit 1)
    )
  ), nth + 1 from walk where walk.id is not null and nth < ?2
)
select walk.id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open,
  pending, failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from walk left join sessions on sessions.id = walk.id
where nth > 0 and walk.id is not null order by nth;

-- tables: the names of all tables, to see whether a part is missing.
select name from sqlite_schema where type = 'table';
