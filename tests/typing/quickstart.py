"""The examples of docs/quickstart.md, word for word, for the type checker. `tests/project/test_docs.py` runs them."""

import asyncio
from collections.abc import Iterator

import onefold
from onefold.summarizers import OpenAISummarizer

store = onefold.open("agent.db")
session = store.session("fix-the-build")

session.append({"role": "system", "content": "You fix builds."})
done = session.append({"role": "user", "content": "Why does the build fail?"}, key="input-1")
again = session.append({"role": "user", "content": "Why does the build fail?"}, key="input-1")

print(done.numbers, again.numbers, again.duplicate)
print(session.context().messages)

for n in range(1, 7):
    call = {"name": "read", "arguments": f'{{"path": "log-{n}.txt"}}'}
    session.append(
        [
            {"role": "assistant", "tool_calls": [{"id": f"call-{n}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"call-{n}", "content": "test_fetch: no network. " * 50},
        ]
    )
session.append({"role": "assistant", "content": "test_fetch needs the network."})
session.append({"role": "user", "content": "Then fix it."})
print(len(session.context().messages), "messages,", session.context().tokens, "tokens")


def stream(messages: list[dict[str, str]]) -> Iterator[str]:
    """Call your model here, with streaming. This one always gives the same answer."""
    yield from ["The ", "test ", "needs ", "the ", "network. "] * 12


def summarize(material: onefold.SummaryInput) -> str:
    """Call a model here too; a small one is enough. The new summary replaces the previous one, so it includes it."""
    said = " / ".join(material.text(record)[:20] for record in material.records)
    return f"{material.previous or 'So far:'} {said}."


limits = onefold.Limits(window=2_000, output=200)
compactor = onefold.Compactor(store, summarize, onefold.Policy(limits=limits))
talk = store.session("a-long-talk")

for n in range(40):
    with talk.turn(owner="terminal") as turn:
        turn.append({"role": "user", "content": f"Question {n}: why does the build fail?"}, key=f"question-{n}")
        context = compactor.before_turn(talk)
        answer = ""
        for piece in stream(context.messages):
            answer += piece  # show it to the user as it comes
        turn.append({"role": "assistant", "content": answer})

print(talk.state.messages, "messages,", "compacted:", talk.state.committed > 0)
print("fits:", compactor.before_turn(talk).tokens <= limits.hard_tokens)

with_a_model = onefold.Compactor(store, OpenAISummarizer("gpt-5-mini"), onefold.Policy(limits=limits))

result = session.compact(summarize)
print(result.state, "by me" if result.applied else "by somebody else")

context = session.context()
print(len(context.messages), "messages,", context.tokens, "tokens")
print(context.messages[0]["content"])


async def summarize_later(material: onefold.SummaryInput) -> str:
    await asyncio.sleep(0)  # await your model here
    return summarize(material)


async def agent() -> None:
    session.append([{"role": "user", "content": f"Run {n}: " + "and again. " * 40} for n in range(10)])
    result = await asyncio.to_thread(session.compact, summarize_later)
    print(result.state)


asyncio.run(agent())

print(sum(1 for record in session.read() if record.kind == "message"), "messages in the journal")
for segment in session.segments():
    print(segment.source, "with", "a summary" if segment.summary else "no summary")

with session.turn(owner="gateway") as turn:
    asked = turn.append({"role": "user", "content": "Fix the test. Do not push."}).numbers[0]
    turn.append({"role": "assistant", "content": "Fixed."})
session.pin(asked)
session.note("path", "The failing test is tests/test_fetch.py.")

session.append({"role": "user", "content": "Oh, then push it."})
session.undo()
other = session.fork(id="with-a-mock")
other.append({"role": "user", "content": "Use a mock instead."})

print(session.context().messages[-1]["content"], session.pins() == (asked,))

shared = store.session("shared")
print(shared.state.messages, "messages, lost:", 40 - shared.state.messages)
print("at work:", shared.compaction_holder())

kinds = [record.kind for record in session.follow(after=17, idle=0)]
print(kinds[:4])

crashed = store.session("crashed")
print([c.state for c in crashed.compactions()])

taken = crashed.compact(summarize)
print(taken.state, "by me" if taken.applied else "by somebody else")
print([(c.state, c.attempts) for c in crashed.compactions()], crashed.compaction_holder())

report = store.verify()
print(report.sessions, "sessions,", "healthy" if report.healthy else report.findings)
store.backup("monday.db")
store.close()
