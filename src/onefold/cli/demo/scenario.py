"""The numbers and texts of the demo: a small window and a short lease, so that it fits into half a minute."""

from __future__ import annotations

from onefold.compaction.policy import Policy

POLICY = Policy(
    window=4_000,
    tail_tokens=600,
    tail_share=0.25,
    summary_tokens=300,
    lease=1.0,
    lease_renew_interval=0.2,
    attempt_timeout=30.0,
    backoff=(0.2,),
    wait_timeout=30.0,
)
SOFT = 3_000
"""From here on a watchful writer asks for a compaction."""

WRITERS = ("ada", "ben", "cyd")
CALLERS = {"dan": "manual", "eli": "threshold", "flo": "overflow"}
"""Those who ask at the same moment, and why."""
REPEAT_EVERY = 7
"""After so many appends a writer sends the last one again, as after an answer that was lost."""

_WORK = (
    "the parser drops the last line of a file without a newline",
    "the index is rebuilt although nothing changed since the last run",
    "two workers pick the same job when the queue is almost empty",
    "a time in the report is off by an hour after the clocks change",
    "the export writes a comma too many when a field is empty",
)


def conversation(name: str, turn: int) -> list[list[dict[str, object]]]:
    """One turn of a writer, as the appends it makes: a question, a tool call with its result, an answer."""
    work = _WORK[turn % len(_WORK)]
    call = f"call-{name}-{turn}"
    arguments = f'{{"path": "src/part_{turn % 9}.py", "pattern": "{work.split()[1]}"}}'
    tool = {"id": call, "type": "function", "function": {"name": "search", "arguments": arguments}}
    found = "\n".join(f"src/part_{turn % 9}.py:{17 * turn + 11 * i}: {work.split()[-1]} {i}" for i in range(4))
    return [
        [{"role": "user", "content": f"{name}, question {turn}: {work}. Where does that come from, and is it new?"}],
        [
            {"role": "assistant", "content": None, "tool_calls": [tool]},
            {"role": "tool", "tool_call_id": call, "content": found},
        ],
        [
            {
                "role": "assistant",
                "content": f"Answer {turn} to {name}: it is in src/part_{turn % 9}.py. I changed the condition, "
                f"added a test that fails without the change, and left the rest alone. Nothing was pushed.",
            }
        ],
    ]
