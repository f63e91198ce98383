"""Requests to a server, and what it answers."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from onefold import Store
from onefold.model import Json
from onefold.server.app import api
from onefold.server.events.hub import Hub
from onefold.server.settings import Settings


def client_of(store: Store, settings: Settings | None = None) -> TestClient:
    settings = settings or Settings()
    return TestClient(api(store, settings, Hub(store, settings)), raise_server_exceptions=False)


def got(client: TestClient, path: str, **parameters: Json) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()
