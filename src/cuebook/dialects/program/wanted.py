"""The playbook that is called from outside, instead of what begins with the program: `Name`, or `Name(argument=1)`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import Catalogue
from cuebook.dialects.program.evaluate import NotComputable
from cuebook.dialects.program.expressions import CallOf, ExpressionError, call_of
from cuebook.dialects.program.frames import Error, QueuedCall
from cuebook.dialects.program.items import Call
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.running import prepared, values_of
from cuebook.dialects.wording import meant
from cuebook.kernel.errors import BadInput

_FIX = "Write it as Playbook(argument=1)."


def wanted(catalogue: Catalogue, text: str) -> QueuedCall:
    """The call by its full name. `BadInput` if there is no such playbook."""
    call = _call(text)
    names: dict[str, None] = {}
    for agent in catalogue.agents:
        view = catalogue.view(agent)
        callee = view.callees.get(call.name)
        if callee is not None:
            return QueuedCall("#1", Call(f"{callee.agent.name}.{callee.playbook.name}", call.args, call.named))
        names |= dict.fromkeys(view.named)
    raise BadInput(f"There is no playbook '{call.name}' in {catalogue.program.name}.", fix=meant(call.name, names))


def check(program: ProgramText, text: str) -> None:
    """`BadInput` for a call that cannot be made. What an agent can do that lives elsewhere shows only in a run."""
    catalogue = Catalogue(program)
    if any(agent.remote is not None for agent in program.agents.values()):
        _call(text)
        return
    queued = wanted(catalogue, text)
    callee = catalogue.view(queued.name.partition(".")[0]).callees[queued.name]
    try:
        ready = prepared(callee, *values_of(queued.call, {}))
    except NotComputable as why:
        raise BadInput(f"An argument of {text} has no value: {why}.", fix=_FIX) from None
    if isinstance(ready, Error):
        raise BadInput(ready.message, fix=_FIX)


def adapted(program: ProgramText, options: Mapping[str, Any]) -> ProgramText:
    """The program as a run with these options takes it: a call has its arguments, and nothing else begins."""
    return msgspec.structs.replace(program, called=str(options["call"])) if options.get("call") else program


def _call(text: str) -> CallOf:
    try:
        return call_of(text if "(" in text else f"{text}()")
    except ExpressionError as error:
        raise BadInput(f"'{text}' is no call: {error}.", fix=_FIX) from None
