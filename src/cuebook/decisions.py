"""What people ask of a run that waits, checked before anything is written: decisions, settings, outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cuebook.gate.people import NotAllowed, Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.journal import outcome_from
from cuebook.kernel.run import Budget, Settings, WaitRow

Decision = Literal["approve", "deny", "repeat", "stop", "done"]

ABOUT = {
    "question": "a question",
    "approval": "an approval",
    "breakpoint": "a pause",
    "in_doubt": "an effect in doubt",
    "budget": "a budget",
    "timer": "a time",
    "message": "a message",
}


def approval(row: WaitRow, decision: str, reason: str, who: Principal) -> dict[str, Any]:
    """What an approver says, bound to the digest of what was shown."""
    if decision not in ("approve", "deny"):
        raise BadInput(f"'{decision}' does not decide an approval.", fix="Say approve or deny.")
    if row.details.get("different_person") and who.name == row.owner:
        raise NotAllowed(
            f"{who.name} started this run, and the policy wants another person to decide.",
            fix="Ask another approver.",
        )
    return {"decision": decision, "digest": row.details.get("digest", ""), "reason": reason}


def decided(row: WaitRow) -> str:
    """What was decided about a wait, in the word of whoever did; empty while nobody has."""
    return str(row.answer.get("decision", "")) if row.by else ""


def how_to(row: WaitRow) -> str:
    return {
        "approval": f"`cuebook decide {row.run} approve|deny` decides it.",
        "question": f"`cuebook answer {row.run} VALUE` answers it.",
        "breakpoint": f"`cuebook resume {row.run}` goes on.",
        "budget": f"`cuebook resume {row.run}` with a larger budget goes on.",
        "in_doubt": f"`cuebook decide {row.run} repeat|stop|done` decides it.",
    }.get(row.kind, "")


def checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    edits = msgspec.to_builtins(dict(settings or {}))
    _only_fields(edits, Settings, "setting")
    for name in ("workspace", "folder", "options"):
        if name in edits:
            raise BadInput(f"The {name} of a run cannot be changed.", fix="Start a new run there.")
    if isinstance(edits.get("budget"), dict):
        _only_fields(edits["budget"], Budget, "budget")
    try:
        Settings().edited(edits)
    except msgspec.ValidationError as error:
        raise BadInput(f"These settings do not fit: {error}.") from None
    return dict(edits)


def raised(wait: WaitRow, settings: dict[str, Any]) -> dict[str, Any]:
    if wait.details.get("code") == "unknown_price":
        return {"unknown_cost": True, **settings}
    if "budget" not in settings:
        raise BadInput(wait.prompt, fix="Resume with a larger budget.")
    return settings


def checked_outcome(row: WaitRow, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    """The outcome of an effect that a person knows happened, in the form its kind gives."""
    given = dict(outcome) if outcome is not None else row.details.get("late")
    if given is None:
        raise BadInput("'done' needs the outcome.", fix="Give it as JSON: what the effect gave back.")
    wanted = _OUTCOME_OF.get(row.details.get("effect", {}).get("is", ""), "Done")
    given = {"is": wanted, **given}
    if given["is"] not in (wanted, "Failed"):
        raise BadInput(f"This effect gives a {wanted}, not a {given['is']}.")
    try:
        made = outcome_from(given)
    except msgspec.ValidationError as error:
        raise BadInput(f"This is no outcome of the effect: {error}.") from None
    _only_fields({name: value for name, value in given.items() if name != "is"}, type(made), "field of this outcome")
    return given


def _only_fields(given: Mapping[str, Any], wanted: type[msgspec.Struct], what: str) -> None:
    """Refuses a misspelt name, which would otherwise be dropped in silence."""
    known = wanted.__struct_fields__
    for name in given:
        if name not in known:
            raise BadInput(f"There is no {what} '{name}'.", fix=f"There are: {', '.join(known)}.")


_OUTCOME_OF = {"CallTool": "ToolResult", "RunCommand": "CommandResult", "SendHttp": "HttpResponse"}
