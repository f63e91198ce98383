-- One query a paragraph: its name, a sentence on what it does, the statement. In braces: columns that some versions
-- do not have.

-- sessions: what is needed of each to know its place in its line.
select id, {parent_session_id}, {started_at}, {ended_at}, {end_reason}, {source}, {message_count}, {tool_call_count},
  case when {parent_session_id} is null then null else cast({model_config} as blob) end
from sessions;

-- session: one, whole, for quarantine.
select * from sessions where id = ?;

-- message_ids: every message by session, in the order in which they were written.
select session_id, id from messages order by session_id, id;

-- ids_of: the messages of one session.
select id from messages where session_id = ?;

-- message_count: how many there are.
select count(*) from messages;

-- message: one, as far as it is looked at.
select {role}, cast(content as blob), {tool_call_id}, cast({tool_calls} as blob), {timestamp}, {active}, {compacted}
from messages where id = ?;

-- whole_message: one, whole, for quarantine.
select * from messages where id = ?;

-- has_messages: whether a session has any.
select 1 from messages where session_id = ? limit 1;

-- newest: the time of a session's newest message.
select max({timestamp}) from messages where session_id = ?;

-- times: the newest of a session's live messages, and how many have the time of another.
select max({timestamp}), count({timestamp}) - count(distinct {timestamp}) from messages
where session_id = ? and {active} is not 0;

-- live_counts: how many messages of a session are live.
select count(*) from messages where session_id = ? and {active} is not 0;

-- live_calls: the tool calls of those.
select cast({tool_calls} as blob) from messages
where session_id = ? and {active} is not 0 and {tool_calls} is not null;

-- locks: all of them.
select session_id, holder, {acquired_at}, {expires_at} from compression_locks;

-- routes: where each chat's messages go.
select rowid, {scope}, session_key, cast(entry_json as blob) from gateway_routing;

-- bindings: where each topic's messages go.
select rowid, chat_id, thread_id, session_id from telegram_dm_topic_bindings;

-- goals: what the sessions are to reach.
select key, cast(value as blob) from state_meta where key >= 'goal:' and key < 'goal;';

-- goal: of one session.
select cast(value as blob) from state_meta where key = ?;

-- put_goal: gives a session a goal.
insert into state_meta (key, value) values (?, ?) on conflict (key) do update set value = excluded.value;

-- reopen: a session can be written to again.
update sessions set ended_at = null, end_reason = null where id = ?;

-- put_away: ends a continuation that holds nothing, in the words that Hermes has for it.
update sessions set ended_at = ?, end_reason = 'orphaned_compression' where id = ?;

-- detach: a session is nobody's child.
update sessions set parent_session_id = null where id = ?;

-- make_branch: marks a session as a branch of its parent.
update sessions set model_config = json_set(
  case when json_valid(model_config) and json_type(model_config) = 'object' then model_config else '{}' end,
  '$._branched_from', parent_session_id)
where id = ?;

-- drop_lock: nobody compacts this session.
delete from compression_locks where session_id = ?;

-- put_route: sends a chat's messages elsewhere.
update gateway_routing set entry_json = ? where rowid = ?;

-- put_binding: sends a topic's messages elsewhere.
update telegram_dm_topic_bindings set session_id = ? where rowid = ?;

-- bound: whether a topic has this session already.
select 1 from telegram_dm_topic_bindings where session_id = ? limit 1;

-- archive: a message leaves the live set and can still be searched, as after a compaction.
update messages set active = 0, compacted = 1 where id = ?;

-- put_counts: how many messages and calls a session has.
update sessions set message_count = ?, tool_call_count = ? where id = ?;

-- put_count: the same for a version that does not count calls.
update sessions set message_count = ? where id = ?;

-- copy_out: a message as a table of its own, whatever columns it has.
create temp table onefold_copy as select * from main.messages where id = ?;

-- change_copy: makes it a new live message of a session.
update temp.onefold_copy set id = null, session_id = ?;

-- enliven_copy: the same, where messages can be archived.
update temp.onefold_copy set active = 1, compacted = 0;

-- copy_in: adds it as the newest one.
insert into main.messages select * from temp.onefold_copy;

-- copy_end: forgets the table.
drop table temp.onefold_copy;
