"""What a provider ran or brought along itself, in whatever message it stands: what can be read of it, and the size of
the rest.

Providers add tools faster than anybody can list them, so this goes by a few rules: what is encrypted or signed has a
name that says so, a file has its data or a link, a call ends in `_call`, and everything else is words.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Set
from typing import NamedTuple

from onefold.messages.lossless_json import encode
from onefold.messages.parts import (
    DocumentPart,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    estimate,
    objects,
    strings,
)
from onefold.model import Json

_SEALED = re.compile(r"encrypted|signature$|fingerprint|schema$|^logprobs$|^parameters$", re.IGNORECASE)
"""Names of what nobody reads: what is encrypted or signed, and what a tool's arguments look like."""
_LABELS = frozenset({"type", "id", "kind", "part_kind", "cache_control", "citations", "annotations", "caller", "role"})
"""What a block is called and how it is to be handled: not what it says."""
_ENVELOPE = _LABELS | {"call_id", "name", "status", "server_label", "approval_request_id", "namespace"}
"""What an item has beside what it was given and what it gave."""
_GIVEN = ("arguments", "input", "action", "operation")
_OUTPUTS = frozenset({"output", "outputs", "result", "results", "content", "tools", "logs", "error", "search_results"})
_PLAIN = _OUTPUTS | {
    *(
        "text",
        "title",
        "url",
        "uri",
        "source",
        "sources",
        "snippet",
        "summary",
        "description",
        "document",
        "transcript",
    ),
    *("code", "stdout", "stderr", "lines", "message", "body", "data", "query", "queries"),
}
"""Names that go without saying. Others are told with what they name."""
_FILE = re.compile(
    r"(?:input_|output_|computer_)?(image|audio|video|file|document|pdf|screenshot|media)(?:[_-]url)?"
    r"|binary|base64|uploaded-file"
)
_DATA = ("data", "base64", "file_data", "blob", "bytes")
_LINKS = ("url", "uri", "image_url", "file_url", "file_uri", "video_url", "audio_url", "document_url")
_MIMES = ("media_type", "mime_type", "mimeType")
_TITLES = ("title", "filename", "file_name", "name", "uri", "path")
_READABLE = re.compile(r"text/.+|application/(?:json|xml|yaml|x-yaml|toml|javascript|x-sh|sql)|.+\+(?:json|xml)")
_PICTURES = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How pictures in base64 begin, where nothing else says that a text is one."""
_SHORTEST = 256
COMPACTED = "a summary of what came before, by the provider"
"""How the text of a provider's own compaction is introduced where it stands among messages."""


class Read(NamedTuple):
    """What can be read of a value, and next to it files and the size of what cannot."""

    text: str
    more: tuple[Part, ...] = ()


def read(value: Json) -> Read:
    """All words in what a provider wrote, in order, and what else there is in it."""
    if isinstance(value, str):
        return Read(value)
    if isinstance(value, list) and all(_words(one) for one in value):
        return Read("\n".join(one["text"] for one in value))  # as most results are
    return _read(value, strict=False)


