"""`cuebook diff`: two runs side by side, step by step. It looks and changes nothing."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import click
import msgspec

from cuebook.kernel.run import StepRow, Totals
from cuebook.service import RunView, Service
from cuebook.surfaces.cli import completion, live, options, session, wording
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import say

LINES = 40
_COMPARED = 2_000
"""Lines of a text that are compared: what follows is only said to be the same or not."""
_LONGEST = 500
"""Characters of a line that are shown."""

Pair = tuple[Any, Any]


class Side(msgspec.Struct, frozen=True):
    """One of the two runs."""

    view: RunView
    text: str
    """The playbook that it ran."""

    @property
    def values(self) -> dict[str, Any]:
        """Those that are no inputs."""
        return {name: value for name, value in self.view.values.items() if name not in self.view.changed_inputs}


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
            help="The most lines of each difference.",
        ),
        options.STORE,
        options.AS_JSON,
    ],
)
def diff_command(given: Given) -> int:
    """Compare two runs, step by step.

    Told are the playbooks if their texts differ, the inputs and values that differ, and of each step its status, its
    tokens, its cost and how its output differs: lines that only the first RUN has begin with -, those that only the
    second has with +. The exit code is 0 whether they differ or not; --json says so in `same`.
    """

    async def look(service: Service) -> int:
        sides = await _side(service, given["first"]), await _side(service, given["second"])
        compared = compare(*sides, given["lines"])
        if given["as_json"]:
            sys.stdout.write(live.json_line(compared))
        else:
            say("\n".join(_lines(compared)))
        return 0

    return session.with_service(given, look, looking=True)


async def _side(service: Service, run: str) -> Side:
    row = await service.get(run)
    return Side(await service.view(row.id), await service.store.playbook(row.playbook))


# --- comparing ------------------------------------------------------------------------------------------


def compare(first: Side, second: Side, lines: int = LINES) -> dict[str, Any]:
    """Everything that differs; what `--json` prints."""
    steps = [_step(first, second, key, lines) for key in _keys(first, second)]
    changed = {
        "playbook": _difference(first.text, second.text, lines),
        "inputs": _changes(first.view.inputs, second.view.inputs),
        "values": _changes(first.values, second.values),
    }
    status = [_row(first.view)["status"], _row(second.view)["status"]]
    same = status[0] == status[1] and not any(changed.values()) and all(step["same"] for step in steps)
    return {
        "same": same,
        "runs": [_row(first.view), _row(second.view)],
        **changed,
        "steps": steps,
        "totals": [_totals(first.view.run.totals), _totals(second.view.run.totals)],
    }


def _row(view: RunView) -> dict[str, Any]:
    return wording.row_object(view.run)


Key = tuple[str, str, int]


def _rows(side: Side) -> dict[Key, StepRow]:
    return {(step.path, step.label, step.visit): step for step in side.view.steps}


def _keys(first: Side, second: Side) -> list[Key]:
    """The steps of both, in the order of the first; a step of the second alone stands after the one that it follows."""
    order = list(_rows(first))
    place = -1
    for key in _rows(second):
        if key in order:
            place = order.index(key)
        else:
            place += 1
            order.insert(place, key)
    return order


def _step(first: Side, second: Side, key: Key, lines: int) -> dict[str, Any]:
    rows = _rows(first).get(key), _rows(second).get(key)
    texts = [_output(side, row) for side, row in zip((first, second), rows, strict=True)]
    named = rows[0] or rows[1]
    assert named is not None
    sides = [None if row is None else _step_side(row) for row in rows]
    output = _difference(texts[0] or "", texts[1] or "", lines)
    states = [None if side is None else (side["status"], side["reason"]) for side in sides]
    return {
        "label": named.label,
        "title": named.title,
        "visit": named.visit,
        "same": states[0] == states[1] and output is None,
        "runs": sides,
        "output": output,
    }


def _output(side: Side, row: StepRow | None) -> str | None:
    found = side.view.outputs.get(row.label) if row is not None and row.seq else None
    return None if found is None else str(found)


def _step_side(row: StepRow) -> dict[str, Any]:
    return {"status": row.status, "reason": row.reason, "model": row.model, "totals": _totals(row.totals)}


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "input_tokens": totals.input,
        "output_tokens": totals.output,
        "cost": wording.known_cost(totals),
        "unknown_costs": totals.unknown_costs,
        "seconds": totals.seconds,
    }


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Names whose values differ, each with both; null where there is none."""
    names = dict.fromkeys([*first, *second])
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}


def _difference(first: str, second: str, lines: int) -> dict[str, Any] | None:
    """How two texts differ, as a unified diff of bounded length; None where they do not."""
    if first == second:
        return None
    before, after = first.split("\n"), second.split("\n")
    compared = difflib.unified_diff(before[:_COMPARED], after[:_COMPARED], "first", "second", n=2, lineterm="")
    found = list(islice(compared, 2, 2 + lines + 1))
    cut = len(found) > lines or max(len(before), len(after)) > _COMPARED
    shown = [line if len(line) <= _LONGEST else line[:_LONGEST] + "…" for line in found[:lines]]
    return {"diff": "\n".join(shown), "cut": cut}


# --- in words -------------------------------------------------------------------------------------------


def _lines(compared: Mapping[str, Any]) -> Iterator[str]:
    runs = compared["runs"]
    for sign, run in zip("-+", runs, strict=True):
        parent = f", forked from {run['parent']}" if run["parent"] else ""
        started = wording.moment(run["created"])
        yield f"{sign} run {run['run']}: {run['playbook']}, {run['status']}, {run['model']}, started {started}{parent}"
    if compared["playbook"] is not None:
        yield "\nplaybook:"
        yield from _diff_lines(compared["playbook"])
    for name in ("inputs", "values"):
        if compared[name]:
            yield f"\n{name}:"
            for one, (before, after) in compared[name].items():
                yield from (f"  - {one}: {_short(before)}", f"  + {one}: {_short(after)}")
    yield "\nsteps:"
    for step in compared["steps"]:
        yield from _step_lines(step)
    yield "\ntotals:"
    for sign, totals in zip("-+", compared["totals"], strict=True):
        yield f"  {sign} {_used(totals)}, {wording.duration(totals['seconds'])}"
    if compared["same"]:
        yield "\nThe runs came to the same."


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
        return "not there"
    status = side["status"].replace("_", " ") + (f": {side['reason']}" if side["reason"] else "")
    return f"{status}, {_used(side['totals'])}" if _paid(side) else status


def _used(totals: Mapping[str, Any]) -> str:
    cost = "cost unknown" if totals["cost"] is None else wording.money(totals["cost"])
    return f"{totals['input_tokens']:,} tokens in, {totals['output_tokens']:,} out, {cost}"


def _diff_lines(difference: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    if difference["diff"]:
        yield from (f"{indent}{line}" for line in difference["diff"].split("\n"))
    if difference["cut"]:
        yield f"{indent}(there is more; --lines shows more of it)"


def _short(value: Any) -> str:
    if value is None:
        return "(none)"
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:119] + "…"
