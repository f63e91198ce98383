"""The Model Context Protocol over stdin and stdout, as far as three tools that only read need it: a JSON-RPC message a
line, `initialize`, `ping`, `tools/list` and `tools/call`. What a client sends never ends the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import orjson

from onefold.errors import OnefoldError
from onefold.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    error,
)
from onefold.model import Json
from onefold.recall.agent_tools import RecallTools

log = logging.getLogger("onefold")

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, the newest first. They differ in nothing that is used here but in how batches are meant."""
LONGEST = 4 << 20
"""Bytes of one message: a query is short."""


class _RequestError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class McpServer:
    tools: RecallTools
    version: str
    """Of this program, for the client to show."""

    def serve(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Answers until the client closes its end."""
        while line := source.readline(LONGEST):
            if not line.endswith(b"\n") and len(line) == LONGEST:
                while (rest := source.readline(LONGEST)) and not rest.endswith(b"\n"):
                    pass
                answer: Json = _error(None, INVALID_REQUEST, f"a message of more than {LONGEST} bytes")
            elif not line.strip():
                continue
            else:
                answer = self.answer(line)
            if answer is not None:
                sink.write(orjson.dumps(answer) + b"\n")
                sink.flush()

    def answer(self, line: bytes) -> Json | None:
        """The answer to one line: to a message, or to a batch of them; None if none is due."""
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return _error(None, PARSE_ERROR, f"no JSON: {error}")
        if not isinstance(message, list):
            return self._one(message)
        if not message:
            return _error(None, INVALID_REQUEST, "an empty batch")
        return [a for m in message if (a := self._one(m)) is not None] or None

    def _one(self, message: Json) -> Json | None:
        if not isinstance(message, dict):
            return _error(None, INVALID_REQUEST, "a message is an object")
        id, method, params = message.get("id"), message.get("method"), message.get("params")
        if method is None and ("result" in message or "error" in message):
            return None  # an answer, and nothing was asked
        if not isinstance(method, str) or message.get("jsonrpc") != "2.0" or not isinstance(id, int | str | None):
            return _error(
                id if isinstance(id, int | str) else None, INVALID_REQUEST, "a request has jsonrpc 2.0 and a method"
            )
        if "id" not in message:
            return None  # a notification: initialized, cancelled and the like ask for nothing
        try:
            if params is not None and not isinstance(params, dict):
                raise _RequestError(INVALID_PARAMS, "params is an object")
            return {"jsonrpc": "2.0", "id": id, "result": self._result(method, params or {})}
        except _RequestError as refused:
            return _error(id, refused.code, str(refused))
        except OnefoldError as error:
            return _error(id, INTERNAL_ERROR, str(error))
        except Exception as error:
            log.exception("%s failed", method)  # on stderr, which clients show
            return _error(id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _result(self, method: str, params: dict[str, Json]) -> Json:
        methods: dict[str, Callable[[dict[str, Json]], Json]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": lambda _: {"tools": self.tools.definitions("mcp")},
            "tools/call": self._call,
        }
        if method not in methods:
            raise _RequestError(METHOD_NOT_FOUND, f"no method {method!r} here")
        return methods[method](params)

    def _initialize(self, params: dict[str, Json]) -> Json:
        """The version that the client asks for, if it is one of ours; else our newest, and the client decides."""
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "onefold", "title": "onefold recall", "version": self.version},
            "instructions": "Finds and reads what was said earlier, whatever was compacted since. It changes nothing.",
        }

    def _call(self, params: dict[str, Json]) -> Json:
        """An unknown tool and arguments that are not an object are errors of the protocol, for the client. What
        else is wrong with a call is its result: an agent reads that, and can correct it."""
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise _RequestError(INVALID_PARAMS, "tools/call needs the name of a tool")
        if name not in (names := [tool["name"] for tool in self.tools.definitions("mcp")]):
            raise _RequestError(INVALID_PARAMS, f"unknown tool: {name!r}; there are {', '.join(names)}")
        if not isinstance(arguments, dict | None):
            raise _RequestError(INVALID_PARAMS, "the arguments of a tool are an object")
        answer = self.tools.answer(name, arguments if arguments is not None else {})
        return {"content": [{"type": "text", "text": answer.text}], "isError": answer.failed}


def _error(id: int | str | None, code: int, message: str) -> Json:
    return error(id, code, message).body
