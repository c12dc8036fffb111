"""One turn of a model: it is asked to execute lines, its reply is verified, and the verified part takes effect.

A refused reply takes effect up to the refused item. The model gets the reason and is asked again, at most twice.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.machine import prompts
from cuebook.dialects.program.machine.decide import obstacle
from cuebook.dialects.program.machine.frames import RESULT, Error, Frame, QueuedCall, is_private, settled
from cuebook.dialects.program.machine.machine import Machine
from cuebook.dialects.program.reply.grammar import grammar_of
from cuebook.dialects.program.reply.items import (
    Artifact,
    Assign,
    Call,
    Return,
    SaveArtifact,
    Step,
    Trigger,
    Var,
    What,
    Yield,
)
from cuebook.dialects.program.reply.reader import ReplyReader
from cuebook.dialects.program.values.evaluate import NotComputable, evaluate, is_error
from cuebook.dialects.program.values.expressions import Expression, Literal, Ref, refs_of
from cuebook.dialects.program.verify.corrections import MOST_RETRIES, retry_of
from cuebook.dialects.program.verify.expectations import legal_after
from cuebook.dialects.program.verify.scope import SUMMARY
from cuebook.dialects.program.verify.verdicts import CheckTriggers, LoadContent, State, Verdicts
from cuebook.dialects.program.verify.verifier import verify_reply
from cuebook.dialects.program.verify.watch import NAME, verdicts_of, watch_arguments
from cuebook.kernel.effects import AskModel, Program, Watch
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import Reply

MOST_GRAMMARS = 256
SAYS = frozenset({"Say", "SendMessage"})


def ask(machine: Machine, frame: Frame) -> Program[None]:
    """Ask a model to continue with a frame."""
    listing = machine.catalogue.listing(frame.agent, frame.playbook)
    if listing.lines and frame.position.status == "arrived":
        yield from machine.arrive(frame, frame.position if frame.position.line else Position(listing.lines[0].number))
    stuck = machine.repeats_itself(frame)
    if stuck is not None:
        yield from machine.finish(frame, stuck)
        return
    yield from machine.count_turn()
    frame.changes += 1
    position = frame.pending()
    state = _state(machine, frame)
    watch = watch_arguments(listing, position, state)
    reply: Reply = yield AskModel(
        _prompt(machine, frame, listing, state),
        machine.history(frame).context,
        model_of(machine, frame),
        watch=Watch(NAME, watch),
        grammar=_grammar(machine, frame, listing, state),
    )
    frame.asked += 1
    text = reply.text
    verdicts = verdicts_of(watch, text) or verify_reply(listing, position, state, text)
    machine.remember(frame, "assistant", text.strip() or "(nothing)")
    yield from _note_verdicts(frame, verdicts)
    yield from _apply(machine, frame, listing, verdicts)
    if not verdicts.ok:
        yield from _refuse(machine, frame, verdicts, text)
        return
    frame.refused, frame.retry, frame.heard, frame.last, frame.applied = 0, "", False, verdicts.progress, []
    _stop(frame, verdicts)
    if any(isinstance(one, CheckTriggers) for one in verdicts.actions) and frame.after in ("", "user"):
        yield from _check_triggers(machine, frame)


def _grammar(machine: Machine, frame: Frame, listing: Listing, state: State) -> str:
    """The grammar for a local model, cached by its few inputs."""
    known = frozenset(machine.variables(frame))
    position = frame.position
    legal = legal_after(listing, position if position.line else None, state)
    key = (frame.agent, frame.playbook, position, frame.heard, known, legal)
    kept = machine.catalogue.grammars
    if key not in kept:
        if len(kept) >= MOST_GRAMMARS:
            kept.clear()
        signatures = machine.view(frame).signatures
        at = position if position.line else None
        kept[key] = grammar_of(listing, at, known, signatures, heard=frame.heard, legal=legal) or ""
    return kept[key]


def model_of(machine: Machine, frame: Frame) -> str | None:
    """The model that the playbook's agent requests by its full name, or None."""
    name = machine.program.agents[frame.agent].metadata.get("model")
    return name if isinstance(name, str) and "/" in name else None


