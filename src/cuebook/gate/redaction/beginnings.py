"""How forms begin, as one regular expression: it leads a search quickly to the few places that need a closer look."""

from __future__ import annotations

import re

from cuebook.gate.redaction.forms import Form
from cuebook.gate.redaction.spellings import Node


def beginning_of(forms: list[Form], ahead: int) -> re.Pattern[str]:
    """Matches wherever one of the forms may begin, as far as so many characters tell; so it does where the text ends before."""
    return re.compile(_pattern(_tree(forms, ahead), top=True))


class _Beginning:
    """A tree of how forms begin. At a leaf, a closer look is needed."""

    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Beginning] = {}
        self.leaf = False

    def then(self, char: str) -> _Beginning:
        return self.next.setdefault(char, _Beginning())


def _tree(forms: list[Form], ahead: int) -> _Beginning:
    root = _Beginning()
    seen: set[Node] = set()
    for form in forms:
        if form.units[0] not in seen:
            seen.add(form.units[0])
            _add_escapes(root, form.units[0], ahead)
        _add_plain(root, form, 0, ahead)
    return root


def _add_escapes(place: _Beginning, node: Node, ahead: int, *, first: bool = True) -> None:
    for char, after in node.next.items():
        if first and not after.next:
            continue
        reached = place.then(char)
        if ahead == 1 or (after.ends and not first):
            reached.leaf = True
        else:
            _add_escapes(reached, after, ahead - 1, first=False)


def _add_plain(place: _Beginning, form: Form, unit: int, ahead: int) -> None:
    if ahead == 0 or unit == len(form.units):
        place.leaf = True
        return
    for char, after in form.units[unit].next.items():
        if after.ends:
            _add_plain(place.then(char), form, unit + 1, ahead - 1)
        if after.next and unit:
            place.then(char).leaf = True
    if unit:
        for char in {char for gap in form.gap(unit) for char in gap.next}:
            place.then(char).leaf = True


def _pattern(place: _Beginning, *, top: bool = False) -> str:
    """A regular expression for the tree, in which a text may also end anywhere."""
    if place.leaf:
        return ""
    alike: dict[str, list[str]] = {}
    for char, after in place.next.items():
        alike.setdefault(_pattern(after), []).append(re.escape(char))
    if top:
        # The regular expression engine skips quickly to one of several first characters when they stand alone.
        choices = [f"{char}{rest}" for rest, chars in alike.items() for char in chars]
    else:
        choices = [f"[{''.join(chars)}]{rest}" for rest, chars in alike.items()]
        choices.append(r"\Z")
    return f"(?:{'|'.join(choices)})"
