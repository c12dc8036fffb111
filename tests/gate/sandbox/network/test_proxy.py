"""The proxy passes on what was listed, exactly once and whole, and survives clients and servers of every kind."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cuebook.gate.sandbox.network import proxy as proxies
from cuebook.gate.sandbox.network.proxy import MOST_CONNECTIONS, Proxy
from tests.gate.sandbox.sandboxes import until
from tests.support.http_servers import Authority, Names, Seen, Server, answer, hang, names, raw

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def any_host(host: str, port: int) -> bool:
    return True


def no_host(host: str, port: int) -> bool:
    return False


class Running:
    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy = proxy
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Ends:
        ends = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(ends[1])
        return ends

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def ask(self, request: bytes, *, ending: bool = False) -> bytes:
        """Everything that comes back on one connection."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            if ending:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()

    async def tunnel(self, place: str) -> Ends:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        return reader, writer


@asynccontextmanager
async def running(*hosts: str, private: object = any_host, resolve: Names | None = None) -> AsyncIterator[Running]:
    listening = socket.create_server(("127.0.0.1", 0))
    made = Proxy(hosts, private=private, resolve=resolve or names())  # type: ignore[arg-type]
    made.accept_from(listening)
    it = Running(made, listening.getsockname()[1])
    try:
        yield it
    finally:
        it.abort()
        made.close()
        await until(lambda: not made._tasks)
        assert listening.fileno() == -1


def listed(server: Server, host: str = "127.0.0.1") -> str:
    return f"{host}:{server.port}"


# --- names and addresses ---


