"""The resources an assistant can read: guides to the dialects, playbooks of the library, and outputs of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service.service import RunView
from cuebook.surfaces import display
from cuebook.surfaces.mcp.host import NOT_DRIVEN, Caller, Host
from cuebook.surfaces.mcp.progress import activity_of
from cuebook.surfaces.mcp.run_report import book_uri, output_uri, run_uri
from cuebook.surfaces.mcp.tools.schemas import SHORTEST
from cuebook.surfaces.mcp.tools.tool import for_assistants
from cuebook.surfaces.mcp.untrusted_text import LONGEST, Marking, brief, one_line

_RECENT, _STEPS = 20, 300
"""Number of runs that are listed (others can be read by their id), and of steps in a transcript."""
_DIGITS = 12
PAGE = 100_000
"""Characters of output per page. Clients may reject messages of more than a megabyte."""

TEMPLATES = [
    ResourceTemplate(
        uri_template="playbook://spec/{topic}",
        name="spec",
        description="Guide to a dialect.",
        mime_type="text/markdown",
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
        description=f"The output of a step, {PAGE:,} characters at a time.",
        mime_type="text/plain",
    ),
]


async def listed(host: Host, caller: Caller) -> list[Resource]:
    made = [
        Resource(uri=f"playbook://spec/{topic}", name=f"spec/{topic}", title=title, mime_type="text/markdown")
        for topic, title in topics().items()
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
        status = display.status_of(row, interrupted=await _is_not_driven(host, row))
        title = f"{one_line(row.name, 100)}, {status}, {display.moment(row.created)}"
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
            case ["playbook", "spec", topic] if topic in topics():
                return _text(uri, spec(topic))
            case ["playbook", "playbooks", id]:
                return _page(uri, book_uri(id), (await host.library.find(id)).text, _offset(uri, parts.query))
            case ["playbook", "runs", run] if len(run) >= SHORTEST:
                view = await host.service.view(run, caller.principal)
                return _text(uri, transcript(view, interrupted=await _is_not_driven(host, view.run)))
            case ["playbook", "runs", run, "outputs", step] if len(run) >= SHORTEST:
                view = await host.service.view(run, caller.principal)
                return _output(uri, view, step, _offset(uri, parts.query))
    except CuebookError as error:
        raise _missing(uri, for_assistants(str(error))) from None
    raise _missing(
        uri,
        f"The topics are {', '.join(topics())}." if parts.netloc == "spec" else "resources/list lists all resources.",
    )


async def _is_not_driven(host: Host, row: RunRow) -> bool:
    return await activity_of(host, row) in NOT_DRIVEN


def _offset(uri: str, query: str) -> int:
    given = parse_qs(query).get("offset", ["0"])[0]
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS):
        raise _missing(uri, "The offset must be a number of characters.")
    return int(given)


def _missing(uri: str, why: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"There is no resource {uri[:300]}. {why}", data={"uri": uri[:300]})


def _text(uri: str, text: str, kind: str = "text/markdown") -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])


def topics() -> dict[str, str]:
    """Titles of all guides, by topic."""
    return {topic: dialect.topics[topic] for topic, dialect in _by_topic().items()}


def spec(topic: str) -> str:
    """The guide on a topic."""
    return _by_topic()[topic].guide(topic)


def _by_topic() -> dict[str, Dialect]:
    """The first dialect with a guide on each topic."""
    found: dict[str, Dialect] = {}
    for dialect in (registry.named(registry.DEFAULT), *registry.dialects()):
        for topic in dialect.topics:
            found.setdefault(topic, dialect)
    return found


def _output(uri: str, view: RunView, step: str, offset: int) -> ReadResourceResult:
    whole = view.outputs.get(step)
    if whole is None:
        steps = ", ".join(view.outputs) or "none yet"
        raise _missing(uri, f"Steps of this execution with an output: {steps}.")
    more: dict[str, Any] = {"incomplete": True} if step in view.incomplete else {}
    return _page(uri, output_uri(view.run.id, step), str(whole), offset, more)


def _page(uri: str, place: str, text: str, offset: int, more: Mapping[str, Any] = {}) -> ReadResourceResult:
    """One page of long text, marked as data, with a link to the next one."""
    part = text[offset : offset + PAGE]
    after = offset + len(part)
    meta: dict[str, Any] = {"characters": len(text), "offset": offset, **more}
    shown = Marking().alone(part)
    if after < len(text):
        meta["next"] = f"{place}?offset={after}"
        shown += f"\nThe next part is the resource {meta['next']}"
    elif more:
        shown += "\nThis output is incomplete: it exceeded its limit, and the rest was not kept."
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text=shown, _meta=meta)
    return ReadResourceResult(contents=[contents])


def transcript(view: RunView, *, interrupted: bool) -> str:
    """The transcript of a run: its last steps with their outputs, marked as data."""
    return "\n".join(_transcript(view, interrupted, Marking()))


def _transcript(view: RunView, interrupted: bool, marking: Marking) -> Iterator[str]:
    row = view.run
    yield f"# Execution {row.id}\n"
    yield f"- playbook: {one_line(row.name)} ({row.dialect})"
    yield f"- status: {display.status_of(row, view.waits, interrupted=interrupted)}"
    yield f"- started: {display.moment(row.created)}, by {row.owner}"
    yield f"- used: {display.tokens_of(row.totals)} tokens, {display.cost_of(row.totals)}"
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
            kept = "all that was kept" if step.label in view.incomplete else "the full text"
            cut = f"\n[cut: {kept} is in {output_uri(row.id, step.label)}]" if len(text) > len(shown) else ""
            yield f"{marking.data(shown)}{cut}"
    for wait in view.waits:
        yield f"\n## Waiting for: {wait.kind}\n\n{marking.data(brief(wait.prompt, LONGEST))}"
    if row.error is not None:
        yield f"\n## Error\n\n{marking.data(brief(str(row.error)))}"
