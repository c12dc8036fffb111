"""Asks the budgets of people and playbooks before each model call, and notifies people of their marks.

What was used before today is remembered for a while: such days only change when a late outcome turns what was set aside
for it into what it used, which is less.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.notices import notice
from cuebook.kernel.ports import Estimate, Job, Store
from cuebook.kernel.run import RunRow
from cuebook.kernel.spending import Cap, Exceeded, Hold, Spending, fits
from cuebook.service.budgets.budget import (
    BUDGET,
    MARK,
    PERSON,
    PLAYBOOK,
    RELEASE,
    Limit,
    PeriodBudget,
    Release,
    of_run,
    read,
)
from cuebook.service.budgets.calendar import Calendar, before

log = logging.getLogger("cuebook")

_REMEMBERED = 60.0
"""Seconds for which the sum of the days before today is remembered."""
_LATE = 300.0
"""Seconds after midnight in which a process, with another clock or with much to do, may still set something aside for the day before."""
_FRESH = 1.0
"""Seconds after which a change of a budget is noticed in other processes."""


async def _nobody_waits(tenant: str) -> None:
    pass


class Budgets:
    """The budgets in a store, as an allowance of the engine."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        calendar: Calendar,
        notify: Callable[[Job], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when something was changed here."""
        self._store = store
        self._clock = clock
        self.calendar = calendar
        self._notify = notify
        self._changed = changed
        self.on_room: Callable[[str], Awaitable[None]] = _nobody_waits
        """Called with a tenant whenever a call has ended and given back what it did not use."""
        self._known: dict[str, tuple[float, list[PeriodBudget]]] = {}
        self._releases: dict[str, tuple[float, list[Release]]] = {}
        self._past: dict[tuple[str | None, ...], tuple[float, Spending]] = {}
        self._marked: set[tuple[str, ...]] = set()

    async def all(self, tenant: str) -> list[PeriodBudget]:
        known = self._known.get(tenant)
        if known is None or time.monotonic() - known[0] > _FRESH:
            kept = await self._store.kept(tenant, BUDGET)
            known = self._known[tenant] = (time.monotonic(), [read(body) for body in kept.values()])
        return known[1]

    async def released(self, row: RunRow, now: float) -> set[str]:
        """The names of the budgets that do not stop this run."""
        known = self._releases.get(row.tenant)
        if known is None or time.monotonic() - known[0] > _FRESH:
            kept = await self._store.kept(row.tenant, RELEASE)
            releases = [msgspec.convert(body, Release) for body in kept.values()]
            known = self._releases[row.tenant] = (time.monotonic(), releases)
        return {one.budget for one in known[1] if one.holds(row.id, one.budget, now)}

    def forget(self) -> None:
        """Forgets what is remembered, because something was changed here."""
        self._read_again()
        self._changed()

    def _read_again(self) -> None:
        self._known.clear()
        self._releases.clear()
        self._past.clear()

    async def used(self, tenant: str, limit: Limit, owner: str, day: str) -> Spending:
        """What counts against a limit in the period of a day, up to that day."""
        past, today = await self._before(tenant, limit, owner, day), await self._on(tenant, limit, owner, day)
        today.add(past)
        return today

    async def has_room(self, row: RunRow, money: float, tokens: int) -> bool:
        """Whether a call that may use this much would be made now."""
        day = self.calendar.day(self._clock())
        most = Spending(row.tenant, day, row.owner, row.name, held=money, held_tokens=tokens)
        for limit in [limit for budget in of_run(await self.all(row.tenant), row) for limit in budget.limits()]:
            cap = Cap(money=limit.money, tokens=limit.tokens)
            if not fits(cap, await self.used(row.tenant, limit, row.owner, day), most):
                return False
        return True

    # --- for the engine ---

    async def hold(self, row: RunRow, model: str, estimate: Estimate) -> Hold | Exceeded | None:
        found = await self._hold(row, model, estimate)
        if isinstance(found, Exceeded):  # another process may just have raised the budget, or let this run continue
            self._read_again()
            found = await self._hold(row, model, estimate)
        return found

    async def _hold(self, row: RunRow, model: str, estimate: Estimate) -> Hold | Exceeded | None:
        budgets, now = of_run(await self.all(row.tenant), row), self._clock()
        day = self.calendar.day(now)
        limits = [limit for budget in budgets for limit in budget.limits()]
        if estimate.cost == 0:
            limits = [limit for limit in limits if limit.tokens is not None]
        if not limits:
            return None
        released = await self.released(row, now)
        limits = [limit for limit in limits if limit.budget.name not in released]
        tokens = estimate.input_tokens + estimate.output_tokens
        most = Spending(row.tenant, day, row.owner, row.name, model, held=estimate.cost or 0.0, held_tokens=tokens)
        past = [await self._before(row.tenant, limit, row.owner, day) for limit in limits]
        if estimate.cost is None:
            for limit, sofar in zip(limits, past, strict=True):
                refused = await self._unpriced(row, model, limit, sofar, day)
                if refused is not None:
                    return refused
        caps = [
            limit.cap(row.owner, sofar.cost + sofar.held, sofar.tokens + sofar.held_tokens)
            for limit, sofar in zip(limits, past, strict=True)
        ]
        number = await self._store.hold(most, caps)
        if number is None:
            return Hold(most, tuple(budget.name for budget in budgets))
        limit, today = limits[number], await self._on(row.tenant, limits[number], row.owner, day)
        passing = fits(caps[number], today, most, held=False)
        today.add(past[number])
        call = f"The next call may use up to {_most(limit, most)}"
        if fits(Cap(money=limit.money, tokens=limit.tokens), Spending(row.tenant, day, "", ""), most):
            words = self._words(limit, today, row.owner, day, f" {call}.")
        else:
            words = _never_fits(limit, call)
        until = self.calendar.end(limit.period, day)
        return Exceeded(words, limit.budget.name, limit.period, until, most, passing)

    async def settled(self, row: RunRow, hold: Hold) -> None:
        try:
            for budget in of_run(await self.all(row.tenant), row):
                for limit in budget.limits():
                    used = await self.used(row.tenant, limit, row.owner, hold.most.day)
                    money = limit.money is not None and used.cost >= budget.soft * limit.money
                    if money or (limit.tokens is not None and used.tokens >= budget.soft * limit.tokens):
                        words = limit.used_words(used, row.owner, hold.most.day)
                        await self._mark(row, limit, hold.most.day, "soft", words)
            await self.on_room(row.tenant)
        except Exception:  # the call was made and recorded
            log.exception("The marks of the budgets could not be checked.")

    async def paused(self, row: RunRow, why: Exceeded) -> None:
        try:
            day = self.calendar.day(self._clock())
            for budget in await self.all(row.tenant):
                for limit in budget.limits():
                    if (budget.name, limit.period) == (why.budget, why.period):
                        await self._mark(row, limit, day, "hard", f"{why.message} Run {row.id} is paused.")
        except Exception:
            log.exception("No one could be notified about a budget.")

    # --- inside ---

    async def _unpriced(self, row: RunRow, model: str, limit: Limit, past: Spending, day: str) -> Exceeded | None:
        """Why a call of unknown price may not be made under a limit."""
        if limit.money is None:
            return None
        whose, name = limit.words(row.owner), limit.budget.name
        if not limit.budget.unknown_cost:
            words = f"The budget '{name}' limits the money of {whose}, and the price of {model} is unknown."
            return Exceeded(words, name)
        used = await self._on(row.tenant, limit, row.owner, day)
        used.add(past)
        if used.cost + used.held < limit.money:
            return None
        until = self.calendar.end(limit.period, day)
        return Exceeded(self._words(limit, used, row.owner, day), name, limit.period, until)

    def _words(self, limit: Limit, used: Spending, owner: str, day: str, more: str = "") -> str:
        """Why a run pauses, and until when."""
        spent, moment = limit.used_words(used, owner, day), self.calendar.moment(self.calendar.end(limit.period, day))
        return f"The budget '{limit.budget.name}' is spent: {spent}{more} The run continues at {moment}."

    async def _before(self, tenant: str, limit: Limit, owner: str, day: str) -> Spending:
        first = self.calendar.first(limit.period, day)
        if first == day:
            return Spending(tenant, day, "", "")
        whose, playbook = limit.of(owner)
        key = (tenant, first, day, whose, playbook)
        known = self._past.get(key)
        is_over = self._clock() - self.calendar.end("day", before(day)) > _LATE
        if known is None or not is_over or time.monotonic() - known[0] > _REMEMBERED:
            if len(self._past) > 1_000:
                self._past.clear()
            found = await self._store.spent(tenant, first, before(day), whose, playbook)
            known = self._past[key] = (time.monotonic(), found)
        return known[1]

    async def _on(self, tenant: str, limit: Limit, owner: str, day: str) -> Spending:
        return await self._store.spent(tenant, day, day, *limit.of(owner))

    async def _mark(self, row: RunRow, limit: Limit, day: str, what: str, words: str) -> None:
        """Notifies people of a mark, once in each period, and again if the limit was changed."""
        budget, period = limit.budget, self.calendar.name(limit.period, day)
        whose = row.owner if budget.scope == PERSON else ""
        name = f"{budget.name} {whose} {limit.period} {what}"
        said = {"period": period, "changed": budget.changed}
        key = (row.tenant, name, period, str(budget.changed))
        if key in self._marked:
            return
        if (await self._store.kept(row.tenant, MARK)).get(name) != said:
            await self._notify(
                notice(
                    row.tenant,
                    "budget",
                    at=self._clock(),
                    key=f"{name} {period} {budget.changed}",
                    owner=whose,
                    playbook=budget.subject if budget.scope == PLAYBOOK else "",
                    run=row.id if what == "hard" else "",
                    text=words,
                )
            )
            await self._store.keep(row.tenant, MARK, name, said)
        self._marked.add(key)


def _never_fits(limit: Limit, call: str) -> str:
    """Why a run pauses whose next call is larger than the whole limit."""
    budget, tokens = limit.budget, "" if limit.tokens is None else f"{limit.tokens:,} tokens"
    whole = " and ".join(filter(None, ("" if limit.money is None else money_words(limit.money), tokens)))
    return (
        f"{call}, which never fits in the budget '{budget.name}' of {whole} a {limit.period}. Waiting does not change"
        f" that: raise it with `cuebook budget set{budget.flags()}`, or let this run continue with `cuebook budget allow`."
    )


def _most(limit: Limit, most: Spending) -> str:
    parts = [money_words(most.held)] if limit.money is not None else []
    parts += [f"{most.held_tokens:,} tokens"] if limit.tokens is not None else []
    return " and ".join(parts)
