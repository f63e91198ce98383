"""An agent of LangChain whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[langchain]"
python examples/langchain_agent.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import onefold
from onefold.integrations.langchain import OnefoldMiddleware

LOGS = 30
sent: list[int] = []


@tool
def read_log(name: str) -> str:
    """Reads a log of the build."""
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


class Scripted(BaseChatModel):
    """In place of a model: it reads a log for each question, and answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        sent.append(len(messages))
        answer = AIMessage("It fails: a test needs the network.")
        if not isinstance(messages[-1], ToolMessage):
            call = {"name": "read_log", "args": {"name": "build.log"}, "id": f"call-{len(sent)}"}
            answer = AIMessage("I look.", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def main(folder: Path) -> None:
    small = onefold.Policy(limits=onefold.Limits(window=3_000, output=200), tail_tokens=400)

    # These lines are all that an agent of today needs; a policy is for models whose window is not 128,000 tokens.
    with onefold.open(folder / "agent.db", policy=small) as store:
        agent = create_agent(Scripted(), tools=[read_log], middleware=[OnefoldMiddleware(store)])

        for n in range(LOGS):
            question = HumanMessage(f"Why does build {n} fail?")
            came = agent.invoke({"messages": [question]}, {"configurable": {"thread_id": "fix-the-build"}})

        state = store.session("fix-the-build").state
        print(f"{state.messages} messages in the journal, {state.committed} compactions")
        print(f"the model was sent {max(sent)} of them at most, and the newest summary first:")
        print(came["messages"][0].text[:200], "…")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
