"""Run options, which a caller may set in addition to the inputs. They do not change during a run.

The common options apply to every dialect; a dialect may define more. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.kernel.effects import All, AskHuman, Branch, Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.kernel.run import WORKTREE


class Option(msgspec.Struct, frozen=True):
    """A run option: a switch, a number, one of several choices, or a string."""

    name: str
    help: str
    type: Literal["switch", "number", "choice", "text"] = "switch"
    choices: tuple[str, ...] = ()


STRICT = Option("strict", "Fail the run on any warning.")
STOP_ON_NO = Option("stop_on_no", "Stop the run if a confirmation is answered with no.")

OWN_WORKTREE = Option(WORKTREE, "Work in a git worktree of its own; merge the changes back after an approval.")

RUN_ID = "run_id"
"""The name under which a program finds the id of its run among its options. No caller can set it."""

COMMON = (STRICT, STOP_ON_NO, OWN_WORKTREE)

_LONGEST = 4_096
"""The maximum length of a text option."""


def chosen(options: Mapping[str, Any], known: Sequence[Option]) -> dict[str, Any]:
    """The options as a run stores them. Raises `BadInput` for an unknown option or an invalid value."""
    by_name = {option.name: option for option in known}
    kept: dict[str, Any] = {}
    for name, value in options.items():
        option = by_name.get(name)
        if option is None:
            raise BadInput(
                f"The option '{name}' is not available for this playbook.",
                fix=f"Available options: {', '.join(by_name)}.",
            )
        if value is None or value is False:
            continue
        if not _fits(option, value):
            raise BadInput(f"The option '{name}' cannot be {value!r}.", fix=_expected(option))
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


def _expected(option: Option) -> str:
    expected = {
        "switch": "true or false",
        "number": "a whole number above 0",
        "choice": f"one of: {', '.join(option.choices)}",
        "text": "a single line of text",
    }
    return f"It must be {expected[option.type]}."


def with_options(start: Callable[[Any], Program[Any]], options: Mapping[str, Any]) -> Callable[[Any], Program[Any]]:
    """The start function of a program with the common options applied."""
    if options.get(STRICT.name) or options.get(STOP_ON_NO.name):
        return lambda state: _with_options(start(state), options)
    return start


def _with_options(program: Program[Any], options: Mapping[str, Any]) -> Program[Any]:
    from cuebook.kernel.interception import intercepted

    return intercepted(
        program,
        lambda asked: _in_branches(asked, options) if isinstance(asked, All) else asked,
        lambda asked, outcome: _stops(asked, outcome, options),
    )


def _in_branches(asked: All, options: Mapping[str, Any]) -> All:
    branches = tuple(
        Branch(with_options(one.start, options), one.worktree) if isinstance(one, Branch) else one
        for one in asked.branches
    )
    return msgspec.structs.replace(asked, branches=branches)


def _stops(asked: Any, outcome: Any, options: Mapping[str, Any]) -> Failed | None:
    if options.get(STRICT.name) and isinstance(asked, Warned):
        return Failed("strict", asked.message, "Correct it, or run without --strict.")
    if options.get(STRICT.name) and isinstance(outcome, Reply) and outcome.finish == "length":
        return Failed(
            "strict", "The reply was cut off at the token limit.", "Raise max_tokens, or run without --strict."
        )
    if options.get(STOP_ON_NO.name) and _is_no(asked, outcome):
        return Failed("denied", f"The answer to '{asked.question[:200]}' was no, which stops the run.")
    return None


def _is_no(asked: Any, outcome: Any) -> bool:
    return isinstance(asked, AskHuman) and asked.type == "confirm" and outcome.value == "no"
