"""`cuebook diff`: compares two runs step by step. It changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cuebook.service.runs.compare import called, compare, side_of
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say

LINES = 40


@command(
    "diff",
    [
        click.Argument(["first"], metavar="RUN", shell_complete=completion.runs()),
        click.Argument(["second"], metavar="RUN", shell_complete=completion.runs()),
        click.Option(
            ["--lines"],
            type=click.IntRange(0, 100_000),
            default=LINES,
            show_default=True,
            help="The maximum number of lines to show for each difference.",
        ),
        options.STORE,
        options.AS_JSON,
    ],
)
def diff_command(given: Given) -> int:
    """Compare two runs, step by step.

    The output shows how the playbooks, inputs and values differ, and for each step the status, tokens, cost and the
    differences between the outputs: lines that are only in the first RUN start with -, lines that are only in the second
    with +. The exit code is 0 whether or not the runs differ; --json has the field `same`. To compare more runs by outputs,
    checks, cost and time, use `cuebook compare --runs`.
    """

    async def look(service: Service) -> int:
        first, second = await side_of(service, given["first"]), await side_of(service, given["second"])
        compared = compare(first, second, given["lines"])
        if given["as_json"]:
            sys.stdout.write(views.json_line(compared))
        else:
            say("\n".join(_lines(compared)))
        return 0

    return session.with_service(given, look, looking=True)


# --- as text --------------------------------------------------------------------------------------------


def _lines(compared: Mapping[str, Any]) -> Iterator[str]:
    runs = compared["runs"]
    for sign, run in zip("-+", runs, strict=True):
        parent = f", forked from {run['parent']}" if run["parent"] else ""
        started = display.moment(run["created"])
        yield f"{sign} run {run['run']}: {run['playbook']}, {run['status']}, {run['model']}, started {started}{parent}"
    if compared["playbook"] is not None:
        yield "\nplaybook:"
        yield from _diff_lines(compared["playbook"])
    for name in ("inputs", "values"):
        if compared[name]:
            yield f"\n{name}:"
            for one, (before, after) in compared[name].items():
                yield from (f"  - {called(one)}: {_short(before)}", f"  + {called(one)}: {_short(after)}")
    yield "\nsteps:"
    for step in compared["steps"]:
        yield from _step_lines(step)
    yield "\ntotals:"
    for sign, totals in zip("-+", compared["totals"], strict=True):
        yield f"  {sign} {_used(totals)}, {display.duration(totals['seconds'])}"
    if compared["same"]:
        yield "\nThe runs have the same results."


def _step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    again = f" (visit {step['visit']})" if step["visit"] > 1 else ""
    heading = f"  {step['label']} {step['title']}{again}"
    before, after = step["runs"]
    if step["same"]:
        used = f"; {_used(before['totals'])} against {_used(after['totals'])}" if before and after else ""
        yield f"{heading}: the same{used if _paid(before) or _paid(after) else ''}"
        return
    yield f"{heading}:"
    for sign, side in (("-", before), ("+", after)):
        yield f"    {sign} {_side_words(side)}"
    if step["output"] is not None:
        yield from _diff_lines(step["output"], "      ")


def _paid(side: Mapping[str, Any] | None) -> bool:
    return side is not None and bool(side["totals"]["input_tokens"] or side["totals"]["output_tokens"])


def _side_words(side: Mapping[str, Any] | None) -> str:
    if side is None:
        return "missing"
    status = side["status"].replace("_", " ") + (f": {side['reason']}" if side["reason"] else "")
    return f"{status}, {_used(side['totals'])}" if _paid(side) else status


def _used(totals: Mapping[str, Any]) -> str:
    cost = "cost unknown" if totals["cost"] is None else display.money(totals["cost"])
    return f"{totals['input_tokens']:,} tokens in, {totals['output_tokens']:,} out, {cost}"


def _diff_lines(difference: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    if difference["diff"]:
        yield from (f"{indent}{line}" for line in difference["diff"].split("\n"))
    if difference["cut"]:
        yield f"{indent}(truncated; --lines N shows more)"


def _short(value: Any) -> str:
    if value is None:
        return "(none)"
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:119] + "…"
