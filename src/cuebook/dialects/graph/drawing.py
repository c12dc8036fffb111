"""A workflow as boxes and arrows: its nodes and edges, and the edges that a run followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.run.route import FAN_OUT
from cuebook.dialects.presentation.drawing import Arrow, Box, Drawing

Ends = tuple[str, str]
"""The nodes at both ends of an arrow."""
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
    extra = workflow.extras.nodes.get(id)
    more = ("asks first",) if extra is not None and extra.approval else ()
    seen = state if state is not None else State()
    return Box(
        name,
        (workflow.nodes[id].name.strip() or id, *more),
        "entry" if id == workflow.entry else "step",
        id,
        status=seen.nodes.get(id, ""),
        visits=seen.visits.get(id, 0),
    )


def _arrows(workflow: Workflow, names: Mapping[str, str], state: State | None) -> Iterator[Arrow]:
    """The arrows for edges, and for the start and the join of parallel branches. An edge from one branch of a fan-out
    to another ends the first branch, so its arrow leads to the join.
    """
    fans = workflow.extras.fan_out
    begun = dict.fromkeys((fan.node, to) for fan in fans for to in fan.to)
    join = {to: fan.join for fan in fans for to in fan.to}
    joins: dict[Ends, None] = {}
    for edge in workflow.edges:
        leaves = edge.to in join and edge.from_ != join[edge.to] and (edge.from_, edge.to) not in begun
        if leaves:
            joins.setdefault((edge.from_, join[edge.to]))
        bound = f"at most {edge.max_iterations}×" if edge.max_iterations is not None else ""
        yield Arrow(
            names[edge.from_],
            names[edge.to],
            edge.when,
            "sequential" if leaves or (edge.from_, edge.to) in begun else "way",
            bound,
            f"edge {edge.index}",
            None if state is None else state.taken.get(edge.index, 0),
        )
    for from_, to in begun:
        if not workflow.out_edges.get(to):
            joins.setdefault((to, join[to]))
        times = None if state is None else state.branched.get((from_, to), 0)
        yield Arrow(names[from_], names[to], "in parallel", "fan", "", f"{from_}\0{to}", times)
    seen = sorted(state.joined) if state is not None else []
    for from_, to in dict.fromkeys((*joins, *seen)):
        times = None if state is None else state.joined.get((from_, to), 0)
        yield Arrow(names[from_], names[to], "join", "join", "", f"{from_}\0{to}", times)
