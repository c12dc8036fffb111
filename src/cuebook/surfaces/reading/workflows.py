"""Workflow graphs at the commands that read playbooks: telling them apart, and what `summary` says of one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cuebook.dialects.findings import Finding
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.graph.check import CODES, check
from cuebook.dialects.graph.model import Edge, Node, Source, Workflow
from cuebook.dialects.graph.preparing import in_reach
from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.registry import Input, Problem
from cuebook.kernel.errors import BadInput
from cuebook.performers.skills import BUILT_IN
from cuebook.performers.skills.files import ids
from cuebook.surfaces.wording import counted, short

__all__ = ["CODES", "edge_words", "findings", "is_workflow", "refuse", "summary_lines", "summary_of", "workflow_of"]

SUFFIXES = (".yml", ".yaml")


def is_workflow(text: str, name: str) -> bool:
    """Also a broken one, which is to be told what is wrong with it."""
    if GRAPH.recognises(text, name):
        return True
    return os.path.splitext(name)[1].lower() in SUFFIXES and not MARKDOWN.recognises(text, name)


def findings(text: str, name: str) -> list[Finding]:
    """What is wrong or odd; skills are looked for beside the workflow and in the working folder."""
    roots = [Path(name).parent, Path()]
    return check(text, name, skills={*BUILT_IN, *ids(roots)}, around=lambda workflow: _around(workflow, name))


def _around(workflow: Workflow, name: str) -> Iterable[Problem]:
    from cuebook.surfaces.reading.surroundings import problems

    return problems(workflow, name)


def workflow_of(text: str, name: str) -> Workflow | None:
    """None for a text that is none."""
    return GRAPH.parse(text, name) if is_workflow(text, name) else None


def refuse(text: str, name: str, command: str) -> None:
    """`BadInput` for a command that only Markdown playbooks have."""
    as_it_is = ", which is YAML or JSON as it is"
    for dialect, kind in (
        (GRAPH, f"workflow graph{as_it_is}"),
        (PIPELINE, f"pipeline{as_it_is}"),
        (PROGRAM, "program"),
    ):
        if dialect.recognises(text, name):
            raise BadInput(
                f"{name}: `cuebook {command}` is for Markdown playbooks; this is a {kind}.",
                fix="`cuebook summary`, `cuebook validate` and `cuebook graph` take it.",
            )


def edge_words(edge: Edge) -> str:
    """The way an edge leads, and when."""
    bound = f" (at most {edge.max_iterations} times)" if edge.max_iterations is not None else ""
    return f"if {edge.when}: {edge.to}{bound}" if edge.when else f"{edge.to}{bound}"


def approval_of(workflow: Workflow, node: Node) -> str:
    """What an approver is asked before the node runs; empty where nobody is."""
    extras = workflow.extras.nodes.get(node.id)
    return extras.approval if extras is not None else ""


def summary_of(workflow: Workflow) -> dict[str, Any]:
    nodes = list(in_reach(workflow))
    return {
        "dialect": GRAPH.name,
        "id": workflow.id,
        "title": workflow.name,
        "description": workflow.description,
        "entry": workflow.entry,
        "inputs": [{"name": one.name, "type": one.type, "required": one.required} for one in workflow.inputs],
        "nodes": [{"id": node.id, "name": node.name, "outputs": list(outputs(node.output))} for node in nodes],
        "edges": [
            {"from": edge.from_, "to": edge.to, "when": edge.when or None, "max_iterations": edge.max_iterations}
            for edge in workflow.edges
        ],
        "decisions": [node.id for node in nodes if any(edge.when for edge in workflow.out_edges[node.id])],
        "skills": list(dict.fromkeys(skill for node in nodes for skill in node.skills)),
        "models": sorted({model for model in (workflow.model, *(node.model for node in nodes)) if model}),
        "sources": [source.value for source in _read(workflow)],
        "approvals": [id for id, extras in workflow.extras.nodes.items() if extras.approval],
    }


def outputs(schema: dict[str, Any] | None) -> Iterator[str]:
    properties = (schema or {}).get("properties")
    if isinstance(properties, dict):
        yield from properties


def _read(workflow: Workflow) -> Iterator[Source]:
    """Those that are somewhere else."""
    for node in workflow.nodes.values():
        yield from (
            one for one in (node.instruction, *node.rules.sources, *node.context.sources) if one.kind != "inline"
        )
    yield from (one for one in (*workflow.rules, *workflow.context) if one.kind != "inline")


def summary_lines(workflow: Workflow) -> Iterator[str]:
    made = summary_of(workflow)
    yield workflow.name
    if workflow.description:
        yield f"\n{workflow.description}\n"
    for declared in workflow.inputs:
        yield f"input     {input_words(declared)}"
    for node in in_reach(workflow):
        gives = ", ".join(outputs(node.output))
        entry = " (entry)" if node.id == workflow.entry else ""
        yield f"node      {node.id}{entry}: {node.name}{f'; gives {gives}' if gives else ''}"
        yield from (f"            {edge_words(edge)}" for edge in workflow.out_edges[node.id])
    for name, words in (
        ("decisions", counted(len(made["decisions"]), "decision") if made["decisions"] else ""),
        ("skills", ", ".join(made["skills"])),
        ("models", ", ".join(made["models"])),
        ("sources", ", ".join(made["sources"])),
        ("approvals", ", ".join(made["approvals"])),
    ):
        if words:
            yield f"{name:<10}{words}"


def input_words(declared: Input) -> str:
    values = f": {', '.join(declared.options)}" if declared.options else ""
    need = (
        "required" if declared.required else f"default: {short(declared.default)}" if declared.default else "optional"
    )
    about = f": {declared.description}" if declared.description else ""
    return f"{declared.name} ({declared.type}{values}; {need}){about}"
