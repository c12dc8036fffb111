"""The tools that read and write playbooks. They run nothing, and read only files of the library."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CallToolResult

from cuebook.dialects import conversion, registry
from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.findings import Finding
from cuebook.dialects.playbook import name_for
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from cuebook.service.preview import explanation
from cuebook.surfaces.explanation import explanation_lines, explanation_object
from cuebook.surfaces.mcp import run_report
from cuebook.surfaces.mcp.resources import spec
from cuebook.surfaces.mcp.tools import runs
from cuebook.surfaces.mcp.tools.schemas import Constraints, Convert, Explain, Read, RunText, Text, Write
from cuebook.surfaces.mcp.tools.tool import RUNS, Call, Offered
from cuebook.surfaces.mcp.untrusted_text import ALL, LONGEST, Marking, brief, fitted
from cuebook.wiring.preview import preview_setup
from cuebook.wiring.run_request import typed_inputs


def _text_of(call: Call, given: Text) -> tuple[str, str]:
    """The text and its name."""
    if given.content and not given.playbook_id and not given.path:
        return given.content, Path(given.name).name or name_for(given.content)
    playbook = runs.playbook_for(call, given.playbook_id, given.path, given.content, given.name)
    return playbook.text, playbook.name


def findings_of(text: str, name: str) -> list[Finding]:
    """All findings in the text alone; neighbouring files are not read."""
    return registry.check(text, name, Surroundings())


def summary_of(text: str, name: str) -> dict[str, Any]:
    dialect = registry.detect(text, name)
    return dialect.summary(dialect.parse(text, name)).fields(dialect.name)


def structure_of(text: str, name: str) -> dict[str, Any]:
    """The parsed playbook: `valid`, `definition`, `warnings` and `errors`."""
    dialect = registry.presumed(text, name)
    made = {"dialect": dialect.name, **dialect.parse_result(text, name, Surroundings())}
    return {**made, "definition": dialect.definition(dialect.parse(text, name))} if made["valid"] else made


async def read_book(call: Call, given: Read) -> CallToolResult:
    text, name = _text_of(call, given)
    if given.mode == "text":
        return _page(text, name, given.offset)
    if given.mode == "summary":
        return run_report.value_result(summary_of(text, name), untrusted=_ALL_OF_IT)
    return _parsed(text, name)


_ALL_OF_IT = ("*",)
"""Everything in these answers was written by the author of the playbook."""


def _page(text: str, name: str, offset: int) -> CallToolResult:
    part = text[offset : offset + LONGEST]
    after = offset + len(part)
    value: dict[str, Any] = {"name": name, "text": part, "characters": len(text), "untrusted": ["name", "text"]}
    more = f"\n[cut: characters {offset:,} to {after:,} of {len(text):,}; continue with offset {after}]"
    if after < len(text):
        value["next_offset"] = after
    return run_report.text_result(Marking().alone(part) + (more if after < len(text) else ""), value)


async def parse_book(call: Call, given: Text) -> CallToolResult:
    return _parsed(*_text_of(call, given))


def _parsed(text: str, name: str) -> CallToolResult:
    made = structure_of(text, name)
    if made["valid"]:
        return run_report.value_result(made, untrusted=("definition", "warnings"))
    failed = {"error": "Parse failed", "errors": made["errors"], "warnings": made["warnings"]}
    return run_report.value_result(failed, untrusted=("errors", "warnings"), wrong=True)


async def validate(call: Call, given: Text) -> CallToolResult:
    found = findings_of(*_text_of(call, given))
    counts = {f"{kind}s": sum(one.severity == kind for one in found) for kind in ("error", "warning", "note")}
    value = {"valid": not counts["errors"], **counts, "findings": msgspec.to_builtins(found)}
    return run_report.value_result(value, untrusted=("findings",))


async def summarize(call: Call, given: Text) -> CallToolResult:
    return run_report.value_result(summary_of(*_text_of(call, given)), untrusted=_ALL_OF_IT)


async def explain(call: Call, given: Explain) -> CallToolResult:
    """The explanation that `cuebook explain` shows. It reads only the playbook, and starts no tool server."""
    host, who = call.host, call.caller.principal
    playbook = runs.playbook_for(call, given.playbook_id, given.path, given.content, given.name)
    inputs = typed_inputs(playbook, given.input_values)
    setup = await asyncio.to_thread(preview_setup, host.wiring)
    settings = Settings(folder=playbook.folder)
    explained = await explanation.explain(
        host.service, playbook, inputs, settings, setup, who, schemes=_LISTS_OF_TOOLS, sensitive=given.sensitive
    )
    text = brief("\n".join(explanation_lines(explained)), ALL, "the rest is left out")
    value = {**fitted(explanation_object(explained)), "untrusted": list(_ALL_OF_IT)}
    return run_report.text_result(Marking().alone(text), value)


_LISTS_OF_TOOLS = ("tools",)
"""The only sources that an explanation may read: assistants must not read files through the playbooks they write."""


async def write(call: Call, given: Write) -> CallToolResult:
    prompt = writing_prompt(given.description, given.dialect, given.constraints)
    return run_report.text_result(prompt, {"prompt": prompt, "dialect": given.dialect})


def writing_prompt(description: str, dialect: str, wanted: Constraints | None = None) -> str:
    """The prompt for a model that writes a playbook."""
    marking, wanted = Marking(), wanted or Constraints()
    parts = [
        registry.named(dialect).draft_prompt or spec(dialect),
        f"The resource playbook://spec/{dialect} describes it in full.",
        f"Write a playbook that does this:\n{marking.data(description)}\n{marking.note}",
    ]
    lines = []
    if wanted.steps is not None:
        lines.append(f"- It has {wanted.steps} steps.")
    if wanted.branching is not None:
        lines.append("- It branches." if wanted.branching else "- It does not branch.")
    if wanted.inputs:
        lines.append(f"- Its inputs are {', '.join(wanted.inputs)}.")
    if wanted.artifact_type:
        lines.append(f"- Its artifact has the type {wanted.artifact_type}.")
    if lines:
        parts.append("\n".join(lines))
    parts.append("Check it with playbook_validate and fix its findings before you show it.")
    return "\n\n".join(parts)


async def convert(call: Call, given: Convert) -> CallToolResult:
    text = given.content
    converted = conversion.convert(text, name_for(text), is_json=given.from_ == "json" if given.from_ else None)
    made = converted.text
    if max(len(made), len(json.dumps(converted.definition))) > ALL:
        raise BadInput(
            f"The result is too long for a tool, which returns at most {ALL:,} characters.",
            fix="A person can convert it with `cuebook convert FILE`.",
        )
    return (
        run_report.value_result(converted.definition)
        if given.to == "json"
        else run_report.text_result(made, {"content": made})
    )


TOOLS: tuple[Offered, ...] = (
    Offered(
        "playbook_read",
        "Read a playbook",
        "Shows a playbook: its structure, a summary, or its text.",
        Read,
        read_book,
    ),
    Offered(
        "playbook_parse",
        "Parse a playbook",
        "Parses a playbook and returns valid, definition, warnings and errors.",
        Text,
        parse_book,
    ),
    Offered(
        "playbook_validate",
        "Validate a playbook",
        "Finds the mistakes in a playbook, each with its line, its code and a fix. Nothing is run.",
        Text,
        validate,
    ),
    Offered(
        "playbook_summarize",
        "Summarize a playbook",
        "Summarizes a playbook: its inputs, steps, questions, tools and results.",
        Text,
        summarize,
    ),
    Offered(
        "playbook_explain",
        "Explain what a run would do",
        "Shows what a run of a playbook would do: its steps, what people are asked, what it reaches, what the policy says about"
        " each action, and the most it may cost. Nothing is run.",
        Explain,
        explain,
    ),
    Offered(
        "playbook_write",
        "Prompt for writing a playbook",
        "Returns a prompt for writing a playbook from a description. It writes no file.",
        Write,
        write,
        choices={"dialect": registry.names},
    ),
    Offered(
        "playbook_convert",
        "Convert a playbook",
        "Converts a playbook to JSON and back without losing anything a run depends on, if its dialect supports it.",
        Convert,
        convert,
    ),
    Offered(
        "playbook_run",
        "Run a playbook's text",
        "Runs a playbook from its text, like execute_playbook with `content`.",
        RunText,
        runs.run_text,
        "runner",
        RUNS,
    ),
)
