"""The examples of README.md, word for word, for the type checker. `tests/test_docs.py` runs them."""

import onefold


def summarize(material: onefold.Material) -> str:
    """A call of your model goes here. This one keeps how each message begins."""
    begins = [material.text(record)[:30] for record in material.records]
    return "\n".join([material.previous or "So far:", *begins])


with onefold.open("agent.db", summarizer=summarize) as store:
    session = store.session("fix-the-build")
    for n in range(20):
        session.append({"role": "user", "content": f"Step {n}: " + "look at the build log. " * 20})
        session.append({"role": "assistant", "content": f"Done {n}: " + "this is what I found. " * 20})
    before = session.context()
    result = session.compact()
    after = session.context()
    print(result.state, len(before.messages), "messages,", before.tokens, "tokens")
    print("now", len(after.messages), "messages,", after.tokens, "tokens;", session.state.messages, "in the journal")

with onefold.open("agent.db") as store:
    session = store.session("fix-the-build")
    with session.turn(owner="gateway") as turn:  # nobody else's turn writes until it ends
        asked = turn.append({"role": "user", "content": "Mend the test, but do not push."})
        turn.append({"role": "assistant", "content": "Mended."})
    session.pin(asked.numbers[0])  # in every context from now on, word for word
    session.append({"role": "user", "content": "Well, push it."})
    session.undo()  # takes that back; it works across compactions too
    other = session.fork()  # the same past, another way to go on; nothing is copied
    print(session.context().messages[-1]["content"])

with onefold.open("agent.db") as store:
    session = store.session("move-to-staging")
    session.append({"role": "user", "content": "Never push to main. The staging port is 8081."})
    limits = onefold.Limits(window=2_000, output=200)
    compactor = onefold.Compactor(store, summarize, onefold.Policy(limits=limits))
    for n in range(30):
        context = compactor.before_turn(session)  # what to send; at the soft limit a summary begins behind it
        session.append({"role": "user", "content": f"Question {n}. " + "Think about the build. " * 10})
        session.append({"role": "assistant", "content": f"Answer {n}. " + "It was the cache. " * 10})
    context = compactor.before_turn(session)
    print(context.tokens < limits.hard_tokens, [quote.text for quote in context.quotes][:1])
