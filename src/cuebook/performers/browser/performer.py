"""The performer of `Browse`: describes a command as the page is now, and performs it in the run's own browser.

A browser is started when a run first needs it, and ended when the run has waited for a while. The next command opens the
page again, as the effect itself says.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from cuebook.formats.addresses import Place, Private, Url, check_host, parse_place, parse_url
from cuebook.kernel.browser_trail import Trail, is_click
from cuebook.kernel.capabilities import BROWSER
from cuebook.kernel.effects import Browse
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed, Page
from cuebook.kernel.ports import Action, Call, Description, Limits, Sandbox
from cuebook.kernel.run import Settings
from cuebook.performers.browser import chromium, evidence
from cuebook.performers.browser.session import Session
from cuebook.performers.files.paths import name_inside
from cuebook.system.network import is_loopback

if TYPE_CHECKING:
    from playwright.async_api import Playwright

MOST = 4
"""How many browsers run at a time in one process."""
STAYS = 120.0
"""How many seconds a browser stays after its run began to wait."""
_KEPT = 7 * 24 * 3600.0
"""How many seconds cookies are kept for a run that waits."""
_TO_REACH = 90.0
"""How many seconds to start a browser and to get back to a page."""
_TO_LOOK = 10.0
"""How many seconds to wait for an element that someone is asked about."""
_MEMORY = 2 << 30
_TOOL = "browser:{}"
_DEAD = ("timeout", "browser_failed", "too_many_pages")
"""The failures after which the browser is ended, so that the next step opens the page again."""
PASSIVE = ("fill", "select", "wait", "extract", "snapshot")
"""The commands for a page that is open already. Rules that deny its hosts apply to them; rules that ask do not."""


def no_private(host: str, port: int) -> bool:
    return False


class BadPage(BadInput):
    """The command cannot be performed."""

    code = "bad_request"


class BrowserPerformer:
    """Performs the commands of all runs of this process."""

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Callable[[], Path],
        states: Path,
        environ: Mapping[str, str],
        *,
        private: Private = no_private,
        stays: float = STAYS,
    ) -> None:
        self._sandbox = sandbox
        self._workspace = workspace
        self._states = states
        self._environ = environ
        self._private = private
        self._stays = stays
        self._playwright: Playwright | None = None
        self._starting = asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._used: dict[str, float] = {}
        self._ending: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def needs(self, effect: Browse, settings: Settings) -> tuple[str, ...]:
        return (BROWSER,)

    # --- before ---

    async def outline(self, effect: Browse, settings: Settings) -> Description | Failed:
        missing = chromium.problem(self._sandbox, self._environ)
        if missing is not None:
            return Failed.of(missing)
        try:
            return self._outlined(effect)
        except BadInput as refused:
            return Failed.of(refused)

    async def describe(self, effect: Browse, settings: Settings) -> Description | Failed:
        """The description without the page, for a preview of the run."""
        outlined = await self.outline(effect, settings)
        return outlined if isinstance(outlined, Failed) else self._with_preview(effect, outlined, {})

    async def observe(self, effect: Browse, settings: Settings, run: str) -> Description | Failed:
        outlined = await self.outline(effect, settings)
        if isinstance(outlined, Failed) or not effect.page:
            return outlined if isinstance(outlined, Failed) else self._with_preview(effect, outlined, {})
        session = self._session(run)
        async with session.lock:
            session.begin()
            try:
                async with asyncio.timeout(_TO_REACH):
                    await session.reach(effect, self._hosts(effect), None)
                    shown, digest = await self._seen(session, effect)
            except Exception as error:
                return await self._failed(error, session, effect, _TO_REACH, acted=False)
        described = self._with_preview(effect, outlined, shown)
        return msgspec.structs.replace(described, bound={**described.bound, "page": digest})

    async def _seen(self, session: Session, effect: Browse) -> tuple[dict[str, str], str]:
        """What an approver sees of the page, and its digest."""
        secret = [one.selector for one in effect.fills if one.secret]
        shown = {"page": f"{await session.page.title()}\n{session.page.url}".strip()}
        if selector := effect.arguments.get("selector"):
            seconds = min(effect.timeout or _TO_LOOK, _TO_LOOK)
            shown["element"] = await evidence.element(session.page, str(selector), seconds)
        outline, digest = await evidence.outline(session.page, secret)
        return {**shown, "the page now": outline}, digest

    def _outlined(self, effect: Browse) -> Description:
        action = effect.action
        target = effect.arguments.get("url") or effect.arguments.get("selector") or ""
        places = self._places(effect)
        if any(use.at == "value" for use in effect.secrets):
            self._check_secret(effect)
        actions = [Action("tool", _TOOL.format(action), reads_only=not is_click(effect))]
        actions += [Action("egress", f"CONNECT {place.url.place}") for place in places]
        if "to" in effect.arguments:
            actions.append(Action("file", f"write:{name_inside(self._workspace(), str(effect.arguments['to']))}"))
        new_secret = any(use.at == "value" for use in effect.secrets)
        return Description(
            tuple(actions),
            f"Browser: {action} {target}".rstrip(),
            bound={"network": [str(place) for place in places]},
            harmless=action in PASSIVE and not new_secret,
        )

    def _with_preview(self, effect: Browse, description: Description, shown: dict[str, str]) -> Description:
        made = {"command": description.summary.removeprefix("Browser: ")}
        uses = {use.at: use.form.replace("{}", f"[secret {use.handle}]") for use in effect.secrets}
        if "value" in effect.arguments or "value" in uses:
            made["value"] = uses.get("value") or str(effect.arguments.get("value", ""))
        if effect.fills:
            made["filled in"] = "\n".join(
                f"{one.selector}: {one.form.replace('{}', f'[secret {one.secret}]') if one.secret else one.value}"
                for one in effect.fills
            )
        if effect.action == "download":
            made["download"] = f"to the file {effect.arguments.get('download', 'download')} of this run"
        if "to" in effect.arguments:
            made["saved as"] = str(effect.arguments["to"])
        made["network"] = f"only {', '.join(description.bound['network'])}"
        return msgspec.structs.replace(description, preview={**made, **shown})

    def _check_secret(self, effect: Browse) -> None:
        url = parse_url(effect.page) if effect.page else None
        if url is not None and url.scheme == "http" and not is_loopback(url.host):
            raise BadPage(
                f"A secret would be filled into {url.origin}, which is not encrypted.",
                fix="Use https, or remove the secret.",
            )

    def _places(self, effect: Browse) -> list[Place]:
        """The hosts that the browser may reach. Raises `BadInput` for one that it must not reach."""
        found = {parse_place(host) for host in effect.network}
        for given in (effect.arguments.get("url"), effect.page):
            if given:
                found.add(_place(parse_url(str(given))))
                break
        if not found:
            raise BadPage(f"There is no page to {effect.action}.", fix="Open one first: `web navigate URL`.")
        for place in sorted(found):
            check_host(place.url, self._private)
        return sorted(found)

    def _hosts(self, effect: Browse) -> tuple[str, ...]:
        return tuple(map(str, self._places(effect)))

    # --- performing ---

    async def perform(self, effect: Browse, call: Call) -> Page | Failed:
        from cuebook.performers.browser.commands import performed  # which needs Playwright

        session = self._session(call.run)
        doing: list[Literal["acting"]] = []
        async with session.lock:
            session.begin()
            before = set(session.refused)
            try:
                secrets = call.secrets() if effect.secrets else {}
                async with asyncio.timeout(_TO_REACH):  # which is not part of the step's own time
                    await session.reach(effect, self._hosts(effect), secrets)
                session.opened = False
                async with asyncio.timeout(call.limits.seconds):
                    page = await performed(session, effect, secrets, call, self._workspace(), doing)
                    await session.save()
            except asyncio.CancelledError:
                await session.end()
                raise
            except Exception as error:
                return await self._failed(error, session, effect, call.given, acted=bool(doing))
            finally:
                for code, message in session.remarks.items():
                    call.warn(code, call.masked(message))
            blocked = sorted((set(session.refused) - before) & session.asked)
            if blocked:
                call.warn("host_refused", f"The page asked for hosts that are not allowed: {', '.join(blocked)}.")
            session.moved(Trail.before(effect).after(effect, page))
        return page

    async def _failed(
        self, error: Exception, session: Session, effect: Browse, seconds: float, *, acted: bool
    ) -> Failed:
        from cuebook.performers.browser.failures import failure_of

        failed = failure_of(error, session, effect, seconds, acted=acted)
        if failed is None:
            raise error
        if failed.code not in _DEAD and not acted and not await session.answers():
            message = f"The page did not respond within {seconds:g} s."
            failed = msgspec.structs.replace(failed, code="timeout", message=message, fix="Check the page.")
        if acted or failed.code in _DEAD:
            await session.end()
        session.strayed()
        return failed

    # --- browsers ---

    def _session(self, run: str) -> Session:
        handle = self._ending.pop(run, None)
        if handle is not None:
            handle.cancel()
        self._used[run] = time.monotonic()
        if run not in self._sessions:

            async def start(hosts: tuple[str, ...]) -> chromium.Chromium:
                return await self._started(run, hosts)

            self._sessions[run] = Session(start, self._states / f"{run}.json")
        return self._sessions[run]

    async def _started(self, run: str, hosts: tuple[str, ...]) -> chromium.Chromium:
        missing = chromium.problem(self._sandbox, self._environ)
        if missing is not None:
            raise missing
        async with self._starting:
            idle = [one for one in self._sessions if one != run and not self._sessions[one].lock.locked()]
            for one in sorted(idle, key=self._used.__getitem__)[: max(0, len(self._sessions) - MOST)]:
                await self._end(one)
            if self._playwright is None:
                from playwright.async_api import async_playwright

                self._playwright = await async_playwright().start()
            _prune(self._states)
            limits = Limits(seconds=0, cpu_seconds=24 * 3600, memory=_MEMORY, processes=256, open_files=4096)
            return await chromium.start(self._playwright, self._sandbox, hosts, self._environ, limits)

    async def leave(self, run: str) -> None:
        """Ends the browser of a run that waits or has ended, unless the run goes on soon."""
        if run in self._sessions and run not in self._ending:
            loop = asyncio.get_running_loop()
            self._ending[run] = loop.call_later(self._stays, lambda: self._aside(run))

    def _aside(self, run: str) -> None:
        self._ending.pop(run, None)
        task = asyncio.ensure_future(self._end(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, run: str) -> None:
        session = self._sessions.pop(run, None)
        self._used.pop(run, None)
        if session is not None:
            async with session.lock:
                await session.end()

    async def close(self) -> None:
        for handle in self._ending.values():
            handle.cancel()
        for session in list(self._sessions.values()):
            await session.end()
        self._sessions.clear()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None


def _place(url: Url) -> Place:
    return Place(url.host, url.port)


def _prune(states: Path) -> None:
    """Deletes the cookies of runs that have not used their browser for a long time."""
    if not states.is_dir():
        return
    for path in states.iterdir():
        try:
            if path.stat().st_mtime < time.time() - _KEPT:
                os.unlink(path)
        except OSError:
            continue
