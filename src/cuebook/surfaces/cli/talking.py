"""A program's run in words, for whoever looks on and whoever looks later: conversation, listing, stack, variables, refusals.

What there is to tell comes from the dialect's projection of the journal; only the words are made here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cuebook.dialects.program.observe import Projection, Refusal, Said, Standing
from cuebook.kernel.events import ModelAsked, Noted, StepStarted, ValueSet
from cuebook.kernel.journal import Entry
from cuebook.service import RunView
from cuebook.surfaces import wording
from cuebook.surfaces.cli.live import json_text, summary
from cuebook.surfaces.typed import typed

YOU = "you"
RECALLED = 12
"""Messages that are shown of what was said before."""
_LONG = 100
"""Characters of a value that a line shows."""


def speaker(said: Said) -> str:
    """Who says something, as it stands before the words."""
    if said.by == "user":
        return YOU
    name = said.agent or "program"
    return name if said.to == "user" else f"{name} to {said.to}"


def conversation_lines(several: list[Said], most: int | None = None) -> Iterator[str]:
    """Each as `Name: words`; of many the last ones."""
    shown = several if most is None else several[-most:]
    if len(several) > len(shown):
        yield f"({wording.counted(len(several) - len(shown), 'message')} before)"
    yield from (f"{speaker(one)}: {one.text}" for one in shown)


def listing_lines(run: Projection) -> Iterator[str]:
    """The listing of the playbook on top of the stack, with the line it stands at."""
    top = run.top
    if top is None:
        yield "No playbook is being executed."
        return
    yield head_of(run, top)
    playbook = run.playbook_of(top)
    lines = run.listing(top)
    for one in lines:
        line = one.line
        mark = "->" if one.current else "  "
        times = f"  ({one.times} times)" if one.times > 1 else ""
        yield f"{mark} {'  ' * line.number.count('.')}{line.number}:{line.title}{times}"
    if not lines:
        kind = playbook.kind if playbook is not None else "external"
        yield f"   It is a {kind} playbook and has no listing."
    for note in playbook.notes if playbook is not None else ():
        yield f"   {note.id}: {note.text}"


def head_of(run: Projection, frame: Standing) -> str:
    playbook = run.playbook_of(frame)
    params = (
        ", ".join(f"${one.name}{f':{one.type}' if one.type else ''}" for one in playbook.params) if playbook else ""
    )
    returns = f" -> {playbook.returns}" if playbook is not None and playbook.returns else ""
    return f"{frame.agent}.{frame.playbook}({params}){returns}"


def line_words(run: Projection) -> str:
    """Where the run stands, in one line."""
    top = run.top
    if top is None:
        return "Nothing is being executed."
    current = next((one.line for one in run.listing(top) if one.current), None)
    if current is None:
        return f"{top.agent}.{top.playbook}"
    return f"{top.playbook}:{current.number}:{current.title} ({top.status})"


def stack_lines(run: Projection) -> Iterator[str]:
    """The frames from the top down, each with where it stands and what it has still to call."""
    if not run.stack:
        yield "The stack is empty."
    for frame in reversed(run.stack):
        given = ", ".join(f"{name}={cut(value)}" for name, value in frame.arguments.items())
        where = f":{frame.line} {frame.status}" if frame.line else ""
        yield f"{frame.agent}.{frame.playbook}({given}){where}"
        yield from (f"    pending {call}" for call in frame.pending)


def variable_lines(run: Projection) -> Iterator[str]:
    """The arguments of the top frame, and what each agent knows."""
    top, several = run.top, {agent: found for agent, found in run.typed().items() if found}
    for name, value in top.arguments.items() if top is not None else ():
        yield f"${name} = {cut(value)}  (argument of {top.playbook if top is not None else ''})"
    for agent, variables in several.items():
        if len(several) > 1:
            yield f"{agent}:"
        yield from (
            f"{'  ' if len(several) > 1 else ''}${one.name}: {one.type} = {cut(one.value)}" for one in variables
        )
    if not several and (top is None or not top.arguments):
        yield "There are no variables yet."


def cut(value: Any) -> str:
    """A value as JSON, the beginning of a long one."""
    text = json_text(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}… ({len(text):,} characters)"


def refusal_line(one: Refusal) -> str:
    """A reply that was refused, in one short line."""
    again = f"retry {one.attempt} of {one.retries}" if one.attempt <= one.retries else "no retry is left"
    return f"refused by {one.rule} at {one.position.partition(',')[0]} ({again})"


def why_lines(run: Projection, most: int = 3) -> Iterator[str]:
    """The replies that were refused last: by which rule, where, what could have come instead, and what was asked again."""
    if not run.refused:
        yield "No reply was refused."
    if len(run.refused) > most:
        yield f"({len(run.refused) - most} before)"
    for one in run.refused[-most:]:
        yield refusal_line(one)
        yield f"    rule      {one.rule}: {one.asks}"
        yield f"    problem   {one.problem}"
        yield f"    in reply  {one.at}"
        yield f"    stands at {one.position}"
        yield from _listed("legal", one.legal or ("none: only a return or a yield",))
        yield from _listed("applied", one.applied or ("nothing",))
        asked = "to go on from there, with all of this" if one.attempt <= one.retries else "no more"
        yield f"    asked     {asked}"


def _listed(name: str, several: Iterable[str]) -> Iterator[str]:
    for number, words in enumerate(several):
        yield f"    {name if not number else '':<9} {words}"


# --- as it happens --------------------------------------------------------------------------------------


def change_lines(run: Projection, entry: Entry) -> list[str]:
    """What an entry changes in line, stack and variables, once the projection has seen it."""
    match entry.event:
        case StepStarted(label, title):
            return [f"{label} {title}".rstrip()]
        case ModelAsked(model=model):
            return [f"  asks {model}"]
        case ValueSet(name, value) if not name.startswith("_"):
            return [f"  ${name} = {cut(value)}"]
        case Noted("called", data):
            given = ", ".join(f"{name}={cut(value)}" for name, value in data["arguments"].items())
            return [f"  call {data['playbook']}({given}), stack: {_stack_words(run)}"]
        case Noted("returned", {"playbook": playbook, "error": error}):
            return [f"  {playbook} failed: {error['message']}, stack: {_stack_words(run)}"]
        case Noted("returned", data):
            value = f" {cut(data['value'])}" if data.get("value") is not None else ""
            return [f"  {data['playbook']} returned{value}, stack: {_stack_words(run)}"]
        case Noted("trigger", data):
            return [f"  trigger {data['id']}"]
    return []


def _stack_words(run: Projection) -> str:
    frames = [f"{frame.playbook}:{frame.line}".rstrip(":") for frame in run.stack]
    return " > ".join(frames) or "empty"


# --- how it ended ---------------------------------------------------------------------------------------


def summary_of(view: RunView, run: Projection, *, sits: bool) -> list[tuple[str, str]]:
    """The closing lines of a program: name and words. Where somebody sits at a terminal, the talk goes on there."""
    row = view.run
    value = run.result.get("value") if isinstance(run.result, Mapping) else None
    lines: list[tuple[str, str]] = []
    for name, words in summary(view):
        if name == "steps":
            lines += [("result", cut(value))] if value is not None else []
            lines += _counts(run)
        elif name == "next" and row.status == "awaiting_input" and sits:
            lines += [("next", typed(f"resume {row.id}")), ("or", words)]
        elif name != "artifact":
            lines.append((name, words))
    return lines


def _counts(run: Projection) -> Iterator[tuple[str, str]]:
    known = f"at least {run.without_model}" if run.at_least else str(run.without_model)
    lines = sum(":" in label for label in run.trace)  # a playbook without a listing is none
    yield "lines", f"{lines} gone through, {known} without a model"
    refused = f", {wording.counted(len(run.refused), 'reply').replace('replys', 'replies')} refused"
    yield "turns", f"{run.model_calls} of a model{refused if run.refused else ''}"


def in_words(run: Projection) -> Iterator[str]:
    """A run as `cuebook show` tells it: what was said, and where it stands."""
    if run.said:
        yield "\n".join(conversation_lines(run.said, RECALLED))
    if run.stack:
        yield "\n".join(listing_lines(run))
        yield "\n".join(["stack:", *(f"  {line}" for line in stack_lines(run))])
    if any(run.typed().values()) or run.stack:
        yield "\n".join(["variables:", *(f"  {line}" for line in variable_lines(run))])
    if run.refused:
        yield "\n".join(["refused:", *(f"  {line}" for line in why_lines(run))])
