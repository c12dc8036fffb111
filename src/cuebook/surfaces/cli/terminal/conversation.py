"""The text of a conversation for `cuebook run` and `cuebook show`: messages, listing, stack, variables, refusals.

The data comes from the dialect's projection of the journal. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cuebook.dialects.presentation.panels import Line
from cuebook.dialects.presentation.projection import Conversation, Refusal, Said
from cuebook.service.service import RunView
from cuebook.surfaces import display
from cuebook.surfaces.cli.terminal.views import json_text, summary

YOU = "you"
RECALLED = 12
"""The number of earlier messages to show."""
_LONG = 100
"""The maximum length of a value on a line."""


def speaker(said: Said) -> str:
    """The name of the speaker of a message."""
    if said.by == "user":
        return YOU
    name = said.agent or "program"
    return name if said.to == "user" else f"{name} to {said.to}"


def conversation_lines(several: list[Said], most: int | None = None) -> Iterator[str]:
    """The messages as `Name: text`; at most the last `most`."""
    shown = several if most is None else several[-most:]
    if len(several) > len(shown):
        yield f"({display.counted(len(several) - len(shown), 'earlier message')})"
    yield from (f"{speaker(one)}: {one.text}" for one in shown)


def listing_lines(run: Conversation) -> Iterator[str]:
    """The listing of the playbook on top of the stack, with its current line."""
    if run.top is None:
        yield "No playbook is running."
        return
    listing = run.listing(run.top)
    yield listing.name
    for line in listing.lines:
        mark = "->" if line.status in ("current", "failed") else "  "
        times = f"  ({line.times} times)" if line.times > 1 else ""
        yield f"{mark} {'  ' * line.depth}{line.label}:{_title(line)}{times}"
    if not listing.lines:
        yield f"   {listing.empty}"
    yield from (f"   {note}" for note in listing.notes)


def _title(line: Line) -> str:
    return f"{line.code} {line.text}".rstrip()


def line_words(run: Conversation) -> str:
    """The current line."""
    top = run.top
    if top is None:
        return "Nothing is running."
    current = next((one for one in run.listing(top).lines if one.status in ("current", "failed")), None)
    if current is None:
        return f"{top.agent}.{top.playbook}"
    return f"{top.playbook}:{current.label}:{_title(current)} ({top.status})"


def stack_lines(run: Conversation) -> Iterator[str]:
    """The frames from the top down, with their lines and pending calls."""
    if not run.stack:
        yield "The stack is empty."
    for frame in reversed(run.stack):
        given = ", ".join(f"{name}={cut(value)}" for name, value in frame.arguments.items())
        where = f":{frame.line} {frame.status}" if frame.line else ""
        yield f"{frame.agent}.{frame.playbook}({given}){where}"
        yield from (f"    pending {call}" for call in frame.pending)


def variable_lines(run: Conversation) -> Iterator[str]:
    """The arguments of the top frame, and the variables of each agent."""
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
    """A value as JSON, shortened if it is long."""
    text = json_text(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}… ({len(text):,} characters)"


def refusal_line(one: Refusal) -> str:
    """One short line about a refused reply."""
    again = f"retry {one.attempt} of {one.retries}" if one.attempt <= one.retries else "no retries left"
    return f"refused by {one.rule} at {one.position.partition(',')[0]} ({again})"


def why_lines(run: Conversation, most: int = 3) -> Iterator[str]:
    """The last refused replies: the rule, the position, what would have been legal, and whether the model is called again."""
    if not run.refused:
        yield "No reply was refused."
    if len(run.refused) > most:
        yield f"({len(run.refused) - most} earlier)"
    for one in run.refused[-most:]:
        yield refusal_line(one)
        yield f"    rule      {one.rule}: {one.asks}"
        yield f"    problem   {one.problem}"
        yield f"    in reply  {one.at}"
        yield f"    position  {one.position}"
        yield from _listed("legal", one.legal or ("none: only a return or a yield",))
        yield from _listed("applied", one.applied or ("nothing",))
        retried = "yes, with this feedback, from that position" if one.attempt <= one.retries else "no"
        yield f"    retried   {retried}"


def _listed(name: str, several: Iterable[str]) -> Iterator[str]:
    for number, words in enumerate(several):
        yield f"    {name if not number else '':<9} {words}"


# --- closing lines --------------------------------------------------------------------------------------


def summary_of(view: RunView, run: Conversation, *, sits: bool) -> list[tuple[str, str]]:
    """The closing lines as name and text. With `sits`, at a terminal, they suggest continuing the chat."""
    row = view.run
    value = run.program_run().value
    lines: list[tuple[str, str]] = []
    for name, words in summary(view):
        if name == "steps":
            lines += [("result", cut(value))] if value is not None else []
            lines += _counts(run)
        elif name == "next" and row.status == "awaiting_input" and sits:
            lines += [("next", display.command_line(f"resume {row.id}")), ("or", words)]
        elif name != "artifact":
            lines.append((name, words))
    return lines


def _counts(run: Conversation) -> Iterator[tuple[str, str]]:
    known = f"at least {run.without_model}" if run.at_least else str(run.without_model)
    yield "lines", f"{run.line_count} executed, {known} without a model"
    refused = f", {display.counted(len(run.refused), 'reply').replace('replys', 'replies')} refused"
    yield "turns", f"{run.model_calls} by a model{refused if run.refused else ''}"


def in_words(run: Conversation) -> Iterator[str]:
    """The sections of `cuebook show`: messages, listing, stack, variables and refusals."""
    if run.said:
        yield "\n".join(conversation_lines(run.said, RECALLED))
    if run.stack:
        yield "\n".join(listing_lines(run))
        yield "\n".join(["stack:", *(f"  {line}" for line in stack_lines(run))])
    if any(run.typed().values()) or run.stack:
        yield "\n".join(["variables:", *(f"  {line}" for line in variable_lines(run))])
    if run.refused:
        yield "\n".join(["refused:", *(f"  {line}" for line in why_lines(run))])
