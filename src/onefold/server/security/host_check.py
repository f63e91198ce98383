"""Host and origin checks: by which names the server may be reached, and from which pages.

A page of another site can make a browser send requests here, but cannot choose their Origin; and if it has its own
name point to this machine, its name stands in Host. So both are compared with what the server knows of itself.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onefold.errors import OnefoldError
from onefold.server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})
_PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::(\d{1,5}))?", re.ASCII)


class ListeningRefused(OnefoldError):
    """The server would listen where others can read what is said to it."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Where a server is, as a browser has it."""

    scheme: str
    name: str
    port: int

    @classmethod
    def of(cls, scheme: str, host: str) -> PublicAddress | None:
        """From a Host header; None if it is none."""
        found = _PLACE.fullmatch(host.lower())
        if found is None or scheme not in _PORTS:
            return None
        return cls(scheme, found[1], int(found[2]) if found[2] else _PORTS[scheme])

    @classmethod
    def at(cls, origin: str) -> PublicAddress | None:
        """From an Origin header, or an address without a path; None if it is none."""
        scheme, _, host = origin.partition("://")
        return cls.of(scheme.lower(), host)


class AllowedHosts:
    """The names by which a server may be reached, and the proxies that are believed."""

    def __init__(self, settings: Settings) -> None:
        self.public = public_place(settings)
        own = {settings.host, f"[{settings.host}]"} - _ANYWHERE
        self._names = LOOPBACK | {name.lower() for name in (*settings.hosts, *own)}
        if self.public is not None:
            self._names |= {self.public.name}
        # A name in Host may be another site's; a bare address cannot be.
        self._addresses = settings.host in _ANYWHERE
        self._proxies = [_network(named) for named in settings.proxies]

    def known(self, place: PublicAddress) -> bool:
        if place.name in self._names or f"{place.name}:{place.port}" in self._names:
            return True
        return self._addresses and _address(place.name.strip("[]")) is not None

    def is_proxy(self, peer: str) -> bool:
        address = _address(peer) if self._proxies else None
        return address is not None and any(address in network for network in self._proxies)

    def place(self, scheme: str, host: str) -> PublicAddress | None:
        """Where the request thinks it is. What goes by the proxy's name came through the proxy, with its scheme."""
        found = PublicAddress.of({"ws": "http", "wss": "https"}.get(scheme, scheme), host)
        public = self.public
        if found is None or public is None or found.name != public.name:
            return found
        return public if found.port in (public.port, _PORTS[found.scheme]) else found

    def same(self, origin: str, here: PublicAddress) -> bool:
        """Whether a page of this origin is one of this server's own."""
        there = PublicAddress.at(origin)
        return there is not None and there in (here, self.public)

    def farthest(self, peer: str, forwarded: Iterable[str]) -> str:
        """Who is behind the proxies: the last one named that is not a proxy itself."""
        for named in reversed(list(forwarded)):
            if not self.is_proxy(peer):
                break
            address = _address(named.strip())
            if address is None:
                break
            peer = str(address)
        return peer


def check_listening(settings: Settings) -> None:
    """Refuses to listen where traffic can be read on the way, unless it is allowed explicitly."""
    AllowedHosts(settings)  # raises for a proxy that is none
    if is_loopback(settings.host) or settings.tls or settings.proxy or settings.proxies or settings.allow_remote:
        return
    raise ListeningRefused(
        f"{settings.host or 'every address'} can be reached from other machines, and without TLS what is said to it, "
        "tokens too, can be read on the way; listen on 127.0.0.1, or give --tls-cert and --tls-key, or --proxy with "
        "the address at which a proxy with TLS offers it, or --allow-remote if the network itself is safe"
    )


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def public_place(settings: Settings) -> PublicAddress | None:
    if settings.proxy is None:
        return None
    place = PublicAddress.at(settings.proxy.rstrip("/"))
    if place is None:
        raise ListeningRefused(f"proxy {settings.proxy!r} is not an address; write it as https://agents.example.org")
    return place


def neighbourhood(peer: str) -> str:
    """An address, or for IPv6 the network that one customer has: all of it is one peer."""
    address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return peer


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ListeningRefused(f"{text!r} is not the address of a proxy; write 10.0.0.7 or 10.0.0.0/24") from None
