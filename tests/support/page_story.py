"""A store with believable sessions, for the page's tests and its pictures: an agent at work on a payments service, its
compactions (one failed, one running), pins, notes, an undo, a fork. Always the same, but for ids and the hour."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onefold
from onefold import Policy, Session, Summary
from onefold.compaction.holder import this_process
from onefold.compaction.limits import Limits
from onefold.compaction.summarizer import Made, SummaryInput
from onefold.model import Json, Usage
from onefold.store import Store

WINDOW = 64_000
POLICY = Policy(limits=Limits(WINDOW), tail_tokens=5_000, backoff=(0.0,))
MAIN = "payments/retry-refactor"

_SYSTEM = (
    "You are a careful engineer in the payments team. Work in small steps, run the tests after each change, and never "
    "touch production data. Ask before you change a public interface."
)
_TASKS = (
    "The retry logic in payments/charge.py swallows card errors. Find out why, and make it tell the caller.",
    ("Good. Now the idempotency keys: two workers can charge the same order twice. Write a test that shows it first."),
    "Use a unique index rather than a lock, please. And keep the old column until the next release.",
    "The nightly job failed with `deadlock detected`. Look at the order in which it takes the rows.",
    "Can you make the back-off configurable? Default stays 2, 15, 60 seconds.",
    "Write the migration so that it can run while the service is up. No table lock longer than a second.",
    "Review the pull request of the webhook team: do their signatures hold against replay?",
    ("The dashboard shows p99 at 1.9 s since Tuesday. Find the query, and say what you would change before you do it."),
)
_MORE = (
    "Go on.",
    "Looks right. Next file, please.",
    "Run the whole suite once more before you commit.",
    "Why that order? Explain it in two sentences.",
    "Yes, but keep the public names as they are.",
    "Commit this, then look at the callers.",
)
_SAYS = (
    "I'll look at how the errors travel from the gateway client up to the caller.",
    (
        "The test fails as expected: both workers read `status = 'pending'` before either of them writes. A "
        "unique index on `(order_id, attempt)` makes the second insert fail, and the loser reads the winner's "
        "row."
    ),
    ("All 214 tests pass. The back-off is now read once at start, so a running worker keeps the one it began with."),
    (
        "Two things stand out:\n\n1. `charge()` catches `GatewayError` and returns `None`, so a declined card "
        "looks like success.\n2. The retry counts attempts per process, not per order.\n\nI'd mend the first "
        "now, and ask about the second, since it changes a table."
    ),
    (
        "The query plan shows a sequential scan over `ledger_entries`: the index has the columns in the other "
        "order. I would add `ledger_entries (account_id, posted_at)` concurrently, and drop the old one after "
        "a day."
    ),
    (
        "Done, in three commits. The migration adds the column as nullable, fills it in batches of 1,000, then "
        "sets the default:\n\n```sql\nalter table charges add column retry_after interval;\ncreate unique "
        "index concurrently\n    charges_order_attempt on charges (order_id, attempt);\n```\n\nNo lock is held "
        "for more than 40 ms on a copy of last night's data."
    ),
    (
        "The deadlock comes from two jobs that take the same rows in different orders. Sorting by `id` before "
        "the update removes it; I ran both jobs against each other 500 times without one."
    ),
)
_SUMMARIES = (
    (
        "**Goal.** Make failed charges visible to their caller, and charge no order twice.\n\n**Found.** "
        "`charge()` caught `GatewayError` and gave back `None`, so a declined card looked like success "
        "(payments/charge.py:88). Attempts were counted per process.\n\n**Done.** `ChargeFailed` carries the "
        "order and the gateway's code; 11 callers were changed. Tests in tests/payments/test_charge.py, all "
        "green.\n\n**Open.** Two workers can still charge one order twice."
    ),
    (
        "**Goal.** As before; now also the nightly job's deadlock.\n\n**Done since.** A unique index on "
        "`(order_id, attempt)` takes the place of the lock (migration 0042, runs while the service is up, the "
        "old column stays until the next release). The losing worker reads the winner's row.\n\n**Decided.** "
        "No lock longer than a second in any migration. Back-off stays 2, 15, 60 s by default and is "
        "configurable as `PAYMENTS_BACKOFF`.\n\n**Open.** The nightly job takes rows in another order than the "
        "refund job."
    ),
    (
        "**Goal.** Finish the review of webhook signatures, then the slow dashboard query.\n\n**Done since.** "
        "Both jobs sort by id before they update: no deadlock in 500 runs. Review: signatures lack a "
        "timestamp, so a replay within the hour is accepted; written up in the pull request.\n\n**Next.** "
        "Index `ledger_entries (account_id, posted_at)`, concurrently; ask before the old one is dropped."
    ),
)


def _pytest(r: random.Random) -> str:
    lines = [f"tests/payments/test_{r.choice(_NAMES)}.py {'.' * r.randint(8, 40)}  [{n * 9:3d}%]" for n in range(1, 12)]
    return "\n".join([*lines, "", f"{r.randint(190, 230)} passed in {r.uniform(4, 19):.2f}s"])


_NAMES = ("charge", "refund", "ledger", "webhook", "retry", "order", "gateway", "invoice")


def _code(r: random.Random) -> str:
    name = r.choice(_NAMES)
    lines = [f"class {name.title()}Service:", f'    """Everything that has to do with {name}s."""', ""]
    for i in range(r.randint(30, 90)):
        verb = r.choice(("load", "store", "retry", "post", "settle", "cancel"))
        lines += [
            f"    def {verb}_{r.choice(_NAMES)}_{i}(self, order: Order, *, attempt: int = {i % 4}) -> Receipt | None:",
            f"        with self.ledger.entry(order.id, attempt, reason={verb!r}) as entry:",
            f"            return self.gateway.{verb}(order, key=order.key(attempt), timeout={r.randint(2, 30)})",
            "",
        ]
    return "\n".join(lines)


def _sql(r: random.Random) -> str:
    lines = ["-- Runs while the service is up.", "set lock_timeout = '1s';", ""]
    for name in r.sample(_NAMES, 6):
        lines += [
            f"alter table {name}s add column retry_after interval;",
            f"create unique index concurrently {name}s_order_attempt",
            f"    on {name}s (order_id, attempt);",
            "",
        ]
    return "\n".join(lines)


def _stat(r: random.Random) -> str:
    lines = [
        f" payments/{n}.py | {r.randint(2, 60):3d} {'+' * r.randint(1, 20)}{'-' * r.randint(1, 9)}" for n in _NAMES[:5]
    ]
    return "\n".join([*lines, f" 5 files changed, {r.randint(20, 200)} insertions(+), {r.randint(5, 80)} deletions(-)"])


def _grep(r: random.Random) -> str:
    return "\n".join(
        f"payments/{n}.py:{r.randint(10, 400)}:    def charge(self, order: Order) -> Receipt:" for n in _NAMES
    )


_CALLS: tuple[tuple[str, str, Callable[[random.Random], str]], ...] = (
    ("bash", '{"command": "pytest -q tests/payments"}', _pytest),
    ("read_file", '{"path": "payments/charge.py"}', _code),
    ("bash", '{"command": "git diff --stat"}', _stat),
    ("search", '{"pattern": "def charge", "path": "payments"}', _grep),
    (
        "edit_file",
        (
            '{"path": "payments/charge.py", "old": "except GatewayError:\\n    return None", '
            '"new": "except GatewayError as error:\\n    raise ChargeFailed(order.id, error.code) from error"}'
        ),
        lambda r: "edited payments/charge.py: 2 lines",
    ),
    ("read_file", '{"path": "migrations/0042_retry_after.sql"}', _sql),
)


@dataclass
class Hours:
    """A clock that the story moves on."""

    now: float

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def agent(r: random.Random, tasks: Iterator[str] | None = None) -> Iterator[list[Json]]:
    """Turns of an agent without end: each a list of messages, in the format of OpenAI's chat."""
    n = 0
    given = tasks or iter(())
    while True:
        made: list[Json] = [{"role": "user", "content": next(given, None) or r.choice(_MORE)}]
        for _ in range(r.randint(2, 6)):
            name, arguments, answer = r.choice(_CALLS)
            n += 1
            call = {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            says = r.choice(_SAYS) if r.random() < 0.4 else None
            made.append({"role": "assistant", "content": says, "tool_calls": [call]})
            made.append({"role": "tool", "tool_call_id": f"call_{n}", "content": answer(r)})
        made.append({"role": "assistant", "content": r.choice(_SAYS)})
        yield made


class Storyteller:
    """A summarizer with prepared summaries, which cost something; every fourth call it is out of reach."""

    def __init__(self, hours: Hours) -> None:
        self.hours = hours
        self.down = False
        self.made = 0

    def __call__(self, material: SummaryInput) -> Made:
        self.hours.pass_by(14 + 3 * self.made)
        if self.down:
            raise ConnectionError("the provider answered 529 overloaded, three times")
        text = _SUMMARIES[min(self.made, len(_SUMMARIES) - 1)]
        self.made += 1
        tokens = sum(r.header.tokens for r in material.records if r.header is not None)
        return Summary(text, by="claude-haiku", spent=Usage(1, tokens, 640, round(tokens * 1e-6 + 0.0032, 4)))


def tell(address: str | Path, now: float, *, large: bool = True) -> None:
    """Writes the whole story into a new store, so that it ends now."""
    r = random.Random(7)
    hours = Hours(now - 12_800)
    teller = Storyteller(hours)
    with onefold.open(address, policy=POLICY, clock=hours, summarizer=teller, agent="builder") as store:
        _main(store, r, hours, teller, teeth=3 if large else 1)
        _others(store, r, hours, now)
        if large:
            hours.now = now - 400
            _failed(store, r, hours, teller)
        hours.now = now - 21
        _running(store, r, hours)


def _speak(session: Session, hours: Hours, turn: list[Json]) -> None:
    for message in turn:
        session.append(message, actor="mira" if message["role"] == "user" else None)
        hours.pass_by(7 if message["role"] != "user" else 40)


def _main(store: Store, r: random.Random, hours: Hours, teller: Storyteller, teeth: int) -> None:
    session = store.session(MAIN)
    session.append({"role": "system", "content": _SYSTEM})
    session.note("rule", "Never touch production data. Work on the copy from last night.", "production", actor="mira")
    session.note("path", "The service lives in services/payments, its tests in tests/payments.", "home", actor="mira")
    turns = agent(r, iter(_TASKS))
    pinned = 0
    for tooth in range(teeth):
        while session.state.tokens < POLICY.of().soft_tokens + tooth * 3_000:
            _speak(session, hours, next(turns))
            hours.pass_by(r.randint(30, 400))
            if not pinned:
                pinned = next(x.number for x in session.read() if x.header and x.header.role == "user")
                session.pin(pinned, actor="mira")
        session.context()
        session.compact(
            trigger="soft" if tooth % 2 == 0 else "manual",
            instructions=None if tooth % 2 == 0 else "Keep the names of all migrations.",
        )
        hours.pass_by(200)
    for _ in range(2):
        _speak(session, hours, next(turns))
    session.append(
        {"role": "user", "content": "Drop the old index right away, I don't want to wait a day."}, actor="mira"
    )
    session.append(
        {"role": "assistant", "content": "That would lock `ledger_entries` while the job runs. Shall I still?"}
    )
    hours.pass_by(60)
    session.context()
    session.undo()
    hours.pass_by(30)
    for _ in range(2):
        _speak(session, hours, next(turns))
    session.fork("review", id="payments/retry-refactor@review")


_QUIET = (
    ("docs/quickstart", "Rewrite the quickstart so that a newcomer gets to a first charge in five minutes.", 4, 2_000),
    (
        "infra/terraform-drift",
        "Compare what runs in eu-west with what Terraform says, and list the differences.",
        6,
        9_000,
    ),
    (
        "support/ticket-8841",
        "A customer was refunded twice on 3 March. Find out how, and what it takes to set it right.",
        5,
        70_000,
    ),
    ("mobile/login-flicker", "The login screen flickers on Android 14 when the keyboard opens.", 3, 300_000),
    (
        "research/embeddings",
        "Which of the three embedding models is best for our help pages? Measure, do not guess.",
        7,
        500_000,
    ),
)


def _others(store: Store, r: random.Random, hours: Hours, now: float) -> None:
    for id, task, turns, since in reversed(_QUIET):
        hours.now = now - since - 1200
        session = store.session(id)
        talk = agent(r, iter([task]))
        for _ in range(turns):
            _speak(session, hours, next(talk))


def _failed(store: Store, r: random.Random, hours: Hours, teller: Storyteller) -> None:
    session = store.session("billing/invoice-import")
    talk = agent(
        r, iter(["Import the invoices of 2019 from the old system. There are 41,000 of them, in three formats."])
    )
    while session.state.tokens < POLICY.of().hard_tokens:
        _speak(session, Hours(hours.now), next(talk))
        hours.pass_by(2)
    teller.down = True
    session.context()
    session.compact(trigger="hard")
    teller.down = False


def _running(store: Store, r: random.Random, hours: Hours) -> None:
    session = store.session("search/reindex-products")
    talk = agent(
        r, iter(["Reindex all products with the new analyzer, in batches, and compare the results before and after."])
    )
    while session.state.tokens < POLICY.of().soft_tokens:
        _speak(session, Hours(hours.now), next(talk))
    session.context()
    journal = store.journal
    journal.request(session.id, trigger="soft", base=session.head)
    journal.request(session.id, trigger="limit", base=session.head)
    journal.claim(session.id, this_process("builder"), lease=600.0)
