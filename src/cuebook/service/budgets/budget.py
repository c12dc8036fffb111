"""A budget: what everyone together, one person or one playbook may use in a day and in a month."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cuebook.formats.words import counted
from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import RunRow
from cuebook.kernel.spending import Cap, Spending
from cuebook.service.budgets.calendar import PERIODS, Period

BUDGET = "budget"
"""The kind of these records in the store."""
MARK = "budget_mark"
"""The kind of the records of periods for which people were notified."""
RELEASE = "budget_release"
"""The kind of the records that let a run continue although a budget is spent."""
ALL, PERSON, PLAYBOOK = "all", "person", "playbook"
EACH = "*"
"""Instead of a person: everyone who has no budget of their own, each alone."""
SOFT = 0.8


class PeriodBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one subject. None means no limit."""

    name: str
    """`all`, `person:NAME` or `playbook:NAME`."""
    day: float | None = None
    """US dollars."""
    month: float | None = None
    day_tokens: int | None = None
    month_tokens: int | None = None
    soft: float = SOFT
    """The part of a limit at which people are notified."""
    unknown_cost: bool = False
    """Whether models without a known price may be called although it limits money."""
    by: str = ""
    changed: float = 0.0

    @property
    def scope(self) -> str:
        return self.name.partition(":")[0]

    @property
    def subject(self) -> str:
        return self.name.partition(":")[2]

    def applies(self, owner: str, playbook: str, own: bool) -> bool:
        """Whether it limits a run of this person; `own` says whether they have a budget of their own."""
        if self.scope == PERSON:
            return not own if self.subject == EACH else self.subject == owner
        return self.scope == ALL or self.subject == playbook

    def limits(self) -> Iterator[Limit]:
        for period in PERIODS:
            money: float | None = getattr(self, period)
            tokens: int | None = getattr(self, f"{period}_tokens")
            if money is not None or tokens is not None:
                yield Limit(self, period, money, tokens)

    @property
    def limits_money(self) -> bool:
        return self.day is not None or self.month is not None

    @property
    def limits_tokens(self) -> bool:
        return self.day_tokens is not None or self.month_tokens is not None

    def flags(self) -> str:
        """How a command names it."""
        return "" if self.scope == ALL else f" --{self.scope} '{self.subject}'"


class Limit(NamedTuple):
    """A budget's limit for one kind of period."""

    budget: PeriodBudget
    period: Period
    money: float | None
    tokens: int | None

    def of(self, owner: str) -> tuple[str | None, str | None]:
        """The owner and the playbook whose use counts for a run of this person; None for all."""
        scope = self.budget.scope
        return (owner if scope == PERSON else None, self.budget.subject if scope == PLAYBOOK else None)

    def cap(self, owner: str, money: float, tokens: int) -> Cap:
        """What is left for one day, after what was used in the period before it."""
        whose, playbook = self.of(owner)
        return Cap(
            owner=whose,
            playbook=playbook,
            money=None if self.money is None else self.money - money,
            tokens=None if self.tokens is None else self.tokens - tokens,
        )

    def words(self, owner: str) -> str:
        """Whose use it limits, in words."""
        scope, subject = self.budget.scope, self.budget.subject
        return "all runs" if scope == ALL else owner if scope == PERSON else f"the playbook {subject}"

    def used_words(self, used: Spending, owner: str, day: str) -> str:
        """How much of it is used, as a sentence."""
        parts = []
        if self.money is not None:
            lost = f" and up to {money_words(used.held)} of unknown cost" if used.held > 1e-9 else ""
            if not lost and used.unknown_costs > 0:
                lost = f" and {counted(used.unknown_costs, 'call')} of unknown cost"
            parts.append(f"{money_words(used.cost)}{lost} of {money_words(self.money)}")
        if self.tokens is not None:
            parts.append(f"{used.tokens + used.held_tokens:,} of {self.tokens:,} tokens")
        when = f"on {day}" if self.period == "day" else f"in {day[:7]}"
        whose = self.words(owner)
        whose = whose if self.budget.scope == PERSON else f"{whose[0].upper()}{whose[1:]}"
        return f"{whose} used {' and '.join(parts)} {when}."


class Release(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lets one run continue although a budget is spent. What it uses still counts."""

    run: str
    budget: str
    by: str
    at: float
    until: float | None = None
    """When the period is over for which it holds; None if there is none."""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.run} {self.budget}"

    def holds(self, run: str, budget: str, now: float) -> bool:
        return (self.run, self.budget) == (run, budget) and (self.until is None or now < self.until)


def of_run(budgets: list[PeriodBudget], row: RunRow) -> list[PeriodBudget]:
    """The budgets that limit a run."""
    own = any(one.name == f"{PERSON}:{row.owner}" for one in budgets)
    return [one for one in budgets if one.applies(row.owner, row.name, own)]


def name_of(person: str, playbook: str) -> str:
    """The name of the budget of a person, of a playbook, or of all runs."""
    if person and playbook:
        raise BadInput("A budget is for a person or for a playbook, not for both.", fix="Set two budgets.")
    return f"{PERSON}:{person}" if person else f"{PLAYBOOK}:{playbook}" if playbook else ALL


def checked(budget: PeriodBudget) -> PeriodBudget:
    """Raises `BadInput` if a limit makes no sense."""
    limits = {name: getattr(budget, name) for name in ("day", "month", "day_tokens", "month_tokens")}
    if all(one is None for one in limits.values()):
        raise BadInput("A budget needs a limit.", fix="For example: --month 50.")
    for name, value in limits.items():
        if value is not None and not 0 <= value < float("inf"):
            raise BadInput(f"The limit {name} must be 0 or more, got {value}.", fix="Correct it.")
    if not 0 < budget.soft <= 1:
        raise BadInput(f"The soft mark must be between 0% and 100%, not {budget.soft:.0%}.", fix="For example: 80%.")
    if budget.scope not in (ALL, PERSON, PLAYBOOK) or (budget.scope != ALL) != bool(budget.subject):
        raise BadInput(f"'{budget.name}' is not the name of a budget.", fix="Use all, person:NAME or playbook:NAME.")
    return budget


def read(body: dict[str, Any]) -> PeriodBudget:
    return msgspec.convert(body, PeriodBudget)
