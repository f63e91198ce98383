-- Compactions that rest, and the limits a session goes by. A writer that knows neither would fold such records wrongly.
-- undo: no

alter table onefold.sessions add column paid bigint not null default 0;
alter table onefold.sessions add column rests bigint not null default 0;
alter table onefold.sessions add column limits bigint not null default 0;
alter table onefold.sessions add column "window" bigint not null default 0;
