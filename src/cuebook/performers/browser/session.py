"""The page of one run: opened when it is needed, and opened again after a restart."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuebook.formats.addresses import Place, parse_url
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.effects import Browse
from cuebook.performers.browser.chromium import Chromium

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Frame, Page, Request, Response

Start = Callable[[tuple[str, ...]], Awaitable[Chromium]]

MOST_PAGES = 20
"""How many pages a page may open during one command. A page that opens more is stopped."""
_TO_ANSWER = 3.0
_SETTLING = 0.15
"""How many seconds a command leaves a page to begin a navigation."""


class TooManyPages(Exception):
    """The page opens others without end."""


class Session:
    """Belongs to one run. Its commands are performed one after another."""

    def __init__(self, start: Start, state: Path) -> None:
        self._start = start
        self._state = state
        """The file with its cookies, so that a restart does not sign out."""
        self.lock = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._hosts: tuple[str, ...] = ()
        self._trail: Trail | None = None
        self._unfilled: list[int] = []
        """The secrets of the trail that are not filled in yet."""
        self.remarks: dict[str, str] = {}
        """What happened during a command that its author should know, by warning code."""
        self.opened = False
        self.status: int | None = None
        self._pages = 0
        self._navigating = 0
        self._requests: set[Request] = set()
        self.downloading = False
        """Whether the command wants a file."""
        self.asked: set[str] = set()
        """The hosts that the page asked for, not the browser on its own account."""

    @property
    def page(self) -> Page:
        assert self._page is not None
        return self._page

    @property
    def context(self) -> BrowserContext:
        assert self._context is not None
        return self._context

    @property
    def refused(self) -> list[str]:
        return [] if self._chromium is None else self._chromium.refused

    @property
    def chromium(self) -> Chromium:
        assert self._chromium is not None
        return self._chromium

    async def reach(self, effect: Browse, hosts: tuple[str, ...], secrets: Mapping[str, str] | None) -> None:
        """Opens the page of a command as its trail says, unless it is open already. Without secrets, the fields for them
        stay empty for now.
        """
        trail = Trail.before(effect)
        if not self._is_alive or hosts != self._hosts:
            await self.end()
            self._chromium = await self._start(hosts)
            self._hosts = hosts
            await self._open()
        if self._trail != trail:
            if trail.page:
                await self.page.goto(trail.page, wait_until="load")
                await self.settle()
                self.remarks["page_reopened"] = f"The page was opened again: {trail.page}." + (
                    " Clicks on it were not repeated." if trail.clicks else ""
                )
            self._unfilled = [number for number, one in enumerate(trail.fills) if one.secret]
            for number, one in enumerate(trail.fills):
                if number not in self._unfilled:
                    await self.fill(one.selector, one.value, select=one.select)
            self._trail = trail
        if secrets is not None:
            for number in self._unfilled:
                await self.fill(trail.fills[number].selector, secrets[f"fills.{number}"], select=False)
            self._unfilled = []

    async def answers(self) -> bool:
        """Whether the page still responds."""
        if self._page is None:
            return True
        try:
            async with asyncio.timeout(_TO_ANSWER):
                await self._page.evaluate("0")
        except TimeoutError:
            return False
        except Exception:  # an error page of the browser runs no scripts
            return self._is_alive
        return True

    def moved(self, trail: Trail) -> None:
        """The page is here now."""
        self._trail = trail

    def strayed(self) -> None:
        """A command failed, and the page may be elsewhere now: the next command opens the last one again."""
        if self.opened:
            self._trail = None

    async def fill(self, selector: str, value: str, *, select: bool) -> None:
        found = self.page.locator(selector)
        if select:
            await found.select_option(value)
        else:
            await found.fill(value)

    def begin(self) -> None:
        """Forgets what earlier commands remarked."""
        self.remarks, self.opened, self.status, self._pages = {}, False, None, 0
        self.asked.clear()
        self.downloading = False

    async def settle(self) -> None:
        """Waits until a navigation that has begun is over."""
        await asyncio.sleep(_SETTLING)
        while self._requests:
            await asyncio.sleep(0.02)
            self.check()
        await self.page.wait_for_load_state("load")
        self.check()

    def check(self) -> None:
        if self._pages > MOST_PAGES:
            raise TooManyPages

    async def save(self) -> None:
        """Keeps the cookies for a restart."""
        state = await self.context.storage_state()
        if state.get("cookies") or state.get("origins"):
            await asyncio.to_thread(_write_private, self._state, json.dumps(state))

    def forget(self) -> None:
        """Deletes what was kept for a restart."""
        self._state.unlink(missing_ok=True)

    async def end(self) -> None:
        """Ends the browser. The next command opens the page again."""
        chromium, self._chromium = self._chromium, None
        self._page = self._context = self._trail = None
        self._requests.clear()
        if chromium is not None:
            await chromium.close()

    @property
    def _is_alive(self) -> bool:
        return (
            self._chromium is not None
            and self._chromium.browser.is_connected()
            and self._page is not None
            and not self._page.is_closed()
        )

    # --- inside ---

    async def _open(self) -> None:
        assert self._chromium is not None
        kept: Any = None
        with suppress(OSError, ValueError):
            kept = json.loads(self._state.read_text())
        self._context = await self._chromium.browser.new_context(
            accept_downloads=True,
            service_workers="block",
            viewport={"width": 1280, "height": 900},
            storage_state=kept,
        )
        # Without these, a page has no way to open a connection that is not an HTTP request.
        await self._context.add_init_script(
            "for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection', 'WebTransport', 'SharedWorker'])"
            " { try { delete window[name]; } catch (error) {} }"
        )
        self._page = await self._context.new_page()
        self._context.on("page", self._another)
        self._page.on("dialog", self._dialog)
        self._page.on("download", self._download)
        self._page.on("request", self._request)
        self._page.on("framenavigated", self._navigated)
        self._page.on("response", self._response)
        for over in ("requestfinished", "requestfailed"):
            self._page.on(over, self._over)
        self._trail = Trail()

    def _another(self, page: Page) -> None:
        self._pages += 1
        if self._pages <= MOST_PAGES:
            self.remarks["page_closed"] = (
                f"The page opened another one, which was closed: {page.url}. Navigate there if it is needed."
            )
        _aside(page.close())

    def _dialog(self, dialog: Dialog) -> None:
        self.remarks["dialog_closed"] = f"The page asked in a dialog, which was dismissed: {dialog.message[:200]}"
        _aside(dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())

    def _download(self, download: Download) -> None:
        if not self.downloading:
            self.remarks["download_cancelled"] = (
                f"The page offered a file, which was not saved: {download.suggested_filename[:200]}."
                " Use `web download` to keep it."
            )
            _aside(download.cancel())

    def _request(self, request: Request) -> None:
        with suppress(Exception):
            url = parse_url(request.url.replace("ws", "http", 1) if request.url.startswith("ws") else request.url)
            self.asked.add(str(Place(url.host, url.port)))
        with suppress(Exception):
            if request.is_navigation_request() and request.frame == self.page.main_frame:
                self._requests.add(request)

    def _over(self, request: Request) -> None:
        self._requests.discard(request)

    def _response(self, response: Response) -> None:
        with suppress(Exception):
            request = response.request
            if request.is_navigation_request() and request.frame == self.page.main_frame:
                self.status = response.status

    def _navigated(self, frame: Frame) -> None:
        if self._page is not None and frame == self._page.main_frame:
            self.opened = True
            self._requests.clear()


def _aside(work: Awaitable[None]) -> None:
    async def done() -> None:
        with suppress(Exception):
            await work

    task = asyncio.ensure_future(done())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


_TASKS: set[asyncio.Task[None]] = set()


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    other = path.with_suffix(".new")
    descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    os.replace(other, path)
