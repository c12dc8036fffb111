"""Writes docs/images/web-*.png: the pages of the web app, as Chromium shows them, with a scripted model.

python scripts/make_web_pictures.py                      # all pictures
python scripts/make_web_pictures.py question approval    # only these

It needs Playwright, which is in .venv, and Chromium: an installed one, or the one that CHROMIUM names. The server is a
real one with its own store and folders. Words, run ids and times are the same each time, except for some milliseconds of a
command in `pipeline`, so a picture changes only if the app, an example or the fonts change.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from playwright.async_api import Browser, BrowserContext, Page, async_playwright  # noqa: E402

from cuebook.config import load  # noqa: E402
from cuebook.kernel.journal import Entry  # noqa: E402
from cuebook.service.service import Service  # noqa: E402
from cuebook.surfaces.cli.session import opened  # noqa: E402
from cuebook.surfaces.web.app import make_site  # noqa: E402
from cuebook.surfaces.web.server import bound, make_server  # noqa: E402
from cuebook.testing import Request, ScriptedModel  # noqa: E402
from cuebook.wiring.wiring import Wiring  # noqa: E402

TARGET = ROOT / "docs" / "images"
NAMES = ("library", "preflight", "question", "results", "phone", "graph", "pause", "approval", "pipeline")

WORKSPACE = Path("/tmp/shop")
"""A fixed folder, because an approval shows its path."""
FILES = ("guide/delivery.md", "guide/returns.md")
"""What the example that looks into a folder finds in `guide`."""

MODEL = "openai/gpt-4o-mini"
STARTED = datetime(2026, 11, 16, 17, 28, tzinfo=UTC)
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 760}, "device_scale_factor": 2, "is_mobile": True}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-partial-raster")

LETTER = """\
Dear customer,

we are **sorry** that your lamp does not turn on. A new one leaves our shop today:

- you keep the old one,
- you pay nothing.

