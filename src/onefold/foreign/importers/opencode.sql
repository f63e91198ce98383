-- One query a paragraph: its name, a sentence on what it does, the statement. In braces: columns that some versions
-- do not have.

-- sessions: all of them, the oldest first.
select id, {parent_id}, cast({revert} as blob) from session order by {time_created}, id;

-- sizes: how many messages each session has.
select session_id, count(*) from message group by session_id;

-- lights: the messages of a session; what they say is read one by one.
select id, cast(data as blob) from message where session_id = ?;

-- data: one message.
select cast(data as blob) from message where id = ?;

-- parts: what a message is made of, in order.
select id, cast(data as blob) from part where message_id = ? order by id;

-- spawned: the messages of a session with a part that names another session.
select message_id from part where session_id = ? and instr(data, ?) > 0 order by id;
