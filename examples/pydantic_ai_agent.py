"""An agent of Pydantic AI whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[pydantic-ai]"
python examples/pydantic_ai_agent.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import onefold
from onefold.integrations.pydantic_ai import OnefoldHistory

LOGS = 30
sent: list[int] = []


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In place of a model: it reads a log for each question, and answers."""
    sent.append(len(messages))
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("The build fails: a test needs the network.")])
    return ModelResponse(parts=[ToolCallPart("read_log", {"name": f"build-{len(sent)}.log"})])


def read_log(name: str) -> str:
    """Reads a log of the build."""
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


async def main(folder: Path) -> None:
    small = onefold.Policy(limits=onefold.Limits(window=1_500, output=100), tail_tokens=400)

    # The capability is all that an agent of today needs; a policy is for models whose window is not 128,000 tokens.
    history = OnefoldHistory(folder / "agent.db", policy=small)
    agent = Agent(FunctionModel(scripted), instructions="Find out why builds fail.", capabilities=[history])
    agent.tool_plain(read_log)
    for n in range(LOGS):
        await agent.run(f"Why does build {n} fail?", conversation_id="fix-the-build")

    session = await history.opened("fix-the-build")
    state, context = await session.state, await session.context()
    print(f"{state.messages} messages in the journal, {state.committed} compactions")
    print(f"the model was sent {max(sent)} of them at most, and before them the newest summary:")
    print((context.summary or "")[:200], "…")
    await history.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
