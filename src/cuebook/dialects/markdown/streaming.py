"""The format's own events beside ours: `content` while text arrives, `done` when a step ends, `error` when one fails.

A stream keeps our event on every line and adds these fields where the format has a name for it. One name is added to
the format's: `reset`, for a reply that begins again, since the format has none for taking `content` back. Pure.
"""

from __future__ import annotations

from typing import Any

from cuebook.kernel.effects import Usage
from cuebook.kernel.events import RunFinished, StepFinished, StepSkipped, TextChunk, TextReset
from cuebook.kernel.journal import Entry


def seed_events(event: Entry | TextChunk | TextReset) -> list[dict[str, Any]]:
    """What the format says of an event of ours: nothing, or one object whose `type` is the format's name for it."""
    if isinstance(event, TextChunk):
        return [{"type": "content", "step": event.step, "content": event.text}]
    if isinstance(event, TextReset):
        return [{"type": "reset", "step": event.step}]
    match event.event:
        case StepFinished() as finished:
            return [_done(finished.label, finished.status, finished.usage, finished.seconds)]
        case StepSkipped(label=label):
            return [_done(label, "skipped", None, 0.0)]
        case RunFinished(error=error) as ended if error is not None:
            failed = {"step": ended.step, "error": str(error), "code": error.code, "status": ended.status}
            return [{"type": "error", **failed}]
        case _:
            return []


def _done(step: str, status: str, usage: Usage | None, seconds: float) -> dict[str, Any]:
    used = usage or Usage()
    tokens = {
        "input": used.input,
        "output": used.output,
        "cached": used.cached,
        "reasoning": used.reasoning,
        "total": used.input + used.output,
    }
    return {"type": "done", "step": step, "status": status, "tokens": tokens, "latency": seconds, "cost": used.cost}
