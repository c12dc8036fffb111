"""Runs calls: built-in calls immediately, playbooks in their own frames, tools of remote agents as effects.

Calls that share no variables run at the same time. Their results are applied in the order in which they were queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects.program.catalogue import Callee
from cuebook.dialects.program.machine.frames import RESULT, AgentState, Error, Frame, QueuedCall, Saved
from cuebook.dialects.program.machine.machine import Machine
from cuebook.dialects.program.machine.remote_agents import call_remote
from cuebook.dialects.program.machine.turns import SAYS, load
from cuebook.dialects.program.model import Playbook
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.shared_variables import Touched
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, NotComputable, coerced, evaluate, holds_error
from cuebook.dialects.program.verify.scope import PEOPLE
from cuebook.formats.suggestions import meant
from cuebook.kernel.answers import is_automatic
from cuebook.kernel.effects import All, AskHuman, Branch, Effect, Program, ReadSource, Send
from cuebook.kernel.events import ValueSet, Warned
from cuebook.kernel.outcomes import Answer, EffectFailed, Failed, Source

Run: TypeAlias = Callable[[Machine], Program[None]]
Prepared: TypeAlias = tuple[Callee, dict[str, Any], list[Any]]
"""The callee, its arguments by name, and all arguments in order if there are more than it has parameters."""
MOST_LEVELS = 3
"""The deepest nesting of concurrent calls. Below it, calls run one after another."""
FINAL = frozenset({"denied", "expired", "in_doubt", "cancelled"})
"""Failures that result from a user's decision. They end the run; a program cannot handle them."""
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
    """Run the first of a frame's calls, or all that can run at the same time."""
    first = frame.running[0]
    if _builtin(machine, frame, first.name):
        yield from _run_builtin(machine, frame, first)
        return
    group = _group(machine, frame)
    if len(group) == 1:
        yield from _run_one(machine, frame, first)
    else:
        yield from _run_concurrently(machine, frame, group, run)


def _builtin(machine: Machine, frame: Frame, name: str) -> bool:
    return name.rpartition(".")[2] in BUILT_IN and name not in machine.view(frame).signatures


def _group(machine: Machine, frame: Frame) -> list[QueuedCall]:
    """The calls at the head of the queue that share no variables."""
    group: list[QueuedCall] = []
    all_ = targets = Touched()
    for queued in frame.running if machine.level < MOST_LEVELS else ():
        callee = machine.view(frame).callees.get(queued.name)
        own = Touched() if callee is None else machine.catalogue.touched(callee.agent.name, callee.playbook.name)
        arguments = Touched(frozenset(_variable(frame, name) for name in queued.reads))
        later = _builtin(machine, frame, queued.name) or (RESULT in queued.reads and group)
        if later or own.disturbs(all_) or targets.disturbs(own | arguments):
            break
        group.append(queued)
        all_ |= own
        if queued.target:
            targets |= Touched(sets=frozenset({_variable(frame, queued.target)}))
    return group or frame.running[:1]


def _variable(frame: Frame, name: str) -> tuple[str, str]:
    """The agent and name of a variable. A parameter belongs to the frame, so no other playbook can see it."""
    return ("" if name in frame.arguments else frame.agent, name)


# --- arguments ----------------------------------------------------------------------------------------------


