"""Checks a workflow without running it: the errors and warnings of `parse`, and notes on possible surprises."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from cuebook.dialects import children
from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.findings import Codes, Finding, Problem, Severity, log_of
from cuebook.dialects.graph.model import Node, Workflow, fan_words
from cuebook.dialects.graph.parse import read
from cuebook.dialects.graph.parse.forks import allowed, ambiguous
from cuebook.dialects.graph.run.sources import FILE_CODES, FILE_UNREADABLE, PLAYBOOK, named_sources
from cuebook.dialects.graph.run.state import MAX_STEPS, fewest_visits
from cuebook.formats.suggestions import meant
from cuebook.kernel.tool_names import BUILT_IN

__all__ = ["CODES", "Finding", "check", "sarif"]

ERRORS = {
    # reading
    "PARSE": "The text is not valid YAML 1.2 or JSON.",
    "SCHEMA": "The document does not match the published schema.",
    "NOT_FINITE": "A number is infinite or NaN, which JSON cannot represent.",
    # the graph
    "MISSING_ENTRY": "The entry is not a node.",
    "UNKNOWN_EDGE_SOURCE": "An edge starts at an unknown node.",
    "UNKNOWN_EDGE_TARGET": "An edge leads to an unknown node.",
    "UNREACHABLE_NODE": "A node cannot be reached from the entry.",
    "SELF_LOOP": "An edge leads from a node to itself and has no max_iterations.",
    "UNBOUNDED_CYCLE": "No edge of a cycle has max_iterations.",
    "AMBIGUOUS_EDGES": "A node has more than one edge without a condition, and these are not taken at once.",
    "NO_JOIN": "The branches that begin at a node do not all join at one node.",
    "RESERVED_NODE_ID": "A node uses an id that is reserved for the input or the end.",
    # nodes and skills
    "INVALID_INLINE_SKILL": "A skill has neither an instruction nor a tool server.",
    "INVALID_MCP": "A tool server lacks the command or URL that its type needs.",
    "UNSUPPORTED_EVAL_POLICY": "An evaluation policy is reserved for a later version of the format.",
    "INVALID_PASS_WHEN": "The pass_when of a judge is more than one word.",
    "RULE_OF_OTHER_KIND": "A rule does not apply to this kind of evaluator.",
    "INVALID_OUTPUT_SCHEMA": "The output of a node is not a usable JSON Schema.",
    "UNSUPPORTED_REGEX": "A regular expression is invalid or cannot be matched in linear time.",
    "SOURCE_INVALID_SHAPE": "A source is incomplete or has no valid URL.",
    "SOURCE_INVALID_TYPE": "A source has an unknown type.",
    "SOURCE_FILE_NOT_FOUND": "A source file does not exist.",
    "SOURCE_FILE_OUTSIDE_ROOT": "A source file is outside the workflow's folder.",
    "SOURCE_FILE_READ_FAILED": "A source file cannot be read.",
    # beyond the format
    "INVALID_EXTENSION": "An entry below x_cuebook is invalid.",
}

WARNINGS = {
    "UNKNOWN_SKILL": "A node uses an unknown skill.",
    "BROKEN_SKILL": "A node uses a skill whose file cannot be read.",
    "MISSPELT_TOOL": "The name of a tool resembles that of a built-in tool, but no built-in tool has it.",
    "UNKNOWN_MODEL": "A model name is invalid, or its provider is unknown.",
    "MALFORMED_PATH": "A path is malformed, so a check on it always fails.",
    "DEFAULT_NOT_IN_ENUM": "The default of an input is not one of its enum values.",
    "DUPLICATE_EVALUATOR": "Two evaluators of a node have the same name.",
    "JUDGE_BUDGET": "The workflow has more judges than judge_budget allows.",
    "TOO_MANY_STEPS": "Every path to an end visits more nodes than max_steps allows.",
}

NOTES = {
    "UNKNOWN_KEY": "An unknown key at the top level resembles a known key.",
    "NO_DEFAULT_EDGE": "Every edge has a condition, so the run fails if none holds.",
    "OPEN_ROUTE": "Conditions are judged by the whole reply, because the node declares no output.",
    "IDLE_RETRY": "A node has retry, but neither evaluators nor required outputs that could fail.",
    "PARALLEL_EDGES": "The edges that leave a node are taken at once.",
    "UNUSED_SKILL": "No node uses a skill.",
}

CODES: Codes = {
    **children.CODES,
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}


def check(text: str, name: str, around: Surroundings | None = None) -> list[Finding]:
    """All findings, ordered by line. `around` looks up the files, skills and models that the workflow uses."""
    parsed = read(text, name)
    problems = [*parsed.errors, *parsed.warnings, *parsed.notes]
    if parsed.workflow is not None:
        problems += ambiguous(parsed.workflow, {})
        problems += _notes(parsed.workflow)
        problems += unknown_tools(parsed.workflow)
        problems += _surroundings(parsed.workflow, around or Surroundings())
        if around is not None and any(skill.startswith(PLAYBOOK) for skill in _skills(parsed.workflow)):
            from cuebook.dialects.graph import GRAPH

            problems += GRAPH.child_problems(parsed.workflow, text, name, around)
    findings = [_finding(problem) for problem in problems]
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def _skills(workflow: Workflow) -> Iterator[str]:
    return (skill for node in workflow.nodes.values() for skill in node.skills)


def _surroundings(workflow: Workflow, around: Surroundings) -> Iterator[Problem]:
    """Problems with the files, skills and models that the workflow uses. A missing API key is not reported."""
    skills = around.skills()
    if skills is not None:
        yield from unknown_skills(workflow, skills)
    for one in named_models(workflow):
        error = around.model_problem(one.name)
        if error is not None:
            yield Problem(f"{one.at}: {error.message}", one.line, error.fix, "UNKNOWN_MODEL")
    yield from _broken_skills(workflow, around)
    for field, source in named_sources(workflow, {}):
        error = around.file_problem(source.value) if source.kind == "file" else None
        if error is not None:
            code = FILE_CODES.get(error.code, FILE_UNREADABLE)
            yield Problem(f"{field.removeprefix('workflow.')}: {error.message}", source.line, error.fix, code)


def _broken_skills(workflow: Workflow, around: Surroundings) -> Iterator[Problem]:
    """A problem for each skill that cannot be read, at the first node that uses it."""
    nodes: dict[str, Node] = {}
    for node in workflow.nodes.values():
        for skill in node.skills:
            if not skill.startswith(PLAYBOOK):
                nodes.setdefault(skill, node)
    for skill, node in nodes.items():
        error = around.skill_problem(skill)
        if error is not None:
            message = f"The node '{node.id}' uses the skill '{skill}', which cannot be read: {error.message}"
            yield Problem(message, node.line, error.fix, "BROKEN_SKILL")


def sarif(findings: Iterable[Finding], uri: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log."""
    return log_of(findings, uri, CODES)


