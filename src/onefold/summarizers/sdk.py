"""What the SDKs of providers have in common: they may be missing, and they are to leave retries to us."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from onefold.errors import SummarizerFailed
from onefold.summarizers.cancellable_call import CancellableCall

_NO_KEY = "none"
"""What is sent where a key is wanted and none was given: a server of one's own asks for none."""


class _Client(Protocol):
    def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=_Client)


def need(extra: str) -> None:
    """Says how to get an SDK that is missing, before anything depends on it. To import it here would take a second."""
    if find_spec(extra) is None:
        raise SummarizerFailed(
            f"the package {extra!r} is not installed, which this summarizer needs; pip install 'onefold[{extra}]'",
            kind="setup",
            final=True,
        )


def place(model: str, base_url: str | None) -> str:
    """A model and where it is. A URL may have a password in it, which is left out."""
    return model if base_url is None else f"{model} at {urlsplit(base_url).netloc.rpartition('@')[2] or base_url}"


def secret(api_key: str | None, base_url: str | None, variable: str) -> str | None:
    """The key that is sent, so that no error text shows it."""
    return api_key or (os.environ.get(variable) if base_url is None else None)


@contextlib.contextmanager
def connected(sdk: Any, kind: type[ClientT], asking: Any, line: CancellableCall) -> Iterator[ClientT]:
    """A client for one call, closed behind it. Its requests go over the line."""
    key = asking.api_key or (_NO_KEY if asking.base_url is not None else None)
    http = sdk.DefaultHttpxClient(event_hooks={"request": [line.attach]})
    try:
        client: ClientT = kind(  # type: ignore[call-arg]  # both SDKs' clients take these
            api_key=key,
            base_url=asking.base_url,
            timeout=sdk.Timeout(asking.idle, connect=asking.connect),
            max_retries=0,
            default_headers=dict(asking.headers),
            http_client=http,
        )
        yield client
    finally:
        http.close()