def _state(machine: Machine, frame: Frame) -> State:
    memory, view = machine.memory(frame), machine.view(frame)
    listing = machine.catalogue.listing(frame.agent, frame.playbook)
    return State(
        variables=machine.variables(frame).all(),
        types={name: type for name, type in memory.types.items() if not _declares(listing, name)},
        artifacts={name: name in frame.loaded for name in memory.artifacts},
        agent=frame.agent,
        agents=tuple(machine.catalogue.agents),
        playbooks=view.signatures,
        private=view.private,
        spent=machine.already_fired(frame),
        triggers=view.triggers,
        held={id: memory.held.get(id, False) for id in view.conditions},
        said=tuple(frame.said),
        root=len(machine.stack) == 1 and not machine.is_concurrent,
        inbox=frame.inbox,
        entries=frame.entries,
        last=frame.last,
        loops=frame.loops,
        awaited=tuple(one.target for one in frame.queue if one.target),
        heard=frame.heard,
    )


def _declares(listing: Listing, name: str) -> bool:
    """Whether the playbook's own declaration of a variable overrides another playbook's."""
    return bool(listing.declared.get(name)) or any(param.name == name for param in listing.params)


def _prompt(machine: Machine, frame: Frame, listing: Listing, state: State) -> str:
    position = frame.position if frame.position.line else None
    legal = () if frame.retry or not listing.lines else listing.lines_of(legal_after(listing, position, state))
    return "\n\n".join(
        part
        for part in (
            frame.retry,
            f"State: {_shown_state(machine, frame)}",
            _obstacle(machine, frame, listing),
            "" if frame.retry else prompts.instruction(listing, frame.position, legal, again=frame.asked > 0),
        )
        if part
    )


def _obstacle(machine: Machine, frame: Frame, listing: Listing) -> str:
    """Why the frame's current line cannot be computed, if that is the reason to ask a model."""
    number = frame.position.line
    if frame.position.status != "arrived" or number not in listing.by_number:
        return ""
    why = obstacle(listing.lines[listing.by_number[number][0]], machine.variables(frame))
    return f"{frame.playbook}:{number} cannot be computed: {why}." if why else ""


def _shown_state(machine: Machine, frame: Frame) -> str:
    stack = [f"{one.playbook}:{one.position.line}".rstrip(":") for one in machine.stack]
    memory = machine.memory(frame)
    return prompts.state_text(stack, machine.variables(frame).shown(), memory.artifacts, frame.loaded)


# --- verified actions ---------------------------------------------------------------------------------------


def _note_verdicts(frame: Frame, verdicts: Verdicts) -> Program[None]:
    if not verdicts.verdicts:
        return
    found = [
        {"rule": one.rule, "policy": one.policy, "words": one.words, "line": one.line} for one in verdicts.verdicts
    ]
    yield Noted("verdicts", {"playbook": frame.playbook, "verdicts": found})
    for one in verdicts.verdicts:
        if one.rule == "WHAT" or one.policy == "R":
            code = "what" if one.rule == "WHAT" else "refused"
            rule = "" if one.rule == "WHAT" else f" ({one.rule})"
            yield Warned(code, f"{frame.playbook}:{one.line}: {one.words}{rule}")


