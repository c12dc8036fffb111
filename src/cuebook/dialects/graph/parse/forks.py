"""Finds the nodes that several edges without conditions leave, and where the branches join if these are taken at once.

Branches join at the first node that all of them reach. Branches that share a node before that join earlier, as a group,
so that each node is visited once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cuebook.dialects.findings import Problem
from cuebook.dialects.graph.model import Edge, FanOut, Workflow

CODE = "AMBIGUOUS_EDGES"
NO_JOIN = "NO_JOIN"

AT_ONCE = 16
"""The maximum number of edges of one node that are taken at once; the others follow when these branches have ended."""

_SHOWN = 6
"""The maximum number of lines or nodes listed in a message."""

_WORK = 3_000_000
"""The maximum number of edges that are looked at."""

_DEEPEST = 20
"""The maximum number of joins one after the other, of the branches of one node."""


def forks_of(workflow: Workflow) -> tuple[tuple[FanOut, ...], list[Problem]]:
    """The forks of a workflow, and a problem for each node whose edges cannot be taken at once in any run."""
    forks: list[FanOut] = []
    problems: list[Problem] = []
    listed = {fan.node for fan in workflow.extras.fan_out}
    onward, work = _onward(workflow), _Work(_WORK)
    for node, edges in _several(workflow).items():
        if node in listed:
            continue
        try:
            found = _fan(workflow, onward, work, node, edges)
        except _TooMuch:
            fix = "Add a 'when' to all but one of them. In a workflow of this size, fewer nodes may have several."
            problems.append(_ambiguous(node, edges, fix))
            break
        if isinstance(found, FanOut):
            forks.append(found)
        elif found.code == NO_JOIN and not allowed(workflow, node):
            fix = f"Add a 'when' to all but one of them. They cannot be taken at once: {found.message}"
            problems.append(_ambiguous(node, edges, fix))
        else:
            problems.append(found)
    return tuple(forks), problems


def allowed(workflow: Workflow, node: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether a run with these options takes the edges of a node at once."""
    extras = workflow.extras
    own = extras.nodes[node].parallel if node in extras.nodes else None
    return bool(extras.parallel or (options or {}).get("parallel")) if own is None else own


def ambiguous(workflow: Workflow, options: Mapping[str, Any]) -> Iterator[Problem]:
    """A problem for each fork whose edges a run with these options would not take at once."""
    edges = _several(workflow)
    if options.get("strict_spec"):
        fix = "Add a 'when' to all but one of them, or run without --strict-spec: the format has no parallel edges."
        yield from (_ambiguous(node, several, fix) for node, several in edges.items())
        return
    for fork in workflow.forks:
        if not allowed(workflow, fork.node, options):
            yield _ambiguous(fork.node, edges[fork.node], _ways_out(workflow, fork))


def _ways_out(workflow: Workflow, fork: FanOut) -> str:
    own = workflow.extras.nodes.get(fork.node)
    how = "set `parallel: true` below x_cuebook, or run with --parallel"
    if own is not None and own.parallel is False:
        how = f"remove `parallel: false` from x_cuebook.nodes.{fork.node}"
    return (
        f"To take them at once, {how}: the branches join at '{fork.join}'. To choose the branches or limit how many run at"
        " once, list them below x_cuebook.fan_out. To take only one, add a 'when' to the others."
    )


def _several(workflow: Workflow) -> dict[str, list[Edge]]:
    """The edges without conditions that leave each node, where there are several."""
    found: dict[str, list[Edge]] = {}
    for edge in workflow.edges:
        if not edge.when:
            found.setdefault(edge.from_, []).append(edge)
    return {node: edges for node, edges in found.items() if len(edges) > 1}


def _ambiguous(node: str, edges: Sequence[Edge], fix: str) -> Problem:
    count = "Two" if len(edges) == 2 else str(len(edges))
    words = f"{count} edges without a condition leave '{node}' ({_lines(edges)}), so the next node is ambiguous."
    return Problem(words, edges[1].line, fix, CODE)


