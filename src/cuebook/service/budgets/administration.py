"""Sets, lists and removes budgets, and continues the runs that one of them had paused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.engine.waits import ALLOWANCE
from cuebook.kernel.errors import BadInput, NotFound, Refused
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import KeptChange
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.kernel.spending import Spending
from cuebook.service.budgets.allowance import Budgets
from cuebook.service.budgets.budget import (
    BUDGET,
    EACH,
    PERSON,
    RELEASE,
    Limit,
    PeriodBudget,
    Release,
    checked,
    of_run,
    read,
)
from cuebook.service.runs.children import check_not_child

if TYPE_CHECKING:
    from cuebook.service.queries import Queries

_LOOKED_AT = 100
"""How many waits are looked at when there may be room for one of them."""
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
        self, store: Store, budgets: Budgets, service: Queries, clock: Callable[[], float], resume: Resume
    ) -> None:
        self._store = store
        self.budgets = budgets
        budgets.on_room = self._give_room
        self._service = service
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
        await self._service.record_act("budget.set", name, who, dict(changes), changes=[change])
        self.budgets.forget()
        return made, await self._continue(name, who)

    async def remove(self, name: str, who: Principal = Principal()) -> Sequence[str]:
        """Removes a budget. Returns the runs that it had paused, which continue."""
        who.require("admin", "set budgets")
        known = (await self._store.kept(who.tenant, BUDGET)).get(name)
        if known is None:
            raise NotFound(f"There is no budget '{name}'.", fix="`cuebook budget list` lists them.")
        change = KeptChange(who.tenant, BUDGET, name, known, None)
        await self._service.record_act("budget.remove", name, who, changes=[change])
        self.budgets.forget()
        return await self._continue(name, who)

    async def allow(self, run: str, who: Principal = Principal(), *, reason: str = "") -> list[Release]:
        """Lets one run continue although a budget is spent, until the period is over. What it uses still counts."""
        who.require("approver", "let a run continue beyond its budget")
        row = await self._service.get(run, who)
        check_not_child(row, "allowed to continue")
        waits, now = await self._pauses(who, row.id), self._clock()
        if not waits:
            raise Refused(f"Run {row.id} does not wait for a budget.", fix=f"`cuebook show {row.id}` shows the run.")
        made = []
        for wait in waits:
            one = Release(row.id, str(wait.details["budget"]), who.name, now, wait.details.get("until"), reason)
            kept = await self._store.kept(who.tenant, RELEASE)
            over = [
                KeptChange(who.tenant, RELEASE, name, body, None)
                for name, body in kept.items()
                if name != one.name and body.get("until", now) < now
            ]
            change = KeptChange(who.tenant, RELEASE, one.name, kept.get(one.name), msgspec.to_builtins(one))
            details = {"run": row.id, "until": one.until, **({"reason": reason} if reason else {})}
            await self._service.record_act("budget.allow", one.budget, who, details, changes=[change, *over])
            self.budgets.forget()
            await self._resume(wait, who)
            made.append(one)
        return made

    async def listed(self, who: Principal = Principal()) -> list[BudgetState]:
        """The budgets with what is used of them: all of them for an admin, otherwise those of this person."""
        who.require("viewer", "view budgets")
        found = await self.budgets.all(who.tenant)
        if not who.may("admin"):
            found = [one for one in of_run(found, _run_of(who)) if one.scope == PERSON]
        return [await self._state(one, who) for one in sorted(found, key=lambda one: one.name)]

    async def state(self, name: str, who: Principal = Principal()) -> BudgetState:
        """One of the budgets that this person sees."""
        found = next((one for one in await self.listed(who) if one.budget.name == name), None)
        if found is None:
            raise NotFound(f"There is no budget '{name}'.", fix="`cuebook budget list` lists them.")
        return found

    async def paused(self, who: Principal = Principal()) -> dict[str, list[str]]:
        """The runs that wait for each budget, for an admin."""
        found: dict[str, list[str]] = {}
        for wait in await self._pauses(who) if who.may("admin") else ():
            found.setdefault(str(wait.details.get("budget")), []).append(wait.run)
        return found

    async def warnings(self, playbook: str, who: Principal = Principal()) -> list[str]:
        """What a person should know before they start a run: the budgets that are spent, each as a sentence."""
        found = []
        day = self.budgets.calendar.day(self._clock())
        for state in await self.remaining(playbook, who):
            for one, limit in zip(state.limits, state.budget.limits(), strict=True):
                if one.is_full:
                    words, moment = limit.used_words(one.used, who.name, day), self.budgets.calendar.moment(one.ends)
                    which = "Model calls wait" if one.tokens_left == 0 else "Model calls that cost money wait"
                    found.append(f"The budget '{state.budget.name}' is spent: {words} {which} until {moment}.")
        return found

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
        """Ends the waits that a budget caused, where it no longer stops the run. Their calls are checked again."""
        budgets = await self.budgets.all(who.tenant)
        runs: dict[str, None] = {}
        for wait in await self._pauses(who):
            row = await self._store.run(wait.run)
            stopping = [one for one in of_run(budgets, row) if one.name == wait.details.get("budget")]
            if stopping and (stopping[0].name != name or await self._is_full(stopping[0], row.owner, who)):
                continue
            await self._resume(wait, who)
            runs[wait.run] = None
        return list(runs)

    async def _give_room(self, tenant: str) -> None:
        """Ends the oldest wait whose call fits now, because another call has used less than was set aside for it."""
        seen = set()
        for wait in await self._store.waits(tenant=tenant, kinds=("budget",), limit=_LOOKED_AT):
            money, tokens = wait.details.get("money"), wait.details.get("tokens")
            needs = (wait.details.get("budget"), wait.owner, money, tokens)
            if wait.details.get("code") != ALLOWANCE or money is None or tokens is None or needs in seen:
                continue
            seen.add(needs)
            if await self.budgets.has_room(await self._store.run(wait.run), float(money), int(tokens)):
                await self._resume(wait, Principal(tenant=tenant))
                return

    async def _pauses(self, who: Principal, run: str | None = None) -> list[WaitRow]:
        """The waits that budgets caused."""
        found = await self._store.waits(run=run, tenant=who.tenant, kinds=("budget",))
        return [wait for wait in found if wait.details.get("code") == ALLOWANCE]

    async def _is_full(self, budget: PeriodBudget, owner: str, who: Principal) -> bool:
        states = [await self._used(limit, owner, who) for limit in budget.limits()]
        return any(state.is_full for state in states)


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
