"""The document of a workflow graph: nodes and edges as frozen values with line numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.dialect import Document, Input
from cuebook.dialects.findings import Problem
from cuebook.kernel.effects import Effort
from cuebook.kernel.events import PlannedStep
from cuebook.kernel.votes import Rule as Deciders

InputType = Literal["string", "number", "boolean", "string[]"]


class Source(msgspec.Struct, frozen=True):
    """A source of text: inline, a file, or a URL. It is read once, before the first node."""

    kind: Literal["inline", "file", "url"]
    value: str
    type: str = ""
    """How it is fetched; `fetch` is the only type."""
    line: int = 0


class Sources(msgspec.Struct, frozen=True):
    """The sources of a field. With `only`, the field inherits no sources."""

    sources: tuple[Source, ...] = ()
    only: bool = False


class Declared(msgspec.Struct, frozen=True):
    """An input that the workflow declares."""

    name: str
    type: InputType
    description: str = ""
    required: bool = False
    default: Any = None
    """None if there is no default, because null counts as absent."""
    enum: tuple[Any, ...] = ()
    line: int = 0


class Match(msgspec.Struct, frozen=True):
    """A condition on the value at a path."""

    path: str
    operator: Literal["equals", "in", "matches"]
    operand: Any


class Requires(msgspec.Struct, frozen=True):
    """The conditions for running a node."""

    output_required: tuple[str, ...] = ()
    output_matches: tuple[Match, ...] = ()
    on_fail: Literal["fail", "skip"] = "fail"


class Rule(msgspec.Struct, frozen=True):
    """The rule of a value or function evaluator."""

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
    """The static text, or the instruction for the reflection."""


class McpServer(msgspec.Struct, frozen=True):
    """A tool server that a skill defines. `env` describes the variables that it needs, without their values."""

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
    """`tools.allow`; None if absent."""
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
    """Empty for an unconditional edge."""
    max_iterations: int | None = None
    index: int = 0
    """Its index in the document. Counts and choices refer to it."""
    line: int = 0


# --- extensions of the format, below `x_cuebook` ---


class Guard(msgspec.Struct, frozen=True):
    """Conditions on results that decide an edge without a model. An edge whose guard is proved false is excluded; if
    only one guard is proved true, its edge is followed."""

    edge: int
    """The edge's index."""
    output_matches: tuple[Match, ...] = ()
    output_required: tuple[str, ...] = ()
    line: int = 0


class FanOut(msgspec.Struct, frozen=True):
    """Parallel branches and the node at which they join.

    The workflow lists them, or they are edges without conditions that leave one node. A branch also ends where another
    begins, so a chain of nodes that runs sequentially elsewhere can run in parallel here.
    """

    node: str
    """The node after which the branches start."""
    to: tuple[str, ...]
    """The first node of each branch."""
    join: str
    """The node that runs once, after all branches have ended."""
    max_concurrency: int = 4
    line: int = 0
    edges: tuple[int, ...] = ()
    """The indices of the edges that begin the branches, in the order of `to`; empty if the workflow lists the branches."""
    groups: tuple[FanOut, ...] = ()
    """Branches that join earlier than the others, and continue from there as one branch."""

    @property
    def every(self) -> Iterator[FanOut]:
        """These branches, and all groups among them."""
        yield self
        for group in self.groups:
            yield from group.every


class Approval(msgspec.Struct, frozen=True):
    """What the approver of a node reads and sees, who decides, and where a request for changes leads."""

    text: str
    show: tuple[str, ...] = ()
    """The evidence: nodes, or `node.field` paths."""
    rule: Deciders = Deciders()
    changes_at_most: int = 0
    """How often changes can be requested."""
    line: int = 0


class Asked(msgspec.Struct, frozen=True):
    """A question to a person. The answer is the result of the node; the node's `output` is the schema of the answer."""

    text: str = ""
    """The question; if empty, the node's instruction."""
    default: str | None = None
    by: tuple[str, ...] = ()
    """Who may answer: names, and roles as `role:NAME`."""
    expires: float | None = None
    """Seconds; None for the setting of the run."""
    line: int = 0


class NodeExtras(msgspec.Struct, frozen=True):
    approval: Approval | None = None
    """The approval that the node waits for before it runs."""
    input: Asked | None = None
    """The question that is asked instead of a model."""
    budget_tokens: int | None = None
    budget_money: float | None = None
    context: tuple[str, ...] | None = None
    """The nodes (or `node.field` paths) whose results this node sees; None for all."""
    line: int = 0
    parallel: bool | None = None
    """Whether its edges without conditions are taken at once; None for the setting of the workflow."""
    effort: Effort | None = None
    """How much its model reasons; None for the setting of the workflow."""
    workspace: Literal["", "worktree"] = ""
    """`worktree` if the parallel branch that begins with this node works in a git worktree of its own."""


