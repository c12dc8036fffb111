"""Runs a program as a generator of effects: the top frame of the stack advances until nothing is left to do.

Pending calls come first, then the playbooks that run at the start, then the playbooks that triggers and messages start.
Deterministic: it affects the outside world only through the effects it yields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import Callee, Catalogue
from cuebook.dialects.program.inputs import requested_call
from cuebook.dialects.program.listing import END
from cuebook.dialects.program.machine.calls import attempt, listen, prepared, run_calls, values_of
from cuebook.dialects.program.machine.decide import (
    Decider,
    Done,
    Goes,
    Iterates,
    Queues,
    Returns,
    Sets,
    Yields,
    following,
    returns_nothing,
)
from cuebook.dialects.program.machine.frames import Error, Frame, QueuedCall, is_private
from cuebook.dialects.program.machine.machine import Machine
from cuebook.dialects.program.machine.remote_agents import list_playbooks, local_playbooks
from cuebook.dialects.program.machine.turns import ask, auto_summary, enqueue, flush, model_of
from cuebook.dialects.program.model import ListingLine, Playbook, ProgramText
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, NotComputable, coerced, is_error
from cuebook.dialects.program.values.expressions import Literal
from cuebook.dialects.program.verify.scope import BUILT_IN
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, Now, Program, RunPython
from cuebook.kernel.events import ArtifactMade, Noted, Planned, Warned
from cuebook.kernel.fold.replay import PLAYBOOKS
from cuebook.kernel.outcomes import Called, EffectFailed, Failed, Moment, Reply, Returned

_TELLS_TIME = re.compile(r"\b(?:time|datetime|date)\b")


def interpret(
    program: ProgramText, inputs: Mapping[str, Any], options: Mapping[str, Any], state: Any = None
) -> Program[dict[str, Any]]:
    machine = Machine(Catalogue(program), options)
    if state is None:
        if program.plan and not options.get("call"):
            yield Planned(program.plan)
        for problem in program.warnings:
            yield Warned("playbook", f"Line {problem.line}: {problem.message}" if problem.line else problem.message)
        yield from _list_remote_playbooks(machine, options.get(PLAYBOOKS, {}))
        machine.todo = _first_calls(machine, inputs, options)
    else:
        machine.restore(*state)
    try:
        yield from run(machine)
    except EffectFailed:
        yield Noted("stopped", {"without_model": machine.without_model})
        raise
    return (yield from _end(machine))


def _list_remote_playbooks(machine: Machine, local: Mapping[str, Any]) -> Program[None]:
    """Ask remote agents for their playbooks. An agent that does not answer causes an error only when it is called."""
    for agent in tuple(machine.program.agents.values()):
        if agent.remote is None:
            continue
        if agent.remote.type == "playbook":
            machine.catalogue.learn(agent.name, local_playbooks(agent.remote, local))
            continue
        found: list[Playbook] | Failed = yield from attempt(list_playbooks(agent, agent.remote))
        if isinstance(found, Failed):
            yield Warned("agent", f"The agent {agent.name} cannot be reached: {found.message}")
        else:
            machine.catalogue.learn(agent.name, found)


def _first_calls(machine: Machine, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> list[QueuedCall]:
    call = options.get("call")
    if call:
        return [requested_call(machine.catalogue, str(call))]
    calls = []
    for agent, playbook in machine.program.beginning:
        named = tuple((one.name, Literal(inputs[one.name])) for one in playbook.params if one.name in inputs)
        calls.append(QueuedCall("#1", Call(f"{agent.name}.{playbook.name}", (), named)))
    if not calls and not machine.catalogue.waits_for_messages():
        raise EffectFailed(
            Failed(
                "nothing_begins",
                f"No playbook of {machine.program.name} runs when the program starts.",
                "Add a BGN trigger to a playbook, or choose a playbook with --call.",
            )
        )
    return calls


def _end(machine: Machine) -> Program[dict[str, Any]]:
    value = machine.outcome
    if value is not None:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield ArtifactMade(Text(text), "text" if isinstance(value, str) else "json")
    return {
        "value": value,
        "exited": machine.exited,
        "model_calls": machine.model_calls,
        "without_model": machine.without_model,
        "variables": {
            name: {key: one for key, one in memory.variables.items() if not key.startswith("_")}
            for name, memory in machine.agents.items()
            if memory.variables
        },
    }


# --- the loop -----------------------------------------------------------------------------------------------


def run(machine: Machine) -> Program[None]:
    """Run until the program exits, or nothing is left to do."""
    while not machine.exited:
        if not machine.stack:
            if not (yield from _begin_next(machine)):
                return
            continue
        yield from machine.checkpoint()
        frame = machine.top
        if frame.running:
            yield from run_calls(machine, frame, run)
        elif frame.after:
            yield from _afterwards(machine, frame)
        elif frame.kind == "python":
            yield from _run_python(machine, frame)
        elif frame.kind == "raw":
            yield from _ask_raw(machine, frame)
        else:
            yield from _advance(machine, frame)


def _begin_next(machine: Machine) -> Program[bool]:
    """Start the next playbook when the stack is empty: first those that run at the start, then triggers, then
    messages."""
    if machine.is_concurrent:
        return False
    if isinstance(machine.outcome, Error):
        raise EffectFailed(machine.outcome.failed)
    if machine.todo:
        yield from _call(machine, machine.todo.pop(0))
        return True
    for name, memory in machine.agents.items():
        if memory.due:
            yield from _call(machine, QueuedCall("#1", Call(f"{name}.{memory.due.pop(0).partition(':')[0]}")))
            return True
        if memory.mail and name in machine.catalogue.agents:
            yield from _dispatch(machine, name, memory.take(1)[0])
            return True
    name = "" if machine.options.get("call") else machine.catalogue.waits_for_messages()
    if not name:
        return False
    agent = machine.program.agents[name]
    callee = Callee(agent, machine.catalogue.playbook(name, machine.catalogue.messages))
    yield from machine.push(callee, {})
    machine.top.after = "user"
    return True


def _dispatch(machine: Machine, name: str, mail: Mapping[str, str]) -> Program[None]:
    callee = Callee(machine.program.agents[name], machine.catalogue.playbook(name, machine.catalogue.messages))
    machine.agents[name].fired = {}
    yield from machine.push(callee, {"message": f"{mail['from']}: {mail['text']}"})


def _call(machine: Machine, queued: QueuedCall) -> Program[None]:
    """Begin a frame at the bottom of the stack."""
    agent = queued.name.partition(".")[0]
    callee = machine.catalogue.view(agent).callees[queued.name]
    known = machine.agents[agent].variables
    try:
        args, named = values_of(queued.call, known)
    except NotComputable as why:
        raise EffectFailed(Failed("bad_arguments", f"An argument of {queued.name} has no value: {why}.")) from None
    free = callee.playbook.params[len(args) :]
    named = {one.name: known[one.name] for one in free if one.name in known} | named
    ready = prepared(callee, args, named)
    if isinstance(ready, Error):
        raise EffectFailed(ready.failed)
    yield from machine.push(*ready)


def _afterwards(machine: Machine, frame: Frame) -> Program[None]:
    """Perform what the reply or the line requested, once its calls have run."""
    after = frame.after
    if after == "user":
        text = yield from listen(machine, frame)
        frame.after = ""
        _hear(machine, frame, f"The user says: {text}")
    elif after == "agent":
        frame.after = ""
        yield from _hear_agent(machine, frame)
    elif after == "exit":
        yield from machine.exit()
    else:
        value = Error.of(frame.value) if is_error(frame.value) else frame.value
        yield from machine.finish(frame, value, frame.summary)


def _hear(machine: Machine, frame: Frame, words: str) -> None:
    frame.news()
    frame.progress()
    machine.memory(frame).fired = {}
    frame.heard = True
    machine.remember(frame, "user", words)


def _hear_agent(machine: Machine, frame: Frame) -> Program[None]:
    """Receive messages from other agents. An agent with mail answers first, unless it is waiting for an answer itself."""
    waiting = {one.agent for one in machine.stack[:-1] if one.after == "agent"} - {frame.agent}
    for name, memory in machine.agents.items():
        if name != frame.agent and name not in waiting and memory.mail and name in machine.catalogue.agents:
            frame.after = "agent"
            frame.running.insert(0, QueuedCall("#1", Call(machine.catalogue.messages)))
            yield from _dispatch(machine, name, memory.take(1)[0])
            return
    mail = machine.memory(frame).take()
    if not mail and waiting:
        words = f"{frame.agent} waits for {frame.awaits or 'an agent'}, while {', '.join(sorted(waiting))} waits for an answer."
        fix = "Dialogues between agents are not supported: answer with Say, and return."
        yield from machine.finish(frame, Error("not_supported", words, fix))
        return
    if not mail:
        yield Warned("message", f"{frame.agent} waits for {frame.awaits or 'an agent'}, but no message arrived.")
    words = "\n".join(f"{one['from']} says: {one['text']}" for one in mail) or "No message came."
    _hear(machine, frame, words)


# --- Python and raw playbooks -------------------------------------------------------------------------------


def _run_python(machine: Machine, frame: Frame) -> Program[None]:
    playbook = machine.playbook(frame)
    source = machine.program.agents[frame.agent].source or playbook.source
    if not frame.replies and not frame.moment and _TELLS_TIME.search(source):
        now: Moment = yield Now()
        frame.moment = now.at
    named = {} if frame.extra else frame.arguments
    names = (*machine.view(frame).signatures, *BUILT_IN, "SaveArtifact")
    outcome: Called | Returned | Failed = yield from attempt(
        RunPython(
            frame.playbook,
            {"args": frame.extra, "named": named},
            tuple(frame.replies),
            source,
            tuple(dict.fromkeys(names)),
            frame.moment,
        )
    )
    match outcome:
        case Failed(code, message, fix):
            yield from machine.finish(frame, Error(code, message, fix))
        case Returned(value):
            yield from machine.finish(frame, value)
        case Called(calls):
            for call in calls:
                named_args = tuple((name, Literal(value)) for name, value in call.named.items())
                item = Call(call.name, tuple(Literal(value) for value in call.args), named_args)
                frame.running.append(QueuedCall(f"#{len(frame.running) + 1}", item))


def _ask_raw(machine: Machine, frame: Frame) -> Program[None]:
    """Call the model once with the description alone, without history or calls."""
    yield from machine.count_turn()
    given = "\n".join(f"${name} = {value}" for name, value in frame.arguments.items() if not is_private(name))
    prompt = "\n\n".join(part for part in (machine.description(frame).strip(), given) if part)
    reply: Reply = yield AskModel(prompt or frame.playbook, model=model_of(machine, frame))
    text = reply.text.strip()
    try:
        value = coerced(text, machine.playbook(frame).returns).value
    except DoesNotCoerce:
        wanted = machine.playbook(frame).returns
        yield from machine.finish(
            frame, Error("bad_result", f"{frame.playbook} must return {wanted}, got {text[:80]!r}")
        )
        return
    yield from machine.finish(frame, value)


# --- listings -----------------------------------------------------------------------------------------------


def _advance(machine: Machine, frame: Frame) -> Program[None]:
    """Execute the next line: directly if it needs no model, otherwise by calling a model."""
    memory, view = machine.memory(frame), machine.view(frame)
    if memory.due:
        id = memory.due.pop(0)
        yield Noted("trigger", {"id": id, "by": "runtime"})
        _fire(machine, frame, id)
        return
    listing = machine.catalogue.listing(frame.agent, frame.playbook)
    asks = frame.heard or frame.retry or frame.kind == "react" or machine.options.get("always_ask")
    node = None if asks else frame.node if frame.node is not None else following(listing, frame.position)
    if node == END and returns_nothing(listing.returns):
        frame.summary = auto_summary(frame)
        flush(frame, "return")
        return
    if node is None or node == END:
        frame.node = None
        yield from ask(machine, frame)
        return
    line = listing.line_at(node)
    if frame.queue and line.code == "RET":  # queued calls run before a return
        frame.node = node
        flush(frame, "")
        return
    previous = frame.position.line
    yield from machine.arrive(frame, listing.position_at((node,)))
    decider = Decider(
        listing,
        lambda name: machine.type_of(frame, name),
        known=view.knows,
        signatures=view.signatures,
        watched=view.watched,
    )
    done = decider.decide(node, machine.variables(frame), frame.loops, previous)
    if done is None:
        frame.node = None
        yield from ask(machine, frame)
    else:
        yield from _do(machine, frame, line, done)


def _fire(machine: Machine, frame: Frame, id: str) -> None:
    """Call the playbook of a trigger. Variables with the names of its parameters become its arguments."""
    name = id.partition(":")[0]
    playbook = machine.catalogue.playbook(frame.agent, name)
    variables = machine.memory(frame).variables
    named = tuple((one.name, Literal(variables[one.name])) for one in playbook.params if one.name in variables)
    frame.running.append(QueuedCall(id, Call(name, (), named)))


def _do(machine: Machine, frame: Frame, line: ListingLine, done: Done) -> Program[None]:
    """Execute a line that needs no model."""
    yield from machine.count_line()
    machine.without_model += 1
    number = line.number
    frame.position = msgspec.structs.replace(frame.position, status="done")
    match done:
        case Goes(following):
            frame.node = following
            if line.code == "JMP":
                yield from _guard(machine, frame, number)
        case Sets(name, value, type, following):
            frame.node = following
            yield from machine.set(frame, name, value, type)
        case Iterates(name, value, index, following):
            frame.node = following
            if index is None:
                frame.loops.pop(number, None)
            else:
                frame.loops[number] = index
                frame.changes += 1
                yield from machine.set(frame, name, value)
        case Queues(call, target, type, yields, following):
            frame.node = following
            enqueue(machine, frame, call, target, type)
            if yields is not None:
                flush(frame, "" if yields == "call" else yields)
        case Yields(target, following):
            frame.node = following
            flush(frame, "" if target == "call" else target)
        case Returns(value):
            frame.value, frame.summary = value, auto_summary(frame)
            flush(frame, "return")


def _guard(machine: Machine, frame: Frame, number: str) -> Program[None]:
    """Stop a loop in which nothing has changed since its last iteration: it would never end."""
    if frame.marks.get(number) == frame.changes:
        words = f"{frame.playbook}:{number} loops, but nothing has changed since the last iteration."
        yield from machine.finish(frame, Error("livelock", words, "Change something in the loop, or yield in it."))
        return
    frame.marks[number] = frame.changes
