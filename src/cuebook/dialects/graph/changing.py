"""Results that a person changes: what comes of a result then, and whether the value fits what its node declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.graph.inputs import WITHOUT_DECLARING, accept, check_plain, taken, typed_value
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.paths import node_in
from cuebook.dialects.schemas import mismatches
from cuebook.kernel.errors import BadInput


def with_change(data: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """A result's data with another value of a field; without a field, all of it is another."""
    if field:
        return {**data, field: value}
    return dict(value) if isinstance(value, dict) else {"value": value}


def read(workflow: Workflow, results: Mapping[str, Any], name: str, text: str) -> Any:
    """The value that somebody wrote as a text. One for a result is taken as it is written where only that fits what the
    node declares, and otherwise as JSON.
    """
    value = typed_value(workflow, name.removeprefix(_INPUT), text)
    if not node_in(name, results)[0]:
        return value
    return text if _flaws(workflow, results, name, value) and not _flaws(workflow, results, name, text) else value


def check(
    workflow: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    """`NODE` and `NODE.FIELD` change a result that there is, every other name an input. `BadInput` for a name that is
    neither, and for a value that does not fit what is declared.
    """
    given: dict[str, Any] = {}
    for name, value in changes.items():
        if node_in(name, results)[0]:
            check_plain(name, value)
            _check_result(workflow, results, name, value)
        elif _is_input(workflow, inputs, name):
            given[name.removeprefix(_INPUT)] = value
        else:
            raise _unknown(workflow, inputs, results, name)
    accept(workflow, {**inputs, **given})


_INPUT = "input."


def _is_input(workflow: Workflow, inputs: Mapping[str, Any], name: str) -> bool:
    """One that a run was not given and the workflow does not declare must be called one, as in `input.tone`: by its name
    alone it may be a node that is misspelt.
    """
    if name.startswith(_INPUT):
        return taken(workflow, name.removeprefix(_INPUT))
    return name in inputs or name in WITHOUT_DECLARING or any(one.name == name for one in workflow.declared or ())


def _unknown(workflow: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], name: str) -> BadInput:
    id = node_in(name, workflow.nodes)[0]
    known = dict.fromkeys((*(one.name for one in workflow.declared or ()), *inputs, *results))
    there = f"There are: {', '.join(known) or 'none'}."
    if id:
        return BadInput(f"The node '{id}' has no result at this point, so {name} cannot be changed.", fix=there)
    return BadInput(f"There is no value named '{name}'.", fix=there)


def _check_result(workflow: Workflow, results: Mapping[str, Any], name: str, value: Any) -> None:
    wrong = _flaws(workflow, results, name, value)
    if wrong:
        raise BadInput(
            f"{name} does not fit the output that node {node_in(name, results)[0]} declares: {'; '.join(wrong)}.",
            fix="Give a value that fits, or change the node's output.",
        )


def _flaws(workflow: Workflow, results: Mapping[str, Any], name: str, value: Any) -> list[str]:
    """What is wrong with a result by this value that was not wrong with it before."""
    id, field = node_in(name, results)
    node = workflow.nodes.get(id)
    if node is None or node.output is None:
        return []
    before = mismatches(node.output, results[id])
    return [flaw for flaw in mismatches(node.output, with_change(results[id], field, value)) if flaw not in before]
