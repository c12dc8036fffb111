"""This machine on the network: which host names refer to it, how it looks up others, and the certificates that it trusts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, in the order in which they are tried."""


async def look_up(host: str, port: int) -> list[str]:
    """The addresses from the system's resolver."""
    import asyncio
    import socket

    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_loopback(host: str) -> bool:
    """Whether data sent to this host never leaves the machine: a loopback address, `localhost`, or a name below it
    (RFC 6761). A name that only looks like an address, such as `127.example.com`, does not count.
    """
    from ipaddress import ip_address

    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_number(host: str) -> bool:
    """Whether this is an address, and not a name."""
    from ipaddress import ip_address

    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1)
def system_tls() -> ssl.SSLContext:
    """The system's certificates. Reading them takes tens of milliseconds, so it happens once."""
    import ssl

    return ssl.create_default_context()
