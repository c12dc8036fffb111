"""What a caller may choose about how a playbook is run, beyond its inputs. It stays as it is for the life of a run.

Every dialect heeds the common options; one may have more of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.listening import listening
from cuebook.kernel.effects import All, AskHuman, Branch, Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed, Reply


class Option(msgspec.Struct, frozen=True):
    """Something that can be chosen: a switch, a number, one of a few words, or a text."""

    name: str
    help: str
    type: Literal["switch", "number", "choice", "text"] = "switch"
    choices: tuple[str, ...] = ()


STRICT = Option("strict", "A warning fails the run.")
STOP_ON_NO = Option("stop_on_no", "A confirmation that is answered with no stops the run.")

COMMON = (STRICT, STOP_ON_NO)

_LONGEST = 4_096
"""Characters of an option that is a text."""


def chosen(options: Mapping[str, Any], known: Sequence[Option]) -> dict[str, Any]:
    """The options as a run keeps them; `BadInput` for one that is not known or does not fit."""
    by_name = {option.name: option for option in known}
    kept: dict[str, Any] = {}
    for name, value in options.items():
        option = by_name.get(name)
        if option is None:
            raise BadInput(f"There is no option '{name}' here.", fix=f"There are: {', '.join(by_name)}.")
        if value is None or value is False:
            continue
        if not _fits(option, value):
            raise BadInput(f"The option '{name}' cannot be {value!r}.", fix=_wanted(option))
        kept[name] = value
    return kept


def _fits(option: Option, value: Any) -> bool:
    match option.type:
        case "switch":
            return value is True
        case "number":
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case "choice":
            return value in option.choices
        case "text":
            return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()


def _wanted(option: Option) -> str:
    wanted = {
        "switch": "true or false",
        "number": "a whole number above 0",
        "choice": f"one of: {', '.join(option.choices)}",
        "text": "a text in one line",
    }
    return f"It is {wanted[option.type]}."


def heeding(start: Callable[[Any], Program[Any]], options: Mapping[str, Any]) -> Callable[[Any], Program[Any]]:
    """The same program, which the common options hold for."""
    if not any(options.get(option.name) for option in COMMON):
        return start
    return lambda state: _heed(start(state), options)


def _heed(program: Program[Any], options: Mapping[str, Any]) -> Program[Any]:
    return listening(
        program,
        lambda asked: _everywhere(asked, options) if isinstance(asked, All) else asked,
        lambda asked, outcome: _stops(asked, outcome, options),
    )


def _everywhere(asked: All, options: Mapping[str, Any]) -> All:
    return All(tuple(Branch(heeding(one.start, options)) if isinstance(one, Branch) else one for one in asked.branches))


def _stops(asked: Any, outcome: Any, options: Mapping[str, Any]) -> Failed | None:
    if options.get(STRICT.name) and isinstance(asked, Warned):
        return Failed("strict", asked.message, "Mend it, or run without --strict.")
    if options.get(STRICT.name) and isinstance(outcome, Reply) and outcome.finish == "length":
        return Failed("strict", "The reply was cut at the token limit.", "Raise max_tokens, or run without --strict.")
    if options.get(STOP_ON_NO.name) and _is_no(asked, outcome):
        return Failed("denied", f"The answer to '{asked.question[:200]}' was no, and that stops this run.")
    return None


def _is_no(asked: Any, outcome: Any) -> bool:
    return isinstance(asked, AskHuman) and asked.type == "confirm" and outcome.value == "no"
