"""Parses what surrounds the commands of a pipeline: loops, parallel branches, waits, and reactions to a denial.

Reports a structure that cannot work, with its line. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from cuebook.dialects.pipeline.model import (
    Action,
    ArgRef,
    Each,
    Group,
    Lane,
    Parallel,
    Pause,
    Reaction,
    Ref,
    Step,
    StepRef,
    Until,
    Words,
)
from cuebook.dialects.pipeline.parse.conditions import condition
from cuebook.dialects.pipeline.parse.moments import LONGEST, duration, moment
from cuebook.dialects.pipeline.parse.places import REACTIONS
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

FLOW = ("for_each", "as", "key", "concurrency", "steps", "parallel", "branches", "wait", *REACTIONS)
"""The fields that this module reads."""
OF_COMMANDS = ("for_each", "as", "key", "concurrency", *REACTIONS)
"""Those of steps that do something themselves."""
MOST_AT_ONCE = 100
CODE = "BAD_STRUCTURE"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_OF_EACH = ("as", "key", "concurrency")
_ALLOWED: dict[str, tuple[str, ...]] = {
    "steps": ("id", "name", "condition", "on_error", "steps", "for_each", *_OF_EACH),
    "parallel": ("id", "name", "condition", "on_error", "parallel", "branches", "for_each", *_OF_EACH),
    "wait": ("id", "name", "condition", "on_error", "wait"),
}
"""The fields of each structure."""
_LISTS = ("json", "results", "items")
"""The fields of a result that can be a list."""

Listed = Callable[[Scope, Value, str], tuple[Step, ...]]
"""Parses a list of steps."""


# --- loops --------------------------------------------------------------------------------------------------


def each(scope: Scope, fields: Mapping[str, Value], at: str) -> Each:
    """The loop around a step."""
    shape, value = scope.shape, fields["for_each"]
    name = "item"
    if "as" in fields:
        name = shape.text(fields["as"], f"{at}.as").strip() or name
        if not _NAME.fullmatch(name):
            fix = "Use letters, digits and _, and begin with a letter or _."
            shape.wrong(fields["as"].line, f"{at}.as: '{name[:60]}' is not a valid name.", fix, CODE)
    if scope.is_taken(name):
        line = fields["as"].line if "as" in fields else value.line
        fix = "Choose another name for the item with `as`."
        shape.wrong(line, f"{at}: an argument or a step is already named '{name}'.", fix, CODE)
    most = shape.whole(fields["concurrency"], f"{at}.concurrency", 1) if "concurrency" in fields else 1
    if most is not None and most > MOST_AT_ONCE:
        shape.wrong(fields["concurrency"].line, f"{at}.concurrency is above {MOST_AT_ONCE}.", "Lower it.", CODE)
    made = Each(_list(scope, value, f"{at}.for_each"), name, None, most or 1, value.line)
    if "key" not in fields:
        return made
    key = inside(scope, made).words(shape.text(fields["key"], f"{at}.key"), fields["key"].line, f"{at}.key")
    return msgspec.structs.replace(made, key=key)


def inside(scope: Scope, loop: Each | None) -> Scope:
    """The scope of a step within its loop."""
    if loop is None:
        return scope
    return scope.at(scope.here, **{loop.name: None, "loop": ("index", "key")})


def _list(scope: Scope, value: Value, at: str) -> Any:
    """The list of a loop: written out, or a reference to one."""
    if value.kind == "seq":
        if not value.items:
            scope.shape.wrong(value.line, f"{at} must not be empty.", "Add an item.", CODE)
        return scope.field(value, at, secrets=False)
    if value.kind != "str":
        _no_list(scope.shape, value.line, f"{at} must be a list or a reference to one")
        return []
    words = scope.words(value.text, value.line, at)
    ref = words.parts[0] if len(words.parts) == 1 else ""
    if isinstance(ref, StepRef) and ref.path[0] not in _LISTS:
        _no_list(scope.shape, value.line, f"{at}: ${ref.step}.{ref.path[0]} is not a list", f"${ref.step}.json")
    elif isinstance(ref, ArgRef) and scope.type_of(ref.name) not in (None, "array"):
        _no_list(scope.shape, value.line, f"{at}: the argument '{ref.name}' is not a list", "an argument of type array")
    elif not isinstance(ref, Ref):
        _no_list(scope.shape, value.line, f"{at}: '{value.text[:60]}' is text, not a list")
    return words


def _no_list(shape: Shape, line: int, message: str, instead: str = "$step.json") -> None:
    shape.wrong(line, f"{message}.", f"Write a list, or refer to one, as in {instead}.", "NOT_A_LIST")


# --- structures ---------------------------------------------------------------------------------------------


def structure(shape: Shape, value: Value, at: str) -> str:
    """The kind of a step that contains others or waits; empty for a step with a command. Reports fields that do not go
    together.
    """
    fields = value.fields
    kinds = [name for name in ("parallel", "steps") if name in fields]
    if "wait" in fields and "command" not in fields:
        kinds.append("wait")
    for name, needed in (*((name, "for_each") for name in ("steps", *_OF_EACH)), ("branches", "parallel")):
        if name in fields and needed not in fields:
            shape.wrong(
                value.lines[name], f"{at} has '{name}' but no '{needed}'.", f"Add {needed}, or remove it.", CODE
            )
    if "parallel" in fields and "branches" not in fields:
        shape.wrong(value.lines["parallel"], f"{at} has no 'branches'.", "Add them, each with a list of steps.", CODE)
    both = [*kinds, *(["command"] if "command" in fields else [])]
    if len(both) > 1:
        message = f"{at} has both '{both[0]}' and '{both[1]}'."
        shape.wrong(value.lines[both[1]], message, "Make two steps of it.", CODE)
        return ""
    if not kinds:
        return ""
    for name in fields:
        if name not in _ALLOWED[kinds[0]]:
            fix = f"Remove it, or put it on the steps inside. Its fields: {', '.join(_ALLOWED[kinds[0]])}."
            message = f"{at}: a step with '{kinds[0]}' has no '{name}'."
            shape.wrong(value.lines[name], message, fix, "NOT_OF_THIS_STEP")
    return kinds[0]


def action(scope: Scope, value: Value, kind: str, at: str, listed: Listed) -> Action | None:
    """The action of a structure."""
    fields = value.fields
    match kind:
        case "steps":
            return Group(_steps(scope, fields["steps"], f"{at}.steps", listed))
        case "parallel":
            return _parallel(scope, fields, at, listed)
        case _:
            return _pause(scope, fields["wait"], f"{at}.wait")


def _steps(scope: Scope, value: Value, at: str, listed: Listed) -> tuple[Step, ...]:
    scope.shape.items(value, at, at_least=1)
    return listed(scope, value, at)


def _parallel(scope: Scope, fields: Mapping[str, Value], at: str, listed: Listed) -> Parallel:
    shape = scope.shape
    mode = shape.choice(fields["parallel"], f"{at}.parallel", ("all", "any"))
    lanes: list[Lane] = []
    if "branches" in fields:
        branches = fields["branches"]
        for name, one, line in shape.named(branches, f"{at}.branches"):
            if not _NAME.fullmatch(name):
                fix = "Use letters, digits and _, and begin with a letter or _."
                shape.wrong(line, f"{at}.branches: '{name[:60]}' is not a valid name.", fix, CODE)
            lanes.append(Lane(name, _steps(scope, one, f"{at}.branches.{name}", listed), line))
        if branches.kind == "map" and len(lanes) < 2:
            shape.wrong(
                branches.line, f"{at}.branches needs at least two branches.", "Add another, or use plain steps.", CODE
            )
        if len(lanes) > MOST_AT_ONCE:
            shape.wrong(branches.line, f"{at} has more than {MOST_AT_ONCE} branches.", "Use for_each.", CODE)
    made = Parallel(cast(Any, mode), tuple(lanes))
    if mode == "all":
        _check_kept(shape, made, at)
    return made


def _check_kept(shape: Shape, action: Parallel, at: str) -> None:
    """Reports values that two branches keep under one name: which of them counts would depend on time."""
    keeping: dict[str, str] = {}
    for lane in action.lanes:
        waiting = list(lane.steps)
        while waiting:
            step = waiting.pop()
            waiting += step.inner
            for name in step.state:
                if keeping.setdefault(name, lane.name) != lane.name:
                    message = f"{at}: the branches {keeping[name]} and {lane.name} both keep '{name}' in state."
                    shape.wrong(step.line, message, "Keep it under another name, or in a step after them.", CODE)


# --- waits --------------------------------------------------------------------------------------------------


def _pause(scope: Scope, value: Value, at: str) -> Pause | None:
    """A wait without a command: a duration, or a table with `at`."""
    shape = scope.shape
    if value.kind != "map":
        words = _words(scope, value, at)
        _check_fixed(shape, words, at, duration, "Write a number and a unit, as in 30s, 10m, 2h or 1d.")
        return Pause(seconds=words)
    if "until" in value.fields:
        fix = "Add the command that it repeats until the condition holds; it must only read."
        shape.wrong(value.lines["until"], f"{at}.until needs a command.", fix, CODE)
        return None
    fields = shape.closed(value, at, ("at",), ("at",))
    if "at" not in fields:
        return None
    words = _words(scope, fields["at"], f"{at}.at")
    _check_fixed(
        shape, words, f"{at}.at", moment, "Write a date or a time, as in 2027-03-01 or 2027-03-01T08:00:00+01:00."
    )
    return Pause(at=words)


def waiting(scope: Scope, step: Step, fields: Mapping[str, Value], at: str) -> Step:
    """A step that is repeated until a condition holds."""
    shape, value, where = scope.shape, fields["wait"], f"{at}.wait"
    if value.kind != "map":
        fix = "Make two steps of it, or write until, every and timeout."
        shape.wrong(value.line, f"{at} has a command, so its wait needs a condition.", fix, CODE)
        return step
    read = shape.closed(value, where, ("until", "every", "timeout"), ("until", "every", "timeout"))
    if not step.reads_only:
        fix = "Add `effect: read`, or wait for it with another step that only reads."
        shape.wrong(value.line, f"{where}: the step is repeated, so it must only read.", fix, "NOT_READ_ONLY")
    for name in ("approval", "retry", "for_each"):
        if name in fields:
            shape.wrong(
                fields[name].line,
                f"{at}: a step that is repeated until a condition holds has no '{name}'.",
                "Remove it.",
                "NOT_OF_THIS_STEP",
            )
    times: dict[str, float] = {}
    for name in ("every", "timeout"):
        if name in read:
            words = _words(scope, read[name], f"{where}.{name}")
            scope.fixed(read[name].text, read[name].line, f"{where}.{name}")
            _check_fixed(shape, words, f"{where}.{name}", duration, "Write a number and a unit, as in 30s, 10m or 2h.")
            times[name] = duration("".join(map(str, words.parts))) or 1.0
    own = scope.after_itself()
    text = shape.text(read["until"], f"{where}.until").strip() if "until" in read else ""
    held = condition(own, text, read["until"].line, f"{where}.until") if text else None
    if times.get("every", 0.0) > times.get("timeout", LONGEST):
        shape.wrong(value.line, f"{where}.every is longer than timeout.", "Lower it, or raise timeout.", CODE)
    made = Until(held, text, times.get("every", 1.0), times.get("timeout", 1.0))
    return msgspec.structs.replace(step, until=made)


def _words(scope: Scope, value: Value, at: str) -> Words:
    return scope.words(scope.shape.text(value, at).strip(), value.line, at)


def _check_fixed(shape: Shape, words: Words, at: str, read: Callable[[str], float | None], fix: str) -> None:
    """Reports text without references that is not what it should be; other text is checked when the step runs."""
    if words.parts and all(isinstance(part, str) for part in words.parts):
        text = "".join(map(str, words.parts))
        if read(text) is None:
            shape.wrong(words.line, f"{at}: '{text[:60]}' cannot be read.", fix, "BAD_TIME")


# --- reactions ----------------------------------------------------------------------------------------------


def reactions(scope: Scope, fields: Mapping[str, Value], at: str, listed: Listed) -> dict[str, Reaction]:
    """What a step does if its approval is denied or expires; nothing for `stop`."""
    found: dict[str, Reaction] = {}
    for name in REACTIONS:
        if name not in fields:
            continue
        value, where = fields[name], f"{at}.{name}"
        if value.kind == "seq":
            found[name] = Reaction("continue", _steps(scope, value, where, listed))
            continue
        if value.kind == "map":
            fix = "Write a list of steps, or continue, skip_rest or stop."
            scope.shape.wrong(value.line, f"{where} must be a list of steps or a word.", fix, CODE)
            continue
        then = scope.shape.choice(value, where, ("stop", "continue", "skip_rest"))
        if then != "stop":
            found[name] = Reaction(cast(Any, then))
    return found
