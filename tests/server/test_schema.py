"""Every call of the API, asked in ways that nobody thought of: no 500, and no answer that OpenAPI does not declare.

The streams are left to `test_server_live.py`: they do not end by themselves.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

import onefold
from onefold.acp.agent_config import Agent, Agents
from onefold.acp.frame_log import RoomRow
from onefold.acp.host import RoomHost
from onefold.server.settings import Settings
from tests.support.acp_clients import AGENT
from tests.support.api_server import PATIENCE, served
from tests.support.helpers import converse, quick

MADE_BEFORE = Path(__file__).parents[1] / "support" / "made_before" / "openapi.json.gz"
"""What an older program said of itself, before names and modules changed."""
READING = (
    "sessions", "attach", "records", "context", "segments", "expand", "compactions", "ledger", "curve", "search",
    "sent", "summarizers", "export", "verify", "rooms",
)  # fmt: skip
ACTING = (
    "append", "note", "pin", "unpin", "undo", "redo", "unfold", "refold", "fork", "compact", "mask", "drafts",
    "drafts/take", "cancel", "verify", "prompt", "unqueue", "stop", "answer", "restart", "close",
)  # fmt: skip
CALLS = [
    *(("GET", f"/api/{name}") for name in READING),
    *(("POST", f"/api/{name}") for name in ACTING),
    ("GET", "/debug/sessions"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
]
SAYING_NOTHING = [("GET", "/api/verify"), ("GET", "/api/rooms"), ("GET", "/healthz"), ("GET", "/readyz")]
STREAMS = [("GET", "/api/events")]
NOT_JSON = [("GET", "/metrics")]


class Described(NamedTuple):
    """A server, who may ask it, and what it says of itself."""

    schema: Any
    address: str
    headers: dict[str, str]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    """A real server on a store with sessions named as schemathesis likes to name things; one of them has an agent."""
    import schemathesis

    folder = tmp_path_factory.mktemp("schema")
    with onefold.open(folder / "agent.db", policy=quick()) as store:
        for id in ("0", "00", "s"):
            session = store.session(id)
            converse(session, 6)
            session.compact()
            session.note("rule", "be brief", "style")
            converse(session, 2, start=7)
        agent = Agent("scripted", (sys.executable, str(AGENT)))
        host = RoomHost(store, folder / "agent.db.frames", Agents({agent.name: agent}))
        host.frames.put_room(RoomRow("00", agent.name, list(agent.command), "/", None, 0.0, None))
        with served(store, folder, Settings(rate=0, wait=0.1), host) as (address, headers):
            openapi = httpx.get(f"{address}/openapi.json", headers=headers, timeout=PATIENCE).json()
            yield Described(schemathesis.openapi.from_dict(openapi), address, headers)
        assert store.verify().findings == ()


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_call_never_fails_and_every_answer_is_declared(described: Described, method: str, path: str) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.allow_header_conformance,
    ]
    operation = described.schema[path][method]
    cases = operation.as_strategy()

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=described.address, headers=described.headers, checks=wanted, timeout=PATIENCE)

    ask()


@pytest.mark.parametrize(("method", "path"), [call for call in CALLS if call not in SAYING_NOTHING])
def test_what_is_not_as_described_is_refused_and_never_fails(described: Described, method: str, path: str) -> None:
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    operation = described.schema[path][method]

    @settings(max_examples=6, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def ask(case: Any) -> None:
        case.call_and_validate(
            base_url=described.address,
            headers=described.headers,
            checks=[not_a_server_error, checks.status_code_conformance, checks.response_schema_conformance],
            timeout=PATIENCE,
        )

    ask()


def test_no_call_is_left_out(described: Described) -> None:
    there = {
        (method.upper(), path) for path, methods in described.schema.raw_schema["paths"].items() for method in methods
    }

    assert there == {*CALLS, *STREAMS, *NOT_JSON}


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_another_method_is_told_all_those_the_path_has(described: Described, method: str, path: str) -> None:
    answer = httpx.request("DELETE", f"{described.address}{path}", headers=described.headers, timeout=PATIENCE)

    assert answer.status_code == 405
    assert method in answer.headers["Allow"].split(", ")
    assert {m for m, p in CALLS if p == path} <= {*answer.headers["Allow"].split(", ")}


def test_whatever_an_older_client_asks_for_and_reads_is_still_there(described: Described) -> None:
    before: Any = json.loads(gzip.decompress(MADE_BEFORE.read_bytes()))
    now = described.schema.raw_schema

    for path, methods in before["paths"].items():
        for method, call in methods.items():
            kept = now["paths"][path][method]
            assert kept.get("operationId") == call.get("operationId")
            assert {*call["responses"]} <= {*kept["responses"]}
            assert _given(call) <= _given(kept), (path, method)
            assert _needed(kept) <= _needed(call), (path, method)
    for name, schema in before["components"]["schemas"].items():
        kept = now["components"]["schemas"][name]
        assert {*schema.get("properties", ())} <= {*kept.get("properties", ())}, name
        if name.endswith("Body"):
            assert {*kept.get("required", ())} <= {*schema.get("required", ())}, name
        else:
            assert {*schema.get("required", ())} <= {*kept.get("required", ())}, name


def _given(call: Any) -> set[tuple[str, str]]:
    return {(one["in"], one["name"]) for one in call.get("parameters", ())}


def _needed(call: Any) -> set[str]:
    return {one["name"] for one in call.get("parameters", ()) if one.get("required")}
