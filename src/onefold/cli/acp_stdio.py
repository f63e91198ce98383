"""ACP on standard input and output: for an editor that starts a command and speaks to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from onefold.cli.options import WrongUse
from onefold.cli.room_client import LARGEST, room_address, told_by
from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from onefold.acp.client_connection import Scope
    from onefold.acp.host import RoomHost
    from onefold.acp.send_queue import SendQueue


@dataclass(frozen=True, slots=True)
class Here:
    """Whoever started this command: it is their machine."""

    name: str = "editor"

    def may(self, scope: Scope) -> bool:
        return True


async def lines(source: BinaryIO) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LARGEST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    return reader


def write(text: str) -> None:
    """One frame, a line. In a thread: whoever reads it may be slow."""
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")
    sys.stdout.buffer.flush()


def speak(host: RoomHost, session: str, end: Callable[[], None]) -> None:
    """Lets an editor into a room of this process; when it leaves, the process ends."""
    from onefold.acp.client_connection import ClientConnection

    connection = ClientConnection(host, Here(), session=session, local=True)

    async def read() -> None:
        source = await lines(sys.stdin.buffer)
        while line := await source.readline():
            await connection.take(line.decode("utf-8", "replace").rstrip("\n"))

    async def both() -> None:
        writing = asyncio.create_task(_write(connection.send_queue))
        try:
            await read()
        finally:
            await connection.close()
            await writing
            end()

    _KEPT.append(asyncio.create_task(both()))


_KEPT: list[asyncio.Task[None]] = []


async def _write(send_queue: SendQueue) -> None:
    while (text := await send_queue.next()) is not None:
        await asyncio.to_thread(write, text)


def bridge(url: str, token: str | None, session: str, *, allow_http: bool = False) -> None:
    """Carries frames between this process's standard input and output and a room of a server, until either ends."""
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException
    except ImportError:
        raise WrongUse("websockets is not installed, which this needs: pip install 'onefold[server]'") from None
    there = room_address(url, session, allow_http=allow_http)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def run() -> None:
        async with connect(there, additional_headers=headers, max_size=LARGEST) as socket:
            source = await lines(sys.stdin.buffer)

            async def out() -> None:
                while line := await source.readline():
                    await socket.send(line.decode("utf-8", "replace").rstrip("\n"))

            async def back() -> None:
                async for text in socket:
                    if isinstance(text, str):
                        await asyncio.to_thread(write, text)

            tasks = {asyncio.create_task(out()), asyncio.create_task(back())}
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            for task in done:
                task.result()

    try:
        asyncio.run(run())
    except InvalidStatus as refused:
        raise OnefoldError(f"{url} rejected the connection: {told_by(refused.response)}") from None
    except (OSError, WebSocketException) as error:
        raise OnefoldError(f"{url} cannot be joined: {error}; check that it runs, and give its token") from None
