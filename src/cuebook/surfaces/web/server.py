"""Serves the app: one process, one event loop, one store. It stops promptly on a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from cuebook.kernel.errors import BadInput
from cuebook.performers.nodes.protocol import MAX_MESSAGE, PING_SECONDS, SILENCE_SECONDS
from cuebook.surfaces.web.app import make_app
from cuebook.surfaces.web.auth.guard import Hosts
from cuebook.surfaces.web.connections import (
    ACCEPTED_AT_ONCE,
    USUAL,
    Bounds,
    bounds_for,
    connections_within,
    raise_descriptor_limit,
    web_socket,
)
from cuebook.surfaces.web.site import Site
from cuebook.system.network import is_loopback

_PATIENCE = 2
"""Seconds that requests have to finish when the server stops."""
SHORTEST_TOKEN = 20


def check_reach(host: str, token: str, provider: str = "") -> None:
    """Raise `BadInput` if other machines can reach the server and it has no token, or one that is too short. It needs none if
    an identity provider signs people in.
    """
    if token and len(token) < SHORTEST_TOKEN:
        raise BadInput(
            f"The server's token is shorter than {SHORTEST_TOKEN} characters.",
            fix="Generate one with `python3 -c 'import secrets; print(secrets.token_urlsafe(32))'`.",
        )
    if not is_loopback(host) and not token and not provider:
        raise BadInput(
            f"--host {host} can be reached from other machines, but no token is set.",
            fix="Set CUEBOOK_SERVE_TOKEN, pass --token-file, configure an identity provider, or serve on 127.0.0.1.",
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on this address. Raises `BadInput` if that fails."""
    # A name below `localhost` means this machine, regardless of the resolver.
    plain = "127.0.0.1" if host.lower().endswith(".localhost") else host.strip("[]")
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    # Declared as TCP, so that the event loop sends data at once; otherwise it waits up to 40 ms for more.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((plain, port))
        made.listen(512)
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"Cannot listen on {host}:{port}: {why}.", fix="Choose another port with --port; 0 picks a free one."
        ) from None
    return made


def hosts_for(host: str, port: int, more: Iterable[str] = ()) -> Hosts:
    """The host names that this server answers to."""
    plain = host.strip("[]")
    everywhere = plain in ("0.0.0.0", "::")
    names = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(plain) or everywhere else set()
    names |= {f"[{plain}]" if ":" in plain else plain, *more}
    if everywhere:
        names |= {socket.gethostname()}
    given = {name if _has_port(name) else f"{name}:{port}" for name in names}
    return Hosts(given | (set(more) | names if port in (80, 443) else set(more)), any_address=everywhere)


def _has_port(name: str) -> bool:
    return name.rpartition("]")[2].rpartition(":")[1] == ":"


class Server(uvicorn.Server):
    """Ends the streams before it waits for other requests."""

    def __init__(self, config: uvicorn.Config, site: Site, on_ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._site = site
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.closing.set()
        cutting = asyncio.create_task(self._cut_off())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()
        if self.force_exit:  # do not wait for requests, but still close everything
            await self.lifespan.shutdown()

    async def _cut_off(self) -> None:
        """Abort connections of clients that do not read their responses or do not finish their requests."""
        await asyncio.sleep(_PATIENCE / 2)
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the caller handles signals

    def stop(self) -> None:
        """Stop gracefully; on a second call, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def make_server(
    site: Site,
    host: str,
    port: int,
    names: Iterable[str] = (),
    on_ready: Callable[[str], Any] = lambda address: None,
    bounds: Bounds = USUAL,
    start_links: bool = True,
) -> Server:
    """Build a server for this site. `on_ready` gets the address to open, with `start_links` one that signs in."""
    config = uvicorn.Config(
        make_app(site, hosts_for(host, port, names)),
        http=connections_within(bounds),
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
        lifespan="on",
        ws=web_socket,  # type: ignore[arg-type]  # it is only called
        ws_max_size=MAX_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=SILENCE_SECONDS - PING_SECONDS,
        ws_per_message_deflate=False,
    )
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host.strip("[]")
    return Server(
        config, site, lambda: on_ready(start_link(site, shown, port) if start_links else address_of(shown, port))
    )


async def serve(
    site: Site,
    listening: socket.socket,
    host: str,
    *,
    names: Iterable[str] = (),
    on_ready: Callable[[str], Any] = lambda address: None,
    on_drain: Callable[[], Any] = lambda: None,
    drain: float = 0,
    start_links: bool = True,
) -> int:
    """Serve until a signal arrives, and return the exit code. On SIGTERM, effects have up to `drain` seconds to finish."""
    bounds = bounds_for(raise_descriptor_limit())
    server = make_server(site, host, listening.getsockname()[1], names, on_ready, bounds, start_links)
    stopping = _Stopping(server, site, drain, on_drain)
    await server.serve(sockets=[listening])
    await stopping.finished()
    if not server.started:
        raise BadInput("The server could not start; its log says why.")
    return 130 if signal.SIGINT in stopping.received else 0


def address_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def start_link(site: Site, host: str, port: int) -> str:
    """The address to open. It signs the person at this machine in, unless only the identity provider does that."""
    address = address_of(host, port)
    return f"{address}sign-in?start={site.sessions.new_start()}" if site.sessions.local else address


class _Stopping:
    """Stops the server on signals: at once on Ctrl-C and on a second signal, and after handing over its runs on SIGTERM."""

    def __init__(self, server: Server, site: Site, drain: float, on_drain: Callable[[], Any]) -> None:
        self._server, self._site, self._drain, self._on_drain = server, site, drain, on_drain
        self._draining: asyncio.Task[None] | None = None
        self.received: list[int] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._handle, number)

    def _handle(self, number: int) -> None:
        self.received.append(number)
        self._site.readiness.drain()
        if number == signal.SIGTERM and len(self.received) == 1 and self._server.started:
            self._draining = asyncio.create_task(self._hand_over())
        else:
            self._server.stop()

    async def _hand_over(self) -> None:
        """Hand over the runs while requests are still answered: a load balancer may need a moment to send them elsewhere."""
        self._site.nodes.hub.closing = True
        if self._site.worker.is_driving:
            self._on_drain()
        await self._site.worker.drain(self._drain)
        if not self._server.should_exit:
            self._server.stop()

    async def finished(self) -> None:
        if self._draining is not None:
            await self._draining
