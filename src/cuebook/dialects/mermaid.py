"""Texts in Mermaid flowcharts, out of reach for whatever a playbook says, and the colours of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

LONGEST = 100
"""Characters of one line in a box."""
_CLASSES = {
    "current": "fill:#dbeafe,stroke:#2563eb,stroke-width:3px,color:#111",
    "success": "fill:#dcfce7,stroke:#16a34a,color:#111",
    "failed": "fill:#fee2e2,stroke:#dc2626,color:#111",
    "skipped": "fill:#f3f4f6,stroke:#9ca3af,stroke-dasharray:4 3,color:#555",
}
"""What boxes look like, by what became of them."""
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


def titled(text: str) -> Iterator[str]:
    """The lines that give a chart its title."""
    shown = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    yield from ("---", f"title: {json.dumps(shown)}", "---")


def coloured(boxes: Mapping[str, str]) -> Iterator[str]:
    """The lines that say what became of boxes: each `current`, `success`, `failed`, `skipped` or something else."""
    for kind, style in _CLASSES.items():
        members = [box for box, status in boxes.items() if status == kind]
        if members:
            yield f"    classDef {kind} {style}"
            yield f"    class {','.join(members)} {kind}"
