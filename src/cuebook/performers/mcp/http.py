"""MCP over streamable HTTP: a transport that limits answers, and a client that connects only to checked addresses.

A name is looked up once for each connection, and the connection goes to the address that was found and checked. A
server that is configured by its IP address, or on this machine, may be private; a name that resolves to a private
address is refused, unless a rule allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from cuebook.formats.addresses import Private, Url, check_addresses, check_host
from cuebook.kernel.errors import NotFound
from cuebook.performers.mcp.limits import FLOODS, Measure, Sieve
from cuebook.performers.mcp.results import readable
from cuebook.system.network import Resolver, is_loopback, look_up, system_tls

ANSWER_LIMIT = 16 << 20
"""The maximum size of the answer to one request, in bytes."""
EVENT_LIMIT = 4 << 20
"""The maximum size of one event in a stream, in bytes."""

HttpClientFactory = Callable[[Mapping[str, str]], Any]
"""Returns an `httpx2.AsyncClient` that sends these headers with every request."""


class Web:
    """One session with a server. An asynchronous context manager that returns the two streams."""

    def __init__(self, url: str, headers: Callable[[], Mapping[str, str]], factory: HttpClientFactory) -> None:
        self._url = url
        self._headers = headers
        self._factory = factory
        self._measure = Measure()
        self._stack = AsyncExitStack()
        self._status = 0
        self.closed = asyncio.Event()
        self.violation = ""

    @property
    def exit_code(self) -> int | None:
        return None

    def account(self) -> str:
        if self.violation:
            return self.violation
        return f"Its last answer had status {self._status}." if self._status >= 300 else ""

    def details(self) -> dict[str, Any]:
        return {"status": self._status} if self._status >= 300 else {}

    async def __aenter__(self) -> tuple[Any, Any]:
        from mcp.client.streamable_http import streamable_http_client

        client = self._factory({"Accept-Encoding": "identity", **self._headers()})
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), self._look_at]}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            streams = streamable_http_client(self._url, http_client=client, max_sse_event_size=EVENT_LIMIT)
            incoming, outgoing = await stack.enter_async_context(streams)
            self._stack = stack.pop_all()
        return Sieve(incoming, self._measure, lambda: self._break(FLOODS)), _Counted(outgoing, self._measure)

    async def __aexit__(self, *error: Any) -> None:
        self.closed.set()
        await self._stack.__aexit__(*error)

    def _break(self, why: str) -> Exception:
        """Ends the session."""
        import httpx2

        self.violation = self.violation or why
        self.closed.set()
        return httpx2.StreamError(why)

    async def _look_at(self, response: Any) -> None:
        """Checks every response before its body is read."""
        self._status = response.status_code
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("", "identity"):
            # A few compressed bytes can expand to any size, and compression was not requested.
            raise self._break(f"It sent a compressed answer ({readable(encoding, 40)}), which was not requested.")
        if response.request.method == "POST":
            too_large = f"It sent an answer of more than {ANSWER_LIMIT} bytes."
            response.stream = _capped(response.stream, lambda: self._break(too_large))


def _capped(stream: Any, too_large: Callable[[], Exception]) -> Any:
    import httpx2

    class Capped(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            left = ANSWER_LIMIT
            async for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise too_large()
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Capped()


class _Counted:
    """Counts the outgoing messages, each of which may be answered."""

    def __init__(self, inner: Any, measure: Measure) -> None:
        self._inner = inner
        self._measure = measure

    async def send(self, item: Any) -> None:
        self._measure.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Counted:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


_CONNECT_SECONDS = 30.0
_SILENT_SECONDS = 300.0
_TRY_SECONDS = 5.0


def no_private(host: str, port: int) -> bool:
    return False


def checked_client(private: Private = no_private, resolve: Resolver = look_up) -> HttpClientFactory:
    """Returns a factory for clients that ignore proxies in the environment and do not follow redirects.

    `private` says whether a rule allows a host that is not public.
    """

    def make(headers: Mapping[str, str]) -> Any:
        import httpcore2
        import httpx2

        transport = httpx2.AsyncHTTPTransport(verify=system_tls(), trust_env=False)
        # The transport does not accept a backend, but its pool does.
        transport._pool = httpcore2.AsyncConnectionPool(
            ssl_context=system_tls(), network_backend=_backend(httpcore2, private, resolve)
        )
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_SILENT_SECONDS)
        return httpx2.AsyncClient(
            transport=transport, headers=dict(headers), timeout=timeout, trust_env=False, follow_redirects=False
        )

    return make


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
        raise NotFound(f"The name {host} cannot be looked up: {why}.", fix="Check the name and the network.") from None
    return check_addresses(url, found, private)
