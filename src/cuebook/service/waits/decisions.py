"""Checks the decisions, values, settings and outcomes that users send to a waiting run before they are stored. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.engine.waits import ALLOWANCE
from cuebook.kernel.errors import BadInput
from cuebook.kernel.fold.replay import Recorded
from cuebook.kernel.journal import Entry, outcome_from
from cuebook.kernel.run import Budget, Settings, StepRow, WaitRow
from cuebook.kernel.votes import APPROVE, CHANGES, DENY, RULE, Rule, is_listed, rule_of

Decision = Literal["approve", "deny", "changes", "repeat", "stop", "done"]

ABOUT = {
    "question": "a question",
    "approval": "an approval",
    "breakpoint": "a pause",
    "in_doubt": "an effect in doubt",
    "budget": "a budget",
    "secret": "a secret",
    "timer": "a timer",
    "message": "a message",
    "model": "a step for the assistant",
    "needs": "a wait for another process",
}


def approval(
    row: WaitRow, decision: str, reason: str, who: Principal, *, to: str = "", by_token: bool = False
) -> dict[str, Any]:
    """An approver's answer, bound to the digest of the action that was shown. Every way to decide passes through here."""
    rule = rule_of(row.details)
    valid = [APPROVE, DENY, *([CHANGES] if rule.changes else [])]
    if decision not in valid:
        raise BadInput(f"'{decision}' is not a valid decision on this approval.", fix=f"Use {' or '.join(valid)}.")
    check_may_decide(row, who, by_token=by_token)
    answer = {"decision": decision, "digest": row.details.get("digest", ""), "reason": reason}
    return {**answer, "to": _sent_back_to(rule, to, reason)} if decision == CHANGES else answer


def check_may_decide(row: WaitRow, who: Principal, *, by_token: bool = False) -> None:
    """Raises `NotAllowed` if the approval's rule does not let this user decide."""
    rule = rule_of(row.details)
    if by_token and (rule.by or rule.counts):
        raise NotAllowed("A token has no name, and this approval says who decides.", fix="Sign in and decide there.")
    if rule.different_person and who.name == row.owner:
        source = "playbook" if row.details.get(RULE, {}).get("different_person") else "policy"
        raise NotAllowed(
            f"{who.name} started this run, and the {source} requires someone else to decide.",
            fix="Ask another approver.",
        )
    _check_listed(row, rule.by, who, "decide this")


def check_may_answer(row: WaitRow, who: Principal, *, by_token: bool = False) -> None:
    """Raises `NotAllowed` if the question is for others."""
    by = tuple(row.details.get("by", ()))
    if by and by_token:
        raise NotAllowed("A token has no name, and this question says who answers.", fix="Sign in and answer there.")
    _check_listed(row, by, who, "answer this")


def _check_listed(row: WaitRow, by: tuple[str, ...], who: Principal, what: str) -> None:
    if not is_listed(by, who.name, who.roles):
        raise NotAllowed(f"{who.name} may not {what}: it is for {', '.join(by)}.", fix=f"Ask one of them: {row.id}.")


def _sent_back_to(rule: Rule, to: str, reason: str) -> str:
    """The step to which a request for changes sends the run back."""
    if not reason.strip():
        raise BadInput("A request for changes needs feedback.", fix="Say what to change, as the reason.")
    if to and to not in rule.changes:
        raise BadInput(f"It cannot be sent back to step '{to}'.", fix=f"Use one of: {', '.join(rule.changes)}.")
    return to or rule.changes[0]


def decided(row: WaitRow) -> str:
    """The decision about a wait; empty if there is none yet."""
    return str(row.answer.get("decision", "")) if row.by else ""


def too_late(row: WaitRow, onward: str = "") -> str:
    """The fix for a wait that was already decided; `onward` describes how to continue its run."""
    word = decided(row)
    said = f"The decision was: {word}. " if word else ""
    return said + (onward or f"`cuebook show {row.run}` shows the run.")


def how_to(row: WaitRow) -> str:
    if row.kind == "budget" and row.details.get("code") == ALLOWANCE:
        return f"`cuebook budget allow {row.run}` lets this run continue."
    return {
        "approval": f"`cuebook decide {row.run} approve|deny` decides it.",
        "question": f"`cuebook answer {row.run} VALUE` answers it.",
        "breakpoint": f"`cuebook resume {row.run}` continues the run.",
        "budget": f"`cuebook resume {row.run}` with a larger budget continues the run.",
        "secret": f"`cuebook resume {row.run}` continues where the secret can be resolved.",
        "model": "A connected assistant does it with next_step and complete_step.",
        "in_doubt": f"`cuebook decide {row.run} repeat|stop` decides it; `cuebook inbox {row.run}` shows the details.",
    }.get(row.kind, "")


def checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    edits = msgspec.to_builtins(dict(settings or {}))
    _only_fields(edits, Settings, "setting")
    for name in ("workspace", "workspace_label", "folder", "from_text", "options"):
        if name in edits:
            raise BadInput(f"The {name} of a run cannot be changed.", fix="Start a new run there.")
    if isinstance(edits.get("budget"), dict):
        _only_fields(edits["budget"], Budget, "budget")
    try:
        Settings().edited(edits)
    except msgspec.ValidationError as error:
        raise BadInput(f"Invalid settings: {error}.") from None
    return dict(edits)


