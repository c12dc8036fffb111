"""What a table adds up to, in words, for the terminal and the pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuebook.formats.words import counted
from cuebook.kernel.engine.budget import money_words
from cuebook.testing.comparison.results import CheckResult
from cuebook.testing.comparison.table import Column, Share, Table


def totals_of(table: Table) -> Iterator[tuple[str, list[str]]]:
    """The rows of the summary: a name, and a cell for each column."""
    columns = table.columns
    for verdict, count in table.verdicts.items():
        if count or verdict == "passed":
            yield verdict, [f"{one.verdicts[verdict]:,} of {len(one.results):,}" for one in columns]
    if table.repeats:
        yield "same output", [share_words(one.same_output) or "-" for one in columns]
        yield "same verdict", [share_words(one.same_verdict) or "-" for one in columns]
    yield "cost", [cost_words(one) for one in columns]
    if any(len(one.results) > 1 for one in columns):
        yield "cost per run", ["-" if one.cost_per_run is None else money_words(one.cost_per_run) for one in columns]
    yield "time per run", [time_words(one) for one in columns]
    yield "tokens", [f"{one.tokens:,}" for one in columns]


def cost_words(column: Column) -> str:
    if column.cost is None:
        return "unknown"
    unknown = f" and {counted(column.unknown_costs, 'call')} of unknown cost" if column.unknown_costs else ""
    return f"{money_words(column.cost)}{unknown}"


def time_words(column: Column) -> str:
    if column.seconds is None:
        return "-"
    mean, least, most = column.seconds
    return f"{mean:.1f} s ({least:.1f} to {most:.1f} s)" if len(column.ended) > 1 else f"{mean:.1f} s"


def share_words(share: Share) -> str:
    """`8 of 10`; empty if nothing was repeated."""
    return f"{share.same:,} of {share.of:,}" if share.of else ""


def check_words(found: Mapping[CheckResult, int]) -> str:
    total = found["passed"] + found["failed"]
    words = f"{found['passed']:,} of {total:,}" if total else ""
    left = f"{counted(found['not checked'], 'run')} not checked" if found["not checked"] else ""
    return ", ".join(filter(None, [words, left]))