def _apply(machine: Machine, frame: Frame, listing: Listing, verdicts: Verdicts) -> Program[None]:
    memory = machine.memory(frame)
    held = dict(memory.held)
    fired: set[str] = set()
    arrived = frame.open.rpartition(":")[2] if frame.position.status != "done" else ""
    current = ""
    for action in verdicts.actions:
        match action:
            case Step() if action.is_line and listing.lines:
                if action.line != current:
                    frame.visit(action.line)
                    frame.entries[action.line] = frame.entries.get(action.line, 0) + 1
                    yield from machine.count_line()
                    if current or action.line != arrived:
                        yield from machine.open_line(frame, action.line)
                current = action.line
            case Var(name) if name != SUMMARY:
                yield from machine.set(frame, name, _value(machine, frame, action.value), action.type, fire=False)
            case Call():
                enqueue(machine, frame, action)
            case Assign(target, call, type):
                enqueue(machine, frame, call, target, type)
            case Artifact(name):
                yield from _save(machine, frame, name, action)
            case SaveArtifact(name):
                yield from _save(machine, frame, _named(machine, frame, name), action)
            case Trigger(playbook, id):
                known = f"{playbook.rpartition('.')[2]}:{id}"
                fired.add(known)
                machine.fires(
                    frame, f"{playbook}:{id}" if f"{playbook}:{id}" in machine.view(frame).triggers else known
                )
                if known in machine.view(frame).conditions:
                    memory.held[known] = True
                yield Noted("trigger", {"id": f"{playbook}:{id}", "by": "model"})
            case LoadContent(name):
                load(machine, frame, name)
            case What() | Return() | Yield() | _:
                pass
    memory.due += [id for id, now in memory.held.items() if now and not held.get(id) and id not in fired]
    yield from _yielded_at(machine, frame, listing, verdicts, current)
    frame.position = msgspec.structs.replace(verdicts.position, pending=())
    frame.node = None
    frame.loops = verdicts.loops


def _yielded_at(machine: Machine, frame: Frame, listing: Listing, verdicts: Verdicts, current: str) -> Program[None]:
    """Execute the YLD line for a yield that does not name it."""
    at = verdicts.position.line
    before = current or frame.position.line
    found = listing.by_number.get(at, ())
    if verdicts.ok and found and at != before and listing.lines[found[0]].code == "YLD":
        yield from machine.count_line()
        yield from machine.open_line(frame, at)


def _value(machine: Machine, frame: Frame, value: Expression) -> Any:
    try:
        return evaluate(value, machine.variables(frame))
    except NotComputable:  # the verifier accepts only values that can be computed, except the content of an artifact
        return None


def _named(machine: Machine, frame: Frame, name: Expression) -> str:
    return name.name if isinstance(name, Ref) else str(_value(machine, frame, name)).removeprefix("$")


def _save(machine: Machine, frame: Frame, name: str, item: Artifact | SaveArtifact) -> Program[None]:
    summary, content = _value(machine, frame, item.summary), _value(machine, frame, item.content)
    yield from machine.save(frame, name, str(summary or ""), content)


def load(machine: Machine, frame: Frame, name: str) -> bool:
    """Show a frame the content of an artifact, until the frame ends."""
    memory = machine.memory(frame)
    if name not in memory.artifacts:
        return False
    if name not in frame.loaded:
        frame.loaded.append(name)
    content = machine.variables(frame).get(name)
    text = content if isinstance(content, str) else prompts.shown(content)
    if not _sees(machine, frame, text):
        shortened = text[: prompts.MOST_LOADED]
        more = f"… ({len(text)} characters in all)" if shortened != text else ""
        machine.remember(frame, "user", f"Content of ${name}:\n{shortened}{more}")
    return True


def _sees(machine: Machine, frame: Frame, text: str) -> bool:
    """Whether the text is already in the frame's context: this frame, or a frame below it, wrote or loaded it."""
    if frame.kind not in ("listing", "react"):
        return True
    forms = {text[: prompts.MOST_LOADED], prompts.shown(text)[1:-1][: prompts.MOST_LOADED]}
    return any(form in str(block.text) for block in machine.history(frame).context for form in forms)


def enqueue(machine: Machine, frame: Frame, call: Call, target: str = "", type: str = "") -> None:
    awaited = {one.target for one in frame.queue if one.target}
    if any(one.name not in SAYS for one in frame.queue):
        awaited.add(RESULT)  # it is the result of the previous call
    given = [*((str(at), one) for at, one in enumerate(call.args)), *call.named]
    private = tuple(key for key, value in given if any(map(is_private, refs_of(value))))
    number = f"{frame.position.line or frame.open.rpartition(':')[2]}#{len(frame.queue) + 1}"
    queued = QueuedCall(number, settled(call, machine.variables(frame), awaited), target, type, private)
    frame.queue.append(queued)
    said = queued.call.message if call.name in SAYS else None
    if isinstance(said, Literal):
        frame.gives(said.value)


