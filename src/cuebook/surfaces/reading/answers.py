"""Answers that are given beforehand, held against the questions of a playbook: one that cannot be used is told before
anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuebook.dialects.registry import OutlinedStep
from cuebook.kernel.errors import BadInput
from cuebook.kernel.questions import fitting


def check_answers(answers: Mapping[str, str | tuple[str, ...]], outline: Sequence[OutlinedStep]) -> None:
    """`BadInput` for an answer to a step that is not there or asks nothing, or that its question does not take."""
    labels = dict.fromkeys(step.label for step in outline)
    asking = [step for step in outline if step.question is not None]
    for label in answers:
        if label not in labels:
            raise BadInput(f"The answer for step {label}: there is no such step.", fix=_which_ask(asking))
        if not any(label in (step.label, step.within) for step in asking):
            raise BadInput(f"The answer for step {label}: that step asks nothing.", fix=_which_ask(asking))
    for step in asking:
        # The nearest label counts: an answer for a step is one for what its sub-steps ask, too.
        nearest = next((one for one in (step.label, step.within) if one in answers), None)
        if nearest is not None:
            said = answers[nearest]
            for value in said if isinstance(said, tuple) else (said,):
                _check_one(nearest, value, step)


def _check_one(label: str, value: str, step: OutlinedStep) -> None:
    assert step.question is not None
    try:
        fitting(step.question.type, step.question.options, value)
    except BadInput as error:
        if label == step.label:
            raise BadInput(f"The answer for step {label}: {error.message}", fix=error.fix) from None
        raise BadInput(
            f"The answer for step {label} would answer step {step.label}, too, and there {error.message}",
            fix=f"Give step {step.label} an answer of its own.",
        ) from None


def _which_ask(asking: Sequence[OutlinedStep]) -> str:
    listed = ", ".join(dict.fromkeys(step.label for step in asking))
    return f"Steps that ask: {listed}." if listed else "No step asks anything."
