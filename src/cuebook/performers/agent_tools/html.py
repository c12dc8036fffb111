"""Converts HTML to readable text: what a reader would see, and the URLs of links. It does not use the network."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

SECONDS = 5.0
"""A page that takes longer to convert was made to be slow."""

_DROPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "math", "select", "dialog"}
)
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"),
        *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "summary", "table", "tr", "ul"),
    }
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
_OPEN_ENDED = ("p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "option", "body", "html")
_ENDLESS = frozenset({*_VOID, *_OPEN_ENDED})
"""Elements that have no end tag or need none, so the end of a hidden element is unknown."""


def readable(html: str, url: str = "") -> str:
    """The text of a page. Links are shown as `text (URL)`."""
    page = _Page(url)
    try:
        page.feed(html)
        page.close()
    except _TooSlow:
        page.note("[the rest of the page could not be read in time]")
    return page.text()


class _TooSlow(Exception):
    pass


class _Page(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._end = time.monotonic() + SECONDS
        self._dropping: list[str] = []
        """The element that is being left out, and the elements of the same name inside it."""
        self._pre = 0
        self._title: list[str] | None = None
        self._heading = ""
        self._links: list[str] = []
        self._parts: list[str] = []

    def text(self) -> str:
        body = "".join(self._parts)
        body = re.sub(r"[ \t]+\n", "\n", body)
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        return f"{self._heading}\n\n{body}".strip() if self._heading else body

    def note(self, text: str) -> None:
        self._parts.append(f"\n\n{text}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check()
        if tag == "title" and not self._heading:
            self._title = []
            return
        given = dict(attrs)
        if self._dropping:
            if tag == self._dropping[0]:
                self._dropping.append(tag)
            return
        if tag in _DROPPED or (tag not in _ENDLESS and _is_hidden(given)):
            self._dropping.append(tag)
            return
        if tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            self._parts.append("\t")
        elif tag == "img" and given.get("alt"):
            self._words(f"[{given['alt']}]")
        elif tag == "a":
            self._links.append(self._address(given.get("href")))
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")
            if tag == "li":
                self._parts.append("- ")
            if tag in _HEADINGS:
                self._parts.append(f"{_HEADINGS[tag]} ")
            self._pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._check()
        if tag == "title" and self._title is not None:
            self._heading = " ".join("".join(self._title).split())[:300]
            self._title = None
            return
        if self._dropping:
            if tag == self._dropping[0]:
                self._dropping.pop()
            return
        if tag == "a" and self._links:
            address = self._links.pop()
            if address:
                self._parts.append(f" ({address})")
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")
            self._pre = max(0, self._pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        self._check()
        if self._title is not None:
            self._title.append(data)
        elif not self._dropping:
            self._words(data)

    def _words(self, data: str) -> None:
        if self._pre:
            self._parts.append(data)
            return
        words = " ".join(data.split())
        if not words:
            words = " " if data else ""
        else:
            words = f"{' ' if data[0].isspace() else ''}{words}{' ' if data[-1].isspace() else ''}"
        before = self._parts[-1] if self._parts else "\n"
        self._parts.append(words.lstrip() if before.endswith(("\n", " ", "\t")) else words)

    def _address(self, href: str | None) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            address = urljoin(self._url, href.strip())
            return address if urlsplit(address).scheme in ("http", "https", "mailto") else ""
        except ValueError:
            return ""

    def _check(self) -> None:
        # Some malformed pages take quadratic time.
        if time.monotonic() > self._end:
            raise _TooSlow


def _is_hidden(given: dict[str, str | None]) -> bool:
    # Text that a reader would not see can hide instructions to a model.
    return "hidden" in given or given.get("aria-hidden") == "true" or bool(_HIDDEN.search(given.get("style") or ""))