def _words(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def told(value: Json) -> Read:
    """What a tool gave: words as they are, and its own data as JSON, but for files that stand in it."""
    if value is None or isinstance(value, str):
        return Read(value or "")
    found = _read(value, strict=True)
    return found if found.more else Read(encode(value))


def _read(value: Json, *, strict: bool) -> Read:
    lines: list[str] = []
    more: list[Part] = []
    hidden = 0
    left: list[tuple[str, Json]] = [("", value)]
    while left:
        name, one = left.pop()
        file = attached(one, strict=strict) if isinstance(one, dict) else _picture(one)
        if not strict and _SEALED.search(name):
            hidden += size(one)
        elif isinstance(file, DocumentPart):
            lines += filter(None, (file.name, file.text))
        elif file is not None:
            more.append(file)
        elif isinstance(one, dict):
            left += [(k, v) for k, v in reversed(one.items()) if strict or k not in _LABELS]
        elif isinstance(one, list) and any(isinstance(v, str | dict | list) for v in one):
            left += [(name, v) for v in reversed(one)]
        elif isinstance(one, str) and (name in _PLAIN or not name):
            lines += [one] if one.strip() else []
        elif one not in (None, "", []):
            lines.append(f"{name}: {one if isinstance(one, str) else encode(one)}".removeprefix(": "))
    return Read("\n".join(lines), (*more, *([OpaquePart(hidden)] if hidden else ())))


def size(value: Json) -> int:
    """Tokens of what cannot be read, roughly."""
    return 0 if value in (None, "", [], {}) else estimate(value if isinstance(value, str) else encode(value))


def sealed(*values: Json, beside: str = "") -> list[Part]:
    """What is encrypted or signed. It holds what can be read `beside` it as well, which counts once."""
    tokens = sum(map(size, values)) - estimate(beside)
    return [OpaquePart(tokens)] if tokens > 0 else []


def attached(block: dict[str, Json], *, strict: bool = False) -> MediaPart | DocumentPart | None:
    """The picture, sound or file that a block is, if it is one. A file of text is read. If `strict`, only what has its
    data inside: a tool's own data may name files too."""
    kind = _named(block, ("type", "kind"))
    found = _FILE.fullmatch(kind)
    within = (block.get("source"), block.get(kind), block.get("resource"))
    inner = next((i for i in within if isinstance(i, dict)), block)
    data, mime = _named(inner, _DATA), _named(inner, _MIMES) or _named(block, _MIMES)
    link = _named(inner, _LINKS) or _named(block, _LINKS)
    if not data and link.startswith("data:"):
        data = link
    if not (found or (mime and data)) or inner.get("type") == "content" or (strict and not data):
        return None
    if not (data or link) and any(block.get(name) for name in ("content", "text")):
        return None  # it has its words inside
    title = _named(block, _TITLES) or _named(inner, _TITLES)
    if data and inner.get("type") == "text":
        return DocumentPart(data, title)
    if data.startswith("data:"):
        head, comma, behind = data.partition(";base64,")
        mime, data = (head.removeprefix("data:"), behind) if comma else ("", "")
    if data and _READABLE.fullmatch(mime) and (text := _decoded(data)):
        return DocumentPart(text, title)
    what = mime.partition("/")[0]
    if what not in ("image", "audio", "video"):
        what = (found and found[1]) or "file"
    what = {"screenshot": "image", "pdf": "document", "media": "file"}.get(what, what)
    return MediaPart(what, f"data:{mime or _mime(data, what)};base64,{data}" if data else link or None)


def document(block: dict[str, Json], name: str) -> list[Part]:
    """What came along: a file, a page, a search result; or a block that nobody knows, by what can be read of it."""
    if (file := attached(block)) is not None:
        return [file]
    found = read(block)
    title = COMPACTED if name.startswith("compaction") else name
    parts: list[Part] = [DocumentPart(found.text, title)] if found.text else []
    return [*parts, *found.more] or [OpaquePart(size(block))]


def given(item: dict[str, Json]) -> str:
    """What an item that is a call was given, as JSON."""
    rest = {k: v for k, v in item.items() if k not in _ENVELOPE and k not in _OUTPUTS and not _SEALED.search(k)}
    named = next((n for n in _GIVEN if rest.get(n)), "")
    asked = isinstance(item.get("call_id"), str)  # of somebody else
    if named and (asked or len(rest) == 1):
        return rest[named] if isinstance(rest[named], str) else encode(rest[named])
    return encode({k: v for k, v in rest.items() if v is not None and not (asked and k in _GIVEN)})


def ran(item: dict[str, Json], kind: str) -> list[Part]:
    """A call that the provider ran itself, and what came of it."""
    id = next(strings(item.get("id")), kind)
    call = ToolCall(id, _named(item, ("name",)) or kind.removesuffix("_call"), given(item))
    found = read({k: v for k, v in item.items() if k in _OUTPUTS or _SEALED.search(k)})
    failed = item.get("status") in ("failed", "error") or bool(item.get("error"))
    return [call, ToolResult(id, found.text, failed), *found.more]


def cited(citations: Json) -> list[Part]:
    """Where an answer has something from, by its own word."""
    names = ("title", "document_title", "filename", "url", "source")
    sources = dict.fromkeys(" ".join(strings(*map(one.get, names))) for one in objects(citations))
    found = "\n".join(filter(None, sources))
    return [DocumentPart(found, "sources")] if found else []


def thought(block: dict[str, Json]) -> list[Part]:
    """Reasoning, as several providers write it: what can be read of it, and what is sealed."""
    texts = [*strings(block.get("thinking"), block.get("reasoning"))]
    for name in ("summary", "content", "thinking"):
        texts += [t for part in objects(block.get(name)) for t in strings(part.get("text"))]
    text = "\n".join(texts)
    extras = block.get("extras")
    extra = extras.get("signature") if isinstance(extras, dict) else None
    data = block.get("data") if block.get("type") == "redacted_thinking" else None
    return [
        ReasoningPart(text),
        *sealed(block.get("signature"), block.get("encrypted_content"), data, extra, beside=text),
    ]


def passed_on(block: dict[str, Json], own: set[str]) -> list[Part]:
    """A block of whatever provider, in a message of a framework that passes it on. Ids of calls that the provider ran
    are added to its `own`."""
    kind = str(block.get("type"))
    if kind == "non_standard" and isinstance(block.get("value"), dict):
        return passed_on(block["value"], own)
    if kind in ("text", "input_text", "output_text", "refusal"):
        texts: list[Part] = [TextPart(t) for t in strings(block.get("text"), block.get("refusal"))]
        return texts + cited(block.get("citations")) + cited(block.get("annotations"))
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        return thought(block)
    answered = next(strings(block.get("tool_use_id"), block.get("tool_call_id")), None)
    if kind.endswith("tool_result") and answered is not None:
        own.add(answered)
        found = read([block[name] for name in ("content", "output") if name in block])
        failed = bool(block.get("is_error")) or block.get("status") == "error"
        return [ToolResult(answered, found.text, failed), *found.more]
    if kind.endswith("_call") and isinstance(id := block.get("call_id"), str):
        return [ToolCall(id, _named(block, ("name",)) or kind, given(block))]
    if kind.endswith(("_tool_use", "_tool_call")) and isinstance(id := block.get("id"), str):
        own.add(id)
        asked = block.get("input") if "input" in block else block.get("args")
        return [
            ToolCall(id, _named(block, ("name",)) or kind, asked if isinstance(asked, str) else encode(asked or {}))
        ]
    if kind.endswith("_call"):
        own.add(next(strings(block.get("id")), kind))
        return ran(block, kind)
    return document(block, kind)


def settled(parts: Iterable[Part], own: Set[str]) -> list[Part]:
    """The same with a result for each of the provider's `own` calls, and a call for each of its results: such a pair is
    over when it is seen, nobody waits for it, and nobody else answers it."""
    listed = [*parts]
    if not own:
        return listed
    called = {p.id for p in listed if isinstance(p, ToolCall)}
    answered = {p.id for p in listed if isinstance(p, ToolResult)}
    whole: list[Part] = []
    for part in listed:
        if isinstance(part, ToolResult) and part.id in own and part.id not in called:
            whole.append(ToolCall(part.id, part.name or "tool", "{}"))
        whole.append(part)
        if isinstance(part, ToolCall) and part.id in own and part.id not in answered:
            whole.append(ToolResult(part.id, ""))
    return whole


def _named(of: dict[str, Json], names: Iterable[str]) -> str:
    return next((v for n in names if isinstance(v := of.get(n), str) and v), "")


def _mime(data: str, what: str) -> str:
    found = (mime for beginning, mime in _PICTURES.items() if data.startswith(beginning))
    return next(found, "image/png" if what == "image" else f"{what}/*")


def _picture(text: Json) -> MediaPart | None:
    if not isinstance(text, str) or len(text) < _SHORTEST:
        return None
    mime = next((mime for beginning, mime in _PICTURES.items() if text.startswith(beginning)), None)
    bare = mime is not None and not any(c.isspace() for c in text[:_SHORTEST])
    return MediaPart("image", f"data:{mime};base64,{text}") if bare else None


def _decoded(data: str) -> str | None:
    standard = data.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
