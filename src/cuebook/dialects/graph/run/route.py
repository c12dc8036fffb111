"""Chooses the edge to follow after a node: the only edge, the edge that guards prove, or the edge that a model chooses.

A model chooses one of the edges by name, or none. If its answer names no edge, the question is asked once more. If that
fails too, the run follows the default edge, or fails if there is none. It never follows an edge that was not chosen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Edge, Guard, Match, Node
from cuebook.dialects.graph.paths import find, holds, missing
from cuebook.dialects.graph.run.replies import found_in
from cuebook.dialects.graph.run.state import Walk
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskModel, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import REFUSED, EffectFailed, Failed, Reply
from cuebook.kernel.run import HOST

ONLY = "only path"
FAN_OUT = "fan out"
JOIN = "join"
END = "(end)"
NONE = "none"
_DEFAULT = "None of the above: the default path"
_ANSWER = 500
_DENIES = re.compile(
    r"\b(not|never|no|nor|neither|cannot|without|except|avoid|instead|rather)\b|n['\u2019]t\b", re.IGNORECASE
)
_ASKING = "Which of these conditions is true, by the results so far?"


class Choice(msgspec.Struct, frozen=True):
    """An edge that a model may choose."""

    id: str
    edge: Edge
    words: str


class Chosen(msgspec.Struct, frozen=True):
    """A model's answer. An empty choice means that the answer names no edge."""

    choice: str
    answer: str
    reason: str = ""
    self_judged: bool = False
    """Whether the assistant that does the work also chose where it continues."""


def route(walk: Walk, node: Node) -> Program[str | None]:
    """The next node; None if the workflow ends. Records a note for every edge that is followed."""
    edges = [edge for edge in walk.workflow.out_edges.get(node.id, ()) if not spent(walk, edge)]
    if not edges:
        return None
    how = {"saved": True} if any(edge.when for edge in edges) else {}
    if any(edge.index in walk.guards for edge in edges):
        edges, sure = narrowed(edges, walk.guards, walk.scope)
        if sure is not None:
            return (yield from _follow(walk, sure, how))
        if not edges:
            return (yield from _nowhere(walk, node, how, "every condition was proved false"))
    if _only(edges):
        return (yield from _follow(walk, edges[0], how))
    return (yield from _ask(walk, node, edges))


def stops_here(walk: Walk, node: Node) -> Program[bool]:
    """Whether the run stops after this node, because it runs only until the first decision."""
    if not walk.until_decision or not any(edge.when for edge in walk.workflow.out_edges.get(node.id, ())):
        return False
    walk.stopped = True
    yield Noted("route", {"from": node.id, "to": END, "reason": "dry run"})
    return True


def at_limit(walk: Walk, following: str, visited: int | None = None) -> Program[None]:
    """Fails a run that has used up its visits. A retry continues at this point, so that nothing is repeated."""
    yield Noted("limit", {"node": following})
    raise EffectFailed(walk.too_far(following, visited))


def _only(edges: Sequence[Edge]) -> bool:
    """Whether there is only one edge, without a condition."""
    return len(edges) == 1 and not edges[0].when


def spent(walk: Walk, edge: Edge) -> bool:
    """Whether a bounded edge was followed as often as it may be."""
    return edge.max_iterations is not None and walk.followed.get(edge.index, 0) >= edge.max_iterations


def count(walk: Walk, edge: Edge) -> None:
    """Counts a bounded edge that is followed."""
    if edge.max_iterations is not None:
        walk.followed[edge.index] = walk.followed.get(edge.index, 0) + 1


def _follow(walk: Walk, edge: Edge, how: dict[str, Any]) -> Program[str]:
    count(walk, edge)
    to, reason = edge.to, edge.when or ONLY
    if to in walk.stops:
        to, reason = walk.join_at, edge.when or JOIN
    which = {"edge": edge.index} if to == edge.to else {}  # an edge to a sibling branch ends this branch instead
    yield Noted("route", {"from": edge.from_, "to": to, "reason": reason, **which, "asked": False, **how})
    return to


def _nowhere(walk: Walk, node: Node, how: dict[str, Any], why: str) -> Program[str | None]:
    yield Noted("route", {"from": node.id, "to": END, "reason": why, **how})
    raise EffectFailed(
        Failed(
            "NO_ROUTE",
            f"The run cannot continue from node {node.id}: {why}.",
            "Add an edge without a condition: it is followed if no condition holds.",
            details={"node": node.id, "step": node.id, "visit": walk.visits[node.id], "finished": True},
        )
    )


# --- asking -------------------------------------------------------------------------------------------------


def _ask(walk: Walk, node: Node, edges: Sequence[Edge]) -> Program[str | None]:
    choices = choices_of(edges)
    default = next((choice for choice in choices if not choice.edge.when), None)
    context = yield from routing_context(walk)
    chosen = yield from _chosen(walk, context, choices)
    how: dict[str, Any] = {"asked": True, "answer": chosen.answer, "rationale": chosen.reason}
    how |= {"self_judged": True} if chosen.self_judged else {}
    found = next((choice for choice in choices if choice.id == chosen.choice), default)
    if found is None:
        why = "no condition holds" if chosen.choice == NONE else "the model named no edge in two attempts"
        return (yield from _nowhere(walk, node, how, why))
    if chosen.choice != found.id:
        how["default"] = True
        how |= {} if chosen.choice else {"unusable": True}
    return (yield from _follow(walk, found.edge, how))


