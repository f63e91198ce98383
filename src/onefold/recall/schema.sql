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

create table records (
    id integer primary key,
    session integer not null,
    number integer not null,
    at real not null,
    unique (session, number)
);

-- `scope` holds the session as a word, s12, so that a search in one session reads no other one's. `said` comes first:
-- a word in a later column takes two bytes more for each record it is in.
create virtual table words using fts5 (said, scope, content = '', contentless_delete = 1, tokenize = 'ascii');
