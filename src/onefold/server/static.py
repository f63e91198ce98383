"""The page's files, served from memory: each with its type and an ETag, and nothing that is not in the package.

They are read once, when this is imported. A path is looked up among their names and never becomes a path of the disk,
so none of them leads out of the folder. What a browser may do with them, the guard says, for every answer alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What is served, by the end of its name. Other files in the folder are not."""


class File(NamedTuple):
    body: bytes
    type: str
    etag: str


def _read() -> Iterator[tuple[str, File]]:
    for entry in files("onefold.server").joinpath("page").iterdir():
        kind = TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None and entry.is_file():
            body = entry.read_bytes()
            name = "/" if entry.name == "index.html" else f"/static/{entry.name}"
            yield name, File(body, kind, f'"{sha256(body).hexdigest()[:24]}"')


FILES: dict[str, File] = dict(_read())
"""Every file by the path at which it is served."""

_WORDS = "text/plain; charset=utf-8"
_NOT_FOUND = File(b"There is no such file. The page is at /\n", _WORDS, "")
_NOT_SO = File(b"This is a file: use GET or HEAD.\n", _WORDS, "")


class Page:
    """The ASGI app for `/` and `/static/*`. An object, because a router takes a function for something else."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the page is asked for by HTTP, not by {scope['type']}")
        file = FILES.get(scope["path"])
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(send, scope, 405, _NOT_SO, [(b"allow", b"GET, HEAD")])
        elif file is None:
            await _answer(send, scope, 404, _NOT_FOUND, [])
        else:
            await _answer(send, scope, 304 if file.etag in _known(scope) else 200, file, [])


page = Page()


def _known(scope: Scope) -> set[str]:
    """The ETags that the browser already has the content of."""
    given = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
    return {tag.strip().removeprefix("W/") for tag in given.decode("latin-1").split(",")}


async def _answer(send: Send, scope: Scope, status: int, file: File, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"cache-control", b"no-cache")]
    if file.etag:
        headers.append((b"etag", file.etag.encode()))
    if status != 304:
        headers += [(b"content-type", file.type.encode()), (b"content-length", str(len(file.body)).encode())]
    silent = status == 304 or scope["method"] == "HEAD"
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if silent else file.body})
