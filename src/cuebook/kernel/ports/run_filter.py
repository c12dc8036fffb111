"""Which runs a list shows, and where a page of it begins: the same for every store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypedDict

import msgspec


class RunMark(msgspec.Struct, frozen=True):
    """A position in a list of runs, newest first: after this run. It stays valid if runs are added or removed."""

    created: float
    run: str


class RunFilter(TypedDict, total=False):
    """The conditions for a run to be listed. All must hold; those that are None or left out do not apply."""

    tenant: str | None
    visible: Collection[str] | None
    """Only runs of these owners: what the user may see. An empty collection finds nothing."""
    shown: Collection[str] | None
    """Runs with these ids are visible, too, no matter who owns them."""
    owner: str | None
    name: str | None
    """The playbook's name."""
    names: Collection[str] | None
    """The playbook has one of these names."""
    status: Sequence[str]
    """Any of these; empty for all."""
    among: Collection[str] | None
    """Runs with these ids are listed whatever their status; if no status is given, only these."""
    caller: str | None
    """Only the children of this run; if it is empty, only runs that are not children."""
    parent: str | None
    """Only the forks of this run; if it is empty, only runs that are not forks."""
    since: float | None
    """Created at this time or later."""
    until: float | None
    """Created before this time."""
    trigger: str | None
    """What started them, such as `schedule:nightly`; `schedule` for all schedules, and empty for people and programs."""
    words: Sequence[str]
    """Each is part of the playbook's name, the owner or the trigger, or begins the run's id. Case does not matter for ASCII
    letters. Contents of runs are not searched: they may be purged, and not everyone may read them.
    """
    before: RunMark | None
    """Only what follows this position."""


_FOLDED = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def folded(text: str) -> str:
    """A text in lower case, as far as it is ASCII: the databases agree on no more than that."""
    return text.translate(_FOLDED)
