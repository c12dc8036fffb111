"""Checks that nodes and edges form a valid graph. Nothing here recurses, because a chain of nodes may be long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cuebook.dialects.findings import Problem
from cuebook.dialects.graph.model import Edge
from cuebook.formats.suggestions import meant

Lines = Mapping[str, int]
"""The line of each node."""

_SHOWN = 6
"""The maximum number of nodes listed in a message."""


def problems(entry: str, entry_line: int, nodes: Lines, edges: Sequence[Edge]) -> list[Problem]:
    """All problems. Reachability and cycles are checked only if entry and edges are valid."""
    found = [*_entry(entry, entry_line, nodes), *_edges(nodes, edges)]
    return found or [*_unreachable(entry, nodes, edges), *_cycles(entry, nodes, edges)]


def _entry(entry: str, line: int, nodes: Lines) -> Iterator[Problem]:
    if entry and entry not in nodes:
        yield Problem(f"The entry '{entry}' is not a node.", line, _hint(entry, nodes), "MISSING_ENTRY")


def _hint(name: str, nodes: Lines) -> str:
    return meant(name, nodes) or "Use the id of an existing node."


def _edges(nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    for edge in edges:
        if edge.from_ and edge.from_ not in nodes:
            message = f"An edge starts at unknown node '{edge.from_}'."
            yield Problem(message, edge.line, _hint(edge.from_, nodes), "UNKNOWN_EDGE_SOURCE")
        if edge.to and edge.to not in nodes:
            message = f"An edge leads to unknown node '{edge.to}'."
            yield Problem(message, edge.line, _hint(edge.to, nodes), "UNKNOWN_EDGE_TARGET")
        if edge.from_ and edge.from_ == edge.to and edge.max_iterations is None:
            fix = "Add max_iterations, or remove the edge."
            yield Problem(f"An unbounded edge leads from '{edge.from_}' to itself.", edge.line, fix, "SELF_LOOP")


def _unreachable(entry: str, nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    if entry not in nodes:
        return
    reached = reachable([entry], following(edges))
    for node, line in nodes.items():
        if node not in reached:
            fix = "Add an edge to it, or remove it."
            yield Problem(f"The node '{node}' cannot be reached from '{entry}'.", line, fix, "UNREACHABLE_NODE")


def following(edges: Sequence[Edge]) -> dict[str, list[Edge]]:
    """The edges that leave each node."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.from_, []).append(edge)
    return found


def reachable(
    starts: Sequence[str], leaving: Mapping[str, Sequence[Edge]], until: frozenset[str] = frozenset()
) -> set[str]:
    """The nodes that can be reached from `starts`, including `starts`. The search stops before nodes in `until`."""
    reached = set(starts)
    waiting = list(starts)
    while waiting:
        for edge in leaving.get(waiting.pop(), ()):
            if edge.to not in reached and edge.to not in until:
                reached.add(edge.to)
                waiting.append(edge.to)
    return reached


def _cycles(entry: str, nodes: Lines, edges: Sequence[Edge]) -> Iterator[Problem]:
    """A problem for each edge that closes a cycle without a bounded edge."""
    leaving = following([edge for edge in edges if edge.max_iterations is None and edge.from_ != edge.to])
    place: dict[str, int] = {}
    """The position of a node on the current path; -1 once everything reachable from it has been visited."""
    for start in (entry, *nodes):
        if start in place:
            continue
        place[start] = 0
        path = [start]
        rest = [iter(leaving.get(start, ()))]
        while path:
            edge = next(rest[-1], None)
            if edge is None:
                place[path.pop()] = -1
                rest.pop()
            elif edge.to not in place:
                place[edge.to] = len(path)
                path.append(edge.to)
                rest.append(iter(leaving.get(edge.to, ())))
            elif place[edge.to] >= 0:
                yield _cycle(edge, path[place[edge.to] : place[edge.to] + _SHOWN], len(path) - place[edge.to])


def _cycle(edge: Edge, shown: Sequence[str], length: int) -> Problem:
    names = [*shown, "…"] if length > len(shown) else [*shown]
    fix = "Add max_iterations to one of its edges."
    return Problem(
        f"Unbounded cycle: {' -> '.join([*names, edge.to])}.", edge.line, fix, "UNBOUNDED_CYCLE"
    )  # fmt: skip
