"""A client made with ACP's Python SDK, run in a Python of its own: joins over a WebSocket, and prompts.

One JSON argument: url, token, folder, prompts. Prints what it was answered, and what it was told meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import acp  # type: ignore[import-not-found]
from acp.ws import create_websocket_stream  # type: ignore[import-not-found]


class Listener(acp.Client):  # type: ignore[misc]
    """Keeps what the agent says, and allows what it asks for."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update.model_dump(by_alias=True, exclude_none=True, mode="json"))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any) -> Any:
        outcome = {"outcome": "selected", "optionId": options[0].option_id}
        return acp.RequestPermissionResponse.model_validate({"outcome": outcome})


async def run(url: str, token: str, folder: str, prompts: list[str]) -> dict[str, Any]:
    listener = Listener()
    transport = await create_websocket_stream(url, headers={"Authorization": f"Bearer {token}"})
    connection = acp.connect_to_agent(listener, transport)
    await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
    session = (await connection.new_session(cwd=folder, mcp_servers=[])).session_id
    stops = []
    for text in prompts:
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block(text)])
        stops.append(answer.stop_reason)
    await transport.close()
    return {"session": session, "stops": stops, "updates": listener.updates}


if __name__ == "__main__":
    result = asyncio.run(run(**json.loads(sys.argv[1])))
    sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")
