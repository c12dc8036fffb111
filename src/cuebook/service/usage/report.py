"""Adds up what runs used in some days, in groups. A person sees their own use; an admin sees everyone's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from typing import Any, Literal, get_args

import msgspec

from cuebook.formats.words import counted
from cuebook.gate.roles import Principal
from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.spending import COUNTED, Part, Spending

By = Literal["day", "playbook", "model", "person"]
BY: tuple[By, ...] = get_args(By)
_FIELD: dict[By, Part] = {"day": "day", "playbook": "playbook", "model": "model", "person": "owner"}
DAYS = 30
"""How many days a report covers if nothing says from when."""


class Group(msgspec.Struct, frozen=True):
    """What was used on one day, by one playbook, model or person, or in total."""

    name: str
    """Empty for a person whose data was erased."""
    used: Spending

    @property
    def unknown_costs(self) -> int:
        return max(0, self.used.unknown_costs)

    @property
    def is_used(self) -> bool:
        return any(getattr(self.used, name) for name in COUNTED)


class UsageReport(msgspec.Struct, frozen=True):
    """What was used from the first to the last day."""

    since: str
    until: str
    owner: str
    """The only person whose use it covers; empty if it covers everyone's."""
    total: Group
    sums: dict[By, tuple[Spending, ...]]
    """What was used, as it was asked for, each added up by names."""

    def by(self, by: By) -> list[Group]:
        """Groups, the days in order and everything else with the most expensive first. Each day is there."""
        named = _FIELD[by]
        groups = [Group(getattr(one, named), one) for one in self.sums[by]]
        if by == "day":
            known = {one.name: one for one in groups}
            return [known.get(day) or Group(day, _nothing()) for day in days(self.since, self.until)]
        shown = [one for one in groups if one.is_used and (by != "model" or one.name)]  # a run may use several models
        return sorted(shown, key=lambda one: (-one.used.cost, -one.used.tokens, -one.used.runs, one.name))


async def usage_report(
    store: Store,
    who: Principal,
    today: str,
    since: str = "",
    until: str = "",
    playbook: str = "",
    parts: Sequence[By] = BY,
) -> UsageReport:
    """The report for this user, by default of the last 30 days, added up in each of these ways."""
    who.require("viewer", "view usage")
    until = until or today
    since = since or (date.fromisoformat(until) - timedelta(days=DAYS - 1)).isoformat()
    if since > until:
        raise BadInput(f"The first day, {since}, is after the last, {until}.", fix="Swap them.")
    if (date.fromisoformat(until) - date.fromisoformat(since)).days > 3_660:
        raise BadInput("A report covers at most ten years.", fix="Choose a later first day.")
    owner = "" if who.may("admin") else who.name
    sums = {
        by: tuple(await store.spending_by(_FIELD[by], who.tenant, since, until, owner or None, playbook or None))
        for by in parts
    }
    total = Group("", _sum(next(iter(sums.values()))))
    return UsageReport(since, until, owner, total, sums)


def added_up(groups: Iterable[Group], name_of: Callable[[str], str]) -> list[Group]:
    """Groups that get the same name added up, in their order."""
    found: dict[str, Spending] = {}
    for one in groups:
        found.setdefault(name_of(one.name), _nothing()).add(one.used)
    return [Group(name, used) for name, used in found.items()]


def days(since: str, until: str) -> Iterable[str]:
    day, last = date.fromisoformat(since), date.fromisoformat(until)
    while day <= last:
        yield day.isoformat()
        day += timedelta(days=1)


def usage_object(group: Group, by: str = "") -> dict[str, Any]:
    """A group as data. `cost` is without the calls of unknown cost; `held` is the most that some of them may cost."""
    used = group.used
    counts = {
        name: getattr(used, name) for name in COUNTED if name not in ("cost", "unknown_costs", "held", "held_tokens")
    }
    named = {by: group.name} if by else {}
    cost = {"cost": round(used.cost, 9), "unknown_costs": group.unknown_costs, "held": round(max(0.0, used.held), 9)}
    return {**named, **counts, "tokens": used.tokens, **cost}


def report_object(report: UsageReport, by: By) -> dict[str, Any]:
    """A report as data, added up one way."""
    days = {"since": report.since, "until": report.until}
    groups = [usage_object(one, by) for one in report.by(by)]
    return {**days, "by": by, "owner": report.owner, "total": usage_object(report.total), "groups": groups}


def cost_words(group: Group) -> str:
    """What is known of the cost, and how much of it is unknown. Never 0 for a cost that is unknown."""
    used, unknown = group.used, group.unknown_costs
    if not unknown:
        return money_words(used.cost)
    most = f", at most {money_words(used.held)}" if used.held > 1e-9 else ""
    if not used.cost:
        return f"unknown ({counted(unknown, 'call')}{most})"
    return f"{money_words(used.cost)} + unknown ({counted(unknown, 'call')}{most})"


def _nothing() -> Spending:
    return Spending("", "", "", "")


def _sum(rows: Iterable[Spending]) -> Spending:
    total = _nothing()
    for row in rows:
        total.add(row)
    return total
