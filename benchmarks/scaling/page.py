"""What was measured of a server, in words: for the terminal, and as the page in `docs/` with its plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.speed.load import APPENDS, ASKS, CONCURRENCY, MODEL, QUICK_MODEL
from benchmarks.speed.report import TIMES, Row, as_text

_INTRODUCTION = """\
# Scaling

What one PostgreSQL server carries, and how it is split when that is not enough. This page is written by
`make bench-scaling`, which takes about ten minutes and fifteen gigabytes of disk, and ends with an error if a bound is
not met. `ARGS=--short` is a run of a minute that leaves this page alone; `ARGS="--sessions 1000 --seconds 4"` sets
other sizes.

**Server, agents, workers and followers share one machine of {cores} cores here.** So a line that flattens at {cores}
processes is the machine's end, and not the store's. Trust the ratios, and what each thing takes of the server.

- The store has {sessions:,} sessions of 1,000 records each, every one compacted five times, and one long session:
  {records:,} records together. One session was written by the library, and the server copied its rows under other
  names; {verified:,} of the records were verified, in sessions chosen by chance.
- *Bare* is the least a program can do for a durable message: one row into a table of two columns, and a commit, through
  the same driver to the same server with the same settings, one after another. It makes {bare:,.0f} a second.
- An agent or a worker is a process of its own. An append is acknowledged when it is on disk; messages have about
  400 bytes of JSON. A context has about 150 messages.
- A worker is what `onefold worker` runs, {concurrency} compactions at a time, with the policy that it has by default.
  Its summarizer waits {model:.0f} ms, which stands for a model, and answers the same every time. *Compactions, bare*
  are those with a wait of {quick:.0f} ms and without quotes: choosing them takes a worker more time
  than all the rest, and the server none. Enough compactions wait all the time.
- The two sides of a ratio in the first table are measured in turn, and the median of the rounds counts. The sessions
  were looked at before, so that the server has them in memory, unless it says otherwise.
"""

_TURNS = """\
{agents} agents take turns: open a session chosen by chance, read its context, append {appends} messages, ask for a
compaction after every {asks} turn, and wait {model:.0f} ms for what stands for their model. One more process follows
sessions. Between the lines only the number of workers changes; theirs are bare compactions, and there are always some
to do. *Seen after* runs from a record's transaction to a follower in another process. Workers that are never out of
work keep all {cores} cores busy: there, whoever comes in addition takes from the others.
"""

_SPLIT = """\
## What that means for one server

- **Sessions do not wait for each other.** A write takes its session's row and no other; there is no counter, no queue
  and no lock that all share. More sessions cost disk, and nothing else.
- **An append costs two exchanges with the server and one flush of its log.** Appends that arrive together share the
  flush, which is why several processes make more of them than one. Beyond that the server's cores decide.
- **A context is read by its session and its numbers**, so that what else is in the store does not count.
- **Workers wait for their model most of the time.** They add up until the machine is busy. While nothing is to do, a
  worker looks fifty times a second at most, whatever is appended, and spends at most a tenth of its time on looking.
