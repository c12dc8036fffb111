"""A visit of a node as the published events and the trace show it: its calls of tools, its evaluators, its attempts. Pure."""

from __future__ import annotations

from typing import Any

from cuebook.dialects.graph.results import Status
from cuebook.kernel.journal import Place
from cuebook.kernel.outcomes import Reply, ToolResult

Told = dict[str, Any]
"""An event, a step of the trace or a result, as the format has it."""


class Visit:
    """A visit of a node while it lasts."""

    def __init__(self, node: str, path: str, at: float) -> None:
        self.node, self.path, self.at = node, path, at
        self.calls: list[Told] = []
        """Of the last attempt."""
        self.under_way: dict[str, tuple[str, Told, float]] = {}
        """Calls that have begun, with their ids, by the path of their branch."""
        self.evals: list[Told] = []
        self.repairs = 0
        """Replies of the last attempt that were asked for again."""
        self.failures: list[Told] = []
        """Attempts before the last one."""

    def called(self, place: Place, reply: Reply, at: float) -> list[Told]:
        made = []
        for number, call in enumerate(reply.calls):
            # Arguments that could not be read are shown as they came.
            one: Told = {"tool": call.name, "input": call.malformed or call.arguments}
            self.calls.append(one)
            # The calls of a reply are the branches of the next `All` of the visit.
            self.under_way[f"{place.index + 1}[{number}]"] = (call.id, one, at)
            made.append({"type": "tool:call", "node": self.node, **one, "callId": call.id})
        return made

    def answered(self, place: Place, outcome: Any, at: float) -> Told | None:
        branch = place.path[len(self.path) :].rpartition(".")[2].rstrip("/")
        if branch not in self.under_way:
            return None
        call_id, call, began = self.under_way.pop(branch)
        told: Told = {"type": "tool:result", "node": self.node, "tool": call["tool"], "callId": call_id}
        if isinstance(outcome, ToolResult) and not outcome.is_error:
            call |= {"output": outcome.value, "status": "success"}
            told |= {"output": outcome.value}
        else:
            said = outcome.value if isinstance(outcome, ToolResult) else str(outcome)
            call["status"] = "error"
            told |= {"output": {"error": said}}
        return {**told, "duration": max(0.0, at - began)}

    def retried(self) -> None:
        self.failures.append({**self._step("failed"), "retryAttempt": len(self.failures)})
        self.calls, self.under_way, self.evals, self.repairs = [], {}, [], 0

    def result(self, status: Status, data: Told) -> Told:
        found: Told = {"status": status, "data": data, "toolCalls": self.calls}
        return {**found, "evals": self.evals} if self.evals else found

    def steps(self, status: Status) -> list[Told]:
        """One for each attempt; the number of an attempt is told where there were several."""
        last = self._step(status)
        return [*self.failures, {**last, "retryAttempt": len(self.failures)} if self.failures else last]

    def _step(self, status: Status) -> Told:
        """How often a reply was asked for again is told where it was."""
        step: Told = {"node": self.node, "status": status}
        return {**step, "repairs": self.repairs} if self.repairs else step
