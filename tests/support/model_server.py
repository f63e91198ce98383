"""A model for tests: a real HTTP server on loopback that speaks as OpenAI (chat and Responses) and Anthropic do.

A test says what it answers, request by request, and looks at what it was asked. Where a request goes, and in which
dialect the answer comes, is told by its path.

    with ModelServer(says("Hello"), fails(500)) as server:
        client = openai.OpenAI(base_url=server.openai, api_key="k")
"""

from __future__ import annotations

import itertools
import json
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from onefold.compaction.summarizer import SummaryInput
from onefold.messages import codec
from onefold.model import Fact, Json, Record

_LOOK = 0.01
_LONGEST = 30.0
"""How many seconds a reply hangs at most, whatever becomes of its test."""
_STOPS = {
    "openai": {"stop": "stop", "length": "length", "refused": "content_filter"},
    "anthropic": {"stop": "end_turn", "length": "max_tokens", "refused": "refusal"},
}
_CALLS = {"openai": "tool_calls", "anthropic": "tool_use"}
"""Why an answer with calls stopped, in each dialect that tells."""


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
    def messages(self) -> list[Json]:
        """The messages, or in the dialect of Responses the items of the input."""
        given = self.body.get("messages") or self.body.get("input") or []
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    @property
    def prompt(self) -> str:
        """What the model was told: system prompt and messages, one after the other."""
        said = [self.body.get("system", ""), *(m["content"] for m in self.messages)]
        return "\n".join(t if isinstance(t, str) else "\n".join(p.get("text", "") for p in t) for t in said)


@dataclass(frozen=True)
class Call:
    """A tool that the model wants called."""

    name: str
    arguments: Mapping[str, Json]
    id: str = "call_1"


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
    calls: tuple[Call, ...] = ()


Scripted: TypeAlias = Reply | Callable[[Asked], Reply]


def says(*pieces: str, stop: str | None = "stop", usage: tuple[int, int] | None = (100, 20)) -> Reply:
    """Streams these pieces. `stop` is stop, length or refused; None ends the stream without a word why."""
    return Reply(pieces, stop, usage)


def labels(
    text: str, *, facts: Sequence[Json] = (), ends: Sequence[Json] = (), withdrawn: Sequence[Json] = ()
) -> Reply:
    """A summary with what it calls words of messages, what it says is over, and what it says never was."""
    block = {"facts": [*facts], "ends": [*ends], "withdrawn": [*withdrawn]}
    return says(f"{text}\n\n```json\n{json.dumps(block, ensure_ascii=False)}\n```")


def calls(*wanted: Call, usage: tuple[int, int] | None = (100, 20)) -> Reply:
    """Says nothing, and wants these tools called."""
    return Reply(usage=usage, calls=wanted)


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
        self.looked: list[str] = []
        """What was asked for by GET and HEAD: lists of models, and whether anybody is there."""
        self._replies = list(replies)
        self._otherwise = otherwise or fails(500, "the test did not say what to answer")
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._came = threading.Condition(self._lock)
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK,), daemon=True)

    def __enter__(self) -> Self:
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

    def do_GET(self) -> None:
        """The models there are: one, of any name."""
        self.close_connection = True
        self.server.model.looked.append(self.path)
        model = {"id": "model", "object": "model", "type": "model", "created": 0, "owned_by": "tests"}
        self._whole(200, _json({"object": "list", "data": [model], "models": []}), "application/json", {})

    def do_HEAD(self) -> None:
        self.close_connection = True
        self.server.model.looked.append(self.path)
        self._whole(200, b"", "application/json", {})

    def do_POST(self) -> None:
        self.close_connection = True
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if (other := _other_question(self.path, body)) is not None:
            self._whole(other[0], _json(other[1]), "application/json", {})
            return
        asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        reply = self.server.model._reply_to(asked)
        try:
            self._send(asked, reply)
        except OSError:
            asked.left.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _send(self, asked: Asked, reply: Reply) -> None:
        dialect = _dialect(asked.path)
        if reply.raw is not None:
            self._whole(reply.status, reply.raw, reply.content_type, reply.headers)
        elif reply.status != 200:
            self._whole(reply.status, _json(_error(dialect, reply)), reply.content_type, reply.headers)
        elif reply.then == "hang" and not reply.pieces:
            self._hang(asked)
        elif not asked.body.get("stream"):
            self._whole(200, _json(_WHOLE[dialect](asked.body, reply)), "application/json", reply.headers)
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
        for event in _EVENTS[dialect](asked.body, reply):
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


def _other_question(path: str, body: Json) -> tuple[int, Json] | None:
    """The answer to what is not for a test to say: how many tokens, which vectors, and what kind of server this is."""
    asked = urlsplit(path).path
    if asked.endswith("/messages/count_tokens"):
        return 200, {"input_tokens": len(json.dumps(body)) // 4}
    if asked.endswith("/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        vector = [1.0] + [0.0] * (body.get("dimensions", 8) - 1)
        data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(texts))]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return 200, {"object": "list", "model": body["model"], "data": data, "usage": usage}
    if "model" not in body:
        return 404, _error("openai", fails(404, "there is no such thing"))
    return None


def _dialect(path: str) -> str:
    last = urlsplit(path).path.rpartition("/")[2]
    return {"messages": "anthropic", "responses": "responses"}.get(last, "openai")


def _stop(dialect: str, reply: Reply) -> str | None:
    return _CALLS[dialect] if reply.calls else _STOPS[dialect].get(reply.stop or "", reply.stop)


