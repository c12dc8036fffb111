"""Sets, lists and removes budgets, and continues the runs that one of them had paused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.engine.allowance import ALLOWANCE
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import KeptChange
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.kernel.spending import Spending
from cuebook.service.budgets.allowance import Budgets
from cuebook.service.budgets.budget import BUDGET, EACH, PERSON, Limit, PeriodBudget, checked, of_run, read

if TYPE_CHECKING:
    from cuebook.service.admin import Administration

Resume = Callable[[WaitRow, Principal], Awaitable[Any]]
"""Ends a wait of a run, which then continues."""


class LimitState(msgspec.Struct, frozen=True):
    """How much of a limit is used in the current period."""

    period: str
    """`day` or `month`."""
    name: str
    """As in 2026-03-31 or 2026-03."""
    person: str
    """Whose use it is, if it is a person's."""
    money: float | None
    tokens: int | None
    used: Spending
    ends: float

    @property
    def money_left(self) -> float | None:
        return None if self.money is None else max(0.0, self.money - self.used.cost - self.used.held)

    @property
    def tokens_left(self) -> int | None:
        return None if self.tokens is None else max(0, self.tokens - self.used.tokens - self.used.held_tokens)

    @property
    def is_full(self) -> bool:
        return self.money_left == 0 or self.tokens_left == 0


class BudgetState(msgspec.Struct, frozen=True):
    budget: PeriodBudget
    limits: tuple[LimitState, ...]


class BudgetAdministration:
    """The budgets of a store, for the people who set them."""

    def __init__(
        self, store: Store, budgets: Budgets, records: Administration, clock: Callable[[], float], resume: Resume
    ) -> None:
        self._store = store
        self.budgets = budgets
        self._records = records
        self._clock = clock
        self._resume = resume

    async def set(
        self, name: str, changes: Mapping[str, Any], who: Principal = Principal()
    ) -> tuple[PeriodBudget, Sequence[str]]:
        """Changes what is given of a budget, and keeps the rest; makes it if there is none. Runs that it had paused continue
        if there is room again. Returns the budget and those runs.
        """
        who.require("admin", "set budgets")
        unknown = [
            one for one in changes if one not in PeriodBudget.__struct_fields__ or one in ("name", "by", "changed")
        ]
        if unknown:
            raise BadInput(f"A budget has no '{unknown[0]}'.", fix="Use day, month, day_tokens, month_tokens and soft.")
        known = (await self._store.kept(who.tenant, BUDGET)).get(name)
        base = {"name": name} if known is None else known
        made = checked(read({**base, **changes, "by": who.name, "changed": self._clock()}))
        body = msgspec.to_builtins(made)
        change = KeptChange(who.tenant, BUDGET, name, known, body)
        await self._records.record_act("budget.set", name, who, dict(changes), changes=[change])
        self.budgets.forget()
        return made, await self._continue(name, who)

    async def remove(self, name: str, who: Principal = Principal()) -> Sequence[str]:
        """Removes a budget. Returns the runs that it had paused, which continue."""
        who.require("admin", "set budgets")
        known = (await self._store.kept(who.tenant, BUDGET)).get(name)
        if known is None:
            raise NotFound(f"There is no budget '{name}'.", fix="`cuebook budget list` lists them.")
        change = KeptChange(who.tenant, BUDGET, name, known, None)
        await self._records.record_act("budget.remove", name, who, changes=[change])
        self.budgets.forget()
        return await self._continue(name, who)

    async def listed(self, who: Principal = Principal()) -> list[BudgetState]:
        """The budgets with what is used of them: all of them for an admin, otherwise those of this person."""
        who.require("viewer", "view budgets")
        found = await self.budgets.all(who.tenant)
        if not who.may("admin"):
            found = [one for one in of_run(found, _run_of(who)) if one.scope == PERSON]
        return [await self._state(one, who) for one in sorted(found, key=lambda one: one.name)]

    async def remaining(self, playbook: str, who: Principal = Principal()) -> list[BudgetState]:
        """The budgets that limit a run which this person starts."""
        budgets = of_run(await self.budgets.all(who.tenant), _run_of(who, playbook))
        return [await self._state(one, who) for one in budgets]

    # --- inside ---

    async def _state(self, budget: PeriodBudget, who: Principal) -> BudgetState:
        person = (who.name if budget.subject == EACH else budget.subject) if budget.scope == PERSON else ""
        return BudgetState(budget, tuple([await self._used(limit, person, who) for limit in budget.limits()]))

    async def _used(self, limit: Limit, person: str, who: Principal) -> LimitState:
        calendar = self.budgets.calendar
        day = calendar.day(self._clock())
        used = await self.budgets.used(who.tenant, limit, person, day)
        ends, name = calendar.end(limit.period, day), calendar.name(limit.period, day)
        return LimitState(limit.period, name, person, limit.money, limit.tokens, used, ends)

    async def _continue(self, name: str, who: Principal) -> Sequence[str]:
        """Ends the waits that a budget caused, where there is room now. Their calls are checked again."""
        runs: dict[str, None] = {}
        full: dict[str, bool] = {}
        budget = (await self._store.kept(who.tenant, BUDGET)).get(name)
        for wait in await self._store.waits(tenant=who.tenant, kinds=("budget",)):
            if wait.details.get("code") != ALLOWANCE or wait.details.get("budget") != name:
                continue
            if budget is not None and wait.owner not in full:
                states = [await self._used(limit, wait.owner, who) for limit in read(budget).limits()]
                full[wait.owner] = any(one.is_full for one in states)
            if full.get(wait.owner):
                continue
            await self._resume(wait, who)
            runs[wait.run] = None
        return list(runs)


def _run_of(who: Principal, playbook: str = "") -> RunRow:
    """A run that this person might start."""
    return RunRow(
        id="",
        tenant=who.tenant,
        owner=who.name,
        dialect="",
        interpreter=0,
        playbook="",
        name=playbook,
        created=0.0,
        updated=0.0,
    )
