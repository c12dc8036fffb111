"""Checks a pipeline: reports everything that `parse` rejects or warns about, and anything that may surprise its author.

Reads the text and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects import children
from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.findings import Codes, Finding, Problem, log_of
from cuebook.dialects.pipeline.model import Arg, Cli, Llm, Parallel, Pipeline, Step, Web
from cuebook.dialects.pipeline.parse import Parsed, read
from cuebook.dialects.pipeline.parse.places import LANES, REACTION, SECTION, Part, Place
from cuebook.dialects.pipeline.parse.references import as_written
from cuebook.dialects.pipeline.run.resolve import own_refs, refs
from cuebook.kernel.tool_names import COMPANIONS, PLAN, READING

__all__ = ["CODES", "UNVERIFIED", "Finding", "beyond_format", "check", "sarif", "unverified"]

UNVERIFIED = "NO_POSTCONDITION"

USUAL_SECONDS, USUAL_OUTPUT = 300, 512_000
"""The default limits of a step."""

ERRORS = {
    # reading
    "PARSE": "The text is not valid YAML 1.2 or JSON.",
    "SCHEMA": "The text does not match the published schema.",
    "NOT_FINITE": "A number is infinite or not a number, which JSON cannot represent.",
    "BAD_ARG": "An argument's declaration contradicts itself.",
    "BAD_DOMAIN": "An entry of allowed_domains is not a host.",
    # steps
    "BAD_ID": "A step's id contains characters that a reference cannot contain.",
    "DUPLICATE_STEP": "Two steps have the same id.",
    "UNKNOWN_NAMESPACE": "A command does not begin with a namespace.",
    "NO_DRIVER": "A step cannot run here, because a program that it needs is not installed.",
    "BAD_COMMAND": "A command is malformed, incomplete or has extra words.",
    "NOT_OF_THIS_STEP": "Steps of this namespace do not have this field.",
    "BAD_FOLDER": "A folder is not below the workspace.",
    "BAD_HOST": "An entry of network or credentials is not a host, or not one that the command can reach.",
    "BAD_FILE": "A file that a step produces or takes is malformed, or is used as text.",
    "BAD_PATH": "An entry of reads is not a path that a command can be given to read.",
    "BAD_LLM": "A step that calls a model lacks a required field.",
    "BAD_ROLLBACK": "A rollback is not a command, a request or a tool call.",
    "BAD_INPUT_STEP": "The question of an input step contradicts itself.",
    "UNKNOWN_TOOL": "A model is allowed a tool that does not exist.",
    "BAD_POSTCONDITION": "A postcondition cannot be checked.",
    "BAD_STRUCTURE": "The parts of a loop, of parallel branches or of a wait do not fit together.",
    "NOT_A_LIST": "A loop has something other than a list.",
    "NOT_READ_ONLY": "A step that is repeated until a condition holds may change something.",
    "BAD_TIME": "A duration or a date cannot be read.",
    "INVALID_OUTPUT_SCHEMA": "The schema of an output is not a supported JSON Schema.",
    "UNSUPPORTED_REGEX": "A pattern is invalid or cannot be matched in linear time.",
    # references
    "BAD_REFERENCE": "A reference is malformed.",
    "UNKNOWN_REFERENCE": "A reference points to an unknown step or to an unknown field of a result.",
    "FORWARD_REFERENCE": "A reference points to a later step.",
    "CIRCULAR_REFERENCE": "A step refers to itself.",
    "UNKNOWN_ARG": "A reference points to an undeclared argument.",
    "BAD_CONDITION": "A condition cannot be parsed.",
    # secrets
    "BAD_SECRET": "The handle of a secret is invalid, or its position in the text is ambiguous.",
    "SECRET_MISPLACED": "A secret is used where others could see it.",
}

WARNINGS = {
    "NOT_REPLACED": "A dollar sign followed by a name is plain text; references need braces.",
    "NO_SHELL": "A shell operator or pattern is passed to a program as plain text.",
    "NO_TOOL_CALLS": "A model is allowed tools but no calls, or calls but no tools.",
    "NO_EVIDENCE": "A postcondition needs evidence that the step never provides, so the user is always asked.",
    "MAY_BE_SKIPPED": "A step uses the output of a step that may be skipped, and fails if it is.",
    "NOT_IN_SCHEMA": "A reference uses a path that the declared schema of the output does not mention.",
    "UNKNOWN_NODE": "No node of this name is paired with the store.",
    "ALWAYS_NULL": "A reference points to a field that the step never has.",
}

NOTES = {
    UNVERIFIED: "A step may change something and has no postcondition.",
    "NO_ROLLBACK": "A step may change something and has neither rollback nor rollback_hint.",
    "NO_OUTPUT_SCHEMA": "A model may answer with any JSON.",
    "UNUSED_ARG": "An argument is never used.",
    "SHARED_NAME": "An argument and a step have the same name: changing a value by that name changes the argument.",
    "NO_EFFECT": "A field has no effect.",
    "RAISED_LIMIT": "A step asks for more than the default limit allows.",
}

CODES: Codes = {
    **children.CODES,
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}


def check(text: str, name: str, around: Surroundings | None = None) -> list[Finding]:
    """Returns all findings in line order. `around` provides the policy."""
    parsed = read(text, name)
    problems = [*parsed.errors, *parsed.warnings, *(_notes(parsed, parsed.pipeline) if parsed.pipeline else ())]
    if parsed.pipeline is not None and parsed.pipeline.children and around is not None and around.has_files:
        from cuebook.dialects.pipeline import PIPELINE

        problems += PIPELINE.child_problems(parsed.pipeline, text, name, around)
    findings = [Finding(one.code, CODES[one.code][0], one.message, one.line, fix=one.fix) for one in problems]
    if around is not None and any(one.code == UNVERIFIED for one in findings):
        findings = list(_required(findings, around.postconditions()))
    if around is not None and parsed.pipeline is not None:
        findings += _undriven(parsed.pipeline, around)
        findings += _unpaired(parsed.pipeline, around)
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def _undriven(pipeline: Pipeline, around: Surroundings) -> Iterator[Finding]:
    """The first web step, if there is no browser here."""
    step = next((step for step in pipeline.every if isinstance(step.action, Web)), None)
    problem = around.browser_problem() if step is not None else None
    if step is not None and problem is not None:
        message = f"The step '{step.id}' cannot run here: {problem.message}"
        yield Finding("NO_DRIVER", "error", message, step.line, fix=problem.fix)


def _unpaired(pipeline: Pipeline, around: Surroundings) -> Iterator[Finding]:
    """The nodes that are named and not paired."""
    steps = [(step, as_written(step.node)) for step in pipeline.every if step.node is not None]
    fixed = [(step, name) for step, name in steps if "$" not in name]
    known = around.nodes() if fixed else None
    if known is None:
        return
    for step, name in fixed:
        if name not in known:
            message = f"The step '{step.id}' needs the node '{name}', which is not paired."
            fix = f"Pair it with `cuebook nodes add {name}`; until then, the step waits."
            yield Finding("UNKNOWN_NODE", "warning", message, step.line, fix=fix)


def _required(findings: Iterable[Finding], requirement: str) -> Iterator[Finding]:
    """A missing postcondition is an error if the policy requires one."""
    for one in findings:
        if requirement and one.code == UNVERIFIED:
            yield msgspec.structs.replace(one, severity="error", message=f"{one.message} {requirement}")
        else:
            yield one


def sarif(findings: Iterable[Finding], uri: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log."""
    return log_of(findings, uri, CODES)


