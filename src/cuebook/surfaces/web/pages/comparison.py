"""The pages of comparisons, with plots, and the same as a file for those who have no account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.service import Principal
from cuebook.surfaces import display
from cuebook.surfaces.web.api.comparisons import chosen_runs, table_for
from cuebook.surfaces.web.auth.guard import waiting_for
from cuebook.surfaces.web.drawing.bars import Bar, rows
from cuebook.surfaces.web.pages.render import environment, page
from cuebook.surfaces.web.site import Site
from cuebook.testing.comparison.results import Result
from cuebook.testing.comparison.table import Column, Row, Table
from cuebook.testing.comparison.words import check_words, share_words, totals_of

_STATIC = Path(__file__).parents[1] / "static"
_STYLES = ("app.css", "plots.css", "compare.css")
_MOST_CASES = 50
_LONGEST = 4_000
"""The number of characters of an output on a page; a file contains all of it."""


async def comparisons(request: Request, site: Site, who: Principal) -> Response:
    """The list of comparisons, or the comparison of the runs that are chosen."""
    runs = chosen_runs(request)
    if runs:
        return await _shown(request, site, who, await table_for(site, runs, who))
    listed = await site.service.comparisons.listed(who)
    return page(request, "comparisons.html", waiting=await waiting_for(site, who), listed=listed)


async def comparison(request: Request, site: Site, who: Principal) -> Response:
    return await _shown(request, site, who, await table_for(site, request.path_params["id"], who))


async def _shown(request: Request, site: Site, who: Principal, table: Table) -> Response:
    return page(
        request,
        "comparison.html",
        waiting=await waiting_for(site, who),
        title=_title(table),
        one=table.comparison,
        shown=_view(table, cases=_MOST_CASES, longest=_LONGEST),
    )


def as_file(table: Table) -> str:
    """A comparison as one HTML file that loads nothing."""
    style = Markup("\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _STYLES))
    template = environment().get_template("comparison-file.html")
    return template.render(title=_title(table), one=table.comparison, shown=_view(table), style=style)


def _title(table: Table) -> str:
    return "Comparison of runs" if table.comparison is None else f"Comparison of {table.comparison.title}"


def _view(table: Table, cases: int | None = None, longest: int | None = None) -> dict[str, Any]:
    """What the templates show of a table."""
    found = [column.checks for column in table.columns]
    names = table.checks if table.checks != ["status"] else []
    verdicts = table.verdicts
    shown = table.rows[:cases]
    return {
        "labels": [column.label for column in table.columns],
        "totals": list(totals_of(table)),
        "checks": [(name, [check_words(one[name]) if name in one else "-" for one in found]) for name in names],
        "plots": list(_plots(table)) if any(column.ended for column in table.columns) else [],
        "dots": any(len(column.ended) > 1 for column in table.columns),
        "unknown": any(column.unknown_costs for column in table.columns),
        "rows": [_row(table, row, longest) for row in shown],
        "more": len(table.rows) - len(shown),
        "runs": sum(bool(one.run) for one in table.results),
        "left": verdicts["waiting"] + verdicts["unfinished"] + verdicts["not started"],
    }


def _row(table: Table, row: Row, longest: int | None) -> dict[str, Any]:
    cells = []
    first: list[tuple[str, str]] = []
    for column, group in zip(table.columns, row.groups, strict=True):
        run = next((one.run for one in group.results if one.run), "")
        if run:
            first.append((column.label, run))
        cells.append(
            {
                "label": column.label,
                "verdicts": list(Counter(one.verdict for one in group.results).items()),
                "same": share_words(group.same_output),
                "outputs": [_output(text, runs, longest) for text, runs in group.outputs],
            }
        )
    pairs = [(label, first[0][1], run) for label, run in first[1:]]
    return {"name": row.name, "cells": cells, "first": first[0][0] if first else "", "pairs": pairs}


def _output(text: str | None, runs: list[Result], longest: int | None) -> tuple[str | None, bool, list[Result]]:
    if text is None or longest is None or len(text) <= longest:
        return text, False, runs
    return text[:longest], True, runs


# --- plots --------------------------------------------------------------------------------------------------


def _plots(table: Table) -> Iterator[tuple[str, Markup]]:
    columns = table.columns
    passed = [_share(one.label, one.verdicts["passed"], len(one.results)) for one in columns]
    yield _plot("Passed", passed, 1.0)
    if any(one.same_output.of for one in columns):
        yield _plot(
            "Same output", [_share(one.label, one.same_output.same, one.same_output.of) for one in columns], 1.0
        )
        yield _plot(
            "Same verdict", [_share(one.label, one.same_verdict.same, one.same_verdict.of) for one in columns], 1.0
        )
    costs = [
        Bar(
            one.label,
            one.cost_per_run or 0.0,
            "unknown" if one.cost_per_run is None else display.money(one.cost_per_run),
            one.unknown_costs > 0,
        )
        for one in columns
    ]
    yield _plot("Cost per run", costs, dots=_dots(columns, lambda one: one.cost))
    times = [
        Bar(one.label, one.seconds[0] if one.seconds else 0.0, display.duration(one.seconds[0]) if one.seconds else "-")
        for one in columns
    ]
    yield _plot("Time per run", times, dots=_dots(columns, lambda one: one.seconds))


def _share(label: str, same: int, of: int) -> Bar:
    return Bar(label, same / of if of else 0.0, f"{same:,} of {of:,}" if of else "-")


def _dots(columns: Sequence[Column], value: Callable[[Result], float | None]) -> list[list[float]]:
    return [[found for one in column.ended if (found := value(one)) is not None] for column in columns]


def _plot(
    title: str, bars: Sequence[Bar], most: float = 0.0, dots: Sequence[Sequence[float]] = ()
) -> tuple[str, Markup]:
    words = "; ".join(f"{bar.name} {bar.words}" for bar in bars)
    return title, rows(bars, f"{title}: {words}", most, dots)
