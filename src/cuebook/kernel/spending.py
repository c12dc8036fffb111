"""Spending: what runs used, added up by day, person, playbook and model. It outlives the runs.

The journal writer passes each change to the store with the records that cause it, so nothing is counted twice or lost.
"""

from __future__ import annotations

import time

import msgspec

from cuebook.kernel.outcomes import Usage

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


def fits(cap: Cap, used: Spending, more: Spending, *, held: bool = True) -> bool:
    """Whether more may be used under a cap. What costs nothing always may; without `held`, calls in progress do not count."""
    money = used.cost + (used.held if held else 0.0)
    tokens = used.tokens + (used.held_tokens if held else 0)
    if cap.money is not None and more.held > 0 and money + more.held > cap.money:
        return False
    return cap.tokens is None or tokens + more.held_tokens <= cap.tokens
