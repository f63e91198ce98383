"""What a server can be told. Everything has a default that is safe on a machine of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer

PORT = 8642


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = PORT
    """0 lets the system choose one."""

    # who may reach it
    hosts: tuple[str, ...] = ()
    """Other names, as `name` or `name:port`, that a Host header may have in addition to loopback's and `host`'s."""
    proxy: str | None = None
    """The address at which a proxy with TLS offers this server, such as https://agents.example.org."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies: their X-Forwarded-For, -Proto and -Host are believed, nobody else's."""
    allow_remote: bool = False
    """Listen beyond loopback without TLS and without a proxy, on somebody's word."""
    tls_cert: Path | None = None
    tls_key: Path | None = None

    # how much
    max_body: int = 16 << 20
    """Bytes of a request's body."""
    max_frame: int = 16 << 20
    """Bytes of one frame of an ACP client whose token may run agents: pictures and files come in them. To read a larger
    one would keep everybody else waiting for more than a tenth of a second."""
    max_unfinished: int = 64 << 20
    """Bytes of all WebSockets' messages together that have begun and not ended, or wait to be taken."""
    max_values: int = 200_000
    """Values in a JSON body: each costs far more memory than the byte or two it came in."""
    max_depth: int = 100
    """Levels of nesting in a JSON body."""
    body_timeout: float = 30.0
    """Seconds within which the head of a request has to be there, and then its body."""
    rate: float = 200.0
    """Requests a second of one token, on average, and frames of its WebSockets; 0 for no bound."""
    burst: int = 400
    """Requests or frames of one token at once, before the average counts."""
    wrong_tokens: int = 20
    """Wrong tokens from one address at once; then one in three seconds."""
    max_connections: int = 4_000
    """Followers and requests at the same time; those that have sent no request make room for new ones."""
    max_idle: int = 500
    """Connections of one address on which no request is under way; beyond it, its oldest one ends."""
    max_streams: int = 2_000
    """Followers with one token at the same time."""
    max_context: int = 32 << 20
    """Bytes of a session's messages in one answer of `/api/context`, which has no pages."""
    page: int = 1_000
    """Records, sessions or compactions in one answer."""

    # live events
    buffer: int = 4_096
    """Records that wait for one follower at most; one that is slower is told to resume."""
    flush: float = 0.1
    """Seconds between two writes to one follower."""
    heartbeat: float = 15.0
    """Seconds of silence after which a follower gets a sign of life."""
    drain: float = 10.0
    """Seconds that requests under way are given at the end."""

    # compaction
    summarizer: Summarizer | None = None
    """Who writes summaries; by default `extract`, which needs no model."""
    summarizers: Mapping[str, Summarizer] = field(default_factory=dict)
    """Others that one may choose by name."""
    policy: Policy | None = None
    """By default the store's."""
    wait: float = 30.0
    """Seconds that a call of compact may wait at most."""

    agent: str = "server"
    """The name by which the server acts, where a client gives none."""

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None
