-- One query a paragraph: its name, a sentence on what it does, the statement.

-- begin_writing: others' commits are seen as they come; what must not move is locked.
begin isolation level read committed;

-- begin_reading: one view from the first statement on, and no lock.
begin isolation level repeatable read, read only;

-- commit: makes it durable.
commit;

-- rollback: as if nothing had been.
rollback;

-- bounds: how long this transaction waits for a lock, and how long others wait for it if its process stands still.
select set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true);

-- lock_session: a session's state, and its row for this transaction alone.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from onefold.sessions where id = %s for update;

-- try_session: the same, unless somebody else has the row: then nothing, at once.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from onefold.sessions where id = %s for update skip locked;

-- lock_new: the id of a session that has no row, for this transaction alone.
select pg_advisory_xact_lock(%s);

-- hold_sessions: keeps other sessions as they are until this transaction ends.
select id from onefold.sessions where id = any(%s) order by id for share;

-- about: the oldest writer that the store takes, the time, and this transaction, after its lock was granted.
select (select value::int from onefold.meta where name = 'min_writer'),
  extract(epoch from clock_timestamp())::double precision, pg_backend_pid(), now()::text;

-- time: now, by the server's clock.
select extract(epoch from clock_timestamp())::double precision;

-- notify: tells those who listen, without waiting for the disk: see `commit` of the transaction.
select set_config('synchronous_commit', 'off', true), pg_notify(%s, %s);

-- end_stray: ends a transaction whose connection was lost, unless it waits for its standby.
select pg_terminate_backend(pid) from pg_stat_activity
where pid = %s and xact_start = %s::timestamptz and wait_event is distinct from 'SyncRep';

-- savepoint: what is after it can be taken back alone.
savepoint apart;

-- release: it need not be.
release savepoint apart;

-- back: takes it back.
rollback to savepoint apart;

-- snapshot: another text after every commit that has become visible.
select pg_current_snapshot()::text;

-- meta: one fact about the store.
select value from onefold.meta where name = %s;

-- put_meta: sets one fact about the store.
insert into onefold.meta (name, value) values (%s, %s) on conflict (name) do update set value = excluded.value;

-- add_record: one more record; fails if its number is taken.
insert into onefold.records (session, number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- add_records: more records; fails if a number is taken.
insert into onefold.records (session, number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body)
select * from unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::double precision[], %s::text[], %s::text[],
  %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]);

-- records: a page of a session's journal.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from onefold.records where session = %s and number >= %s and number < %s order by number limit %s;

-- messages: those in a range, whole.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from onefold.records where session = %s and number >= %s and number < %s and kind = 'message' order by number;

-- some: the messages among some records.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from onefold.records where session = %s and number = any(%s) and kind = 'message' order by number;

-- headers: what the planner needs to know of the messages in a range.
select number, role, tokens, opens, closes, turn
from onefold.records where session = %s and number >= %s and number < %s and kind = 'message' order by number;

-- tool_headers: the same of those that make or answer calls.
select number, role, tokens, opens, closes, turn
from onefold.records where session = %s and number >= %s and number < %s and kind = 'message'
  and (opens is not null or closes is not null) order by number;

-- tokens: the size of all messages in a range.
select coalesce(sum(tokens), 0)::bigint from onefold.records
where session = %s and number >= %s and number < %s and kind = 'message';

-- last_user: the newest message of a user in a range.
select number from onefold.records where session = %s and number >= %s and number < %s
  and kind = 'message' and role in ('user', 'program') order by number desc limit 1;

-- marks: pins, notes and aliases in a range.
select number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from onefold.records where session = %s and number >= %s and number < %s
  and kind in ('pin.added', 'pin.removed', 'note', 'alias') order by number;

-- rewrite: a tombstone in a record's place.
update onefold.records set kind = %s, format = %s, role = %s, tokens = %s, opens = %s, closes = %s, body = %s
where session = %s and number = %s;

-- last_number: the highest number in the journal itself.
select coalesce(max(number), 0) from onefold.records where session = %s;

-- commit_probe: whether this record stands in the journal; locked, so that the commit of whoever looks waits for a standby.
select 1 from onefold.records where session = %s and number = %s and id = %s for update;

-- commit_probe_gone: the same of a session that was deleted.
select 1 from onefold.names where id = %s and kind = 'deleted' for update;

-- wipe_records: removes a session's journal. For people who delete, and for nothing else.
delete from onefold.records where session = %s;

-- session: one session's state.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from onefold.sessions where id = %s;

-- line: the states of a session and of all that it is a fork of, one after another.
with recursive line as (
  select sessions.* from onefold.sessions where id = %s
  union all select sessions.* from onefold.sessions join line on sessions.id = line.parent
)
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from line;

