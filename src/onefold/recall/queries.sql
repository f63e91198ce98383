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
insert into records (id, session, number, at, length, part) values (?, ?, ?, ?, ?, ?);

-- put_words: what is said in it
insert into words (rowid, said, scope, speaker) values (?, ?, ?, ?);

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

-- size: about how many records there are
select coalesce(max(id), 0) from records;

-- extent: the same of some sessions, by their numbers as JSON
select coalesce(sum(upto), 0) from sessions where number in (select value from json_each(?));

-- vocabulary: makes the words of the index readable, on this connection
create virtual table if not exists temp.vocabulary using fts5vocab (main, words, row);

-- words_from: the words from one up to another one, in order
select term from temp.vocabulary where term >= ? and term < ? limit ?;

-- holding: the newest records that hold something
select rowid from words where words match ? order by rowid desc limit ?;

-- dated: the newest records of a time
select id from records where at >= ? and at < ? order by id desc limit ?;

-- around: some records, by their ids as JSON, and what stands around each of them
select a.id, b.id, b.session, b.number, b.at, b.part
from json_each(?) j
join records a on a.id = j.value
join records b on b.session = a.session and b.number between a.number - ?2 and a.number + ?2
order by a.id, b.number;

-- named: some records, by their ids as JSON
select r.id, s.id, r.number, r.at, r.length
from json_each(?) j
join records r on r.id = j.value
join sessions s on s.number = r.session;
