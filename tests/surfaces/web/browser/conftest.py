from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from cuebook.surfaces.web.serving import start_link
from tests.machine import require
from tests.surfaces.web.browser.chromium import FLAGS, find_chromium
from tests.surfaces.web.browser.seat import Seat, Sit
from tests.surfaces.web.house import House


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One real browser for all tests of a process. Every test has profiles of its own in it."""
    require("chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """A house whose server a test starts, in the loop that the browser is spoken to from."""
    made = House(tmp_path, monkeypatch)
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def sit(browser: Browser, house: House) -> AsyncIterator[Sit]:
    """Takes a seat before the served house; at the end, what its pages did is looked at."""
    seats: list[Seat] = []

    async def take(*, link: str = "", **options: Any) -> Seat:
        port = house.client.base_url.port
        assert port is not None
        seat = await Seat.opened(browser, link or start_link(house.site, "127.0.0.1", port), **options)
        seats.append(seat)
        return seat

    yield take
    for seat in seats:
        await seat.context.close()
    for seat in seats:
        seat.check()