- **A process has up to 16 connections**, and one more while it follows. Before the server runs out of them put a
  [PgBouncer](how-to/postgres.md#behind-pgbouncer) in front of it: what the store does outlives no transaction.
- Two things read all sessions, and take the longer the more there are: the list of sessions, and a worker's upkeep,
  every 30 seconds. Where there are hundreds of thousands, let one worker do that, and give the others `--upkeep 0`.

## When one server is not enough

Every table's key begins with the session, every operation names one session, and no query joins two. So it splits by
session, in the order of what it costs:

1. **Several stores.** `onefold_schema=` makes any number of them in one database, and an address is all that a program
   needs to know: choose it by a hash of the session's id, or by tenant. Nothing is shared, so this has no limit. A fork
   lives in its parent's store. Each store wants workers of its own.
2. **Partitions by hash**, in one server: smaller indexes, a VACUUM for each part, parts on several disks. `records`,
   `segments`, `compactions` and `keys` can be partitioned by hash of `session`: it is in each of their keys, and the
   statements stay as they are. `sessions` is one small row a session, and `names` is asked by id. The store makes plain
   tables; make the parts, and move the rows over, while nobody writes.
3. **A distributed PostgreSQL** (Citus and its like): distribute those tables by `session`, `sessions` and `names` by
   `id`, and keep `meta` on every node. A transaction then touches one node, but for the one that makes a session or
   gives it another id. `FOR UPDATE`, `SKIP LOCKED` and advisory locks have to work there as they do in PostgreSQL.

The second and the third were not measured here.
"""


@dataclass(frozen=True, slots=True)
class Point:
    rate: float
    """Times a second."""
    p50: float | None = None
    """Milliseconds."""
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """How often one thing was done, by the number of processes that did it."""

    points: dict[int, Point]
    server: dict[int, float]
    """Cores that the server used."""

    def cost(self) -> float:
        """Milliseconds of a core that the server uses for one, where it does most of them."""
        most = max(self.points, key=lambda n: self.points[n].rate)
        return 1e3 * self.server[most] / max(1e-9, self.points[most].rate)

    def times(self, processes: int) -> float:
        """Against one process."""
        return self.points[processes].rate / max(1e-9, self.points[min(self.points)].rate)


@dataclass(frozen=True, slots=True)
class Measured:
    rows: Sequence[Row]
    bare: float
    """Bare inserts a second."""
    lines: dict[str, Line]
    mixed: dict[int, dict[str, Point]]
    """By the number of workers."""
    facts: dict[str, str]
    sessions: int
    records: int
    verified: int
    warning: str


def text(found: Measured) -> str:
    return "\n\n".join([as_text(found.rows), *(_table(*part) for part in _tables(found))])


def page(found: Measured) -> str:
    begin = _INTRODUCTION.format(
        cores=found.facts["cores"], sessions=found.sessions, records=found.records, verified=found.verified,
        bare=found.bare, model=MODEL * 1e3, quick=QUICK_MODEL * 1e3, concurrency=CONCURRENCY,
    )  # fmt: skip
    alone, together = (_table(*part) for part in _tables(found))
    agents = max(found.mixed)
    return "\n".join([
        begin,
        *([f"**{found.warning}**\n"] if found.warning else []),
        "## One after another\n",
        _table(
            ("what", "bound", "measured", "", "in numbers"),
            [(r.what, str(r.bound or ""), r.measured, r.verdict, r.detail) for r in found.rows],
        ),
        "## More processes, one kind of work\n",
        "![Throughput against the number of processes](scaling.svg)\n",
        alone,
        "Divided by what the server used, where each was done most often:\n",
        _table(("one of", "takes the server, ms of a core", "so a core carries, a second"), _costs(found)),
        "## Everything at once\n",
        _TURNS.format(agents=agents, appends=APPENDS, asks=_nth(ASKS), model=MODEL * 1e3, cores=found.facts["cores"]),
        together,
        _SPLIT,
        "## Measured on\n",
        _table(("", ""), [*found.facts.items()]),
    ])  # fmt: skip


def _tables(found: Measured) -> list[tuple[Sequence[str], list[Sequence[str]]]]:
    alone: list[Sequence[str]] = []
    for what, line in found.lines.items():
        for n, point in line.points.items():
            alone.append((
                what, str(n), f"{point.rate:,.{0 if point.rate >= 100 else 1}f}", f"{line.times(n):.2f} {TIMES}",
                f"{point.rate / found.bare:.2f} {TIMES}", _ms(point.p50), _ms(point.p99), f"{line.server[n]:.2f}",
            ))  # fmt: skip
    together: list[Sequence[str]] = []
    for n, points in found.mixed.items():
        one = found.mixed[min(found.mixed)]
        append, context, seen = points["append"], points["context"], points.get("follow", Point(0))
        committed = points["committed"].rate
        together.append((
            str(n), f"{append.rate:,.0f}", f"{append.rate / found.bare:.2f} {TIMES}", _both(append),
            f"{context.rate:,.0f}", _both(context), f"{committed:,.1f}",
            f"{committed / max(1e-9, one['committed'].rate):.2f} {TIMES}", _both(seen),
        ))  # fmt: skip
    return [
        (("what", "processes", "a second", "against one", "against bare", "p50, ms", "p99, ms", "cores of the server"),
         alone),
        (
            ("workers", "appends a second", "against bare", "p50, p99, ms", "contexts a second", "p50, p99, ms",
             "compactions a second", "against one worker", "seen after p50, p99, ms"),
            together,
        ),
    ]  # fmt: skip


def _costs(found: Measured) -> list[Sequence[str]]:
    costs = ((what, line.cost()) for what, line in found.lines.items())
    return [(what, f"{cost:.2f}", f"{1e3 / cost:,.0f}" if cost else "") for what, cost in costs]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _both(point: Point) -> str:
    return "" if point.p50 is None else f"{_ms(point.p50)}, {_ms(point.p99)}"


def _nth(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth", 5: "fifth"}.get(number, f"{number}th")


# ---------------------------------------------------------------------- the plot

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 150, 16, 44
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #444 }
  .grid { stroke: #8884; stroke-width: 1 }
  .l { fill: none; stroke-width: 2.5 }
  .s0 { stroke: #3b82c4 } .s1 { stroke: #2b8a3e } .s2 { stroke: #d9480f } .s3 { stroke: #9c36b5 }
  .bare { stroke: #888; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc }
    .s0 { stroke: #74b3ee } .s1 { stroke: #69db7c } .s2 { stroke: #ff922b } .s3 { stroke: #da77f2 }
  }
"""


def plot(found: Measured) -> str:
    """Lines: how much more so many processes do than one. Across: a bare INSERT loop, against one who appends."""
    counts = sorted(next(iter(found.lines.values())).points)
    bare = found.bare / max(1e-9, found.lines["appends"].points[counts[0]].rate)
    top = max(bare, *(line.times(n) for line in found.lines.values() for n in counts)) * 1.1
    parts = []
    for mark in range(int(top) + 1):
        y = _y(mark, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_words(_LEFT - 8, y + 4, f"{mark} {TIMES}", "end"))
    parts += [_words(_x(at, counts), _HEIGHT - _BOTTOM + 18, str(n)) for at, n in enumerate(counts)]
    parts.append(_words(_x((len(counts) - 1) / 2, counts), _HEIGHT - 8, "processes"))
    ends: list[tuple[float, str]] = []
    for place, (what, line) in enumerate(found.lines.items()):
        points = " ".join(f"{_x(at, counts):.1f},{_y(line.times(n), top):.1f}" for at, n in enumerate(counts))
        parts.append(f'<polyline class="l s{place}" points="{points}"><title>{what}</title></polyline>')
        ends.append((_y(line.times(counts[-1]), top), what))
    y = _y(bare, top)
    parts.append(f'<line class="l bare" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    ends.append((y, "one bare INSERT loop"))
    parts += [_words(_WIDTH - _RIGHT + 6, y + 4, words, "start") for y, words in _apart(ends)]
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Throughput against one process, by the number of processes">\n'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _apart(ends: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The same words, no two of them on one another."""
    placed: list[tuple[float, str]] = []
    for y, words in sorted(ends):
        placed.append((max(y, placed[-1][0] + 15) if placed else y, words))
    return placed


def _x(at: float, counts: Sequence[int]) -> float:
    return _LEFT + at * (_WIDTH - _LEFT - _RIGHT) / max(1, len(counts) - 1)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _words(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
