"""The format's own events beside ours: `content` while text arrives, `done` when a step ends, `error` when one fails.

A stream keeps our event on every line and adds these fields where the format has a name for it. One name is added to
the format's: `reset`, for a reply that begins again, since the format has none for taking `content` back. Pure.
"""

from __future__ import annotations

from typing import Any

from cuebook.kernel.events import ModelAsked, Performed, RunFinished, StepFinished, StepSkipped, TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply, Usage


class Publisher:
    """Names the events of one run."""

    def __init__(self) -> None:
        self._streamed: set[str] = set()
        """Steps of whose reply a part has been seen."""

    def __call__(self, event: Entry | TextChunk | TextReset) -> list[dict[str, Any]]:
        return seed_events(self._unstreamed(event) or event)

    def _unstreamed(self, event: Entry | TextChunk | TextReset) -> TextChunk | None:
        """A reply that comes from the journal, where no one saw it stream, is one piece of text."""
        if isinstance(event, TextChunk):
            self._streamed.add(event.step)
        elif isinstance(event, TextReset):
            self._streamed.discard(event.step)
        elif isinstance(event.event, ModelAsked):
            self._streamed.discard(event.place.step)
        elif isinstance(event.event, Performed):
            outcome, step = event.event.outcome, event.place.step
            text = outcome.text[: outcome.released] if isinstance(outcome, Reply) else ""
            if text and step not in self._streamed:
                return TextChunk(event.run, event.seq, step, 0, text)
        return None


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
