"""What an assistant can read: what the dialects are, the playbooks of the library, and what runs have brought."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from urllib.parse import parse_qs, unquote, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from cuebook.kernel.errors import CuebookError
from cuebook.service import RunView
from cuebook.surfaces.cli import wording
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.telling import LONGEST, Marking, output_uri, run_uri

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
_RECENT = 20
"""Runs that are listed; any other can be read by its id."""
PAGE = 100_000
"""Characters of an output that are read at once. A client may refuse messages of more than a megabyte."""

TEMPLATES = [
    ResourceTemplate(
        uri_template="playbook://spec/{topic}", name="spec", description="What a dialect is.", mime_type="text/markdown"
    ),
    ResourceTemplate(
        uri_template="playbook://playbooks/{playbook_id}",
        name="playbook",
        description="The text of a playbook.",
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
            uri=f"playbook://playbooks/{one.id}",
            name=one.id,
            title=one.title,
            description=one.description or None,
            mime_type="text/plain",
        )
        for one in host.library.all()
    ]
    for row in await host.service.runs(limit=_RECENT, who=caller.principal):
        title = f"{row.name}, {row.status.replace('_', ' ')}, {wording.moment(row.created)}"
        made.append(Resource(uri=run_uri(row.id), name=row.id, title=title, mime_type="text/markdown"))
    return made


async def read(host: Host, caller: Caller, uri: str) -> ReadResourceResult:
    caller.principal.require("viewer", "read this")
    parts = urlsplit(uri)
    path = [unquote(part) for part in parts.path.split("/") if part]
    try:
        match [parts.scheme, parts.netloc, *path]:
            case ["playbook", "spec", topic] if topic in SPECS:
                return _text(uri, spec(topic))
            case ["playbook", "playbooks", id]:
                return _text(uri, host.library.named(id).text, "text/plain")
            case ["playbook", "runs", run]:
                return _text(uri, transcript(await host.service.view(run, caller.principal)))
            case ["playbook", "runs", run, "outputs", step]:
                offset = parse_qs(parts.query).get("offset", ["0"])[0]
                view = await host.service.view(run, caller.principal)
                return _output(uri, view, step, int(offset) if offset.isascii() and offset.isdigit() else 0)
    except CuebookError as error:
        raise _missing(uri, str(error)) from None
    raise _missing(
        uri, f"The topics are {', '.join(SPECS)}." if parts.netloc == "spec" else "resources/list lists them."
    )


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
    text = str(whole)
    part = text[offset : offset + PAGE]
    more = offset + len(part)
    meta = {"characters": len(text), "offset": offset}
    if more < len(text):
        meta["next"] = f"{output_uri(view.run.id, step)}?offset={more}"  # type: ignore[assignment]
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text=part, _meta=meta)
    return ReadResourceResult(contents=[contents])


def transcript(view: RunView) -> str:
    """What happened, as a page: each step with what it brought, marked as data."""
    return "\n".join(_transcript(view, Marking()))


def _transcript(view: RunView, marking: Marking) -> Iterator[str]:
    row = view.run
    yield f"# Execution {row.id}\n"
    yield f"- playbook: {row.name} ({row.dialect})"
    yield f"- status: {wording.status_of(row, waits=view.waits)}"
    yield f"- started: {wording.moment(row.created)}, by {row.owner}"
    yield f"- used: {wording.tokens_of(row.totals)} tokens, {wording.cost_of(row.totals)}"
    yield f"\n{marking.note}"
    if view.inputs:
        values = "\n".join(f"{name}: {str(value)[:LONGEST]}" for name, value in view.inputs.items())
        yield f"\n## Inputs\n\n{marking.data(values)}"
    for step in view.steps:
        yield f"\n## {step.name}: {step.status}\n"
        if step.title:
            yield marking.data(step.title)
        for note in view.notes.get(step.label, ()):
            yield f"- {note}"
        output = view.outputs.get(step.label)
        if output is not None:
            text = str(output)
            cut = f"\n[cut: the whole is {output_uri(row.id, step.label)}]" if len(text) > LONGEST else ""
            yield f"{marking.data(text[:LONGEST])}{cut}"
    for wait in view.waits:
        yield f"\n## Waits for: {wait.kind}\n\n{marking.data(wait.prompt)}"
    if row.error is not None:
        yield f"\n## Error\n\n{marking.data(str(row.error))}"