class Extras(msgspec.Struct, frozen=True):
    on_failure: Literal["continue", "halt"] = "continue"
    max_steps: int | None = None
    guards: tuple[Guard, ...] = ()
    parallel: bool = False
    """Whether several edges without conditions that leave one node are taken at once."""
    fan_out: tuple[FanOut, ...] = ()
    nodes: dict[str, NodeExtras] = {}
    router_model: str = ""
    effort: Effort | None = None
    """How much the models of nodes reason; None for the setting of the run."""
    workspace: Literal["", "worktree"] = ""
    """`worktree` if a run works in a git worktree of its own."""
    sensitive: tuple[str, ...] = ()
    """The inputs whose values are shown nowhere."""


class Workflow(Document, msgspec.Struct, frozen=True, dict=True):
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
    """None if the workflow declares no inputs and so accepts any input."""
    model: str = ""
    judge_model: str = ""
    judge_budget: int = 50
    extras: Extras = Extras()
    forks: tuple[FanOut, ...] = ()
    """The nodes that several edges without conditions leave. Such a workflow runs only if these are taken at once."""
    warnings: tuple[Problem, ...] = ()

    @property
    def admits_agents(self) -> bool:
        return True

    @property
    def own_worktree(self) -> bool:
        return self.extras.workspace == "worktree" or any(one.workspace for one in self.extras.nodes.values())

    @property
    def title(self) -> str:
        return self.name

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The declared inputs as surfaces show them."""
        return tuple(
            Input(
                one.name,
                one.type,
                one.required,
                None if one.default is None else _shown(one.default),
                tuple(_shown(option) for option in one.enum),
                one.description,
                one.name in self.extras.sensitive,
            )
            for one in self.declared or ()
        )

    @property
    def sensitive(self) -> frozenset[str]:
        return frozenset(self.extras.sensitive)

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(node.id, node.name) for node in self.nodes.values())

    @cached_property
    def out_edges(self) -> dict[str, tuple[Edge, ...]]:
        """The edges that leave each node, in document order."""
        found: dict[str, list[Edge]] = {node: [] for node in self.nodes}
        for edge in self.edges:
            found.setdefault(edge.from_, []).append(edge)
        return {node: tuple(edges) for node, edges in found.items()}

    @cached_property
    def fans(self) -> dict[str, FanOut]:
        """All parallel branches, by the node after which they start."""
        return {fan.node: fan for fan in (*self.forks, *self.extras.fan_out)}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- descriptions ---


def in_reach(workflow: Workflow) -> Iterator[Node]:
    """The nodes that can be reached from the entry, nearest first."""
    fans = {fan.node: (*fan.to, fan.join) for fan in workflow.extras.fan_out}
    coming, seen = [workflow.entry], {workflow.entry}
    for id in coming:
        yield workflow.nodes[id]
        for to in (*fans.get(id, ()), *(edge.to for edge in workflow.out_edges.get(id, ()))):
            if to not in seen:
                seen.add(to)
                coming.append(to)


def edge_words(edge: Edge) -> str:
    """The target and the condition of an edge."""
    bound = f" (at most {edge.max_iterations} times)" if edge.max_iterations is not None else ""
    return f"if {edge.when}: {edge.to}{bound}" if edge.when else f"{edge.to}{bound}"


def fan_words(fan: FanOut) -> str:
    """The branches that run at once, and where they join."""
    branches = ", ".join(to for to in fan.to if to != fan.join)
    _, *groups = fan.every
    earlier = "".join(f"; {' and '.join(group.to)} join at {group.join}" for group in reversed(groups))
    return f"at once {branches}{earlier}; then {fan.join}"


def approval_of(workflow: Workflow, node: Node) -> Approval | None:
    """The approval that the node waits for before it runs."""
    extras = workflow.extras.nodes.get(node.id)
    return extras.approval if extras is not None else None


def question_of(workflow: Workflow, node: Node) -> Asked | None:
    """The question that the node asks a person instead of a model."""
    extras = workflow.extras.nodes.get(node.id)
    return extras.input if extras is not None else None


def effort_of(workflow: Workflow, node: Node) -> Effort | None:
    """How much the node's model reasons; None for the setting of the run."""
    extras = workflow.extras.nodes.get(node.id)
    return (extras.effort if extras is not None else None) or workflow.extras.effort


def outputs(schema: dict[str, Any] | None) -> Iterator[str]:
    properties = (schema or {}).get("properties")
    if isinstance(properties, dict):
        yield from properties
