"""What the engine and the service ask of a store, and of budgets, to know what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from cuebook.kernel.ports.performers import Estimate
from cuebook.kernel.run import RunRow
from cuebook.kernel.spending import Cap, Spending


class SpendingTable(Protocol):
    """The part of a store that knows what runs used. `Batch.spent` adds to it."""

    async def spending(self, tenant: str | None = None, since: str = "", until: str = "9999") -> list[Spending]:
        """What was used from the first to the last of these days, by day, owner, playbook and model."""

    async def spent(
        self, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> Spending:
        """The sum from the first to the last of these days."""

    async def hold(self, more: Spending, caps: Sequence[Cap]) -> int | None:
        """Adds what a call may use at most, if that is within all caps of its day. Otherwise changes nothing, and returns the
        number of the first cap that it would exceed. Of several processes that ask at once, none sees less than the others.
        """

    async def add_spending(self, more: Sequence[Spending]) -> None:
        """Adds changes that no record causes."""

    async def take_spending(self, rows: Sequence[Spending]) -> int:
        """Takes over rows from another store that are missing here; returns how many."""

    async def forget_owner(self, tenant: str, owner: str) -> None:
        """Makes what a person used anonymous."""


class Hold(msgspec.Struct, frozen=True):
    """What is set aside for a model call until its outcome is known."""

    most: Spending
    budgets: tuple[str, ...] = ()
    """The names of the budgets that it counts for."""


class Exceeded(msgspec.Struct, frozen=True):
    """Why a model call may not be made now."""

    message: str
    budget: str = ""
    """The name of the budget that it would exceed."""
    until: float | None = None
    """When the budget's period is over."""
    passing: bool = False
    """Whether only calls in progress stand in the way, which may use less than the most that is set aside for them."""


class Allowance(Protocol):
    """What people and playbooks may use, asked before each model call. It is not part of a replay."""

    async def hold(self, row: RunRow, model: str, estimate: Estimate) -> Hold | Exceeded | None:
        """Sets aside what a call of this run may use at most; None if nothing limits it."""

    async def limits(self, row: RunRow) -> bool:
        """Whether anything limits this run, so that a call has to be estimated."""

    async def settled(self, row: RunRow, hold: Hold) -> None:
        """Looks at what is left after a call. Never fails."""

    async def paused(self, row: RunRow, why: Exceeded) -> None:
        """A run is about to pause. Never fails."""
