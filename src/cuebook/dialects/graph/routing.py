"""Which edge is followed after a node: the only one, the one that guards prove, or the one that a model chooses.

A model chooses among the edges by name, or none of them. An answer that names no edge is asked for once more; then the
default edge is taken, and where there is none the run fails: it never goes somewhere that nobody chose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.guards import narrowed
from cuebook.dialects.graph.model import Edge, Node
from cuebook.dialects.graph.replies import found_in
from cuebook.dialects.graph.walk import Walk
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskModel, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import REFUSED, EffectFailed, Failed, Reply

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
    """An edge as a model may choose it."""

    id: str
    edge: Edge
    words: str


class Chosen(msgspec.Struct, frozen=True):
    """What a model answered; without a choice, no edge is named."""

    choice: str
    answer: str
    reason: str = ""


def route(walk: Walk, node: Node) -> Program[str | None]:
    """The next node; None at the end of the way. Every way taken is noted."""
    edges = [edge for edge in walk.workflow.out_edges.get(node.id, ()) if not _spent(walk, edge)]
    if not edges:
        return None
    how = {} if _only(edges) else {"saved": True}
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
    """Whether the run was to go no further than this node, because a condition follows it."""
    if not walk.until_decision or not any(edge.when for edge in walk.workflow.out_edges.get(node.id, ())):
        return False
    walk.stopped = True
    yield Noted("route", {"from": node.id, "to": END, "reason": "dry run"})
    return True


def at_limit(walk: Walk, following: str, visited: int | None = None) -> Program[None]:
    """Ends a run that has made all the visits it may. The note is where a retry goes on, so that nothing is done again."""
    yield Noted("limit", {"node": following})
    raise EffectFailed(walk.too_far(following, visited))


def _only(edges: Sequence[Edge]) -> bool:
    """Whether there is nothing to choose."""
    return len(edges) == 1 and not edges[0].when


def _spent(walk: Walk, edge: Edge) -> bool:
    return edge.max_iterations is not None and walk.followed.get(edge.index, 0) >= edge.max_iterations


def _follow(walk: Walk, edge: Edge, how: dict[str, Any]) -> Program[str]:
    if edge.max_iterations is not None:
        walk.followed[edge.index] = walk.followed.get(edge.index, 0) + 1
    to, reason = edge.to, edge.when or ONLY
    if to in walk.stops:
        to, reason = walk.join_at, edge.when or JOIN
    which = {"edge": edge.index} if to == edge.to else {}  # what leads to a sibling ends the branch instead
    yield Noted("route", {"from": edge.from_, "to": to, "reason": reason, **which, "asked": False, **how})
    return to


def _nowhere(walk: Walk, node: Node, how: dict[str, Any], why: str) -> Program[str | None]:
    yield Noted("route", {"from": node.id, "to": END, "reason": why, **how})
    raise EffectFailed(
        Failed(
            "NO_ROUTE",
            f"There is no way on from node {node.id}: {why}.",
            "Add an edge without a condition: it is taken where no condition holds.",
            details={"node": node.id, "step": node.id, "visit": walk.visits[node.id], "finished": True},
        )
    )


# --- asking -------------------------------------------------------------------------------------------------


def _ask(walk: Walk, node: Node, edges: Sequence[Edge]) -> Program[str | None]:
    choices = choices_of(edges)
    default = next((choice for choice in choices if not choice.edge.when), None)
    context = yield from caught_up(walk)
    chosen = yield from _chosen(walk, context, choices)
    how: dict[str, Any] = {"asked": True, "answer": chosen.answer, "rationale": chosen.reason}
    found = next((choice for choice in choices if choice.id == chosen.choice), default)
    if found is None:
        why = "no condition holds" if chosen.choice == NONE else "the model named none of its edges, asked twice"
        return (yield from _nowhere(walk, node, how, why))
    if chosen.choice != found.id:
        how["default"] = True
        how |= {} if chosen.choice else {"unusable": True}
    return (yield from _follow(walk, found.edge, how))


def caught_up(walk: Walk) -> Program[Context]:
    """The context of a routing question, up to the last result; what it does not know is warned of once."""
    context, gaps = walk.scope.routing()
    for gap in gaps:
        words = "declared output properties are missing; the routing question shows them as null"
        yield Noted("warning", {"node": gap.node, "reason": words, "fields": list(gap.fields)})
    return context


def choices_of(edges: Sequence[Edge]) -> list[Choice]:
    """Each by the node it leads to; by its number as well where that is not enough."""
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
    )
    said = yield from _said(ask)
    chosen = understood(said, ids)
    if chosen.choice:
        return chosen
    again = context.add("user", ask.prompt)
    again = again.add("assistant", said) if said.strip() else again
    words = f"This names none of the choices. Answer with one of: {', '.join(ids)}."
    said = yield from _said(msgspec.structs.replace(ask, prompt=words, context=again))
    return understood(said, ids)


def _said(ask: AskModel) -> Program[str]:
    """The answer; a refusal to answer chooses nothing."""
    try:
        reply: Reply = yield ask
    except EffectFailed as error:
        if error.failed.code != REFUSED:
            raise
        return ""
    return reply.text


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
    """What a routing question lets choose; nothing for any other question."""
    properties = (ask.schema or {}).get("properties", {})
    choice = properties.get("choice", {}) if ask.prompt.startswith(_ASKING) and isinstance(properties, dict) else {}
    return list(choice.get("enum", ()))


def understood(text: str, ids: Sequence[str]) -> Chosen:
    """The choice that an answer names: as JSON, by itself, or as the only one of them among other words.

    Words that may deny what they name choose nothing.
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
    """The choice of this name; whether its letters are capitals matters only where two differ by nothing else."""
    said = said.strip()
    if said in ids:
        return said
    found = [one for one in ids if one.casefold() == said.casefold()]
    return found[0] if len(found) == 1 else ""
