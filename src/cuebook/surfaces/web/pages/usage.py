"""The page of what runs used, with plots, and of the budgets that limit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.budgets.administration import LimitState
from cuebook.service.budgets.objects import limit_cells
from cuebook.service.service import Principal
from cuebook.service.usage import By, Group, UsageReport, added_up, cost_words
from cuebook.surfaces.display import money
from cuebook.surfaces.web.api.spending import report_for
from cuebook.surfaces.web.auth.guard import waiting_for
from cuebook.surfaces.web.drawing.bars import Bar, plot, summary
from cuebook.surfaces.web.pages.render import page
from cuebook.surfaces.web.site import Site

_PERIODS = (("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"), ("365d", "a year"))
_MOST_BARS = 120
"""The most days that are drawn each; more are drawn by month."""
_TABLES: tuple[tuple[By, str], ...] = (("playbook", "By playbook"), ("model", "By model"), ("person", "By person"))
_MOST_ROWS = 50


class Plot(NamedTuple):
    title: str
    total: str
    drawing: Markup


async def usage(request: Request, site: Site, who: Principal) -> Response:
    found = await report_for(request, site, who)
    groups = found.by("day")
    unit = "day" if len(groups) <= _MOST_BARS else "month"
    if unit == "month":
        groups = added_up(groups, lambda name: name[:7])
    states, waiting = await site.service.budgets.listed(who), await site.service.budgets.paused(who)
    calendar = site.service.calendar
    return page(
        request,
        "usage.html",
        waiting=await waiting_for(site, who),
        report=found,
        asked=request.query_params.get("since", "") or "30d",
        playbook=request.query_params.get("playbook", ""),
        periods=_PERIODS,
        unit=unit,
        plots=_plots(found, groups),
        days=[one for one in reversed(groups) if one.is_used],
        tables=[(words, by, found.by(by)[:_MOST_ROWS]) for by, words in _TABLES],
        cost=cost_words,
        budgets=[
            (
                one.budget,
                [(limit, _share(limit), list(limit_cells(limit))) for limit in one.limits],
                waiting.get(one.budget.name, ()),
            )
            for one in states
        ],
        moment=calendar.moment,
        zone=calendar.zone,
    )


def _plots(report: UsageReport, groups: Sequence[Group]) -> list[Plot]:
    total = report.total
    runs = [Bar(one.name, one.used.runs, f"{one.used.runs:,}") for one in groups]
    tokens = [Bar(one.name, one.used.tokens, f"{one.used.tokens:,}") for one in groups]
    costs = [Bar(one.name, one.used.cost, cost_words(one), one.unknown_costs > 0) for one in groups]
    return [
        _plot("Money", cost_words(total), costs, lambda value: money(value) if value else "$0"),
        _plot("Tokens", f"{total.used.tokens:,}", tokens, _short),
        _plot("Runs", f"{total.used.runs:,}", runs, _short),
    ]


def _plot(title: str, total: str, bars: Sequence[Bar], words: Callable[[float], str]) -> Plot:
    return Plot(title, total, plot(bars, summary(title, bars, total), words))


def _short(value: float) -> str:
    """A number on a scale."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{math.ceil(value):,}"


def _share(limit: LimitState) -> float:
    """How much of a limit is used or set aside, from 0 to 1."""
    used, shares = limit.used, [0.0]
    if limit.money is not None:
        shares.append((used.cost + used.held) / limit.money if limit.money else 1.0)
    if limit.tokens is not None:
        shares.append((used.tokens + used.held_tokens) / limit.tokens if limit.tokens else 1.0)
    return min(1.0, max(shares))
