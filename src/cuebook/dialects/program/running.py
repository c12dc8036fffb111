"""How calls run: built-in ones at once, playbooks in frames of their own, tools of other agents by effects.

Calls that read nothing of each other run at the same time; their results are taken in the order in which they were queued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects.program.catalogue import Callee
from cuebook.dialects.program.evaluate import DoesNotCoerce, NotComputable, coerced, evaluate
from cuebook.dialects.program.frames import Error, Frame, QueuedCall, Saved
from cuebook.dialects.program.items import Call
from cuebook.dialects.program.machine import Machine
from cuebook.dialects.program.model import Playbook
from cuebook.dialects.program.turns import SAYS, load
from cuebook.dialects.wording import meant
from cuebook.kernel.effects import (
    NEVER,
    All,
    Answer,
    AskHuman,
    Branch,
    CallTool,
    Effect,
    EffectFailed,
    Failed,
    Program,
    ReadSource,
    Send,
    ServerSpec,
    Source,
    ToolResult,
)

Run: TypeAlias = Callable[[Machine], Program[None]]
Prepared: TypeAlias = tuple[Callee, dict[str, Any], list[Any]]
"""What is called, its arguments by name, and all of them in order where there are more than it names."""

FINAL = frozenset({"denied", "expired", "in_doubt", "cancelled"})
"""Failures that a person decided: they end the run, and are no program's to handle."""
BUILT_IN = SAYS | {
    "SaveArtifact",
    "LoadArtifact",
    "Loadfile",
    "WaitForMessage",
    "EndProgram",
    "CreateAgent",
    "InviteToMeeting",
}


def run_calls(machine: Machine, frame: Frame, run: Run) -> Program[None]:
    """Runs the first of a frame's calls, or all that can run beside it."""
    first = frame.running[0]
    if _builtin(machine, frame, first.name):
        yield from _run_builtin(machine, frame, first)
        return
    group = _group(machine, frame)
    if len(group) == 1:
        yield from _run_one(machine, frame, first)
    else:
        yield from _run_beside(machine, frame, group, run)


def _builtin(machine: Machine, frame: Frame, name: str) -> bool:
    return name.rpartition(".")[2] in BUILT_IN and name not in machine.view(frame).signatures


def _group(machine: Machine, frame: Frame) -> list[QueuedCall]:
    """The calls at the head of the queue of which none reads what another one sets."""
    group: list[QueuedCall] = []
    set_by: set[str] = set()
    for queued in frame.running:
        if _builtin(machine, frame, queued.name) or queued.reads & set_by or ("_" in queued.reads & {"_"} and group):
            break
        group.append(queued)
        if queued.target:
            set_by.add(queued.target)
    return group or frame.running[:1]


# --- arguments ----------------------------------------------------------------------------------------------


