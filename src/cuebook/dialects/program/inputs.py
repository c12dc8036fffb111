"""The inputs of a run: the parameters of the playbooks that run at the start, or the call to make instead.

Independent of the surfaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import Catalogue
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.calls import prepared, values_of
from cuebook.dialects.program.machine.frames import Error, QueuedCall
from cuebook.dialects.program.model import Param, ProgramText
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, NotComputable, coerced
from cuebook.dialects.program.values.expressions import CallOf, ExpressionError, call_of
from cuebook.formats.json import read_json
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Malformed
from cuebook.kernel.errors import BadInput

_CALL_FIX = "Write it as Playbook(argument=1)."


def accept(program: ProgramText, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a run, with defaults filled in. Raise `BadInput` with everything missing or invalid."""
    params = {param.name: param for param in program.params}
    accepted: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in given.items():
        if name not in params and program.called:
            wrong.append(f"Unknown input '{name}': {program.called} takes its arguments from the call.")
            continue
        if name not in params:
            wrong.append(f"Unknown input '{name}'. {meant(name, params)}")
            continue
        try:
            accepted[name] = coerced(value, params[name].value_type).value
        except DoesNotCoerce:
            wrong.append(f"{name} must be of type {params[name].value_type}, got {_shown(value)}.")
    missing = [name for name, param in params.items() if name not in accepted and name not in given]
    needed = [name for name in missing if not params[name].has_default]
    if needed:
        wrong.append(f"Missing: {', '.join(_wanted(params[name]) for name in needed)}.")
    if wrong:
        raise BadInput(" ".join(wrong), fix="Pass each input as --input NAME=VALUE.")
    return accepted | {name: params[name].default for name in missing}


def taken(program: ProgramText, name: str) -> bool:
    return any(param.name == name for param in program.params)


def typed_value(program: ProgramText, name: str, text: str) -> Any:
    """Return the value in the parameter's type, or the text if it is not a value of that type."""
    param = next((param for param in program.params if param.name == name), None)
    if param is None:
        return text
    try:
        return coerced(text, param.value_type).value
    except DoesNotCoerce:
        return text


def changed_value(program: ProgramText, name: str, text: str) -> Any:
    """Return a variable's new value: in its type if the text can be converted, otherwise as JSON, otherwise the text."""
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
    """Raise `BadInput` for an unknown variable or a value of the wrong type."""
    names = dict.fromkeys((*(param.name for param in program.params), *known, *_declared(program)))
    for name, value in given.items():
        if name not in names:
            raise BadInput(
                f"{program.name} has no variable '{name}'.", fix=f"Known variables: {', '.join(names) or 'none'}."
            )
        types = _types(program, name)
        if types and not any(_fits(value, type) for type in types):
            value_type = " or ".join(dict.fromkeys(types))
            raise BadInput(
                f"${name} must be of type {value_type}, got {_shown(value)}.", fix="Pass a value of that type."
            )


def _fits(value: Any, type: str) -> bool:
    try:
        return not coerced(value, type).changed
    except DoesNotCoerce:
        return False


def _declared(program: ProgramText) -> dict[str, list[str]]:
    """The variables that playbooks mention, with their declared types."""
    found: dict[str, list[str]] = {}
    for agent in program.agents.values():
        for playbook in agent.playbooks.values():
            for name, type in Listing.of(playbook).declared.items():
                found.setdefault(name, []).extend([type] if type else [])
    return found


def _types(program: ProgramText, name: str) -> list[str]:
    of_inputs = [param.value_type for param in program.params if param.name == name and param.value_type]
    return of_inputs + _declared(program).get(name, [])


def _wanted(param: Param) -> str:
    return f"{param.name} ({param.type})" if param.type else param.name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


# --- the call to make instead ---------------------------------------------------------------------------------


def requested_call(catalogue: Catalogue, text: str) -> QueuedCall:
    """Return the call with its full name. Raise `BadInput` if the playbook does not exist."""
    call = _parsed_call(text)
    names: dict[str, None] = {}
    for agent in catalogue.agents:
        view = catalogue.view(agent)
        callee = view.callees.get(call.name)
        if callee is not None:
            return QueuedCall("#1", Call(f"{callee.agent.name}.{callee.playbook.name}", call.args, call.named))
        names |= dict.fromkeys(view.named)
    raise BadInput(f"There is no playbook '{call.name}' in {catalogue.program.name}.", fix=meant(call.name, names))


def check_call(program: ProgramText, text: str) -> None:
    """Raise `BadInput` for a call that cannot be made. The playbooks of a remote agent are known only in a run."""
    catalogue = Catalogue(program)
    if any(agent.remote is not None for agent in program.agents.values()):
        _parsed_call(text)
        return
    queued = requested_call(catalogue, text)
    callee = catalogue.view(queued.name.partition(".")[0]).callees[queued.name]
    try:
        ready = prepared(callee, *values_of(queued.call, {}))
    except NotComputable as why:
        raise BadInput(f"An argument of {text} has no value: {why}.", fix=_CALL_FIX) from None
    if isinstance(ready, Error):
        raise BadInput(ready.message, fix=_CALL_FIX)


def adapted(program: ProgramText, options: Mapping[str, Any]) -> ProgramText:
    """The program as a run with these options sees it: with `call`, no other playbook runs at the start."""
    return msgspec.structs.replace(program, called=str(options["call"])) if options.get("call") else program


def _parsed_call(text: str) -> CallOf:
    try:
        return call_of(text if "(" in text else f"{text}()")
    except ExpressionError as error:
        raise BadInput(f"'{text}' is not a call: {error}.", fix=_CALL_FIX) from None