def unknown_skills(workflow: Workflow, skills: Collection[str]) -> Iterator[Problem]:
    """A warning for each skill that is neither inline in the workflow nor in `skills`."""
    known = {*workflow.skills, *skills}
    for node in workflow.nodes.values():
        for skill in node.skills:
            if skill not in known and not skill.startswith(PLAYBOOK):
                message = f"The node '{node.id}' uses the unknown skill '{skill}'."
                yield Problem(message, node.line, meant(skill, sorted(known)), "UNKNOWN_SKILL")


OTHER_AGENTS = frozenset(
    {
        *("Agent", "AskUserQuestion", "ExitPlanMode", "KillShell", "LS", "MultiEdit", "NotebookEdit", "NotebookRead"),
        *("Skill", "SlashCommand", "Task", "TaskOutput", "TaskStop", "TodoRead"),
    }
)
"""Tools of other coding agents, which published workflows name, and sub-agents."""


def unknown_tools(workflow: Workflow) -> Iterator[Problem]:
    """A warning for each name that is nearly that of a built-in tool. Any other name may be that of a server's tool."""
    for node in workflow.nodes.values():
        named = [("disallowed_tools", one, node.line) for one in node.disallowed_tools]
        for number, evaluator in enumerate(node.eval):
            rule = evaluator.rule
            called = (*rule.any_tool_called, *rule.all_tools_called, *rule.no_tool_called)
            named += ((f"eval[{number}]", one, evaluator.line or node.line) for one in called)
        for at, name, line in named:
            if name in BUILT_IN or name in OTHER_AGENTS:
                continue
            close = get_close_matches(name, BUILT_IN, n=1, cutoff=0.7)
            if close:
                message = f"nodes.{node.id}.{at}: there is no built-in tool '{name[:60]}'."
                yield Problem(message, line, f"Did you mean '{close[0]}'?", "MISSPELT_TOOL")


