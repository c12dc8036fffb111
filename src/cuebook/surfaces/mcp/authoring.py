"""The tools that read and write playbooks. They run nothing, and read no file but those of the library."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CallToolResult

from cuebook.dialects import registry
from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.convert import from_json, result_object, to_json
from cuebook.dialects.markdown.parse import parse, read
from cuebook.dialects.pipeline.draw import doing
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.registry import InvalidPlaybook
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.mcp import executing, telling
from cuebook.surfaces.mcp.calling import RUNS, Call, Offered
from cuebook.surfaces.mcp.marking import ALL, LONGEST, Marking
from cuebook.surfaces.mcp.resources import spec
from cuebook.surfaces.mcp.shapes import Constraints, Convert, Read, RunText, Text, Write
from cuebook.surfaces.reading import markdown, pipelines, programs, systems, workflows

_MARKDOWN = "markdown"
_NAMES = {
    "graph": "workflow.yml",
    "pipeline": "pipeline.yml",
    "program": "program.pbasm",
    _MARKDOWN: "playbook.md",
}
"""What a text without a name is called, by its dialect."""


def _text_of(call: Call, given: Text) -> tuple[str, str]:
    """The text, and what it is called."""
    if given.content and not given.playbook_id and not given.path:
        return given.content, Path(given.name).name or name_of(given.content)
    playbook = executing.playbook_for(call, given.playbook_id, given.path, given.content, given.name)
    return playbook.text, playbook.name


def name_of(text: str) -> str:
    """What tells the dialect of a text that has no name."""
    unnamed = (name for name in _NAMES if name != _MARKDOWN and registry.named(name).recognises(text, ""))
    return _NAMES[next(unnamed, _MARKDOWN)]


def findings_of(text: str, name: str) -> list[Finding]:
    """Everything that is wrong or odd, by the text alone: no file beside it is looked at."""
    dialect = next((one.name for one in registry.dialects() if one.recognises(text, name)), _MARKDOWN)
    checker = importlib.import_module(f"cuebook.dialects.{dialect}.check")
    return list(checker.check(text, name))


def summary_of(text: str, name: str) -> dict[str, Any]:
    dialect = registry.detect(text, name)
    return {"dialect": dialect.name, **_SUMMED[dialect.name](dialect.parse(text, name))}


_SUMMED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "graph": workflows.summary_of,
    "pipeline": pipelines.summary_of,
    "program": programs.summary_of,
    _MARKDOWN: markdown.summary_of,
}


def structure_of(text: str, name: str) -> dict[str, Any]:
    """The playbook as it is read: `valid`, `definition`, `warnings` and `errors`."""
    dialect = next((one for one in registry.dialects() if one.recognises(text, name)), None)
    if dialect is None or dialect.name == _MARKDOWN:
        return {"dialect": _MARKDOWN, **result_object(read(text))}
    try:
        playbook = Playbook.from_text(text, name)
    except InvalidPlaybook:
        wrong = [msgspec.to_builtins(one) for one in findings_of(text, name)]
        errors = [one for one in wrong if one["severity"] == "error"]
        return {"dialect": dialect.name, "valid": False, "definition": None, "warnings": [], "errors": errors}
    definition = {
        "title": playbook.title,
        "description": playbook.description,
        "inputs": [msgspec.to_builtins(one) for one in playbook.inputs],
        "steps": _steps_of(playbook),
        **{name: value for name, value in summary_of(text, name).items() if name in _SHAPE},
    }
    warnings = [msgspec.to_builtins(one) for one in playbook.warnings]
    return {"dialect": dialect.name, "valid": True, "definition": definition, "warnings": warnings, "errors": []}


def _steps_of(playbook: Playbook) -> list[dict[str, Any]]:
    """Each step; of a pipeline, with what it does and when."""
    if not isinstance(playbook.document, Pipeline):
        return [{"label": step.label, "title": step.title} for step in playbook.steps]
    return [
        {
            "label": step.id,
            "title": step.name,
            "namespace": step.namespace,
            "command": step.command or doing(step),
            "condition": step.condition_text or None,
            "approval": step.approval,
            "effect": "read" if step.reads_only else "write",
            "on_error": step.on_error,
            "output": None if step.output is None else step.output.type,
        }
        for step in playbook.document.steps
    ]


_SHAPE = ("nodes", "edges", "entry", "agents", "playbooks")
"""What a summary tells of how the steps hang together."""


async def read_book(call: Call, given: Read) -> CallToolResult:
    text, name = _text_of(call, given)
    if given.mode == "text":
        return _page(text, name, given.offset)
    if given.mode == "summary":
        return telling.given(summary_of(text, name), untrusted=_ALL_OF_IT)
    return _parsed(text, name)


_ALL_OF_IT = ("*",)
"""Whatever is told of a playbook has its author written."""


def _page(text: str, name: str, offset: int) -> CallToolResult:
    part = text[offset : offset + LONGEST]
    after = offset + len(part)
    value: dict[str, Any] = {"name": name, "text": part, "characters": len(text), "untrusted": ["name", "text"]}
    more = f"\n[cut: characters {offset:,} to {after:,} of {len(text):,}; go on with offset {after}]"
    if after < len(text):
        value["next_offset"] = after
    return telling.said(Marking().alone(part) + (more if after < len(text) else ""), value)


async def parse_book(call: Call, given: Text) -> CallToolResult:
    return _parsed(*_text_of(call, given))


def _parsed(text: str, name: str) -> CallToolResult:
    made = structure_of(text, name)
    if made["valid"]:
        return telling.given(made, untrusted=("definition", "warnings"))
    failed = {"error": "Parse failed", "errors": made["errors"], "warnings": made["warnings"]}
    return telling.given(failed, untrusted=("errors", "warnings"), wrong=True)


async def validate(call: Call, given: Text) -> CallToolResult:
    found = findings_of(*_text_of(call, given))
    counts = {f"{kind}s": sum(one.severity == kind for one in found) for kind in ("error", "warning", "note")}
    value = {"valid": not counts["errors"], **counts, "findings": msgspec.to_builtins(found)}
    return telling.given(value, untrusted=("findings",))


async def summarize(call: Call, given: Text) -> CallToolResult:
    return telling.given(summary_of(*_text_of(call, given)), untrusted=_ALL_OF_IT)


async def write(call: Call, given: Write) -> CallToolResult:
    prompt = writing_prompt(given.description, given.dialect, given.constraints)
    return telling.said(prompt, {"prompt": prompt, "dialect": given.dialect})


def writing_prompt(description: str, dialect: str, wanted: Constraints | None = None) -> str:
    """What a model is asked that is to write a playbook."""
    marking, wanted = Marking(), wanted or Constraints()
    parts = [
        systems.SYSTEMS.get(dialect) or spec(dialect),
        f"The resource playbook://spec/{dialect} says more of it.",
        f"Write one that does this:\n{marking.data(description)}\n{marking.note}",
    ]
    lines = []
    if wanted.steps is not None:
        lines.append(f"- It has {wanted.steps} steps.")
    if wanted.branching is not None:
        lines.append("- It branches." if wanted.branching else "- It does not branch.")
    if wanted.inputs:
        lines.append(f"- Its inputs are {', '.join(wanted.inputs)}.")
    if wanted.artifact_type:
        lines.append(f"- Its artifact is of the type {wanted.artifact_type}.")
    if lines:
        parts.append("\n".join(lines))
    parts.append("Check it with playbook_validate, and correct what that finds, before you show it.")
    return "\n\n".join(parts)


async def convert(call: Call, given: Convert) -> CallToolResult:
    text = given.content
    is_json = given.from_ == "json" or (not given.from_ and text.lstrip().startswith("{") and not read(text).valid)
    if not is_json:
        workflows.refuse(text, name_of(text), "convert")
        definition = to_json(parse(text, _NAMES[_MARKDOWN]))
    else:
        definition = to_json(parse(from_json(_decoded(text)), _NAMES[_MARKDOWN]))
    made = from_json(definition)
    if max(len(made), len(json.dumps(definition))) > ALL:
        raise BadInput(
            f"This is too long for a tool, which gives no more than {ALL:,} characters.",
            fix="A person converts it with `cuebook convert FILE`.",
        )
    return telling.given(definition) if given.to == "json" else telling.said(made, {"content": made})


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"This is not JSON: {error}.", fix="Correct it, or leave `from` out.") from None


TOOLS: tuple[Offered, ...] = (
    Offered(
        "playbook_read",
        "Read a playbook",
        "Tells what is in a playbook: its structure, a summary, or its text.",
        Read,
        read_book,
    ),
    Offered(
        "playbook_parse",
        "Parse a playbook",
        "Gives a playbook as it is read: valid, definition, warnings and errors.",
        Text,
        parse_book,
    ),
    Offered(
        "playbook_validate",
        "Validate a playbook",
        "Finds the mistakes in a playbook, each with its line, its code and what to do. Nothing is run.",
        Text,
        validate,
    ),
    Offered(
        "playbook_summarize",
        "Summarize a playbook",
        "Says what a playbook is about: its inputs, steps, questions, tools and results.",
        Text,
        summarize,
    ),
    Offered(
        "playbook_write",
        "Prompt for writing a playbook",
        "Gives the prompt by which you write a playbook from a description. It writes no file.",
        Write,
        write,
    ),
    Offered(
        "playbook_convert",
        "Convert a playbook",
        "Turns a Markdown playbook into JSON, and back, without losing anything that a run depends on.",
        Convert,
        convert,
    ),
    Offered(
        "playbook_run",
        "Run a playbook's text",
        "Runs a playbook from its text, like execute_playbook with `content`.",
        RunText,
        executing.run_text,
        "runner",
        RUNS,
    ),
)