def values_of(call: Call, variables: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call as plain values. Raise `NotComputable` if one has no value."""
    args = [evaluate(one, variables) for one in call.args]
    return args, {name: evaluate(one, variables) for name, one in call.named}


def prepared(callee: Callee, args: list[Any], named: Mapping[str, Any]) -> Prepared | Error:
    """Return a call to a playbook that is ready to start."""
    arguments = bound(callee.playbook, args, named)
    if isinstance(arguments, Error):
        return arguments
    more = args if callee.playbook.kind == "python" and len(args) > len(callee.playbook.params) else []
    return callee, arguments, more


def bound(playbook: Playbook, args: list[Any], named: Mapping[str, Any]) -> dict[str, Any] | Error:
    """Bind arguments to parameters. Return an error if that is impossible."""
    names = [param.name for param in playbook.params]
    given = dict(zip(names, args, strict=False))
    twice = [name for name in named if name in given]
    surplus = [name for name in named if name not in names]
    if not playbook.open and (len(args) > len(names) or surplus):
        what = f"no argument '{surplus[0]}'" if surplus else f"{len(names)} arguments, got {len(args)}"
        return Error("bad_arguments", f"{playbook.name} takes {what}.")
    if twice:
        return Error("bad_arguments", f"{playbook.name} got '{twice[0]}' twice.")
    given |= named
    for param in playbook.params:
        if param.name not in given:
            if not param.has_default:
                return Error("bad_arguments", f"{playbook.name} needs {param.name}.")
            given[param.name] = param.default
        try:
            given[param.name] = coerced(given[param.name], param.type).value
        except DoesNotCoerce:
            words = f"{playbook.name} expects {param.name} to be of type {param.type}, got {given[param.name]!r:.60}."
            return Error("bad_arguments", words)
    return given


# --- one call -----------------------------------------------------------------------------------------------


def _run_one(machine: Machine, frame: Frame, queued: QueuedCall) -> Program[None]:
    ready = _prepared(machine, frame, queued)
    if isinstance(ready, Error):
        yield from machine.give(frame, frame.running.pop(0), ready)
    elif isinstance(ready, Branch):
        outcome = yield from attempt(ready.start(None))
        yield from machine.give(frame, frame.running.pop(0), _result(outcome))
    else:
        yield from machine.push(*ready)


def _prepared(machine: Machine, frame: Frame, queued: QueuedCall) -> Prepared | Branch | Error:
    """Prepare a call: for a new frame, or as a branch that calls a remote agent."""
    view = machine.view(frame)
    try:
        args, named = values_of(queued.call, machine.variables(frame))
    except NotComputable as why:
        return Error("bad_arguments", f"An argument of {queued.name} has no value: {why}.")
    callee = view.callees.get(queued.name)
    if callee is not None:
        ready = prepared(callee, args, named)
        if isinstance(ready, Error) and queued.private:
            return Error(ready.code, f"An argument of {queued.name} does not match its parameter.")
        remote = callee.agent.remote
        if remote is None or isinstance(ready, Error):
            return ready
        given = {name: value for name, value in ready[1].items() if value is not None or name in named}
        return Branch(lambda _: call_remote(callee.agent, remote, callee.playbook, given))
    if queued.name in view.private:
        return Error("not_public", f"'{queued.name}' belongs to another agent and is not public.")
    words = f"There is no playbook '{queued.name}'."
    return Error("unknown_playbook", f"{words} {meant(queued.name, view.named)}".rstrip())


def attempt(what: Effect | Program[Any]) -> Program[Any]:
    """Return the result of an effect or a program, or its failure. A failure that results from a user's decision ends
    the run."""
    try:
        return (yield what) if isinstance(what, Effect) else (yield from what)
    except EffectFailed as error:
        if error.failed.code in FINAL:
            raise
        return error.failed


def _result(outcome: Any) -> Any:
    return Error(outcome.code, outcome.message, outcome.fix) if isinstance(outcome, Failed) else outcome


# --- concurrent calls ----------------------------------------------------------------------------------------


def _run_concurrently(machine: Machine, frame: Frame, group: list[QueuedCall], run: Run) -> Program[None]:
    """Run each call on its own machine, which starts from the current state, then merge their changes in order."""
    branches: list[Effect | Branch] = []
    known: dict[int, Error] = {}
    remote_calls: set[int] = set()
    for number, queued in enumerate(group):
        ready = _prepared(machine, frame, queued)
        if isinstance(ready, Error):
            known[number] = ready
        elif isinstance(ready, Branch):
            remote_calls.add(number)
            branches.append(ready)
        else:
            branches.append(_branch(machine, frame, ready, run))
    yield from machine.checkpoint(least=1)
    outcomes = iter((yield All(tuple(branches))) if branches else ())
    frame.running = frame.running[len(group) :]
    exits = False
    written: set[tuple[str, str]] = set()
    for number, queued in enumerate(group):
        outcome: Any = known.get(number) or next(outcomes)
        if isinstance(outcome, Failed) and (outcome.code in FINAL or number not in remote_calls):
            raise EffectFailed(outcome)  # a playbook that fails returns an error; this is a failure of the run itself
        summary = ""
        if number not in remote_calls and number not in known:
            yield from _join(machine, frame, outcome, written)
            exits |= outcome["exits"]
            summary = outcome["summary"]
            outcome = Error(**outcome["error"]) if outcome["error"] else outcome["value"]
        yield from machine.give(frame, queued, _result(outcome), summary)
    if exits:
        yield from machine.exit()


def _branch(machine: Machine, frame: Frame, ready: Prepared, run: Run) -> Branch:
    def start(state: Any) -> Program[dict[str, Any]]:
        other = machine.branched(frame)
        if state is None:
            yield from other.push(*ready)
        else:
            other.restore(*state)
        yield from run(other)
        return _outcome_of(other, machine.agents)

    return Branch(start)


class _Changes(msgspec.Struct):
    """The changes that a concurrent call made to one agent's memory."""

    variables: dict[str, Any]
    types: dict[str, str]
    artifacts: dict[str, Saved]
    held: dict[str, bool]
    due: list[str]
    taken: int
    """How many of the existing messages the agent has received."""
    mail: list[dict[str, str]]


def _outcome_of(machine: Machine, before: Mapping[str, AgentState]) -> dict[str, Any]:
    """The result and the changes of a concurrent call, as plain values."""
    changes = {name: _changed(one, before[name], machine.written.get(name, ())) for name, one in machine.agents.items()}
    failed = machine.outcome if isinstance(machine.outcome, Error) else None
    return {
        "value": None if failed else machine.outcome,
        "error": None if failed is None else msgspec.to_builtins(failed),
        "summary": machine.summary,
        "exits": machine.exited,
        "agents": msgspec.to_builtins(changes),
        "counts": [machine.lines, machine.turns, machine.model_calls, machine.without_model, machine.unattended.times],
    }


def _changed(now: AgentState, before: AgentState, written: Iterable[str]) -> _Changes:
    there = len(before.mail)
    taken = min(now.taken - before.taken, there)
    return _Changes(
        {name: now.variables[name] for name in written if name in now.variables},
        _other(now.types, before.types),
        _other(now.artifacts, before.artifacts),
        _other(now.held, before.held),
        now.due,
        before.taken + taken,
        now.mail[there - taken :],
    )


def _other(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in now.items() if name not in before or before[name] != one}


def _join(machine: Machine, frame: Frame, changes: Mapping[str, Any], written: set[tuple[str, str]]) -> Program[None]:
    """Merge the changes of a call. `written` contains the variables that its siblings have set."""
    for name, found in msgspec.convert(changes["agents"], dict[str, _Changes]).items():
        memory = machine.agents[name]
        for key, value in found.variables.items():
            memory.variables[key] = value
            memory.artifacts.pop(key, None)
            if (name, key) in written:
                yield Warned("shared", f"Two concurrent calls have set ${key}: the value of the later call is kept.")
                if name == frame.agent and key not in frame.arguments:
                    yield ValueSet(key, value)
            written.add((name, key))
        memory.types.update(found.types)
        memory.artifacts.update(found.artifacts)
        memory.held.update(found.held)
        memory.due += [id for id in found.due if id not in memory.due]
        memory.take(max(0, found.taken - memory.taken))
        memory.mail += found.mail
        for key in found.variables:
            machine.notice(name, key)
        if machine.is_concurrent:
            mine = machine.written.setdefault(name, [])
            mine += [key for key in found.variables if key not in mine]
    lines, turns, asked, without, unattended = changes["counts"]
    machine.unattended.times += unattended
    machine.lines += lines
    machine.turns += turns
    machine.model_calls += asked
    machine.without_model += without
    machine.spent.lines = max(machine.spent.lines, machine.lines)  # in a resumed run, they were counted elsewhere
    machine.spent.turns = max(machine.spent.turns, machine.turns)


# --- built-in calls -----------------------------------------------------------------------------------------


def _run_builtin(machine: Machine, frame: Frame, queued: QueuedCall) -> Program[None]:
    name = queued.name.rpartition(".")[2]
    try:
        args, named = values_of(queued.call, machine.variables(frame))
    except NotComputable as why:
        outcome: Any = Error("bad_arguments", f"An argument of {name} has no value: {why}.")
    else:
        if name == "EndProgram":
            yield from machine.exit()
            return
        outcome = yield from _builtin_result(machine, frame, name, args, named)
    quiet = name in SAYS or name in ("SaveArtifact", "LoadArtifact")
    yield from machine.give(frame, frame.running.pop(0), outcome, quiet=quiet)


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
        return machine.variables(frame).get(key)
    if name == "Loadfile":
        path = str((args or [named.get("path", "")])[0])
        outcome: Source | Failed = yield from attempt(ReadSource(f"file:{path}"))
        return _result(outcome) if isinstance(outcome, Failed) else str(outcome.content)
    if name == "WaitForMessage":
        return (yield from _message(machine, frame, str((args or [named.get("source", "*")])[0])))
    return Error("not_supported", f"{name} is not supported: a program can use only the agents it declares.")


def _say(machine: Machine, frame: Frame, args: list[Any], named: dict[str, Any]) -> Program[Any]:
    message = named.get("message", args[-1] if args else "")
    target = str(named.get("target", args[0] if len(args) + ("message" in named) > 1 else "user"))
    if holds_error(message):
        return Error("failed_call", "The message is the error of a failed call.")
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    agent = machine.catalogue.addressed(target)
    to = "user" if target.strip().lower() in PEOPLE else target.strip()
    if to != "user" and (not agent or agent == frame.agent):
        known = ", ".join(["user", *(name for name in machine.catalogue.agents if name != frame.agent)])
        return Error("unknown_agent", f"There is no agent named '{to}' to speak to. Known: {known}.")
    frame.said = [*frame.said[-7:], to] if to not in frame.said else frame.said
    if agent:
        machine.agents[agent].mail.append({"from": frame.agent, "text": text})
        return None
    frame.question = text
    yield Send(text, to, reads_only=True, witnessed=True)
    return None


def _message(machine: Machine, frame: Frame, source: str) -> Program[Any]:
    """Return the messages for an agent. If there are none, wait for the user."""
    mail = machine.memory(frame).take()
    if mail:
        return [one["text"] for one in mail]
    if source != "*" and source.strip().lower() not in PEOPLE:
        words = f"{frame.agent} waits for a message from {source}, but there is none: dialogues between agents are not supported."
        return Error("not_supported", words)
    answer = yield from listen(machine, frame)
    return [answer]


def listen(machine: Machine, frame: Frame) -> Program[str]:
    """Wait for the user, without a time limit."""
    prompt = frame.question or f"{frame.agent} is waiting for your message."
    yield from machine.checkpoint(least=1)
    answer: Answer = yield AskHuman(prompt, label=frame.open)
    if is_automatic(answer):
        yield from machine.not_heard(answer, prompt, frame.open)
    else:
        machine.heard()
    frame.question = ""
    return answer.value
