"""Commands of runs that have a worktree of their own are performed there, all others in the workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from cuebook.kernel.effects import RunCommand
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import WORKTREE, Settings
from cuebook.performers.commands import CommandPerformer

T = TypeVar("T")


class Placed(Generic[T]):
    """A performer for each worktree that is in use here."""

    def __init__(self, make: Callable[[str], T], opened: Callable[[str], Any]) -> None:
        """`opened` returns a failure if the worktree with this name does not exist here."""
        self._make = make
        self._opened = opened
        self.made: dict[str, T] = {}

    def of(self, settings: Settings) -> T | Failed | None:
        """The performer for the run's own worktree; None if it has none."""
        name = str(settings.options.get(WORKTREE) or "")
        if not name:
            return None
        if isinstance(missing := self._opened(name), Failed):
            return missing
        if name not in self.made:
            self.made[name] = self._make(name)
        return self.made[name]


class PlacedCommands:
    """Performs `RunCommand` in the run's own folder."""

    prepares: Literal[True] = True

    def __init__(self, workspace: CommandPerformer, worktrees: Placed[CommandPerformer]) -> None:
        self._workspace = workspace
        self._worktrees = worktrees

    def _of(self, settings: Settings) -> CommandPerformer | Failed:
        return (self._worktrees.of(settings) if settings.options else None) or self._workspace

    def needs(self, effect: RunCommand, settings: Settings) -> tuple[str, ...]:
        return self._workspace.needs(effect, settings)

    async def outline(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        found = self._of(settings)
        return found if isinstance(found, Failed) else await found.outline(effect, settings)

    async def describe(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        found = self._of(settings)
        return found if isinstance(found, Failed) else await found.describe(effect, settings)

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult | Failed:
        found = self._of(call.settings)
        return found if isinstance(found, Failed) else await found.perform(effect, call)
