-- One tree for all records, in the order of their numbers: an append writes to its end, and to no index.
-- undo: no

-- Every session's number in this store. A part of the truth, as the records are.
create table journals (
  sid     integer primary key,
  session text    not null unique
);
insert into journals (session) select distinct session from records order by session;

create table places (
  place  integer primary key, -- the session's number in this store times 2^32, and the record's number
  id     text    not null,
  kind   text    not null,
  at     real    not null,
  format text,
  role   text,                -- of a message: what the planner needs to know of it
  tokens integer,
  opens  text,                -- ids of the tool calls it makes, as a JSON array
  closes text,                -- ids of the tool calls it answers
  key    text,
  turn   text,
  actor  text,
  body   text    not null,    -- JSON; a leading space says: parse with care
  number integer generated always as (place & 4294967295) virtual
);
insert into places (place, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body)
select (sid << 32) + number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body
from records join journals on journals.session = records.session order by sid, number;

drop table records;
alter table places rename to records;

-- Few of all records, and looked up together.
create index marks on records (place) where kind in ('pin.added', 'pin.removed', 'note', 'alias');
