"""Parses what the nodes of a workflow ask of people: approvals, and questions instead of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.graph.model import Approval, Asked, Edge, Node, NodeExtras, Workflow
from cuebook.dialects.graph.parse.structure import following, reachable
from cuebook.dialects.graph.paths import node_in
from cuebook.dialects.people import RULE, default, expiry, people, rule
from cuebook.formats.shape import Shape
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Value

CODE = "INVALID_EXTENSION"


def approval(
    shape: Shape, id: str, value: Value, at: str, nodes: Mapping[str, int], leaving: Mapping[str, Sequence[Edge]]
) -> Approval | None:
    """Parses `approval`: true for the default question, a text, or a table. `nodes` has the line of each node."""
    own = f"Run the node '{id}'?"
    if value.kind == "bool":
        return Approval(own, line=value.line) if shape.flag(value, at) else None
    if value.kind != "map":
        return Approval(shape.text(value, at), line=value.line)

    def check(name: str, line: int, where: str) -> None:
        if name not in nodes:
            shape.wrong(line, f"{where}: unknown node '{name}'.", meant(name, nodes))
        elif name == id or id not in reachable([name], leaving):
            shape.wrong(line, f"{where}: '{name}' does not come before '{id}'.", "Name a node that leads to it.")

    fields = shape.closed(value, at, ("text", "show", *RULE))
    if not value.fields:
        shape.wrong(value.line, f"{at} is empty.", "Write `approval: true`.")
    text = shape.text(fields["text"], f"{at}.text").strip() if "text" in fields else own
    show = _shown(shape, fields["show"], f"{at}.show", nodes) if "show" in fields else ()
    who, most = rule(shape, fields, at, check)
    return Approval(text, show, who, most, value.line)


def _shown(shape: Shape, value: Value, at: str, nodes: Mapping[str, int]) -> tuple[str, ...]:
    paths = (shape.text(value, at),) if value.kind == "str" else shape.texts(value, at, at_least=1)
    lines = [value.line] if value.kind == "str" else [one.line for one in value.items]
    for path, line in zip(paths, lines, strict=False):
        if path and not node_in(path, nodes)[0]:
            name = path.partition(".")[0]
            shape.wrong(line, f"{at}: unknown node '{name}'.", meant(name, nodes))
    return paths


def question(shape: Shape, value: Value, at: str) -> tuple[Asked | None, Value | None]:
    """Parses `input`: true, a text, or a table. Returns the question, and its default, which only the node can check."""
    if value.kind == "bool":
        return (Asked(line=value.line) if shape.flag(value, at) else None), None
    if value.kind != "map":
        return Asked(shape.text(value, at).strip(), line=value.line), None
    fields = shape.closed(value, at, ("text", "default", "by", "expires_ms"))
    text = shape.text(fields["text"], f"{at}.text").strip() if "text" in fields else ""
    by = people(shape, fields["by"], f"{at}.by") if "by" in fields else ()
    expires = expiry(shape, fields["expires_ms"], f"{at}.expires_ms") if "expires_ms" in fields else None
    return Asked(text, None, by, expires, value.line), fields.get("default")


def with_defaults(shape: Shape, workflow: Workflow, defaults: Mapping[str, Value]) -> Workflow:
    """The workflow with the default answers, each checked against the output of its node."""
    made = dict(workflow.extras.nodes)
    for id, value in defaults.items():
        extras, node = made[id], workflow.nodes.get(id)
        if extras.input is not None and node is not None:
            answer = default(shape, value, f"x_cuebook.nodes.{id}.input.default", node.output, CODE)
            made[id] = msgspec.structs.replace(extras, input=msgspec.structs.replace(extras.input, default=answer))
    return msgspec.structs.replace(workflow, extras=msgspec.structs.replace(workflow.extras, nodes=made))


# --- checks of the whole workflow -------------------------------------------------------------------------------


def problems(workflow: Workflow) -> list[Problem]:
    """The problems that concern more than one place in the text."""
    found: list[Problem] = []
    for id, extras in workflow.extras.nodes.items():
        node = workflow.nodes.get(id)
        if node is not None and extras.input is not None:
            found += _of_question(node, extras, extras.input)
        if node is not None and extras.approval is not None:
            found += _of_changes(workflow, id, extras.approval)
    return found


def _of_question(node: Node, extras: NodeExtras, asked: Asked) -> list[Problem]:
    """A problem for everything that an input node cannot have, because no model runs there."""
    at = f"x_cuebook.nodes.{node.id}"
    unused: dict[str, Any] = {
        f"nodes.{node.id}.eval": node.eval,
        f"nodes.{node.id}.retry": node.retry,
        f"nodes.{node.id}.skills": node.skills,
        f"{at}.approval": extras.approval,
        f"{at}.budget": extras.budget_tokens or extras.budget_money,
        f"{at}.context": extras.context,
        f"{at}.effort": extras.effort,
    }
    fix = "Remove it. The node's output is what checks the answer."
    return [
        Problem(f"{name} has no effect, because {at}.input asks a person instead of a model.", asked.line, fix, CODE)
        for name, value in unused.items()
        if value
    ]


def _of_changes(workflow: Workflow, id: str, asked: Approval) -> list[Problem]:
    """A problem for each node to which changes cannot lead, because it is in another parallel branch."""
    leaving = following(workflow.edges)
    found = []
    for to in asked.rule.changes:
        for fan in (one for outer in workflow.fans.values() for one in outer.every):
            ends = frozenset({fan.join, *fan.to})
            branches = [reachable([start], leaving, ends) for start in fan.to if start != fan.join]
            if [id in branch for branch in branches] != [to in branch for branch in branches]:
                message = f"x_cuebook.nodes.{id}.approval.changes: '{to}' and '{id}' are not in the same parallel branch of '{fan.node}'."
                fix = f"Name a node of the same branch, or '{fan.node}' if '{id}' comes after the branches."
                found.append(Problem(message, asked.line, fix, CODE))
                break
    return found
