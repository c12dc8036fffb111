"""Results and arguments that a person changes: whether the value fits what the pipeline says of it."""

from __future__ import annotations

from typing import Any

from cuebook.dialects.pipeline.args import flaw, typed
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.pipeline.outputs import DRAFT
from cuebook.dialects.schemas import mismatches
from cuebook.dialects.values import Malformed
from cuebook.dialects.wording import meant
from cuebook.dialects.yaml12 import read_json
from cuebook.kernel.errors import BadInput


def accepted(pipeline: Pipeline, name: str, text: str) -> Any:
    """The value for an argument or for what a step gave, from the text that somebody wrote."""
    if name in pipeline.args:
        value = typed(pipeline, name, text)
        wrong = flaw(pipeline.args[name], value)
        if wrong:
            raise BadInput(f"{name} {wrong}.", fix="Give a value that fits.")
        return value
    step = next((one for one in pipeline.steps if one.id == name), None)
    if step is None:
        known = [*pipeline.args, *(one.id for one in pipeline.steps)]
        raise BadInput(f"There is no argument or step named '{name}'.", fix=meant(name, known))
    if step.output is None or step.output.type == "text":
        return text
    try:
        value = read_json(text).plain
    except Malformed as error:
        raise BadInput(f"The step {name} gives JSON: {error.message}.", fix="Give JSON.") from None
    wrongs = mismatches(step.output.schema, value, DRAFT) if step.output.schema is not None else []
    if wrongs:
        raise BadInput(f"It does not fit what the step {name} must give: {'; '.join(wrongs)}.", fix="Correct it.")
    return value
