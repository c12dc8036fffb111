"""Parallel branches of a workflow: each begins at its own node, and all end where they join.

A branch sees earlier results, but not the results of its siblings. Results are merged in document order, so that they
do not depend on which branch was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuebook.dialects.graph.model import FanOut, Workflow
from cuebook.dialects.graph.run.route import FAN_OUT, JOIN, at_limit, routing_context
from cuebook.dialects.graph.run.state import Walk
from cuebook.kernel.effects import All, Branch, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import EffectFailed, Failed

Follow = Callable[[Walk, str], Program[str | None]]


def fan_out(walk: Walk, fan: FanOut, follow: Follow) -> Program[str | None]:
    """Runs the branches, at most `max_concurrency` in parallel, and returns the node at which they join.

    A branch ends when it reaches that node, or the first node of another branch.
    """
    yield from routing_context(walk)
    join = walk.join_at if fan.join in walk.stops else fan.join
    left: dict[str, Any] = {}
    for first in range(0, len(fan.to), fan.max_concurrency):
        wave = fan.to[first : first + fan.max_concurrency]
        for to in wave:
            yield Noted("route", {"from": fan.node, "to": to, "reason": FAN_OUT})
        yield from _together(walk, fan, wave, join, follow, left)
        if _ended(walk, left):
            break
    for one in left.values():
        walk.join(one)
    if walk.stopped or (walk.halts and walk.broken):
        return None
    return join


def _together(
    walk: Walk, fan: FanOut, wave: Sequence[str], join: str, follow: Follow, left: dict[str, Any]
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
            _begin(walk, fan, to, at, join, follow, share + (number < over), left.get(to))
            for number, (to, at) in enumerate(going.items())
        ]
        outcomes = yield All(tuple(map(Branch, begins)))
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise EffectFailed(outcome)
        left.update(zip(going, outcomes, strict=True))
        going = {to: left[to]["following"] for to in going if left[to]["following"]}


def _ended(walk: Walk, left: Mapping[str, Any]) -> bool:
    """Whether a branch has ended the whole run."""
    return any(one["stopped"] or (walk.halts and one["broken"]) for one in left.values())


def _begin(
    walk: Walk, fan: FanOut, to: str, at: str, join: str, follow: Follow, share: int, before: Mapping[str, Any] | None
) -> Callable[[Any], Program[Any]]:
    """The start function of the branch that began at `to` and is now at `at`; `before` is its result so far."""

    def start(state: Any) -> Program[dict[str, Any]]:
        branch = walk.branched(frozenset((fan.join, *fan.to)) - {to}, join)
        if before is not None:
            branch.join(before)
        branch.max_steps, branch.shares, branch.following = branch.steps + share, True, ""
        met = yield from follow(branch, at)
        ended = branch.stopped or branch.following or (branch.halts and branch.broken)
        if met is None and branch.last is not None and not ended:
            yield Noted("route", {"from": branch.last[0], "to": join, "reason": JOIN})
        return branch.left(walk)

    return start


def within_branches(workflow: Workflow) -> frozenset[str]:
    """The nodes that are visited in parallel branches."""
    found: set[str] = set()
    for fan in workflow.extras.fan_out:
        left = list(fan.to)
        while left:
            node = left.pop()
            if node in found or node == fan.join:
                continue
            found.add(node)
            left += (edge.to for edge in workflow.out_edges.get(node, ()))
    return frozenset(found)