-- put_session: sets one session's state.
insert into onefold.sessions (id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions,
  committed, open, pending, failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (id) do update set created_at = excluded.created_at, touched_at = excluded.touched_at,
  last = excluded.last, head = excluded.head, cut = excluded.cut, messages = excluded.messages,
  tokens = excluded.tokens, segments = excluded.segments, compactions = excluded.compactions,
  committed = excluded.committed, open = excluded.open, pending = excluded.pending, failures = excluded.failures,
  failed_tokens = excluded.failed_tokens, turn = excluded.turn, parent = excluded.parent,
  forked_at = excluded.forked_at, aliases = excluded.aliases, paid = excluded.paid, rests = excluded.rests,
  limits = excluded.limits, "window" = excluded."window", seal = excluded.seal;

-- touch_session: what an append changes of a session's state.
update onefold.sessions set touched_at = %s, last = %s, messages = %s, tokens = %s, seal = %s where id = %s;

-- sessions: a page of all sessions, the latest activity first.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from onefold.sessions where (touched_at, id) < (%s, %s) order by touched_at desc, id desc limit %s;

-- lasts: the last numbers of several sessions.
select id, last from onefold.sessions where id = any(%s);

-- forks: the sessions that have this one as their parent.
select id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open, pending,
  failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from onefold.sessions where parent = %s order by id;

-- drop_session: forgets a derived row, never a record.
delete from onefold.sessions where id = %s;

-- take_name: takes an id, if nobody has it.
insert into onefold.names (id, session, kind, at) values (%s, %s, %s, %s) on conflict (id) do nothing returning id;

-- name: whose an id is, and what it is of it.
select session, kind from onefold.names where id = %s;

-- owner: the session that is known by another id.
select session from onefold.names where id = %s and kind = 'alias';

-- aliases: all of a session.
select id from onefold.names where session = %s and kind = 'alias';

-- drop_aliases: forgets derived rows, never a record.
delete from onefold.names where session = %s and kind = 'alias';

-- put_tombstones: keeps ids of a session that was deleted.
insert into onefold.names (id, session, kind, at) select id, %s, 'deleted', %s from unnest(%s::text[]) as gone (id)
on conflict (id) do update set session = excluded.session, kind = 'deleted', at = excluded.at;

-- deleted: the session that an id was of.
select session from onefold.names where id = %s and kind = 'deleted';

-- tombstones: a page of all ids of deleted sessions.
select id, session from onefold.names where kind = 'deleted' and id > %s order by id limit %s;

-- segment: by the number of the record that opened it.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from onefold.segments where session = %s and number = %s;

-- some_segments: several at once, each by its session and its number; by the index, however few rows there are.
select wanted.session, found.* from unnest(%s::text[], %s::bigint[]) as wanted (session, number)
cross join lateral (
  select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
  from onefold.segments s where s.session = wanted.session and s.number = wanted.number limit 1
) as found;

-- segment_at: the one in force at a number.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from onefold.segments where session = %s and number <= %s order by number desc limit 1;

-- successor: the segment that replaced this one.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from onefold.segments where session = %s and base = %s;

-- segments: all of a session, the oldest first.
select number, base, cut, source, at, compaction, summary, kept, tokens_before, tokens_after, rest
from onefold.segments where session = %s order by number;

-- add_segment: one more, unless its base has a successor.
insert into onefold.segments (session, number, base, cut, source, at, compaction, summary, kept, tokens_before,
  tokens_after, rest)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing returning number;

-- drop_segments: forgets derived rows, never a record.
delete from onefold.segments where session = %s;

-- compaction: one, by its id.
select session, id, state, requested_at, rest from onefold.compactions where session = %s and id = %s;

-- put_compaction: sets one compaction.
insert into onefold.compactions (session, id, state, requested_at, rest) values (%s, %s, %s, %s, %s)
on conflict (session, id) do update set state = excluded.state, requested_at = excluded.requested_at,
  rest = excluded.rest;

-- compactions: all of one session, the oldest first.
select session, id, state, requested_at, rest from onefold.compactions where session = %s order by requested_at, id;

-- open_compactions: those of all sessions that are not settled, the longest waiting first.
select session, id, state, requested_at, rest from onefold.compactions
where state in ('requested', 'running') order by requested_at, session, id;

-- some_open_compactions: a page of them.
select session, id, state, requested_at, rest from onefold.compactions
where state in ('requested', 'running') and (requested_at, session, id) > (%s, %s, %s)
order by requested_at, session, id limit %s;

-- all_compactions: those of all sessions, the oldest first.
select session, id, state, requested_at, rest from onefold.compactions order by requested_at, session, id;

-- drop_compactions: forgets derived rows, never a record.
delete from onefold.compactions where session = %s;

-- key: what an idempotency key was used for.
select first, count, digest from onefold.keys where session = %s and hash = %s;

-- some_keys: the same of several.
select key, first, count, digest from onefold.keys where session = %s and hash = any(%s::bytea[]);

-- put_key: notes the use of an idempotency key.
insert into onefold.keys (session, hash, key, first, count, digest) values (%s, %s, %s, %s, %s, %s)
on conflict (session, hash) do update set first = excluded.first, count = excluded.count, digest = excluded.digest;

-- keys: all of a session.
select key, first, count, digest from onefold.keys where session = %s;

-- drop_keys: forgets derived rows, never a record.
delete from onefold.keys where session = %s;

-- add_input: an input begins to wait.
insert into onefold.inputs (session, number) values (%s, %s);

-- drop_input: an input was taken.
delete from onefold.inputs where session = %s and number = %s;

-- next_input: the input that waits longest.
select min(number) from onefold.inputs where session = %s;

-- inputs: all that wait.
select number from onefold.inputs where session = %s order by number;

-- drop_inputs: forgets derived rows, never a record.
delete from onefold.inputs where session = %s;

-- counts: how many derived rows a session has, for the check at open.
select (select count(*) from onefold.segments where session = %(s)s),
  (select count(*) from onefold.compactions where session = %(s)s),
  (select count(*) from onefold.inputs where session = %(s)s),
  (select count(*) from onefold.names where session = %(s)s and kind = 'alias'),
  (select max(number) from onefold.segments where session = %(s)s),
  (select coalesce(max(number), 0) from onefold.records where session = %(s)s);

-- lease: who is left alone with this session's compaction.
select compaction, fence, until, length from onefold.leases where session = %s;

-- some_leases: the same of several sessions.
select session, compaction, fence, until, length from onefold.leases where session = any(%s);

-- put_lease: leaves somebody alone.
insert into onefold.leases (session, compaction, fence, until, length) values (%s, %s, %s, %s, %s)
on conflict (session) do update set compaction = excluded.compaction, fence = excluded.fence, until = excluded.until,
  length = excluded.length;

-- drop_lease: nobody is left alone any more.
delete from onefold.leases where session = %s;

-- turn_lease: who is left alone with this session's turn.
select turn, fence, until, length from onefold.turn_leases where session = %s;

-- put_turn_lease: leaves somebody alone.
insert into onefold.turn_leases (session, turn, fence, until, length) values (%s, %s, %s, %s, %s)
on conflict (session) do update set turn = excluded.turn, fence = excluded.fence, until = excluded.until,
  length = excluded.length;

-- drop_turn_lease: nobody is left alone any more.
delete from onefold.turn_leases where session = %s;

-- walk: a page of all sessions with a record or a derived row, by their ids, from one to the next through the indexes.
with recursive walk (id, nth) as (
  select %s::text collate "C", 0
  union all
  select (
    select min(next) from (
      select (select session from onefold.records where session > walk.id order by session limit 1) as next
      union all select (select id from onefold.sessions where id > walk.id order by id limit 1)
      union all select (select session from onefold.segments where session > walk.id order by session limit 1)
      union all select (select session from onefold.compactions where session > walk.id order by session limit 1)
      union all select (select session from onefold.keys where session > walk.id order by session limit 1)
      union all select (select session from onefold.inputs where session > walk.id order by session limit 1)
      union all select (select min(session) from onefold.names where session > walk.id and kind = 'alias')
    ) as each
  ), nth + 1 from walk where walk.id is not null and nth < %s
)
select walk.id, created_at, touched_at, last, head, cut, messages, tokens, segments, compactions, committed, open,
  pending, failures, failed_tokens, turn, parent, forked_at, aliases, paid, rests, limits, "window", seal
from walk left join onefold.sessions on sessions.id = walk.id
where nth > 0 and walk.id is not null order by nth;

-- tables: the names of all tables in the store's schema, to see whether a part is missing.
select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'p');

-- one_at_a_time: of those who would make or change the tables, one at a time.
select pg_advisory_xact_lock(%s);

-- stop_writers: waits for every transaction that writes, and lets none begin until this one ends.
lock table onefold.sessions in access exclusive mode;

-- settings: what the promises of the store need from the server.
select name, setting from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'server_version_num');

-- next_transaction: what was erased until now, was erased by a transaction before this one.
select pg_snapshot_xmax(pg_current_snapshot())::text;

-- in_the_way: how many transactions, or slots of standbys, may still see what was erased before one.
select (select count(*) from pg_stat_activity where pid <> pg_backend_pid()
    and coalesce(datname, current_database()) = current_database()
    and greatest(age(backend_xmin), age(backend_xid)) > age(%(before)s::xid8::xid))
  + (select count(*) from pg_replication_slots where age(xmin) > age(%(before)s::xid8::xid))
  + (pg_snapshot_xmin(pg_current_snapshot()) < %(before)s::xid8)::int;

-- rewrite_tables: writes the tables anew, without what was removed from them.
vacuum full onefold.records, onefold.segments, onefold.compactions, onefold.keys, onefold.sessions;
