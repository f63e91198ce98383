"""The real Claude Code, by the Claude Agent SDK, with its conversation kept by onefold.

Runs offline: what it asks goes to a scripted model on this machine. Each run has a home of its own, as on another
machine, so all that it can know of the one before comes from the store.

pip install "onefold[claude-agent]"
python examples/claude_agent.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

import onefold
from onefold.integrations.claude_agent import OnefoldSessionStore


class Scripted(BaseHTTPRequestHandler):
    """In place of a model: it says how many messages it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"I was sent {len(asked.get('messages', ()))} messages."
        message = {"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": []}
        usage = {"input_tokens": 100, "output_tokens": 10}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
        body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def options(home: Path, url: str, kept: OnefoldSessionStore, resume: str | None) -> ClaudeAgentOptions:
    """Of these, an agent of today needs `session_store` and `resume`; the rest keeps this example on this machine."""
    environment = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "IS_SANDBOX": "1"}
    environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
    environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return ClaudeAgentOptions(
        session_store=kept,
        resume=resume,
        env=environment,
        cwd=home.parent,
        model="claude-sonnet-4-5",
        setting_sources=[],
    )


async def main(folder: Path) -> None:
    session: str | None = None
    with model() as url, onefold.open(folder / "agent.db") as store:
        kept = OnefoldSessionStore(store)

        for n, prompt in enumerate(("Why does the build fail?", "Are you sure?", "/compact", "Then mend it.")):
            home = folder / f"home-{n}"
            home.mkdir()
            async for said in query(prompt=prompt, options=options(home, url, kept, session)):
                if isinstance(said, ResultMessage):
                    session = said.session_id
                    print(f"{prompt} {said.result or ''}")

        for state in store.sessions():
            print(f"{state.messages} lines in the journal, {state.committed} compaction of Claude Code's own")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
