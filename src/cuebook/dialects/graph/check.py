"""Finds what is wrong or odd in a workflow: everything that `parse` refuses or warns of, and what may surprise.

It reads the text, and never runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from cuebook.dialects.findings import Codes, Finding, Severity, log_of
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import read
from cuebook.dialects.graph.walk import MAX_STEPS, fewest_visits
from cuebook.dialects.registry import Problem
from cuebook.dialects.wording import meant

__all__ = ["CODES", "Finding", "check", "sarif"]

ERRORS = {
    # reading
    "PARSE": "The text is no YAML 1.2 or JSON.",
    "SCHEMA": "Something is not as the published schema says.",
    "NOT_FINITE": "A number is infinite or none at all, which JSON cannot hold.",
    # the graph
    "MISSING_ENTRY": "The entry is no node.",
    "UNKNOWN_EDGE_SOURCE": "An edge leaves something that is no node.",
    "UNKNOWN_EDGE_TARGET": "An edge goes to something that is no node.",
    "UNREACHABLE_NODE": "No way leads from the entry to a node.",
    "SELF_LOOP": "A node goes to itself without a bound.",
    "UNBOUNDED_CYCLE": "A circle has no edge with a bound.",
    "AMBIGUOUS_EDGES": "Two edges leave a node without a condition.",
    "RESERVED_NODE_ID": "A node has a name that means something else: that of the input, or of the end.",
    # nodes and skills
    "INVALID_INLINE_SKILL": "A skill has neither an instruction nor a tool server.",
    "INVALID_MCP": "A tool server says how it is reached in no way that fits its type.",
    "UNSUPPORTED_EVAL_POLICY": "A policy that the format has reserved for later.",
    "INVALID_PASS_WHEN": "What a judge must answer is more than one word.",
    "RULE_OF_OTHER_KIND": "A rule that evaluators of this kind do not look at.",
    "INVALID_OUTPUT_SCHEMA": "The output of a node is no JSON Schema that can be used.",
    "UNSUPPORTED_REGEX": "A pattern that cannot be searched for in linear time, or is none.",
    "SOURCE_INVALID_SHAPE": "A source has no address.",
    "SOURCE_INVALID_TYPE": "A source is fetched in a way that nobody knows.",
    "SOURCE_FILE_NOT_FOUND": "A source is a file that is not there.",
    "SOURCE_FILE_OUTSIDE_ROOT": "A source is a file that lies outside of the workflow's folder.",
    "SOURCE_FILE_READ_FAILED": "A source is a file that cannot be read.",
    # beyond the format
    "INVALID_EXTENSION": "Something below x_cuebook means nothing.",
}

WARNINGS = {
    "UNKNOWN_SKILL": "A node names a skill that nobody knows.",
    "BROKEN_SKILL": "A node names a skill whose file cannot be read.",
    "UNKNOWN_MODEL": "A model is named whose provider nobody knows, or by no name of a model.",
    "MALFORMED_PATH": "A path that nothing can be at: what is checked there always fails.",
    "DEFAULT_NOT_IN_ENUM": "The default of an input is none of the values it may have.",
    "DUPLICATE_EVALUATOR": "Two evaluators of a node have one name.",
    "JUDGE_BUDGET": "More judges may be asked than the budget says.",
    "TOO_MANY_STEPS": "Every way to an end visits more nodes than a run may visit.",
}

NOTES = {
    "UNKNOWN_KEY": "A name at the top level looks like another, and nobody reads it.",
    "NO_DEFAULT_EDGE": "Where no condition holds, the run ends in a failure: no edge is without one.",
    "OPEN_ROUTE": "Conditions are judged by everything a node says, because it declares no output.",
    "IDLE_RETRY": "A node is tried again only where an evaluator or a required output fails, and it has neither.",
    "UNUSED_SKILL": "A skill that no node names.",
}

CODES: Codes = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}


def check(
    text: str,
    name: str,
    *,
    skills: Collection[str] | None = None,
    around: Callable[[Workflow], Iterable[Problem]] = lambda workflow: (),
) -> list[Finding]:
    """Everything that is wrong or odd, in the order of the lines. `skills` are those there are, where that is known;
    `around` says what is wrong with what the workflow names and does not hold.
    """
    parsed = read(text, name)
    problems = [*parsed.errors, *parsed.warnings, *parsed.notes]
    if parsed.workflow is not None:
        problems += _notes(parsed.workflow)
        problems += unknown_skills(parsed.workflow, skills) if skills is not None else ()
        problems += around(parsed.workflow)
    findings = [_finding(problem) for problem in problems]
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def sarif(findings: Iterable[Finding], uri: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log."""
    return log_of(findings, uri, CODES)


def unknown_skills(workflow: Workflow, skills: Collection[str]) -> Iterator[Problem]:
    """A warning for each skill that is neither written in the workflow nor among those there are."""
    known = {*workflow.skills, *skills}
    for node in workflow.nodes.values():
        for skill in node.skills:
            if skill not in known:
                message = f"The node '{node.id}' names the skill '{skill}', which nobody knows."
                yield Problem(message, node.line, meant(skill, sorted(known)), "UNKNOWN_SKILL")


class NamedModel(msgspec.Struct, frozen=True):
    """A model that a run may ask because the workflow says so."""

    name: str
    at: str
    """The field that names it."""
    line: int | None = None


def named_models(workflow: Workflow) -> Iterator[NamedModel]:
    """Each once, where it is named first. One that nothing would ask is left out."""
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


# --- what may surprise ---


def _notes(workflow: Workflow) -> Iterator[Problem]:
    fewest, most = fewest_visits(workflow), workflow.extras.max_steps or MAX_STEPS
    if fewest > most:
        message = f"Every way to an end visits at least {fewest:,} nodes, and a run may visit {most:,}."
        fix = "Raise max_steps below x_cuebook or with --max-steps, or make the workflow shorter."
        yield Problem(message, workflow.nodes[workflow.entry].line, fix, "TOO_MANY_STEPS")
    for node, edges in workflow.out_edges.items():
        yield from _of_routes(workflow, node, any(edge.when for edge in edges), all(edge.when for edge in edges))
    for one in workflow.nodes.values():
        if one.retry is not None and not one.eval and not (one.output or {}).get("required"):
            fix = "Add an eval, or take out retry."
            yield Problem(f"The node '{one.id}' is never tried again.", one.line, fix, "IDLE_RETRY")
    used = {skill for one in workflow.nodes.values() for skill in one.skills}
    for skill in workflow.skills.values():
        if skill.id not in used:
            yield Problem(
                f"No node names the skill '{skill.id}'.", skill.line, "Use it, or take it out.", "UNUSED_SKILL"
            )


def _of_routes(workflow: Workflow, id: str, some: bool, all_: bool) -> Iterator[Problem]:
    if not some:
        return
    node = workflow.nodes[id]
    if not (node.output or {}).get("properties"):
        fix = "Declare an output with the properties that the conditions ask for."
        yield Problem(f"What follows '{id}' is chosen by all it says.", node.line, fix, "OPEN_ROUTE")
    if all_:
        fix = "Add an edge without 'when' for that case, if it can arise."
        yield Problem(f"Where no condition after '{id}' holds, the run fails.", node.line, fix, "NO_DEFAULT_EDGE")
