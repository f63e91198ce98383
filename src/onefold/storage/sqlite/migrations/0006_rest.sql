-- Compactions that rest, and the limits a session goes by. A writer that knows neither would fold such records wrongly.
-- undo: no

alter table sessions add column paid integer not null default 0;
alter table sessions add column rests integer not null default 0;
alter table sessions add column limits integer not null default 0;
alter table sessions add column "window" integer not null default 0;
