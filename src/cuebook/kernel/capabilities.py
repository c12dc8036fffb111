"""What a run needs from the process that drives it, and what a process offers. A capability is a name.

The store and every dispatcher route runs by these names; they do not know what a name means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

SANDBOX = "sandbox"
"""Commands can be run, confined as the configuration says."""
BROWSER = "browser"
"""Chromium can be run, inside bubblewrap."""
LOCAL_MODEL = "model:local"
"""The embedded model is installed."""
_WORKSPACE = "workspace:"


class Needy(Protocol):
    """The columns of a run that decide which processes may drive it."""

    @property
    def dialect(self) -> str: ...
    @property
    def interpreter(self) -> int: ...
    @property
    def workspace(self) -> str: ...
    @property
    def needs(self) -> tuple[str, ...]: ...


def workspace_of(settings: dict[str, object]) -> str:
    """The workspace that a run's settings name: its label, or else its folder."""
    return str(settings.get("workspace_label") or settings.get("workspace") or "")


def named(workspace: str, needs: Iterable[str]) -> tuple[str, ...]:
    """All needs of a run by name, its workspace first."""
    return (*((f"{_WORKSPACE}{workspace}",) if workspace else ()), *needs)


def moved(folder: str, old: str, new: str) -> str:
    """A folder below the old place of a workspace, at its new place. Any other folder stays where it is."""
    if folder != old and not folder.startswith(f"{old}/"):
        return folder
    return new + folder.removeprefix(old)


class Offer:
    """What a process can do for the runs that it drives."""

    def __init__(
        self,
        workspaces: Sequence[str] = (),
        capabilities: Callable[[], Iterable[str]] = tuple,
        interpreter: Callable[[str], int] | None = None,
    ) -> None:
        """`workspaces` are the folder it works in and the label of that folder, if it has one. `capabilities` is called when
        a run first needs one, `interpreter` returns the version of a dialect that this process has, or 0.
        """
        self.workspaces = tuple(workspaces)
        self._find = capabilities
        self._interpreter = interpreter

    @cached_property
    def capabilities(self) -> frozenset[str]:
        return frozenset(self._find())

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it offers, by name."""
        return (*(f"{_WORKSPACE}{one}" for one in self.workspaces), *sorted(self.capabilities))

    def interpreter(self, dialect: str) -> int | None:
        """The newest version of a dialect that this process can interpret, 0 for none; None if that is not limited."""
        return None if self._interpreter is None else self._interpreter(dialect)

    def knows(self, run: Needy) -> bool:
        """Whether this process can interpret a run. An older release must not continue a run of a newer one."""
        newest = self.interpreter(run.dialect)
        return newest is None or run.interpreter <= newest

    def works_in(self, workspace: str) -> bool:
        return not workspace or workspace in self.workspaces

    def lacks(self, needs: Iterable[str]) -> tuple[str, ...]:
        """The capabilities that this process does not have."""
        wanted = set(needs)
        return tuple(sorted(wanted - self.capabilities)) if wanted else ()

    def fits(self, run: Needy, *, ending: bool = False) -> bool:
        """Whether this process may drive a run. A run that only has to end needs none of its capabilities."""
        return self.works_in(run.workspace) and self.knows(run) and (ending or not self.lacks(run.needs))
