"""A loop of one's own on the OpenAI SDK, whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[openai]"
python examples/openai_loop.py
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

from openai import OpenAI

import onefold

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "read_log",
            "description": "Reads a log of the build.",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
]


def read_log(name: str) -> str:
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


def ask(client: OpenAI, session: onefold.Session, compactor: onefold.Compactor, question: str) -> str:
    """The loop. In a turn nobody else's turn writes, so any number of processes may run it on one session."""
    with session.turn() as turn:
        turn.append({"role": "user", "content": question})
        context = compactor.before_turn(session)
        while True:
            answer = client.chat.completions.create(model="gpt-5", messages=context.to("openai-chat"), tools=TOOLS)
            message = answer.choices[0].message
            turn.append(message.to_dict())
            if not message.tool_calls:
                return message.content or ""
            results = []
            for call in message.tool_calls:
                given = json.loads(call.function.arguments) if call.type == "function" else {}
                results.append({"role": "tool", "tool_call_id": call.id, "content": read_log(**given)})
            turn.append(results)
            context = compactor.mid_turn(session, usage=answer.usage.prompt_tokens if answer.usage else None)


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
    message: dict[str, Any] = {"role": "assistant", "content": "The build fails: a test needs the network."}
    if newest["role"] == "user":
        function = {"name": "read_log", "arguments": json.dumps({"name": "build.log"})}
        call = {"id": f"call-{next(numbers)}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def main(folder: Path) -> None:
    small = onefold.Policy(limits=onefold.Limits(window=3_000, output=200), tail_tokens=400)
    with (
        scripted() as url,
        OpenAI(api_key="none", base_url=url) as client,
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
