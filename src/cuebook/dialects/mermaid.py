"""Texts in Mermaid flowcharts: out of reach for whatever a playbook says."""

from __future__ import annotations

LONGEST = 100
"""Characters of one line in a box."""
_PLAIN = frozenset(" .,:?!()+/'-=")


def escaped(text: str) -> str:
    """A text as a label may hold it. Whatever could mean something to Mermaid goes by its number."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return "".join(letter if _means_itself(line, place) else f"#{ord(letter)};" for place, letter in enumerate(line))


def _means_itself(line: str, place: int) -> bool:
    letter = line[place]
    if place == 0:
        return letter.isalpha()  # a beginning such as "1. " would be taken for a list
    if letter == ":":
        return line[place + 1 : place + 2] in ("", " ")  # otherwise it may name an icon
    return letter.isalnum() or letter in _PLAIN
