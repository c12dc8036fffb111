"""What answers a question: which ones fit it, and which one is taken where no person is asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from cuebook.kernel.effects import Answer, AskHuman, Failed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings

UNATTENDED = "unattended"
BEFOREHAND = "beforehand"
"""Who an answer is by that no person gave while the run went on."""

_CONFIRMED = {"yes": "yes", "y": "yes", "true": "yes", "no": "no", "n": "no", "false": "no"}


def fitting(type: str, options: tuple[str, ...], value: str) -> str:
    """The answer in the words of the question; `BadInput` that says what would fit."""
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


def beforehand(effect: AskHuman, labels: Iterable[str], settings: Settings) -> Answer | Failed | None:
    """The answer that needs no person: the one given for the nearest label, or what an unattended run falls back to.

    None: a person is asked.
    """
    by = UNATTENDED if settings.unattended else BEFOREHAND
    for label in labels:
        if label and label in settings.answers:
            return _checked(effect, settings.answers[label], by, f"The answer given beforehand for step {label}")
    if not settings.unattended:
        return None
    if effect.default is not None:
        return _checked(effect, effect.default, by, f"The default of the question '{effect.question[:200]}'")
    if effect.type == "confirm":
        return Answer("yes", by)
    return Answer(effect.options[0] if effect.type == "select" and effect.options else "", by)


def _checked(effect: AskHuman, value: str, by: str, what: str) -> Answer | Failed:
    try:
        return Answer(fitting(effect.type, effect.options, value), by)
    except BadInput as error:
        return Failed("bad_answer", f"{what} does not fit: {error.message}", error.fix)
