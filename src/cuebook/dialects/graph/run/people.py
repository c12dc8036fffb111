"""What a node asks of people: its approval, a question instead of a model, and requests for changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Approval, Asked, Node
from cuebook.dialects.graph.paths import find
from cuebook.dialects.graph.run.results import Result, encoded
from cuebook.dialects.graph.run.scope import Scope
from cuebook.dialects.people import Feedback, first_line, offered
from cuebook.kernel.effects import AskApproval, AskHuman, Program
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.votes import Rule


class Requests:
    """The changes that approvers requested: how often at each node, and what the nodes to which they led have to know."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}
        """How many requests were made at each node."""
        self.handed: dict[str, tuple[int, str, str]] = {}
        """The feedback for a visit to a node: the number of the visit, the text, and its author."""

    def take(self, node: str, feedback: Feedback, visits: Mapping[str, int]) -> None:
        """Notes a request at the approval of a node."""
        self.made[node] = self.made.get(node, 0) + 1
        self.handed[feedback.to] = (visits[feedback.to] + 1, feedback.text, feedback.by)

    def for_visit(self, node: str, visit: int) -> tuple[str, str]:
        """The feedback for a visit to a node, and its author; empty if there is none."""
        number, text, by = self.handed.get(node, (0, "", ""))
        return (text, by) if number == visit else ("", "")

    def copied(self) -> Requests:
        """The requests as a parallel branch begins with them. It has visited no node yet."""
        made = Requests()
        made.made = dict(self.made)
        return made

    def plain(self) -> dict[str, Any]:
        """Everything for a checkpoint; empty if no changes were requested."""
        return {"made": self.made, "handed": self.handed} if self.made else {}

    def restore(self, kept: Mapping[str, Any]) -> None:
        self.made = dict(kept.get("made", {}))
        self.handed = {node: (one[0], one[1], one[2]) for node, one in kept.get("handed", {}).items()}


def approved(node: Node, asked: Approval, scope: Scope, requests: Requests, visits: Mapping[str, int]) -> AskApproval:
    """The effect that asks for the approval of a node. Changes can lead only to nodes that the run has visited."""
    rule = offered(asked.rule, requests.made.get(node.id, 0), asked.changes_at_most)
    rule = msgspec.structs.replace(rule, changes=tuple(to for to in rule.changes if to in visits))
    question = first_line(asked.text)
    preview = {"request": asked.text} if question != asked.text else {}
    preview |= {path: _shown(path, scope) for path in asked.show}
    return AskApproval(approval=question, rule=None if rule == Rule() else rule, preview=preview)


def _shown(path: str, scope: Scope) -> str:
    """The evidence at a path; if there is none, the reason, because evidence that is missing must not go unnoticed."""
    found = find(scope, path, of_nodes=True)
    if found.problem:
        return f"(not available: {found.problem})"
    return "\n".join(map(_text, found.values)) or "(nothing)"


def _text(value: Any) -> str:
    """A value as text. The result of a node that only has a summary is that text."""
    if isinstance(value, dict) and value.keys() == {"summary"}:
        value = value["summary"]
    return value if isinstance(value, str) else encoded(value)


def question(node: Node, asked: Asked, text: str, feedback: str = "") -> AskHuman:
    """The effect that asks a person. `text` is the node's instruction."""
    question = asked.text or text
    return AskHuman(
        f"{question}\n\nRequested changes: {feedback}" if feedback else question,
        "form" if node.output is not None else "input",
        default=asked.default,
        expires_after=asked.expires,
        label=node.id,
        schema=node.output,
        by=asked.by,
    )


def answered(node: Node, asked: Asked, text: str, feedback: str) -> Program[Result]:
    """Asks a person; the answer is the result of the node."""
    answer: Answer = yield question(node, asked, text, feedback)
    if node.output is None:
        return Result("success", {"summary": answer.value})
    value = msgspec.json.decode(answer.value)
    return Result("success", value if isinstance(value, dict) else {"value": value})
