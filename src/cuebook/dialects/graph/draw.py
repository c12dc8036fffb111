"""A workflow as a Mermaid graph, with the state of a run where there is one. Pure: the same gives the same text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from cuebook.dialects.graph.model import Edge, Workflow
from cuebook.dialects.mermaid import coloured, escaped, titled

Direction = Literal["TB", "LR"]

_TAKEN = "stroke:#16a34a,stroke-width:2px"
_NOT_TAKEN = "stroke:#9ca3af,stroke-dasharray:4 3"


class State(msgspec.Struct):
    """How far a run has come: what became of nodes, how often they were entered, and which edges were followed."""

    nodes: dict[str, str] = {}
    """`current`, `success`, `failed` or `skipped`."""
    visits: dict[str, int] = {}
    taken: dict[int, int] = {}
    """By the index of the edge."""


def state_of(workflow: Workflow, events: Iterable[Mapping[str, Any]]) -> State:
    """The state after the published events of a run."""
    state = State()
    for event in events:
        match event.get("type"):
            case "node:enter":
                state.nodes[event["node"]] = "current"
                state.visits[event["node"]] = state.visits.get(event["node"], 0) + 1
            case "node:exit":
                state.nodes[event["node"]] = event["result"]["status"]
            case "route":
                index = _edge_of(workflow, event)
                if index is not None:
                    state.taken[index] = state.taken.get(index, 0) + 1
    return state


def _edge_of(workflow: Workflow, event: Mapping[str, Any]) -> int | None:
    """The edge of a route: by its number, or where that is not told, the one with these ends and this reason."""
    if isinstance(event.get("edge"), int):
        return int(event["edge"])
    edges = [edge for edge in workflow.out_edges.get(event["from"], ()) if edge.to == event["to"]]
    said = [edge for edge in edges if edge.when == event.get("reason")]
    return next((edge.index for edge in (*said, *edges)), None)


def mermaid(workflow: Workflow, state: State | None = None, *, direction: Direction = "TB", title: bool = False) -> str:
    """The whole graph. The entry is round; with a state, colours say what became of nodes and edges."""
    return "\n".join(_lines(workflow, state, direction, title)) + "\n"


def _lines(workflow: Workflow, state: State | None, direction: Direction, title: bool) -> Iterator[str]:
    if title:
        yield from titled(workflow.name)
    yield f"graph {direction}"
    names = {id: f"n{number}" for number, id in enumerate(workflow.nodes, start=1)}
    for id, name in names.items():
        yield f"    {name}{_box(workflow, id, state)}"
    for edge in workflow.edges:
        label = _label(edge, state)
        words = f'|"{label}"|' if label else ""
        yield f"    {names[edge.from_]} -->{words} {names[edge.to]}"
    for fan in workflow.extras.fan_out:
        yield from (f'    {names[fan.node]} ==>|"at once"| {names[to]}' for to in fan.to)
    if state is not None:
        yield from _colours(workflow, state, names)


def _box(workflow: Workflow, id: str, state: State | None) -> str:
    words = escaped(workflow.nodes[id].name) or escaped(id)
    visits = state.visits.get(id, 0) if state is not None else 0
    if id == workflow.entry:
        words += " ▶"
    if visits > 1:
        words += f" ×{visits}"
    extra = workflow.extras.nodes.get(id)
    if extra is not None and extra.approval:
        words += "<br/>asks first"
    return f'(["{words}"])' if id == workflow.entry else f'["{words}"]'


def _label(edge: Edge, state: State | None) -> str:
    taken = state.taken.get(edge.index, 0) if state is not None else 0
    parts = [
        escaped(edge.when),
        f"max {edge.max_iterations}x" if edge.max_iterations is not None else "",
        f"taken {taken}x" if taken > 1 else "",
    ]
    return " · ".join(part for part in parts if part)


def _colours(workflow: Workflow, state: State, names: Mapping[str, str]) -> Iterator[str]:
    yield from coloured({names[id]: status for id, status in state.nodes.items() if id in names})
    for style, taken in ((_TAKEN, True), (_NOT_TAKEN, False)):
        links = [str(edge.index) for edge in workflow.edges if (edge.index in state.taken) is taken]
        if links:
            yield f"    linkStyle {','.join(links)} {style}"
