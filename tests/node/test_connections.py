"""Connections: pairing, the key, what is tried again, and what ends a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection

from cuebook.kernel.errors import CuebookError
from cuebook.node.client import LONGEST, pauses
from cuebook.node.identity import NodeBusy
from cuebook.performers.nodes.protocol import CLOSE_CODES, Call, Closed, Goodbye, Hello, Welcome, digest, encode
from cuebook.system.process import surely_gone
from tests.node.conftest import Started
from tests.node.scripted_server import TOKEN, ScriptedServer, response, scripted_server
from tests.support.http_servers import Authority

Start = Callable[..., Started]
ALLOW = ("true",)


def key(tmp_path: Path) -> str:
    (path,) = (tmp_path / "data").glob("*/key")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    return path.read_text().strip()


async def ending(one: Started) -> CuebookError:
    """The error that ends a node."""
    async with asyncio.timeout(60):
        with pytest.raises(CuebookError) as found:
            await one.task
    return found.value


async def test_the_key_is_on_disk_before_the_first_connection_and_used_from_then_on(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    kept: list[str] = []
    server.answer = lambda request: kept.append(key(tmp_path))
    one = started(allow=ALLOW)
    peer = await server.peer()
    assert kept == [key(tmp_path)]
    assert peer.hello.key == digest(kept[0])
    assert peer.hello.protocol == 1
    peer.socket.transport.abort()
    again = await server.peer()
    assert again.hello.key == ""
    await one.stop()
    started(token="", allow=ALLOW)
    await server.peer()
    assert server.attempts == [TOKEN, kept[0], kept[0]]


async def test_the_key_works_if_the_answer_to_the_first_connection_was_lost(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    async def lose(socket: ServerConnection) -> None:
        server.first = None
        socket.transport.abort()

    server.first = lose
    started(allow=ALLOW)
    await server.peer()
    assert server.attempts == [TOKEN, key(tmp_path)]


async def test_a_new_token_pairs_a_machine_again_whose_key_the_server_forgot(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    one = started(allow=ALLOW)
    await server.peer()
    await one.stop()
    server.keys.clear()
    server.tokens = {"another-token"}
    two = started(token="another-token", allow=ALLOW)
    await server.peer()
    assert server.attempts == [TOKEN, key(tmp_path), "another-token"]
    await two.stop()
    server.keys.clear()
    error = await ending(started(allow=ALLOW))
    assert (error.code, error.exit_code) == ("not_paired", 5)
    assert error.fix


@pytest.mark.parametrize("code", [*CLOSE_CODES])
async def test_a_goodbye_ends_the_node_with_its_words_or_is_tried_again(
    server: ScriptedServer, started: Start, code: Closed
) -> None:
    async def part(socket: ServerConnection) -> None:
        server.first = None
        await socket.send(encode(Goodbye(code=code, message="This is why.", fix="Do this.")))
        await socket.close(CLOSE_CODES[code])

    server.first = part
    one = started(allow=ALLOW)
    if code in ("too_many", "stopping"):
        await server.peer()
        assert "This is why." in one.lines[0]
        return
    error = await ending(one)
    about_the_pairing = code in ("paired_already", "revoked", "renewed")
    assert (error.code, str(error)) == (code, "This is why. Do this.")
    assert error.exit_code == (5 if about_the_pairing else 2)


async def test_a_revoked_node_ends_what_is_under_way(server: ScriptedServer, started: Start, tmp_path: Path) -> None:
    one = started(sandbox="none", allow=("*",))
    peer = await server.peer()
    argv = ["sh", "-c", "echo $$ > pid; exec sleep 1000"]
    await peer.send(Call(id="r1", capability="command", action="run", arguments={"argv": argv}, seconds=1000))
    while not (text := read(tmp_path / "work/pid")).endswith("\n"):
        await asyncio.sleep(0.02)
    await peer.socket.close(CLOSE_CODES["revoked"])
    assert (await ending(one)).code == "revoked"
    await one.stop()
    assert surely_gone(int(text), "")


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 421, 426])
async def test_a_wrong_address_ends_the_node_and_a_redirect_is_not_followed(
    server: ScriptedServer, started: Start, status: int
) -> None:
    body = {"code": "wrong_host", "detail": "This host name is not accepted.", "fix": ""}
    server.answer = lambda request: response(status, body, Location=f"{server.url}/nodes/connect?again")
    error = await ending(started(allow=ALLOW))
    assert (error.code, error.exit_code) == ("wrong_server", 2)
    assert f"HTTP {status}" in error.message
    assert "This host name is not accepted." in error.message
    assert len(server.attempts) == 1


async def test_a_server_that_comes_back_is_found_again_and_an_outage_is_one_line(
    server: ScriptedServer, started: Start
) -> None:
    answers = [503, 502, 429, 500]
    server.answer = lambda request: response(answers.pop(), {"detail": "Not now."}) if answers else None
    one = started(allow=ALLOW)
    peer = await server.peer()
    while len(one.lines) < 2:
        await asyncio.sleep(0.01)
    assert one.lines == [
        f"no connection to {server.url}: Not now. Trying again until there is one.",
        f"node laptop is connected to {server.url} and offers command (run).",
    ]
    await server.stop()
    await peer.closed()
    await server.start()
    await server.peer()
    assert len(server.attempts) >= 6


async def test_what_is_not_a_server_for_nodes_is_recognised(started: Start) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        error = await ending(started(url=url, allow=ALLOW))
    assert error.code == "wrong_server"


async def test_a_certificate_is_checked(started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    async with scripted_server(authority.serving("127.0.0.1")) as server:
        error = await ending(started(url=server.url, allow=ALLOW))
        assert error.code == "wrong_server"
        assert "certificate" in error.message
        assert server.attempts == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        started(url=server.url.replace("127.0.0.1", "localhost"), data=tmp_path / "other", allow=ALLOW)
        started(url=server.url, data=tmp_path / "third", allow=ALLOW)
        await server.peer()
        assert server.attempts == [TOKEN]  # the certificate is for the other name only


async def test_a_welcome_that_never_comes_or_another_first_message_is_no_connection(
    server: ScriptedServer, started: Start
) -> None:
    async def confuse(socket: ServerConnection) -> None:
        server.first = None
        await socket.send(encode(Hello(protocol=1)))
        await socket.wait_closed()

    server.first = confuse
    one = started(allow=ALLOW)
    await server.peer()
    assert "not a message" in one.lines[0]


async def test_a_new_name_is_shown(server: ScriptedServer, started: Start) -> None:
    one = started(allow=ALLOW)
    peer = await server.peer()
    await peer.send(Welcome(node="tower"))
    while not any("called tower" in line for line in one.lines):
        await asyncio.sleep(0.01)


async def test_two_processes_are_not_the_same_node(server: ScriptedServer, started: Start) -> None:
    one = started(allow=ALLOW)
    await server.peer()
    with pytest.raises(NodeBusy, match="already this node"):
        started(allow=ALLOW)
    await one.stop()
    started(allow=ALLOW)
    await server.peer()


def test_the_pauses_grow_to_a_limit_and_differ() -> None:
    several = [list(islice(pauses(), 12)) for _ in range(5)]
    for one in several:
        assert one[0] >= 0.25
        assert max(one) <= LONGEST
        assert min(one[-3:]) >= LONGEST / 2
    assert len({tuple(one) for one in several}) == 5