def unverified(pipeline: Pipeline) -> tuple[Problem, ...]:
    """The steps that may change something and have no postcondition."""
    return tuple(
        Problem(f"Nothing checks whether the step '{step.id}' worked.", step.line, _how_to_verify(step), UNVERIFIED)
        for step in _changing(pipeline)
        if step.postcondition is None
    )


def _how_to_verify(step: Step) -> str:
    if isinstance(step.action, Llm):  # its tools decide whether it only reads
        reading = sorted(READING - COMPANIONS.keys() - {PLAN})
        return f"Add a postcondition, or allow it only tools that read: {', '.join(reading)}."
    return "Add a postcondition, or `effect: read` if it only reads."


def beyond_format(pipeline: Pipeline) -> tuple[Problem, ...]:
    """Every field in use that the published format does not have."""
    fix = "Remove it, or run without --strict-spec."
    found = [(f"argument '{arg.name}'", arg) for arg in pipeline.args.values()]
    every: list[tuple[str, Arg | Step]] = [*found, *((f"step '{step.id}'", step) for step in pipeline.every)]
    sections = {"on_failure": pipeline.on_failure, "finally": pipeline.finally_}
    return (
        *(
            Problem(f"The {what} has '{name}', which is not in the published format.", one.line, fix, "SCHEMA")
            for what, one in every
            for name in one.beyond
        ),
        *(
            Problem(
                f"The pipeline has '{name}', which is not in the published format.",
                sections[name][0].line,
                fix,
                "SCHEMA",
            )
            for name in pipeline.beyond
        ),
    )


def _changing(pipeline: Pipeline) -> Iterator[Step]:
    return (step for step in pipeline.every if not step.reads_only)


# --- notes ---


