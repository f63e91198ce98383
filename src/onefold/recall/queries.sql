-- tables: what there is, for making it anew
select name from sqlite_schema where type = 'table' and name not like 'sqlite\_%' escape '\' and name not like 'words\_%' escape '\';

-- fact: something about the index as a whole
select value from facts where name = ?;

-- put_fact: says it
insert into facts (name, value) values (?, ?) on conflict (name) do update set value = excluded.value;

-- marks: how far every session has been read
select id, number, upto, last_id from sessions;

-- mark: how far one session has been read
select id, number, upto, last_id from sessions where id = ?;

-- put_mark: moves it on
insert into sessions (id, upto, last_id) values (?, ?, ?)
on conflict (id) do update set upto = excluded.upto, last_id = excluded.last_id;

-- drop_mark: forgets a session
delete from sessions where number = ?;

-- next_record: the id that the next one gets
select coalesce(max(id), 0) + 1 from records;

-- put_record: one more that can be found
insert into records (id, session, number, at) values (?, ?, ?, ?);

-- put_words: what is said in it
insert into words (rowid, said, scope) values (?, ?, ?);

-- record: under which id a record is known here
select id from records where session = ? and number = ?;

-- drop_record: it can no longer be found
delete from records where id = ?;

-- drop_words: nor can its words
delete from words where rowid = ?;

-- drop_session_words: the words of a whole session
delete from words where rowid in (select id from records where session = ?);

-- drop_session_records: its records
delete from records where session = ?;

-- optimize: brings all words into one piece, without those of records that are gone
insert into words (words) values ('optimize');

-- search: what holds the words, the best first, and of equals the newest
select s.id, r.number
from words
join records r on r.id = words.rowid
join sessions s on s.number = r.session
where words match ?
order by round(bm25(words, 1.0, 0.0), 1), r.at desc, r.id desc;
