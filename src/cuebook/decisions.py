"""What people ask of a run that waits, checked before anything is written: decisions, values, settings, outcomes.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects import registry
from cuebook.gate.people import NotAllowed, Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import StepFinished, ValueSet
from cuebook.kernel.journal import Entry, outcome_from
from cuebook.kernel.replay import Recorded
from cuebook.kernel.run import Budget, RunRow, Settings, StepRow, WaitRow

Decision = Literal["approve", "deny", "repeat", "stop", "done"]

ABOUT = {
    "question": "a question",
    "approval": "an approval",
    "breakpoint": "a pause",
    "in_doubt": "an effect in doubt",
    "budget": "a budget",
    "secret": "a secret",
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


def too_late(row: WaitRow, onward: str = "") -> str:
    """What is left to whoever comes too late to decide a wait; `onward` says how its run goes on, where it has ended."""
    word = decided(row)
    said = f"The decision was: {word}. " if word else ""
    return said + (onward or f"`cuebook show {row.run}` tells how the run goes on.")


def how_to(row: WaitRow) -> str:
    return {
        "approval": f"`cuebook decide {row.run} approve|deny` decides it.",
        "question": f"`cuebook answer {row.run} VALUE` answers it.",
        "breakpoint": f"`cuebook resume {row.run}` goes on.",
        "budget": f"`cuebook resume {row.run}` with a larger budget goes on.",
        "secret": f"`cuebook resume {row.run}` continues where the secret can be resolved.",
        "in_doubt": f"`cuebook decide {row.run} repeat|stop` decides it; `cuebook inbox {row.run}` says more.",
    }.get(row.kind, "")


def checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    edits = msgspec.to_builtins(dict(settings or {}))
    _only_fields(edits, Settings, "setting")
    for name in ("workspace", "folder", "from_text", "options"):
        if name in edits:
            raise BadInput(f"The {name} of a run cannot be changed.", fix="Start a new run there.")
    if isinstance(edits.get("budget"), dict):
        _only_fields(edits["budget"], Budget, "budget")
    try:
        Settings().edited(edits)
    except msgspec.ValidationError as error:
        raise BadInput(f"These settings do not fit: {error}.") from None
    return dict(edits)


def checked_values(
    row: RunRow, playbook: str, entries: Sequence[Entry], given: Mapping[str, Any], before: int = 0
) -> dict[str, Any]:
    """Values that change what a run has by now, or had before a record. Those of inputs must fit what the playbook
    declares, as they had to at the start. `playbook` is the text that the run was started with.
    """
    dialect = registry.named(row.dialect)
    recorded = Recorded(entries, 0)
    inputs = recorded.inputs
    document = registry.adapted(dialect, dialect.parse(playbook, row.name), recorded.options)
    if isinstance(dialect, registry.Changing):
        so_far = [entry for entry in entries if not before or entry.seq < before]
        done = {entry.event.label: entry.event.output for entry in so_far if isinstance(entry.event, StepFinished)}
        results = dialect.values(document, so_far) if isinstance(dialect, registry.Tracing) else done
        dialect.check_changes(document, inputs, results, given)
        return dict(given)
    declared = [one.name for one in document.inputs]
    named = [entry.event.name for entry in entries if isinstance(entry.event, ValueSet)]
    places = dialect.places(document, playbook) if isinstance(dialect, registry.Filling) else frozenset()
    known = dict.fromkeys((*declared, *named, *inputs, *sorted(places)))
    for name in given:
        if name not in known:
            raise BadInput(f"{row.name} has no value named '{name}'.", fix=f"It has: {', '.join(known) or 'none'}.")
    accepted = dialect.accept(document, {**inputs, **{name: given[name] for name in given if name in declared}})
    return {name: accepted[name] if name in declared else value for name, value in given.items()}


def meant_visit(
    run: str, steps: Sequence[StepRow], step: str, visit: int | None, path: str | None, planned: Collection[str] = ()
) -> StepRow:
    """The visit that a new run is to begin at: the last one of a step, unless it is said which. `planned` are the labels of the
    playbook.

    One that is not on the run's own line is found in the branch it is in; where it is in several, the branch is named as
    well.
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
        fix = f"Say which one is meant: {', '.join(places)}."
        raise BadInput(f"Step {step} of run {run} was reached in {len(places)} branches.", fix=fix)
    return found[-1]


def visits_of(steps: Sequence[StepRow], name: str) -> list[StepRow]:
    """The visits of a step that are called so: by branch and label, or by the label alone."""
    return [one for one in steps if f"{one.path}{one.label}" == name] or [one for one in steps if one.label == name]


def raised(wait: WaitRow, settings: dict[str, Any]) -> dict[str, Any]:
    if wait.details.get("code") == "unknown_price":
        return {"unknown_cost": True, **settings}
    if "budget" not in settings and wait.details.get("code") in ("steps", "seconds"):
        raise BadInput(wait.prompt, fix="Resume with a larger budget.")
    # Of money and tokens an estimate was short; prices, limits and models may be others today, so it is made again.
    return settings


def check_promise(run: RunRow, playbook: str, label: str, outcome: Mapping[str, Any]) -> None:
    """`BadInput` for an outcome with which a step has not done what it promises, where its dialect has contracts."""
    dialect = registry.named(run.dialect)
    if not isinstance(dialect, registry.Contracting):
        return
    broken = dialect.broken(dialect.parse(playbook, run.name), label, outcome_from(outcome))
    if broken:
        raise BadInput(
            f"With this outcome the step has not done what it promises: {broken}.",
            fix="Give the outcome as it was, or say stop, which fails the run; nothing is decided yet.",
        )


def checked_outcome(row: WaitRow, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    """The outcome of an effect that a person knows happened, in the form its kind gives."""
    given = dict(outcome) if outcome is not None else row.details.get("late")
    if given is None:
        raise BadInput("'done' needs the outcome: what the effect gave back.", fix=_as_in(row))
    wanted = _OUTCOME_OF.get(row.details.get("effect", {}).get("is", ""), "Done")
    given = {"is": wanted, **given}
    if given["is"] not in (wanted, "Failed"):
        raise BadInput(f"This effect gives a {wanted}, not a {given['is']}.", fix=_as_in(row))
    try:
        made = outcome_from(given)
    except msgspec.ValidationError as error:
        raise BadInput(f"This is no outcome of the effect: {error}.", fix=_as_in(row)) from None
    _only_fields({name: value for name, value in given.items() if name != "is"}, type(made), "field of this outcome")
    return given


def outcome_shape(row: WaitRow) -> str:
    """What the outcome of an effect in doubt looks like, as JSON to be filled in."""
    return _SHAPES.get(row.details.get("effect", {}).get("is", ""), '{"value": null}')


def _as_in(row: WaitRow) -> str:
    return f"Give it as JSON, as in `--outcome '{outcome_shape(row)}'`."


def _only_fields(given: Mapping[str, Any], wanted: type[msgspec.Struct], what: str) -> None:
    """Refuses a misspelt name, which would otherwise be dropped in silence."""
    known = wanted.__struct_fields__
    for name in given:
        if name not in known:
            raise BadInput(f"There is no {what} '{name}'.", fix=f"There are: {', '.join(known)}.")


_SHAPES = {
    "RunCommand": '{"exit_code": 0, "stdout": "what it wrote"}',
    "SendHttp": '{"status": 200, "body": "what was answered"}',
    "CallTool": '{"value": "what it gave"}',
}
_OUTCOME_OF = {"CallTool": "ToolResult", "RunCommand": "CommandResult", "SendHttp": "HttpResponse"}
