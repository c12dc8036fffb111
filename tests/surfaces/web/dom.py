"""A page as a browser has it: elements by id, changed by the events of the stream as the page's script changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import Any

from tests.surfaces.web.served_app import Sse

_VOID = ("input", "link", "meta", "br", "hr", "wbr")


class Element:
    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []
        self.parent: Element | None = None

    @property
    def id(self) -> str:
        return self.attributes.get("id") or ""

    def add(self, child: Element | str, at: int | None = None) -> None:
        if isinstance(child, Element):
            child.parent = self
        self.children.insert(len(self.children) if at is None else at, child)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, tag: str, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.walk()
            if one.tag == tag and all(one.attributes.get(name.strip("_")) == v for name, v in attributes.items())
        ]

    @property
    def words(self) -> str:
        """Its text, with whitespace collapsed as in HTML."""
        return " ".join(" ".join(one if isinstance(one, str) else one.words for one in self.children).split())

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    def lines(self, depth: int = 0, *, exact: bool = False) -> Iterator[str]:
        exact = exact or self.tag == "pre"
        named = [name if value is None else f"{name}={value!r}" for name, value in sorted(self.attributes.items())]
        yield " " * depth + " ".join([self.tag, *named])
        loose = ""
        for child in [*self.children, None]:
            if isinstance(child, str):
                loose += child
                continue
            if loose.strip():
                yield " " * depth + " " + (repr(loose) if exact else " ".join(loose.split()))
            loose = ""
            if child is not None:
                yield from child.lines(depth + 1, exact=exact)


class _Parser(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._open = Element("", {})
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs))
        self._open.add(made)
        if tag not in _VOID:
            self._open = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.add(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        one: Element | None = self._open
        while one is not None and one.tag != tag:
            one = one.parent
        if one is not None and one.parent is not None:
            self._open = one.parent

    def handle_data(self, data: str) -> None:
        self._open.add(data)


class LivePage:
    def __init__(self, html: str, events: Sequence[Sse] = ()) -> None:
        self.html = html
        self.root = _Parser(html).root
        for event in events:
            self._take(event)

    @property
    def after(self) -> str:
        """The position at which the page's stream continues."""
        return str(self.root.find("body")[0].attributes["data-after"])

    def by_id(self, id: str) -> Element | None:
        return next((one for one in self.root.walk() if one.id == id), None)

    def __getitem__(self, id: str) -> Element:
        found = self.by_id(id)
        assert found is not None, f"nothing has the id {id}"
        return found

    @property
    def main(self) -> list[str]:
        """The content of the page, to compare it with another."""
        return list(self["main"].lines())

    # --- as live.js and dom.js do it ---

    def _take(self, event: Sse) -> None:
        data = event.data
        if event.event == "step-content":
            self._append(data["step"], data["content"])
        elif event.event == "variable-update":
            self._show(data["name"], data["value"])
        elif event.event == "step-block":
            self._split(**data)
            return
        for part in _outermost(_Parser(data.get("html", "")).root):
            self._place(part)

    def _place(self, part: Element) -> None:
        there = self.by_id(part.id)
        if "data-gone" in part.attributes:
            if there is not None and there.parent is not None:
                there.parent.children.remove(there)
            return
        if there is not None and there.parent is not None:
            for kept, new in zip(_within(there), _within(part), strict=False):
                part.children[part.children.index(new)] = kept
                kept.parent = part
            at = there.parent.children.index(there)
            there.parent.children[at] = part
            part.parent = there.parent
            return
        into = self.by_id(part.attributes.get("data-into") or "")
        if into is None:
            return
        if "data-after" not in part.attributes:
            into.add(part)
            return
        before = self.by_id(part.attributes["data-after"] or "")
        into.add(part, into.children.index(before) + 1 if before is not None and before.parent is into else 0)

    def _append(self, step: str, content: str) -> None:
        text = self.by_id(f"text-{step}")
        if text is None or text.find("div", class_="rendered"):
            return
        tails = text.find("pre", class_="tail")
        if not tails:
            text.children = []
            text.add(Element("pre", {"class": "tail"}))
            tails = text.find("pre", class_="tail")
        tails[0].add(content)

    def _split(self, step: str, html: str, first: int, rest: str) -> None:
        text = self.by_id(f"text-{step}")
        tails = text.find("pre", class_="tail") if text is not None else []
        blocks = self.by_id(f"blocks-{step}")
        if text is None or not tails or (len(blocks.children) if blocks is not None else 0) < first:
            return
        if blocks is None:
            text.add(Element("div", {"class": "blocks", "id": f"blocks-{step}"}), 0)
        for part in _outermost(_Parser(html).root):
            self._place(part)
        said = Element("span", {"class": "said"})
        said.add(tails[0].text.removesuffix(rest))
        tails[0].children = []
        tails[0].add(said)
        tails[0].add(rest)

    def _show(self, name: str, value: Any) -> None:
        if self.by_id(f"var-{name}") is None:
            html = f'<li id="var-{name}" data-part data-into="variables"><b>{name}</b><pre tabindex="0"></pre></li>'
            self["variables"].add(_outermost(_Parser(html).root)[0])
        shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        self[f"var-{name}"].find("pre")[0].children = [shown]


def _within(card: Element) -> list[Element]:
    """The element of a card that has its sub-steps."""
    return [one for one in card.children if isinstance(one, Element) and one.attributes.get("class") == "within"]


def _outermost(one: Element) -> list[Element]:
    if "data-part" in one.attributes:
        return [one]
    return [part for child in one.children if isinstance(child, Element) for part in _outermost(child)]
