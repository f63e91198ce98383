"""What was measured, as the page `docs/peers.md`. It is made from the numbers alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.peers.reasons import reason
from benchmarks.peers.table import PEERS

AT = 2_000
"""The length that the first table is about."""

_INTRODUCTION = """\
# Side by side

This page is written by `make bench-peers`. The same conversation, message by message, through the stores that other
frameworks come with and through onefold, bare and under each framework, all in one run. `ARGS=--short` takes a few
seconds of each and writes nothing; `ARGS="--from docs/peers.json"` writes this page again from its numbers.

- **The conversation** is the same for all: exchanges of a question, a tool call, its result and an answer, about 600
  bytes a message, results the longest. Nothing is compacted while speed is measured.
- **Turns**: all peers are open at once, each in a process and an environment of its own, and each takes a hundred
  messages at a time in turn, so that what the disk does it does to all; those that run an agent († below) come after
  the others, by themselves. A rate is the median of the five turns before a length. Compare rows with each other, not
  with other machines.
- **Each as it comes**: its default settings, and named where they can be made safer. *Syncs* are how often a message
  makes the disk write what it has cached, counted in a trace of system calls. **A store that does not sync is faster
  for that reason**, and loses its newest messages when power fails.
- *Load* opens the store and reads everything, ready for the framework. *Written* is what the process gave the disk to
  write, for each message, on the way to that length.
- LangGraph and Pydantic AI write in runs of an agent, not message by message. Rows marked † have the framework's own
  work in a run in their rate, with a model that answers at once in place of a real one: compare them with each other.
  Most of a run of Pydantic AI is its own work on a long history, with onefold or without.
- **Pydantic AI** has no store on disk (its `ConversationStore` comes with one in memory). Its documentation has a
  program dump the messages as JSON after each run: that is measured, without the run itself.
- **Claude Agent SDK**: its command-line program keeps the transcript, one line an entry. It is closed and asks a model,
  so a stand-in appends the same lines to the same file; reading is the SDK's own. onefold is given each line as a
  `SessionStore`, which is a second copy.
"""

_KILLS = """\
## Killed in the middle of a compaction

Each one's own compaction, with a summary that is scripted, is ended by SIGKILL before each of its writes in turn
(before each statement that changes a row and each commit; of many alike in a row, the first and the last) and once
after them. A new process opens what is left, takes the next turn, and compacts if that is still to be done. Where a
framework compacts in a turn, the whole turn is gone through.

- *As before*: nothing was cut and no summary is there. *Done*: the summary and what follows it. Both are as they should
  be. *Broken* is anything else, as a program that goes on is given it. Where nothing is *gone*, the messages are still
  in the file, under another id.
- *Gone* are messages that the store no longer has, in whatever place, after a compaction that ended well. Some keep
  only what the model is to see; that is their design.
- *Paid twice*: the kill came after the summary was made and before it was kept, so it was asked for again. Nobody
  avoids that. *Held up* is how long nobody else can compact after a kill, because a lease or lock of the dead one is in
  force; messages are written and read meanwhile.
- The agents of Claude Code compact inside a closed program, and Pydantic AI's history processors keep nothing, so they
  are not here.
"""

_HEADING = "## Side by side with others\n"
_READ_ON = """\
At {length} messages, measured by `make bench-peers` on {date}.
[What was done, how it grows, and what a kill in the middle of a compaction leaves](peers.md).
"""

_PLOT = "![Appends a second, time to load and size on disk, by length](peers.svg)\n"

_CHECKPOINTS = """\
LangGraph keeps a checkpoint after each step of the agent, and each holds all messages so far: its file grows with the
square of the length. That buys going back to any step. The others keep a message once.
"""

_BOTH = """\
## Two processes at once

