"""`cuebook explain` of a workflow graph: its nodes and decisions, skills, what it touches, and the most it may use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.check import named_models
from cuebook.dialects.graph.material import Skill, name_of, named_sources
from cuebook.dialects.graph.model import Edge, Node, Workflow
from cuebook.dialects.graph.preparing import Most, Preparation, Prepared, most
from cuebook.dialects.graph.tools import unset
from cuebook.kernel.effects import ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import Budget
from cuebook.surfaces import wording
from cuebook.surfaces.cli import explaining, graph_dry_run, live, session
from cuebook.surfaces.cli.bounding import Terms
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.rehearsing import Shown
from cuebook.surfaces.cli.touching import Reached, reached
from cuebook.surfaces.reading.workflows import approval_of, edge_words, outputs
from cuebook.surfaces.wiring import Wiring


class Explained(msgspec.Struct, frozen=True):
    workflow: Workflow
    inputs: Mapping[str, Any]
    model: str
    problem: str
    prepared: Preparation | None
    """None where the run could not even begin."""
    reached: Reached
    most: Most
    terms: Terms
    budget: Budget
    notes: list[str]


def explain(given: Given, playbook: Playbook) -> int:
    explained = asyncio.run(_explained(given, playbook, session.wiring_of(given)))
    return explaining.told(given, _object, _lines, explained)


async def _explained(given: Given, playbook: Playbook, wiring: Wiring) -> Explained:
    workflow: Workflow = playbook.document
    notes: list[str] = []
    inputs = _known(playbook, gathered(given, workflow, playbook.dialect), notes)
    try:
        prepared = await asyncio.to_thread(graph_dry_run.prepared_by, playbook, inputs, wiring, {})
        notes += (words for one in prepared.nodes for words in one.warnings)
    except EffectFailed as error:
        prepared = None
        notes.append(f"The run would fail: {error.failed}")
    for flaw in () if wiring.model_wins else wiring.flaws_of(named_models(workflow)):
        notes.append(f"The run would not begin: {flaw}")
    terms, problem = explaining.terms_of(wiring)
    shown = list(_shown(workflow, inputs, prepared))
    return Explained(
        workflow=workflow,
        inputs=inputs,
        model=wiring.model,
        problem=problem,
        prepared=prepared,
        reached=await reached(shown, wiring, await explaining.policy_of_today(wiring)),
        most=most(workflow, {}),
        terms=terms,
        budget=wiring.config.budget,
        notes=list(dict.fromkeys(notes)),
    )


def _known(playbook: Playbook, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The inputs as a run would keep them; what is missing or wrong is told and left as it is."""
    try:
        return playbook.dialect.accept(playbook.document, given)
    except BadInput as error:
        notes.append(error.message)
        return dict(given)


def _shown(workflow: Workflow, inputs: Mapping[str, Any], prepared: Preparation | None) -> Iterator[Shown]:
    """Everything that may be done, as effects."""
    try:
        sources = [source for _, source in named_sources(workflow, inputs)]
    except EffectFailed:
        sources = []
    for source in sources:
        if source.kind != "inline":
            yield Shown(0, "", "", {}, ReadSource(name_of(source)))
    for one in prepared.nodes if prepared is not None else ():
        yield Shown(0, one.node.id, one.node.name, {}, one.ask)
        for call in one.calls:
            yield Shown(0, one.node.id, one.node.name, {}, call)


# --- as an object ---------------------------------------------------------------------------------------


def _object(explained: Explained) -> dict[str, Any]:
    workflow, bound = explained.workflow, explained.most
    return {
        "title": workflow.name,
        "inputs": dict(explained.inputs),
        "model": {"name": explained.model, "problem": explained.problem or None},
        "nodes": [_node_object(workflow, one) for one in _nodes(explained)],
        "skills": _skill_states(explained),
        "touches": explaining.touched_objects(explained.reached),
        "hosts": [{"host": host, "for": what} for host, what in explained.reached.hosts.items()],
        "notes": [*explained.reached.problems, *explained.notes],
        "bound": {
            "visits": bound.visits,
            "calls": bound.calls,
            "calls_without_tools": bound.without_tools,
            "cost": _cost(explained),
            "price_known": _cost(explained) is not None,
        },
    }


def _nodes(explained: Explained) -> list[Prepared]:
    return explained.prepared.nodes if explained.prepared is not None else []


