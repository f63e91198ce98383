-- Raw frames: what went over the wire between an agent and onefold, apart from the journal.

-- How far each room has come. Its row stays when its frames are gone, so that no number is ever given twice. `folded`
-- is -1 once the room's session was deleted, so that no process keeps anything of it any more, and else of no meaning.
create table counts (
    number integer primary key,
    room text not null unique,
    last integer not null default 0,
    forgotten integer not null default 0,
    folded integer not null default 0
);

-- Several frames each. `place` is the room's number and that of the page's first frame in one (see `place` in the code),
-- so that a room's pages lie side by side and in order. `at` is when they were kept, `size` how large the body is
-- unpacked, `coding` how it is packed.
create table pages (
    place integer primary key,
    last integer not null,
    at real not null,
    size integer not null,
    coding integer not null,
    body blob not null
);

create table rooms (
    session text primary key,
    agent text not null,
    command text not null,
    cwd text not null,
    agent_session text,
    opened_at real not null,
    closed_at real
) without rowid;