def _lines(edges: Sequence[Edge]) -> str:
    numbers = list(dict.fromkeys(edge.line for edge in edges))
    listed = ", ".join([*map(str, numbers[:_SHOWN]), *(["…"] if len(numbers) > _SHOWN else [])])
    return f"line {listed}" if len(numbers) == 1 else f"lines {listed}"


def misplaced_worktrees(workflow: Workflow) -> list[Problem]:
    """A problem for each node that asks for a worktree although no parallel branch begins with it."""
    first: dict[str, bool] = {}
    for fan in workflow.fans.values():
        for one in fan.every:  # a group after the branches that it is one of
            first.update((to, to != one.join) for to in one.to)
    return [
        Problem(
            f"x_cuebook.nodes.{node}.workspace: no parallel branch begins with '{node}', so it cannot have a worktree of its own.",
            extras.line,
            "Move it to the first node of a branch, or write `workspace: worktree` below x_cuebook for the whole run.",
            "INVALID_EXTENSION",
        )
        for node, extras in workflow.extras.nodes.items()
        if extras.workspace and not first.get(node)
    ]


# --- joins ---


Onward = Mapping[str, Sequence[str]]
"""The nodes that may follow each node."""


def _onward(workflow: Workflow) -> Onward:
    found: dict[str, dict[str, None]] = {}
    for edge in workflow.edges:
        found.setdefault(edge.from_, {})[edge.to] = None
    for fan in workflow.extras.fan_out:
        found.setdefault(fan.node, {}).update(dict.fromkeys((*fan.to, fan.join)))
    return {node: tuple(following) for node, following in found.items()}


def _fan(workflow: Workflow, onward: Onward, work: _Work, node: str, edges: Sequence[Edge]) -> FanOut | Problem:
    """The branches that begin with these edges, or why these cannot be taken at once."""
    conditional = [edge for edge in workflow.out_edges.get(node, ()) if edge.when]
    if conditional:
        targets = " and ".join(dict.fromkeys(f"'{edge.to}'" for edge in edges[:_SHOWN]))
        words = (
            f"Edges with and without a condition leave '{node}', and {len(edges)} of them have none ({_lines(edges)})."
            " Beside conditions, an edge without one is taken if none of them holds, so there can be only one, even if edges"
            " are taken at once."
        )
        fix = (
            f"To take only one of them, add a 'when' to the others. To take {targets} at once if no condition holds, lead one edge"
            f" from '{node}' to a new node, and write that node as 'from' of theirs ({_lines(edges)}). To take them in any case,"
            f" lead them to a new node where they join, and write that node as 'from' of the edges with a condition"
            f" ({_lines(conditional)})."
        )
        return Problem(words, edges[1].line, fix, CODE)
    first: dict[str, Edge] = {}
    for edge in edges:
        if edge.to == node:
            words = f"An edge without a condition leads from '{node}' to itself, beside others ({_lines(edges)})."
            return Problem(words, edge.line, "Add a 'when' to it.", CODE)
        if first.setdefault(edge.to, edge) is not edge:
            words = f"Two edges without a condition lead from '{node}' to '{edge.to}'."
            return Problem(words, edge.line, f"The other edge is on line {first[edge.to].line}: remove one.", CODE)
    return _Plan(onward, work, node, edges).fan()


