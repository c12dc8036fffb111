"""The proxy of one confined process: connects it to the hosts that were listed for it, and to no others.

A tunnel must begin with a TLS handshake that asks for its host; a plain request must name its host. The name is looked up
here, every address it resolves to is checked, and the connection goes to one of these.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterable
from typing import Any

from cuebook.formats.addresses import Place, Private, RefusedAddress, check_addresses, check_host, parse_place
from cuebook.gate.sandbox.network import client_hello
from cuebook.gate.sandbox.network.client_hello import NotTls
from cuebook.gate.sandbox.network.http_messages import (
    MOST_BYTES,
    PIECE,
    Answer,
    BadMessage,
    Request,
    parse_answer,
    parse_request,
    pass_body,
)
from cuebook.kernel.engine.descriptors import lacks_descriptors
from cuebook.system.network import Resolver, is_loopback, look_up

MOST_CONNECTIONS = 64
"""How many connections one process has at a time; more wait until one is closed."""
_TO_ASK = 60.0
"""How many seconds a client has for its request, and a tunnel for its TLS handshake."""
_TO_CONNECT = 10.0
"""How many seconds to try one address."""
_HALF_CLOSED = 600.0
"""How many seconds one side may go on after the other has finished sending."""
_UNTIL_THERE_ARE_DESCRIPTORS = 0.1
_MOST_REFUSED = 20
"""How many unlisted hosts are remembered."""


def no_private(host: str, port: int) -> bool:
    return False


class _Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Proxy:
    """Serves connections until it is closed. It belongs to the event loop in which it was created."""

    def __init__(self, hosts: Iterable[str], *, private: Private = no_private, resolve: Resolver = look_up) -> None:
        """Raises `BadHost`."""
        self._allowed = frozenset(map(parse_place, hosts))
        self._private = private
        self._resolve = resolve
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.refused: dict[str, None] = {}
        """The hosts that were asked for but not listed."""

    @property
    def full(self) -> bool:
        return self._room.locked()

    def accept_from(self, listening: socket.socket) -> None:
        """Serves everything that connects to this socket, and closes it in the end."""
        self._start(self._accept(listening), listening)

    def serve(self, connection: socket.socket) -> None:
        """Serves a connected client, and closes the connection in the end."""
        self._start(self._admit(connection), connection)

    def close(self) -> None:
        """Closes all connections at once. May be called more than once."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None], owned: socket.socket) -> None:
        if self._closed:
            work.close()
            owned.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def over(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            owned.close()  # also if it was cancelled before it began

        task.add_done_callback(over)

    async def _accept(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._room.release()
                if not lacks_descriptors(error):
                    return
                await asyncio.sleep(_UNTIL_THERE_ARE_DESCRIPTORS)
                continue
            except BaseException:
                self._room.release()
                raise
            self._start(self._serve(connection), connection)

    async def _admit(self, connection: socket.socket) -> None:
        await self._room.acquire()
        await self._serve(connection)

    async def _serve(self, connection: socket.socket) -> None:
        """Serves one connection, for which there is room."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_BYTES)
            try:
                await self._answer(reader, writer)
                writer.close()
                async with asyncio.timeout(_HALF_CLOSED):  # what was written is still on its way to a slow client
                    await writer.wait_closed()
            except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
                pass  # the client is gone, too slow, or sends too much at once
            finally:
                writer.transport.abort()
        except OSError:
            pass
        finally:
            self._room.release()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TO_ASK):
                request = parse_request(await reader.readuntil(b"\r\n\r\n"))
            theirs = await self._connected(request.place)
        except _Refused as refused:
            await _refuse(writer, refused.status, str(refused))
            return
        except BadMessage as bad:
            await _refuse(writer, "400 Bad Request", f"The request {bad}.")
            return
        try:
            if request.tunnel:
                await _tunnel(request.place, (reader, writer), theirs)
            else:
                await _exchange(request, (reader, writer), theirs)
        finally:
            theirs[1].transport.abort()

    async def _connected(self, place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if place not in self._allowed:
            if len(self.refused) < _MOST_REFUSED:
                self.refused[str(place)] = None
            listed = ", ".join(sorted(map(str, self._allowed))) or "none"
            raise _Refused("403 Forbidden", f"{place} is not one of the hosts of this command, which are: {listed}.")
        why = "it has no address"
        for address in await self._addresses(place):
            try:
                async with asyncio.timeout(_TO_CONNECT):
                    return await asyncio.open_connection(address, place.port, limit=MOST_BYTES)
            except (OSError, TimeoutError) as error:
                why = getattr(error, "strerror", "") or "no answer"
        raise _Refused("502 Bad Gateway", f"{place} cannot be reached: {why}.")

    async def _addresses(self, place: Place) -> list[str]:
        try:
            check_host(place.url, self._private)
            if place.url.address is not None:
                return [place.host]
            if is_loopback(place.host):
                return ["127.0.0.1", "::1"]  # these names mean this machine, even if a resolver says otherwise
            return check_addresses(place.url, list(await self._resolve(place.host, place.port)), self._private)
        except RefusedAddress as refused:
            raise _Refused("403 Forbidden", f"{refused.message} {refused.fix}") from None
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", "") or "no such name"
            raise _Refused("502 Bad Gateway", f"The name {place.host} cannot be looked up: {why}.") from None


_ACCESS_DENIED = bytes((21, 3, 3, 0, 2, 2, 49))
"""The TLS alert for a handshake that is not passed on."""

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _tunnel(place: Place, ours: _Ends, theirs: _Ends) -> None:
    reader, writer = ours
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await writer.drain()
    try:
        async with asyncio.timeout(_TO_ASK):
            hello, name = await client_hello.read(reader.readexactly)
    except NotTls:
        writer.write(_ACCESS_DENIED)
        return
    named = name.removesuffix(".") == place.host
    # An address is not sent as a server name (RFC 6066), so there is none to compare.
    if not named and not (place.url.address is not None and not name):
        writer.write(_ACCESS_DENIED)
        return
    theirs[1].write(hello)
    await _both(_copy(reader, theirs[1]), _copy(theirs[0], writer))


async def _exchange(request: Request, ours: _Ends, theirs: _Ends) -> None:
    """Passes on one request and its answer. A client that wants more connects again."""
    reader, writer = ours

    async def ask() -> None:
        theirs[1].write(request.head())
        await pass_body(request.fields, reader, theirs[1])
        await theirs[1].drain()
        while await reader.read(PIECE):  # nothing after the request is passed on
            pass
        raise ConnectionResetError("the client is gone")

    asking = asyncio.ensure_future(ask())
    try:
        await _pass_answer(theirs[0], writer, asking)
    except BadMessage as bad:
        await _refuse(writer, "502 Bad Gateway", f"The answer of {request.place} {bad}.")
    finally:
        asking.cancel()
        await asyncio.wait({asking})


async def _pass_answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: asyncio.Future[None]
) -> None:
    answer = Answer(100, b"")
    while answer.status < 200:
        reading = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        try:
            waiting: set[asyncio.Future[Any]] = {reading, asking}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() and asking.done():
                asking.result()  # it failed: a request that was not passed on, or is not waited for, gets no answer
            answer = parse_answer(await reading)
        finally:
            reading.cancel()
        if answer.status == 101:
            raise BadMessage("changes the protocol without being asked")
        writer.write(answer.head)
        await writer.drain()
    await _copy(reader, writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    """Runs both directions of a tunnel. One may end long before the other, but if it fails, so does the other."""
    tasks = {asyncio.create_task(way) for way in ways}
    try:
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if left and all(task.exception() is None for task in done):
            await asyncio.wait(left, timeout=_HALF_CLOSED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse(writer: asyncio.StreamWriter, status: str, message: str) -> None:
    body = f"cuebook: {message}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
