"""Checks of an OpenViking session, and what may be done about each finding. Pure: a session in, findings out.

Three rules stand above all others. A message is only ever taken out of the live file if its id stands in a finished
archive that does not keep it. Counts alone decide nothing. A session without its `.meta.json` is looked at, and left.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from onefold.foreign.findings import ForeignFinding
from onefold.foreign.openviking.id_set import IdSet
from onefold.foreign.openviking.reader import (
    DONE,
    FAILED,
    HISTORY,
    LIVE,
    META,
    NO_ID,
    Archive,
    MessageLog,
    SessionFiles,
)

LOCK_LIFE = 1800
"""Seconds after which OpenViking itself takes a lock for dead."""

Spell = Callable[[str, Collection[int]], list[str]]
"""The ids behind marks that an archive names."""

_SHOWN = 20


def judge(session: SessionFiles, now: float, spell: Spell) -> Iterator[ForeignFinding]:
    """Everything that is wrong. Without a `.meta.json` nothing is repairable."""
    found = _judged(session, now, spell)
    if session.meta.state == "there":
        yield from found
        return
    yield _no_meta(session)
    for finding in found:
        yield replace(finding, repairable=False, remedy=f"Nothing, as long as there is no readable {META}.")


def _judged(session: SessionFiles, now: float, spell: Spell) -> Iterator[ForeignFinding]:
    view = SessionFacts(session)
    yield from _lines(session)
    yield from _stale(session, view)
    yield from _twice(session, view)
    for archive in session.archives:
        yield from _archive(session, archive, view)
        yield from _lost(session, archive, view, spell)
    if session.meta.state == "there":
        yield from _counts(session, view)
    yield from _locks(session, now)


class SessionFacts:
    """What several rules ask about a session, worked out once."""

    def __init__(self, session: SessionFiles) -> None:
        self._session = session

    @cached_property
    def live(self) -> IdSet:
        return IdSet([self._session.live.marks])

    @cached_property
    def finished(self) -> list[Archive]:
        return [archive for archive in self._session.archives if archive.finished]

    @cached_property
    def archived(self) -> IdSet:
        """What stands in the finished archives."""
        return IdSet(_data(archive) for archive in self.finished)

    @cached_property
    def _unfinished(self) -> IdSet:
        return IdSet(_data(archive) for archive in self._session.archives if not archive.finished)

    @cached_property
    def lead(self) -> int:
        """How many lines at the start of the live file a finished archive has. One without an id ends them."""
        marks = self._session.live.marks
        return next((place for place, mark in enumerate(marks) if mark not in self.archived), len(marks))

    @cached_property
    def kept(self) -> list[frozenset[int]]:
        """What each finished archive says stays live."""
        return [frozenset(archive.retained or ()) for archive in self.finished]

    def stale_in(self, mark: int) -> Archive | None:
        """The newest finished archive that has a message, unless it is live on purpose: that archive, or the newest
        one of all, says so."""
        owner = self.archived.owner(mark)
        if owner is None or mark in self.kept[owner] or mark in self.kept[-1]:
            return None
        return self.finished[owner]

    @cached_property
    def stale(self) -> Counter[str]:
        """How many messages at the start of the live file are stale, by the archive that has them."""
        found = (self.stale_in(mark) for mark in self._session.live.marks[: self.lead])
        return Counter(archive.name for archive in found if archive is not None)

    @cached_property
    def behind(self) -> int:
        """How many others a finished archive took, behind newer messages."""
        return sum(1 for mark in self._session.live.marks[self.lead :] if self.stale_in(mark) is not None)

    def missing(self, marks: Iterable[int]) -> frozenset[int]:
        """Those that stand nowhere in the session."""
        places = (self.archived, self.live, self._unfinished)
        return frozenset(mark for mark in marks if not any(mark in place for place in places))


def _data(archive: Archive) -> array[int]:
    return archive.log.marks if archive.log is not None else array("q")


# ---------------------------------------------------------------------- the live file


def _no_meta(session: SessionFiles) -> ForeignFinding:
    missing = session.meta.state == "missing"
    return ForeignFinding(
        kind="no-meta" if missing else "meta-unreadable",
        key=session.name,
        where=f"session {session.name}, {META}",
        wrong="it is not there" if missing else "it cannot be read as JSON",
        means="Nobody can say what this session is meant to hold, so nothing in it is repaired.",
        remedy=f"Restore {META} from a backup, or let OpenViking load the session and write it; then check again.",
        severity="risk",
        damage=True,
    )


def _lines(session: SessionFiles) -> Iterator[ForeignFinding]:
    yield from _broken_lines(session, session.live, LIVE, live=True)
    live = session.live
    if live.nameless:
        yield ForeignFinding(
            kind="no-id",
            key=session.name,
            where=f"session {session.name}, {LIVE}, {_numbers(live.nameless)}",
            wrong=f"{_count(len(live.nameless), 'live message')} without an id",
            means="Whether it was archived before cannot be told, so it stays live whatever the archives say.",
            remedy="Nothing is done to it. Look at it, and remove it by hand if an archive has it.",
            severity="risk",
            facts={"lines": list(live.nameless[:_SHOWN]), "count": len(live.nameless)},
        )
    if not live.ended and not live.torn and live.marks:
        yield ForeignFinding(
            kind="unended-line",
            key=session.name,
            where=f"session {session.name}, {LIVE}, the last line",
            wrong="it is whole but does not end with a newline",
            means="The next message would be written onto the same line, and neither could be read.",
            remedy="A newline is added.",
            severity="risk",
            repairable=True,
        )
    for archive in session.archives:
        if archive.log is not None and archive.done.exists:
            yield from _broken_lines(session, archive.log, f"{HISTORY}/{archive.name}/{LIVE}", live=False)


def _broken_lines(session: SessionFiles, log: MessageLog, file: str, *, live: bool) -> Iterator[ForeignFinding]:
    key = session.name if live else f"{session.name}/{file}"
    remedy = (
        "It is moved to quarantine; a whole message that was written onto its end stays."
        if live
        else "Archives are not rewritten. Restore the file from a backup if you have one."
    )
    if log.torn:
        yield ForeignFinding(
            kind="torn-line",
            key=key,
            where=f"session {session.name}, {file}, line {log.torn}",
            wrong="the last line was cut off in the middle of a write",
            means="One message is lost in part, and the next one would be written onto it and lost as well."
            if live
            else "One archived message is lost in part.",
            remedy=remedy,
            repairable=live,
            damage=not live,
            facts={"line": log.torn},
        )
    if log.foreign:
        yield ForeignFinding(
            kind="foreign-lines",
            key=key,
            where=f"session {session.name}, {file}, {_numbers(log.foreign)}",
            wrong=f"{_count(len(log.foreign), 'line')} that is not a message"
            if len(log.foreign) == 1
            else f"{len(log.foreign)} lines that are not messages",
            means="OpenViking may reject the whole file, or skip what it cannot read.",
            remedy=remedy,
            repairable=live,
            damage=not live,
            facts={"lines": list(log.foreign[:_SHOWN]), "count": len(log.foreign)},
        )


def _stale(session: SessionFiles, view: SessionFacts) -> Iterator[ForeignFinding]:
    if stale := view.stale.total():
        archives = sorted(view.stale)
        kept = view.lead - stale
        yield ForeignFinding(
            kind="stale-messages",
            key=session.name,
            where=f"session {session.name}, {LIVE}",
            wrong=f"{stale:,} of {_count(session.live.messages, 'live message')} were archived before "
            f"({', '.join(archives[:3])}{' …' if len(archives) > 3 else ''}), and are live again",
            means="They are sent to the model as if they were new, next to the summary that stands for them, and the "
            "next commit archives them once more.",
            remedy=f"They are moved out of {LIVE}; the archive has them."
            + (f" {_count(kept, 'message')} that it keeps on purpose stay." if kept else ""),
            repairable=True,
            facts={"count": stale, "kept": kept, "live": session.live.messages, "archives": archives},
        )
    if view.behind:
        yield ForeignFinding(
            kind="archived-behind-new",
            key=session.name,
            where=f"session {session.name}, {LIVE}",
            wrong=f"{_count(view.behind, 'message')} that an archive has stand behind newer ones",
            means="They may be there twice; or somebody sent them again on purpose.",
            remedy="Nothing is done to them: only messages at the start of the file can be told to be left over.",
            severity="risk",
            facts={"count": view.behind},
        )


def _twice(session: SessionFiles, view: SessionFacts) -> Iterator[ForeignFinding]:
    equal, other = _copies(session.live, view.live)
    if equal:
        yield ForeignFinding(
            kind="duplicate-messages",
            key=session.name,
            where=f"session {session.name}, {LIVE}",
            wrong=f"{_count(equal, 'live message')} equal to one before it, its id included",
            means="The model is told the same twice.",
            remedy="The copies are moved to quarantine; the first one stays.",
            repairable=True,
            facts={"count": equal},
        )
    if other:
        yield ForeignFinding(
            kind="duplicate-ids",
            key=session.name,
            where=f"session {session.name}, {LIVE}",
            wrong=f"{_count(other, 'live message')} with the id of another one before it, and other content",
            means="Two different messages are taken for one.",
            remedy="Nothing is done: nobody can say which of them is meant.",
            facts={"count": other},
        )
    if doubled := sum(1 for mark, owner in view.archived.repeated() if mark not in view.kept[owner]):
        yield ForeignFinding(
            kind="archived-twice",
            key=session.name,
            where=f"session {session.name}, {HISTORY}",
            wrong=f"{_count(doubled, 'message')} in more than one finished archive",
            means="A commit archived what had been archived before; what was learnt from it may count twice.",
            remedy="Nothing is done: archives are not rewritten, and nothing is lost.",
            severity="note",
            facts={"count": doubled},
        )


def _copies(log: MessageLog, live: IdSet) -> tuple[int, int]:
    """How many messages have the id of an earlier one: with the same content, and with another."""
    doubled = {mark for mark, _ in live.repeated()}
    first: dict[int, int] = {}
    equal = other = 0
    for mark, body in zip(log.marks, log.bodies, strict=True):
        if mark in doubled and first.setdefault(mark, body) == body:
            equal += 1
        elif mark in doubled:
            other += 1
    return equal - len(doubled), other


# ---------------------------------------------------------------------- archives


@dataclass(frozen=True)
class UnfinishedArchive:
    """In which state an archive without an end was left, and how it is ended."""

    kind: str
    wrong: str
    means: str
    remedy: str
    repairable: bool = True
    damage: bool = False


_BACK = "The commit is rolled back: the archive's folder is moved to quarantine, and the messages stay live."

_EMPTY = UnfinishedArchive(
    "archive-empty",
    "a commit was begun and wrote no messages",
    "The messages are still live. Later commits may wait for this one for ever.",
    _BACK,
)
_HALF = UnfinishedArchive(
    "archive-half-written",
    "a commit was cut off while it wrote its messages",
    "What is in the archive is still live as well. Later commits may wait for this one for ever.",
    _BACK,
)
_NOT_APPLIED = UnfinishedArchive(
    "archive-not-applied",
    "a commit wrote its messages and never took them out of the live file",
    "The messages stand in both places, and later commits may wait for this one for ever.",
    _BACK,
)
_COVERED = UnfinishedArchive(
    "archive-superseded",
    "a commit was cut off, and a later one archived the same messages",
    "Nothing is lost. Later commits may wait for this one for ever.",
    "It is rolled back: its folder is moved to quarantine. The later archive has the messages.",
)
_NOT_READY = UnfinishedArchive(
    "archive-not-ready",
    "a commit moved its messages and was cut off before it said so",
    "The messages are archived and no longer live; the work on the archive does not go on.",
    "The commit is rolled forward: its status becomes ready.",
)
_NOT_DONE = UnfinishedArchive(
    "archive-not-done",
    f"all the work on the archive was done, and neither {DONE} nor {FAILED} says so",
    "Later commits may wait for it for ever.",
    f"The commit is rolled forward: {DONE} is written.",
)
_NOT_WORKED = UnfinishedArchive(
    "archive-not-done",
    f"the archive has its messages, and neither {DONE} nor {FAILED}; the work on it is not done",
    "It may still be queued: OpenViking goes on with it when it starts. If not, later commits may wait for ever.",
    f"{FAILED} is written, so that the next commit takes the archive up. Its messages stay where they are.",
)
_OLD_NOT_WORKED = replace(
    _NOT_WORKED, remedy="Start OpenViking, which takes the work up. Nothing is done here.", repairable=False
)
_MIXED = UnfinishedArchive(
    "archive-mixed",
    "a commit was cut off, and some of its messages are live and some are not",
    "Nobody can say which way it was going. No message is lost.",
    "Nothing is done. Start OpenViking, which may finish it.",
    repairable=False,
)
_HALF_GONE = UnfinishedArchive(
    "archive-half-written",
    "a commit was cut off while it wrote its messages, and they are not all live",
    "What is in the archive may be the only copy.",
    "Nothing is done, so that nothing more is lost. Restore a backup.",
    repairable=False,
    damage=True,
)
_DONE_NO_DATA_LIVE = UnfinishedArchive(
    "done-without-data",
    f"{DONE} says that the archive is finished, and it has no messages; they are still live",
    "OpenViking shows an archive that holds nothing.",
    _BACK,
)
_DONE_NO_DATA = UnfinishedArchive(
    "done-without-data",
    f"{DONE} says that the archive is finished, and it has no messages",
    "What was archived there is gone from this folder; the summary is all that is left.",
    "Nothing is done. Restore the archive from a backup.",
    repairable=False,
    damage=True,
)
_FAILED_NO_DATA = UnfinishedArchive(
    "failed-without-data",
    f"{FAILED} says that the archive failed, and it has no messages",
    "Some versions reject every further commit because of it.",
    "The folder is moved to quarantine.",
)
_BOTH = UnfinishedArchive(
    "both-markers",
    f"the archive has both {DONE} and {FAILED}",
    "Some versions reject every further commit because of it, though the archive is finished.",
    f"{FAILED} is moved to quarantine: the messages are there, and {DONE} names the first and the last of them.",
)
_BOTH_UNCLEAR = replace(
    _BOTH,
    means="It cannot be told whether the archive is finished.",
    remedy=f"Nothing is done: {DONE} does not fit the messages. Compare them, and remove one of the two.",
    repairable=False,
)


def _archive(session: SessionFiles, archive: Archive, view: SessionFacts) -> Iterator[ForeignFinding]:
    if archive.done.state == "unreadable" or archive.failed.state == "unreadable":
        yield _unreadable(session, archive, DONE if archive.done.state == "unreadable" else FAILED)
        return
    if archive.meta.state == "unreadable":
        yield _unreadable(session, archive, META)
    state = _state(archive, view)
    if state is not None:
        yield ForeignFinding(
            kind=state.kind,
            key=f"{session.name}/{archive.name}",
            where=f"session {session.name}, {HISTORY}/{archive.name}",
            wrong=state.wrong,
            means=state.means,
            remedy=state.remedy,
            severity="harm" if state.kind == "done-without-data" else "risk",
            repairable=state.repairable,
            damage=state.damage,
            facts={"archive": archive.name, "worked": archive.worked},
        )
    if archive.finished and not archive.failed.exists and not _fits(archive):
        yield ForeignFinding(
            kind="done-disagrees",
            key=f"{session.name}/{archive.name}",
            where=f"session {session.name}, {HISTORY}/{archive.name}/{DONE}",
            wrong="the first and the last message it names are not those of the archive",
            means="The archive may have been written over, or cut off.",
            remedy="Nothing is done. Compare it with a backup.",
            severity="risk",
            facts={"archive": archive.name},
        )


def _state(archive: Archive, view: SessionFacts) -> UnfinishedArchive | None:
    if archive.done.exists:
        if not archive.finished:
            still_live = archive.archived and view.live.has_all(archive.archived)
            return _DONE_NO_DATA_LIVE if still_live else _DONE_NO_DATA
        if archive.failed.exists:
            return _BOTH if _fits(archive) and _complete(archive) else _BOTH_UNCLEAR
        return None
    if archive.failed.exists:
        return _FAILED_NO_DATA if archive.log is None or not archive.log.marks else None
    return _unfinished(archive, view)


def _unfinished(archive: Archive, view: SessionFacts) -> UnfinishedArchive | None:
    """An archive without an end is rolled back if its messages are still live, and forward if they are not."""
    data = _data(archive)
    taken = frozenset(data if archive.archived is None else archive.archived) - {NO_ID}
    if not data:
        if archive.archived is None or view.live.has_all(taken):
            return _EMPTY
        return _COVERED if view.archived.has_all(taken) else replace(_HALF_GONE, kind="archive-empty")
    moved = taken - frozenset(archive.retained or ())
    if not _complete(archive):
        known = taken | (frozenset(data) - {NO_ID})
        return _HALF if view.live.has_all(known) else _COVERED if view.archived.has_all(known) else _HALF_GONE
    if moved and view.live.has_all(moved):
        return _NOT_APPLIED
    if view.archived.has_all(taken):
        return _COVERED
    if not view.live.has_none(moved):
        return _MIXED
    if archive.status == "preparing":
        return _NOT_READY
    if archive.worked:
        return _NOT_DONE
    return _NOT_WORKED if archive.status is not None else _OLD_NOT_WORKED


def _complete(archive: Archive) -> bool:
    log = archive.log
    return log is not None and log.whole and (archive.archived is None or archive.archived == log.marks)


def _fits(archive: Archive) -> bool:
    """Whether the ends that `.done` names are those of the messages. One that covers other archives too may differ."""
    told, log = archive.done.value, archive.log
    if log is None or told.get("covered_failed_archives"):
        return log is not None
    ends = (("starting_message_id", log.first), ("ending_message_id", log.last))
    return all(not told.get(name) or told[name] == id for name, id in ends)


def _unreadable(session: SessionFiles, archive: Archive, file: str) -> ForeignFinding:
    return ForeignFinding(
        kind="archive-unreadable",
        key=f"{session.name}/{archive.name}/{file}",
        where=f"session {session.name}, {HISTORY}/{archive.name}/{file}",
        wrong="it cannot be read as JSON",
        means="It cannot be told whether the archive is finished, so nothing is decided by it."
        if file != META
        else "It cannot be told which messages the archive keeps live on purpose.",
        remedy="Nothing is done. Restore the file from a backup.",
        severity="risk",
        damage=True,
        facts={"archive": archive.name},
    )


def _lost(session: SessionFiles, archive: Archive, view: SessionFacts, spell: Spell) -> Iterator[ForeignFinding]:
    """Messages that an archive names and that stand nowhere. They cannot be brought back, and are never hidden."""
    missing = view.missing((*(archive.archived or ()), *(archive.retained or ())))
    if missing:
        ids = spell(archive.name, missing)
        yield ForeignFinding(
            kind="messages-lost",
            key=f"{session.name}/{archive.name}",
            where=f"session {session.name}, named in {HISTORY}/{archive.name}/{META}",
            wrong=f"{_count(len(missing), 'message')} that the archive names stand nowhere: "
            f"{', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}",
            means="They are lost from this session.",
            remedy="Nothing here can restore them. Look for them in a backup.",
            damage=True,
            facts={"archive": archive.name, "count": len(missing), "ids": ids[:_SHOWN]},
        )


# ---------------------------------------------------------------------- counts and locks


def _counts(session: SessionFiles, view: SessionFacts) -> Iterator[ForeignFinding]:
    meta = session.meta.value
    live = session.live.messages - view.stale.total()
    said = _number(meta.get("message_count"))
    if said is not None and said != live:
        yield ForeignFinding(
            kind="meta-count",
            key=session.name,
            where=f"session {session.name}, {META}",
            wrong=f"it says that {_count(said, 'message')} are live; there are {live}",
            means="What OpenViking decides by that number, such as when to commit, is wrong.",
            remedy=f"The number becomes {live}. No message is touched because of it.",
            severity="risk",
            repairable=True,
            facts={"said": said, "found": live},
        )
    last = max((archive.number for archive in view.finished), default=0)
    said = _number(meta.get("commit_count"))
    if said is not None and said < last:
        yield ForeignFinding(
            kind="meta-commits",
            key=session.name,
            where=f"session {session.name}, {META}",
            wrong=f"it counts {_count(said, 'commit')}; the newest finished archive is number {last}",
            means="What was committed is shown wrongly, and a number may be used a second time.",
            remedy=f"The number becomes {last}.",
            severity="risk",
            repairable=True,
            facts={"said": said, "found": last},
        )
    numbers = [archive.number for archive in session.archives]
    if gone := sorted(set(range(min(numbers, default=1), max(numbers, default=0))) - set(numbers)):
        yield ForeignFinding(
            kind="archives-missing",
            key=session.name,
            where=f"session {session.name}, {HISTORY}",
            wrong=f"{_count(len(gone), 'number')} between the archives without an archive: {_listed(gone)}",
            means="They were removed to save space, or rolled back, or they are lost.",
            remedy="Nothing is done.",
            severity="note",
            facts={"numbers": gone[:_SHOWN]},
        )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _locks(session: SessionFiles, now: float) -> Iterator[ForeignFinding]:
    for lock in session.locks:
        if lock.since is not None and now - lock.since <= LOCK_LIFE:
            continue
        dead = lock.since is not None
        yield ForeignFinding(
            kind="stale-lock",
            key=f"{session.name}/{lock.name}",
            where=f"session {session.name}, {lock.name}",
            wrong=f"a lock taken {int(now - lock.since):,} seconds ago that nobody gave back"
            if lock.since is not None
            else "a lock that does not say since when it is held",
            means="Whoever held it died. Writers may be rejected until it is noticed.",
            remedy="It is moved to quarantine." if dead else "Nothing is done. Remove it if no OpenViking runs.",
            severity="risk",
            repairable=dead,
            facts={"file": lock.name},
        )


# ---------------------------------------------------------------------- words


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _numbers(lines: tuple[int, ...]) -> str:
    return f"line{'' if len(lines) == 1 else 's'} {_listed(lines)}"


def _listed(numbers: Collection[int]) -> str:
    shown = ", ".join(str(number) for number in list(numbers)[:5])
    return shown + (" …" if len(numbers) > 5 else "")
