-- One query a paragraph: its name, a sentence on what it does, the statement.

-- count: how far a room has come.
select number, last, forgotten, folded from counts where room = ?;

-- add_count: a room that keeps its first frames.
insert into counts (room) values (?) returning number, last, forgotten, folded;

-- put_last: more frames were kept.
update counts set last = ? where number = ?;

-- put_forgotten: frames up to this one were removed.
update counts set forgotten = ? where number = ?;

-- put_dropped: nothing is kept of a room any more.
update counts set forgotten = last, folded = ? where number = ?;

-- admit: a room of which something may be kept again.
update counts set folded = 0 where room = ? and folded < 0;

-- known: the sessions of which anything is kept.
select session from rooms union select room from counts where folded >= 0 order by 1;

-- counts: every room that keeps frames, after one of them.
select number from counts where number > ? order by number;

-- add_page: frames that were kept together.
insert into pages (place, last, at, size, coding, body) values (?, ?, ?, ?, ?, ?);

-- page_of: where the page begins that a frame is in, if that page is there.
select max(place) from pages where place between ? and ?;

-- pages: from one place on to another, in order.
select place, at, size, coding, body from pages where place between ? and ? order by place;

-- places: where the pages of a room begin, in order.
select place from pages where place between ? and ? order by place;

-- put_page: other frames in the place of a page's.
update pages set size = ?, coding = ?, body = ? where place = ?;

-- oldest: the first pages of a room, without what is in them.
select place, last, at from pages where place between ? and ? order by place limit ?;

-- largest: the room whose frames take most, and how much.
select place >> 40, sum(length(body)) from pages group by 1 order by 2 desc limit 1;

-- oldest_sizes: the first pages of a room, and how large each is.
select place, last, length(body) from pages where place between ? and ? order by place limit ?;

-- give_back: what was removed makes the file smaller.
pragma incremental_vacuum;

-- drop_pages: some, for good.
delete from pages where place between ? and ?;

-- rooms: all of them, the oldest first.
select session, agent, command, cwd, agent_session, opened_at, closed_at from rooms order by opened_at, session;

-- room: one of them.
select session, agent, command, cwd, agent_session, opened_at, closed_at from rooms where session = ?;

-- put_room: a new one, or what is new of one.
insert into rooms (session, agent, command, cwd, agent_session, opened_at, closed_at) values (?, ?, ?, ?, ?, ?, ?)
on conflict (session) do update set
    agent = excluded.agent, command = excluded.command, cwd = excluded.cwd, agent_session = excluded.agent_session,
    opened_at = excluded.opened_at, closed_at = excluded.closed_at;

-- drop_room: one less.
delete from rooms where session = ?;
