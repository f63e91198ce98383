"""`onefold attach` on a terminal: the conversation with an agent above, and a line to type in below."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from onefold.cli.conversation_view import ConversationView, Line
from onefold.cli.http_client import Remote
from onefold.cli.line_editor import Entered, Key, LineEditor
from onefold.cli.output import safe
from onefold.cli.room_client import RoomClient
from onefold.errors import OnefoldError

HELP = """\
What you type goes to the agent. Enter sends it, Alt-Enter begins a new line.
  /compact [WORDS]   have the agent compact, perhaps with instructions
  /undo, /redo       take your last prompt and all that came of it back, and forth
  /stop, Ctrl-C      stop the turn that runs
  /help              this
  Ctrl-D             leave; the agent goes on
Any other command with a slash is the agent's own. A question is answered by the number of an option, or its name."""
_STYLES = {"bold": "1", "dim": "2", "cyan": "36", "yellow": "33", "red": "31"}


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal that this process has, for as long as `raw` lasts: every key comes as it is typed."""

    coloured: bool

    @property
    def width(self) -> int:
        return shutil.get_terminal_size().columns

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        import termios
        import tty

        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd)
            mode = termios.tcgetattr(fd)
            mode[3] &= ~termios.ISIG  # Ctrl-C is a key: it stops the agent's turn, and not this process
            mode[0] &= ~(termios.IXON | termios.ICRNL)
            termios.tcsetattr(fd, termios.TCSANOW, mode)
            self.write("\x1b[?2004h")
            yield
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
            self.write("\r\x1b[K\x1b[?2004l")

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()

    def styled(self, line: Line) -> str:
        code = _STYLES.get(line.style) if self.coloured else None
        return f"\x1b[{code}m{line.text}\x1b[0m" if code else line.text


class Talk:
    """One person in one room."""

    def __init__(self, client: RoomClient, remote: Remote, terminal: Terminal) -> None:
        self._client = client
        self._remote = remote
        self._terminal = terminal
        self._view = ConversationView(client.name)
        self._editor = LineEditor()
        self._keys: asyncio.Queue[Key | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, history: str) -> None:
        """Until somebody leaves, or there is nothing left to talk to."""
        with self._terminal.raw():
            loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
            loop.add_reader(fd, self._typed, fd)
            listening, typing = asyncio.create_task(self._listen(history)), asyncio.create_task(self._obey())
            try:
                done, _ = await asyncio.wait({listening, typing}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                loop.remove_reader(fd)
                for task in (listening, typing, *self._tasks):
                    task.cancel()
                await asyncio.gather(listening, typing, *self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------ what comes

    async def _listen(self, history: str) -> None:
        async for frame in self._client.frames(history, lambda cut: self._say(Line(safe(cut), "red"))):
            if "attached" in frame:
                self._say(*self._view.attached(frame["attached"]))
                continue
            self._say(*self._view.frame(frame))
            if "id" in frame and frame.get("method") != "session/request_permission" and "method" in frame:
                self._start(self._client.decline(frame["id"]))
        self._say(Line("the server has ended the connection", "red"))

    def _say(self, *lines: Line) -> None:
        """Above the line that is being typed, which is drawn again below."""
        told = "".join(f"\r\x1b[K{self._terminal.styled(line)}\n" for line in lines)
        self._terminal.write(told + self._editor.drawn(self._prompt(), self._terminal.width))

    def _prompt(self) -> str:
        if self._view.questions:
            options = next(iter(self._view.questions.values())).options
            return f"answer 1-{len(options)}> " if options else "answer> "
        return "…> " if self._view.running else "> "

    # ------------------------------------------------------------------ what is typed

    def _typed(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            data = b""
        typed: list[Key] = self._editor.feed(data) if data else ["end"]
        for key in typed:
            self._keys.put_nowait(key)
        self._say()

    async def _obey(self) -> None:
        while (key := await self._keys.get()) != "end":
            if key == "interrupt":
                self._interrupted()
            elif isinstance(key, Entered) and key.text.strip():
                self._entered(key.text)

    def _interrupted(self) -> None:
        if self._view.running:
            self._say(Line("stopping …", "dim"))
            self._start(self._client.cancel())
        elif self._editor.clear():
            self._say()
        else:
            self._say(Line("nothing runs; Ctrl-D leaves", "dim"))

    def _entered(self, text: str) -> None:
        command, _, more = text.strip().partition(" ")
        asked = next(iter(self._view.questions.values()), None)
        if command == "/help":
            self._say(*(Line(line, "dim") for line in HELP.splitlines()))
        elif command == "/stop":
            self._interrupted()
        elif command in ("/undo", "/redo") and not more:
            self._start(self._back(command.removeprefix("/")))
        elif asked is not None:
            self._answered(text)
        else:
            self._say(
                *(Line(f"{'> ' if i == 0 else '  '}{safe(line)}", "bold") for i, line in enumerate(text.split("\n")))
            )
            self._start(self._sent(text))

    def _answered(self, text: str) -> None:
        question = next(iter(self._view.questions.values()))
        option = question.chosen(text)
        if option is None:
            self._say(Line("the agent waits for an answer: type the number of an option, or its name", "yellow"))
            return
        del self._view.questions[str(question.id)]
        name = next(name for id, name in question.options if id == option)
        self._say(Line(f"> {safe(name)}", "bold"))
        self._start(self._client.answer(question.id, {"outcome": {"outcome": "selected", "optionId": option}}))

    async def _sent(self, text: str) -> None:
        ended = await self._client.prompt(text)
        told = ((ended or {}).get("_meta") or {}).get("onefold") or {}
        if told.get("cause") and told.get("state") != "failed":  # what failed was told to all
            self._say(Line(f"not compacted: {safe(str(told['cause']))}", "cyan"))

    async def _back(self, step: str) -> None:
        session = self._client.session

        def go() -> int:
            shot = self._remote.get("/api/attach", session=session, history="none")
            body = {"seen": shot["follow_from"], "head": shot["head"]["number"]}
            return len(self._remote.post(f"/api/{step}", body, session=session)["numbers"])

        changed = await asyncio.to_thread(go)
        self._say(Line(f"{step}: {changed} messages {'are hidden now' if step == 'undo' else 'are back'}", "cyan"))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside everything else; what it was refused with is said."""

        async def do() -> None:
            try:
                await work
            except OnefoldError as refused:
                self._say(Line(safe(str(refused)), "red"))

        task = asyncio.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def talk(client: RoomClient, remote: Remote, history: str) -> None:
    """Talks until Ctrl-D."""
    terminal = Terminal(coloured="NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb")
    asyncio.run(Talk(client, remote, terminal).run(history))


def can_talk() -> bool:
    """Whether there is somebody at a terminal, of a kind that this knows."""
    return sys.stdin.isatty() and sys.stdout.isatty() and _knows_terminals()


def _knows_terminals() -> bool:
    try:
        import termios  # noqa: F401
    except ImportError:
        return False
    return True
