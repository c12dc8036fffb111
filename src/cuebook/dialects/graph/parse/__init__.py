"""Parses the text of a workflow into its document, or lists every problem with its line and code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, cast

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.graph import inputs
from cuebook.dialects.graph.model import Edge, InlineSkill, McpServer, Node, Workflow
from cuebook.dialects.graph.parse import people, sources, structure
from cuebook.dialects.graph.parse.extensions import with_extras
from cuebook.dialects.graph.parse.forks import forks_of, misplaced_worktrees
from cuebook.dialects.graph.parse.nodes import MOVED, MOVING, node
from cuebook.formats.shape import Shape, first_problems, in_order
from cuebook.formats.values import Malformed, Value
from cuebook.formats.yaml import read_yaml_or_json

SIZE_LIMIT = 32_000_000
"""The maximum size of a workflow, in characters."""
EXTENSION = "x_cuebook"
"""The key for everything that goes beyond the format."""
FIELDS = (
    "id", "name", "entry", "nodes", "edges", "description", "skills", "rules", "context", "workflow_type", "model",
    "judge_model", "judge_budget", "inputs", EXTENSION,
)  # fmt: skip
_NEEDED = ("id", "name", "entry", "nodes", "edges")
_TYPES = ("generic", "pr_review", "e2e_test", "content_generation", "monitor", "data_sync")


class Parsed(msgspec.Struct, frozen=True):
    """The result of parsing: the document, or the errors that prevent it."""

    workflow: Workflow | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    """Likely mistakes that have no effect."""


def parse(text: str, name: str) -> Workflow:
    """Parses workflow text into a document. Raises `InvalidPlaybook` with all problems."""
    parsed = read(text, name)
    if parsed.workflow is None:
        raise InvalidPlaybook(name, parsed.errors, codes=True)
    return parsed.workflow


def read(text: str, name: str) -> Parsed:
    """Parses workflow text into a document or errors, with the warnings in either case."""
    return _read(text, name.lower().endswith(".json"))


def _read(text: str, is_json: bool) -> Parsed:
    try:
        root = read_yaml_or_json(text, is_json, SIZE_LIMIT, "Split the workflow.")
    except Malformed as error:
        return Parsed(None, (Problem(f"{error.message}.", error.line, error.fix, "PARSE"),))
    if root.kind != "map":
        fix = "Write id, name, entry, nodes and edges."
        return Parsed(None, (Problem("A workflow must be a table of names and values.", root.line, fix, "SCHEMA"),))
    return _Reading(root).result()


class _Reading:
    """Reads the fields of a workflow and collects its problems."""

    def __init__(self, root: Value) -> None:
        self._root = root
        self._shape = Shape()

    def result(self) -> Parsed:
        shape, root = self._shape, self._root
        shape.needs(root, "the workflow", _NEEDED)
        if "verify" in root.fields:
            shape.wrong(root.lines["verify"], MOVED, MOVING)
        nodes = self._nodes()
        edges = self._edges()
        workflow = Workflow(
            id=self._text("id"),
            name=self._text("name"),
            entry=self._text("entry"),
            nodes=nodes,
            edges=edges,
            description=self._text("description", empty=True),
            model=self._text("model"),
            judge_model=self._text("judge_model"),
            **self._others(),
        )
        lines = {id: one.line for id, one in nodes.items()}
        entry_line = root.lines.get("entry", root.line)
        shape.problems += structure.problems(workflow.entry, entry_line, lines, edges)
        if EXTENSION in root.fields:
            workflow = with_extras(shape, root.fields[EXTENSION], workflow)
        forks, ambiguous = forks_of(workflow)
        workflow = msgspec.structs.replace(workflow, forks=forks)
        shape.problems += ambiguous or [*misplaced_worktrees(workflow), *people.problems(workflow)]
        self._judges(workflow)
        errors = in_order(shape.problems)
        warnings = in_order(shape.warnings)
        notes = tuple(self._unknown_keys())
        if errors:
            return Parsed(None, first_problems(errors), warnings, notes)
        return Parsed(msgspec.structs.replace(workflow, warnings=warnings), (), warnings, notes)

    def _unknown_keys(self) -> Iterator[Problem]:
        """Unknown names at the top level that resemble known names. The format allows other names there."""
        for name in islice(self._root.fields, 100):
            close = get_close_matches(name, FIELDS, n=1, cutoff=0.8) if name not in FIELDS else []
            if close:
                line = self._root.lines[name]
                yield Problem(f"Unknown key '{name}' is ignored.", line, f"Did you mean '{close[0]}'?", "UNKNOWN_KEY")

    def _text(self, name: str, *, empty: bool = False) -> str:
        value = self._root.fields.get(name)
        return self._shape.text(value, name, empty=empty) if value is not None else ""

    def _nodes(self) -> dict[str, Node]:
        value = self._root.fields.get("nodes")
        if value is None:
            return {}
        return {id: node(self._shape, id, one, line) for id, one, line in self._shape.named(value, "nodes")}

    def _edges(self) -> tuple[Edge, ...]:
        value = self._root.fields.get("edges")
        if value is None:
            return ()
        items = self._shape.items(value, "edges")
        return tuple(self._edge(one, f"edges[{number}]", number) for number, one in enumerate(items))

    def _edge(self, value: Value, at: str, number: int) -> Edge:
        shape = self._shape
        fields = shape.closed(value, at, ("from", "to", "when", "max_iterations"), ("from", "to"))
        ends = [shape.text(fields[name], f"{at}.{name}") if name in fields else "" for name in ("from", "to")]
        when = fields.get("when")
        condition = shape.text(when, f"{at}.when", empty=True) if when is not None else ""
        if when is not None and when.kind != "str":
            condition = "?"  # an invalid condition still counts as a condition
        bound = fields.get("max_iterations")
        most = shape.whole(bound, f"{at}.max_iterations", 1) or 1 if bound is not None else None
        return Edge(ends[0], ends[1], condition, most, number, value.line)

    def _others(self) -> dict[str, Any]:
        """The optional fields of the workflow that are not strings."""
        shape, fields = self._shape, self._root.fields
        found: dict[str, Any] = {}
        for name in ("rules", "context"):
            if name in fields:
                found[name] = sources.listed(shape, fields[name], name)
        if "workflow_type" in fields:
            found["workflow_type"] = shape.choice(fields["workflow_type"], "workflow_type", _TYPES)
        if "judge_budget" in fields:
            found["judge_budget"] = shape.whole(fields["judge_budget"], "judge_budget", 0) or 0
        if "inputs" in fields:
            found["declared"] = inputs.declared(shape, fields["inputs"])
        if "skills" in fields:
            named = shape.named(fields["skills"], "skills")
            found["skills"] = {id: _skill(shape, id, one, line) for id, one, line in named}
        return found

    def _judges(self, workflow: Workflow) -> None:
        expected = sum(one.kind == "judge" for node in workflow.nodes.values() for one in node.eval)
        if expected > workflow.judge_budget:
            line = self._root.lines.get("judge_budget", self._root.line)
            message = f"The workflow has {expected} judges, but judge_budget is {workflow.judge_budget}."
            self._shape.odd(line, message, "Raise judge_budget, or remove judges.", "JUDGE_BUDGET")


def _skill(shape: Shape, id: str, value: Value, line: int) -> InlineSkill:
    at = f"skills.{id}"
    fields = shape.closed(value, at, ("name", "description", "instruction", "mcp"))
    names = [name for name in ("name", "description", "instruction") if name in fields]
    texts = {name: shape.text(fields[name], f"{at}.{name}", empty=True) for name in names}
    if value.kind == "map" and "mcp" not in fields and not texts.get("instruction"):
        message = f"{at} has neither an instruction nor a tool server."
        shape.wrong(line, message, "Add 'instruction' or 'mcp'.", "INVALID_INLINE_SKILL")
    server = _server(shape, fields["mcp"], f"{at}.mcp") if "mcp" in fields else None
    return InlineSkill(id, mcp=server, line=line, **texts)


def _server(shape: Shape, value: Value, at: str) -> McpServer:
    fields = shape.closed(value, at, ("type", "command", "args", "url", "headers", "env"))
    if value.kind == "map" and not fields.keys() & {"command", "url"}:
        shape.wrong(value.line, f"{at} has neither 'command' nor 'url'.", "Add one of them.")
    command = shape.text(fields["command"], f"{at}.command", empty=True) if "command" in fields else ""
    url = shape.text(fields["url"], f"{at}.url", empty=True) if "url" in fields else ""
    kind = "stdio" if "command" in fields else "http"
    if "type" in fields:
        kind = shape.choice(fields["type"], f"{at}.type", ("stdio", "http"))
    if value.kind == "map" and fields.keys() & {"command", "url"} and not (command if kind == "stdio" else url):
        needed = "command" if kind == "stdio" else "url"
        shape.wrong(value.line, f"{at} is of type '{kind}' but has no {needed}.", "Add it.", "INVALID_MCP")
    args = shape.texts(fields["args"], f"{at}.args", empty=True) if "args" in fields else ()
    tables = {name: _texts_by_name(shape, fields, name, at) for name in ("headers", "env")}
    return McpServer(cast(Any, kind), command, args, url, **tables)


def _texts_by_name(shape: Shape, fields: Mapping[str, Value], name: str, at: str) -> dict[str, str]:
    if name not in fields:
        return {}
    found = shape.named(fields[name], f"{at}.{name}")
    return {key: shape.text(one, f"{at}.{name}.{key}", empty=True) for key, one, _ in found}
