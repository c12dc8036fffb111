"""A browser profile that is signed in and records what its pages try to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Locator, Page, Request, expect

expect.set_options(timeout=20_000)

_INSIDE = ("data", "blob", "about")

# The structure of a page's main part, without transient details: the spaces between elements, a colour that fades, and the
# words for a time of day.
DOM = """() => {
  const lines = [];
  const walk = (node, depth, pre) => {
    const pad = ' '.repeat(depth);
    if (node.nodeType === Node.TEXT_NODE) {
      const words = pre ? node.data : node.data.replace(/\\s+/g, ' ').trim();
      if (words.trim()) lines.push(pad + JSON.stringify(words));
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || node.id === 'connection') return;
    const skipped = node.localName === 'time' ? ['title'] : [];
    const attributes = [...node.attributes]
      .filter(({ name, value }) => !skipped.includes(name) && !(name === 'class' && ['', 'pulse'].includes(value)))
      .map(({ name, value }) => `${name}=${JSON.stringify(value)}`).sort();
    lines.push(pad + ['<' + node.localName, ...attributes].join(' ') + '>');
    if (node.localName === 'time') return;
    for (const child of node.childNodes) walk(child, depth + 1, pre || node.localName === 'pre');
  };
  walk(document.querySelector('main'), 0, false);
  return lines.join('\\n');
}"""


class BrowserProfile:
    """A browser profile. It records all requests of its pages to other servers, and every script error."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address
        self._own = {address}
        self.foreign: list[str] = []
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        context.set_default_timeout(20_000)
        context.on("request", self._asked)
        context.on("dialog", self._talked)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("console", self._said)

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in _INSIDE and f"{parts.scheme}://{parts.netloc}" not in self._own:
            self.foreign.append(request.url)

    def move(self, address: str) -> None:
        """Use this server for new pages; open pages keep theirs."""
        self.address = address
        self._own.add(address)

    async def _talked(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    async def page(self, path: str = "") -> Page:
        """A new tab on a path of the server."""
        page = await self.context.new_page()
        if path:
            await self.go(page, path)
        return page

    async def go(self, page: Page, path: str) -> int:
        """Opens a path in a tab and returns the status."""
        response = await page.goto(f"{self.address}{path}")
        assert response is not None
        return response.status

    def check(self) -> None:
        """Check that no request went elsewhere, no unwanted script ran, and no script of ours failed."""
        wrong = {"asked elsewhere": self.foreign, "dialogs": self.dialogs, "errors": self.errors}
        assert not any(wrong.values()), wrong

    @staticmethod
    async def opened(browser: Browser, link: str, **options: Any) -> BrowserProfile:
        """A profile that has signed in with a start link."""
        parts = urlsplit(link)
        context = await browser.new_context(accept_downloads=True, **options)
        profile = BrowserProfile(context, f"{parts.scheme}://{parts.netloc}")
        page = await context.new_page()
        await page.goto(link)
        await page.close()
        return profile


OpenProfile = Callable[..., Awaitable[BrowserProfile]]
"""Opens a profile on the served app, with the options of a browser context."""


async def dom(page: Page) -> str:
    """The current page, to compare it with another."""
    return str(await page.evaluate(DOM))


async def expect_status(page: Page, status: str) -> None:
    await expect(page.locator("#run-status")).to_have_attribute("data-status", status)


def head(page: Page, key: str) -> Locator:
    """The head of a step's card."""
    return page.locator(f'[id="head-{key}"]')


def text(page: Page, key: str) -> Locator:
    """The output on a step's card."""
    return page.locator(f'[id="text-{key}"]')
