"""The commands that a page understands. Each returns the text of its result; the page after it is the same for all."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Download, Error, Locator

from cuebook.kernel.browser_trail import is_click
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Browse
from cuebook.kernel.files import FileRef
from cuebook.kernel.outcomes import Page
from cuebook.kernel.ports import Action, Call
from cuebook.performers.browser import evidence
from cuebook.performers.browser.failures import (
    AnsweredWithError,
    HostRefused,
    NoElement,
    NotDownloaded,
    Refused,
    Unreachable,
)
from cuebook.performers.browser.session import Session
from cuebook.performers.files import spool
from cuebook.performers.files.paths import open_inside, write_inside

MOST_DOWNLOADED = 1 << 30
MOST_ITEMS = 10_000
_SHOWING = ("navigate", "click", "snapshot", "download")
"""The commands that show or change the page, so that its elements and a picture are kept."""
_MOVES = 3
"""How many times in a row a page may go on by itself while it is read."""
_MOVING = ("context was destroyed", "page is navigating", "Frame was detached")
_ON_ITS_OWN = (
    "() => { const one = document.createElement('a'); one.href = location.href; one.download = '';"
    " document.body.append(one); one.click(); one.remove(); }"
)

Acting = list[Literal["acting"]]


async def performed(
    session: Session, effect: Browse, secrets: Mapping[str, str], call: Call, workspace: Path, acting: Acting
) -> Page:
    """Performs a command, and returns the page after it. `acting` gets an entry before anything is clicked."""
    session.page.set_default_timeout(max(call.limits.seconds * 1000 - 300, 200))
    command = _COMMANDS[effect.action]
    doing = _Doing(session, effect, secrets, call, workspace, acting)
    result = await command(doing)
    for _ in range(_MOVES):
        try:
            return await _page_after(doing, result)
        except Error as error:
            if not any(words in error.message for words in _MOVING):
                raise
            await session.settle()  # the page went on by itself while it was read
    return await _page_after(doing, result)


async def _page_after(doing: _Doing, result: str | None) -> Page:
    session, effect, call = doing.session, doing.effect, doing.call
    _check_place(session)
    page = session.page
    text = await evidence.text(page) if result is None else result
    clean = call.masked(text)
    raw = clean.encode("utf-8", "replace")
    cut = len(raw) > call.limits.output
    if cut:
        call.warn("output_cut", f"The text has {len(raw):,} bytes; the first {call.limits.output:,} are kept.")
    kept: dict[str, Any] = {}
    if effect.action in _SHOWING:
        html, html_cut = await evidence.html(page)
        picture = await evidence.picture(page, call.masked)
        if picture is None:
            call.warn("no_picture", "The page changed too fast to cover its secrets, so no picture was kept.")
        kept = {"html": html, "html_truncated": html_cut, "picture": picture}
    return Page(
        page.url,
        await page.title(),
        Text(raw[: call.limits.output].decode("utf-8", "ignore") if cut else clean),
        status=session.status if session.opened else None,
        elements=await evidence.elements(page, effect.looks),
        opened=session.opened,
        truncated=cut,
        size=len(raw) if cut else 0,
        files=tuple(doing.files),
        **kept,
    )


class _Doing:
    """A command under way."""

    def __init__(
        self,
        session: Session,
        effect: Browse,
        secrets: Mapping[str, str],
        call: Call,
        workspace: Path,
        acting: Acting,
    ) -> None:
        self.session, self.effect, self.call, self.workspace = session, effect, call, workspace
        self.secrets, self._acting = secrets, acting
        self.given = effect.arguments
        self.page = session.page
        self.files: list[FileRef] = []
        """The files that it has stored."""

    @property
    def selector(self) -> str:
        return str(self.given["selector"])

    def begin(self) -> None:
        """From here on, nobody can tell whether it happened unless it reports so."""
        if is_click(self.effect):
            self._acting.append("acting")

    async def found(self) -> Locator:
        """The element, once there is exactly one and it can be used."""
        locator = self.page.locator(self.selector)
        try:
            await locator.wait_for(state="visible")
        except Error as error:
            raise NoElement(self.selector, error) from None
        return locator


async def _navigate(doing: _Doing) -> None:
    session, url = doing.session, str(doing.given["url"])
    try:
        response = await doing.page.goto(url, wait_until="load")
    except Error as error:
        _check_place(session, url)
        raise Unreachable(url, error) from None
    await session.settle()
    session.opened = True
    if response is not None and session.status is None:
        session.status = response.status


async def _click(doing: _Doing) -> None:
    locator = await doing.found()
    try:
        await locator.click(trial=True)
    except Error as error:
        raise NoElement(doing.selector, error) from None
    doing.begin()
    await locator.click(no_wait_after=True)
    await doing.session.settle()


async def _fill(doing: _Doing) -> str:
    await doing.found()
    value = doing.secrets.get("value", str(doing.given.get("value", "")))
    try:
        await doing.session.fill(doing.selector, value, select=doing.effect.action == "select")
    except Error as error:
        raise NoElement(doing.selector, error) from None
    return ""


async def _wait(doing: _Doing) -> str:
    state = str(doing.given.get("state", "visible"))
    locator = doing.page.locator(doing.selector)
    if "text" in doing.given:
        locator = locator.filter(has_text=str(doing.given["text"]))
    try:
        await locator.first.wait_for(state=state)  # type: ignore[arg-type]
    except Error as error:
        raise NoElement(doing.selector, error) from None
    await doing.session.settle()
    return "" if state in ("hidden", "detached") else str(await locator.first.inner_text())


async def _extract(doing: _Doing) -> str:
    given = doing.given
    locator = doing.page.locator(doing.selector)
    several = bool(given.get("all")) or "fields" in given
    if not several:
        try:
            await locator.first.wait_for(state="attached")
        except Error as error:
            raise NoElement(doing.selector, error) from None
        return await _value(locator.first, given.get("attribute"))
    every = await locator.all()
    if len(every) > MOST_ITEMS:
        raise Refused(
            "too_large", f"There are {len(every):,} elements; at most {MOST_ITEMS:,} can be extracted at once."
        )
    if "fields" not in given:
        return json.dumps([await _value(one, given.get("attribute")) for one in every], ensure_ascii=False)
    rows = []
    for one in every:
        row: dict[str, str | None] = {}
        for name, selector in given["fields"].items():
            inside = one.locator(str(selector))
            row[name] = await _value(inside.first, None) if await inside.count() else None
        rows.append(row)
    return json.dumps(rows, ensure_ascii=False)


async def _value(locator: Locator, attribute: Any) -> str:
    if attribute:
        return await locator.get_attribute(str(attribute)) or ""
    return str(
        await locator.evaluate(
            "one => ['INPUT', 'TEXTAREA', 'SELECT'].includes(one.tagName) ? String(one.value) : one.innerText ?? one.textContent"
        )
    )


async def _snapshot(doing: _Doing) -> None:
    return None


async def _download(doing: _Doing) -> str:
    to = doing.given.get("to")
    refused = doing.call.permits(Action("file", f"write:{to}")) if to is not None else None
    if refused is not None:
        raise Refused(refused.code, refused.message, refused.fix)
    locator = await doing.found() if "selector" in doing.given else None
    doing.session.downloading = True
    try:
        async with doing.page.expect_download() as info:
            if locator is not None:
                doing.begin()
                await locator.click(no_wait_after=True)
            else:
                await _open_download(doing)
        download = await info.value
        path = await _finished(doing.session, download)
    except Error as error:
        url, status = str(doing.given.get("url", "")), doing.session.status or 0
        _check_place(doing.session, url)
        if status >= 400:
            raise AnsweredWithError(url or doing.page.url, status) from None
        raise NotDownloaded(error) from None
    file = await _stored(doing, path, download.suggested_filename)
    more = {}
    if to is not None:
        await _written(doing, file, str(to))
        more["file"] = str(to)
    return json.dumps({"filename": file.filename, **more, "bytes": file.size, "sha256": file.digest})


async def _finished(session: Session, download: Download) -> str:
    """The path of the file, once all of it is there."""
    ending = asyncio.ensure_future(download.path())
    try:
        while not ending.done():
            await asyncio.wait({ending}, timeout=0.25)
            if await asyncio.to_thread(_size_of, session.chromium.downloads) > MOST_DOWNLOADED:
                raise Refused("too_large", f"The file has more than {MOST_DOWNLOADED:,} bytes.", "Make it smaller.")
        return str(await ending)
    finally:
        if not ending.done():
            ending.cancel()
            await download.cancel()


def _size_of(folder: str) -> int:
    size = 0
    for entry in os.scandir(folder):
        try:
            size += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:  # it was renamed meanwhile
            continue
    return size


async def _stored(doing: _Doing, path: str, suggested: str) -> FileRef:
    """Puts a downloaded file into the store, unless it contains a secret."""
    folder, name = doing.session.chromium.folder, str(doing.given.get("download") or "download")
    filename = "".join(one for one in os.path.basename(suggested) if one.isprintable())[:200] or name
    try:
        descriptor = open_inside(Path(folder), str(Path(path).relative_to(folder)), os.O_RDONLY)
        file = await spool.kept(doing.call.files, name, descriptor, filename)
    finally:
        os.unlink(path)
    doing.files.append(file)
    return file


async def _written(doing: _Doing, file: FileRef, to: str) -> None:
    """Writes a stored file to the workspace: what was searched for secrets, not what the browser may have changed since."""
    with tempfile.TemporaryFile(prefix="cuebook-file-") as copy:
        await spool.written(doing.call.files, file, os.dup(copy.fileno()))
        copy.seek(0)
        await asyncio.to_thread(write_inside, doing.workspace, to, copy, parents=True)


async def _open_download(doing: _Doing) -> None:
    url = str(doing.given["url"])
    try:
        response = await doing.page.goto(url, wait_until="load")
    except Error as error:
        if "Download is starting" not in error.message:
            raise Unreachable(url, error) from None
        return
    if response is not None and response.status >= 400:
        raise AnsweredWithError(url, response.status)
    await doing.page.evaluate(_ON_ITS_OWN)  # the server shows it as a page


_COMMANDS: dict[str, Callable[[_Doing], Awaitable[str | None]]] = {
    "navigate": _navigate,
    "click": _click,
    "fill": _fill,
    "select": _fill,
    "wait": _wait,
    "extract": _extract,
    "snapshot": _snapshot,
    "download": _download,
}


def _check_place(session: Session, url: str = "") -> None:
    """Raises `HostRefused` if the page went where it must not go."""
    from cuebook.formats.addresses import BadUrl, Place, parse_url

    for given in (session.page.url, url):
        try:
            parsed = parse_url(given)
        except BadUrl:
            continue
        if str(Place(parsed.host, parsed.port)) in session.refused:
            raise HostRefused(str(Place(parsed.host, parsed.port)))
    if session.page.url.startswith("chrome-error:"):
        if session.refused:
            raise HostRefused(session.refused[-1])
        raise Unreachable(url or "the page", None)