See [how to return a lamp](https://example.com/returns).
"""
REPLIES = {
    "support-reply": ["complaint", LETTER, "Your new lamp is on its way"],
    "sort-message": [
        '{"kind": "complaint", "summary": "The kettle leaks and the customer wants the money back."}',
        '{"choice": "apologise", "reason": "It asks for a refund."}',
        '{"reply": "We are sorry that your kettle leaks. We will send your money back today."}',
    ],
    "packing-list": ["- Swim before breakfast.\n- Walk around the lake.\n- Watch the sunset from the jetty."],
    "newcomers-note": ['{"kind": "texts"}'],
}
"""What the model replies in each run. The runs start in this order, one after the other."""


class Clock:
    """The clock of the runs. It moves only when it is advanced, so that all durations are the same each time."""

    def __init__(self) -> None:
        self._now = STARTED.timestamp()

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def notice(self, event: object) -> None:
        """Lets each record of a run take some time. Pieces of text do not count, because their number varies."""
        if isinstance(event, Entry):
            self.advance(0.012)


def scripted_model(clock: Clock) -> ScriptedModel:
    left = [reply for replies in REPLIES.values() for reply in replies]

    def next_reply(request: Request) -> str:
        reply = left.pop(0)
        clock.advance(0.42 + len(reply) / 90)
        return reply

    return ScriptedModel(next_reply)


@contextmanager
def workspace() -> Iterator[None]:
    """Creates the folder that the commands of playbooks work in, and removes it at the end."""
    if WORKSPACE.exists():
        sys.exit(f"{WORKSPACE} exists, and the pictures need a new folder of that name. Move it away.")
    (WORKSPACE / "guide").mkdir(parents=True)
    try:
        for name in FILES:
            (WORKSPACE / name).touch()
        yield
    finally:
        shutil.rmtree(WORKSPACE)


@asynccontextmanager
async def served(folder: Path, clock: Clock) -> AsyncIterator[str]:
    """Serves the examples with a new store, and gives the link that signs in."""
    examples = shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    flags = {"store": str(folder / "runs.db"), "model": MODEL}
    wiring = Wiring(load(flags, folder=WORKSPACE), models={"openai": scripted_model(clock)})
    # There is no setting for the clock, because only this script needs a different one.
    with (
        patch("cuebook.wiring.wiring.Service", partial(Service, clock=clock)),
        patch("cuebook.kernel.engine.driver.time", SimpleNamespace(monotonic=clock)),
    ):
        async with opened(wiring, create=True) as service:
            service.observe(clock.notice)
            listening = bound("127.0.0.1", 0)
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            site = make_site(wiring, service, folders=[examples])
            server = make_server(site, "127.0.0.1", listening.getsockname()[1], on_ready=ready.set_result)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield await ready
            finally:
                server.stop()
                await serving


async def new_context(browser: Browser, url: str, size: dict[str, Any], **options: Any) -> BrowserContext:
    """A browser profile for the server of this URL."""
    context = await browser.new_context(
        base_url=url, locale="en-US", timezone_id="UTC", reduced_motion="reduce", **size, **options
    )
    await context.clock.set_fixed_time(STARTED)  # the pages leave out the year if it is the current one
    return context


class Photographer:
    """Brings the pages into the states that the pictures show, and takes the pictures."""

    def __init__(self, context: BrowserContext, page: Page, clock: Clock, wanted: set[str]) -> None:
        self._context = context
        self._page = page
        self._clock = clock
        self._wanted = wanted

    async def take(self, name: str, page: Page | None = None) -> None:
        if name in self._wanted:
            path = TARGET / f"web-{name}.png"
            await (page or self._page).screenshot(path=path, animations="disabled", caret="hide")
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")

    async def start(self, playbook: str, status: str, **fields: Any) -> str:
        """Starts a run and opens its page once it has this status. Gives the path of the page."""
        # The key makes the run's id the same each time.
        started = await self._context.request.post(
            "/api/runs", data={"playbook": playbook, **fields}, headers={"Idempotency-Key": playbook}
        )
        path = f"/runs/{(await started.json())['run']}"
        await self._page.goto(path)
        await self.reach(status)
        return path

    async def reach(self, status: str) -> None:
        """Waits until the run has this status, and opens its page anew, because live changes are highlighted for a moment."""
        await self._page.locator(f'#run-status[data-status="{status}"]').wait_for()
        path = urlsplit(self._page.url).path
        await self._page.goto("about:blank")  # a reload would keep the scroll position
        await self._page.goto(path)

    async def take_all(self, browser: Browser) -> None:
        page, clock = self._page, self._clock
        await page.goto("/")
        await self.take("library")
        await page.goto("/playbooks/support-reply/run")
        await self.take("preflight")

        reply = await self.start("support-reply", "awaiting_input")
        await page.locator("#run-waits").get_by_role("link", name="Answer").click()
        await self.take("question")
        clock.advance(38)
        await page.get_by_role("button", name="Answer").click()
        await self.reach("completed")
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await self.take("results")
        await self.take_on_phone(browser, reply)

        await page.emulate_media(color_scheme="dark")
        await self.start("sort-message", "completed")
        await self.take("graph")
        await page.emulate_media(color_scheme="light")

        await self.start("packing-list", "paused", breakpoints="1")
        await page.get_by_text("Change variables before it continues").click()
        await self.take("pause")

        await self.start("newcomers-note", "awaiting_approval", inputs={"folder": "guide"})
        await page.get_by_role("link", name="Review and decide").click()
        await page.evaluate("scrollBy(0, 35)")  # until the buttons are in the picture
        await self.take("approval")
        clock.advance(95)
        await page.get_by_role("button", name="Approve").click()
        await self.reach("completed")
        await self.take("pipeline")

    async def take_on_phone(self, browser: Browser, path: str) -> None:
        state = await self._context.storage_state()
        phone = await new_context(browser, self._page.url, PHONE, storage_state=state)
        page = await phone.new_page()
        await page.goto(path)
        await self.take("phone", page)


def isolate(home: Path) -> None:
    """Keeps the user's own configuration, keys and data out of the pictures."""
    for name in [name for name in os.environ if name.startswith("CUEBOOK_") or name.endswith("_API_KEY")]:
        del os.environ[name]
    os.environ.update(HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), XDG_DATA_HOME=str(home / "data"))
    os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"


async def main(names: list[str]) -> None:
    if unknown := set(names) - set(NAMES):
        sys.exit(f"Unknown picture: {', '.join(sorted(unknown))}. Expected: {', '.join(NAMES)}.")
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("There is no Chromium. Install it with `sudo make browser`, or set CHROMIUM to its path.")
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, workspace():
        isolate(Path(folder))
        async with served(Path(folder), clock) as link, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            context = await new_context(browser, link, WIDE)
            page = await context.new_page()
            await page.goto(link)
            await Photographer(context, page, clock, set(names or NAMES)).take_all(browser)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
