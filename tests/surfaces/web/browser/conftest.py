from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from cuebook.surfaces.web.server import start_link
from tests.support.requirements import require
from tests.surfaces.web.browser.chromium import FLAGS, find_chromium
from tests.surfaces.web.browser.profile import BrowserProfile, OpenProfile
from tests.surfaces.web.served_app import ServedApp


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One real browser for all tests of a process. Every test has its own profiles in it."""
    require("chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    """The web app, which a test starts; it runs in the event loop that controls the browser."""
    made = ServedApp(tmp_path, monkeypatch)
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def open_profile(browser: Browser, web: ServedApp) -> AsyncIterator[OpenProfile]:
    """Opens browser profiles on the served app; at the end, checks what their pages did."""
    profiles: list[BrowserProfile] = []

    async def take(*, link: str = "", **options: Any) -> BrowserProfile:
        port = web.client.base_url.port
        assert port is not None
        profile = await BrowserProfile.opened(browser, link or start_link(web.site, "127.0.0.1", port), **options)
        profiles.append(profile)
        return profile

    yield take
    for profile in profiles:
        await profile.context.close()
    for profile in profiles:
        profile.check()