# --- ends of a turn -----------------------------------------------------------------------------------------


def _stop(frame: Frame, verdicts: Verdicts) -> None:
    """Apply the yield or the return of a reply."""
    match verdicts.terminator:
        case Return():
            frame.value = verdicts.returns
            frame.summary = verdicts.summary or auto_summary(frame)
            flush(frame, "return")
        case Yield("user"):
            flush(frame, "user")
        case Yield("exit"):
            flush(frame, "exit")
        case Yield("call"):
            flush(frame, "")
        case Yield(_, name):
            frame.awaits = name
            flush(frame, "agent")


def flush(frame: Frame, after: Any) -> None:
    """Make queued calls due, and set what follows. Before a wait, only messages are sent; other calls stay queued."""
    if after in ("user", "agent"):
        frame.running += [one for one in frame.queue if one.name in SAYS]
        frame.queue = [one for one in frame.queue if one.name not in SAYS]
    else:
        frame.running += frame.queue
        frame.queue = []
    frame.after = after


def auto_summary(frame: Frame) -> str:
    """The default of `$__`."""
    lines = f" went through {', '.join(frame.log[-12:])}" if frame.log else " was done"
    return f"{frame.playbook}{lines}."


def _refuse(machine: Machine, frame: Frame, verdicts: Verdicts, text: str) -> Program[None]:
    frame.refused += 1
    retry = retry_of(verdicts, frame.playbook, text)
    frame.applied += [one for one in retry.applied if one not in frame.applied]
    retry = msgspec.structs.replace(retry, applied=tuple(frame.applied))
    frame.retry = retry.text
    machine.remember(frame, "user", f"That reply was refused ({retry.rule}): {retry.problem}")
    note = {"playbook": frame.playbook, **msgspec.to_builtins(retry), "attempt": frame.refused, "retries": MOST_RETRIES}
    yield Noted("refused", note)
    if frame.refused > MOST_RETRIES:
        listing = machine.catalogue.listing(frame.agent, frame.playbook)
        cause = _obstacle(machine, frame, listing) or _failure(frame)
        words = f"{frame.refused} replies in a row were refused at {retry.position}. The last one: {retry.problem} ({retry.rule})"
        words = f"{cause} Then {words}" if cause else words
        fix = "Look at the verdicts in the run's events. A stronger model or a more detailed listing may help."
        yield from machine.finish(frame, Error("refused", words, fix))


def _failure(frame: Frame) -> str:
    """The error of the frame's last call, if it failed: the model had to continue from there."""
    return f"A call failed: {frame.result['message']}" if is_error(frame.result) else ""


# --- triggers that only a model can judge -------------------------------------------------------------------


def _check_triggers(machine: Machine, frame: Frame) -> Program[None]:
    """Ask the model once about the semantic triggers, because the reply did not check the triggers everywhere."""
    view = machine.view(frame)
    if not view.semantic:
        return
    listed = [f'- {text}: `Trigger["{id}:CND"]`' for id, text in view.semantic.items()]
    yield from machine.count_turn()
    prompt = prompts.check_text(listed, _shown_state(machine, frame))
    reply: Reply = yield AskModel(prompt, machine.history(frame).context, model_of(machine, frame))
    reader = ReplyReader()
    for item in reader.feed(reply.text) + reader.finish():
        id = f"{item.playbook.rpartition('.')[2]}:{item.id}" if isinstance(item, Trigger) else ""
        if id in view.semantic and id not in machine.memory(frame).due and id not in machine.already_fired(frame):
            machine.fires(frame, id)
            machine.memory(frame).due.append(id)
