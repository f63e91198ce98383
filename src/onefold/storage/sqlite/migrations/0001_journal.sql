-- The journal and what is derived from it.
-- undo: yes

create table meta (
  name  text primary key,
  value text not null
) without rowid;

-- The truth. Everything below it can be folded from these rows.
create table records (
  session text    not null,
  number  integer not null,
  id      text    not null,
  kind    text    not null,
  at      real    not null,
  format  text,
  role    text,             -- of a message: what the planner needs to know of it
  tokens  integer,
  opens   text,             -- ids of the tool calls it makes, as a JSON array
  closes  text,             -- ids of the tool calls it answers
  key     text,
  turn    text,
  actor   text,
  body    text    not null, -- JSON; a leading space says: parse with care
  unique (session, number)
);

create table sessions (
  id            text primary key,
  created_at    real    not null,
  touched_at    real    not null,
  last          integer not null,
  head          integer not null,
  cut           integer not null,
  messages      integer not null,
  tokens        integer not null,
  segments      integer not null,
  compactions   integer not null,
  committed     integer not null,
  open          text,
  pending       integer not null,
  failures      integer not null,
  failed_tokens integer not null,
  seal          integer not null  -- a checksum of this row, so that damage is seen at once
) without rowid;

-- One successor per segment: `base` is the key, so a fork cannot be written down.
create table segments (
  session       text    not null,
  base          integer not null, -- 0 for the first
  number        integer not null,
  cut           integer not null,
  source        text    not null,
  at            real    not null,
  compaction    text,
  summary       integer,
  kept          text    not null,
  tokens_before integer not null,
  tokens_after  integer not null,
  primary key (session, base)
) without rowid;
create unique index segments_by_number on segments (session, number);

create table compactions (
  session      text    not null,
  id           text    not null,
  state        text    not null,
  requested_at real    not null,
  rest         text    not null, -- the other fields, as JSON
  primary key (session, id)
) without rowid;
create index open_compactions on compactions (requested_at, session, id) where state in ('requested', 'running');

create table keys (
  session text    not null,
  key     text    not null,
  first   integer not null,
  count   integer not null,
  digest  text    not null,
  primary key (session, key)
) without rowid;

-- Other ids that a session is known by. No two sessions have the same one.
create table aliases (
  alias   text primary key,
  session text not null
) without rowid;
create index aliases_of_a_session on aliases (session);

-- Inputs that wait for a turn.
create table inputs (
  session text    not null,
  number  integer not null,
  primary key (session, number)
) without rowid;
