-- The index: which record holds which words. No text is kept: that is the journal's.

create table facts (
    name text primary key,
    value text not null
) without rowid;

-- How far each session has been read. `last_id` is the id of that last record: after a copy was put back by hand, the
-- same number may be another record.
create table sessions (
    number integer primary key,
    id text not null unique,
    upto integer not null,
    last_id text not null
);

-- `length` is that of what is said in it, in characters; `part` which
-- one it has in what is said around it: 1 a question, 2 a call, 3 a result, 0 any other.
create table records (
    id integer primary key,
    session integer not null,
    number integer not null,
    at real not null,
    length integer not null,
    part integer not null,
    unique (session, number)
);

-- `scope` holds the session as a word, s12, so that a search in one session reads no other one's; `speaker` the name of
-- who said it, if it has one. `said` comes first: a word in a later column takes two bytes more for each record it is in.
create virtual table words using fts5 (
    said, scope, speaker, content = '', contentless_delete = 1, tokenize = 'ascii'
);
