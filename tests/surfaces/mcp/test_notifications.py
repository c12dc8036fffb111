"""Subscribers are notified when the playbooks change, and a cached listing is never stale."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from mcp import Client
from mcp.server.subscriptions import ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp_types import ResourceListChangedNotification, ToolListChangedNotification

from tests.support.command_line import TEA, CommandLine
from tests.surfaces.mcp.clients import Served, at_a_pipe, over_http, over_stdio, token_of


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_subscribers_are_notified_of_a_change(cli: CommandLine, served: list[Served], transport: str) -> None:
    if transport == "http":
        served.append(Served(cli))
    opened = over_http(served[0].url, token_of(cli)) if served else over_stdio(cli)
    async with (
        opened as visit,
        asyncio.timeout(30),
        visit.client.listen(tools_list_changed=True, resources_list_changed=True) as changes,
    ):
        cli.write("coffee.md", TEA.replace("# Tea", "# Coffee"))
        heard: set[type[ServerEvent]] = {type(await anext(changes)) for _ in range(2)}
        assert heard == {ToolsListChanged, ResourcesListChanged}
        listed = {one.uri for one in (await visit.client.list_resources()).resources}
        assert "playbook://playbooks/coffee" in listed


async def test_over_stdio_a_client_of_the_older_protocol_is_notified(cli: CommandLine) -> None:
    heard: asyncio.Queue[type] = asyncio.Queue()

    async def hear(message: object) -> None:
        heard.put_nowait(type(message))

    server = at_a_pipe(cli, "--tools")
    async with Client(server, mode="legacy", message_handler=hear) as client, asyncio.timeout(30):
        assert client.server_capabilities.tools.list_changed is True  # type: ignore[union-attr]
        await client.list_tools()
        cli.tea.write_text(TEA.replace("# Tea", "# More tea"))
        assert {await heard.get(), await heard.get()} == {ToolListChangedNotification, ResourceListChangedNotification}
        titles = [tool.title for tool in (await client.list_tools(cache_mode="bypass")).tools]
        assert "More tea" in titles


async def test_a_listing_is_never_stale(cli: CommandLine, served: list[Served]) -> None:
    served.append(one := Served(cli))
    token = token_of(cli)
    async with over_http(f"{one.url}?tools=each", token) as visit, over_http(one.url, token) as other:
        assert "run_tea" in await visit.tools()
        assert "run_tea" not in await other.tools()
        cli.write("coffee.md", TEA.replace("# Tea", "# Coffee"))
        assert {"run_tea", "run_coffee"} <= (await visit.tools()).keys()
        cli.tea.unlink()
        assert "run_tea" not in await visit.tools()
        async with over_http(f"{one.url}?tools=each", token_of(cli, "vic", "viewer")) as viewer:
            assert "run_coffee" not in await viewer.tools()
        assert "run_coffee" in await visit.tools()


async def test_subscribers_do_not_keep_a_server_from_stopping(cli: CommandLine, served: list[Served]) -> None:
    served.append(one := Served(cli))
    async with (
        over_http(one.url, token_of(cli)) as visit,
        visit.client.listen(resources_list_changed=True) as changes,
    ):
        one.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(one.process.wait, 30) == 130
        assert [change async for change in changes] == []


@pytest.mark.parametrize(
    "change",
    [
        ("remove", "ann"),
        ("token", "ann"),
        ("revoke", "ann", "--role", "approver"),
    ],
    ids=lambda change: change[0],
)
async def test_a_stream_ends_when_its_user_loses_access(
    cli: CommandLine, served: list[Served], change: tuple[str, ...]
) -> None:
    served.append(one := Served(cli))
    async with (
        over_http(one.url, token_of(cli, "ann", "runner", "approver")) as visit,
        asyncio.timeout(30),
        visit.client.listen(resources_list_changed=True) as changes,
    ):
        assert cli.call("users", *change).code == 0
        heard = asyncio.create_task(_all(changes))
        await asyncio.wait({heard})
        assert not heard.cancelled()


async def _all(changes: AsyncIterator[ServerEvent]) -> list[ServerEvent]:
    return [change async for change in changes]
