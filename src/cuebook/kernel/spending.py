"""Spending: what runs used, added up by day, person, playbook and model. It outlives the runs.

The journal writer passes each change to the store with the records that cause it, so nothing is counted twice or lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from cuebook.kernel.outcomes import Usage

if TYPE_CHECKING:
    from cuebook.kernel.ports.performers import Estimate
    from cuebook.kernel.run import RunRow

Part = Literal["day", "owner", "playbook", "model"]
"""A part of a key by which use can be added up."""
COUNTED = ("runs", "calls", "input", "output", "cached", "reasoning", "cost", "unknown_costs", "held", "held_tokens")
"""The numbers of a `Spending`."""


class Spending(msgspec.Struct, gc=False, omit_defaults=True):
    """What was used on one day, or a change of it. Its first five fields identify it."""

    tenant: str
    day: str
    """As in 2026-03-31, in the configured time zone: the day on which a call began."""
    owner: str
    """The person who started the run; empty if their data was erased."""
    playbook: str
    """The name of the playbook that the person started, also for what its children use."""
    model: str = ""
    """Empty for the number of runs."""
    runs: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unknown_costs: int = 0
    """Calls whose cost is unknown, including those in progress and those whose reply was lost."""
    held: float = 0.0
    """The most that calls under a budget may cost which are in progress or were lost."""
    held_tokens: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return (self.tenant, self.day, self.owner, self.playbook, self.model)

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def add(self, other: Spending) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What a record says about the cost of a model call: that one has begun, or what it used."""

    at: float
    """When the call began."""
    model: str
    begun: int = 0
    """1 for a call whose cost is not known yet; negative when it is."""
    usage: Usage | None = None


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be used on one day: by everyone, one person, or one playbook."""

    owner: str | None = None
    playbook: str | None = None
    money: float | None = None
    tokens: int | None = None


def utc_day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def sum_named(part: Part, tenant: str, name: str, *numbers: float) -> Spending:
    """A sum that only this part of its key identifies."""
    keys = {"day": "", "owner": "", "playbook": "", "model": "", part: name}
    return Spending(tenant, *keys.values(), *numbers)  # type: ignore[arg-type]


def fits(cap: Cap, used: Spending, more: Spending, *, held: bool = True) -> bool:
    """Whether more may be used under a cap. What costs nothing always may; without `held`, calls in progress do not count."""
    money = used.cost + (used.held if held else 0.0)
    tokens = used.tokens + (used.held_tokens if held else 0)
    if cap.money is not None and more.held > 0 and money + more.held > cap.money:
        return False
    return cap.tokens is None or tokens + more.held_tokens <= cap.tokens


class SpendingTable(Protocol):
    """The part of a store that knows what runs used. `Batch.spent` adds to it."""

    async def spending(self, tenant: str | None = None, since: str = "", until: str = "9999") -> list[Spending]:
        """What was used from the first to the last of these days, by day, owner, playbook and model."""

    async def spent(
        self, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> Spending:
        """The sum from the first to the last of these days."""

    async def spending_by(
        self, part: Part, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> list[Spending]:
        """The sums from the first to the last of these days, one for each day, owner, playbook or model. The other parts of
        their keys are empty.
        """

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
    period: str = ""
    """The kind of period whose limit it would exceed."""
    until: float | None = None
    """When the budget's period is over."""
    most: Spending | None = None
    """What the call may use at most."""
    passing: bool = False
    """Whether only calls in progress stand in the way, which may use less than the most that is set aside for them."""


class Allowance(Protocol):
    """What people and playbooks may use, asked before each model call. It is not part of a replay."""

    async def hold(self, row: RunRow, model: str, estimate: Estimate) -> Hold | Exceeded | None:
        """Sets aside what a call of this run may use at most; None if nothing limits this call."""

    async def settled(self, row: RunRow, hold: Hold) -> None:
        """Looks at what is left after a call. Never fails."""

    async def paused(self, row: RunRow, why: Exceeded) -> None:
        """A run is about to pause. Never fails."""