def checked_values(
    playbook: Playbook, entries: Sequence[Entry], given: Mapping[str, Any], before: int = 0
) -> dict[str, Any]:
    """Checks changed values for a run, as of now or before a record. Inputs must still match their declaration."""
    dialect = playbook.dialect
    recorded = Recorded(entries, 0)
    document = playbook.adapted(recorded.options)
    results = dialect.results(document, [entry for entry in entries if not before or entry.seq < before])
    places = dict.fromkeys(sorted(dialect.places(document, playbook.text)))
    return dialect.check_changes(document, recorded.inputs, results | places, given)


def typed_changes(playbook: Playbook, entries: Sequence[Entry], given: Mapping[str, Any]) -> dict[str, Any]:
    """Converts values that a user entered as text to the types that the playbook declares."""
    dialect, document = playbook.dialect, playbook.document
    results = dialect.results(document, entries)
    return {
        name: dialect.changed(document, results, name, value) if isinstance(value, str) else value
        for name, value in given.items()
    }


def meant_visit(
    run: str, steps: Sequence[StepRow], step: str, visit: int | None, path: str | None, planned: Collection[str] = ()
) -> StepRow:
    """The visit to a step at which a new run begins: by default the last visit.

    `planned` contains the playbook's labels. A step outside the main line is found in its branch; if several branches
    reached it, the caller must specify one.
    """
    reached = [one for one in steps if one.seq]
    found = [one for one in visits_of(reached, step) if path in (None, one.path) and visit in (None, one.visit)]
    if not found:
        names = ", ".join(dict.fromkeys(one.name for one in reached)) or "none"
        name = step if visit is None else f"{step}#{visit}"
        known = step in planned or visits_of(steps, step)
        words = f"has not reached step {name}" if known else f"has no step {name}"
        raise BadInput(f"Run {run} {words}.", fix=f"Steps it has reached: {names}.")
    places = dict.fromkeys(f"{one.path}{one.label}" for one in found)
    if len(places) > 1:
        fix = f"Specify one of: {', '.join(places)}."
        raise BadInput(f"Step {step} of run {run} was reached in {len(places)} branches.", fix=fix)
    return found[-1]


def visits_of(steps: Sequence[StepRow], name: str) -> list[StepRow]:
    """The visits to a step, identified by branch and label or by the label alone."""
    return [one for one in steps if f"{one.path}{one.label}" == name] or [one for one in steps if one.label == name]


def raised(wait: WaitRow, settings: dict[str, Any]) -> dict[str, Any]:
    if wait.details.get("code") == "unknown_price":
        return {"unknown_cost": True, **settings}
    if "budget" not in settings and wait.details.get("code") in ("steps", "seconds"):
        raise BadInput(wait.prompt, fix="Resume with a larger budget.")
    # A money or token budget was too small for an estimate. It is estimated again: prices and models may have changed.
    return settings


def check_promise(playbook: Playbook, label: str, outcome: Mapping[str, Any]) -> None:
    """Raises `BadInput` if an outcome breaks its step's contract."""
    broken = playbook.dialect.broken_promise(playbook.document, label, outcome_from(outcome))
    if broken:
        raise BadInput(
            f"With this outcome, the step breaks its contract: {broken}.",
            fix="Report the real outcome, or decide stop, which fails the run. Nothing is decided yet.",
        )


def checked_outcome(row: WaitRow, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    """Checks the outcome that a user reports for an effect that happened."""
    given = dict(outcome) if outcome is not None else row.details.get("late")
    if given is None:
        raise BadInput("'done' needs the outcome of the effect.", fix=_as_in(row))
    wanted = _outcome_of(row.details.get("effect", {}).get("is", ""), given)
    given = {"is": wanted, **given}
    if given["is"] not in (wanted, "Failed"):
        raise BadInput(f"The outcome of this effect is a {wanted}, not a {given['is']}.", fix=_as_in(row))
    try:
        made = outcome_from(given)
    except msgspec.ValidationError as error:
        raise BadInput(f"This outcome does not match the effect: {error}.", fix=_as_in(row)) from None
    _only_fields({name: value for name, value in given.items() if name != "is"}, type(made), "field of this outcome")
    return given


def _outcome_of(effect: str, given: Mapping[str, Any]) -> str:
    if effect == "CallNode":  # a node runs commands and does other things
        return "CommandResult" if "exit_code" in given else "ToolResult"
    return _OUTCOME_OF.get(effect, "Done")


def outcome_shape(row: WaitRow) -> str:
    """A JSON template for the outcome of an effect in doubt."""
    return _SHAPES.get(row.details.get("effect", {}).get("is", ""), '{"value": null}')


def _as_in(row: WaitRow) -> str:
    return f"Pass it as JSON, as in `--outcome '{outcome_shape(row)}'`."


def _only_fields(given: Mapping[str, Any], wanted: type[msgspec.Struct], what: str) -> None:
    """Rejects unknown names, which would otherwise be ignored."""
    known = wanted.__struct_fields__
    for name in given:
        if name not in known:
            raise BadInput(f"There is no {what} '{name}'.", fix=f"Use one of: {', '.join(known)}.")


_SHAPES = {
    "RunCommand": '{"exit_code": 0, "stdout": "what it printed"}',
    "SendHttp": '{"status": 200, "body": "what the server answered"}',
    "Browse": '{"url": "https://example.com/where-it-led", "text": "what the page says"}',
    "CallTool": '{"value": "what the tool returned"}',
    "CallNode": '{"value": "what the node returned"}',
    "PromptAgent": '{"content": "what the agent answered"}',
}
_OUTCOME_OF = {
    "CallTool": "ToolResult",
    "RunCommand": "CommandResult",
    "SendHttp": "HttpResponse",
    "Browse": "Page",
    "PromptAgent": "Reply",
}
