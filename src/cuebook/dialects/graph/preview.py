"""The preview of a workflow run: the prompt and the tools of each node, and the maximum number of model calls.

The preview is a program whose only effects read sources. Only a run can decide which nodes it visits, so each node is
shown as if it came first: with the input and without results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.inputs import accept
from cuebook.dialects.graph.model import (
    Edge,
    Node,
    Workflow,
    approval_of,
    edge_words,
    fan_words,
    in_reach,
    outputs,
    question_of,
)
from cuebook.dialects.graph.parse.forks import ambiguous
from cuebook.dialects.graph.run.fan_out import within_branches
from cuebook.dialects.graph.run.people import question
from cuebook.dialects.graph.run.sources import Skill, name_of, named_sources
from cuebook.dialects.graph.run.state import MAX_STEPS, Walk
from cuebook.dialects.graph.run.tools import toolset, unset
from cuebook.dialects.graph.run.visit import MAX_TURNS, asking, assemble
from cuebook.dialects.people import approval_words, first_line
from cuebook.dialects.presentation.preview import (
    Act,
    Branch,
    Limits,
    Preview,
    Step,
    declared_inputs,
    known_inputs,
    likely_answer,
    question_details,
)
from cuebook.kernel.conversation import REPAIRS, SUMMARIES
from cuebook.kernel.effects import AGENTS, AskHuman, AskModel, CallTool, Program, ReadSource
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import AGENTS_OWN


def preview(workflow: Workflow, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
    inputs, wrong = known_inputs(accept, workflow, given)
    notes, failure = [*wrong], ""
    unfit = next(ambiguous(workflow, settings.options), None)
    if unfit is not None:
        failure = f"{unfit.message} {unfit.fix}"
        notes.append(f"The run would not start: {failure}")
    prepared = Preparation([], {}, {})
    try:
        prepared = yield from prepare(workflow, inputs, settings.options)
    except EffectFailed as error:
        failure = str(error.failed)
        notes.append(f"The run would fail: {failure}")
    notes += (words for one in prepared.nodes for words in one.warnings)
    bound = most(workflow, settings.options)
    return Preview(
        title=workflow.name,
        inputs=inputs,
        declared=declared_inputs(workflow),
        heading="steps, beginning at the entry",
        steps=tuple(_step(workflow, one, settings) for one in prepared.nodes),
        steps_key="nodes",
        acts=[_act(workflow, one, settings) for one in prepared.nodes],
        reads=_reads(workflow, inputs),
        fails=bool(failure),
        failure=failure,
        notes=tuple(dict.fromkeys(notes)),
        listings={"skills": {name: _skill(prepared, name) for name in prepared.skills}},
        limits=Limits(
            bound.calls,
            (
                f"{_counted(bound.visits, 'node visit')}",
                f"{_counted(bound.calls, 'model call')} if every node uses all its turns;"
                f" {bound.without_tools:,} if none calls a tool",
            ),
            {"visits": bound.visits, "calls_without_tools": bound.without_tools},
        ),
    )


def _reads(workflow: Workflow, inputs: Mapping[str, Any]) -> tuple[ReadSource, ...]:
    try:
        sources = [source for _, source in named_sources(workflow, inputs)]
    except EffectFailed:
        return ()
    return tuple(ReadSource(name_of(source)) for source in sources if source.kind != "inline")


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


# --- the nodes ------------------------------------------------------------------------------------------


class Prepared(msgspec.Struct, frozen=True):
    """A node with the model call or the question of its first visit, as if nothing had run before it."""

    node: Node
    ask: AskModel | AskHuman
    calls: tuple[CallTool, ...]
    warnings: tuple[str, ...]


class Preparation(msgspec.Struct, frozen=True):
    nodes: list[Prepared]
    """The nodes, nearest to the entry first."""
    skills: dict[str, Skill | None]
    """The skills that nodes use; None for a skill that is unknown or cannot be read."""
    flaws: dict[str, str]
    """The reasons that existing skills cannot be read."""


def prepare(workflow: Workflow, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Program[Preparation]:
    """Prepares each node. Raises `EffectFailed` if a run could not begin, for example because a source cannot be read."""
    walk = Walk(workflow, inputs, options)
    material = walk.material
    yield from material.read(walk.offline)
    made = []
    for node in in_reach(workflow):
        asked = question_of(workflow, node)
        if asked is not None:
            made.append(Prepared(node, question(node, asked, material.content(node.instruction)), (), ()))
            continue
        tools = yield from toolset(material, node)
        base = material.content(node.instruction)
        prompt = assemble(base, material.rules(node), material.background(node), tools.instructions, walk.scope.input)
        warnings = tuple(warned.message for warned in tools.warnings)
        made.append(Prepared(node, asking(walk, node, prompt, tools), tuple(tools.calls.values()), warnings))
    named = dict.fromkeys(skill for node in workflow.nodes.values() for skill in node.skills)
    flaws = {skill: flaw for skill in named if (flaw := material.flaw(skill))}
    return Preparation(made, {skill: material.skill(skill) for skill in named}, flaws)


def _act(workflow: Workflow, one: Prepared, settings: Settings) -> Act:
    node = one.node
    fan = workflow.fans.get(node.id)
    then = tuple(map(edge_words, workflow.out_edges[node.id])) if fan is None else (fan_words(fan),)
    asked = approval_of(workflow, node)
    approval = "" if asked is None else first_line(asked.text)
    assumed = likely_answer(one.ask, node.id) if isinstance(one.ask, AskHuman) else None
    return Act(
        label=node.id,
        title=node.name,
        effect=one.ask,
        calls=one.calls,
        approval=approval,
        answer=assumed,
        is_assumed=assumed is not None,
        warnings=one.warnings,
        then=then,
        details={
            "node": node.id,
            "name": node.name,
            **_asking(one.ask, settings),
            "output": node.output,
            "approval": approval or None,
            "warnings": list(one.warnings),
            "then": list(then),
        },
    )


def _step(workflow: Workflow, one: Prepared, settings: Settings) -> Step:
    node, edges = one.node, workflow.out_edges[one.node.id]
    approval = approval_of(workflow, node)
    gives = tuple(outputs(node.output))
    also = [f"has the skills {', '.join(node.skills)}"] if node.skills else []
    also += _tools_words(one.ask, settings) if isinstance(one.ask, AskModel) else _by_words(one.ask)
    also += [] if approval is None else approval_words(approval.rule)
    extras = workflow.extras.nodes.get(node.id)
    if extras is not None and extras.workspace:
        also.append("begins a branch in a git worktree of its own")
    return Step(
        label=node.id,
        title=node.name,
        asks_approval=approval is not None,
        does=(_asks(one.ask, settings) if isinstance(one.ask, AskModel) else one.ask,),
        gives=gives,
        also=tuple(also),
        decided_by=_decided_by(workflow, node, edges),
        branches=tuple(map(Branch, _ways(workflow, node, edges))),
        details={
            "node": node.id,
            "name": node.name,
            "line": node.line,
            **{name: value for name, value in _asking(one.ask, settings).items() if name != "prompt"},
            "skills": list(node.skills),
            "gives": list(gives),
            "approval": None if approval is None else approval.text,
            "decides": _decides(edges),
            "then": [{"to": one.to, "when": one.when or None, "max_iterations": one.max_iterations} for one in edges],
            "parallel": _parallel(workflow, node),
        },
    )


def _asking(ask: AskModel | AskHuman, settings: Settings) -> dict[str, Any]:
    """A model call or a question as JSON."""
    if isinstance(ask, AskHuman):
        return {"model": None, "effort": None, "prompt": None, "tools": [], "question": question_details(ask)}
    return {"model": ask.model, "effort": ask.effort, "prompt": ask.prompt, "tools": _offered(ask, settings)}


def _tools_words(ask: AskModel, settings: Settings) -> list[str]:
    tools = _offered(ask, settings)
    if settings.asked(ask.model).startswith(AGENTS):
        return [f"has tools of its own{f', and may call {_listed(tools)}' if tools else ''}"]
    return [f"may call {_listed(tools)}" if tools else "has no tools"]


def _by_words(ask: AskHuman) -> list[str]:
    return [f"only {', '.join(ask.by)} may answer"] if ask.by else []


def _asks(ask: AskModel, settings: Settings) -> str:
    model = (settings.model if settings.model_wins else ask.model) or "the model"
    return f"asks {model}{f', with {ask.effort} effort' if ask.effort else ''}"


def _offered(ask: AskModel, settings: Settings) -> list[str]:
    """The tools that the model is offered. A coding agent has its own for files and commands."""
    agent = settings.asked(ask.model).startswith(AGENTS)
    return [spec.name for spec in ask.tools if not agent or spec.name not in AGENTS_OWN]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _parallel(workflow: Workflow, node: Node) -> dict[str, Any] | None:
    """The branches that start after a node, and where they join; None if there are none."""
    fan = workflow.fans.get(node.id)
    return None if fan is None else {"to": list(fan.to), "join": fan.join}


def _decided_by(workflow: Workflow, node: Node, edges: tuple[Edge, ...]) -> str:
    if not _decides(edges) or node.id in workflow.fans:
        return ""
    guarded = {guard.edge for guard in workflow.extras.guards}
    proved = any(edge.index in guarded for edge in edges)
    return f"the model decides{' unless a guard does' if proved else ''}"


def _ways(workflow: Workflow, node: Node, edges: tuple[Edge, ...]) -> Iterator[str]:
    fan = workflow.fans.get(node.id)
    if fan is not None:
        yield fan_words(fan)
    elif not edges:
        yield "ends"
    elif not _decides(edges):
        yield f"then {edge_words(edges[0])}"
    else:
        yield from (edge_words(edge) if edge.when else f"otherwise: {edge_words(edge)}" for edge in edges)
        if all(edge.when for edge in edges):
            yield "otherwise the run fails, because no edge is left"


def _skill(prepared: Preparation, name: str) -> str:
    """A description of the state of a skill."""
    skill, flaw = prepared.skills[name], prepared.flaws.get(name, "")
    if flaw:
        return f"cannot be read: {flaw}"
    if skill is None:
        return "unknown"
    if not skill.configured:
        return f"not configured: {unset(skill.missing)}" if skill.missing else "not configured"
    return f"configured, but without some of its tools: {unset(skill.missing)}" if skill.missing else "configured"


# --- bounds -------------------------------------------------------------------------------------------------


class Most(msgspec.Struct, frozen=True):
    """The upper bounds of a run."""

    visits: int
    calls: int
    """Model calls if every node uses all its turns and attempts."""
    without_tools: int
    """Model calls if no node calls a tool."""


def most(workflow: Workflow, options: Mapping[str, Any]) -> Most:
    limit: int = options.get("max_steps") or workflow.extras.max_steps or MAX_STEPS
    visits = min(limit, most_visits(workflow)) if not workflow.extras.fan_out else most_visits(workflow)
    strict = bool(options.get("strict_spec"))
    nodes = workflow.nodes.values()
    modelled = {node.id: question_of(workflow, node) is None for node in nodes}
    turns = [_calls(workflow, node, _most_calls(node, strict) if modelled[node.id] else 0) for node in nodes]
    short = [min(node.max_turns or MAX_TURNS, 1 + REPAIRS) if modelled[node.id] else 0 for node in nodes]
    single = [_calls(workflow, node, calls) for node, calls in zip(nodes, short, strict=True)]
    return Most(visits, _most_expensive(visits, turns), _most_expensive(visits, single))


def _most_calls(node: Node, strict: bool) -> int:
    """The calls of one conversation: its turns, which sub-agents share, summaries of them, and a closing turn."""
    turns = node.max_turns or MAX_TURNS
    own = turns + min(SUMMARIES, turns - 1)
    return own if strict else own + 1


def most_visits(workflow: Workflow) -> int:
    """The maximum number of visits: between two bounded edges, no path visits a node twice."""
    bounded = sum(edge.max_iterations or 0 for edge in workflow.edges)
    if not workflow.fans:
        return _longest(workflow) * (bounded + 1)
    # Different branches of a listed fan-out may visit the same nodes; those of a fork may not.
    width = max((len(fan.to) for fan in workflow.extras.fan_out), default=1)
    inner = len(within_branches(workflow))
    return (len(workflow.nodes) - inner + inner * width) * (bounded + 1)


def _most_expensive(visits: int, calls: list[int]) -> int:
    """The maximum total for this many visits: the most expensive nodes once each, then the most expensive node
    again."""
    dearest = sorted(calls, reverse=True)
    return sum(dearest[:visits]) + max(0, visits - len(dearest)) * dearest[0]


def _calls(workflow: Workflow, node: Node, turns: int) -> int:
    """The model calls of one visit: conversation and judges in each attempt, reflections, and routing."""
    judges = sum(one.kind == "judge" for one in node.eval)
    tries = node.retry.max if node.retry is not None else 0
    reflects = tries if node.retry is not None and node.retry.mode in ("auto", "reflect") else 0
    return (tries + 1) * (turns + judges) + reflects + (2 if _decides(workflow.out_edges.get(node.id, ())) else 0)


def _decides(edges: tuple[Edge, ...]) -> bool:
    return any(edge.when for edge in edges)


def _longest(workflow: Workflow) -> int:
    """The length of the longest path without bounded edges. Such paths have no cycles."""
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
