"""A model for tests: a real HTTP server on loopback that speaks as the APIs of OpenAI and Anthropic do.

A test says what it answers, request by request, and looks at what it was asked. Where a request goes, and in which
dialect the answer comes, is told by its path.

    with ModelServer(says("Hello"), fails(500)) as server:
        client = openai.OpenAI(base_url=server.openai, api_key="k")
"""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, TypeAlias

from onefold.compaction.summarizers import Material
from onefold.messages import codec
from onefold.model import Fact, Json, Record

_LOOK = 0.01
_LONGEST = 30.0
"""How many seconds a reply hangs at most, whatever becomes of its test."""
_STOPS = {
    "openai": {"stop": "stop", "length": "length", "refused": "content_filter"},
    "anthropic": {"stop": "end_turn", "length": "max_tokens", "refused": "refusal"},
}


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Json
    left: threading.Event = field(default_factory=threading.Event, compare=False)
    """Set once the client hung up in the middle of the answer."""

    @property
    def text(self) -> str:
        """Everything that left the client's process in the body, for looking whether something did."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def prompt(self) -> str:
        """What the model was told: system prompt and messages, one after the other."""
        said = [self.body.get("system", ""), *(m["content"] for m in self.body["messages"])]
        return "\n".join(t if isinstance(t, str) else "\n".join(p.get("text", "") for p in t) for t in said)


@dataclass(frozen=True)
class Reply:
    """One answer. Made by the functions below."""

    pieces: tuple[str, ...] = ()
    stop: str | None = "stop"
    usage: tuple[int, int] | None = (100, 20)
    then: Literal["end", "hang", "cut", "error"] = "end"
    status: int = 200
    message: str = ""
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    content_type: str = "application/json"


Scripted: TypeAlias = Reply | Callable[[Asked], Reply]


def says(*pieces: str, stop: str | None = "stop", usage: tuple[int, int] | None = (100, 20)) -> Reply:
    """Streams these pieces. `stop` is stop, length or refused; None ends the stream without a word why."""
    return Reply(pieces, stop, usage)


def hangs(*pieces: str) -> Reply:
    """Streams these pieces, or does not even send headers, and then nothing more until the client has had enough."""
    return Reply(pieces, then="hang")


def cuts(*pieces: str) -> Reply:
    """Streams these pieces, and then the connection is gone."""
    return Reply(pieces, then="cut")


def breaks(*pieces: str, message: str = "the model fell over", code: str = "server_error") -> Reply:
    """Streams these pieces, and then says that it failed."""
    return Reply(pieces, then="error", message=message, code=code)


def fails(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Reply:
    """An error in the provider's own shape; headers are given with underscores: retry_after="3"."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, message=message, code=code, headers=named)


def raw(body: bytes, *, status: int = 200, content_type: str = "text/event-stream") -> Reply:
    """Exactly these bytes."""
    return Reply(raw=body, status=status, content_type=content_type)


