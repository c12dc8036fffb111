"""Finds what is wrong or odd in a pipeline: everything that `parse` refuses or warns of, and what may surprise.

It reads the text, and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cuebook.dialects.findings import Codes, Finding, log_of
from cuebook.dialects.pipeline.model import Arg, Cli, Llm, Pipeline, Step
from cuebook.dialects.pipeline.parse import Parsed, read
from cuebook.dialects.pipeline.resolve import refs
from cuebook.dialects.registry import Problem
from cuebook.dialects.tool_names import READING

__all__ = ["CODES", "UNVERIFIED", "Finding", "beyond_format", "check", "sarif", "unverified"]

UNVERIFIED = "NO_POSTCONDITION"

USUAL_SECONDS, USUAL_OUTPUT = 300, 512_000
"""The most that a step can ask for where nothing is configured."""

ERRORS = {
    # reading
    "PARSE": "The text is no YAML 1.2 or JSON.",
    "SCHEMA": "Something is not as the published schema says.",
    "NOT_FINITE": "A number is infinite or none at all, which JSON cannot hold.",
    "BAD_ARG": "An argument is declared in a way that means nothing.",
    "BAD_DOMAIN": "What stands among the allowed domains is no host.",
    # steps
    "BAD_ID": "A step has an id that nothing can refer to.",
    "DUPLICATE_STEP": "Two steps have one id.",
    "UNKNOWN_NAMESPACE": "A command begins with something that is no namespace.",
    "NO_DRIVER": "A namespace of the format that nothing here can perform.",
    "BAD_COMMAND": "A command cannot be read, or says too little or too much.",
    "NOT_OF_THIS_STEP": "A field that steps of this namespace have not.",
    "BAD_FOLDER": "A folder does not lie below the workspace.",
    "BAD_LLM": "A step that asks a model does not say what it must.",
    "UNKNOWN_TOOL": "A model is allowed a tool that is none.",
    "BAD_POSTCONDITION": "A postcondition that could not be checked.",
    "INVALID_OUTPUT_SCHEMA": "What a step must give is no JSON Schema that can be used.",
    "UNSUPPORTED_REGEX": "A pattern that cannot be searched for in linear time, or is none.",
    # references
    "BAD_REFERENCE": "Something looks like a reference and is none.",
    "UNKNOWN_REFERENCE": "A reference leads to a step, or a field of a result, that is not there.",
    "FORWARD_REFERENCE": "A reference leads to a step that comes later.",
    "CIRCULAR_REFERENCE": "A step refers to itself.",
    "UNKNOWN_ARG": "A reference leads to an argument that is not declared.",
    "BAD_CONDITION": "A condition cannot be read.",
    # secrets
    "BAD_SECRET": "What should be the handle of a secret is none, or its place cannot be told.",
    "SECRET_MISPLACED": "A secret stands where others could see it.",
}

WARNINGS = {
    "NOT_REPLACED": "A dollar and a name stay as they are: references need braces.",
    "NO_SHELL": "A sign of the shell is handed to a program as it is.",
    "NO_TOOL_CALLS": "A model is allowed tools and no calls, or calls and no tools.",
    "NO_EVIDENCE": "A postcondition asks for something that the step never shows, so a person is always asked.",
    "MAY_BE_SKIPPED": "A step uses the output of one that may be skipped, and fails then.",
    "ALWAYS_NULL": "A reference to something that the step never has.",
}

NOTES = {
    UNVERIFIED: "A step may change something and does not say how to tell that it worked.",
    "NO_ROLLBACK": "A step may change something and does not say how that is undone.",
    "NO_OUTPUT_SCHEMA": "A model may answer with any JSON.",
    "UNUSED_ARG": "An argument that nothing refers to.",
    "SHARED_NAME": "An argument and a step have one name: whoever changes a value by it changes the argument.",
    "NO_EFFECT": "A field that changes nothing.",
    "RAISED_LIMIT": "A step asks for more than it gets unless a limit is raised in the configuration.",
}

CODES: Codes = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}


def check(text: str, name: str) -> list[Finding]:
    """Everything that is wrong or odd, in the order of the lines."""
    parsed = read(text, name)
    problems = [*parsed.errors, *parsed.warnings, *(_notes(parsed, parsed.pipeline) if parsed.pipeline else ())]
    findings = [Finding(one.code, CODES[one.code][0], one.message, one.line, fix=one.fix) for one in problems]
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def sarif(findings: Iterable[Finding], uri: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log."""
    return log_of(findings, uri, CODES)


def unverified(pipeline: Pipeline) -> tuple[Problem, ...]:
    """The steps that may change something and have no postcondition."""
    return tuple(
        Problem(f"Nothing tells whether the step '{step.id}' worked.", step.line, _how_to_verify(step), UNVERIFIED)
        for step in _changing(pipeline)
        if step.postcondition is None
    )


