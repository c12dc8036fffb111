"""Compares two runs step by step, as plain values for every surface. Read-only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from cuebook.kernel.run import StepRow, Totals
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import Principal, RunView, Service

_COMPARED = 2_000
"""The maximum number of lines to compare; the rest is only reported as equal or different."""
_ANSWER = "__elicit_step_"
"""Name prefix of values that contain the answer to a step's question."""
_LONGEST = 500
"""The maximum number of characters to show per line."""


class Side(msgspec.Struct, frozen=True):
    """One of the two runs."""

    view: RunView
    text: str
    """Its playbook's source."""

    @property
    def values(self) -> dict[str, Any]:
        """The values that are not inputs."""
        return {name: value for name, value in self.view.values.items() if name not in self.view.changed_inputs}


async def side_of(service: Service, run: str, who: Principal = Principal()) -> Side:
    """One side of a comparison; `run` is an id or an id prefix."""
    row = await service.get(run, who)
    return Side(await service.view(row.id, who), await service.playbook_text(row))


def compare(first: Side, second: Side, lines: int) -> dict[str, Any]:
    """All differences, with at most `lines` lines of each text."""
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
    return run_objects.row_object(view.run)


Key = tuple[str, str, int]


def _rows(side: Side) -> dict[Key, StepRow]:
    return {(step.path, step.label, step.visit): step for step in side.view.steps}


def _keys(first: Side, second: Side) -> list[Key]:
    """The steps of both runs in the order of the first run. A step that only the second run has stays after its
    predecessor."""
    order, others = list(_rows(first)), _rows(second)
    place = -1
    for key in others:
        if key in order:
            place = order.index(key)
            continue
        while place + 1 < len(order) and order[place + 1] not in others:  # steps that only the first run has come first
            place += 1
        place += 1
        order.insert(place, key)
    return order


def _step(first: Side, second: Side, key: Key, lines: int) -> dict[str, Any]:
    rows = _rows(first).get(key), _rows(second).get(key)
    texts = [_output(side, row) for side, row in zip((first, second), rows, strict=True)]
    named = rows[0] or rows[1]
    assert named is not None
    sides = [None if row is None else _step_side(row) for row in rows]
    output = _difference(texts[0], texts[1], lines)
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
        "cost": run_objects.known_cost(totals),
        "unknown_costs": totals.unknown_costs,
        "seconds": totals.seconds,
    }


def called(name: str) -> str:
    """The display name of a value. A value that the playbook does not name is the answer to a question."""
    step = name.removeprefix(_ANSWER)
    return name if step == name else f"the question in step {step}"


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The names whose values differ, each with both values; None if a value is missing."""
    names = dict.fromkeys([*first, *second])
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}


def _difference(first: str | None, second: str | None, lines: int) -> dict[str, Any] | None:
    """A unified diff of two texts, of bounded length; None if they are equal. Either text may be missing."""
    if first == second:
        return None
    before, after = ([] if text is None else text.split("\n") for text in (first, second))
    compared = difflib.unified_diff(before[:_COMPARED], after[:_COMPARED], "first", "second", n=2, lineterm="")
    found = list(islice(compared, 2, 2 + lines + 1))
    cut = len(found) > lines or max(len(before), len(after)) > _COMPARED
    shown = [line if len(line) <= _LONGEST else line[:_LONGEST] + "…" for line in found[:lines]]
    return {"diff": "\n".join(shown), "cut": cut}
