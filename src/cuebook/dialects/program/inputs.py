"""The inputs of a run: what the playbooks take that run when the program starts. Knows no surface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cuebook.dialects.program.evaluate import DoesNotCoerce, coerced
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.model import Param, ProgramText
from cuebook.dialects.values import Malformed
from cuebook.dialects.wording import meant
from cuebook.dialects.yaml12 import read_json
from cuebook.kernel.errors import BadInput


def accept(program: ProgramText, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as a run keeps them, defaults filled in. `BadInput` names everything that is missing or wrong."""
    params = {param.name: param for param in program.params}
    accepted: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in given.items():
        if name not in params and program.called:
            wrong.append(f"'{name}' is no input: what {program.called} is given stands in the call.")
            continue
        if name not in params:
            wrong.append(f"The program takes no input '{name}'. {meant(name, params)}")
            continue
        try:
            accepted[name] = coerced(value, params[name].wanted).value
        except DoesNotCoerce:
            wrong.append(f"{name} must be of the type {params[name].wanted}, not {_shown(value)}.")
    missing = [name for name, param in params.items() if name not in accepted and name not in given]
    needed = [name for name in missing if not params[name].has_default]
    if needed:
        wrong.append(f"Missing: {', '.join(_wanted(params[name]) for name in needed)}.")
    if wrong:
        raise BadInput(" ".join(wrong), fix="Give each input as --input NAME=VALUE.")
    return accepted | {name: params[name].default for name in missing}


def taken(program: ProgramText, name: str) -> bool:
    return any(param.name == name for param in program.params)


def typed_value(program: ProgramText, name: str, text: str) -> Any:
    """The value of the parameter's type; the text itself where it says nothing of that type."""
    param = next((param for param in program.params if param.name == name), None)
    if param is None:
        return text
    try:
        return coerced(text, param.wanted).value
    except DoesNotCoerce:
        return text


def changed_value(program: ProgramText, name: str, text: str) -> Any:
    """What a person gives a variable: of its type, where it fits one; else as JSON says, or the text."""
    for type in _types(program, name):
        try:
            return coerced(text, type).value
        except DoesNotCoerce:
            continue
    try:
        return read_json(text).plain
    except Malformed:
        return text


def check_changes(program: ProgramText, known: Iterable[str], given: Mapping[str, Any]) -> None:
    """`BadInput` for a variable that is not there, and for a value that is not of its type."""
    names = dict.fromkeys((*(param.name for param in program.params), *known, *_declared(program)))
    for name, value in given.items():
        if name not in names:
            raise BadInput(f"{program.name} has no variable '{name}'.", fix=f"It has: {', '.join(names) or 'none'}.")
        types = _types(program, name)
        if types and not any(_fits(value, type) for type in types):
            wanted = " or ".join(dict.fromkeys(types))
            raise BadInput(f"${name} must be of the type {wanted}, not {_shown(value)}.", fix="Give it one that is.")


def _fits(value: Any, type: str) -> bool:
    try:
        return not coerced(value, type).changed
    except DoesNotCoerce:
        return False


def _declared(program: ProgramText) -> dict[str, list[str]]:
    """The variables that playbooks name, each with the types that they give it."""
    found: dict[str, list[str]] = {}
    for agent in program.agents.values():
        for playbook in agent.playbooks.values():
            for name, type in Listing.of(playbook).declared.items():
                found.setdefault(name, []).extend([type] if type else [])
    return found


def _types(program: ProgramText, name: str) -> list[str]:
    of_inputs = [param.wanted for param in program.params if param.name == name and param.wanted]
    return of_inputs + _declared(program).get(name, [])


def _wanted(param: Param) -> str:
    return f"{param.name} ({param.type})" if param.type else param.name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
