"""A program as a generator of effects: whoever is on top of the stack goes on, until nothing is left to do.

What runs next: a call that somebody made, then what begins with the program, then what triggers and messages set off.
Deterministic: it reaches the world by the effects it yields, and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.away import look
from cuebook.dialects.program.catalogue import Callee, Catalogue
from cuebook.dialects.program.deciding import (
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
from cuebook.dialects.program.evaluate import DoesNotCoerce, NotComputable, coerced, is_error
from cuebook.dialects.program.expressions import Literal
from cuebook.dialects.program.frames import Error, Frame, QueuedCall, is_private
from cuebook.dialects.program.items import Call
from cuebook.dialects.program.listing import END
from cuebook.dialects.program.machine import Machine
from cuebook.dialects.program.model import ListingLine, Playbook, ProgramText
from cuebook.dialects.program.running import attempt, listen, prepared, run_calls, values_of
from cuebook.dialects.program.scope import BUILT_IN
from cuebook.dialects.program.turns import ask, auto_summary, enqueue, flush, model_of
from cuebook.dialects.program.wanted import wanted
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, Now, Program, RunPython
from cuebook.kernel.events import ArtifactMade, Noted, Planned, Warned
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
        yield from _look_around(machine)
        machine.todo = _first_calls(machine, inputs, options)
    else:
        machine.restore(*state)
    try:
        yield from run(machine)
    except EffectFailed:
        yield Noted("stopped", {"without_model": machine.without_model})
        raise
    return (yield from _end(machine))


def _look_around(machine: Machine) -> Program[None]:
    """Asks agents that live elsewhere what they can do. One that does not answer is an error when it is called."""
    for agent in tuple(machine.program.agents.values()):
        if agent.remote is None:
            continue
        found: list[Playbook] | Failed = yield from attempt(look(agent, agent.remote))
        if isinstance(found, Failed):
            yield Warned("agent", f"The agent {agent.name} cannot be reached: {found.message}")
        else:
            machine.catalogue.learn(agent.name, found)


def _first_calls(machine: Machine, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> list[QueuedCall]:
    call = options.get("call")
    if call:
        return [wanted(machine.catalogue, str(call))]
    calls = []
    for agent, playbook in machine.program.beginning:
        named = tuple((one.name, Literal(inputs[one.name])) for one in playbook.params if one.name in inputs)
        calls.append(QueuedCall("#1", Call(f"{agent.name}.{playbook.name}", (), named)))
    if not calls and not machine.catalogue.waits_for_messages():
        raise EffectFailed(
            Failed(
                "nothing_begins",
                f"Nothing in {machine.program.name} begins with the program.",
                "Give a playbook a BGN trigger, or name one to call with the option call.",
            )
        )
    return calls


def _end(machine: Machine) -> Program[dict[str, Any]]:
    value = machine.came
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
    """Goes on until the program exits, or nothing is left to do."""
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
    """What runs when the stack is empty: what begins with the program, then triggers, then messages."""
    if machine.beside:
        return False
    if isinstance(machine.came, Error):
        raise EffectFailed(machine.came.failed)
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
    """Begins a frame at the bottom of the stack."""
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
    """No call is left that runs: what the reply, or the line, wanted then."""
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
    """Messages from other agents. An agent that was written to answers first, unless it waits for an answer itself."""
    waiting = {one.agent for one in machine.stack[:-1] if one.after == "agent"} - {frame.agent}
    for name, memory in machine.agents.items():
        if name != frame.agent and name not in waiting and memory.mail and name in machine.catalogue.agents:
            frame.after = "agent"
            frame.running.insert(0, QueuedCall("#1", Call(machine.catalogue.messages)))
            yield from _dispatch(machine, name, memory.take(1)[0])
            return
    mail = machine.memory(frame).take()
    if not mail and waiting:
        words = f"{frame.agent} waits for {frame.awaits or 'an agent'}, and {', '.join(sorted(waiting))} for an answer."
        fix = "Agents do not talk in turns here: answer with Say, and return."
        yield from machine.finish(frame, Error("not_supported", words, fix))
        return
    if not mail:
        yield Warned("message", f"{frame.agent} waits for {frame.awaits or 'an agent'}, and no message came.")
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
    """One question with the description, and nothing else: no history, and no calls."""
    yield from machine.count_turn()
    given = "\n".join(f"${name} = {value}" for name, value in frame.arguments.items() if not is_private(name))
    prompt = "\n\n".join(part for part in (machine.description(frame).strip(), given) if part)
    reply: Reply = yield AskModel(prompt or frame.playbook, model=model_of(machine, frame))
    text = reply.text.strip()
    try:
        value = coerced(text, machine.playbook(frame).returns).value
    except DoesNotCoerce:
        wanted = machine.playbook(frame).returns
        yield from machine.finish(frame, Error("bad_result", f"{frame.playbook} returned no {wanted}: {text[:80]!r}"))
        return
    yield from machine.finish(frame, value)


# --- listings -----------------------------------------------------------------------------------------------


def _advance(machine: Machine, frame: Frame) -> Program[None]:
    """The next line: by itself if it needs no model, otherwise by asking one."""
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
    if frame.queue and line.code == "RET":  # a return lets the calls run first
        frame.node = node
        flush(frame, "")
        return
    came = frame.position.line
    yield from machine.arrive(frame, listing.position_at((node,)))
    decider = Decider(
        listing,
        lambda name: machine.type_of(frame, name),
        known=view.knows,
        signatures=view.signatures,
        watched=view.watched,
    )
    done = decider.decide(node, machine.variables(frame), frame.loops, came)
    if done is None:
        frame.node = None
        yield from ask(machine, frame)
    else:
        yield from _do(machine, frame, line, done)


def _fire(machine: Machine, frame: Frame, id: str) -> None:
    """Calls the playbook of a trigger, with the variables that have the names of its parameters."""
    name = id.partition(":")[0]
    playbook = machine.catalogue.playbook(frame.agent, name)
    variables = machine.memory(frame).variables
    named = tuple((one.name, Literal(variables[one.name])) for one in playbook.params if one.name in variables)
    frame.running.append(QueuedCall(id, Call(name, (), named)))


def _do(machine: Machine, frame: Frame, line: ListingLine, done: Done) -> Program[None]:
    """A line that needs no model takes effect."""
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
    """A loop that changed nothing since it was last here would never end."""
    if frame.marks.get(number) == frame.changes:
        words = f"{frame.playbook}:{number} goes round, and nothing has changed since it was last there."
        yield from machine.finish(frame, Error("livelock", words, "Change something in the loop, or yield in it."))
        return
    frame.marks[number] = frame.changes
