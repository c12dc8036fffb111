"""Results that a person changes: what comes of a result then, and whether the value fits what its node declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.graph.inputs import typed_value
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.schemas import mismatches
from cuebook.kernel.errors import BadInput


def with_change(data: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """A result's data with another value of a field; without a field, all of it is another."""
    if field:
        return {**data, field: value}
    return dict(value) if isinstance(value, dict) else {"value": value}


def accepted(workflow: Workflow, results: Mapping[str, Any], name: str, text: str) -> Any:
    """The value for `NODE` or `NODE.FIELD`, from the text that somebody wrote. `BadInput` where the node's output schema
    does not let it be. A text that reads as JSON is taken as it is written where only that fits.
    """
    id, _, field = name.partition(".")
    value = typed_value(workflow, name, text)
    node = workflow.nodes.get(id)
    if node is None or node.output is None:
        return value
    before = mismatches(node.output, results[id])
    wrong: list[str] = []
    for one in (value, text):
        found = [flaw for flaw in mismatches(node.output, with_change(results[id], field, one)) if flaw not in before]
        if not found:
            return one
        wrong = wrong or found
    raise BadInput(
        f"{name} does not fit the output that node {id} declares: {'; '.join(wrong)}.",
        fix="Give a value that fits, or change the node's output.",
    )
