"""Several ways at once: each begins at a node of its own and ends where all of them meet.

Every branch sees what was there before, and nothing of its siblings. What they leave is taken in by the order they are
written in, so that the result does not depend on which was faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuebook.dialects.graph.model import FanOut, Workflow
from cuebook.dialects.graph.routing import JOIN, caught_up
from cuebook.dialects.graph.walk import Walk
from cuebook.kernel.effects import All, Branch, EffectFailed, Failed, Program
from cuebook.kernel.events import Noted

Follow = Callable[[Walk, str], Program[str | None]]


def fan_out(walk: Walk, fan: FanOut, follow: Follow) -> Program[str | None]:
    """Runs the branches, at most so many at once; gives the node where they meet.

    A branch ends where it comes to that node, or to the beginning of another branch.
    """
    for to in fan.to:
        yield Noted("route", {"from": fan.node, "to": to, "reason": "fan out"})
    yield from caught_up(walk)
    left: list[Any] = []
    for first in range(0, len(fan.to), fan.max_concurrency):
        wave = fan.to[first : first + fan.max_concurrency]
        taken = sum(one["steps"] for one in left) + len(wave) - 1
        outcomes = yield All(tuple(Branch(_begin(walk, fan, to, follow, taken)) for to in wave))
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise EffectFailed(outcome)
        left += outcomes
        if any(one["stopped"] or (walk.halts and one["broken"]) for one in left):
            break
    for one in left:
        walk.join(one)
    if walk.steps > walk.max_steps:
        raise EffectFailed(walk.too_far(fan.join))
    if walk.stopped or (walk.halts and walk.broken):
        return None
    return walk.join_at if fan.join in walk.stops else fan.join


def _begin(walk: Walk, fan: FanOut, to: str, follow: Follow, taken: int) -> Callable[[Any], Program[Any]]:
    """`taken` are the visits that earlier branches made, and the one that each of its siblings makes at least."""

    def start(state: Any) -> Program[dict[str, Any]]:
        branch = walk.branched(frozenset((fan.join, *fan.to)) - {to}, fan.join)
        branch.max_steps -= taken
        met = yield from follow(branch, to)
        ended = branch.stopped or (branch.halts and branch.broken)
        if met is None and branch.last is not None and not ended:
            yield Noted("route", {"from": branch.last[0], "to": fan.join, "reason": JOIN})
        return branch.left(walk)

    return start


def within_branches(workflow: Workflow) -> frozenset[str]:
    """The nodes that are visited in branches, and so are no steps of the run's own line."""
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