async def test_a_name_is_looked_up_here_and_only_checked_addresses_are_connected_to() -> None:
    known = names(good_example="127.0.0.1", bad_example="169.254.169.254")
    async with Server() as server, running(listed(server, "good.example"), "bad.example:80", resolve=known) as it:
        url = f"http://good.example:{server.port}/"
        assert (await it.ask(f"GET {url} HTTP/1.1\r\n\r\n".encode())).endswith(b"hello")
        assert server.requests[0].headers["host"] == f"good.example:{server.port}"
        said = await it.ask(b"GET http://bad.example/ HTTP/1.1\r\n\r\n")
        assert b"bad.example resolves to 169.254.169.254, a link-local address" in said
        assert (await it.ask(b"GET http://unknown.example/ HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
        assert known.asked == ["good.example", "bad.example"]


async def test_a_public_name_that_resolves_to_this_machine_is_not_reached() -> None:
    known = names(rebound_example="127.0.0.1")
    async with Server() as server:
        async with running(listed(server, "rebound.example"), private=no_host, resolve=known) as it:
            said = await it.ask(f"GET http://rebound.example:{server.port}/ HTTP/1.1\r\n\r\n".encode())
        assert b"rebound.example resolves to 127.0.0.1, a loopback address" in said
        assert server.connections == 0


async def test_a_server_that_is_not_there_is_an_error_of_the_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with running(f"127.0.0.1:{port}", "gone.example:80") as it:
        assert b"cannot be reached" in await it.ask(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert b"cannot be looked up" in await it.ask(b"GET http://gone.example/ HTTP/1.1\r\n\r\n")


# --- requests ---


async def test_a_request_is_passed_on_without_what_concerns_the_connection() -> None:
    async with Server() as server, running(listed(server)) as it:
        request = (
            f"POST http://{listed(server)}?q=%20a HTTP/1.1\r\nhost: {listed(server)}\r\nProxy-Connection: keep-alive\r\n"
            "Connection: x-private, content-length\r\nX-Private: 1\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\n"
            "X-Kept: 2\r\nContent-Length: 4\r\n\r\nbodyGET http://elsewhere/ HTTP/1.1\r\n\r\n"
        )
        assert (await it.ask(request.encode())).endswith(b"hello")
        (seen,) = server.requests
        assert (seen.method, seen.target, seen.body) == ("POST", "/?q=%20a", b"body")
        assert seen.headers == {
            "host": listed(server),
            "x-kept": "2",
            "content-length": "4",
            "connection": "close",
        }


async def test_a_body_in_chunks_is_passed_on_and_nothing_after_it() -> None:
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        received.extend(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running(place) as it:
        head = f"POST http://{place}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = "5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\nGET / HTTP/1.1\r\nHost: other\r\n\r\n"
        reader, writer = await it.connect()
        writer.write(f"{head}{body}".encode())
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        writer.close()
        await until(lambda: bytes(received).endswith(b"0\r\n\r\n"))
    assert bytes(received).endswith(b"\r\n\r\n5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: +4",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "X-Folded: a\r\n b",
        "X-Bare: a\nTransfer-Encoding: chunked",
        "Host: other.example",
        "Host: HOST\r\nHost: HOST",
    ],
)
async def test_what_servers_could_read_differently_is_not_answered(fields: str) -> None:
    async with Server() as server, running(listed(server)) as it:
        url = f"http://{listed(server)}/"
        said = await it.ask(f"POST {url} HTTP/1.1\r\n{fields.replace('HOST', listed(server))}\r\n\r\nbody".encode())
        assert not said.startswith(b"HTTP/1.1 200")
        assert b"hello" not in said


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET https://PLACE/ HTTP/1.1",
        "GET ftp://PLACE/ HTTP/1.1",
        "GET http://user@PLACE/ HTTP/1.1",
        "GET http://PLACE\\@other/ HTTP/1.1",
        "GET http://PLACE/ HTTP/2.0",
        "GET  http://PLACE/ HTTP/1.1",
        "CONNECT localhost HTTP/1.1",
        "CONNECT [PLACE HTTP/1.1",
        "nonsense",
    ],
)
async def test_a_malformed_request_is_refused(line: str) -> None:
    async with Server() as server, running(listed(server), "localhost") as it:
        said = await it.ask(f"{line.replace('PLACE', listed(server))}\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 400 "), said
        assert server.connections == 0


async def test_a_head_without_end_is_cut_off() -> None:
    async with Server() as server, running(listed(server)) as it:
        assert b"200" not in await it.ask(b"GET http://x/ HTTP/1.1\r\nX: " + b"a" * (1 << 20))
        assert (await it.ask(f"GET http://{listed(server)}/ HTTP/1.1\r\n\r\n".encode())).endswith(b"hello")


async def test_an_answer_says_that_the_connection_ends_and_interim_answers_come_first() -> None:
    pieces = (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 5\r\n\r\nhello",
    )
    async with Server(raw(*pieces)) as server, running(listed(server)) as it:
        said = await it.ask(f"GET http://{listed(server)}/ HTTP/1.1\r\nExpect: 100-continue\r\n\r\n".encode())
        assert said == (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
        )


@pytest.mark.parametrize("said", [b"HTTP/1.1 101 Switching\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b""])
async def test_an_answer_that_is_no_answer_is_not_passed_on(said: bytes) -> None:
    async with Server(raw(said)) as server, running(listed(server)) as it:
        got = await it.ask(f"GET http://{listed(server)}/ HTTP/1.1\r\n\r\n".encode())
        assert got == b"" or got.startswith(b"HTTP/1.1 502 ")


# --- tunnels ---


async def test_a_tunnel_may_be_half_closed_by_either_side(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with Server(answer(b"x" * 500_000), tls=authority.serving("localhost")) as server:
        async with running(listed(server, "localhost")) as it:
            reader, writer = await it.tunnel(listed(server, "localhost"))
            await writer.start_tls(authority.trusting(), server_hostname="localhost")
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            got = await reader.read()
            assert got.endswith(b"x" * 500_000)
            writer.close()
            await until(lambda: len(it.proxy._tasks) == 1)
        assert server.sni == ["localhost"]


def _hello(host: str | None, *, extra: bytes = b"") -> bytes:
    """A real handshake's first message, optionally with another extension at its end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl._create_unverified_context()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=host).do_handshake()
    except ssl.SSLWantReadError:
        pass
    record = outgoing.read()
    if not extra:
        return record
    message = bytearray(record[5:])
    at = 4 + 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2])
    at += 1 + message[at]
    message[at : at + 2] = (int.from_bytes(message[at : at + 2]) + len(extra)).to_bytes(2)
    message += extra
    message[1:4] = (len(message) - 4).to_bytes(3)
    return record[:3] + len(message).to_bytes(2) + bytes(message)


def _in_records(record: bytes, size: int) -> bytes:
    body = record[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(record[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


@pytest.mark.parametrize(
    ("hello", "passes"),
    [
        (_hello("localhost"), True),
        (_hello("LOCALHOST"), True),
        (_in_records(_hello("localhost"), 7), True),
        (_hello("other.example"), False),
        (_hello(None), False),
        (_hello("localhost", extra=b"\xfe\x0d\x00\x01\x00"), False),
        (_hello("localhost", extra=b"\x00\x00\x00\x0a\x00\x08\x00\x00\x05other"), False),
        (_hello("localhost")[:60] + b"\xff" * 400, False),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (b"\x16\x03\x01\xff\xff" + b"a" * 70_000, False),
    ],
    ids=["name", "capitals", "pieces", "other", "none", "encrypted", "two", "malformed", "http", "ssh", "huge"],
)
async def test_only_a_handshake_for_the_host_passes(hello: bytes, passes: bool) -> None:
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1000):
            received.extend(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = f"localhost:{server.sockets[0].getsockname()[1]}"
    async with server, running(place) as it:
        reader, writer = await it.tunnel(place)
        try:
            writer.write(hello)
            writer.write_eof()
            said = await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            said = b""
        writer.transport.abort()
        await until(lambda: len(it.proxy._tasks) == 1)
    assert bytes(received) == (hello if passes else b"")
    assert said in ((b"",) if passes else (b"", bytes((21, 3, 3, 0, 2, 2, 49))))


# --- clients and servers that do not behave ---


async def test_a_slow_client_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_TO_ASK", 0.05)
    async with Server() as server, running(listed(server, "localhost")) as it:
        reader, _ = await it.connect()
        assert await asyncio.wait_for(reader.read(), 20) == b""
        reader, writer = await it.connect()
        writer.write(b"GET http://")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        reader, _ = await it.tunnel(listed(server, "localhost"))
        assert await asyncio.wait_for(reader.read(), 20) == b""
        await until(lambda: len(it.proxy._tasks) == 1)
        assert server.requests == []


async def test_a_client_that_reads_nothing_does_not_fill_the_memory() -> None:
    sent = 0

    async def endless(seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 1 << 30:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    async with Server(endless) as server, running(listed(server)) as it:
        _, writer = await it.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET http://{listed(server)}/ HTTP/1.1\r\n\r\n".encode())
        known = -1
        while known != sent or not sent:  # until the pipes are full
            known = sent
            await asyncio.sleep(0.3)
        assert sent < 64 << 20
        writer.transport.abort()
        await until(lambda: len(it.proxy._tasks) == 1)


async def test_more_clients_than_there_is_room_for_wait_for_their_turn() -> None:
    async with Server(hang) as server, running(listed(server)) as it:
        clients = [await it.connect() for _ in range(MOST_CONNECTIONS + 20)]
        for _, writer in clients:
            writer.write(f"GET http://{listed(server)}/ HTTP/1.1\r\n\r\n".encode())
        await until(lambda: server.connections == MOST_CONNECTIONS)
        assert it.proxy.full
        for _, writer in clients[:10]:
            writer.close()
        for _, writer in clients[10:20]:
            writer.transport.abort()
        await until(lambda: server.connections == MOST_CONNECTIONS + 20)


async def test_closing_ends_every_connection_at_once() -> None:
    async with Server(hang) as server, running(listed(server)) as it:
        reader, writer = await it.connect()
        writer.write(f"GET http://{listed(server)}/ HTTP/1.1\r\n\r\n".encode())
        await until(lambda: len(server.requests) == 1)
        it.proxy.close()
        it.proxy.close()
        with pytest.raises((ConnectionError, EOFError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        await asyncio.wait_for(server.left.wait(), 20)
        late, other = socket.socketpair()
        it.proxy.serve(late)
        assert late.fileno() == -1
        other.close()
        writer.close()