def _notes(parsed: Parsed, pipeline: Pipeline) -> Iterator[Problem]:
    hintless = {step.id: step for step in _changing(pipeline) if not step.rollback_hint and step.rollback is None}
    for step in _changing(pipeline):
        if step.postcondition is None:
            also = ", and nothing says how to undo it (rollback or rollback_hint)" if step.id in hintless else ""
            message = f"Nothing checks whether the step '{step.id}' worked{also}."
            yield Problem(message, step.line, _how_to_verify(step), UNVERIFIED)
        elif step.id in hintless:
            fix = "Add rollback, which can be run, or rollback_hint, which is shown with the request for approval."
            yield Problem(f"Nothing says how to undo the step '{step.id}'.", step.line, fix, "NO_ROLLBACK")
    for step in pipeline.every:
        if isinstance(step.action, Llm) and step.output is not None and step.output.schema is None:
            fix = "Add a schema to its output."
            yield Problem(f"The step '{step.id}' accepts any JSON.", step.output.line, fix, "NO_OUTPUT_SCHEMA")
    yield from _unused(parsed, pipeline)
    yield from _skippable(pipeline, parsed.places)
    for demand in pipeline.demands:
        usual, key = (USUAL_SECONDS, "max_seconds") if demand.seconds is not None else (USUAL_OUTPUT, "max_output")
        if (demand.seconds or demand.output or 0) > usual:
            fix = f"Raise `{key}` under [limits] in the configuration of the machine that runs it."
            message = f"The {demand.field} of step '{demand.step}' is above the default limit."
            yield Problem(message, demand.line, fix, "RAISED_LIMIT")
    for step in pipeline.every:
        if step.id in pipeline.args:
            fix = "Rename one of them; then both can be changed when a run is resumed."
            yield Problem(f"The step '{step.id}' has the same name as an argument.", step.line, fix, "SHARED_NAME")
    if pipeline.consent_boundary:
        line = parsed.lines.get("consent_boundary")
        fix = "Use `approval: required` for steps that need approval."
        yield Problem("consent_boundary has no effect.", line, fix, "NO_EFFECT")


def _skippable(pipeline: Pipeline, places: Mapping[str, Place]) -> Iterator[Problem]:
    """Warns about steps that use the output of a step that may not run, without a condition on it."""
    steps = {step.id: step for step in pipeline.every}
    for step in pipeline.every:
        guarded = _guards(step, steps, places)
        asked = {ref.step for ref in refs((step.condition, step.until))}
        used = dict.fromkeys(
            ref.step
            for ref in own_refs(step)
            if ref.path[0] in ("stdout", "json", "results", "items") and ref.step not in asked
        )
        for name in used:
            why = _may_not_run(steps, places, step.id, name)
            if (
                why
                and name not in guarded
                and not (steps[name].condition_text and steps[name].condition_text in guarded)
            ):
                fix = f"Add a condition, as in `!${name}.skipped`"
                fix += f", or repeat the condition of '{name}'." if steps[name].condition is not None else "."
                message = f"The step '{step.id}' uses the output of '{name}', which {why}; if it is, the step fails."
                yield Problem(message, step.line, fix, "MAY_BE_SKIPPED")


def _may_not_run(steps: Mapping[str, Step], places: Mapping[str, Place], here: str, name: str) -> str:
    """Why a step may not have run when another one does, as a clause; empty if it has."""
    source, place, other = steps[name], places[name], places[here]
    if source.condition is not None or source.on_denied is not None or source.on_expired is not None:
        return "may be skipped"
    for part in place.beyond(other):
        if part.kind in (REACTION, SECTION):
            return "may be skipped"
        owner = steps.get(part.owner)
        if (
            part.kind == LANES
            and owner is not None
            and isinstance(owner.action, Parallel)
            and owner.action.mode == "any"
        ):
            return "may be skipped, because another branch may be faster"
    if _section(other) and not _section(place):
        return "may be skipped, because an earlier step may have failed"
    return ""


def _section(place: Place) -> Part | None:
    return next((part for part in place.within if part.kind == SECTION), None)


def _guards(step: Step, steps: Mapping[str, Step], places: Mapping[str, Place]) -> set[str]:
    """The conditions of a step and of those around it, and the steps that they refer to, directly or through other
    conditions."""
    found: set[str] = set()
    waiting = [step, *(steps[part.owner] for part in places[step.id].within if part.owner in steps)]
    while waiting:
        one = waiting.pop()
        if one.condition is None or one.condition_text in found:
            continue
        asked = [ref.step for ref in refs(one.condition)]
        found |= {one.condition_text, *asked}
        waiting += [steps[name] for name in asked]
    return found


def _unused(parsed: Parsed, pipeline: Pipeline) -> Iterator[Problem]:
    """Commands get every argument that is not secret in their environment, so they may use it without a reference."""
    commands = any(isinstance(step.action, Cli) for step in pipeline.every)
    for arg in pipeline.args.values():
        if arg.name in parsed.used or (commands and not arg.secret):
            continue
        fix = f"Refer to it as ${{{arg.name}}}, or remove it."
        yield Problem(f"Nothing refers to the argument '{arg.name}'.", arg.line, fix, "UNUSED_ARG")
