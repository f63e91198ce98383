"""An agent of Google's ADK whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[google-adk]"
python examples/google_adk.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

import onefold
from onefold.integrations.google_adk import OnefoldSessionService

LOGS = 30
sent: list[list[types.Content]] = []


def read_log(name: str) -> str:
    """Reads a log of the build."""
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


class Scripted(BaseLlm):
    """In place of a model: it reads a log for each question, and answers."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        sent.append(llm_request.contents)
        answered = any(part.function_response for part in llm_request.contents[-1].parts or ())
        call = types.FunctionCall(name="read_log", args={"name": "build.log"})
        part = types.Part(text="A test needs the network.") if answered else types.Part(function_call=call)
        size = sum(len(content.model_dump_json(exclude_none=True)) for content in llm_request.contents) // 4
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=size, candidates_token_count=10)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


async def main(folder: Path) -> None:
    small = onefold.Policy(limits=onefold.Limits(window=3_000, output=200), tail_tokens=400)
    agent = LlmAgent(name="builder", model=Scripted(model="scripted"), tools=[read_log])

    # These lines are all that an agent of today needs; a policy is for models whose window is not 128,000 tokens.
    service = OnefoldSessionService(folder / "agent.db", policy=small)
    runner = Runner(app_name="builds", agent=agent, session_service=service)
    await service.create_session(app_name="builds", user_id="anna", session_id="fix-the-build")

    for n in range(LOGS):
        question = types.Content(role="user", parts=[types.Part(text=f"Why does build {n} fail?")])
        async for _ in runner.run_async(user_id="anna", session_id="fix-the-build", new_message=question):
            pass
    service.close()

    with onefold.open(folder / "agent.db") as store:
        state = store.session("builds/anna/fix-the-build").state
        print(f"{state.messages} events in the journal, {state.committed} compactions")
    print(f"the model was sent {max(map(len, sent))} of them at most, and the newest summary first:")
    print(str((sent[-1][0].parts or [types.Part()])[0].text)[:200], "…")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