def _how_to_verify(step: Step) -> str:
    if isinstance(step.action, Llm):  # its tools say whether it only reads
        return f"Add a postcondition, or allow it only tools that read: {', '.join(sorted(READING))}."
    return "Add a postcondition, or `effect: read` if it only reads."


def beyond_format(pipeline: Pipeline) -> tuple[Problem, ...]:
    """Every field that the format itself has not."""
    fix = "Take it out, or run without --strict-spec."
    found = [(f"argument '{arg.name}'", arg) for arg in pipeline.args.values()]
    every: list[tuple[str, Arg | Step]] = [*found, *((f"step '{step.id}'", step) for step in pipeline.steps)]
    return tuple(
        Problem(f"The {what} has '{name}', which the format has not.", one.line, fix, "SCHEMA")
        for what, one in every
        for name in one.beyond
    )


def _changing(pipeline: Pipeline) -> Iterator[Step]:
    return (step for step in pipeline.steps if not step.reads_only)


# --- what may surprise ---


def _notes(parsed: Parsed, pipeline: Pipeline) -> Iterator[Problem]:
    hintless = {step.id: step for step in _changing(pipeline) if not step.rollback_hint}
    for step in _changing(pipeline):
        if step.postcondition is None:
            also = ", nor how it is undone (rollback_hint)" if step.id in hintless else ""
            message = f"Nothing tells whether the step '{step.id}' worked{also}."
            yield Problem(message, step.line, _how_to_verify(step), UNVERIFIED)
        elif step.id in hintless:
            fix = "Add rollback_hint: whoever approves the step is shown it."
            yield Problem(f"Nothing says how the step '{step.id}' is undone.", step.line, fix, "NO_ROLLBACK")
    for step in pipeline.steps:
        if isinstance(step.action, Llm) and step.output is not None and step.output.schema is None:
            fix = "Add a schema to its output."
            yield Problem(f"The step '{step.id}' takes any JSON.", step.output.line, fix, "NO_OUTPUT_SCHEMA")
    yield from _unused(parsed, pipeline)
    yield from _skippable(pipeline)
    for demand in pipeline.demands:
        usual, key = (USUAL_SECONDS, "max_seconds") if demand.seconds is not None else (USUAL_OUTPUT, "max_output")
        if (demand.seconds or demand.output or 0) > usual:
            fix = f"Where it runs, raise `{key}` under [limits] in the configuration."
            message = f"The {demand.field} of step '{demand.step}' is above the limit that holds by default."
            yield Problem(message, demand.line, fix, "RAISED_LIMIT")
    for step in pipeline.steps:
        if step.id in pipeline.args:
            fix = "Rename one of them, so that both can be changed when a run goes on."
            yield Problem(f"The step '{step.id}' is called as an argument is.", step.line, fix, "SHARED_NAME")
    if pipeline.consent_boundary:
        line = parsed.lines.get("consent_boundary")
        fix = "Use `approval: required` where a person is to agree."
        yield Problem("consent_boundary has no effect.", line, fix, "NO_EFFECT")


def _skippable(pipeline: Pipeline) -> Iterator[Problem]:
    """Steps that use what another gives which may be skipped, without asking about it."""
    steps = {step.id: step for step in pipeline.steps}
    for step in pipeline.steps:
        guarded = _guards(step, steps)
        used = dict.fromkeys(
            ref.step for ref in refs((step.action, step.stdin, step.env)) if ref.path[0] in ("stdout", "json")
        )
        for name in used:
            source = steps[name]
            if source.condition is not None and name not in guarded and source.condition_text not in guarded:
                fix = f"Give it a condition, as in `!${name}.skipped`, or the same one."
                message = f"The step '{step.id}' uses the output of '{name}', which may be skipped: it fails then."
                yield Problem(message, step.line, fix, "MAY_BE_SKIPPED")


def _guards(step: Step, steps: Mapping[str, Step]) -> set[str]:
    """The conditions that a step runs under, and the steps that these ask about, directly or by way of others."""
    found: set[str] = set()
    waiting = [step]
    while waiting:
        one = waiting.pop()
        if one.condition is None or one.condition_text in found:
            continue
        asked = [ref.step for ref in refs(one.condition)]
        found |= {one.condition_text, *asked}
        waiting += [steps[name] for name in asked]
    return found


def _unused(parsed: Parsed, pipeline: Pipeline) -> Iterator[Problem]:
    """Commands are given every argument in their environment, so that only a secret one surely goes nowhere there."""
    commands = any(isinstance(step.action, Cli) for step in pipeline.steps)
    for arg in pipeline.args.values():
        if arg.name in parsed.used or (commands and not arg.secret):
            continue
        fix = f"Refer to it by ${{{arg.name}}}, or take it out."
        yield Problem(f"Nothing refers to the argument '{arg.name}'.", arg.line, fix, "UNUSED_ARG")
