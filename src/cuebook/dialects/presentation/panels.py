"""Panels: what the page of a run shows in addition to its steps. A dialect declares them by kind and gives their content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

PanelKind: TypeAlias = Literal["drawing", "timeline", "conversation", "listing", "table", "evidence", "calls"]
"""How a panel is shown:

- `drawing`: the playbook's drawing, coloured by the status of its steps (`Followed`)
- `timeline`: when each step ran
- `conversation`: what was said, and a form for the answer (the projection's `conversation`)
- `listing`: lines of code or text (`Listing`)
- `table`: records with named fields, or figures (`Table`)
- `evidence`: what is known of each step, and whether that is as it should be (`Evidence`)
- `calls`: calls with their arguments (`Calls`)
"""


class Panel(msgspec.Struct, frozen=True):
    """A panel of a dialect."""

    kind: PanelKind
    name: str
    """Unique among the panels of a dialect; also the id of its element."""
    title: str = ""
    beside: bool = False
    """Whether it is shown beside its neighbours of which this is true too, instead of below them."""
    within: tuple[Panel, ...] = ()
    """Panels that are shown inside this one."""


class Followed(msgspec.Struct, frozen=True):
    """Of a drawing: how often its arrows were followed, by the id of the arrow."""

    counts: Mapping[str, int]


LineStatus: TypeAlias = Literal["", "passed", "current", "failed"]


class Line(msgspec.Struct, frozen=True):
    label: str
    text: str
    code: str = ""
    """What the line does, in a keyword; empty if the line is not code."""
    depth: int = 0
    status: LineStatus = ""
    times: int = 0
    """How often it was executed."""
    key: str = ""
    """Identifies the line in a listing that grows; otherwise its position does."""


class Listing(msgspec.Struct, frozen=True):
    name: str = ""
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    empty: str = ""
    """Shown instead of lines."""
    grows: bool = False
    """Whether lines are added at its end while the run continues."""


class Field(msgspec.Struct, frozen=True):
    name: str
    words: tuple[str, ...]
    is_code: bool = False
    unit: str = ""


class Record(msgspec.Struct, frozen=True):
    """One row of a table: a heading, and named fields."""

    head: str
    text: str
    fields: tuple[Field, ...]
    good: bool | None = None


class Table(msgspec.Struct, frozen=True):
    """Records, or figures; an empty one is not shown."""

    records: tuple[Record, ...] = ()
    earlier: int = 0
    """Records before these, which are not shown."""
    figures: tuple[Field, ...] = ()
    result: tuple[str, Any] | None = None
    """A value, and the words before it."""


class Fact(msgspec.Struct, frozen=True):
    """Something that is known of a step."""

    seq: int
    """The record that says so."""
    kind: str
    words: str
    good: bool | None = None
    """Whether it is as it should be; None if it is neither good nor bad."""
    details: tuple[Fact, ...] = ()
    observed: Any = msgspec.UNSET
    headline: bool = False
    """Whether it is shown with the step's name too."""

    @property
    def has_observed(self) -> bool:
        return self.observed is not msgspec.UNSET


class StepEvidence(msgspec.Struct, frozen=True):
    label: str
    title: str
    action: str
    """What the step does, as the playbook has it."""
    facts: tuple[Fact, ...] = ()
    undo: str = ""
    """How to undo it."""


class Evidence(msgspec.Struct, frozen=True):
    steps: tuple[StepEvidence, ...]


class Call(msgspec.Struct, frozen=True):
    name: str
    at: str = ""
    """Where it is."""
    arguments: Mapping[str, str] = {}
    pending: tuple[str, ...] = ()
    """Calls that it has still to make."""


class Calls(msgspec.Struct, frozen=True):
    calls: tuple[Call, ...]
    empty: str = ""


PanelContent: TypeAlias = Followed | Listing | Table | Evidence | Calls
