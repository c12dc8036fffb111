"""Answers to questions: which ones are valid, and which one is used if nobody is asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cuebook.kernel.effects import AskHuman
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Answer, Failed
from cuebook.kernel.run import Settings

UNATTENDED = "unattended"
IN_ADVANCE = "beforehand"
"""The senders of automatic answers."""

FillIn = Callable[[Any, Any], str]
"""Checks an answer against the schema of its form, and returns it as JSON text; raises `BadInput`."""

_CONFIRMED = {"yes": "yes", "y": "yes", "true": "yes", "no": "no", "n": "no", "false": "no"}


def fitting(type: str, options: tuple[str, ...], value: Any, schema: Any = None, fill_in: FillIn | None = None) -> str:
    """Returns the answer as the question spells it; raises `BadInput`, which lists the valid answers.

    `fill_in` checks the answers to forms.
    """
    if type == "form" and fill_in is not None:
        return fill_in(schema, value)
    if type == "form" or not isinstance(value, str):
        raise BadInput("This answer cannot be checked here.", fix="Answer with a string.")
    if type == "confirm":
        said = _CONFIRMED.get(value.strip().lower())
        if said is None:
            raise BadInput(f"'{value}' is neither yes nor no.", fix="Answer yes or no.")
        return said
    if type == "select":
        by_name = {option.lower(): option for option in reversed(options)}
        chosen = value if value in options else by_name.get(value.strip().lower())
        if chosen is None:
            raise BadInput(f"'{value}' is not one of the options.", fix=f"Choose one of: {', '.join(options)}.")
        return chosen
    return value


def advance_answer(
    effect: AskHuman,
    labels: Iterable[str],
    settings: Settings,
    given: Mapping[str, int] | None = None,
    fill_in: FillIn | None = None,
) -> Answer | Failed | None:
    """The automatic answer: given in advance for the nearest label, or the default in an unattended run.

    `given` counts the answers already given for each label. Returns None if someone must be asked.
    """
    for label in labels:
        value = settings.answers.get(label) if label else None
        if isinstance(value, tuple):
            value = next(iter(value[(given or {}).get(label, 0) :]), None)
        if value is not None:
            return _checked(effect, value, IN_ADVANCE, f"The answer given in advance for step {label}", label, fill_in)
    if not settings.unattended:
        return None
    if effect.default is not None:
        what = f"The default answer to the question '{effect.question[:200]}'"
        return _checked(effect, effect.default, UNATTENDED, what, fill_in=fill_in)
    if effect.type == "form":
        message = f"The run is unattended, and this has no default: {effect.question[:200]}"
        return Failed("bad_answer", message, fix="Give the answer in advance, or a default.")
    first = effect.options[0] if effect.type == "select" and effect.options else ""
    return Answer("yes" if effect.type == "confirm" else first, UNATTENDED, question=effect.question)


def is_automatic(answer: Answer) -> bool:
    """Whether this answer was given in advance or is the default in an unattended run."""
    return answer.by in (UNATTENDED, IN_ADVANCE)


def _checked(
    effect: AskHuman, value: str, by: str, what: str, label: str = "", fill_in: FillIn | None = None
) -> Answer | Failed:
    try:
        said = fitting(effect.type, effect.options, value, effect.schema, fill_in)
        return Answer(said, by, label, effect.question)
    except BadInput as error:
        return Failed("bad_answer", f"{what} is not valid: {error.message}", error.fix)
