"""What tools answer: long, full of identifiers, and nothing in it is worth carrying."""

from __future__ import annotations

import json
from random import Random

from fidelity.domain import fill

_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
_PARTS = ("auth", "billing", "cache", "index", "mailer", "queue", "router", "scheduler", "session", "sync", "upload")
_EVENTS = (
    "request finished in {n} ms",
    "retrying after timeout, attempt {n}",
    "connection {h} closed by peer",
    "job {h} queued",
    "cache miss for key user:{n}:{h}",
    "flushed {n} entries",
    "slow query ({n} ms): select * from {p}",
    "worker {n} is idle",
    "checksum {h} verified",
    "no handler for event {p}.updated",
    "token {h} refreshed",
    "limit of {n} connections reached",
    "must not be null: column {p}_id",
    "lock {h} released",
    "always on: {p}",
)
_NAMES = ("Arjun", "Beatriz", "Chidi", "Dana", "Elif", "Farah", "Goran", "Hanna", "Ilse", "Jonas", "Kemal", "Lucia")
_CITIES = ("Oslo", "Porto", "Lyon", "Gdansk", "Turin", "Ghent", "Graz", "Malmo", "Bilbao", "Cork")
_WORDS = (
    "adaptive",
    "sparse",
    "robust",
    "latent",
    "causal",
    "neural",
    "longitudinal",
    "randomised",
    "hierarchical",
    "inference",
    "estimation",
    "networks",
    "trial",
    "cohort",
    "markers",
    "retrieval",
    "memory",
    "attention",
    "survey",
)


def log(rng: Random) -> str:
    lines = []
    for n in range(rng.randint(8, 30)):
        event = rng.choice(_EVENTS).format(n=rng.randint(2, 9000), h=fill(rng, "%" * 12), p=rng.choice(_PARTS))
        moment = f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}T{rng.randint(10, 23)}:{rng.randint(10, 59)}:{n:02}Z"
        lines.append(f"{moment} {rng.choice(_LEVELS)} {rng.choice(_PARTS)}: {event}")
    return "\n".join(lines)


def listing(rng: Random) -> str:
    lines = [f"total {rng.randint(40, 900)}"]
    for _ in range(rng.randint(8, 26)):
        name = f"{rng.choice(_PARTS)}_{rng.choice(_PARTS)}{rng.choice(('.py', '.py', '.sql', '.toml', '_test.py', ''))}"
        lines.append(f"-rw-r--r-- 1 dev dev {rng.randint(200, 90000):6} Mar {rng.randint(10, 28)} src/{name}")
    return "\n".join(lines)


def source(rng: Random) -> str:
    lines = [f"# src/{rng.choice(_PARTS)}/{rng.choice(_PARTS)}.py", "from __future__ import annotations", ""]
    for _ in range(rng.randint(3, 8)):
        name, other = rng.choice(_PARTS), rng.choice(_PARTS)
        lines += [
            f"def {name}_{other}(session: Session, limit: int = {rng.randint(10, 900)}) -> None:",
            f'    """Never call this outside of the {other} loop; always pass a fresh session."""',
            f"    rows = session.fetch({name!r}, limit=limit, trace={fill(rng, '%' * 8)!r})",
            "    for row in rows:",
            f"        if row.state == {rng.choice(_PARTS)!r}:",
            f"            {other}.put(row.id, timeout={rng.randint(2, 90)})",
            "",
        ]
    return "\n".join(lines)


def tests(rng: Random) -> str:
    lines = [f"collected {rng.randint(80, 900)} items", ""]
    for _ in range(rng.randint(6, 18)):
        mark = rng.choice(("PASSED", "PASSED", "PASSED", "FAILED"))
        lines.append(f"tests/test_{rng.choice(_PARTS)}.py::test_{rng.choice(_PARTS)}_{rng.choice(_PARTS)} {mark}")
    lines += ["", f"AssertionError: assert {rng.randint(2, 400)} == {rng.randint(2, 400)}"]
    return "\n".join(lines)


