"""What the address of a PostgreSQL store says: whom to connect to, where to listen, in which schema, how patiently."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onefold.errors import StoreError

SCHEMA = "onefold"
PATIENCE = 30.0
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRET = re.compile(r"(?<=://)([^/@?:]*):[^/@?]*(?=@)|(?<=[?&]password=)[^&]*")

# A network that goes away without a word is noticed on this side, in about a minute, and not by the kernel in hours.
_USUAL = {
    "application_name": "onefold",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    shown: str
    """The address without its passwords, for messages."""
    conninfo: str
    listen: str
    """Where notifications come from: a server itself, where the other address is a PgBouncer's."""
    schema: str
    patience: float
    """Seconds to wait for a lock, and for a server that is away."""


def parse(address: str) -> ServerAddress:
    """Takes the `onefold_…` options out of an address; the rest is libpq's."""
    base, _, query = address.partition("?")
    options = [part for part in query.split("&") if part]
    ours = dict(part.partition("=")[::2] for part in options if part.startswith("onefold_"))
    rest = "&".join(part for part in options if not part.startswith("onefold_"))
    url = f"{base}?{rest}" if rest else base
    shown = _hidden(address)
    conninfo = _usual(url, shown)
    listen = unquote(ours.pop("onefold_listen", ""))
    schema = unquote(ours.pop("onefold_schema", SCHEMA))
    patience = ours.pop("onefold_patience", str(PATIENCE))
    if ours:
        known = "onefold_schema, onefold_listen and onefold_patience"
        raise StoreError(f"{shown}: {', '.join(ours)} is not an option of an address; options are {known}")
    if not _SCHEMA_NAME.fullmatch(schema):
        raise StoreError(f"{shown}: onefold_schema is 1 to 63 of a-z, 0-9 and _, and begins with no digit")
    if not re.fullmatch(r"\d+(\.\d+)?", patience) or not float(patience):
        raise StoreError(f"{shown}: onefold_patience is a number of seconds, such as 30")
    return ServerAddress(shown, conninfo, _usual(listen, shown) if listen else conninfo, schema, float(patience))


def _usual(url: str, shown: str) -> str:
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StoreError(
            f"{shown} is not the address of a PostgreSQL database: {_hidden(str(error)).strip()}"
        ) from None
    usual = {name: value for name, value in _USUAL.items() if name not in given}
    return make_conninfo(url, **usual, client_encoding="UTF8")  # whatever the environment or the address says of it


def _hidden(text: str) -> str:
    return _SECRET.sub(lambda found: f"{found[1]}:***" if found[1] is not None else "***", unquote(text))