def _node_object(workflow: Workflow, one: Prepared) -> dict[str, Any]:
    node = one.node
    return {
        "node": node.id,
        "name": node.name,
        "line": node.line,
        "model": one.ask.model,
        "skills": list(node.skills),
        "tools": [spec.name for spec in one.ask.tools],
        "gives": list(outputs(node.output)),
        "approval": approval_of(workflow, node) or None,
        "decides": _decides(workflow, node),
        "then": [
            {"to": edge.to, "when": edge.when or None, "max_iterations": edge.max_iterations}
            for edge in workflow.out_edges[node.id]
        ],
    }


def _decides(workflow: Workflow, node: Node) -> bool:
    """Whether a model is asked for the way on."""
    return any(edge.when for edge in workflow.out_edges[node.id])


def _skill_states(explained: Explained) -> dict[str, str]:
    if explained.prepared is None:
        return {}
    flaws = explained.prepared.flaws
    return {name: _skill_state(skill, flaws.get(name, "")) for name, skill in explained.prepared.skills.items()}


def _skill_state(skill: Skill | None, flaw: str) -> str:
    if flaw:
        return f"cannot be read: {flaw}"
    if skill is None:
        return "unknown"
    if not skill.configured:
        return f"not configured: {unset(skill.missing)}" if skill.missing else "not configured"
    return f"configured, but without some of its tools: {unset(skill.missing)}" if skill.missing else "configured"


def _cost(explained: Explained) -> float | None:
    """Every call at its dearest: a full window in, a full reply out. None where a price or window is not known."""
    facts = explained.terms.facts
    if explained.terms.free:
        return 0.0
    if facts.price is None or facts.window is None:
        return None
    return explained.most.calls * facts.price.most(facts.window, explained.terms.reply)


# --- in words -------------------------------------------------------------------------------------------


def _lines(explained: Explained) -> Iterator[str]:
    workflow = explained.workflow
    yield workflow.name
    for name, value in explained.inputs.items():
        yield f"  {name} = {wording.short(value if isinstance(value, str) else live.json_text(value))}"
    yield f"  model {explained.model}" + (f" (cannot be asked: {explained.problem})" if explained.problem else "")
    yield "\nits nodes, from the entry on:"
    for one in _nodes(explained):
        yield f"  {one.node.id} {one.node.name}: {_node_words(workflow, one)}"
        yield from _ways(workflow, one.node)
    if states := _skill_states(explained):
        yield "\nits skills:"
        yield from (f"  {name}: {state}" for name, state in states.items())
    yield "\nwhat it touches, and what the policy says:"
    yield from explaining.touched_lines(explained.reached, explained.notes)
    yield "\nwhat it may use at most:"
    yield from _bound_lines(explained)


def _node_words(workflow: Workflow, one: Prepared) -> str:
    words = ["needs an approval first"] if approval_of(workflow, one.node) else []
    words.append(f"asks {one.ask.model or 'the model'}")
    if one.node.skills:
        words.append(f"has the skills {', '.join(one.node.skills)}")
    words.append(f"may call {', '.join(spec.name for spec in one.ask.tools)}" if one.ask.tools else "has no tools")
    gives = ", ".join(outputs(one.node.output))
    return "; ".join([*words, f"gives {gives}"] if gives else words)


def _ways(workflow: Workflow, node: Node) -> Iterator[str]:
    edges = workflow.out_edges[node.id]
    fan = next((fan for fan in workflow.extras.fan_out if fan.node == node.id), None)
    if fan is not None:
        yield f"    at once: {', '.join(fan.to)}; then {fan.join}"
    elif not edges:
        yield "    ends"
    elif not _decides(workflow, node):
        yield f"    then {edge_words(edges[0])}"
    else:
        guarded = {guard.edge for guard in workflow.extras.guards}
        proved = " unless its guards prove it" if any(edge.index in guarded for edge in edges) else ""
        yield f"    the model decides{proved}:"
        yield from (f"      {_way(edge)}" for edge in edges)
        if all(edge.when for edge in edges):
            yield "      otherwise the run fails: there is no way on"


def _way(edge: Edge) -> str:
    return edge_words(edge) if edge.when else f"otherwise: {edge_words(edge)}"


def _bound_lines(explained: Explained) -> Iterator[str]:
    bound, budget, cost = explained.most, explained.budget, _cost(explained)
    yield f"  {wording.counted(bound.visits, 'visit')} of nodes"
    yield (
        f"  {wording.counted(bound.calls, 'call')} of models, if every node takes all its turns;"
        f" {bound.without_tools:,} if none calls a tool"
    )
    yield "  cost: " + (
        "unknown: the price or the window of this model is not listed" if cost is None else wording.money(cost)
    )
    if budget.money is not None and (cost is None or cost > budget.money):
        yield f"  the budget of {wording.money(budget.money)} may pause the run"
