"""The user's changes to results, each checked against the node's declared output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.graph.inputs import WITHOUT_DECLARING, accept, check_plain, taken, typed_value
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.paths import node_in
from cuebook.formats.schema import mismatches
from cuebook.kernel.errors import BadInput


def with_change(data: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The data of a result after a change to one field, or to the whole result if `field` is empty."""
    if field:
        return {**data, field: value}
    return dict(value) if isinstance(value, dict) else {"value": value}


def read(workflow: Workflow, results: Mapping[str, Any], name: str, text: str) -> Any:
    """Parses the text of a changed value. The value of a result is parsed as JSON, unless only the text itself matches
    the declared output.
    """
    value = typed_value(workflow, name.removeprefix(_INPUT), text)
    if not node_in(name, results)[0]:
        return value
    return text if _flaws(workflow, results, name, value) and not _flaws(workflow, results, name, text) else value


def check(
    workflow: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    """Checks changes: `NODE` and `NODE.FIELD` change an existing result, any other name changes an input. Raises
    `BadInput` for an unknown name and for a value that does not match its declaration.
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
    """Whether a name is an input. An input that is neither declared nor given needs the prefix, as in `input.tone`:
    without it, the name may be a misspelt node.
    """
    if name.startswith(_INPUT):
        return taken(workflow, name.removeprefix(_INPUT))
    return name in inputs or name in WITHOUT_DECLARING or any(one.name == name for one in workflow.declared or ())


def _unknown(workflow: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], name: str) -> BadInput:
    id = node_in(name, workflow.nodes)[0]
    known = dict.fromkeys((*(one.name for one in workflow.declared or ()), *inputs, *results))
    there = f"Known names: {', '.join(known) or 'none'}."
    if id:
        return BadInput(f"The node '{id}' has no result yet, so {name} cannot be changed.", fix=there)
    return BadInput(f"There is no value named '{name}'.", fix=there)


def _check_result(workflow: Workflow, results: Mapping[str, Any], name: str, value: Any) -> None:
    wrong = _flaws(workflow, results, name, value)
    if wrong:
        raise BadInput(
            f"{name} does not match the declared output of node {node_in(name, results)[0]}: {'; '.join(wrong)}.",
            fix="Use a value that matches it, or change the node's output.",
        )


def _flaws(workflow: Workflow, results: Mapping[str, Any], name: str, value: Any) -> list[str]:
    """The mismatches that this change adds to a result."""
    id, field = node_in(name, results)
    node = workflow.nodes.get(id)
    if node is None or node.output is None:
        return []
    before = mismatches(node.output, results[id])
    return [flaw for flaw in mismatches(node.output, with_change(results[id], field, value)) if flaw not in before]
