"""Clients that open connections and send nothing do not affect other clients or runs."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from cuebook.surfaces.web.connections import ACCEPTED_AT_ONCE, Bounds, connections_within
from tests.support.command_line import CommandLine, finished

QUICK = Bounds(most=20, head=0.3, pause=0.3, body=1.5, unread=0.3)
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[[], Any]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Returns the body's length; `/stream` continues until the client disconnects, `/flood` exceeds every buffer."""
    if scope["type"] != "http":
        return
    await _start(send)
    if scope["path"] == "/stream":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    for _ in range(500 if scope["path"] == "/flood" else 0):
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await asyncio.sleep(0)
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.body", "body": str(length).encode()})


async def _start(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@asynccontextmanager
async def serving(bounds: Bounds = QUICK) -> AsyncIterator[tuple[uvicorn.Server, Open]]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        _app, http=connections_within(bounds), lifespan="off", ws="none", log_config=None, backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    port = listening.getsockname()[1]
    streams: list[Stream] = []

    async def connect() -> Stream:
        streams.append(await asyncio.open_connection("127.0.0.1", port))
        return streams[-1]

    try:
        yield server, connect
    finally:
        for _, writer in streams:
            writer.close()
        server.should_exit = True
        await task


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """Everything received until the server disconnects."""
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, POST, POST + b"12345"])
async def test_a_request_that_is_not_completed_is_ended(sent: bytes) -> None:
    async with serving() as (server, connect):
        reader, writer = await connect()
        writer.write(sent)
        said = await _ended(reader)
        assert b"\r\n\r\n5" not in said
        assert not server.server_state.connections


async def test_an_incomplete_second_request_on_a_connection_is_ended() -> None:
    async with serving() as (_, connect):
        reader, writer = await connect()
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(HEAD)
        await _ended(reader)


async def test_headers_and_bodies_have_a_total_time_limit() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"X: 1\r\n")
            await asyncio.sleep(0.05)

    async with serving() as (_, connect):
        for beginning in (HEAD, POST.replace(b"10", b"1000000")):
            reader, writer = await connect()
            writer.write(beginning)
            trickling = asyncio.create_task(trickle(writer))
            await _ended(reader)
            trickling.cancel()


async def test_a_slow_request_within_the_limits_is_served() -> None:
    async with serving() as (_, connect):
        reader, writer = await connect()
        for piece in (POST, b"12345", b"67890"):
            writer.write(piece)
            await asyncio.sleep(0.1)
        assert b"10" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20)


async def test_a_response_may_take_any_time_but_the_client_must_read_it() -> None:
    async with serving() as (server, connect):
        reader, writer = await connect()
        writer.write(HEAD.replace(b"/ ", b"/stream ") + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        _, other = await connect()
        other.transport.pause_reading()
        other.write(HEAD.replace(b"/ ", b"/flood ") + b"\r\n")
        await asyncio.sleep(1.0)
        assert len(server.server_state.connections) == 1
        assert not reader.at_eof()


async def test_a_new_connection_displaces_the_longest_waiting_one() -> None:
    async with serving(Bounds(most=20, head=60.0)) as (server, connect):
        streams = [await connect() for _ in range(3)]
        streams += [await connect() for _ in range(40)]
        for _, writer in streams:
            writer.write(HEAD)
        await _ended(streams[0][0])
        reader, writer = await connect()
        writer.write(HEAD + b"\r\n")
        assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 200")
        assert len(server.server_state.connections) <= 21


async def test_missing_bodies_do_not_block_other_clients() -> None:
    async with serving(Bounds(most=5)) as (_, connect):
        reading, writer = await connect()
        writer.write(HEAD.replace(b"/ ", b"/stream ") + b"\r\n")
        assert (await reading.readline()).startswith(b"HTTP/1.1 200")
        strangers = [await connect() for _ in range(4)]
        for reader, writer in strangers:
            writer.write(POST + b"1")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await connect()
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await _ended(strangers[0][0])
        assert not reading.at_eof()


async def test_if_all_connections_are_busy_a_new_one_is_turned_away() -> None:
    async with serving(Bounds(most=5)) as (_, connect):
        busy = [await connect() for _ in range(5)]
        for reader, writer in busy:
            writer.write(HEAD.replace(b"/ ", b"/stream ") + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await connect()
        writer.write(HEAD + b"\r\n")
        assert b"503" in await _ended(reader)
        busy[0][1].close()
        await asyncio.sleep(0.1)
        reader, writer = await connect()
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(sys.platform != "linux", reason="commands need a sandbox")
def test_idle_connections_do_not_end_runs(bare_cli: CommandLine) -> None:
    """With few descriptors, and far more connections than those, the server answers and its run completes."""
    steps = "".join(f"  - {{id: s{number}, command: cli sleep 0.2, effect: read}}\n" for number in range(8))
    bare_cli.write("steps.yml", f"id: steps\nname: Steps\nversion: 1.0.0\nsteps:\n{steps}")
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))  # noqa: E731
    process = bare_cli.begin("serve", "--port", "0", "--folder", ".", before=few)
    strangers: list[socket.socket] = []
    try:
        assert process.stdout is not None
        found = re.search(r"http://([^:/]+):(\d+)/\S*", process.stdout.readline())
        assert found is not None
        with httpx2.Client(base_url=f"http://{found[1]}:{found[2]}", timeout=30, trust_env=False) as client:
            client.get(found[0])
            book = client.get("/api/playbooks").json()["playbooks"][0]["id"]
            run = client.post("/api/runs", json={"playbook": book}).json()["run"]
            for _ in range(600):
                strangers.append(socket.create_connection((found[1], int(found[2])), timeout=10))
                strangers[-1].sendall(HEAD)
            assert client.get("/healthz").status_code == 200
            end = time.monotonic() + 60
            while (shown := client.get(f"/api/runs/{run}").json())["status"] not in ("completed", "failed"):
                assert time.monotonic() < end, shown
                time.sleep(0.1)
            assert shown["status"] == "completed", shown
    finally:
        for stranger in strangers:
            stranger.close()
        process.terminate()
        finished(process)
