-- One query a paragraph: its name, a sentence on what it does, the statement. In braces: what a version's columns are.

-- whole: one message with all that the store has of it; texts as bytes, for they need not be UTF-8.
select {columns} from messages where id = ?;

-- newest_first: the messages of a session from one on backwards, up to a time.
select id from messages where session_id = ? and id <= ? and coalesce({timestamp}, 0) <= ? order by id desc;
