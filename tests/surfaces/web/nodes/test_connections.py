"""Who may connect as a node, and what ends a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.performers.nodes import protocol
from tests.support.scripted_node import ScriptedNode, joined
from tests.surfaces.web.served_app import ServedApp

OPTIONS: dict[str, Any] = {"subprotocols": [protocol.SUBPROTOCOL], "proxy": None}


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    served = ServedApp(tmp_path, monkeypatch)
    await served.serve()
    yield served
    await served.stop()


def address(app: ServedApp) -> str:
    return str(app.client.base_url).rstrip("/")


def node(app: ServedApp, credential: str, **given: Any) -> ScriptedNode:
    return ScriptedNode(address(app), credential, **given)


async def refused(app: ServedApp, path: str = protocol.PATH, **options: Any) -> tuple[int, dict[str, Any]]:
    """The HTTP error that answers an upgrade."""
    at = options.pop("at", address(app).replace("http", "ws"))
    with pytest.raises(InvalidStatus) as error:
        await connect(f"{at}{path}", **{**OPTIONS, **options})
    response = error.value.response
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, json.loads(response.body)


def bearing(token: str, **more: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}", **more}}


async def test_a_token_pairs_one_machine_which_then_connects_with_its_key(app: ServedApp) -> None:
    _, token = await app.service.nodes.add("shop")
    async with joined(node(app, token)) as first:
        assert first.names == ["shop"]
        [seen] = await app.service.nodes.list()
        assert (seen.state, seen.paired.presence.host) == ("connected", "far")
    async with joined(node(app, first.key)):
        pass
    status, problem = await refused(app, **bearing(token))
    assert (status, problem["code"]) == (409, "paired_already")
    assert "by the machine 'far'" in problem["detail"]
    assert "cuebook nodes token shop" in problem["fix"]
    [seen] = await app.service.nodes.list()
    assert seen.state == "not connected"
    assert token not in str(await app.service.kept("local", "node"))
    assert first.key not in str(await app.service.kept("local", "node"))


async def test_what_happens_to_a_node_is_logged_without_words_of_its_machine(
    app: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="cuebook")
    _, token = await app.service.nodes.add("shop", Principal("ann"))
    async with joined(node(app, token)):
        await app.service.nodes.rename("shop", "barn", Principal("ann"))
    await app.service.nodes.revoke("barn", Principal("ann"))
    found = [(one.msg, one.fields) for one in caplog.records if str(one.msg).startswith("node.")]  # type: ignore[attr-defined]
    assert ("node.token", {"node": "shop", "by": "ann"}) in found
    assert ("node.renamed", {"node": "shop", "new": "barn", "by": "ann"}) in found
    assert ("node.revoked", {"node": "barn", "by": "ann"}) in found
    assert {"node.paired", "node.connected", "node.disconnected"} <= {name for name, _ in found}
    assert "far" not in str(found)


async def test_a_renamed_node_stays_connected_and_a_revoked_one_is_ended_at_once(app: ServedApp) -> None:
    _, token = await app.service.nodes.add("shop")
    one = await node(app, token).join()
    await app.service.nodes.rename("shop", "barn")
    async with asyncio.timeout(10):
        while one.names != ["shop", "barn"]:
            await asyncio.sleep(0.01)
    assert [(seen.name, seen.connected) for seen in await app.service.nodes.list()] == [("barn", True)]
    await app.service.nodes.revoke("barn")
    await one.ended()
    assert one.goodbye is not None
    assert one.goodbye.code == "revoked"
    assert (await refused(app, **bearing(one.key)))[1]["code"] == "unknown_key"


async def test_a_new_token_ends_the_old_pairing_and_an_old_token_ends_by_itself(
    app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = await app.service.nodes.add("shop")
    one = await node(app, token).join()
    _, token = await app.service.nodes.renew("shop")
    await one.ended()
    async with joined(node(app, token, host="near")):
        pass
    monkeypatch.setattr("cuebook.service.nodes.nodes.TOKEN_LIVES", -1.0)
    _, token = await app.service.nodes.renew("shop")
    status, problem = await refused(app, **bearing(token))
    assert (status, problem["code"]) == (401, "token_expired")


async def test_of_two_live_connections_with_one_key_the_older_stays_if_it_answers(app: ServedApp) -> None:
    _, token = await app.service.nodes.add("shop")
    async with joined(node(app, token)) as first:
        second = node(app, first.key, key=first.key)
        await second.connect()
        await second.ended()
        assert second.goodbye is not None
        assert second.goodbye.code == "connected_already"
        assert "'shop' is connected already, from far (process 7)" in second.goodbye.message
        assert first.connection is not None
        first.connection.transport.pause_reading()  # a machine that hangs
        async with joined(node(app, first.key, key=first.key)):
            assert [seen.connected for seen in await app.service.nodes.list()] == [True]


async def test_an_upgrade_is_checked_like_a_request(app: ServedApp) -> None:
    _, token = await app.service.nodes.add("shop")
    assert (await refused(app))[0] == 401
    assert (await refused(app, **bearing("x" * 40)))[1]["code"] == "unknown_key"
    for origin in ("https://evil.example", address(app)):
        status, problem = await refused(app, **bearing(token, Origin=origin))
        assert (status, problem["code"]) == (403, "foreign_origin")
    port = int(address(app).rpartition(":")[2])
    status, problem = await refused(app, **bearing(token), at=f"ws://evil.example:{port}", host="127.0.0.1", port=port)
    assert (status, problem["code"]) == (421, "wrong_host")
    assert (await refused(app, "/api/runs", **bearing(token)))[0] == 404
    status, problem = await refused(app, **bearing(token), subprotocols=None)
    assert (status, problem["code"]) == (400, "other_protocol")
    assert [seen.state for seen in await app.service.nodes.list()] == ["not paired yet"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{}", "bad_message"),
        ('{"is":"Began","id":"x"}', "bad_message"),
        ('{"is":"Hello","protocol":1}', "bad_message"),
        ('{"is":"Hello","protocol":2}', "other_protocol"),
    ],
)
async def test_a_connection_begins_with_a_hello_of_this_protocol(app: ServedApp, frame: str, code: str) -> None:
    _, token = await app.service.nodes.add("shop")
    async with connect(f"{address(app).replace('http', 'ws')}{protocol.PATH}", **OPTIONS, **bearing(token)) as socket:
        await socket.send(frame)
        goodbye = protocol.from_server(await socket.recv())
        assert isinstance(goodbye, protocol.Goodbye)
        assert goodbye.code == code
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == protocol.CLOSE_CODES[goodbye.code]
    assert [seen.state for seen in await app.service.nodes.list()] == ["not paired yet"]


async def test_a_message_that_is_too_long_ends_the_connection(app: ServedApp) -> None:
    _, token = await app.service.nodes.add("shop")
    one = await node(app, token).join()
    assert one.connection is not None
    await one.connection.send('{"is":"Output","id":"x","text":"' + "x" * protocol.MAX_MESSAGE + '"}')
    await one.ended()
    assert one.connection.close_code == 1009
    async with joined(node(app, one.key)):
        pass


async def test_a_waiting_handshake_does_not_end_like_a_slow_request(app: ServedApp) -> None:
    """A connection that became a WebSocket has no deadline for its next request."""
    _, token = await app.service.nodes.add("shop")
    async with joined(node(app, token)) as one:
        [socket] = [held for held in app.server.server_state.connections if not hasattr(held, "bounds")]
        assert type(socket).__name__ == "WebSocketConnection"
        assert one.connection is not None
        await (await one.connection.ping())


async def test_only_administrators_change_nodes_and_names_are_plain(app: ServedApp) -> None:
    viewer = Principal("vera", "local", frozenset({"viewer"}))
    for change in (app.service.nodes.add, app.service.nodes.renew, app.service.nodes.revoke):
        with pytest.raises(NotAllowed):
            await change("shop", viewer)
    for name in ("", "-x", "a b", "x" * 65, "a/b"):
        with pytest.raises(Exception, match="not a valid node name"):
            await app.service.nodes.add(name)
    other = Principal("root", "other", frozenset({"admin"}))
    _, token = await app.service.nodes.add("shop", other)
    async with joined(node(app, token)):
        assert await app.service.nodes.list() == []
        assert app.site.nodes.hub.offered() == {"node:shop@other", "nodes:command@other", "nodes:files@other"}
