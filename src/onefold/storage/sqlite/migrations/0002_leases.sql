-- Who is left alone with a compaction, and until when. Apart from the rest: nothing is unsafe without it.
-- undo: yes

create table leases (
  session    text primary key,
  compaction text    not null,
  fence      integer not null,
  until      real    not null,
  length     real    not null
) without rowid;
