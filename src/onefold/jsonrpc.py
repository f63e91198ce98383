"""JSON-RPC framing: parses, checks and builds frames, one per line. The Agent Client Protocol and the Model Context
Protocol are written in it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import orjson

from onefold.messages.json_size import values
from onefold.model import Json

PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MOST_VALUES = 100_000
"""Values in one frame of a client: text and pictures are one each."""
MOST_TEXT = 4 << 20
"""Bytes of a frame that may be anything. A larger one has to be plain, as pictures and files are: ASCII with few
escapes. Other text takes three times as long to read and to write, and four times the memory."""

_DIGITS_AS_ZEROS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_MOST_DIGITS = 400
"""Of an integer: to read one takes time that grows with the square of them."""
_LONG_NUMBER = b"0" * 19
"""Looked for after every digit was made a zero: in 60 MB of text, twenty times as fast as a regular expression."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One JSON-RPC message. `body` is as it came, and is never changed: who needs another one makes it."""

    body: dict[str, Json]

    @property
    def id(self) -> str | int | None:
        """Of a request or a response."""
        id = self.body.get("id")
        return id if isinstance(id, str | int) and not isinstance(id, bool) else None

    @property
    def method(self) -> str | None:
        """Of a request or a notification; a response has none."""
        method = self.body.get("method")
        return method if isinstance(method, str) else None

    @property
    def params(self) -> dict[str, Json]:
        params = self.body.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None

    @property
    def is_notification(self) -> bool:
        return self.method is not None and "id" not in self.body

    @property
    def is_response(self) -> bool:
        return self.method is None and self.id is not None and ("result" in self.body or "error" in self.body)

    @property
    def update(self) -> dict[str, Json]:
        """What a session/update says; empty for any other frame, and for one that does not say what kind it is of."""
        update = self.params.get("update") if self.method == "session/update" else None
        return update if isinstance(update, dict) and isinstance(update.get("sessionUpdate"), str) else {}


def request(id: str | int, method: str, params: Json) -> Frame:
    return Frame({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: Json) -> Frame:
    return Frame({"jsonrpc": "2.0", "method": method, "params": params})


def result(id: str | int, value: Json) -> Frame:
    return Frame({"jsonrpc": "2.0", "id": id, "result": value})


def error(id: str | int | None, code: int, message: str, data: Json = None) -> Frame:
    said: dict[str, Json] = {"code": code, "message": message}
    if data is not None:
        said["data"] = data
    return Frame({"jsonrpc": "2.0", "id": id, "error": said})


def text(frame: Frame) -> str:
    """A frame as one line, without its end."""
    try:
        return orjson.dumps(frame.body).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return json.dumps(frame.body, separators=(",", ":"))


def parse(line: str | bytes) -> list[Frame]:
    """The frames of a line: one, or several where an agent sends an array. Raises ValueError if it is not JSON-RPC."""
    body = _loads(line.encode(errors="surrogatepass") if isinstance(line, str) else line)
    bodies = body if isinstance(body, list) else [body]
    if not bodies or not all(isinstance(one, dict) for one in bodies):
        raise ValueError("a frame is a JSON object")
    return [Frame(one) for one in bodies]


def check_size(data: bytes, most_values: int) -> None:
    """Raises ValueError for a frame that is more than it looks. Nothing is parsed for that."""
    if values(data, most_values) > most_values:
        raise ValueError(f"it has more than {most_values:,} values")
    if len(data) > MOST_TEXT and (not data.isascii() or data.count(b"\\") > len(data) // 8):
        raise ValueError(f"it has {len(data):,} bytes, and {MOST_TEXT:,} are the most for text that is not plain ASCII")


def sole(line: str) -> Frame:
    """The one frame that a client sends. Raises ValueError if it is none: no arrays either, which ACP does not have.

    What it costs to say so does not depend on what is in it."""
    if line.lstrip(" \t\r\n")[:1] == "[":
        raise ValueError("JSON-RPC batches are not taken; send each frame by itself")
    data = line.encode(errors="surrogatepass")
    check_size(data, MOST_VALUES)
    (frame,) = parse(data)
    return frame


def _loads(data: bytes) -> Json:
    """orjson reads integers beyond 64 bits as floats, and rejects lone surrogates: such text is read more slowly."""
    if _LONG_NUMBER not in data.translate(_DIGITS_AS_ZEROS):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(data.decode(errors="surrogatepass"), parse_int=_integer)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has {len(digits):,} digits; {_MOST_DIGITS} are the most")
    return int(digits)
