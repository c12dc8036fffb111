"""The playbooks that a Markdown playbook starts with `@tool(playbook, NAME, {...})`. Pure."""

from __future__ import annotations

from cuebook.dialects.children import ChildUse
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.run.placeholders import placeholders
from cuebook.dialects.markdown.run.tools import PLAYBOOK, fill
from cuebook.kernel.errors import BadInput


def children(book: Book) -> tuple[ChildUse, ...]:
    return tuple(_uses(book))


def _uses(book: Book) -> list[ChildUse]:
    found = []
    for step in book.walk():
        use = step.tool
        if use is None or use.connection != PLAYBOOK:
            continue
        named = [place.name for place in placeholders(use.arguments)]
        try:
            given, other = (fill(use.arguments, dict.fromkeys(named, one), {}).arguments for one in ("1", "2"))
        except BadInput:  # reported as a problem of the arguments
            continue
        known = {name: value for name, value in given.items() if name in other and other[name] == value}
        found.append(ChildUse(use.tool, step.label, use.line, tuple(given), known))
    return found
