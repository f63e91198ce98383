"""The example of README.md, word for word, for the type checker. `tests/project/test_docs.py` runs it."""

import onefold


def ask_model(messages: list[dict[str, str]]) -> dict[str, str]:
    """Call your model here. This one always gives the same answer."""
    return {"role": "assistant", "content": "It was the cache. " * 20}


limits = onefold.Limits(window=2_000, output=200)
store = onefold.open("agent.db", policy=onefold.Policy(limits=limits))
compactor = onefold.Compactor(store)  # with a model for summaries: Compactor(store, OpenAISummarizer("gpt-5-mini"))
session = store.session("fix-the-build")

session.append({"role": "user", "content": "Never push to main. The staging port is 8081."})
for n in range(30):
    session.append({"role": "user", "content": f"Question {n}: why does the build fail?"})
    context = compactor.before_turn(session)  # what to send; never more than the model takes
    session.append(ask_model(context.messages))  # on disk when it returns

print(session.state.messages, "messages in the journal,", session.state.committed > 0, context.quotes[0].text)
store.close()
