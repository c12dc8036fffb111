"""What came of a node: its status, its data, the tools it called, and what its evaluators say. Plain values."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.events import StepStatus
from cuebook.kernel.outcomes import Failed, ToolResult

Status = Literal["success", "failed", "skipped"]

STEP_STATUS: dict[Status, StepStatus] = {"success": "completed", "failed": "failed", "skipped": "skipped"}
"""What a node's step is, by the status of its result."""

REASONING = 500
"""Characters of reasoning that are kept."""


class Verdict(msgspec.Struct, frozen=True):
    """What one evaluator says."""

    name: str
    kind: Literal["value", "function", "judge"]
    passed: bool
    reasoning: str = ""

    def plain(self) -> dict[str, Any]:
        """As others read it."""
        said = {"name": self.name, "kind": self.kind, "pass": self.passed}
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
    """Why it failed; None where it did not."""
    seq: int | None = None
    """The record of the effect whose failure it was."""
    softens: bool = False
    """Whether `fail_soft` may make it a success: not what evaluators say, nor what was required."""

    @property
    def view(self) -> dict[str, Any]:
        """What later nodes see: its data, and the verdicts as `evals` unless the data has a value of that name."""
        if not self.verdicts or "evals" in self.data:
            return self.data
        return {"evals": {verdict.name: verdict.plain() for verdict in self.verdicts}, **self.data}


def failure(code: str, message: str, data: dict[str, Any] | None = None, fix: str = "") -> Result:
    return Result("failed", {**(data or {}), "error": message}, failed=Failed(code, message, fix))


def capped(text: str) -> str:
    return text if len(text) <= REASONING else f"{text[: REASONING - 1]}…"


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()