def routing_context(walk: Walk) -> Program[Context]:
    """The context of a routing question, up to the last result. Records a note, once, for missing declared outputs."""
    context, gaps = walk.scope.routing()
    for gap in gaps:
        words = "declared output properties are missing; the routing question shows them as null"
        yield Noted("warning", {"node": gap.node, "reason": words, "fields": list(gap.fields)})
    return context


def choices_of(edges: Sequence[Edge]) -> list[Choice]:
    """The choices, named by target node; if several edges share a target, also by index."""
    times = Counter(edge.to for edge in edges)
    return [
        Choice(
            edge.to if times[edge.to] == 1 and edge.to != NONE else f"{edge.to}#{edge.index}",
            edge,
            edge.when or _DEFAULT,
        )
        for edge in edges
    ]


def _chosen(walk: Walk, context: Context, choices: Sequence[Choice]) -> Program[Chosen]:
    ids = [*(choice.id for choice in choices), NONE]
    ask = AskModel(
        _question(choices),
        context,
        walk.workflow.extras.router_model or walk.workflow.model or None,
        schema=_schema(ids),
        lenient=True,
        judges=True,
    )
    said, by = yield from _said(ask)
    chosen = understood(said, ids)
    if chosen.choice:
        return msgspec.structs.replace(chosen, self_judged=by == HOST)
    again = context.add("user", ask.prompt)
    again = again.add("assistant", said) if said.strip() else again
    words = f"This names none of the choices. Answer with one of: {', '.join(ids)}."
    said, by = yield from _said(msgspec.structs.replace(ask, prompt=words, context=again))
    return msgspec.structs.replace(understood(said, ids), self_judged=by == HOST)


def _said(ask: AskModel) -> Program[tuple[str, str]]:
    """The answer and the model; an empty answer if the model refuses to answer."""
    try:
        reply: Reply = yield ask
    except EffectFailed as error:
        if error.failed.code != REFUSED:
            raise
        return "", ""
    return reply.text, reply.model


def _question(choices: Sequence[Choice]) -> str:
    listed = "\n".join(f"- {choice.id}: {choice.words}" for choice in choices)
    return (
        f"{_ASKING}\n\n{listed}\n- {NONE}: no condition is true\n\n"
        'Answer with JSON: {"choice": "<one of the names before the colons>", "reason": "<one sentence>"}'
    )


def _schema(ids: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"choice": {"enum": ids}, "reason": {"type": "string"}},
        "required": ["choice", "reason"],
        "additionalProperties": False,
    }


def choices_in(ask: AskModel) -> list[str]:
    """The choices of a routing question; empty for any other question."""
    properties = (ask.schema or {}).get("properties", {})
    choice = properties.get("choice", {}) if ask.prompt.startswith(_ASKING) and isinstance(properties, dict) else {}
    return list(choice.get("enum", ()))


def understood(text: str, ids: Sequence[str]) -> Chosen:
    """The choice that an answer names: as JSON, on its own, or as the only choice mentioned.

    An answer with a negation chooses nothing.
    """
    answer = text.strip()[:_ANSWER]
    value = found_in(text)
    if isinstance(value, dict) and "choice" in value:
        return Chosen(_meant(str(value["choice"]), ids), answer, str(value.get("reason", ""))[:_ANSWER])
    alone = _meant(text.strip().strip("\"'`.*"), ids)
    if alone or _DENIES.search(text):
        return Chosen(alone, answer)
    found = [one for one in ids if re.search(rf"(?<![\w#-]){re.escape(one)}(?![\w#-])", text, re.IGNORECASE)]
    return Chosen(found[0] if len(found) == 1 else "", answer)


def _meant(said: str, ids: Sequence[str]) -> str:
    """The choice with this name. Case matters only if two choices differ only by case."""
    said = said.strip()
    if said in ids:
        return said
    found = [one for one in ids if one.casefold() == said.casefold()]
    return found[0] if len(found) == 1 else ""


# --- guards -------------------------------------------------------------------------------------------------


def proved(guard: Guard, values: Mapping[str, Any]) -> bool | None:
    """Whether the guard holds; None if unknown."""
    verdicts = [_matched(match, values) for match in guard.output_matches]
    verdicts += [not missing((path,), values, of_nodes=True) for path in guard.output_required]
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def _matched(match: Match, values: Mapping[str, Any]) -> bool | None:
    found = find(values, match.path, of_nodes=True)
    if found.problem or any(value is None for value in found.values):
        return None
    verdicts = [holds(match, value) for value in found.values]
    return any(verdicts) if found.mode == "any" else all(verdicts)


def narrowed(
    edges: Sequence[Edge], guards: Mapping[int, Guard], values: Mapping[str, Any]
) -> tuple[list[Edge], Edge | None]:
    """The edges that are not proved false, and the only edge that is proved true, if there is one."""
    verdicts = {edge.index: proved(guards[edge.index], values) for edge in edges if edge.index in guards}
    left = [edge for edge in edges if verdicts.get(edge.index) is not False]
    sure = [edge for edge in left if verdicts.get(edge.index)]
    return left, sure[0] if len(sure) == 1 else None
