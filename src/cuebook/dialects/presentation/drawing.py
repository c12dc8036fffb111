"""A playbook as boxes and arrows, optionally with the state of a run, and its rendering as a Mermaid flowchart.

A dialect returns a `Drawing`; a renderer decides what it looks like.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from cuebook.kernel.events import PlannedStep
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import StepRow

BoxKind = Literal["start", "end", "entry", "step", "tool", "person", "choice"]
ArrowKind = Literal["way", "otherwise", "fan", "join", "sequential", "call", "data"]
"""`otherwise` is followed if no other arrow is; `fan` and `join` lead into and out of parallel branches; `sequential`
is followed, and shown, only if these branches do not run in parallel; `data` leads from a step to one that uses its
result."""


class Box(msgspec.Struct, frozen=True):
    id: str
    """Unique in the drawing: letters, digits and underscores."""
    lines: tuple[str, ...]
    """The first line is its name."""
    kind: BoxKind = "step"
    step: str = ""
    """The label of the step whose state it shows."""
    group: str = ""
    status: str = ""
    """The status of its step in a run."""
    visits: int = 0


class Arrow(msgspec.Struct, frozen=True):
    from_: str
    to: str
    label: str = ""
    kind: ArrowKind = "way"
    bound: str = ""
    """A phrase that says how often it may be followed."""
    id: str = ""
    """Its id in the events of a run."""
    times: int | None = None
    """How often a run followed it; None if unknown."""


class Group(msgspec.Struct, frozen=True):
    """Boxes that belong together."""

    id: str
    title: str


class Drawing(msgspec.Struct, frozen=True):
    title: str = ""
    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    groups: tuple[Group, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run."""

    steps: tuple[StepRow, ...]
    entries: tuple[Entry, ...]
    """Its journal."""

    @property
    def statuses(self) -> dict[str, tuple[str, int]]:
        """The status of each step at its last visit, and the number of that visit."""
        return {step.label: (step.status, step.visit) for step in sorted(self.steps, key=lambda step: step.visit)}