class NamedModel(msgspec.Struct, frozen=True):
    """A model that the workflow names."""

    name: str
    at: str
    """The field that names it."""
    line: int | None = None


def named_models(workflow: Workflow) -> Iterator[NamedModel]:
    """Each model that a run may call, at the first place that names it."""
    found: dict[str, NamedModel] = {}
    own = (workflow.model, "model", None)
    for node in workflow.nodes.values():
        at = f"nodes.{node.id}"
        asked = [(node.model, f"{at}.model", node.line), own]
        judges = [
            (node.judge_model, f"{at}.judge_model", node.line),
            (workflow.judge_model, "judge_model", None),
            *asked,
        ]
        places = [asked] + [
            [(judge.model, f"{at}.eval[{number}].model", judge.line), *judges]
            for number, judge in enumerate(node.eval)
            if judge.kind == "judge"
        ]
        if any(edge.when for edge in workflow.out_edges[node.id]):
            places.append([(workflow.extras.router_model, "x_cuebook.router_model", None), own])
        for place in places:
            first = next((NamedModel(*one) for one in place if one[0]), None)
            if first is not None:
                found.setdefault(first.name, first)
    yield from found.values()


def _finding(problem: Problem) -> Finding:
    severity: Severity = CODES[problem.code][0]
    return Finding(problem.code, severity, problem.message, problem.line, fix=problem.fix)


# --- notes ---


def _notes(workflow: Workflow) -> Iterator[Problem]:
    fewest, most = fewest_visits(workflow), workflow.extras.max_steps or MAX_STEPS
    if fewest > most:
        message = f"Every path to an end visits at least {fewest:,} nodes, but a run may visit only {most:,}."
        fix = "Raise max_steps below x_cuebook or with --max-steps, or make the workflow shorter."
        yield Problem(message, workflow.nodes[workflow.entry].line, fix, "TOO_MANY_STEPS")
    for fork in workflow.forks:
        if allowed(workflow, fork.node):
            yield Problem(f"After '{fork.node}': {fan_words(fork)}.", fork.line, "", "PARALLEL_EDGES")
    for node, edges in workflow.out_edges.items():
        yield from _routing_notes(workflow, node, any(edge.when for edge in edges), all(edge.when for edge in edges))
    for one in workflow.nodes.values():
        if one.retry is not None and not one.eval and not (one.output or {}).get("required"):
            fix = "Add an eval, or remove retry."
            yield Problem(
                f"The retry of node '{one.id}' has no effect: no evaluation in it can fail.",
                one.line,
                fix,
                "IDLE_RETRY",
            )
    used = {skill for one in workflow.nodes.values() for skill in one.skills}
    for skill in workflow.skills.values():
        if skill.id not in used:
            yield Problem(f"No node uses the skill '{skill.id}'.", skill.line, "Use it, or remove it.", "UNUSED_SKILL")


def _routing_notes(workflow: Workflow, id: str, some: bool, all_: bool) -> Iterator[Problem]:
    if not some:
        return
    node = workflow.nodes[id]
    if not (node.output or {}).get("properties"):
        fix = "Declare an output with the properties that the conditions refer to."
        yield Problem(
            f"The edges after '{id}' are judged by its whole reply, because it declares no output.",
            node.line,
            fix,
            "OPEN_ROUTE",
        )
    if all_:
        fix = "Add an edge without 'when' if that can happen."
        yield Problem(f"The run fails if no condition after '{id}' holds.", node.line, fix, "NO_DEFAULT_EDGE")
