"""What one entry of a journal changes in the picture of its run: a stream is made from this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cuebook.kernel.journal import Entry
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.web.cards import Card


@dataclass
class Changes:
    """What one entry changed."""

    new: list[Card] = field(default_factory=list)
    statuses: list[Card] = field(default_factory=list)
    again: list[Card] = field(default_factory=list)
    """Those whose text began again, or that are to be drawn anew."""
    gone: list[Card] = field(default_factory=list)
    rendered: Card | None = None
    parted: Card | None = None
    """The one in which another text begins after one that is there."""
    values: list[tuple[str, Any, str]] = field(default_factory=list)
    """Names, values, and the keys of their steps."""
    opened: WaitRow | None = None
    closed: WaitRow | None = None
    noted: list[Card] = field(default_factory=list)
    """Those of which something more is to be told, while their status stays."""
    lost: list[Entry] = field(default_factory=list)
    """The calls of models that have ended without a reply."""
    run: bool = False
    """Whether something of the run itself changed: it was cancelled, or goes on after its end."""
    ended: bool = False
