"""What an assistant can read: what the dialects are, the playbooks of the library, and what runs have brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service import RunView
from cuebook.surfaces import wording
from cuebook.surfaces.mcp.calling import for_assistants
from cuebook.surfaces.mcp.following import stand_of
from cuebook.surfaces.mcp.host import LEFT, Caller, Host
from cuebook.surfaces.mcp.marking import LONGEST, Marking, brief, one_line
from cuebook.surfaces.mcp.shapes import SHORTEST
from cuebook.surfaces.mcp.telling import book_uri, output_uri, run_uri

SPECS = {
    "markdown": "Markdown playbooks: the whole of the format on a page",
    "format": "Markdown playbooks: title, sections and what each is for",
    "inputs": "Markdown playbooks: inputs, their types and placeholders",
    "steps": "Markdown playbooks: steps, and what a model sees of them",
    "directives": "Markdown playbooks: @output, @elicit, @prompt and @tool",
    "branching": "Markdown playbooks: going one way or another",
    "artifacts": "Markdown playbooks: what a run leaves behind",
    "graph": "Workflow graphs: nodes, edges and conditions in plain words",
    "pipeline": "Pipelines: commands, requests, tools and models, step by step",
    "program": "Programs: playbooks in plain words that a model executes line by line",
}
_RECENT, _STEPS = 20, 300
"""Runs that are listed, of which any other can be read by its id; and steps of a run that are told."""
_DIGITS = 12
PAGE = 100_000
"""Characters of an output that are read at once. A client may refuse messages of more than a megabyte."""

TEMPLATES = [
    ResourceTemplate(
        uri_template="playbook://spec/{topic}", name="spec", description="What a dialect is.", mime_type="text/markdown"
    ),
    ResourceTemplate(
        uri_template="playbook://playbooks/{playbook_id}{?offset}",
        name="playbook",
        description=f"The text of a playbook, marked as data, {PAGE:,} characters at a time.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        uri_template="playbook://runs/{execution_id}",
        name="transcript",
        description="What happened in an execution, step by step.",
        mime_type="text/markdown",
    ),
    ResourceTemplate(
        uri_template="playbook://runs/{execution_id}/outputs/{step}{?offset}",
        name="output",
        description=f"What a step brought, {PAGE:,} characters at a time.",
        mime_type="text/plain",
    ),
]


async def listed(host: Host, caller: Caller) -> list[Resource]:
    made = [
        Resource(uri=f"playbook://spec/{topic}", name=f"spec/{topic}", title=title, mime_type="text/markdown")
        for topic, title in SPECS.items()
    ]
    made += [
        Resource(
            uri=book_uri(one.id),
            name=one.id,
            title=one_line(one.title, 100),
            description=one_line(one.description) or None,
            mime_type="text/plain",
        )
        for one in (await host.library.read(None)).listed
    ]
    for row in await host.service.runs(limit=_RECENT, who=caller.principal):
        status = wording.status_of(row, interrupted=await _is_left(host, row))
        title = f"{one_line(row.name, 100)}, {status}, {wording.moment(row.created)}"
        made.append(Resource(uri=run_uri(row.id), name=row.id, title=title, mime_type="text/markdown"))
    return made


async def read(host: Host, caller: Caller, uri: str) -> ReadResourceResult:
    caller.principal.require("viewer", "read this")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise _missing(uri, f"{error}.") from None
    path = [unquote(part) for part in parts.path.split("/") if part]
    try:
        match [parts.scheme, parts.netloc, *path]:
            case ["playbook", "spec", topic] if topic in SPECS:
                return _text(uri, spec(topic))
            case ["playbook", "playbooks", id]:
                return _page(uri, book_uri(id), (await host.library.find(id)).text, _offset(uri, parts.query))
            case ["playbook", "runs", run] if len(run) >= SHORTEST:
                view = await host.service.view(run, caller.principal)
                return _text(uri, transcript(view, interrupted=await _is_left(host, view.run)))
            case ["playbook", "runs", run, "outputs", step] if len(run) >= SHORTEST:
                view = await host.service.view(run, caller.principal)
                return _output(uri, view, step, _offset(uri, parts.query))
    except CuebookError as error:
        raise _missing(uri, for_assistants(str(error))) from None
    raise _missing(
        uri, f"The topics are {', '.join(SPECS)}." if parts.netloc == "spec" else "resources/list lists them."
    )


async def _is_left(host: Host, row: RunRow) -> bool:
    return await stand_of(host, row) in LEFT


def _offset(uri: str, query: str) -> int:
    given = parse_qs(query).get("offset", ["0"])[0]
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS):
        raise _missing(uri, "Its offset is a number of characters.")
    return int(given)


def _missing(uri: str, why: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"There is no resource {uri[:300]}. {why}", data={"uri": uri[:300]})


def _text(uri: str, text: str, kind: str = "text/markdown") -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])


def spec(topic: str) -> str:
    """The text about a dialect, or about a part of Markdown playbooks."""
    return (files("cuebook.surfaces.mcp") / "spec" / f"{topic}.md").read_text(encoding="utf-8")


def _output(uri: str, view: RunView, step: str, offset: int) -> ReadResourceResult:
    whole = view.outputs.get(step)
    if whole is None:
        steps = ", ".join(view.outputs) or "none yet"
        raise _missing(uri, f"Steps of this execution with an output: {steps}.")
    more: dict[str, Any] = {"incomplete": True} if step in view.incomplete else {}
    return _page(uri, output_uri(view.run.id, step), str(whole), offset, more)


def _page(uri: str, place: str, text: str, offset: int, more: Mapping[str, Any] = {}) -> ReadResourceResult:
    """A part of a long text, marked as data, and where the next one is."""
    part = text[offset : offset + PAGE]
    after = offset + len(part)
    meta: dict[str, Any] = {"characters": len(text), "offset": offset, **more}
    shown = Marking().alone(part)
    if after < len(text):
        meta["next"] = f"{place}?offset={after}"
        shown += f"\nThe next part is the resource {meta['next']}"
    elif more:
        shown += "\nThis is not the whole output: it was longer than its limit, and the rest was not kept."
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text=shown, _meta=meta)
    return ReadResourceResult(contents=[contents])


def transcript(view: RunView, *, interrupted: bool) -> str:
    """What happened, as a page: each step with what it brought, marked as data. Of many steps, the last ones."""
    return "\n".join(_transcript(view, interrupted, Marking()))


def _transcript(view: RunView, interrupted: bool, marking: Marking) -> Iterator[str]:
    row = view.run
    yield f"# Execution {row.id}\n"
    yield f"- playbook: {one_line(row.name)} ({row.dialect})"
    yield f"- status: {wording.status_of(row, view.waits, interrupted=interrupted)}"
    yield f"- started: {wording.moment(row.created)}, by {row.owner}"
    yield f"- used: {wording.tokens_of(row.totals)} tokens, {wording.cost_of(row.totals)}"
    yield f"\n{marking.note}"
    if view.inputs:
        values = "\n".join(f"{name}: {brief(str(value))}" for name, value in view.inputs.items())
        yield f"\n## Inputs\n\n{marking.data(values)}"
    room = PAGE
    for step in view.steps[-_STEPS:]:
        yield f"\n## {one_line(step.name)}: {step.status}\n"
        if step.title:
            yield marking.data(step.title)
        notes = view.notes.get(step.label, ())
        if notes:
            yield marking.data(brief("\n".join(notes)))
        output = view.outputs.get(step.label)
        if output is not None:
            text = str(output)
            shown = text[: max(0, min(LONGEST, room))]
            room -= len(shown)
            kept = "all that was kept" if step.label in view.incomplete else "the whole"
            cut = f"\n[cut: {kept} is {output_uri(row.id, step.label)}]" if len(text) > len(shown) else ""
            yield f"{marking.data(shown)}{cut}"
    for wait in view.waits:
        yield f"\n## Waits for: {wait.kind}\n\n{marking.data(brief(wait.prompt, LONGEST))}"
    if row.error is not None:
        yield f"\n## Error\n\n{marking.data(brief(str(row.error)))}"
