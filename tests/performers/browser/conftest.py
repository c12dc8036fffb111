from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Playwright, async_playwright

from tests.performers.browser import site as sites
from tests.performers.browser.harness import BrowserHarness
from tests.performers.browser.site import Site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    """One driver for all tests of a process. Every run has its own browser."""
    async with async_playwright() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def harness(tmp_path: Path, playwright: Playwright) -> AsyncIterator[BrowserHarness]:
    made = BrowserHarness(tmp_path, environ={"PASSWORD": "open-sesame-4711"}, playwright=playwright)
    yield made
    await made.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with sites.site() as made:
        yield made


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    """A site that no rule allows."""
    with sites.site() as made:
        yield made
