"""A loop of one's own on the Anthropic SDK, whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[anthropic]"
python examples/anthropic_loop.py
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from anthropic import Anthropic

import onefold

TOOLS: list[Any] = [
    {
        "name": "read_log",
        "description": "Reads a log of the build.",
        "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }
]


def read_log(name: str) -> str:
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


def ask(client: Anthropic, session: onefold.Session, compactor: onefold.Compactor, question: str) -> str:
    """The loop. In a turn nobody else's turn writes, so any number of processes may run it on one session."""
    with session.turn() as turn:
        turn.append({"role": "user", "content": question}, format="anthropic")
        context = compactor.before_turn(session)
        while True:
            answer = client.messages.create(
                model="claude-sonnet-5-5", max_tokens=1_000, messages=context.to("anthropic"), tools=TOOLS
            )
            content = [block.to_dict() for block in answer.content]
            turn.append({"role": "assistant", "content": content}, format="anthropic")
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": read_log(str(block.input["name"]))}
                for block in answer.content
                if block.type == "tool_use"
            ]
            if not results:
                return "".join(block.text for block in answer.content if block.type == "text")
            turn.append({"role": "user", "content": results}, format="anthropic")
            used = answer.usage
            cached = (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
            context = compactor.mid_turn(session, usage=used.input_tokens + cached)


@contextmanager
def scripted() -> Iterator[str]:
    """In place of the provider, on loopback: it reads a log for each question, and answers."""
    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            said = json.dumps(answered(json.loads(body)["messages"][-1], len(body) // 4, numbers)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def answered(newest: Any, tokens: int, numbers: Iterator[int]) -> Any:
    content: list[Any] = [{"type": "text", "text": "The build fails: a test needs the network."}]
    if not any(isinstance(block, dict) and block.get("type") == "tool_result" for block in newest["content"]):
        call = {"type": "tool_use", "id": f"toolu-{next(numbers)}", "name": "read_log"}
        content = [{**call, "input": {"name": "build.log"}}]
    said = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    usage = {"input_tokens": tokens, "output_tokens": 20}
    return {**said, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def main(folder: Path) -> None:
    small = onefold.Policy(limits=onefold.Limits(window=3_000, output=200), tail_tokens=400)
    with (
        scripted() as url,
        Anthropic(api_key="none", base_url=url) as client,
        onefold.open(folder / "agent.db", policy=small) as store,
    ):
        session, compactor = store.session("fix-the-build"), onefold.Compactor(store)
        for n in range(30):
            ask(client, session, compactor, f"Why does build {n} fail?")
        print(f"{session.state.messages} messages in the journal, {session.state.committed} compactions")
        print(f"the model is sent {len(session.context().messages)} of them, and this before them:")
        print((session.context().summary or "")[:200], "…")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