def history(rng: Random) -> str:
    return "\n".join(
        f"{fill(rng, '%' * 9)} {rng.choice(('fix', 'add', 'drop', 'move', 'revert'))} {rng.choice(_PARTS)} "
        f"{rng.choice(('handling', 'tests', 'helper', 'retry', 'types'))} (#{rng.randint(100, 3000)})"
        for _ in range(rng.randint(8, 24))
    )


def records(rng: Random) -> str:
    rows = [
        {
            "id": fill(rng, "%%%%%%%%-%%%%-4%%%"),
            "order": fill(rng, "^^-#####"),
            "customer": f"{rng.choice(_NAMES)} {fill(rng, '^')}.",
            "city": rng.choice(_CITIES),
            "total": f"{rng.randint(8, 900)}.{rng.randint(10, 99)} EUR",
            "status": rng.choice(("paid", "open", "shipped", "returned", "on hold")),
            "updated": f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}",
        }
        for _ in range(rng.randint(4, 11))
    ]
    return json.dumps({"count": len(rows), "rows": rows}, indent=1)


def papers(rng: Random) -> str:
    found = []
    for n in range(rng.randint(4, 10)):
        title = " ".join(rng.choice(_WORDS) for _ in range(rng.randint(4, 8))).capitalize()
        found.append(
            f"{n + 1}. {title}. {rng.choice(_NAMES)} et al., {rng.randint(2009, 2025)}. "
            f"doi:10.{rng.randint(1000, 9999)}/{fill(rng, '%%%%%%%%')}. cited by {rng.randint(2, 2000)}\n"
            f"   We study {rng.choice(_WORDS)} {rng.choice(_WORDS)} in {rng.randint(20, 5000)} subjects and find an "
            f"effect of {rng.random():.2f}. Results should always be read with care."
        )
    return "\n".join(found)


def table(rng: Random) -> str:
    lines = ["run,seed,metric,value,ci_low,ci_high"]
    for _ in range(rng.randint(8, 28)):
        value = rng.random()
        spread = f"{value:.3f},{value - 0.1:.3f},{value + 0.1:.3f}"
        lines.append(f"{fill(rng, '%%%%%%')},{rng.randint(2, 99)},{rng.choice(_WORDS)},{spread}")
    return "\n".join(lines)


def calendar(rng: Random) -> str:
    lines = []
    for _ in range(rng.randint(6, 16)):
        hour = rng.randint(8, 17)
        lines.append(
            f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)} {hour}:{rng.choice(('00', '15', '30', '45'))} "
            f"{rng.choice(('Sync with', 'Lunch with', 'Call with', 'Review,'))} {rng.choice(_NAMES)} "
            f"(room {fill(rng, '^###')}, id {fill(rng, '%' * 10)})"
        )
    return "\n".join(lines)


def travel(rng: Random) -> str:
    lines = []
    for _ in range(rng.randint(5, 14)):
        lines.append(
            f"{fill(rng, '^^')}{rng.randint(100, 999)} {rng.choice(_CITIES)}-{rng.choice(_CITIES)} "
            f"dep {rng.randint(10, 22)}:{rng.randint(10, 59)} fare {rng.randint(60, 800)}.{rng.randint(10, 99)} EUR, "
            f"class {fill(rng, '^')}, offer {fill(rng, '^^%%%%%%')}, changes are not allowed after check-in"
        )
    return "\n".join(lines)


def mail(rng: Random) -> str:
    parts = []
    for _ in range(rng.randint(2, 5)):
        parts.append(
            f"From: {rng.choice(_NAMES)} <{rng.choice(_NAMES).lower()}@mail.example>\n"
            f"Subject: Re: {rng.choice(_PARTS)} {fill(rng, '^^-####')}\n\n"
            f"Hi, please see the thread below. The room was {fill(rng, '^###')} last time. We must talk about "
            f"{rng.choice(_PARTS)} before the {rng.randint(10, 28)}th, and never got an answer about "
            f"{rng.choice(_CITIES)}.\nBest, {rng.choice(_NAMES)}"
        )
    return "\n---\n".join(parts)
