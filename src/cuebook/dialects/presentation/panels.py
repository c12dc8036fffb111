"""Panels, which the page of a run shows in addition to its steps. A dialect declares them and returns their content."""

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
- `evidence`: the facts about each step, and whether each is good or bad (`Evidence`)
- `calls`: calls with their arguments (`Calls`)
"""


class Panel(msgspec.Struct, frozen=True):
    """A panel of a dialect."""

    kind: PanelKind
    name: str
    """Unique among the panels of a dialect; also the id of its element."""
    title: str = ""
    beside: bool = False
    """Whether it is shown side by side with adjacent panels that also set this, instead of below them."""
    within: tuple[Panel, ...] = ()
    """Panels that are shown inside this one."""


class Followed(msgspec.Struct, frozen=True):
    """How often each arrow of a drawing was followed, by the arrow's id."""

    counts: Mapping[str, int]


LineStatus: TypeAlias = Literal["", "passed", "current", "failed"]


class Line(msgspec.Struct, frozen=True):
    label: str
    text: str
    code: str = ""
    """A keyword for what the line does; empty if the line is not code."""
    depth: int = 0
    status: LineStatus = ""
    times: int = 0
    """How often it was executed."""
    key: str = ""
    """Identifies the line in a listing that grows. In other listings, its position identifies it."""


class Listing(msgspec.Struct, frozen=True):
    name: str = ""
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    empty: str = ""
    """The text that is shown if there are no lines."""
    grows: bool = False
    """Whether lines are appended during the run."""


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
    """Records or figures. An empty table is not shown."""

    records: tuple[Record, ...] = ()
    earlier: int = 0
    """The number of earlier records, which are not shown."""
    figures: tuple[Field, ...] = ()
    result: tuple[str, Any] | None = None
    """A caption and a value."""


class Fact(msgspec.Struct, frozen=True):
    """A fact about a step."""

    seq: int
    """The journal record that it comes from."""
    kind: str
    words: str
    good: bool | None = None
    """Whether the fact is good; None if it is neither good nor bad."""
    details: tuple[Fact, ...] = ()
    observed: Any = msgspec.UNSET
    headline: bool = False
    """Whether it is also shown next to the step's name."""
    page: bool = False
    """Whether its record has a browser's page, with a picture and the elements."""
    file: str = ""
    """The digest of the file that it is about, which can be downloaded."""

    @property
    def has_observed(self) -> bool:
        return self.observed is not msgspec.UNSET


class StepEvidence(msgspec.Struct, frozen=True):
    label: str
    title: str
    action: str
    """The step's action, as written in the playbook."""
    facts: tuple[Fact, ...] = ()
    undo: str = ""
    """How to undo it."""


class Evidence(msgspec.Struct, frozen=True):
    steps: tuple[StepEvidence, ...]


class Call(msgspec.Struct, frozen=True):
    name: str
    at: str = ""
    """The current position in it."""
    arguments: Mapping[str, str] = {}
    pending: tuple[str, ...] = ()
    """Calls that it has yet to make."""


class Calls(msgspec.Struct, frozen=True):
    calls: tuple[Call, ...]
    empty: str = ""


PanelContent: TypeAlias = Followed | Listing | Table | Evidence | Calls
