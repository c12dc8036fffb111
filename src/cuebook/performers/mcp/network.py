"""The HTTP client for tool servers on the network: it connects only to addresses that were checked.

A name is looked up once for each connection, and the connection goes to what was found and checked. A server that is
configured by its address, or on this machine, is meant as such; a name that leads to no public address is not, unless
a rule says so.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cuebook.kernel.errors import NotFound
from cuebook.performers.addresses import Private, Url, check_addresses, check_host, is_loopback
from cuebook.performers.exchange import Resolver, look_up
from cuebook.performers.mcp.web import HttpClientFactory

_CONNECT_SECONDS = 30.0
_SILENT_SECONDS = 300.0
_TRY_SECONDS = 5.0


def no_private(host: str, port: int) -> bool:
    return False


def checked_client(private: Private = no_private, resolve: Resolver = look_up) -> HttpClientFactory:
    """Makes clients that read no proxy from the environment and follow no redirect to another server.

    `private` says whether a rule names a host that is not a public one.
    """

    def make(headers: Mapping[str, str]) -> Any:
        import httpcore2
        import httpx2

        transport = httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False)
        # The transport takes no backend, only the pool within it does.
        transport._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_tls(), network_backend=_backend(httpcore2, private, resolve)
        )
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_SILENT_SECONDS)
        return httpx2.AsyncClient(
            transport=transport, headers=dict(headers), timeout=timeout, trust_env=False, follow_redirects=False
        )

    return make


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _backend(http: Any, private: Private, resolve: Resolver) -> Any:
    class Checked(http.AsyncNetworkBackend):  # type: ignore[misc]
        async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
            addresses = await _addresses(host, port, private, resolve)
            options.pop("timeout", None)
            for index, address in enumerate(addresses):
                last = index == len(addresses) - 1
                seconds = _CONNECT_SECONDS if last else _TRY_SECONDS
                try:
                    return await http.AnyIOBackend().connect_tcp(address, port, timeout=seconds, **options)
                except (http.ConnectError, http.ConnectTimeout):
                    if last:
                        raise

    return Checked()


async def _addresses(host: str, port: int, private: Private, resolve: Resolver) -> list[str]:
    url = Url("https" if port == 443 else "http", host, port, "/")
    if url.address is not None:
        return [host]
    if is_loopback(host):
        return ["127.0.0.1", "::1"]
    check_host(url, private)
    try:
        found = list(await resolve(host, port))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", "") or "no such name"
        raise NotFound(f"The name {host} cannot be looked up: {why}.", fix="Check it, and the network.") from None
    return check_addresses(url, found, private)
