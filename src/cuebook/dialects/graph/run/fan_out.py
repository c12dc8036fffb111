"""Parallel branches of a workflow: each begins at its own node, and all end where they join.

A branch sees earlier results, but not the results of its siblings. Results are merged in document order, so that they
do not depend on which branch was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.model import FanOut, Node, Workflow
from cuebook.dialects.graph.run.route import FAN_OUT, JOIN, at_limit, count, proved, routing_context, spent
from cuebook.dialects.graph.run.state import Walk
from cuebook.dialects.graph.run.worktrees import merged, opened
from cuebook.kernel.effects import All, Branch, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import EffectFailed, Failed

Follow = Callable[[Walk, str | None], Program[str | None]]


def remaining(walk: Walk, node: Node) -> FanOut | None:
    """The branches that begin after a node; None if it has at most one way on.

    A branch does not begin if its edge is exhausted or its guard is proved false.
    """
    fan = walk.fans.get(node.id)
    if fan is None or not fan.edges:
        return fan
    edges = [walk.workflow.edges[index] for index in fan.edges]
    left = {edge.index for edge in edges if not spent(walk, edge)}
    left -= {index for index in left if index in walk.guards and proved(walk.guards[index], walk.scope) is False}
    return _only(fan, left)


def _only(fan: FanOut, edges: set[int]) -> FanOut | None:
    """The branches that begin with these edges; None if there are not several."""
    left = [(to, index) for to, index in zip(fan.to, fan.edges, strict=True) if index in edges]
    if len(left) < 2:
        return None
    groups = [group for one in fan.groups if (group := _only(one, edges)) is not None]
    to, indices = zip(*left, strict=True)
    return msgspec.structs.replace(fan, to=to, edges=indices, groups=tuple(groups))


def fan_out(walk: Walk, fan: FanOut, follow: Follow) -> Program[str | None]:
    """Runs the branches, at most `max_concurrency` in parallel, and returns the node at which they join.

    A branch ends when it reaches that node, or the first node of another branch. An edge that leads straight to that node
    is a branch without nodes.
    """
    yield from routing_context(walk)
    join = walk.join_at if fan.join in walk.stops else fan.join
    edges = {walk.workflow.edges[index].to: walk.workflow.edges[index] for index in fan.edges}
    group_of = {to: group for group in fan.groups for to in group.to}
    branches = {group_of[to].to[0] if to in group_of else to: group_of.get(to) for to in fan.to}
    for to, edge in edges.items():
        if to not in group_of:
            count(walk, edge)
    left: dict[str, Any] = {}
    firsts = list(branches)
    worktrees = yield from opened(walk, (to for to in firsts if branches[to] is None and to != fan.join))
    for number in range(0, len(firsts), fan.max_concurrency):
        wave = firsts[number : number + fan.max_concurrency]
        for to in wave:
            if branches[to] is None:  # the branches of a group record their own
                which = {"edge": edges[to].index, "asked": False} if to in edges else {}
                yield Noted("route", {"from": fan.node, "to": to, "reason": FAN_OUT, **which})
        begun = {to: branches[to] for to in wave if to not in edges or (to != fan.join and to not in walk.stops)}
        yield from _together(walk, fan, begun, join, follow, left, worktrees)
        if _ended(walk, left):
            break
    for one in left.values():
        walk.join(one)
    halted = walk.halts and bool(walk.broken)
    if not halted:  # a run that fails keeps its worktrees, so that a retry continues in them
        yield from merged(worktrees)
    return None if walk.stopped or halted else join


def _together(
    walk: Walk,
    fan: FanOut,
    wave: Mapping[str, FanOut | None],
    join: str,
    follow: Follow,
    left: dict[str, Any],
    worktrees: Mapping[str, str],
) -> Program[None]:
    """Runs branches in parallel and adds the result of each to `left`, by its first node.

    They share the remaining visits evenly, so that the limit is never exceeded and speed does not decide which branch
    reaches it. A branch that has used up its share continues with the visits that the others did not need.
    """
    going = {to: to for to in wave}
    while going and not _ended(walk, left):
        visited = walk.steps + sum(one["steps"] for one in left.values())
        share, over = divmod(walk.max_steps - visited, len(going))
        if share < 1:
            yield from at_limit(walk, next(iter(going.values())), visited)
        begins = [
            Branch(
                _begin(walk, fan, wave[to] or to, at, join, follow, share + (number < over), left.get(to)),
                worktrees.get(to, ""),
            )
            for number, (to, at) in enumerate(going.items())
        ]
        outcomes = yield All(tuple(begins))
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise EffectFailed(outcome)
        left.update(zip(going, outcomes, strict=True))
        going = {to: left[to]["following"] for to in going if left[to]["following"]}


def _ended(walk: Walk, left: Mapping[str, Any]) -> bool:
    """Whether a branch has ended the whole run."""
    return any(one["stopped"] or (walk.halts and one["broken"]) for one in left.values())


def _begin(
    walk: Walk,
    fan: FanOut,
    which: str | FanOut,
    at: str,
    join: str,
    follow: Follow,
    share: int,
    before: Mapping[str, Any] | None,
) -> Callable[[Any], Program[Any]]:
    """The start function of a branch, which is given by its first node or as a group and is now at `at`.

    `before` is its result so far.
    """
    own = which.to if isinstance(which, FanOut) else (which,)

    def start(state: Any) -> Program[dict[str, Any]]:
        branch = walk.branched(frozenset((fan.join, *fan.to)).difference(own), join)
        if before is not None:
            branch.join(before)
        branch.max_steps, branch.shares, branch.following = branch.steps + share, True, ""
        current: str | None = at
        if isinstance(which, FanOut) and before is None:
            current = yield from fan_out(branch, which, follow)
        met = yield from follow(branch, current)
        ended = branch.stopped or branch.following or (branch.halts and branch.broken)
        if met is None and branch.last is not None and not ended:
            yield Noted("route", {"from": branch.last[0], "to": join, "reason": JOIN})
        return branch.left(walk)

    return start


def within_branches(workflow: Workflow) -> frozenset[str]:
    """The nodes that are visited in parallel branches."""
    found: set[str] = set()
    for fan in workflow.fans.values():
        left = list(fan.to)
        while left:
            node = left.pop()
            if node in found or node == fan.join:
                continue
            found.add(node)
            left += (edge.to for edge in workflow.out_edges.get(node, ()))
    return frozenset(found)
