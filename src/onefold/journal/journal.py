"""The journal contract: every operation on a session, each one transaction, each safe to repeat.

Read this file to find the race. The argument in short:

- A compaction moves the boundary in `commit` alone, by a `segment.opened` record that names the segment it replaces.
  A second segment with the same base cannot be written, because the base is a unique key in every store.
- What an attempt may summarise is fixed by its own `compaction.started` record: everything before it. So whatever is
  appended later has a higher number than the cut may have, and is in the next context.
- A lease decides who pays for a summary, never who is right. `commit` does not look at it: the first valid summary
  wins, and a lease that is lost, stolen, broken or missing costs a model call.
- Whatever opens a segment settles, in the same transaction, the compaction that is open on another one.
- Attempts are counted at claim, so a crash counts; one that is handed back is not an attempt. An attempt has a longest
  life that renewals cannot stretch, and whoever meets a dead last attempt settles it. So every compaction ends as long
  as one process lives.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from onefold.errors import (
    CommitRefused,
    CompactionCancelled,
    CompactionSuperseded,
    MessageTooLarge,
    OnefoldError,
    SessionNotFound,
    StaleHandle,
    StoreDamaged,
)
from onefold.ids import random_id
from onefold.journal import lineage, reader
from onefold.journal.backoff import held_back
from onefold.journal.checks import (
    check_choice,
    check_name,
    check_owner_process,
    check_seconds,
    commit_refused,
    key_conflict,
    may_compact,
    turn_lost,
)
from onefold.journal.leases import BestEffortLeases
from onefold.journal.lineage import get_session
from onefold.journal.process_liveness import MACHINE, Machine
from onefold.journal.record_bodies import (
    NOTHING,
    failed,
    handed_back,
    printable,
    same_content,
    summary_fields,
    usage_fields,
)
from onefold.journal.verify import repair
from onefold.messages import encode
from onefold.model import (
    ALIAS,
    CANCELLED,
    COMMITTED,
    FAILED,
    INPUT_QUEUED,
    JOINED,
    MANUAL,
    MESSAGE,
    REQUESTED,
    SEGMENT_OPENED,
    SKIPPED,
    STARTED,
    SUPERSEDED,
    AppendResult,
    Claim,
    ClaimDenied,
    Compaction,
    Draft,
    Holder,
    HolderId,
    Ids,
    Json,
    Keeper,
    Lease,
    Quotes,
    Record,
    RequestOutcome,
    Segment,
    SessionState,
    Summary,
    TurnClaim,
    Usage,
)
from onefold.storage import projection
from onefold.storage.base import Backend, SessionLocked, Transaction, UniqueViolation
from onefold.storage.projection import segment_body

log = logging.getLogger("onefold")

SUMMARY_LIMIT = 1 << 20
CLAIMABLE_AT_ONCE = 32


class AliasTaken(UniqueViolation):
    """Another session is known by that id."""


class Journal:
    """The operations of the contract, on any backend."""

    def __init__(self, backend: Backend, *, ids: Ids = random_id, machine: Machine = MACHINE) -> None:
        self.backend = backend
        self.new_id = ids
        self.leases = BestEffortLeases(backend.address, machine)

    # ------------------------------------------------------------------ sessions and records

    def create(self, session: str, *, keeper: Keeper = "onefold") -> SessionState:
        """Makes a session, or finds it as it is. A damaged projection is rebuilt on the way."""
        check_choice(session, "keeper", keeper, Keeper)

        def create_in(tx: Transaction) -> SessionState:
            state = tx.session(session)
            if state is None and tx.last_number(session):
                repair(tx, session, self.new_id)
                state = tx.session(session)
            if state is None and (owner := tx.owner(session)) is not None:
                return get_session(tx, owner)
            if state is None:
                if tx.deleted(session) is not None:
                    raise SessionNotFound(session, deleted=True)
                body: dict[str, Json] = {"session": session, "base": None, "cut": 1, "source": "created"}
                if keeper != "onefold":
                    body["keeper"] = keeper
                state = self.add(tx, projection.initial_state(session, tx.now), self.draft(SEGMENT_OPENED, body))
                tx.put_session(state)
            return state

        return self.backend.write(session, create_in)

    def state(self, session: str) -> SessionState:
        return self.backend.read(lambda tx: get_session(tx, session))

    def append(
        self, session: str, drafts: Sequence[Draft], *, key: str | None = None, turn: TurnClaim | None = None
    ) -> AppendResult:
        """Adds records, all or none, and never waits for a compaction. In a turn, only as long as that is open."""
        if turn is not None:
            check_owner_process(turn)

        def append_in(tx: Transaction) -> AppendResult:
            state = tx.session(session) or get_session(tx, session)
            if key is not None and (use := tx.key(session, key)) is not None:
                if not same_content(tx, session, use, drafts):
                    raise key_conflict(session, key, use)
                before = tuple(range(use.first, use.first + use.count))
                return AppendResult(before, duplicate=True, hidden=lineage.taken_back(tx, session, before))
            if turn is not None and state.turn != turn.number:
                raise turn_lost(tx, turn)
            first = state.last + 1
            for d in drafts:
                state = self.add(tx, state, d)
            tx.put_session(state)
            numbers = (first,) if first == state.last else tuple(range(first, state.last + 1))
            return tuple.__new__(
                AppendResult, (numbers, False, ())
            )  # without the call that a named tuple's constructor is

        if key is not None or turn is not None:
            within = turn.id if turn is not None else None
            drafts = [d._replace(key=key, turn=within or d.turn) for d in drafts]
        size = len(drafts[0].data) if len(drafts) == 1 else sum(len(d.data) for d in drafts)
        return self.backend.write(session, append_in, size=size)

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Record]:
        """Records with start ≤ number < stop, in pages, so that no long read holds the store's log open."""
        return reader.iter_records(self.backend, session, start, stop)

    def follow(
        self, session: str, after: int = 0, *, generation: str | None = None, idle: float | None = None
    ) -> Iterator[Record]:
        """Records after a number, for ever, as they become durable; ends if nothing came for `idle` seconds."""
        return reader.follow(self.backend, session, after, generation=generation, idle=idle)

    def wait(self, session: str, after: int, timeout: float) -> bool:
        """Waits until the session has a record after this number; False if it did not come in time."""
        return reader.wait(self.backend, session, after, self.backend.version(), timeout)

    # ------------------------------------------------------------------ compaction

    def request(
        self,
        session: str,
        *,
        trigger: str = MANUAL,
        base: int | None = None,
        instructions: str | None = None,
        attempts: int = 3,
        actor: str | None = None,
        key: str | None = None,
    ) -> RequestOutcome:
        """Asks for a compaction of segment `base`, the one the caller measured.

        Opens one, joins the open one, or learns that the head has moved on already. A person (trigger "manual")
        passes the wait after a failure and the bounds on automatic ones, never the count of attempts. Where those are
        held back, and after an undo, a context that is full is heard: `journal/backoff.py` has the rules.
        """
        if attempts < 1:
            raise OnefoldError(f"session {session!r}: a compaction needs at least one attempt, not {attempts}")

        def request_in(tx: Transaction) -> RequestOutcome:
            state = get_session(tx, session)
            may_compact(tx, state)
            if base is not None and base != state.head:
                head = segment(tx, session, state.head)
                if trigger != MANUAL or not lineage.masked_since(tx, session, head, base):
                    return self._moved_on(tx, state, base)
            if key is not None and (use := tx.key(session, key)) is not None:
                said = tx.record(session, use.first)
                if said is None or said.kind not in (REQUESTED, JOINED):
                    raise key_conflict(session, key, use)
                before = tx.compaction(session, said.body["compaction"])
                return RequestOutcome(before, "opened" if said.kind == REQUESTED else "joined", state.head)
            current = self._open(tx, state)
            if current is not None and self._dead_last_attempt(tx, current):
                state = self._settle_dead(tx, state, current)
                current = None
            if (held := held_back(tx, state, trigger, attempts, current)) is not None:
                return RequestOutcome(None, "held back", state.head, held.cause, held.until)
            if current is not None:
                body = {"compaction": current.id, "trigger": trigger, "hurry": trigger == MANUAL}
                state = self.add(tx, state, self.draft(JOINED, body, actor=actor, key=key))
                tx.put_session(state)
                return RequestOutcome(tx.compaction(session, current.id), "joined", state.head)
            state = self.ask(tx, state, trigger, instructions=instructions, attempts=attempts, actor=actor, key=key)
            tx.put_session(state)
            return RequestOutcome(tx.compaction(session, state.open or ""), "opened", state.head)

        return self.backend.write(session, request_in)

    def claim(
        self,
        session: str,
        who: HolderId,
        *,
        lease: float = 60.0,
        life: float = 600.0,
        compaction: str | None = None,
    ) -> Claim | ClaimDenied:
        """Takes the open compaction to work on, unless somebody holds a lease in force.

        With `compaction`, that one or none. A claim that is not granted writes nothing, but for a last attempt that
        died: whoever meets it settles it.
        """
        return self.backend.write(session, self._claiming(session, who, lease, life, compaction))

    def _claiming(
        self, session: str, who: HolderId, lease: float, life: float, compaction: str | None
    ) -> Callable[[Transaction], Claim | ClaimDenied]:  # fmt: skip
        check_seconds(session, lease=lease, life=life)

        def claiming_in(tx: Transaction) -> Claim | ClaimDenied:
            state = get_session(tx, session)
            current = self._open(tx, state)
            if current is None or compaction not in (None, current.id):
                return ClaimDenied("nothing open")
            if self._dead_last_attempt(tx, current):
                self._settle_dead(tx, state, current)
                return ClaimDenied("nothing open")
            held = self._held(tx, current)
            if held is not None:
                return held
            turn = state.turn
            body = {"compaction": current.id, "base": current.base, "life": life, **self.leases.holder(who)}
            state = self.add(tx, state, self.draft(STARTED, body))
            tx.put_session(state)
            until = tx.now + min(lease, life)
            self.leases.put(tx, session, Lease(current.id, state.last, until, lease))
            return Claim(
                session=session,
                compaction=current.id,
                fence=state.last,
                base=current.base,
                attempt=current.attempts + 1,
                attempts_allowed=current.attempts_allowed,
                lease=lease,
                life=life,
                until=until,
                pid=os.getpid(),
                takes_over=current.state == "running",
                turn=turn,
            )

        return claiming_in

    def claim_next(self, who: HolderId, *, lease: float = 60.0, life: float = 600.0) -> Claim | None:
        """Takes any open compaction of any session that onefold keeps, the longest waiting first. Those that somebody
        holds, or that wait, are only looked at: who finds nothing to do writes nothing. A session that somebody writes
        to just now is passed over: it is there the next time."""
        tried: set[str] = set()
        while some := deque(self.backend.read(partial(self._claimable_ones, tried))):
            while some:
                if tried:  # somebody was first: each goes on elsewhere in the line, so that many do not meet again
                    some.rotate(-zlib.crc32(f"{who.pid} {who.nonce} {len(tried)}".encode()))
                waiting = some.popleft()
                tried.add(waiting.id)
                work = self._claiming(waiting.session, who, lease, life, waiting.id)
                try:
                    claimed = self.backend.write(waiting.session, work, patient=False)
                except SessionLocked:
                    continue
                except (SessionNotFound, StoreDamaged) as error:
                    log.warning("session %r is passed over: %s", waiting.session, error)
                    continue
                if isinstance(claimed, Claim):
                    return claimed
        return None

    def _claimable_ones(self, tried: set[str], tx: Transaction) -> list[Compaction]:
        """The first few of them: where thousands wait, a worker looks at no more than it needs."""
        found: list[Compaction] = []
        for waiting in tx.open_compactions():
            if len(found) == CLAIMABLE_AT_ONCE:
                break
            if waiting.id in tried:
                continue
            try:
                base = tx.segment(waiting.session, waiting.base)
            except StoreDamaged as error:
                log.warning("session %r is passed over: %s", waiting.session, error)
                continue
            kept = base is None or base.keeper == "onefold"  # else its agent compacts it
            if kept and (self._dead_last_attempt(tx, waiting) or self._held(tx, waiting) is None):
                found.append(waiting)
        return found

    def claimable(self, session: str, compaction: str) -> ClaimDenied | None:
        """What a claim would be answered, without writing: None if it is worth trying."""

        def claimable_in(tx: Transaction) -> ClaimDenied | None:
            current = self._open(tx, get_session(tx, session))
            if current is None or current.id != compaction:
                return ClaimDenied("nothing open")
            return None if self._dead_last_attempt(tx, current) else self._held(tx, current)

        return self.backend.read(claimable_in)

    def renew(self, claim: Claim) -> float | None:
        """Extends the lease, up to the attempt's longest life. None: it is no longer this claim's."""
        check_owner_process(claim)

        def renew_in(tx: Transaction) -> float | None:
            current = tx.compaction(claim.session, claim.compaction)
            if current is None or current.state != "running" or current.fence != claim.fence:
                return None
            if not current.alive(tx.now):
                return None
            until = min(tx.now + claim.lease, (current.started_at or tx.now) + current.life)
            self.leases.put(tx, claim.session, Lease(claim.compaction, claim.fence, until, claim.lease))
            return until

        return self.backend.write(claim.session, renew_in)

    def commit(
        self,
        claim: Claim,
        summary: Summary | str,
        cut: int | None = None,
        *,
        kept: Sequence[int] = (),
        quotes: Quotes | None = None,
        follow_up: Draft | None = None,
        alias: str | None = None,
    ) -> Segment:
        """Moves the boundary: summary, quotes, cut, follow-up and state together, or nothing and the reason why.

        Without a cut, at all that was claimed. With `alias`, the session is known by one more id from then on, by which
        a program that keeps its own transcripts publishes a new one."""
        check_owner_process(claim)
        made = Summary(summary) if isinstance(summary, str) else summary
        if not made.text.strip():
            raise commit_refused(CommitRefused, claim, "the summary is empty")
        if (size := len(made.text.encode("utf-8", "surrogatepass"))) > SUMMARY_LIMIT:
            raise MessageTooLarge(f"session {claim.session!r}: a summary of {size} bytes is over the limit of 1 MiB")

        def commit_in(tx: Transaction) -> Segment:
            state = get_session(tx, claim.session)
            current = tx.compaction(claim.session, claim.compaction)
            if current is None:
                raise commit_refused(CommitRefused, claim, "the store knows no such compaction")
            if current.state == "committed" and current.fence == claim.fence and current.segment is not None:
                return segment(tx, claim.session, current.segment)
            if current.state == "cancelled":
                raise commit_refused(CompactionCancelled, claim, "it was cancelled")
            if not current.open:
                raise commit_refused(CompactionSuperseded, claim, f"it is {current.state} already")
            if state.head != claim.base:
                raise commit_refused(CompactionSuperseded, claim, f"the session moved on to segment {state.head}")
            started = tx.record(claim.session, claim.fence)
            if started is None or started.kind != STARTED or started.body["compaction"] != current.id:
                raise commit_refused(CommitRefused, claim, f"record {claim.fence} is not its claim")
            base = segment(tx, claim.session, state.head)
            if base.keeper != "onefold":
                raise commit_refused(
                    CommitRefused, claim, "the session's agent compacts it; its compactions are observed"
                )
            at = claim.fence if cut is None else cut
            if not base.cut < at <= claim.fence:
                raise commit_refused(
                    CommitRefused, claim, f"its cut {at} lies outside {base.cut + 1}…{claim.fence}, what it claimed"
                )
            by_name = [
                lineage.record(tx, claim.session, n) for n in sorted({*kept}) if not lineage.is_hidden(base.hidden, n)
            ]
            if len(by_name) < len(kept) or any(r is None or r.kind != MESSAGE or r.number >= at for r in by_name):
                raise commit_refused(
                    CommitRefused, claim, f"not all it keeps, {list(kept)}, are messages in view before its cut"
                )
            quoted = lineage.check_quotes(tx, claim, quotes, at, hidden=base.hidden, kept=kept)
            like = lineage.cut_at(base, at, kept)
            moved = segment_body(
                like, state, source="compaction", compaction=current.id, **summary_fields(made, quotes)
            )
            moved["tokens_after"] = lineage.context_tokens(
                tx, claim.session, like, state.last, told=moved, quoted=quoted
            )
            done = {
                "compaction": current.id,
                "fence": claim.fence,
                "segment": state.last + 2,
                **usage_fields(made.spent),
            }
            state = self.open_segment(tx, self.add(tx, state, self.draft(COMMITTED, done)), moved)
            opened = state.head
            if follow_up is not None:
                state = self.add(tx, state, follow_up._replace(kind=INPUT_QUEUED))
            if alias is not None:
                state = self.name(tx, state, alias)
            tx.put_session(state)
            self.leases.drop(tx, claim.session)
            return segment(tx, claim.session, opened)

        try:
            return self.backend.write(claim.session, commit_in)
        except AliasTaken as taken:
            raise commit_refused(CommitRefused, claim, str(taken)) from None
        except UniqueViolation:
            raise commit_refused(CompactionSuperseded, claim, f"segment {claim.base} has a successor already") from None

    def fail(
        self,
        claim: Claim,
        error: str,
        retry_after: float | None,
        *,
        refusal: str | None = None,
        spent: Usage = NOTHING,
        asked: bool = True,
        input: str | None = None,
    ) -> Compaction:
        """Ends this attempt, if the claim is the newest. Without `retry_after`, or attempts left, it ends the whole.

        `refusal` is the name of the check that a summary did not pass, `asked` whether a summarizer was asked at all:
        what failed before that is held against nobody. `input` says what the summary was made of.
        """
        more = {"refusal": refusal, "input": input, "asked": None if asked else 0}
        said = {**{name: value for name, value in more.items() if value is not None}, **usage_fields(spent)}
        return self._end_attempt(claim, FAILED, partial(failed, error, retry_after, said))

    def hand_back(self, claim: Claim, why: str, *, asked: bool) -> Compaction:
        """Gives a claim back, for the next one to take at once: no failure, and no attempt. `asked` says whether a
        summarizer was asked: such a call is paid, and after a few of them automatic triggers rest."""
        return self._end_attempt(claim, FAILED, partial(handed_back, why, asked))

    def skip(self, claim: Claim, why: str) -> Compaction:
        """Ends the compaction because there is nothing to compact: a final state, and no failure."""
        return self._end_attempt(claim, SKIPPED, lambda now, current: {"cause": printable(why)})

    def _end_attempt(self, claim: Claim, kind: str, body: Callable[[float, Compaction], dict[str, Json]]) -> Compaction:
        """Ends an attempt in one of these ways, if the claim is the newest; otherwise it is over already."""
        check_owner_process(claim)

        def end_attempt_in(tx: Transaction) -> Compaction:
            state = get_session(tx, claim.session)
            current = _compaction(tx, claim.session, claim.compaction)
            if current.state != "running" or current.fence != claim.fence:
                return current
            said = {"compaction": current.id, **body(tx.now, current)}
            tx.put_session(self.add(tx, state, self.draft(kind, said)))
            self.leases.drop(tx, claim.session)
            return _compaction(tx, claim.session, claim.compaction)

        return self.backend.write(claim.session, end_attempt_in)

    def cancel(self, session: str, compaction: str | None = None, *, actor: str | None = None) -> Compaction | None:
        """Ends a request, whoever works on it. Gives the compaction as it is then; None if none was open."""

        def cancel_in(tx: Transaction) -> Compaction | None:
            state = get_session(tx, session)
            id = compaction or state.open
            if id is None:
                return None
            current = _compaction(tx, session, id)
            if not current.open:
                return current
            body = {"compaction": id}
            tx.put_session(self.add(tx, state, self.draft(CANCELLED, body, actor=actor)))
            self.leases.drop(tx, session)
            return _compaction(tx, session, id)

        return self.backend.write(session, cancel_in)

    # ------------------------------------------------------------------ what can be asked

    def holder(self, session: str) -> Holder | None:
        """Who works on this session's compaction now, if a lease is in force."""
        return self.backend.read(lambda tx: self.holds(tx, self._open(tx, get_session(tx, session))))

    def holds(self, tx: Transaction, current: Compaction | None) -> Holder | None:
        """The same of one compaction, within a transaction."""
        if current is None or current.holder is None or current.started_at is None:
            return None
        held = self.leases.held(tx, current)
        if held is None or held.until is None:
            return None
        return Holder(**asdict(current.holder), since=current.started_at, until=held.until)

    def compaction(self, session: str, id: str) -> Compaction:
        return self.backend.read(lambda tx: _compaction(tx, session, id))

    # ------------------------------------------------------------------ the rules' small parts

    def draft(self, kind: str, body: Json, *, actor: str | None = None, key: str | None = None,
               turn: str | None = None) -> Draft:  # fmt: skip
        return Draft(self.new_id(), kind, body, encode(body), key=key, turn=turn, actor=actor)

    def add(self, tx: Transaction, state: SessionState, d: Draft) -> SessionState:
        """Writes one record with the next number, and folds it in."""
        id, kind, body, data, format, header, key, turn, actor = d
        record = tuple.__new__(Record, (state.last + 1, id, kind, tx.now, body, format, header, key, turn, actor))
        tx.add(state.id, record, data)
        return projection.apply(tx, state, record)

    def open_segment(
        self, tx: Transaction, state: SessionState, body: dict[str, Json], actor: str | None = None
    ) -> SessionState:
        """The one way a boundary moves. A compaction that is still open was planned on another segment: settled."""
        if state.open is not None:
            state = self.add(tx, state, self.draft(SUPERSEDED, {"compaction": state.open, "cause": "the head moved"}))
            self.leases.drop(tx, state.id)
        return self.add(tx, state, self.draft(SEGMENT_OPENED, body, actor=actor))

    def ask(
        self, tx: Transaction, state: SessionState, trigger: str, *, instructions: str | None = None,
        attempts: int = 3, actor: str | None = None, key: str | None = None,
    ) -> SessionState:  # fmt: skip
        """Opens a compaction of the head segment."""
        body = {
            "compaction": self.new_id(), "base": state.head, "trigger": trigger, "attempts_allowed": attempts,
            "instructions": instructions,
        }  # fmt: skip
        return self.add(tx, state, self.draft(REQUESTED, body, actor=actor, key=key))

    def name(self, tx: Transaction, state: SessionState, alias: str, actor: str | None = None) -> SessionState:
        """Makes a session known by one more id. Said again, nothing happens; no two sessions share one."""
        check_name("alias", alias)
        owner = alias if tx.session(alias) is not None else tx.owner(alias)
        if owner == state.id:
            return state
        if owner is not None or tx.deleted(alias) is not None:
            what = f"session {owner!r}" if owner is not None else "of a session that was deleted"
            raise AliasTaken(f"{alias!r} is {what} already; session {state.id!r} cannot be known by it")
        return self.add(tx, state, self.draft(ALIAS, {"alias": alias}, actor=actor))

    def _open(self, tx: Transaction, state: SessionState) -> Compaction | None:
        return None if state.open is None else _compaction(tx, state.id, state.open)

    def _moved_on(self, tx: Transaction, state: SessionState, base: int) -> RequestOutcome:
        successor = tx.successor(state.id, base)
        if successor is None:
            raise StaleHandle(f"session {state.id!r} has no segment {base}; ask for its context again")
        did = None if successor.compaction is None else tx.compaction(state.id, successor.compaction)
        return RequestOutcome(did, "moved on", state.head)

    def _dead_last_attempt(self, tx: Transaction, current: Compaction) -> bool:
        """Whether the last allowed attempt is over without an end of its own.

        A lease that is there and has run out says so, or that its process is certainly gone. Where neither can be
        told, only the attempt's longest life does: its worker may well be alive.
        """
        if current.state != "running" or current.attempts < current.attempts_allowed:
            return False
        return not current.alive(tx.now) or self.leases.over(tx, current)

    def _held(self, tx: Transaction, current: Compaction) -> ClaimDenied | None:
        """Why an open compaction cannot be claimed now; None if it can."""
        if current.waits(tx.now):
            return ClaimDenied("waiting", current.not_before)
        held = self.leases.held(tx, current)
        if held is not None:
            return held
        if current.attempts >= current.attempts_allowed:
            until = (current.started_at or tx.now) + current.life
            return ClaimDenied("held", until, near=self.leases.near(current.process))
        return None

    def _settle_dead(self, tx: Transaction, state: SessionState, current: Compaction) -> SessionState:
        cause = f"attempt {current.attempts} of {current.attempts_allowed} ended without a word: {current.holder}"
        body = {"compaction": current.id, "attempt": current.attempts, "cause": cause, "final": True}
        self.leases.drop(tx, state.id)
        state = self.add(tx, state, self.draft(FAILED, body))
        tx.put_session(state)
        return state


def segment(tx: Transaction, session: str, number: int) -> Segment:
    found = tx.segment(session, number)
    if found is None:
        raise StoreDamaged(f"session {session!r} has no segment {number}; run `onefold verify --fix`")
    return found


def _compaction(tx: Transaction, session: str, id: str) -> Compaction:
    found = tx.compaction(session, id)
    if found is None:
        raise OnefoldError(f"session {session!r} has no compaction {id!r}; `onefold show SESSION` lists them")
    return found
