"""A workflow before it runs: what each node would be asked, with which tools, and how often a model may be asked at most.

A program like any other: it asks for the texts it needs by effects, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.assembly import assemble
from cuebook.dialects.graph.fan_out import within_branches
from cuebook.dialects.graph.material import Skill
from cuebook.dialects.graph.model import Edge, Node, Workflow
from cuebook.dialects.graph.tools import toolset
from cuebook.dialects.graph.trying import MAX_TURNS, asking
from cuebook.dialects.graph.walk import MAX_STEPS, Walk
from cuebook.kernel.conversation import REPAIRS
from cuebook.kernel.effects import AskModel, CallTool, Program


class Prepared(msgspec.Struct, frozen=True):
    """A node as its model would be asked at its first visit, if nothing had run before it."""

    node: Node
    ask: AskModel
    calls: tuple[CallTool, ...]
    warnings: tuple[str, ...]


class Preparation(msgspec.Struct, frozen=True):
    nodes: list[Prepared]
    """From the entry on, nearest first."""
    skills: dict[str, Skill | None]
    """Those that nodes name; None where there is no such skill, or none that can be read."""
    flaws: dict[str, str]
    """Why those that are there cannot be read."""


def prepare(workflow: Workflow, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Program[Preparation]:
    """`EffectFailed` where a run could not even begin, as with a source that cannot be read."""
    walk = Walk(workflow, inputs, options)
    material = walk.material
    yield from material.read(walk.offline)
    made = []
    for node in in_reach(workflow):
        tools = yield from toolset(material, node)
        base = material.content(node.instruction)
        prompt = assemble(base, material.rules(node), material.background(node), tools.instructions, walk.scope.input)
        warnings = tuple(warned.message for warned in tools.warnings)
        made.append(Prepared(node, asking(walk, node, prompt, tools), tuple(tools.calls.values()), warnings))
    named = dict.fromkeys(skill for node in workflow.nodes.values() for skill in node.skills)
    flaws = {skill: flaw for skill in named if (flaw := material.flaw(skill))}
    return Preparation(made, {skill: material.skill(skill) for skill in named}, flaws)


def in_reach(workflow: Workflow) -> Iterator[Node]:
    """The nodes from the entry on, nearest first."""
    fans = {fan.node: (*fan.to, fan.join) for fan in workflow.extras.fan_out}
    coming, seen = [workflow.entry], {workflow.entry}
    for id in coming:
        yield workflow.nodes[id]
        for to in (*fans.get(id, ()), *(edge.to for edge in workflow.out_edges.get(id, ()))):
            if to not in seen:
                seen.add(to)
                coming.append(to)


# --- bounds -------------------------------------------------------------------------------------------------


class Most(msgspec.Struct, frozen=True):
    """What a run may come to at most."""

    visits: int
    calls: int
    """Of models, where every node uses all its turns and attempts."""
    without_tools: int
    """Of models, where no node calls a tool."""


def most(workflow: Workflow, options: Mapping[str, Any]) -> Most:
    limit: int = options.get("max_steps") or workflow.extras.max_steps or MAX_STEPS
    visits = min(limit, most_visits(workflow)) if not workflow.extras.fan_out else most_visits(workflow)
    turns = [_calls(workflow, node, node.max_turns or MAX_TURNS) for node in workflow.nodes.values()]
    single = [_calls(workflow, node, min(node.max_turns or MAX_TURNS, 1 + REPAIRS)) for node in workflow.nodes.values()]
    return Most(visits, _of_the_dearest(visits, turns), _of_the_dearest(visits, single))


def most_visits(workflow: Workflow) -> int:
    """Between two bounded edges no node is visited twice, and each of these is followed so often and no more."""
    bounded = sum(edge.max_iterations or 0 for edge in workflow.edges)
    if not workflow.extras.fan_out:
        return _longest(workflow) * (bounded + 1)
    # Branches may come to the same nodes, each by itself.
    width = max(len(fan.to) for fan in workflow.extras.fan_out)
    inner = len(within_branches(workflow))
    return (len(workflow.nodes) - inner + inner * width) * (bounded + 1)


def _of_the_dearest(visits: int, calls: list[int]) -> int:
    """Each node once where that is all; beyond that, the dearest again and again."""
    dearest = sorted(calls, reverse=True)
    return sum(dearest[:visits]) + max(0, visits - len(dearest)) * dearest[0]


def _calls(workflow: Workflow, node: Node, turns: int) -> int:
    """Of one visit: its conversation and judges in each attempt, what a retry asks for, and the way on."""
    judges = sum(one.kind == "judge" for one in node.eval)
    tries = node.retry.max if node.retry is not None else 0
    reflects = tries if node.retry is not None and node.retry.mode in ("auto", "reflect") else 0
    return (tries + 1) * (turns + judges) + reflects + (2 if _decides(workflow.out_edges.get(node.id, ())) else 0)


def _decides(edges: tuple[Edge, ...]) -> bool:
    return any(edge.when for edge in edges)


def _longest(workflow: Workflow) -> int:
    """How many nodes a way without bounded edges has at most. There is no circle without one."""
    onward = {
        id: [edge.to for edge in edges if edge.max_iterations is None] for id, edges in workflow.out_edges.items()
    }
    waiting = dict.fromkeys(workflow.nodes, 0)
    for targets in onward.values():
        for to in targets:
            waiting[to] += 1
    length = dict.fromkeys(workflow.nodes, 1)
    ready = [id for id, count in waiting.items() if not count]
    for id in ready:
        for to in onward.get(id, ()):
            length[to] = max(length[to], length[id] + 1)
            waiting[to] -= 1
            if not waiting[to]:
                ready.append(to)
    return max(length.values())
