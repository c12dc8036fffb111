"""Triggers as text and as JSON, for every surface."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from cuebook.gate.standing_permissions import Standing
from cuebook.kernel.run import Budget
from cuebook.service.triggers.administration import TriggerView
from cuebook.service.triggers.cron import zone_of
from cuebook.service.triggers.permissions import Asking
from cuebook.service.triggers.schedules import Schedule
from cuebook.service.triggers.trigger import Firing, Target, Trigger
from cuebook.surfaces import display
from cuebook.surfaces.explanation import act_words, because

OVERLAP = {
    "skip": "skipped",
    "queue": "queued",
    "cancel": "started after the older run is cancelled",
    "parallel": "started alongside it",
}
NEW_LINE = "\n"
NEXT = 5
"""How many of the next times are shown."""


def local(moment: float, zone: str) -> str:
    """A moment as the clocks in this zone show it."""
    return datetime.fromtimestamp(moment, zone_of(zone)).strftime("%Y-%m-%d %H:%M %Z")


def state_of(trigger: Trigger) -> str:
    return "suspended" if trigger.suspended else "paused" if trigger.paused else "active"


def next_times(trigger: Trigger, now: float, count: int = NEXT) -> list[float]:
    if not isinstance(trigger, Schedule) or not trigger.is_active:
        return []
    return trigger.upcoming(now, count)


def local_times(trigger: Trigger, now: float, count: int = NEXT) -> list[str]:
    """The next times of a schedule, as the clocks in its zone show them."""
    return (
        [local(one, trigger.zone) for one in next_times(trigger, now, count)] if isinstance(trigger, Schedule) else []
    )


def when(trigger: Trigger) -> str:
    """What fires a trigger, as a clause."""
    if isinstance(trigger, Schedule):
        return f"'{trigger.cron}' in {trigger.zone}"
    return trigger.words


# --- as JSON ---


def trigger_object(trigger: Trigger, now: float) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": trigger.KIND,
        "name": trigger.name,
        "playbook": trigger.target.words,
        "path": trigger.target.path,
        "owner": trigger.owner,
        "created": trigger.created,
        "state": state_of(trigger),
        "reason": trigger.suspended,
        "when": when(trigger),
        "inputs": trigger.target.inputs,
        "model": trigger.target.model,
        "unattended": trigger.target.unattended,
        "overlap": trigger.overlap,
        "run": trigger.run,
        "waiting": len(trigger.requested) + (trigger.queued is not None),
        "last": firing_object(trigger.history[0]) if trigger.history else None,
        "next": next_times(trigger, now),
    }
    if isinstance(trigger, Schedule):
        made |= {
            "cron": trigger.cron,
            "time_zone": trigger.zone,
            "catch_up": trigger.catch_up,
            "jitter": trigger.jitter,
            "timer": trigger.timer,
        }
    else:
        made |= trigger.details
    return made


def firing_object(firing: Firing) -> dict[str, Any]:
    return {
        "key": firing.key,
        "at": firing.at,
        "state": firing.state,
        "run": firing.run,
        "reason": firing.reason,
        "by": firing.by,
    }


def view_object(view: TriggerView, now: float) -> dict[str, Any]:
    trigger, waits = view.trigger, view.waits_for
    return {
        **trigger_object(trigger, now),
        "history": [firing_object(one) for one in trigger.history],
        "problem": view.problem,
        "asks": [_asking_object(one, one not in waits) for one in view.asks],
        "denied": [*denied_lines(view)],
        "standing": None if view.standing is None else _standing_object(view.standing, view.standing_problem),
        "digest": view.digest,
    }


def _asking_object(one: Asking, covered: bool) -> dict[str, Any]:
    return {
        "step": one.step,
        "asks": one.what,
        "allowed": covered,
        "can_be_allowed": [f"{each.domain} {each.pattern}" for each in one.allowed],
        "why_not": one.why,
        "preview": one.preview,
    }


def _standing_object(standing: Standing, problem: str) -> dict[str, Any]:
    return {
        "by": standing.by,
        "at": standing.at,
        "expires": standing.expires,
        "allows": [{"step": one.step, "domain": one.domain, "pattern": one.pattern} for one in standing.allowed],
        "holds": not problem,
        "problem": problem,
    }


# --- as text ---


def trigger_line(trigger: Trigger) -> str:
    """A trigger in one line: what fires it, what it starts, and what is next and was last."""
    parts = [f"{trigger.name:<20}", f"{when(trigger):<34}", trigger.target.words]
    if not trigger.is_active:
        parts.append(state_of(trigger))
    elif isinstance(trigger, Schedule):
        parts.append(f"next {local(trigger.next, trigger.zone)}")
    if trigger.history:
        last = trigger.history[0]
        parts.append(f"last {last.state}{f' ({last.run})' if last.run else ''}")
    return "  ".join(parts)


def view_lines(view: TriggerView, now: float) -> Iterator[str]:
    trigger = view.trigger
    yield f"{trigger.COMMAND} {trigger.name}: {state_of(trigger)}{f'. {trigger.suspended}' if trigger.suspended else ''}"
    yield f"  fires: {when(trigger)}"
    yield f"  runs: {trigger.target.words} ({trigger.target.path}), for {trigger.owner}"
    if trigger.target.workspace:
        yield f"  fired by a server or worker of the workspace {trigger.target.workspace}"
    yield from (f"  {line}" for line in target_lines(trigger.target))
    yield f"  while a run is unfinished, a firing is {OVERLAP[trigger.overlap]}"
    if isinstance(trigger, Schedule):
        yield from _times(trigger, now)
    else:
        yield from (f"  {line}" for line in trigger.lines)
    yield from _history(trigger)
    yield from asking_lines(view)


def target_lines(target: Target) -> Iterator[str]:
    """What the runs of a trigger start with, apart from the playbook."""
    for name, value in target.inputs.items():
        yield f"{name} = {display.short(str(value))}"
    if target.model:
        yield f"model: {target.model}"
    for step, answer in target.answers.items():
        yield f"answer to step {step}: {display.short(answer if isinstance(answer, str) else ', '.join(answer))}"
    if target.unattended:
        yield "unattended: questions take their defaults"
    for name, value in target.options.items():
        yield f"option {name}: {value}"
    limits = [] if target.budget is None else Budget.__struct_fields__
    for name in limits:
        if (limit := getattr(target.budget, name)) is not None:
            yield f"budget: {limit:,} {'USD' if name == 'money' else name}"


def time_lines(schedule: Schedule) -> Iterator[str]:
    """How late a firing may start, and what delays it."""
    if schedule.timer:
        yield f"timed by Temporal (schedule {schedule.timer})"
    late = display.duration(schedule.catch_up)
    yield f"a firing may start up to {late} late{f', and is delayed by up to {display.duration(schedule.jitter)}' if schedule.jitter else ''}"


def _times(schedule: Schedule, now: float) -> Iterator[str]:
    yield from (f"  {line}" for line in time_lines(schedule))
    found = next_times(schedule, now)
    if found:
        yield "next times:"
    for one in found:
        yield f"  {local(one, schedule.zone)}"


def _history(trigger: Trigger) -> Iterator[str]:
    yield "history:" if trigger.history else "history: it has not fired yet"
    for one in trigger.history[:10]:
        at = local(one.at, trigger.zone) if isinstance(trigger, Schedule) else display.moment(one.at)
        by = f" by {one.by}" if one.by else ""
        yield f"  {at}  {one.state}{by}{f'  {one.run}' if one.run else ''}{f'  {one.reason}' if one.reason else ''}"


def denied_lines(view: TriggerView) -> Iterator[str]:
    """What is refused to the runs of a trigger, by the policy or for any other reason."""
    for one in [] if view.explained is None else view.explained.reached:
        if one.decision == "deny":
            yield f"{act_words(one)}{because(one.rules)}"


def asking_lines(view: TriggerView) -> Iterator[str]:
    """What the runs of a trigger would ask, and what is allowed in advance."""
    if view.problem:
        yield f"its runs cannot start: {view.problem}"
    if not view.asks and not view.problem:
        yield "its runs would ask for no approval"
    waits = view.waits_for
    if view.asks:
        yield "what its runs would ask:"
    for one in view.asks:
        step = f"step {one.step}" if one.step else "before the first step"
        said = "waits for approval" if one in waits else "allowed in advance"
        yield f"  {step}: {one.what}: {said}{f' each time ({one.why})' if one.why else ''}"
        for name, text in one.preview.items():
            yield f"    {name}: {text.rstrip().replace(NEW_LINE, f'{NEW_LINE}      ')}"
    denied = [*denied_lines(view)]
    if denied:
        yield "what is refused, so that its runs fail there:"
        yield from (f"  {line}" for line in denied)
    standing, trigger = view.standing, view.trigger
    if standing is not None and view.standing_problem:
        yield f"what {standing.by} allowed in advance no longer holds. {view.standing_problem}"
    elif standing is not None:
        yield f"allowed in advance by {standing.by} until {display.moment(standing.expires)}"
    if any(one.allowed for one in waits):
        yield f"`{display.command_line(f'{trigger.COMMAND} allow {trigger.name}')}` allows in advance what can be allowed"
        yield f"  with --digest {view.digest}, it does so only if nothing has changed since"
