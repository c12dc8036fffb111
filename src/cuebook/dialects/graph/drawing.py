"""A workflow as boxes and arrows: its nodes and edges, and the edges that a run followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Edge, FanOut, Workflow, approval_of, question_of
from cuebook.dialects.graph.parse.structure import reachable
from cuebook.dialects.graph.run.route import FAN_OUT
from cuebook.dialects.presentation.drawing import Arrow, ArrowKind, Box, BoxKind, Drawing

Ends = tuple[str, str]
"""The nodes at both ends of an arrow."""
AT_ONCE = "at once"
"""The label of an arrow that begins a parallel branch."""
_STATUSES = {"success": "completed"}
"""The status of a step, by the status of its node, if the names differ."""


class State(msgspec.Struct):
    """The progress of a run: the status and visits of nodes, and how often each edge was followed."""

    nodes: dict[str, str] = {}
    """The status of each node."""
    visits: dict[str, int] = {}
    taken: dict[int, int] = {}
    """How often each edge was followed, by its index."""
    branched: dict[Ends, int] = {}
    """How often each parallel branch began."""
    joined: dict[Ends, int] = {}
    """How often a branch joined without following an edge."""


def state_of(workflow: Workflow, events: Iterable[Mapping[str, Any]]) -> State:
    """The state after the published events of a run."""
    state = State()
    for event in events:
        match event.get("type"):
            case "node:enter":
                state.nodes[event["node"]] = "running"
                state.visits[event["node"]] = state.visits.get(event["node"], 0) + 1
            case "node:exit":
                status = event["result"]["status"]
                state.nodes[event["node"]] = _STATUSES.get(status, status)
            case "route" if "edge" in event:
                state.taken[event["edge"]] = state.taken.get(event["edge"], 0) + 1
            case "route" if event["to"] in workflow.nodes:
                counts = state.branched if event["reason"] == FAN_OUT else state.joined
                ends = (event["from"], event["to"])
                counts[ends] = counts.get(ends, 0) + 1
    return state


def drawing(workflow: Workflow, state: State | None = None) -> Drawing:
    names = {id: f"n{number}" for number, id in enumerate(workflow.nodes, start=1)}
    boxes = [_box(workflow, id, name, state) for id, name in names.items()]
    return Drawing(workflow.name, tuple(boxes), tuple(_arrows(workflow, names, state)))


def _box(workflow: Workflow, id: str, name: str, state: State | None) -> Box:
    node = workflow.nodes[id]
    approval, asked = approval_of(workflow, node), question_of(workflow, node)
    more = ("asks first",) if approval is not None else ()
    kind: BoxKind = "step" if asked is None else "person"
    seen = state if state is not None else State()
    return Box(
        name,
        (node.name.strip() or id, *more),
        "entry" if id == workflow.entry and asked is None else kind,
        id,
        status=seen.nodes.get(id, ""),
        visits=seen.visits.get(id, 0),
    )


def _arrows(workflow: Workflow, names: Mapping[str, str], state: State | None) -> Iterator[Arrow]:
    """The arrows for edges, and for the start and the join of parallel branches."""
    branches = _Branches(workflow)
    for edge in workflow.edges:
        bound = f"at most {edge.max_iterations}×" if edge.max_iterations is not None else ""
        kind = branches.kind(edge)
        yield Arrow(
            names[edge.from_],
            names[edge.to],
            AT_ONCE if kind == "fan" else edge.when,
            kind,
            bound,
            f"edge {edge.index}",
            None if state is None else state.taken.get(edge.index, 0),
        )
    for from_, to in branches.begun:
        times = None if state is None else state.branched.get((from_, to), 0)
        yield Arrow(names[from_], names[to], AT_ONCE, "fan", "", f"{from_}\0{to}", times)
    seen = sorted(state.joined) if state is not None else []
    for from_, to in dict.fromkeys((*branches.joins, *seen)):
        times = None if state is None else state.joined.get((from_, to), 0)
        yield Arrow(names[from_], names[to], "join", "join", "", f"{from_}\0{to}", times)
    for node in workflow.nodes.values():
        asked = approval_of(workflow, node)
        for to in asked.rule.changes if asked is not None else ():
            yield Arrow(names[node.id], names[to], "changes", "otherwise", id=f"changes {node.id} {to}")


class _Branches:
    """The parallel branches of a workflow: which arrows begin them, and which lead from them to the join."""

    def __init__(self, workflow: Workflow) -> None:
        fans = [one for fan in workflow.fans.values() for one in fan.every]
        self._listed = {to: fan for fan in fans if not fan.edges for to in fan.to}
        self._edges = {index for fan in fans for index in fan.edges}
        self.begun = dict.fromkeys((fan.node, to) for to, fan in self._listed.items())
        """The beginnings of branches that have no edge of their own."""
        regions = [(fan, branch_nodes(workflow, fan)) for fan in fans]
        self._joining = {(node, fan.join) for fan, region in regions for node in region}
        inner: dict[str, str] = {}
        """The join of the innermost branch that each node belongs to."""
        for fan, region in sorted(regions, key=lambda one: -len(one[1])):
            inner |= dict.fromkeys(region, fan.join)
        joins = [(edge.from_, self._listed[edge.to].join) for edge in workflow.edges if self._leaves(edge)]
        ending = [(node, join) for node, join in inner.items() if not workflow.out_edges.get(node)]
        self.joins = dict.fromkeys((*joins, *ending))
        """Where a branch joins without an edge."""

    def _leaves(self, edge: Edge) -> bool:
        """Whether an edge leads from one listed branch to another, which ends the first branch."""
        fan = self._listed.get(edge.to)
        return fan is not None and edge.from_ not in (fan.join, fan.node)

    def kind(self, edge: Edge) -> ArrowKind:
        if edge.index in self._edges:
            return "fan"
        if (edge.from_, edge.to) in self.begun or self._leaves(edge):
            return "sequential"
        return "join" if (edge.from_, edge.to) in self._joining else "way"


def branch_nodes(workflow: Workflow, fan: FanOut) -> set[str]:
    """The nodes of all branches, without the join."""
    ends = frozenset((fan.join, *fan.to))
    return reachable([to for to in fan.to if to != fan.join], workflow.out_edges, ends)
