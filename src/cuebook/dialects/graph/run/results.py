"""The result of a node: its status, data, tool calls and verdicts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.events import StepStatus
from cuebook.kernel.outcomes import Failed, ToolResult

Status = Literal["success", "failed", "skipped"]

STEP_STATUS: dict[Status, StepStatus] = {"success": "completed", "failed": "failed", "skipped": "skipped"}
"""The status of a step, by the status of its node's result."""

REASONING = 500
"""The maximum length of reasoning that is kept."""


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of one evaluator."""

    name: str
    kind: Literal["value", "function", "judge"]
    passed: bool
    reasoning: str = ""
    self_judged: bool = False
    """Whether the assistant that did the work also judged it."""

    def plain(self) -> dict[str, Any]:
        """The verdict as later nodes and readers see it."""
        said = {"name": self.name, "kind": self.kind, "pass": self.passed}
        said |= {"self_judged": True} if self.self_judged else {}
        return {**said, "reasoning": capped(self.reasoning)} if self.reasoning else said

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}): {capped(self.reasoning) or 'no reasoning'}"


class Result(msgspec.Struct):
    """A node's result."""

    status: Status
    data: dict[str, Any]
    calls: list[tuple[ToolCall, ToolResult]] = []
    verdicts: list[Verdict] = []
    failed: Failed | None = None
    """The failure; None if it did not fail."""
    seq: int | None = None
    """The record of the effect that failed."""
    softens: bool = False
    """Whether `fail_soft` may turn it into a success. Failed evaluations and requirements stay failures."""

    @property
    def view(self) -> dict[str, Any]:
        """The result as later nodes see it: its data, with the verdicts as `evals` unless the data has such a field."""
        if not self.verdicts or "evals" in self.data:
            return self.data
        return {"evals": {verdict.name: verdict.plain() for verdict in self.verdicts}, **self.data}


def failure(code: str, message: str, data: dict[str, Any] | None = None, fix: str = "") -> Result:
    return Result("failed", {**(data or {}), "error": message}, failed=Failed(code, message, fix))


def capped(text: str) -> str:
    return text if len(text) <= REASONING else f"{text[: REASONING - 1]}…"


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()