class ModelServer:
    """Answers each request with the next reply, and every further one with `otherwise`."""

    def __init__(self, *replies: Scripted, otherwise: Scripted | None = None) -> None:
        self.requests: list[Asked] = []
        self._replies = list(replies)
        self._otherwise = otherwise or fails(500, "the test did not say what to answer")
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._came = threading.Condition(self._lock)
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK,), daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai(self) -> str:
        """The base URL for an OpenAI client."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL for an Anthropic client."""
        return self.url

    def answers(self, *replies: Scripted) -> None:
        """Adds to what it will answer."""
        with self._lock:
            self._replies += replies

    def await_requests(self, count: int, patience: float = 10.0) -> Asked:
        """Waits until so many requests have come, and gives the last of them."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.requests) >= count, patience), f"{len(self.requests)} came"
            return self.requests[count - 1]

    def _reply_to(self, asked: Asked) -> Reply:
        with self._came:
            self.requests.append(asked)
            reply = self._replies.pop(0) if self._replies else self._otherwise
            self._came.notify_all()
        return reply if isinstance(reply, Reply) else reply(asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing the server waits for every answer under way

    def __init__(self, model: ModelServer) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _LONGEST
    server: _Server

    def do_POST(self) -> None:
        self.close_connection = True
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        reply = self.server.model._reply_to(asked)
        try:
            self._send(asked, reply)
        except OSError:
            asked.left.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _send(self, asked: Asked, reply: Reply) -> None:
        dialect = "anthropic" if asked.path.endswith("/messages") else "openai"
        if reply.raw is not None:
            self._whole(reply.status, reply.raw, reply.content_type, reply.headers)
        elif reply.status != 200:
            self._whole(reply.status, _json(_error(dialect, reply)), reply.content_type, reply.headers)
        elif reply.then == "hang" and not reply.pieces:
            self._hang(asked)
        elif not asked.body.get("stream"):
            whole = _whole_openai(asked.body, reply) if dialect == "openai" else _whole_anthropic(asked.body, reply)
            self._whole(200, _json(whole), "application/json", reply.headers)
        else:
            self._stream(asked, reply, dialect)

    def _whole(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {
            "content-type": content_type,
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked: Asked, reply: Reply, dialect: str) -> None:
        self.send_response(200)
        for name, value in (
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        events = _openai_events(asked.body, reply) if dialect == "openai" else _anthropic_events(asked.body, reply)
        for event in events:
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if reply.then == "hang":
            self._hang(asked)
        elif reply.then != "cut":
            self.wfile.write(b"0\r\n\r\n")

    def _hang(self, asked: Asked) -> None:
        for _ in range(int(_LONGEST / _LOOK)):
            if self.server.model._closing.is_set():
                return
            if select.select([self.connection], [], [], _LOOK)[0]:  # nothing more is asked: the client hung up
                asked.left.set()
                return


def _json(value: Json) -> bytes:
    return json.dumps(value).encode()


def _error(dialect: str, reply: Reply) -> Json:
    if dialect == "openai":
        return {"error": {"message": reply.message, "type": reply.code or "error", "code": reply.code}}
    return {"type": "error", "error": {"type": reply.code or "api_error", "message": reply.message}}


# ---------------------------------------------------------------------- OpenAI


def _openai_events(body: Json, reply: Reply) -> Iterator[str]:
    def event(**fields: Json) -> str:
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": body["model"], **fields}
        return f"data: {json.dumps(chunk)}\n\n"

    def choice(delta: Json, stop: str | None = None) -> Sequence[Json]:
        return [{"index": 0, "delta": delta, "finish_reason": stop}]

    yield event(choices=choice({"role": "assistant", "content": ""}))
    for piece in reply.pieces:
        yield event(choices=choice({"content": piece}))
    if reply.then == "error":
        yield f"data: {json.dumps(_error('openai', reply))}\n\n"
    elif reply.then == "end":
        if reply.stop is not None:
            yield event(choices=choice({}, _STOPS["openai"].get(reply.stop, reply.stop)))
        if reply.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
            yield event(choices=[], usage=_openai_usage(reply.usage))
        yield "data: [DONE]\n\n"


def _openai_usage(usage: tuple[int, int]) -> Json:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _whole_openai(body: Json, reply: Reply) -> Json:
    message = {"role": "assistant", "content": "".join(reply.pieces)}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {"index": 0, "message": message, "finish_reason": _STOPS["openai"].get(reply.stop or "", reply.stop)}
        ],
        "usage": _openai_usage(reply.usage or (0, 0)),
    }


# ---------------------------------------------------------------------- Anthropic


def _anthropic_events(body: Json, reply: Reply) -> Iterator[str]:
    def event(kind: str, **fields: Json) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    given, made = reply.usage or (0, 0)
    start = {**_whole_anthropic(body, reply), "content": [], "stop_reason": None}
    yield event("message_start", message={**start, "usage": {"input_tokens": given, "output_tokens": 1}})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield event("ping")
    for piece in reply.pieces:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    if reply.then == "error":
        yield f"event: error\ndata: {json.dumps(_error('anthropic', reply))}\n\n"
    elif reply.then == "end":
        yield event("content_block_stop", index=0)
        if reply.stop is not None:
            stop = _STOPS["anthropic"].get(reply.stop, reply.stop)
            yield event(
                "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": made}
            )
            yield event("message_stop")


def _whole_anthropic(body: Json, reply: Reply) -> Json:
    given, made = reply.usage or (0, 0)
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": "".join(reply.pieces)}],
        "stop_reason": _STOPS["anthropic"].get(reply.stop or "", reply.stop),
        "stop_sequence": None,
        "usage": {"input_tokens": given, "output_tokens": made},
    }


# ---------------------------------------------------------------------- what it is asked about


def material(
    *messages: Json,
    previous: str | None = None,
    instructions: str | None = None,
    facts: tuple[Fact, ...] = (),
    stopped: Callable[[], bool] = bool,
    max_tokens: int = 400,
) -> Material:
    """What a summarizer is given for these messages, numbered from 2 on. A string is what a user says."""
    bodies = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    records = tuple(
        Record(n, f"id-{n}", "message", 0.0, body, "openai-chat", codec("openai-chat").header(body))
        for n, body in enumerate(bodies, start=2)
    )
    return Material("s", previous, records, instructions, max_tokens, 1, facts=facts, stopped=stopped)
