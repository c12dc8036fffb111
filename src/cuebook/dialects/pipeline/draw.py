"""A pipeline as a Mermaid flowchart, with the state of a run where there is one. Pure: the same gives the same text."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping

from cuebook.dialects.mermaid import coloured, escaped, titled
from cuebook.dialects.pipeline.model import Cli, Http, Llm, Mcp, Pipeline, Step
from cuebook.dialects.pipeline.references import as_written
from cuebook.dialects.pipeline.resolve import referred

_BREAK = "<br/>"
_STATES = {
    "completed": "success",
    "failed": "failed",
    "in_doubt": "failed",
    "skipped": "skipped",
    **dict.fromkeys(("running", "tool_call", "paused", "awaiting_input", "awaiting_approval"), "current"),
}
"""What became of a step, as boxes show it."""
_ON_ERROR = {"continue": "goes on if it fails", "skip_rest": "ends the run early if it fails"}


End = tuple[str, str]
"""A box that the next one hangs on, and the words on the way; empty where there are none."""


def mermaid(pipeline: Pipeline, states: Mapping[str, str] | None = None, *, title: bool = False) -> str:
    """The steps in order; diamonds are conditions, slanted boxes approvals, dotted lines what one takes from another.

    With the states of a run's steps, colours say what became of them.
    """
    return "\n".join(_lines(pipeline, states, title)) + "\n"


def _lines(pipeline: Pipeline, states: Mapping[str, str] | None, title: bool) -> Iterator[str]:
    if title:
        yield from titled(pipeline.name)
    yield "flowchart TD"
    names = {step.id: f"s{number}" for number, step in enumerate(pipeline.steps, start=1)}
    begin = [pipeline.name, *([f"args: {', '.join(pipeline.args)}"] if pipeline.args else [])]
    yield f'    start(["{_words(begin)}"])'
    loose: list[End] = [("start", "")]
    for step in pipeline.steps:
        loose = yield from _drawn(step, names[step.id], loose)
    yield '    finish(["end"])'
    yield from _joined(loose, "finish")
    for step in pipeline.steps:
        yield from (f"    {names[one]} -.-> {names[step.id]}" for one in referred(step) if one in names)
    if states is not None:
        yield from coloured({names[id]: _STATES.get(state, "") for id, state in states.items() if id in names})


def _drawn(step: Step, name: str, loose: list[End]) -> Generator[str, None, list[End]]:
    """The boxes of a step; gives the ends that the next one hangs on."""
    left: list[End] = []
    if step.condition is not None:
        yield f'    {name}_if{{"{escaped(step.condition_text)}"}}'
        yield from _joined(loose, f"{name}_if")
        loose, left = [(f"{name}_if", "yes")], [(f"{name}_if", "no")]
    if step.approval:
        yield f'    {name}_ask[/"approval"/]'
        yield from _joined(loose, f"{name}_ask")
        loose = [(f"{name}_ask", "")]
    opens, closes = ('[["', '"]]') if isinstance(step.action, Mcp) else ('["', '"]')
    yield f"    {name}{opens}{_words(_said(step))}{closes}"
    yield from _joined(loose, name)
    return [(name, ""), *left]


def _joined(loose: list[End], name: str) -> Iterator[str]:
    for before, way in loose:
        yield f'    {before} -->|"{way}"| {name}' if way else f"    {before} --> {name}"


def _said(step: Step) -> Iterator[str]:
    yield f"{step.id}: {step.name}" if step.name else step.id
    yield doing(step)
    if step.on_error in _ON_ERROR:
        yield _ON_ERROR[step.on_error]


def doing(step: Step) -> str:
    """What a step does, in one line."""
    match step.action:
        case Cli(argv=argv):
            return f"cli {' '.join(_token(as_written(word)) for word in argv)}"
        case Http(method=method, url=url):
            return f"http {method} {as_written(url)}"
        case Mcp(tool=tool):
            return f"mcp {tool}"
        case Llm(model=model):
            return f"llm {model}"


def _token(text: str) -> str:
    return text if text and not re.search(r"\s", text) else f"'{text}'"


def _words(lines: Iterator[str] | list[str]) -> str:
    return _BREAK.join(map(escaped, lines))
