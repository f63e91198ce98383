"""The peers: what each is, where it runs, and what of it is measured. Nothing here needs a framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    name: str
    says: str
    """As the page calls it."""
    environment: str
    store: str
    """`module:Class {arguments}` below `stores`, for the speed of it; empty if that is another one's."""
    compacts: str = ""
    """The same, for its compaction; empty if it has none that can be driven here."""
    ours: bool = False
    most: int = 4_000
    """How long its conversation gets: less where it would take minutes."""
    patience: float = 20.0
    """Seconds of appending after which it is taken no further than the next length, nor twice as many."""
    runs: bool = False
    """Whether the framework's own work in a run is in its times, because it writes only in one."""


_ALL = (
    Peer("onefold", "**onefold**, no framework", "onefold", "onefold_bare:Bare", "onefold_bare:Compaction", ours=True),
    Peer("hermes", "Hermes `SessionDB`", "hermes", "hermes:Sessions", "hermes:Compression"),
    Peer("hermes-rotation", "Hermes, into a new session (`in_place: false`)", "hermes", "",
         'hermes:Compression {"in_place": false}'),
    Peer("openai-sqlite", "OpenAI Agents `SQLiteSession`", "openai-agents", "openai_agents:Sqlite",
         "openai_agents:Automatic"),
    Peer("openai-manual", "OpenAI Agents, `run_compaction` by hand", "openai-agents", "", "openai_agents:Manual"),
    Peer("openai-onefold", "OpenAI Agents with **onefold**", "openai-agents", "onefold_openai:Session",
         "onefold_openai:Compaction", ours=True),
    Peer("adk-sqlite", "Google ADK `SqliteSessionService`", "google-adk", 'google_adk:Service {"kind": "sqlite"}',
         'google_adk:Compaction {"kind": "sqlite"}'),
    Peer("adk-database", "Google ADK `DatabaseSessionService`", "google-adk",
         'google_adk:Service {"kind": "database"}', 'google_adk:Compaction {"kind": "database"}', most=2_000),
    Peer("adk-onefold", "Google ADK with **onefold**", "google-adk", "onefold_adk:Onefold", "onefold_adk:Compaction",
         ours=True),
    Peer("langgraph", "LangGraph `SqliteSaver`", "langchain", "langgraph:Checkpoints",
         "langgraph:Summarized", most=2_000, patience=120.0, runs=True),
    Peer("langgraph-sync", 'LangGraph `SqliteSaver`, `durability="sync"`', "langchain",
         'langgraph:Checkpoints {"durability": "sync"}', 'langgraph:Summarized {"durability": "sync"}', most=500,
         runs=True),
    Peer("langchain-onefold", "LangChain with **onefold**", "langchain", "onefold_langchain:Middleware",
         "onefold_langchain:Compaction", ours=True, most=2_000, patience=120.0, runs=True),
    Peer("pydantic-file", "Pydantic AI, a JSON file", "pydantic-ai", "pydantic_ai:File", most=2_000),
    Peer("pydantic-careful", "Pydantic AI, a JSON file, synced", "pydantic-ai",
         'pydantic_ai:File {"careful": true}', most=2_000),
    Peer("pydantic-onefold", "Pydantic AI with **onefold**", "pydantic-ai", "onefold_pydantic:History",
         "onefold_pydantic:Compaction", ours=True, most=2_000, patience=120.0, runs=True),
    Peer("claude-jsonl", "Claude Agent SDK, the transcript", "claude-agent", "claude_agent:Transcript"),
    Peer("claude-onefold", "Claude Agent SDK with **onefold**", "claude-agent", "onefold_claude:Entries", ours=True),
)  # fmt: skip
PEERS = {peer.name: peer for peer in _ALL}