Two processes load one session whose context is too long, each with a turn of its own, and both compact; a summarizer
waits up to three seconds for the other one's to be asked.
"""


def as_page(found: dict[str, Any]) -> str:
    warning = found.get("machine", {}).get("warning", "")
    parts = [
        _INTRODUCTION,
        *([f"**{warning}**\n"] if warning else []),
        f"## Speed at {AT:,} messages\n",
        table(found),
        behind(found),
        "## Growth with length\n",
        _PLOT,
        _growth(found),
        _CHECKPOINTS,
        _KILLS,
        _kills(found),
        _BOTH,
        _both(found),
        "## Measured on\n",
        _machine(found),
    ]
    return "\n".join(parts)


def into(page: str, found: dict[str, Any]) -> str:
    """The page on performance with the first table and the plot at its end, in place of those that were there."""
    lines = [
        page.partition(_HEADING)[0].rstrip("\n") + "\n",
        _HEADING,
        _READ_ON.format(length=f"{AT:,}", date=found["machine"]["date"]),
        table(found),
        _PLOT,
        behind(found),
    ]
    return "\n".join(lines)


def table(found: dict[str, Any]) -> str:
    """The rows at the length that the page is about, or as far as a store came."""
    rows = ["| store | appends a second | syncs a message | load | on disk | written a message | settings |",
            "| --- | --: | --: | --: | --: | --: | --- |"]  # fmt: skip
    for name, line in found.get("speed", {}).items():
        if not (at := _at(line)):
            continue
        far = "" if at["messages"] == AT else f" ({at['messages']:,.0f} messages)"
        synced = found.get("syncs", {}).get(name)
        rows.append(
            f"| {PEERS[name].says}{' †' if PEERS[name].runs else ''}{far} | {at['rate']:,.0f} | "
            f"{'unknown' if synced is None else f'{synced:.2f}'} | {_time(at['load'])} | {_bytes(at['size'])} | "
            f"{_bytes(at['written'] / at['messages'])} | {line['settings']} |"
        )
    return "\n".join(rows) + "\n"


def behind(found: dict[str, Any]) -> str:
    """Where onefold is not ahead and why, each of its rows against the others of the same framework; bare, against
    all."""
    said: list[str] = []
    why: dict[str, int] = {}
    speed = found.get("speed", {})
    for name in filter(lambda name: PEERS[name].ours, speed):
        for other in filter(lambda other: _rival(name, other), speed):
            lengths = {at["messages"] for at in speed[name]["at"]} & {at["messages"] for at in speed[other]["at"]}
            length = max((n for n in lengths if n <= AT), default=None)
            own, at = (next((a for a in speed[n]["at"] if a["messages"] == length), None) for n in (name, other))
            slower = _slower(own, at, rates=PEERS[name].runs is PEERS[other].runs) if own and at else {}
            if slower:
                far = "" if length == AT else f" (at {length:,} messages)"
                parts = _explained(name, slower, why, synced=_syncs(found, other))
                said.append(f"- {PEERS[name].says} against {PEERS[other].says}{far}: {parts}")
    head = "**Where onefold is not ahead** (bare against every store, and under a framework against that one's own):\n"
    if not said:
        return "onefold is ahead on every row.\n" if found.get("speed") else ""
    notes = [f"{number}. {sentence[0].upper()}{sentence[1:]}" for sentence, number in why.items()]
    return "\n".join([head, *said, "", *(["Why:\n", *notes, ""] if notes else [])])


def _explained(name: str, slower: dict[str, str], why: dict[str, int], *, synced: bool) -> str:
    """What is slower, each with the number of the sentence that says why; they are numbered as they come."""
    parts = []
    for measure, words in slower.items():
        if measure == "rate" and not synced:
            parts.append(words)
            continue
        number = why.setdefault(reason(name, measure), len(why) + 1)
        parts.append(f"{words} ({number})")
    waits_not = " It does not sync, so it does not wait for the disk." if "rate" in slower and not synced else ""
    return f"{', '.join(parts)}.{waits_not}"


def _syncs(found: dict[str, Any], name: str) -> bool:
    synced = found.get("syncs", {}).get(name)
    return synced is None or synced >= 0.01


def _rival(name: str, other: str) -> bool:
    """Bare, every store that is handed messages; under a framework, that one's own."""
    own, their = PEERS[name], PEERS[other]
    same = own.environment == their.environment or (own.environment == "onefold" and not their.runs)
    return same and not their.ours