class _Plan:
    """Works out where the branches that begin at one node join."""

    def __init__(self, onward: Onward, work: _Work, fork: str, edges: Sequence[Edge]) -> None:
        self._onward, self._work, self._fork = onward, work, fork
        self._edges = {edge.to: edge.index for edge in edges}
        self._line = edges[1].line

    def fan(self) -> FanOut | Problem:
        try:
            return self._fan(list(self._edges), frozenset({self._fork}), 0)
        except _NoJoin as error:
            return Problem(error.message, self._line, error.fix, NO_JOIN)

    def _fan(self, starts: list[str], ends: frozenset[str], depth: int) -> FanOut:
        """The branches from `starts`, which end before `ends`. Those that meet earlier than the others form groups."""
        owners = self._owners(starts, ends)
        everyone = (1 << len(starts)) - 1
        common = {node for node, mask in owners.items() if mask == everyone}
        before = [*starts, *(node for node in owners if node not in common)]
        self._check_return(node for node in before if node not in common)
        # The first common nodes: the start of a branch, or a node after one that only some branches reach.
        first = [[node] if node in common else [to for to in self._next(node) if to in common] for node in before]
        met = list(dict.fromkeys(to for some in first for to in some))
        if len(met) != 1:
            raise self._apart(starts, owners, met)
        (join,) = met
        groups = [
            self._fan(group, ends | {join}, depth + 1)
            for group in _overlapping(starts, owners, common)
            if len(group) > 1
        ]
        if groups and depth >= _DEEPEST:
            raise _NoJoin(f"The branches of '{self._fork}' meet in too many steps.", "Write it as nested forks.")
        edges = tuple(self._edges[start] for start in starts)
        return FanOut(self._fork, tuple(starts), join, AT_ONCE, self._line, edges, tuple(groups))

    def _owners(self, starts: Sequence[str], ends: frozenset[str]) -> dict[str, int]:
        """The branches that reach each node, as a bit for each start."""
        owners: dict[str, int] = {}
        waiting = [(start, 1 << number) for number, start in enumerate(starts)]
        waiting.reverse()
        while waiting:
            node, mask = waiting.pop()
            known = owners.get(node, 0)
            if known | mask == known:
                continue
            owners[node] = known | mask
            following = self._next(node)
            self._work.spend(1 + len(following))
            waiting += ((to, known | mask) for to in following if to not in ends)
        return owners

    def _next(self, node: str) -> Sequence[str]:
        return self._onward.get(node, ())

    def _check_return(self, nodes: Iterable[str]) -> None:
        back = next((node for node in nodes if self._fork in self._next(node)), "")
        if back:
            raise _NoJoin(
                f"'{back}' leads back to '{self._fork}' from within one of the branches that begin there.",
                f"Remove that edge, or lead back to '{self._fork}' after the branches have joined.",
            )

    def _apart(self, starts: Sequence[str], owners: Mapping[str, int], met: Sequence[str]) -> _NoJoin:
        """Why these branches do not join."""
        names = ", ".join([*(f"'{start}'" for start in starts[:_SHOWN]), *(["…"] if len(starts) > _SHOWN else [])])
        if met:
            return _NoJoin(
                f"The branches {names} of '{self._fork}' meet at '{met[0]}' and at '{met[1]}', and no node comes first.",
                "Lead all of them to one node.",
            )
        nearest = max(owners, key=lambda node: owners[node].bit_count())
        mask = owners[nearest]
        if mask.bit_count() < 2:
            return _NoJoin(
                f"The branches {names} of '{self._fork}' never meet, so they cannot join.",
                "Lead the last node of each branch to one common node.",
            )
        lost = next(start for number, start in enumerate(starts) if not mask >> number & 1)
        return _NoJoin(
            f"The branches {names} of '{self._fork}' do not all join: '{nearest}' does not follow '{lost}'.",
            f"Lead '{lost}' to '{nearest}', or all branches to another node.",
        )


def _overlapping(starts: Sequence[str], owners: Mapping[str, int], common: Collection[str]) -> list[list[str]]:
    """The branches in groups: two that reach the same node before the join are in one group."""
    groups = [1 << number for number in range(len(starts))]
    for mask in {mask for node, mask in owners.items() if node not in common}:
        together = [group for group in groups if group & mask]
        if len(together) > 1:
            groups = [group for group in groups if not group & mask]
            groups.append(sum(together))
    # In the order of their first branches.
    groups.sort(key=lambda group: group & -group)
    return [[start for number, start in enumerate(starts) if group >> number & 1] for group in groups]


class _NoJoin(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class _TooMuch(Exception):
    """There are too many edges to look at."""


class _Work:
    """Limits the number of edges that are looked at, so that no document takes long to check."""

    def __init__(self, most: int) -> None:
        self._left = most

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise _TooMuch
