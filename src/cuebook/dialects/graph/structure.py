"""Whether nodes and edges make a graph that can be walked. No recursion: a chain may be as long as it likes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cuebook.dialects.graph.model import Edge
from cuebook.dialects.registry import Problem
from cuebook.dialects.wording import meant

Lines = Mapping[str, int]
"""The nodes, each with its line."""

_SHOWN = 6
"""Nodes of a cycle that are named."""


def problems(entry: str, entry_line: int, nodes: Lines, edges: Sequence[Edge]) -> list[Problem]:
    """Everything that is wrong. Ways through the graph are looked at only where each edge is sound by itself."""
    found = [*_entry(entry, entry_line, nodes), *_edges(nodes, edges)]
    return found or [*_unreachable(entry, nodes, edges), *_cycles(entry, nodes, edges)]


def _entry(entry: str, line: int, nodes: Lines) -> Iterator[Problem]:
    if entry and entry not in nodes:
        yield Problem(f"The entry '{entry}' is no node.", line, _which(entry, nodes), "MISSING_ENTRY")


def _which(name: str, nodes: Lines) -> str:
    return meant(name, nodes) or "Name a node that is there."


def _edges(nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    unconditional: dict[str, Edge] = {}
    for edge in edges:
        if edge.from_ and edge.from_ not in nodes:
            message = f"An edge leaves '{edge.from_}', which is no node."
            yield Problem(message, edge.line, _which(edge.from_, nodes), "UNKNOWN_EDGE_SOURCE")
        if edge.to and edge.to not in nodes:
            message = f"An edge goes to '{edge.to}', which is no node."
            yield Problem(message, edge.line, _which(edge.to, nodes), "UNKNOWN_EDGE_TARGET")
        if edge.from_ and edge.from_ == edge.to and edge.max_iterations is None:
            fix = "Add max_iterations, or take the edge out."
            yield Problem(f"'{edge.from_}' goes to itself without end.", edge.line, fix, "SELF_LOOP")
        if edge.when:
            continue
        first = unconditional.setdefault(edge.from_, edge)
        if first is not edge:
            message = f"Two edges leave '{edge.from_}' without a condition: which one to take is not said."
            fix = f"The other is on line {first.line}: give one of them a 'when'."
            yield Problem(message, edge.line, fix, "AMBIGUOUS_EDGES")


def _unreachable(entry: str, nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    if entry not in nodes:
        return
    reached = reachable([entry], following(edges))
    for node, line in nodes.items():
        if node not in reached:
            fix = "Lead an edge to it, or take it out."
            yield Problem(f"No way leads from '{entry}' to the node '{node}'.", line, fix, "UNREACHABLE_NODE")


def following(edges: Sequence[Edge]) -> dict[str, list[Edge]]:
    """The edges that leave each node."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.from_, []).append(edge)
    return found


def reachable(
    starts: Sequence[str], leaving: Mapping[str, Sequence[Edge]], until: frozenset[str] = frozenset()
) -> set[str]:
    """Every node that can be come to from these, and they themselves; at `until` the search ends."""
    reached = set(starts)
    waiting = list(starts)
    while waiting:
        for edge in leaving.get(waiting.pop(), ()):
            if edge.to not in reached and edge.to not in until:
                reached.add(edge.to)
                waiting.append(edge.to)
    return reached


def _cycles(entry: str, nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    """A problem for each edge that closes a circle in which no edge has a bound."""
    leaving = following([edge for edge in edges if edge.max_iterations is None and edge.from_ != edge.to])
    place: dict[str, int] = {}
    """Where a node stands on the way under way; -1 when everything behind it has been seen."""
    for start in (entry, *nodes):
        if start in place:
            continue
        place[start] = 0
        way = [start]
        rest = [iter(leaving.get(start, ()))]
        while way:
            edge = next(rest[-1], None)
            if edge is None:
                place[way.pop()] = -1
                rest.pop()
            elif edge.to not in place:
                place[edge.to] = len(way)
                way.append(edge.to)
                rest.append(iter(leaving.get(edge.to, ())))
            elif place[edge.to] >= 0:
                yield _cycle(edge, way[place[edge.to] : place[edge.to] + _SHOWN], len(way) - place[edge.to])


def _cycle(edge: Edge, shown: Sequence[str], length: int) -> Problem:
    names = [*shown, "…"] if length > len(shown) else [*shown]
    fix = "Add max_iterations to one edge of it."
    return Problem(
        f"A circle has no bound: {' -> '.join([*names, edge.to])}.", edge.line, fix, "UNBOUNDED_CYCLE"
    )  # fmt: skip
