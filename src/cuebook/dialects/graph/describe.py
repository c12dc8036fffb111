"""The summary of a workflow: its nodes, edges and needs."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.dialect import OutlinedStep, Question
from cuebook.dialects.graph.check import named_models
from cuebook.dialects.graph.model import (
    Node,
    Source,
    Workflow,
    approval_of,
    edge_words,
    fan_words,
    in_reach,
    outputs,
    question_of,
)
from cuebook.dialects.presentation.summary import Need, Row, Summary, listed, model_needs
from cuebook.formats.words import counted


def summary(workflow: Workflow) -> Summary:
    nodes = list(in_reach(workflow))
    decisions = [node.id for node in nodes if any(edge.when for edge in workflow.out_edges[node.id])]
    names = {
        "skills": list(dict.fromkeys(skill for node in nodes for skill in node.skills)),
        "models": sorted({model for model in (workflow.model, *(node.model for node in nodes)) if model}),
        "sources": [source.value for source in _read(workflow)],
        "approvals": [id for id, extras in workflow.extras.nodes.items() if extras.approval is not None],
        "questions": [id for id, extras in workflow.extras.nodes.items() if extras.input is not None],
    }
    return Summary(
        title=workflow.name,
        description=workflow.description,
        inputs=workflow.inputs,
        rows=(
            *(_row(workflow, node) for node in nodes),
            *((Row("decisions", counted(len(decisions), "decision")),) if decisions else ()),
            *listed(**names),
        ),
        data={
            "id": workflow.id,
            "entry": workflow.entry,
            "nodes": [{"id": node.id, "name": node.name, "outputs": list(outputs(node.output))} for node in nodes],
            "edges": [
                {"from": edge.from_, "to": edge.to, "when": edge.when or None, "max_iterations": edge.max_iterations}
                for edge in workflow.edges
            ],
            "parallel": [{"node": fan.node, "to": list(fan.to), "join": fan.join} for fan in workflow.fans.values()],
            "decisions": decisions,
            **names,
        },
        needs=tuple(_needs(workflow)),
    )


def _row(workflow: Workflow, node: Node) -> Row:
    gives = ", ".join(outputs(node.output))
    entry = " (entry)" if node.id == workflow.entry else ""
    asks = "; asks a person" if question_of(workflow, node) is not None else ""
    asks += "; asks first" if approval_of(workflow, node) is not None else ""
    words = f"{node.id}{entry}: {node.name}{asks}{f'; sets {gives}' if gives else ''}"
    fan = workflow.fans.get(node.id)
    ways = [edge_words(edge) for edge in workflow.out_edges[node.id]] if fan is None else [fan_words(fan)]
    return Row("node", words, tuple(f"            {way}" for way in ways))


def _needs(workflow: Workflow) -> Iterator[Need]:
    nodes = workflow.nodes.values()
    yield from model_needs((one.name for one in named_models(workflow)), needs_model=True)
    yield from (Need("skill", name) for name in dict.fromkeys(skill for node in nodes for skill in node.skills))
    yield from (Need("tool", name) for name in dict.fromkeys(tool for node in nodes for tool in node.allow or ()))
    texts = [*workflow.rules, *workflow.context, *(node.instruction for node in nodes)]
    yield from (Need(one.kind, one.value) for one in dict.fromkeys(texts) if one.kind != "inline")
    approvals = sum(one.approval is not None for one in workflow.extras.nodes.values())
    if approvals:
        yield Need("you", "approve a node" if approvals == 1 else f"approve {approvals} nodes")
    questions = sum(one.input is not None for one in workflow.extras.nodes.values())
    if questions:
        yield Need("you", "answer a question" if questions == 1 else f"answer {questions} questions")


def outlined(workflow: Workflow) -> tuple[OutlinedStep, ...]:
    """The nodes, with the questions that they ask."""
    return tuple(OutlinedStep(node.id, node.name, question=_asked(workflow, node)) for node in workflow.nodes.values())


def _asked(workflow: Workflow, node: Node) -> Question | None:
    if question_of(workflow, node) is None:
        return None
    return Question("input") if node.output is None else Question("form", schema=node.output)


def _read(workflow: Workflow) -> Iterator[Source]:
    """The sources that are read from files and URLs."""
    for node in workflow.nodes.values():
        yield from (
            one for one in (node.instruction, *node.rules.sources, *node.context.sources) if one.kind != "inline"
        )
    yield from (one for one in (*workflow.rules, *workflow.context) if one.kind != "inline")
