"""An agent of the OpenAI Agents SDK whose conversation is kept by onefold. Runs offline, with a scripted model.

pip install "onefold[openai-agents]"
python examples/openai_agents.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import onefold
from onefold.integrations.openai_agents import OnefoldSession

LOGS = 30


@function_tool
def read_log(name: str) -> str:
    """Reads a log of the build."""
    return f"{name}: " + "compiling, linking, testing; " * 12 + "one test needs the network"


def scripted() -> ScriptedModel:
    """In place of a model: it reads a log for each question, and answers."""
    steps = []
    for n in range(LOGS):
        steps.append([function_call("read_log", {"name": f"build-{n}.log"}, call_id=f"call-{n}")])
        steps.append([assistant_message(f"Build {n} fails: a test needs the network.")])
    return ScriptedModel(steps)


async def main(folder: Path) -> None:
    model = scripted()
    agent = Agent(name="builder", instructions="Find out why the build fails.", model=model, tools=[read_log])
    small = onefold.Policy(limits=onefold.Limits(window=3_000, output=200), tail_tokens=400)

    # These lines are all that an agent of today needs; a policy is for models whose window is not 128,000 tokens.
    async with OnefoldSession("fix-the-build", folder / "agent.db", policy=small) as session:
        for n in range(LOGS):
            quiet = RunConfig(tracing_disabled=True)
            await Runner.run(agent, f"Why does build {n} fail?", session=session, run_config=quiet)

        state = await (await session.opened()).state
        sent = max(len(call.input) for call in model.calls)
        print(f"{state.messages} items in the journal, {state.committed} compactions")
        print(f"the model was sent {sent} of them at most, and the newest summary first:")
        newest = (await session.get_items())[0]
        print(str(newest)[:200], "…")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
