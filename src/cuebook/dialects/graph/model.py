"""A workflow graph as values: nodes, edges, and what they say. Frozen, with the line where each was written. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.registry import Input, Problem
from cuebook.kernel.events import PlannedStep

InputType = Literal["string", "number", "boolean", "string[]"]


class Source(msgspec.Struct, frozen=True):
    """A text: written in place, in a file, or at an address. It is read once, before the first node."""

    kind: Literal["inline", "file", "url"]
    value: str
    type: str = ""
    """How it is fetched; only `fetch` is known."""
    line: int = 0


class Sources(msgspec.Struct, frozen=True):
    """The sources of a field; with `only`, none are inherited for it."""

    sources: tuple[Source, ...] = ()
    only: bool = False


class Declared(msgspec.Struct, frozen=True):
    """An input that the workflow declares."""

    name: str
    type: InputType
    description: str = ""
    required: bool = False
    default: Any = None
    """None where there is none: null counts as absent."""
    enum: tuple[Any, ...] = ()
    line: int = 0


class Match(msgspec.Struct, frozen=True):
    """What a value at a path must be."""

    path: str
    operator: Literal["equals", "in", "matches"]
    operand: Any


class Requires(msgspec.Struct, frozen=True):
    """What must hold before a node's model is asked."""

    output_required: tuple[str, ...] = ()
    output_matches: tuple[Match, ...] = ()
    on_fail: Literal["fail", "skip"] = "fail"


class Rule(msgspec.Struct, frozen=True):
    """What a value or function evaluator looks at."""

    any_tool_called: tuple[str, ...] = ()
    all_tools_called: tuple[str, ...] = ()
    no_tool_called: tuple[str, ...] = ()
    output_required: tuple[str, ...] = ()
    output_matches: tuple[Match, ...] = ()


class Evaluator(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["value", "function", "judge"]
    rule: Rule = Rule()
    rubric: str = ""
    pass_when: str = "yes"
    model: str = ""
    line: int = 0


class Retry(msgspec.Struct, frozen=True):
    max: int
    mode: Literal["default", "static", "auto", "reflect"] = "default"
    text: str = ""
    """The static text, or what to reflect on."""


class McpServer(msgspec.Struct, frozen=True):
    """A tool server that a skill brings. The values of `env` say what is needed; they are no values."""

    type: Literal["stdio", "http"]
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    headers: dict[str, str] = {}
    env: dict[str, str] = {}


class InlineSkill(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    description: str = ""
    instruction: str = ""
    mcp: McpServer | None = None
    line: int = 0


class Node(msgspec.Struct, frozen=True):
    id: str
    name: str
    instruction: Source
    skills: tuple[str, ...] = ()
    output: dict[str, Any] | None = None
    max_turns: int | None = None
    model: str = ""
    disallowed_tools: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None
    """`tools.allow`; None where it is not written."""
    deny: tuple[str, ...] = ()
    fail_soft: bool = False
    rules: Sources = Sources()
    context: Sources = Sources()
    eval: tuple[Evaluator, ...] = ()
    judge_model: str = ""
    requires: Requires | None = None
    retry: Retry | None = None
    line: int = 0


class Edge(msgspec.Struct, frozen=True):
    from_: str
    to: str
    when: str = ""
    """Empty: unconditional."""
    max_iterations: int | None = None
    index: int = 0
    """Its place among the document's edges: what counts and choices refer to."""
    line: int = 0


# --- what goes beyond the format, below `x_cuebook` ---


class Guard(msgspec.Struct, frozen=True):
    """Conditions on results that decide an edge without a model: proved false takes it away, proved true alone takes it."""

    edge: int
    """The edge's index."""
    output_matches: tuple[Match, ...] = ()
    output_required: tuple[str, ...] = ()
    line: int = 0


class FanOut(msgspec.Struct, frozen=True):
    """Several nodes at once, then one after all of them.

    A branch also ends where another begins: so a chain of nodes, which runs one by one elsewhere, can run at once here.
    """

    node: str
    """After this node ..."""
    to: tuple[str, ...]
    """... each of these runs, with what follows it, until ..."""
    join: str
    """... this one, which is run once, when all have come."""
    max_concurrency: int = 4
    line: int = 0


class NodeExtras(msgspec.Struct, frozen=True):
    approval: str = ""
    """What a person is asked before the node runs."""
    budget_tokens: int | None = None
    budget_money: float | None = None
    context: tuple[str, ...] | None = None
    """The only nodes (or `node.field` paths) whose results this node is shown; None: all."""
    line: int = 0


class Extras(msgspec.Struct, frozen=True):
    on_failure: Literal["continue", "halt"] = "continue"
    max_steps: int | None = None
    guards: tuple[Guard, ...] = ()
    fan_out: tuple[FanOut, ...] = ()
    nodes: dict[str, NodeExtras] = {}
    router_model: str = ""


class Workflow(msgspec.Struct, frozen=True, dict=True):
    """The document."""

    id: str
    name: str
    entry: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    description: str = ""
    workflow_type: str = "generic"
    rules: tuple[Source, ...] = ()
    context: tuple[Source, ...] = ()
    skills: dict[str, InlineSkill] = {}
    declared: tuple[Declared, ...] | None = None
    """None where the workflow declares nothing: then any input is taken."""
    model: str = ""
    judge_model: str = ""
    judge_budget: int = 50
    extras: Extras = Extras()
    warnings: tuple[Problem, ...] = ()

    @property
    def title(self) -> str:
        return self.name

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """As surfaces show them."""
        return tuple(
            Input(
                one.name,
                one.type,
                one.required,
                None if one.default is None else _shown(one.default),
                tuple(_shown(option) for option in one.enum),
                one.description,
            )
            for one in self.declared or ()
        )

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(node.id, node.name) for node in self.nodes.values())

    @cached_property
    def out_edges(self) -> dict[str, tuple[Edge, ...]]:
        """The edges that leave each node, in the order they are written."""
        found: dict[str, list[Edge]] = {node: [] for node in self.nodes}
        for edge in self.edges:
            found.setdefault(edge.from_, []).append(edge)
        return {node: tuple(edges) for node, edges in found.items()}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