def values_of(call: Call, variables: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as plain values. `NotComputable` for one that has none."""
    args = [evaluate(one, variables) for one in call.args]
    return args, {name: evaluate(one, variables) for name, one in call.named}


def prepared(callee: Callee, args: list[Any], named: Mapping[str, Any]) -> Prepared | Error:
    """A call of a playbook, ready to be begun."""
    arguments = bound(callee.playbook, args, named)
    if isinstance(arguments, Error):
        return arguments
    more = args if callee.playbook.kind == "python" and len(args) > len(callee.playbook.params) else []
    return callee, arguments, more


def bound(playbook: Playbook, args: list[Any], named: Mapping[str, Any]) -> dict[str, Any] | Error:
    """By parameter; what cannot be bound is an error."""
    names = [param.name for param in playbook.params]
    given = dict(zip(names, args, strict=False))
    twice = [name for name in named if name in given]
    surplus = [name for name in named if name not in names]
    if not playbook.open and (len(args) > len(names) or surplus):
        what = f"no '{surplus[0]}'" if surplus else f"{len(names)} arguments and not {len(args)}"
        return Error("bad_arguments", f"{playbook.name} takes {what}.")
    if twice:
        return Error("bad_arguments", f"{playbook.name} is given '{twice[0]}' twice.")
    given |= named
    for param in playbook.params:
        if param.name not in given:
            if not param.has_default:
                return Error("bad_arguments", f"{playbook.name} needs {param.name}.")
            given[param.name] = param.default
        try:
            given[param.name] = coerced(given[param.name], param.type).value
        except DoesNotCoerce:
            words = f"{playbook.name} wants {param.name} as {param.type}, and not {given[param.name]!r:.60}."
            return Error("bad_arguments", words)
    return given


# --- one call -----------------------------------------------------------------------------------------------


def _run_one(machine: Machine, frame: Frame, queued: QueuedCall) -> Program[None]:
    ready = _prepared(machine, frame, queued)
    if isinstance(ready, Error):
        yield from machine.give(frame, frame.running.pop(0), ready)
    elif isinstance(ready, CallTool):
        came = yield from attempt(ready)
        yield from machine.give(frame, frame.running.pop(0), _result(came))
    else:
        yield from machine.push(*ready)


def _prepared(machine: Machine, frame: Frame, queued: QueuedCall) -> Prepared | CallTool | Error:
    view = machine.view(frame)
    try:
        args, named = values_of(queued.call, machine.variables(frame))
    except NotComputable as why:
        return Error("bad_arguments", f"An argument of {queued.name} has no value: {why}.")
    callee = view.callees.get(queued.name)
    if callee is not None:
        ready = prepared(callee, args, named)
        remote = callee.agent.remote
        if remote is None or isinstance(ready, Error):
            return ready
        given = {name: value for name, value in ready[1].items() if value is not None or name in named}
        server = ServerSpec(callee.agent.name, remote.command, remote.url)
        return CallTool(f"{callee.agent.name}.{callee.playbook.name}", given, server=server)
    words = f"There is no playbook '{queued.name}'."
    return Error("unknown_playbook", f"{words} {meant(queued.name, view.named)}".rstrip())


def attempt(effect: Effect) -> Program[Any]:
    """The outcome of an effect, also where it failed; what a person decided ends the run."""
    try:
        return (yield effect)
    except EffectFailed as error:
        if error.failed.code in FINAL:
            raise
        return error.failed


def _result(outcome: Any) -> Any:
    match outcome:
        case Failed(code, message, fix):
            return Error(code, message, fix)
        case ToolResult(value, True):
            return Error("tool_error", value if isinstance(value, str) else msgspec.json.encode(value).decode())
        case ToolResult(value):
            return value
    return outcome


# --- several at once ----------------------------------------------------------------------------------------


def _run_beside(machine: Machine, frame: Frame, group: list[QueuedCall], run: Run) -> Program[None]:
    """Each call has a machine of its own that begins with what is known now; what they changed is taken in their order."""
    branches: list[Effect | Branch] = []
    known: dict[int, Error] = {}
    tools: set[int] = set()
    for number, queued in enumerate(group):
        ready = _prepared(machine, frame, queued)
        if isinstance(ready, Error):
            known[number] = ready
        elif isinstance(ready, CallTool):
            tools.add(number)
            branches.append(ready)
        else:
            branches.append(_branch(machine, frame, ready, run))
    outcomes = iter((yield All(tuple(branches))) if branches else ())
    frame.running = frame.running[len(group) :]
    exits = False
    for number, queued in enumerate(group):
        outcome = known.get(number) or next(outcomes)
        if isinstance(outcome, Failed) and (outcome.code in FINAL or number not in tools):
            raise EffectFailed(outcome)  # a playbook that fails gives an error; this is a failure of the run itself
        summary = ""
        if isinstance(outcome, dict) and outcome.get("branch"):
            _join(machine, outcome)
            exits |= outcome["exits"]
            summary = outcome["summary"]
            outcome = Error(**outcome["error"]) if outcome["error"] else outcome["value"]
        yield from machine.give(frame, queued, _result(outcome), summary)
    if exits:
        yield from machine.exit()


def _branch(machine: Machine, frame: Frame, ready: Prepared, run: Run) -> Branch:
    def start(state: Any) -> Program[dict[str, Any]]:
        other = machine.branched(frame)
        before = {name: dict(one.variables) for name, one in other.agents.items()}
        if state is None:
            yield from other.push(*ready)
        else:
            other.restore(*state)
        yield from run(other)
        return _left(other, before)

    return Branch(start)


def _left(machine: Machine, before: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a call that ran beside others has left, as plain values."""
    changed = {
        name: {
            key: value for key, value in one.variables.items() if key not in before[name] or before[name][key] != value
        }
        for name, one in machine.agents.items()
    }
    failed = machine.came if isinstance(machine.came, Error) else None
    return {
        "branch": True,
        "value": None if failed else machine.came,
        "error": None if failed is None else msgspec.to_builtins(failed),
        "summary": machine.summary,
        "exits": machine.exited,
        "changed": changed,
        "artifacts": {name: msgspec.to_builtins(one.artifacts) for name, one in machine.agents.items()},
        "held": {name: one.held for name, one in machine.agents.items()},
        "counts": [machine.lines, machine.turns, machine.model_calls, machine.without_model],
    }


def _join(machine: Machine, left: Mapping[str, Any]) -> None:
    for name, memory in machine.agents.items():
        memory.variables.update(left["changed"].get(name, {}))
        memory.held.update(left["held"].get(name, {}))
        memory.artifacts.update(msgspec.convert(left["artifacts"].get(name, {}), dict[str, Saved]))
    lines, turns, asked, without = left["counts"]
    machine.lines += lines
    machine.turns += turns
    machine.model_calls += asked
    machine.without_model += without


# --- built-in calls -----------------------------------------------------------------------------------------


def _run_builtin(machine: Machine, frame: Frame, queued: QueuedCall) -> Program[None]:
    name = queued.name.rpartition(".")[2]
    try:
        args, named = values_of(queued.call, machine.variables(frame))
    except NotComputable as why:
        came: Any = Error("bad_arguments", f"An argument of {name} has no value: {why}.")
    else:
        if name == "EndProgram":
            yield from machine.exit()
            return
        came = yield from _builtin_result(machine, frame, name, args, named)
    quiet = name in SAYS or name == "SaveArtifact"
    yield from machine.give(frame, frame.running.pop(0), came, quiet=quiet)


def _builtin_result(machine: Machine, frame: Frame, name: str, args: list[Any], named: dict[str, Any]) -> Program[Any]:
    if name in SAYS:
        return (yield from _say(machine, frame, args, named))
    if name == "SaveArtifact":
        given = dict(zip(("name", "summary", "value"), args, strict=False)) | named
        key = str(given.get("name", "")).removeprefix("$")
        yield from machine.save(frame, key, str(given.get("summary", "")), given.get("value", given.get("content")))
        return key
    if name == "LoadArtifact":
        key = str((args or [named.get("name", "")])[0]).removeprefix("$")
        if not load(machine, frame, key):
            return Error("unknown_artifact", f"There is no artifact '{key}'.")
        return machine.memory(frame).variables.get(key)
    if name == "Loadfile":
        path = str((args or [named.get("path", "")])[0])
        came: Source | Failed = yield from attempt(ReadSource(f"file:{path}"))
        return _result(came) if isinstance(came, Failed) else str(came.content)
    if name == "WaitForMessage":
        return (yield from _message(machine, frame))
    return Error("not_supported", f"{name} is not supported here: agents are those that the program declares.")


def _say(machine: Machine, frame: Frame, args: list[Any], named: dict[str, Any]) -> Program[Any]:
    message = named.get("message", args[-1] if args else "")
    target = str(named.get("target", args[0] if len(args) + ("message" in named) > 1 else "user"))
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    agent = machine.catalogue.addressed(target)
    to = "user" if target.strip().lower() in ("user", "human", "") else target.strip()
    frame.said = [*frame.said[-7:], to] if to not in frame.said else frame.said
    if agent and agent != frame.agent:
        machine.agents[agent].mail.append({"from": frame.agent, "text": text})
        return None
    if to == "user":
        frame.question = text
    yield Send(text, to, reads_only=True, witnessed=True)
    return None


def _message(machine: Machine, frame: Frame) -> Program[Any]:
    """The messages for an agent; where there are none, the user is waited for."""
    mail = machine.memory(frame).mail
    if mail:
        texts = [one["text"] for one in mail]
        mail.clear()
        return texts
    answer = yield from listen(machine, frame)
    return [answer]


def listen(machine: Machine, frame: Frame) -> Program[str]:
    """Waits for the user, for as long as it takes."""
    answer: Answer = yield AskHuman(frame.question, label=frame.open, expires_after=NEVER)
    machine.heard()
    frame.question = ""
    return answer.value
