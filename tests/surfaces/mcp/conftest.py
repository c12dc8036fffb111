from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.mcp.visiting import (
    ERAS,
    TRANSPORTS,
    Command,
    Served,
    Visit,
    anew,
    forked,
    over_http,
    over_stdio,
    token_of,
)

Visits = Callable[..., AbstractAsyncContextManager[Visit]]


@pytest.fixture
def served() -> Iterator[list[Served]]:
    """Servers that are ended with the test."""
    made: list[Served] = []
    yield made
    for one in made:
        one.kill()


@pytest.fixture(params=[f"{transport} {era}" for transport in TRANSPORTS for era in ERAS])
def visits(request: pytest.FixtureRequest, desk: Desk, served: list[Served]) -> Visits:
    """Connects a client, in each of the ways that there are."""
    return _visits(request.param, desk, served)


each_once = pytest.fixture(params=["stdio auto", "http legacy"])
"""Over each transport once, and by each protocol once."""


@each_once
def some_visits(request: pytest.FixtureRequest, desk: Desk, served: list[Served]) -> Visits:
    return _visits(request.param, desk, served)


@each_once
def cold_visits(request: pytest.FixtureRequest, desk: Desk, served: list[Served]) -> Visits:
    """With servers that are new processes and no forks."""
    return _visits(request.param, desk, served, anew)


def _visits(way: str, desk: Desk, served: list[Served], command: Command = forked) -> Visits:
    transport, era = way.split()

    @cache
    def token() -> str:
        return token_of(desk, "ann", "runner", "approver")

    @asynccontextmanager
    async def visit(**given: Any) -> AsyncIterator[Visit]:
        if transport == "stdio":
            async with over_stdio(desk, command=command, **{"mode": era, **given}) as one:
                yield one
            return
        if not served:
            served.append(Served(desk, command=command))
        async with over_http(served[0].url, token(), **{"mode": era, **given}) as one:
            yield one

    return visit
