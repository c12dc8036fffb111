"""A workflow as a Mermaid graph, with the state of a run where there is one. Pure: the same gives the same text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.routing import FAN_OUT
from cuebook.dialects.mermaid import coloured, escaped, titled

Direction = Literal["TB", "LR"]

_TAKEN = "stroke:#16a34a,stroke-width:2px"
_NOT_TAKEN = "stroke:#9ca3af,stroke-dasharray:4 3"


Ends = tuple[str, str]
"""The nodes that a way leads from and to."""


class State(msgspec.Struct):
    """How far a run has come: what became of nodes, how often they were entered, and which edges were followed."""

    nodes: dict[str, str] = {}
    """`current`, `success`, `failed` or `skipped`."""
    visits: dict[str, int] = {}
    taken: dict[int, int] = {}
    """By the index of the edge."""
    branched: dict[Ends, int] = {}
    """Ways into branches that run at once, by their ends."""
    joined: dict[Ends, int] = {}
    """Ways out of branches that no edge leads, by their ends."""


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
            case "route" if "edge" in event:
                state.taken[event["edge"]] = state.taken.get(event["edge"], 0) + 1
            case "route" if event["to"] in workflow.nodes:
                ways = state.branched if event["reason"] == FAN_OUT else state.joined
                ends = (event["from"], event["to"])
                ways[ends] = ways.get(ends, 0) + 1
    return state


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
    links = list(_links(workflow, state if state is not None else State()))
    for link in links:
        words = f'|"{link.label}"|' if link.label else ""
        yield f"    {names[link.ends[0]]} {link.arrow}{words} {names[link.ends[1]]}"
    if state is not None:
        yield from _colours(state, names, links)


class _Link(msgspec.Struct, frozen=True):
    ends: Ends
    arrow: str
    label: str
    taken: bool


def _links(workflow: Workflow, state: State) -> Iterator[_Link]:
    """In the order they are drawn, which is how colours refer to them."""
    for edge in workflow.edges:
        times = state.taken.get(edge.index, 0)
        bound = f"max {edge.max_iterations}x" if edge.max_iterations is not None else ""
        yield _Link((edge.from_, edge.to), "-->", _label(escaped(edge.when), bound, _taken(times)), times > 0)
    for ends in ((fan.node, to) for fan in workflow.extras.fan_out for to in fan.to):
        times = state.branched.get(ends, 0)
        yield _Link(ends, "==>", _label("at once", _taken(times)), times > 0)
    for ends, times in sorted(state.joined.items()):
        yield _Link(ends, "==>", _label("join", _taken(times)), True)


def _label(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _taken(times: int) -> str:
    return f"taken {times}x" if times > 1 else ""


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


def _colours(state: State, names: Mapping[str, str], links: Sequence[_Link]) -> Iterator[str]:
    yield from coloured({names[id]: status for id, status in state.nodes.items() if id in names})
    for style, taken in ((_TAKEN, True), (_NOT_TAKEN, False)):
        numbers = [str(number) for number, link in enumerate(links) if link.taken is taken]
        if numbers:
            yield f"    linkStyle {','.join(numbers)} {style}"