def _json(value: Json) -> bytes:
    return json.dumps(value).encode()


def _error(dialect: str, reply: Reply) -> Json:
    if dialect != "anthropic":
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
    for index, call in enumerate(_openai_calls(reply)):
        yield event(choices=choice({"tool_calls": [{"index": index, **call}]}))
    if reply.then == "error":
        yield f"data: {json.dumps(_error('openai', reply))}\n\n"
    elif reply.then == "end":
        if reply.stop is not None:
            yield event(choices=choice({}, _stop("openai", reply)))
        if reply.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
            yield event(choices=[], usage=_openai_usage(reply.usage))
        yield "data: [DONE]\n\n"


def _openai_usage(usage: tuple[int, int]) -> Json:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _openai_calls(reply: Reply) -> list[dict[str, Json]]:
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for c in reply.calls
    ]


def _whole_openai(body: Json, reply: Reply) -> Json:
    message: dict[str, Json] = {"role": "assistant", "content": "".join(reply.pieces)}
    if reply.calls:
        message["tool_calls"] = _openai_calls(reply)
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _stop("openai", reply)}],
        "usage": _openai_usage(reply.usage or (0, 0)),
    }


# ---------------------------------------------------------------------- OpenAI, Responses


def _responses_events(body: Json, reply: Reply) -> Iterator[str]:
    numbers = itertools.count()

    def event(kind: str, **fields: Json) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': next(numbers), **fields})}\n\n"

    begun = {**_whole_responses(body, reply), "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for place, item in enumerate(_responses_items(reply)):
        yield from _responses_item(event, place, item, reply.pieces)
    if reply.then == "error":
        failed = {**begun, "status": "failed", "error": {"code": reply.code, "message": reply.message}}
        yield event("response.failed", response=failed)
    elif reply.then == "end" and reply.stop is not None:
        last = "response.incomplete" if reply.stop == "length" else "response.completed"
        yield event(last, response=_whole_responses(body, reply))


def _responses_item(event: Callable[..., str], place: int, item: Json, pieces: Sequence[str]) -> Iterator[str]:
    at = {"output_index": place, "item_id": item["id"]}
    if item["type"] == "function_call":
        yield event("response.output_item.added", output_index=place, item={**item, "arguments": ""})
        yield event("response.function_call_arguments.delta", delta=item["arguments"], **at)
        yield event("response.function_call_arguments.done", arguments=item["arguments"], **at)
    else:
        part = item["content"][0]
        yield event("response.output_item.added", output_index=place, item={**item, "content": []})
        yield event("response.content_part.added", content_index=0, part={**part, "text": ""}, **at)
        for piece in pieces:
            yield event("response.output_text.delta", content_index=0, delta=piece, **at)
        yield event("response.output_text.done", content_index=0, text=part["text"], **at)
        yield event("response.content_part.done", content_index=0, part=part, **at)
    yield event("response.output_item.done", output_index=place, item=item)


def _responses_items(reply: Reply) -> list[Json]:
    said = {"type": "output_text", "text": "".join(reply.pieces), "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    called = [
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in reply.calls
    ]
    return [*([message] if reply.pieces else []), *called]


def _whole_responses(body: Json, reply: Reply) -> Json:
    given, made = reply.usage or (0, 0)
    return {
        "id": "r1",
        "object": "response",
        "created_at": 0,
        "model": body["model"],
        "status": "incomplete" if reply.stop == "length" else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if reply.stop == "length" else None,
        "error": None,
        "output": _responses_items(reply),
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        },
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
        for index, call in enumerate(reply.calls, start=1):
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            arguments = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
            yield event("content_block_start", index=index, content_block=block)
            yield event("content_block_delta", index=index, delta=arguments)
            yield event("content_block_stop", index=index)
        if reply.stop is not None:
            stop = {"stop_reason": _stop("anthropic", reply), "stop_sequence": None}
            yield event("message_delta", delta=stop, usage={"output_tokens": made})
            yield event("message_stop")


def _whole_anthropic(body: Json, reply: Reply) -> Json:
    given, made = reply.usage or (0, 0)
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [
            {"type": "text", "text": "".join(reply.pieces)},
            *({"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in reply.calls),
        ],
        "stop_reason": _stop("anthropic", reply),
        "stop_sequence": None,
        "usage": {"input_tokens": given, "output_tokens": made},
    }


_WHOLE: Mapping[str, Callable[[Json, Reply], Json]] = {
    "openai": _whole_openai,
    "responses": _whole_responses,
    "anthropic": _whole_anthropic,
}
_EVENTS: Mapping[str, Callable[[Json, Reply], Iterator[str]]] = {
    "openai": _openai_events,
    "responses": _responses_events,
    "anthropic": _anthropic_events,
}


# ---------------------------------------------------------------------- what it is asked about


def material(
    *messages: Json,
    previous: str | None = None,
    instructions: str | None = None,
    facts: tuple[Fact, ...] = (),
    stopped: Callable[[], bool] = bool,
    max_tokens: int = 400,
) -> SummaryInput:
    """What a summarizer is given for these messages, numbered from 2 on. A string is what a user says."""
    bodies = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    records = tuple(
        Record(n, f"id-{n}", "message", 0.0, body, "openai-chat", codec("openai-chat").header(body))
        for n, body in enumerate(bodies, start=2)
    )
    return SummaryInput("s", previous, records, instructions, max_tokens, 1, facts=facts, stopped=stopped)
