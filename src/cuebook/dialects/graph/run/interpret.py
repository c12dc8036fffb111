"""Interprets a workflow: visits a node, finds the next node, and so on until the end.

The program is deterministic: it acts only through the effects that it yields. `observe` computes the
published events from the kernel's events and from `Noted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cuebook.dialects.graph.model import Node, Workflow
from cuebook.dialects.graph.run.fan_out import fan_out, remaining, within_branches
from cuebook.dialects.graph.run.results import STEP_STATUS, Result, encoded
from cuebook.dialects.graph.run.route import at_limit, route, stops_here
from cuebook.dialects.graph.run.state import CURRENT, Walk
from cuebook.dialects.graph.run.visit import visit
from cuebook.dialects.people import feedback_of
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Breakpoint, Program
from cuebook.kernel.events import ArtifactMade, Noted, Planned, PlannedStep, StepFinished, StepStarted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Resumed
from cuebook.kernel.tool_names import BUILT_IN, FIRST_BUILT_IN


def interpret(
    workflow: Workflow, inputs: Mapping[str, Any], options: Mapping[str, Any], state: Any = None, version: int = CURRENT
) -> Program[dict[str, Any]]:
    """`version` is the version of the interpreter that the run started with."""
    walk = Walk(workflow, inputs, options, version)
    if state is None:
        inner = frozenset() if walk.strict else within_branches(workflow)
        yield Planned(tuple(PlannedStep(node.id, node.name, node.id in inner) for node in workflow.nodes.values()))
        yield from _warnings(workflow)
        too_long = walk.too_long()
        if too_long is not None:
            raise EffectFailed(too_long)
        yield from walk.material.read(walk.offline, FIRST_BUILT_IN if version == 1 else BUILT_IN)
        yield Noted("sources")
        following = workflow.entry
    else:
        following = walk.restore(*state)
    yield from follow(walk, following, keeping=True)
    return (yield from _end(walk))


def _warnings(workflow: Workflow) -> Iterator[Warned]:
    for problem in workflow.warnings:
        where = f"Line {problem.line}: " if problem.line else ""
        yield Warned("playbook", f"{where}{problem.message} {problem.fix}".rstrip())


def follow(walk: Walk, current: str | None, *, keeping: bool = False) -> Program[str | None]:
    """Visits one node after another. Returns None at the end of the workflow, or the join when a branch reaches it.

    A branch that has used up its share of visits stores the next node in `following` and also returns None.
    """
    while current is not None and current != walk.join_at:
        node = walk.workflow.nodes[current]
        if walk.steps >= walk.max_steps:
            if not walk.shares:
                yield from at_limit(walk, node.id)
            walk.following = node.id
            return None
        try:
            result = yield from _at(walk, node)
        except EffectFailed as error:
            current = yield from _back(walk, node, error)
            continue
        if result.status == "failed" and walk.halts:
            return None
        current = yield from _next_node(walk, node)
        if keeping and current is not None and walk.steps >= walk.checkpoint_at:
            yield walk.checkpoint(current)
    return current


def _at(walk: Walk, node: Node) -> Program[Result]:
    """Runs one visit to a node, including its breakpoint."""
    number = walk.enter(node)
    changed = yield StepStarted(node.id, node.name)
    if changed:
        walk.scope.override(changed)
    result = yield from visit(walk, node, number)
    data = Text(encoded(result.data))
    yield StepFinished(node.id, STEP_STATUS[result.status], _reason(result), data)
    walk.keep(node, number, result, data)
    passed: Resumed = yield Breakpoint(node.id)
    if passed.overrides:
        walk.scope.override(passed.overrides)
    return result


def _back(walk: Walk, node: Node, error: EffectFailed) -> Program[str]:
    """Ends the visit to a node whose approver asked for changes; returns the node that they chose. Any other failure is
    raised again.
    """
    feedback = feedback_of(error.failed)
    if feedback is None or feedback.to not in walk.visits:
        raise error
    walk.go_back(node, feedback)
    asked = {"feedback": feedback.text, "by": feedback.by, "step": feedback.to, "node": node.id}
    yield Noted("changes", asked)
    yield StepFinished(node.id, "failed", f"{error.failed.message} (back to node {feedback.to})")
    return feedback.to


def _reason(result: Result) -> str:
    if result.status == "success":
        return ""
    return str(result.data.get("error") or result.data.get("skipped_reason") or "")


def _next_node(walk: Walk, node: Node) -> Program[str | None]:
    if (yield from stops_here(walk, node)):
        return None
    fan = remaining(walk, node)
    return (yield from route(walk, node)) if fan is None else (yield from fan_out(walk, fan, follow))


def _end(walk: Walk) -> Program[dict[str, Any]]:
    """The result of the run. The run fails if the last result of any node is a failure."""
    if walk.broken:
        node, broken = next(iter(walk.broken.items()))
        message, others = broken.failed.message, ", ".join(list(walk.broken)[1:])
        failed = Failed(
            "node_failed",
            f"Node {node} failed: " + (f"{message.rstrip('.')} ({others} failed as well)." if others else message),
            broken.failed.fix,
            details={"nodes": list(walk.broken), "step": node, "visit": broken.visit},
        )
        raise EffectFailed(failed, broken.seq)
    node, data = walk.last or ("", "{}")
    yield ArtifactMade(Text(data), "json")
    return {"node": node, "digest": Text(data).digest, "steps": walk.steps}
