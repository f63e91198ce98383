"""What is done in Hermes' own Python, by its own code: run as a script there, with one JSON argument.

{"do": "live", "rounds": 10, "messages": 96}    a session that grows and is compacted by the program, round by round
{"do": "continue", "session": "…"}              a store is opened, and the conversation in it goes on
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from hermes_constants import get_hermes_home  # type: ignore[import-not-found]
from hermes_state import SessionDB  # type: ignore[import-not-found]
from run_agent import AIAgent  # type: ignore[import-not-found]

_FAT = "and so it was said at length, with all that belongs to it, " * 95


def _agent(db: Any, session: str) -> Any:
    settings = json.loads((get_hermes_home() / "config.yaml").read_text())["model"]
    return AIAgent(
        session_id=session,
        session_db=db,
        platform="cli",
        quiet_mode=True,
        enabled_toolsets=["file"],
        provider=settings["provider"],
        model=settings["default"],
        base_url=settings["base_url"],
        api_key=settings["api_key"],
    )


def live(rounds: int, messages: int) -> dict[str, Any]:
    """Rows come by the store's own method; the turn that follows finds the context too long, and compacts it."""
    db = SessionDB()
    session = "life"
    db.create_session(session, "cli", model="model")
    ids, compactions = [session], []
    for turn in range(rounds):
        for number in range(0, messages, 4):
            _exchange(db, session, f"{turn}.{number}")
        agent = _agent(db, session)
        history = db.get_messages_as_conversation(session)
        agent.run_conversation(f"What now, {turn}? [[say:This is {turn}.]]", conversation_history=history)
        session = agent.session_id
        ids.append(session)
        compactions += [turn] * agent.context_compressor.compression_count
    db.close()
    return {"sessions": list(dict.fromkeys(ids)), "compactions": compactions}


def _exchange(db: Any, session: str, name: str) -> None:
    """A question, a tool that is called and answers, and the answer."""
    function = {"name": "read_file", "arguments": json.dumps({"path": name})}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    db.append_message(session, "user", f"Question {name}: {_FAT}")
    db.append_message(session, "assistant", "", tool_calls=[call], finish_reason="tool_calls")
    db.append_message(session, "tool", f"Result {name}", tool_name="read_file", tool_call_id=f"call_{name}")
    db.append_message(session, "assistant", f"Answer {name}: {_FAT}", finish_reason="stop")


def harm() -> dict[str, Any]:
    """Each call is the program's own; what comes after it in a healthy life is left out, as a crash would have it."""
    db = SessionDB()
    for session in ("forked", "abandoned", "late", "orphan", "miscounted"):
        db.create_session(session, "cli", model="model")
        _exchange(db, session, f"{session}.0")
    for child in ("winner", "loser"):
        db.create_session(child, "cli", model="model", parent_session_id="forked")
        db.append_message(child, "user", f"Summary for {child}")
        db.append_message(child, "assistant", f"{child} goes on")
    db.append_message("winner", "user", "The newest word")
    db.append_message("winner", "assistant", "The newest answer")
    db.end_session("forked", "compression")
    db.try_acquire_compression_lock("abandoned", "pid=999999:tid=1", ttl_seconds=0.001)
    db.end_session("abandoned", "compression")
    db.end_session("late", "compression")
    db.create_session("empty", "cli", model="model", parent_session_id="late")
    db.append_message("late", "user", "This came too late")
    db.append_message("orphan", "tool", "A result of nothing", tool_name="read_file", tool_call_id="call_nobody")
    db._execute_write(lambda c: c.execute("update sessions set message_count = 99 where id = 'miscounted'"))
    db.close()
    return {}


def continue_(session: str) -> dict[str, Any]:
    """As a user who resumes it: the tip is found, its conversation loaded, a turn is made and stays."""
    db = SessionDB()
    tip = db.resolve_resume_session_id(db.get_compression_tip(session) or session)
    db.reopen_session(tip)
    before = db.get_messages_as_conversation(tip)
    agent = _agent(db, tip)
    result = agent.run_conversation("Are you there? [[say:I am.]]", conversation_history=before)
    own = agent.session_id
    db.append_message(own, "user", "Then I will go on.")
    after = db.get_messages_as_conversation(own)
    counted = db.get_session(own)["message_count"]
    db.close()
    return {"tip": own, "before": len(before), "after": after, "counted": counted, "answer": result["final_response"]}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    deeds: dict[str, Callable[..., dict[str, Any]]] = {"live": live, "harm": harm, "continue": continue_}
    done = deeds[wanted.pop("do")](**wanted)
    sys.stdout.write(f"\nRESULT {json.dumps(done)}\n")
