-- The journal and what is derived from it. Every table's key begins with the session, so that each can be split by it.
-- Ids compare by their bytes everywhere, whatever the database's own order is.
-- undo: yes

create table onefold.meta (
  name  text collate "C" primary key,
  value text not null
);

-- The truth. Everything below it can be folded from these rows.
create table onefold.records (
  session text collate "C" not null,
  number  bigint           not null,
  id      text             not null,
  kind    text             not null,
  at      double precision not null,
  format  text,
  role    text,             -- of a message: what the planner needs to know of it
  tokens  bigint,
  opens   text,             -- ids of the tool calls it makes, as a JSON array
  closes  text,             -- ids of the tool calls it answers
  key     text,
  turn    text,
  actor   text,
  body    text             not null, -- JSON; a leading space says: parse with care
  primary key (session, number)
);

-- Few of all records, and looked up together.
create index marks on onefold.records (session, number)
where kind in ('pin.added', 'pin.removed', 'note', 'alias');

-- A session's row is also its lock: whoever writes to the session holds it. Room is left in each page, and no column
-- that an append changes is in an index, so that a changed row stays in its page.
create table onefold.sessions (
  id            text collate "C" primary key,
  created_at    double precision not null,
  touched_at    double precision not null,
  last          bigint           not null,
  head          bigint           not null,
  cut           bigint           not null,
  messages      bigint           not null,
  tokens        bigint           not null,
  segments      bigint           not null,
  compactions   bigint           not null,
  committed     bigint           not null,
  open          text,
  pending       bigint           not null,
  failures      bigint           not null,
  failed_tokens bigint           not null,
  turn          bigint           not null,
  parent        text collate "C",
  forked_at     bigint           not null,
  aliases       bigint           not null,
  seal          bigint           not null  -- a checksum of this row, so that damage is seen at once
) with (fillfactor = 60);
create index forks_of_a_session on onefold.sessions (parent) where parent is not null;

-- Every id that is taken, whatever by: a session, another id of one, or one that was deleted. No two share one.
create table onefold.names (
  id      text collate "C" primary key,
  session text collate "C" not null,
  kind    text             not null, -- session, alias or deleted
  at      double precision not null
);
create index aliases_of_a_session on onefold.names (session) where kind = 'alias';

-- One successor per segment: `base` is the key, so a fork cannot be written down.
create table onefold.segments (
  session       text collate "C" not null,
  base          bigint           not null, -- 0 for the first
  number        bigint           not null,
  cut           bigint           not null,
  source        text             not null,
  at            double precision not null,
  compaction    text,
  summary       bigint,
  kept          text             not null,
  tokens_before bigint           not null,
  tokens_after  bigint           not null,
  rest          text             not null, -- hidden, redo, keeper, as JSON
  primary key (session, base)
);
create unique index segments_by_number on onefold.segments (session, number);

create table onefold.compactions (
  session      text collate "C" not null,
  id           text collate "C" not null,
  state        text             not null,
  requested_at double precision not null,
  rest         text             not null, -- the other fields, as JSON
  primary key (session, id)
);
create index open_compactions on onefold.compactions (requested_at) where state in ('requested', 'running');

-- By a digest of the key: a session's id and a key together may be longer than an index takes.
create table onefold.keys (
  session text collate "C" not null,
  hash    bytea            not null,
  key     text             not null,
  first   bigint           not null,
  count   bigint           not null,
  digest  text             not null,
  primary key (session, hash)
);

-- Inputs that wait for a turn.
create table onefold.inputs (
  session text collate "C" not null,
  number  bigint           not null,
  primary key (session, number)
);

-- Who is left alone with a compaction, or with a turn, and until when. Apart from the rest: nothing is unsafe without.
create table onefold.leases (
  session    text collate "C" primary key,
  compaction text             not null,
  fence      bigint           not null,
  until      double precision not null,
  length     double precision not null
) with (fillfactor = 60);

create table onefold.turn_leases (
  session text collate "C" primary key,
  turn    text             not null,
  fence   bigint           not null,
  until   double precision not null,
  length  double precision not null
) with (fillfactor = 60);
