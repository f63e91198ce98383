"""Serves the page's files from memory, each with its type and an ETag.

They are read once, when this is imported, and the page's modules are joined to one script. A path is looked up among
their names and never becomes a path of the disk, so none of them leads out of the folder. What a browser may do with
them, the guard says, for every answer alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from onefold.server.module_bundle import bundle

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What is served, by the end of its name. Other files in the folder are not."""


ENTRY = "app.js"
"""The module that the page begins with. It is served with all that it imports."""


class File(NamedTuple):
    body: bytes
    type: str
    etag: str

    @property
    def version(self) -> str:
        return f"v={self.etag[1:13]}"


def _read() -> Iterator[tuple[str, File]]:
    """The page and what it names, by their paths. Its modules are one script, and each file is named with its version:
    a browser that has it does not ask again."""
    there = [entry for entry in files("onefold.server").joinpath("web").iterdir() if entry.is_file()]
    bodies = {entry.name: entry.read_bytes() for entry in there if entry.name.rpartition(".")[2] in TYPES}
    document = bodies.pop("index.html").decode()
    modules = {name: body.decode() for name, body in bodies.items() if name.endswith(".js")}
    bodies[ENTRY] = bundle(modules, ENTRY).encode()
    for name in sorted(set(re.findall(r'="static/([\w.]+)"', document))):
        file = _file(name, bodies[name])
        document = document.replace(f'"static/{name}"', f'"static/{name}?{file.version}"')
        yield f"/static/{name}", file
    yield "/", _file("index.html", document.replace('<script type="module"', "<script defer").encode())


def _file(name: str, body: bytes) -> File:
    return File(body, TYPES[name.rpartition(".")[2]], f'"{sha256(body).hexdigest()[:24]}"')


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
            lasts = scope["path"] != "/" and scope.get("query_string", b"").decode("latin-1") == file.version
            kept = [(b"cache-control", b"public, max-age=31536000, immutable")] if lasts else []
            await _answer(send, scope, 304 if file.etag in _known(scope) else 200, file, kept)


page = Page()


def _known(scope: Scope) -> set[str]:
    """The ETags that the browser already has the content of."""
    given = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
    return {tag.strip().removeprefix("W/") for tag in given.decode("latin-1").split(",")}


async def _answer(send: Send, scope: Scope, status: int, file: File, headers: list[tuple[bytes, bytes]]) -> None:
    if not any(name == b"cache-control" for name, _ in headers):
        headers = [*headers, (b"cache-control", b"no-cache")]
    if file.etag:
        headers.append((b"etag", file.etag.encode()))
    if status != 304:
        headers += [(b"content-type", file.type.encode()), (b"content-length", str(len(file.body)).encode())]
    silent = status == 304 or scope["method"] == "HEAD"
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if silent else file.body})