def _slower(own: dict[str, float], other: dict[str, float], *, rates: bool) -> dict[str, str]:
    """Differences below a twentieth are noise; rates compare only if an agent's run is in both or in neither."""
    found = {}
    if rates and own["rate"] < 0.95 * other["rate"]:
        found["rate"] = f"{own['rate']:,.0f} against {other['rate']:,.0f} appends a second"
    if own["load"] > 1.05 * other["load"]:
        found["load"] = f"load {_time(own['load'])} against {_time(other['load'])}"
    if own["size"] > 1.05 * other["size"]:
        found["size"] = f"{_bytes(own['size'])} against {_bytes(other['size'])} on disk"
    return found


def _growth(found: dict[str, Any]) -> str:
    lengths = sorted({int(at["messages"]) for line in found.get("speed", {}).values() for at in line["at"]})
    head = "| store | " + " | ".join(f"{length:,}" for length in lengths) + " |"
    rows = [head, "| --- |" + " --: |" * len(lengths)]
    for name, line in found.get("speed", {}).items():
        by = {int(at["messages"]): at for at in line["at"]}
        cells = [
            f"{by[n]['rate']:,.0f}/s, {_time(by[n]['load'])}, {_bytes(by[n]['size'])}" if n in by else ""
            for n in lengths
        ]
        rows.append(f"| {PEERS[name].says}{' †' if PEERS[name].runs else ''} | " + " | ".join(cells) + " |")
    note = (
        "Appends a second, time to load, size on disk. An empty cell was not measured: it would have taken too long.\n"
    )
    return "\n".join(rows) + "\n\n" + note


def _kills(found: dict[str, Any]) -> str:
    rows = ["| compaction of | kills | as before | done | broken | what was left there | gone | paid twice | held up |",
            "| --- | --: | --: | --: | --: | --- | --: | --: | --: |"]  # fmt: skip
    for name, killed in found.get("kills", {}).items():
        tries = killed["found"]
        states = Counter(one["state"] for one in tries)
        wrong = {state: n for state, n in states.items() if state not in ("as before", "done")}
        stuck = sum(1 for one in tries if one["goes_on"] or not one["finished"])
        words = [f"{state} ({n} kills)" for state, n in wrong.items()]
        words += [f"the next turn does not get it compacted ({stuck} kills)"] if stuck else []
        twice = sum(1 for one in tries if one["asked"] > 1)
        held = max(one["held"] for one in tries)
        rows.append(
            f"| {PEERS[name].says} | {len(tries)} | {states['as before']} | {states['done']} | {sum(wrong.values())} | "
            f"{'; '.join(words)} | {tries[-1]['gone'] or ''} | {twice or ''} | {f'{held:.0f} s' if held else ''} |"
        )
    return "\n".join(rows) + "\n"


def _both(found: dict[str, Any]) -> str:
    rows = ["| session of | summaries paid | in the context | messages twice | of a turn missing | errors |",
            "| --- | --: | --: | --: | --: | --- |"]  # fmt: skip
    for name, both in found.get("both", {}).items():
        told = "; ".join(f"`{error.split(':')[0]}`" for error in both["errors"])
        rows.append(
            f"| {PEERS[name].says} | {both['asked']} | {both['summaries']} | {both['doubled'] or ''} | "
            f"{both['turns lost'] or ''} | {told} |"
        )
    return "\n".join(rows) + "\n"


def _machine(found: dict[str, Any]) -> str:
    facts = {k: v for k, v in found.get("machine", {}).items() if k not in ("warning", "settings")}
    facts |= {"versions": "; ".join(found["versions"].values())}
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in facts.items()) + "\n"


def as_text(found: dict[str, Any]) -> str:
    return "\n".join((table(found), behind(found), _growth(found), _kills(found), _both(found)))


def _at(line: dict[str, Any]) -> dict[str, float] | None:
    """At the length of the page, or the longest below it."""
    reached = [at for at in line["at"] if at["messages"] <= AT]
    return reached[-1] if reached else None


def _time(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"
