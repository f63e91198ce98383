"""Labels as people are shown them: on the command line, and over HTTP, which the page is made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import onefold
from onefold import Fact, LabelEnd, Store, Summary, SummaryInput
from onefold.messages import decode
from tests.support.command_line import run
from tests.support.quoted import QUOTING, forgetful, work
from tests.support.server_api import client_of, got

RULE = "Never push to main, whatever happens."
OVER = "Fine, you may push to main again."
COST = "Spend 40 euros at most on all of it."
PORTS = [f"The port of service {n} is 80{n}." for n in (11, 12, 13)]


class Talk(NamedTuple):
    store: Store
    path: Path
    push: int
    cost: int
    over: int


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    """A rule that ended, a limit, and three identifiers, which the model named first."""
    path = tmp_path / "agent.db"
    with onefold.open(str(path), policy=QUOTING) as store:
        session = store.session("talk")
        *ports, push, cost, over = session.append(
            [{"role": "user", "content": text} for text in (*PORTS, RULE, COST, OVER)]
        ).numbers
        work(session)
        facts = [Fact("identifier", f"port {n}", PORTS[n], number) for n, number in enumerate(ports)]
        facts += [Fact("limit", "cost", COST, cost), Fact("rule", "push", RULE, push)]
        ends = (LabelEnd(push, "rule", "push", over, OVER),)

        def model(material: SummaryInput) -> Summary:
            return Summary(forgetful(material), by="model", facts=tuple(facts), ends=ends)

        assert session.compact(model).applied
        yield Talk(store, path, push, cost, over)


@pytest.mark.parametrize("command", ["context", "show", "note"])
def test_the_command_line_shows_what_must_not_be_forgotten_first_and_identifiers_together(
    talk: Talk, command: str
) -> None:
    told = run(talk.path.parent, command, "talk", "--store", talk.path).stdout

    over = f"rule, key push, from #{talk.push}, ended by #{talk.over}"
    places = [told.find(words) for words in (f"limit, key cost, from #{talk.cost}", over, "3 identifiers")]
    assert -1 not in places
    assert places == sorted(places)
    assert told[places[-1] :].count("The port of service") >= 3


def test_json_and_http_say_the_same(talk: Talk) -> None:
    told = decode(run(talk.path.parent, "context", "talk", "--store", talk.path, "--json").stdout)
    with client_of(talk.store) as client:
        ledger = got(client, "/api/ledger", session="talk")
        context = got(client, "/api/context", session="talk")

    kinds = ["limit", *["identifier"] * 3, "rule"]
    for facts in (told["facts"], ledger["facts"], context["facts"]):
        assert [(f["kind"], f["until"]) for f in facts] == [
            (kind, talk.over if kind == "rule" else 0) for kind in kinds
        ]
    (line,) = [q for q in ledger["quotes"] if q["number"] == talk.push]
    assert (line["kinds"], line["text"]) == ([f"rule ended by #{talk.over}"], RULE)
