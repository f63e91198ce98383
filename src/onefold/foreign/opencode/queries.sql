-- One query a paragraph: its name, a sentence on what it does, the statement.

-- parts_like_markers: parts that may be a compaction's marker. Few others have the word in quotes.
select id, message_id, session_id, cast(data as blob) from part where instr(data, '"compaction"') > 0;

-- sessions_with_summaries: where an answer says that it is a summary.
select distinct session_id from message
where instr(data, '"summary":true') > 0 or instr(data, '"summary": true') > 0;

-- sessions: how many there are.
select count(*) from session;

-- messages: those of one session.
select id, cast(data as blob) from message where session_id = ?;

-- message: one.
select * from message where id = ?;

-- parts: those of a message.
select * from part where message_id = ? order by id;

-- part: one.
select * from part where id = ?;

-- part_data: what the parts of a message say.
select cast(data as blob) from part where message_id = ? order by id;

-- has_parts: whether a message has any.
select 1 from part where message_id = ? limit 1;

-- without_parts: messages that say nothing at all.
select id, session_id, cast(data as blob) from message
where not exists (select 1 from part where part.message_id = message.id);

-- answered: whether some message is the answer to this one.
select 1 from message where session_id = ? and instr(data, ?) > 0 and id <> ? limit 1;

-- logs: the first and the last event of each session, how many there are, and what the counter says.
select event.aggregate_id, min(event.seq), max(event.seq), count(*), max(event_sequence.seq)
from event left join event_sequence on event_sequence.aggregate_id = event.aggregate_id
group by event.aggregate_id;

-- gap: the first place in a log where an event is missing.
select seq, next from (select seq, lead(seq) over (order by seq) as next from event where aggregate_id = ?)
where next > seq + 1 limit 1;

-- counter: the number of a log's newest event, as the counter has it and as the log has it.
select seq, (select max(seq) from event where event.aggregate_id = event_sequence.aggregate_id)
from event_sequence where aggregate_id = ?;

-- put_counter: says which event is the newest.
update event_sequence set seq = ? where aggregate_id = ?;

-- add_event: one more in the log.
insert into event (id, aggregate_id, seq, type, data) values (?, ?, ?, ?, ?);

-- drop_parts: the parts of a message.
delete from part where message_id = ?;

-- drop_message: a message.
delete from message where id = ?;

-- put_message: what a message says.
update message set data = ? where id = ?;

-- put_part: what a part says.
update part set data = ? where id = ?;
