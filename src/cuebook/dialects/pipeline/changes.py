"""Checks the user's changes to results and arguments against the pipeline's declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.pipeline.inputs import flaw, typed
from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.run.outputs import DRAFT
from cuebook.formats.json import read_json
from cuebook.formats.schema import mismatches
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Malformed
from cuebook.kernel.errors import BadInput


def accepted(pipeline: Pipeline, name: str, text: str) -> Any:
    """Parses the text that the user typed as the new value of an argument or of a step's result."""
    if name in pipeline.args:
        return _argument(pipeline, name, typed(pipeline, name, text))
    step = _step(pipeline, name)
    if step.output is None or step.output.type == "text":
        return text
    try:
        value = read_json(text).plain
    except Malformed as error:
        raise BadInput(f"The result of step {name} must be JSON: {error.message}.", fix="Enter valid JSON.") from None
    return _result(step, value)


def check(
    pipeline: Pipeline, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    """Raises `BadInput` for an unknown name, a step that has no result yet, or a value that does not match."""
    for name, value in changes.items():
        if name in pipeline.args:
            _argument(pipeline, name, value)
            continue
        step = _step(pipeline, name)
        if name not in results:
            done = ", ".join(results) or "none"
            raise BadInput(f"The step {name} has no result at that point.", fix=f"Steps with a result: {done}.")
        _result(step, value)


def _argument(pipeline: Pipeline, name: str, value: Any) -> Any:
    wrong = flaw(pipeline.args[name], value)
    if wrong:
        raise BadInput(f"{name} {wrong}.", fix="Enter a value that matches the declaration.")
    return value


def _step(pipeline: Pipeline, name: str) -> Step:
    step = next((one for one in pipeline.every if one.id == name), None)
    if step is None:
        known = [*pipeline.args, *(one.id for one in pipeline.every)]
        raise BadInput(f"There is no argument or step named '{name}'.", fix=meant(name, known))
    return step


def _result(step: Step, value: Any) -> Any:
    if step.output is None:
        return value
    if step.output.type == "text":
        if not isinstance(value, str):
            raise BadInput(f"The result of step {step.id} must be a string.", fix="Enter a string.")
        return value
    name = step.id
    wrongs = mismatches(step.output.schema, value, DRAFT) if step.output.schema is not None else []
    if wrongs:
        raise BadInput(
            f"The value does not match the output contract of step {name}: {'; '.join(wrongs)}.", fix="Correct it."
        )
    return value
