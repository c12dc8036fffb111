from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.surfaces.mcp.clients import (
    ERAS,
    TRANSPORTS,
    Command,
    McpClient,
    Served,
    forked,
    new_process,
    over_http,
    over_stdio,
    token_of,
)

Connect = Callable[..., AbstractAsyncContextManager[McpClient]]


@pytest.fixture
def served() -> Iterator[list[Served]]:
    """Servers that are stopped at the end of the test."""
    made: list[Served] = []
    yield made
    for one in made:
        one.kill()


@pytest.fixture(params=[f"{transport} {era}" for transport in TRANSPORTS for era in ERAS])
def connect(request: pytest.FixtureRequest, cli: CommandLine, served: list[Served]) -> Connect:
    """Connects a client, over each transport with each protocol."""
    return _visits(request.param, cli, served)


each_once = pytest.fixture(params=["stdio auto", "http legacy"])
"""Covers each transport and each protocol once."""


@each_once
def connect_each_once(request: pytest.FixtureRequest, cli: CommandLine, served: list[Served]) -> Connect:
    return _visits(request.param, cli, served)


@each_once
def connect_cold(request: pytest.FixtureRequest, cli: CommandLine, served: list[Served]) -> Connect:
    """Connects to servers that are new processes, not forks."""
    return _visits(request.param, cli, served, new_process)


def _visits(way: str, cli: CommandLine, served: list[Served], command: Command = forked) -> Connect:
    transport, era = way.split()

    @cache
    def token() -> str:
        return token_of(cli, "ann", "runner", "approver")

    @asynccontextmanager
    async def client(**given: Any) -> AsyncIterator[McpClient]:
        if transport == "stdio":
            async with over_stdio(cli, command=command, **{"mode": era, **given}) as one:
                yield one
            return
        if not served:
            served.append(Served(cli, command=command))
        async with over_http(served[0].url, token(), **{"mode": era, **given}) as one:
            yield one

    return client