class Chain:
    """Builds a drawing from top to bottom: each new box is connected to the loose ends."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.boxes: list[Box] = []
        self.arrows: list[Arrow] = []
        self.loose: list[tuple[str, str, ArrowKind]] = []
        """The boxes to connect to the next box, each with the label and kind of its arrow."""
        self._statuses = progress.statuses if progress is not None else {}

    def add(self, id: str, kind: BoxKind, lines: Iterable[str], step: str = "") -> None:
        status, visits = self._statuses.get(step, ("", 0))
        self.boxes.append(Box(id, tuple(lines), kind, step, status=status, visits=visits))
        self.arrows += (Arrow(before, id, label, way) for before, label, way in self.loose)
        self.loose = [(id, "", "way")]

    def drawing(self, title: str) -> Drawing:
        return Drawing(title, tuple(self.boxes), tuple(self.arrows))


def sequence(title: str, steps: Iterable[PlannedStep], progress: Progress | None = None) -> Drawing:
    """A drawing of steps in sequence."""
    chain = Chain(progress)
    chain.add("start", "start", [title])
    for number, step in enumerate(steps, start=1):
        chain.add(f"s{number}", "step", [step.title or step.label], step.label)
    chain.add("finish", "end", ["end"])
    return chain.drawing(title)


# --- Mermaid ---

LONGEST = 100
"""The maximum length of a line in a box."""
_SHAPES = {
    **dict.fromkeys(("start", "end", "entry"), ('(["', '"])')),
    "step": ('["', '"]'),
    "tool": ('[["', '"]]'),
    "person": ('[/"', '"/]'),
    "choice": ('{"', '"}'),
}
_LINES = {"fan": "==>", "join": "==>", "call": "-.->", "data": "-.->"}
_CLASSES = {
    "current": "fill:#dbeafe,stroke:#2563eb,stroke-width:3px,color:#111",
    "success": "fill:#dcfce7,stroke:#16a34a,color:#111",
    "failed": "fill:#fee2e2,stroke:#dc2626,color:#111",
    "skipped": "fill:#f3f4f6,stroke:#9ca3af,stroke-dasharray:4 3,color:#555",
}
_CLASS_OF = {
    "completed": "success",
    "failed": "failed",
    "in_doubt": "failed",
    "skipped": "skipped",
    **dict.fromkeys(("running", "tool_call", "paused", "awaiting_input", "awaiting_approval"), "current"),
}
"""The class of a box, by the status of its step."""
_TAKEN = "stroke:#16a34a,stroke-width:2px"
_NOT_TAKEN = "stroke:#9ca3af,stroke-dasharray:4 3"
_PLAIN = frozenset(" .,:?!()+/'-=×")
ENTRY_MARK = " ▸"


def mermaid(drawing: Drawing, *, titled: bool = False) -> str:
    """A drawing as a Mermaid flowchart. It is deterministic, and text from a playbook cannot break out of labels."""
    return "\n".join(_mermaid(drawing, titled)) + "\n"


def _mermaid(drawing: Drawing, titled: bool) -> Iterator[str]:
    if titled:
        shown = "".join(letter for letter in " ".join(drawing.title.split()) if letter.isprintable())
        yield from ("---", f"title: {json.dumps(shown)}", "---")
    yield "flowchart TD"
    home = {box.id: box.group for box in drawing.boxes}
    arrows = [one for one in drawing.arrows if one.kind != "sequential" or one.times]
    homes = [home[one.from_] if one.kind == "way" and home[one.from_] == home[one.to] else "" for one in arrows]
    drawn: list[Arrow] = []
    for group in drawing.groups:
        yield f'    subgraph {group.id}["{escaped(group.title)}"]'
        yield from (f"        {_box(box)}" for box in drawing.boxes if box.group == group.id)
        inside = [one for one, place in zip(arrows, homes, strict=True) if place == group.id]
        yield from (f"        {_arrow(one)}" for one in inside)
        yield "    end"
        drawn += inside
    yield from (f"    {_box(box)}" for box in drawing.boxes if not box.group)
    others = [one for one, place in zip(arrows, homes, strict=True) if not place]
    yield from (f"    {_arrow(one)}" for one in others)
    yield from _colours(drawing.boxes, [*drawn, *others])


def _box(box: Box) -> str:
    opens, closes = _SHAPES[box.kind]
    name, *more = box.lines
    mark = ENTRY_MARK if box.kind == "entry" else ""
    times = f" ×{box.visits}" if box.visits > 1 else ""
    return f"{box.id}{opens}{'<br/>'.join([escaped(name) + mark + times, *map(escaped, more)])}{closes}"


def _arrow(arrow: Arrow) -> str:
    taken = f"taken {arrow.times}x" if arrow.times is not None and arrow.times > 1 else ""
    words = " · ".join(part for part in (escaped(arrow.label), escaped(arrow.bound), taken) if part)
    label = f'|"{words}"|' if words else ""
    return f"{arrow.from_} {_LINES.get(arrow.kind, '-->')}{label} {arrow.to}"


def _colours(boxes: Iterable[Box], arrows: list[Arrow]) -> Iterator[str]:
    classes = {box.id: _CLASS_OF.get(box.status, "") for box in boxes}
    for kind, style in _CLASSES.items():
        members = [id for id, name in classes.items() if name == kind]
        if members:
            yield f"    classDef {kind} {style}"
            yield f"    class {','.join(members)} {kind}"
    for style, taken in ((_TAKEN, True), (_NOT_TAKEN, False)):
        numbers = [
            str(number) for number, one in enumerate(arrows) if one.times is not None and bool(one.times) is taken
        ]
        if numbers:
            yield f"    linkStyle {','.join(numbers)} {style}"


def escaped(text: str) -> str:
    """Text as a label. Characters that are special in Mermaid are written as character codes."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return "".join(letter if _means_itself(line, place) else f"#{ord(letter)};" for place, letter in enumerate(line))


def _means_itself(line: str, place: int) -> bool:
    letter = line[place]
    if place == 0:
        return letter.isalpha()  # a prefix such as "1. " would be parsed as a list
    if letter == ":":
        return line[place + 1 : place + 2] in ("", " ")  # otherwise it could be parsed as an icon
    return letter.isalnum() or letter in _PLAIN
