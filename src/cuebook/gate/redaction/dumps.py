"""How tools print bytes in hex: separated, in groups, and in numbered lines with the characters beside them.

It knows layouts, and nothing of secrets. Every layout is bounded, so that a search through it is.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

from cuebook.gate.redaction.spellings import BREAKS, Node

_WIDEST = 96
"""Characters beside the digits of one line that are looked through."""
_OFFSET = 16
"""Digits of a line's number."""
_HEX = "0123456789abcdefABCDEF"

_MARKS = (":", "-", ",", ";", "_", "|", " ", ".", "\t", "\\t")
_PREFIXES = ("", "0x", "0X")
_FOLDS = ("\n", "\r\n", "\\n")
_INDENTS = (*(" " * count for count in range(9)), "\t")


class _Printable(dict[str, Node]):
    """Leads on with every character that a dump shows, but for those that it has a place for."""

    def __init__(self, rest: Node | None) -> None:
        super().__init__()
        self._rest = rest

    def get(self, char: str, default: Any = None) -> Any:
        return super().get(char, self._rest if " " <= char <= "~" else default)

    def __bool__(self) -> bool:
        return True


def _numbered_line(escaped: bool) -> Node:
    """The rest of a line of a dump (blanks, and characters between bars or without), and the number of the next one; or
    the same within JSON.
    """
    after, beside = _number(), None
    fold, begins = ("\\", _leading({"n": after})) if escaped else ("\n", after)
    for _ in range(_WIDEST):
        rest, beside = beside, _with(_Printable(beside))
        beside.next[fold] = begins
        if escaped:
            beside.next[fold] = _with(_Printable(rest))
            beside.next[fold].next["n"] = after
    assert beside is not None
    return _leading({" ": _leading({" ": beside, fold: begins}), fold: begins})


def _number() -> Node:
    """The offset at the beginning of a line, as in `00000010: ` or `0000020 `."""
    end = _leading({})
    end.ends = True
    blank = _leading({" ": end})
    blank.ends = True
    colon = _leading({" ": blank})
    place = _leading({" ": blank, ":": colon})
    for _ in range(_OFFSET - 1):
        place = _leading({" ": blank, ":": colon, **dict.fromkeys(_HEX, place)})
    return _leading(dict.fromkeys(_HEX, place))


def _leading(places: dict[str, Node]) -> Node:
    return _with(dict(places))


def _with(places: dict[str, Node]) -> Node:
    made = Node()
    made.next = places
    return made


@lru_cache(maxsize=1)
def between() -> tuple[Node, ...]:
    """What may stand between two bytes."""
    return (
        BREAKS,
        Node(map("".join, product(_MARKS, ("", " "), _PREFIXES))),
        Node(map("".join, product(("", *_MARKS), _FOLDS, (*_INDENTS, *_MARKS), _PREFIXES))),
        _numbered_line(escaped=False),
        _numbered_line(escaped=True),
    )


@lru_cache(maxsize=1)
def after() -> Node:
    """The rest of the last line of a dump: other bytes, two blanks, and the characters up to the line's end."""
    beside = _leading({})
    beside.ends = True
    for _ in range(_WIDEST):
        beside = _with(_Printable(beside))
        beside.ends = True
    start = _leading({})
    for _ in range(_WIDEST):
        blank = _leading({" ": _with(_Printable(beside)), **dict.fromkeys(_HEX, start)})
        start = _leading({" ": blank, **dict.fromkeys(_HEX + ":-", start)})
    return start
