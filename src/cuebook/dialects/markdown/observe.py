"""The state and the events of a Markdown run as the format defines them. Pure.

The format defines ten keys of the pause state; the others are additions that readers may ignore. The event `reset` is an
addition too, because the format has no event for a reply that starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cuebook.dialects.markdown.inputs import as_text
from cuebook.dialects.markdown.model import Book, Branch, Step, condition_words
from cuebook.dialects.presentation.projection import Projection, PublishedEvent, RunEvent, Update
from cuebook.kernel.events import (
    WAITING,
    Forked,
    ModelAsked,
    Performed,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
    TextChunk,
    TextReset,
    ValueSet,
)
from cuebook.kernel.journal import Entry, without_void
from cuebook.kernel.outcomes import Reply, Resumed, Usage
from cuebook.kernel.run import RunRow, Settings, WaitRow

SCHEMA_VERSION = 1


class MarkdownProjection(Projection):
    def __init__(self, book: Book) -> None:
        self._book = book
        self._entries: list[Entry] = []
        self._streamed: set[str] = set()
        """The steps whose reply has begun to stream."""
        self.branches = {
            sub.label: _why(step, branch) for step in book.steps for branch in step.branches for sub in branch.steps
        }

    def see(self, event: RunEvent) -> Update:
        if isinstance(event, Entry):
            self._entries.append(event)
            if isinstance(event.event, Rewound):
                self._entries = without_void(self._entries)
        return Update(published=published(self._unstreamed(event) or event))

    def state(self, row: RunRow, waits: Iterable[WaitRow], text: str, settings: Settings) -> dict[str, Any]:
        fold = _Fold(self._book)
        for entry in self._entries:
            fold.add(entry)
        return _state(row, self._book, fold, waits, text, settings)

    def _unstreamed(self, event: RunEvent) -> TextChunk | None:
        """The whole reply as one chunk, if it did not stream."""
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


def _why(step: Step, branch: Branch) -> str:
    """Why a branch is taken."""
    if branch.condition is not None:
        return condition_words(branch)
    others = [condition_words(one) for one in step.branches if one.condition is not None]
    return f"otherwise, not {' or '.join(others)}"


# --- the format's events ---


def published(event: RunEvent) -> list[PublishedEvent]:
    """The events that the format defines for an event of the run: none or one. `type` is the format's name."""
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


# --- the pause state ---


def _state(
    row: RunRow, book: Book, fold: _Fold, waits: Iterable[WaitRow], text: str, settings: Settings
) -> dict[str, Any]:
    wait = min(waits, key=lambda one: one.kind not in ("question", "breakpoint"), default=None)
    return {
        "execution_id": row.id,
        "playbook_id": row.name,
        "model_id": settings.model or row.model,
        "system_prompt": book.system,
        "input_values": fold.inputs,
        "step_outputs": fold.by_number,
        "named_outputs": fold.named,
        "breakpoints": dict.fromkeys(settings.breakpoints, True),
        "status": "paused" if row.status == "awaiting_approval" else row.status,  # the format has no approvals
        "paused_at_step": _number(book, row, wait),
        # --- additions ---
        "schema_version": SCHEMA_VERSION,
        "source": text,
        "source_hash": row.playbook,
        "waiting_for": wait.kind if wait is not None and row.status in WAITING else None,
        "elicitation": _elicitation(wait),
        "expires_at": _moment(wait.expires) if wait is not None and wait.expires is not None else None,
        "branch": fold.branch(),
        "outputs_by_label": fold.by_label,
    }


class _Fold:
    """Computes the pause state from the journal."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._declared = frozenset(one.name for one in book.inputs)
        self._tops = frozenset(step.label for step in book.steps)
        self._open: list[tuple[str, str]] = []
        """The label and title of each step that has started but not ended."""
        self._inner: list[tuple[str, str]] = []
        """The sub-steps that have started in the outermost open step."""
        self._ended: list[str] = []
        self._repeated: set[str] = set()
        """Names that the user changed, until the program confirms the change."""
        self.inputs: dict[str, str] = {}
        self.named: dict[str, str] = {}
        self.by_number: dict[str, str] = {}
        self.by_label: dict[str, str] = {}

    def add(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case RunStarted():
                self.inputs.update((name, as_text(value)) for name, value in event.inputs.items())
            case Forked():
                self._override(event.values)
            case Performed(outcome=Resumed(overrides=overrides)):
                self._override(overrides)
            case StepStarted():
                self._start(event)
            case StepFinished():
                self._finish(event, entry.place.visit)
            case ValueSet() if event.name in self._repeated:
                self._repeated.discard(event.name)
            case ValueSet():
                self.named[event.name] = as_text(event.value)
            case _:
                pass

    def _override(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            kept = self.inputs if name in self._declared else self.named
            kept[name] = as_text(value)
            self._repeated.add(name)

    def _start(self, event: StepStarted) -> None:
        if self._open:
            self._inner.append((event.label, event.title))
        else:
            self._inner, self._ended = [], []
        self._open.append((event.label, event.title))

    def _finish(self, event: StepFinished, visit: int) -> None:
        self._ended.append(event.label)
        if self._open:
            self._open.pop()
        if event.output is None:
            return
        output = str(event.output)
        self.by_label[event.label if visit <= 1 else f"{event.label}#{visit}"] = output
        if event.label in self._tops:
            self.by_number[event.label] = output

    def branch(self) -> dict[str, Any] | None:
        """The current branch with its current and finished sub-steps; None outside a branch."""
        if not self._open or not self._inner:
            return None
        (label, title), (inner, inner_title) = self._open[0], self._inner[-1]
        step = next((s for s in self._book.steps if (s.label, s.title) == (label, title)), None)
        index = None if step is None else _index_of(step, inner, inner_title)
        return {"step": label, "index": index, "sub_step": inner, "finished": list(self._ended)}


def _index_of(step: Step, label: str, title: str) -> int | None:
    for index, branch in enumerate(step.branches):
        if any((sub.label, sub.title) == (label, title) for sub in branch.steps):
            return index
    return None


def _number(book: Book, row: RunRow, wait: WaitRow | None) -> int | None:
    """The number of the step where the run is waiting, even inside a sub-step; None if it is not waiting."""
    if row.status not in WAITING:
        return None
    label = wait.place.step if wait is not None and wait.place.step else row.step
    return next((step.number for step in book.walk() if step.label == label), None)


def _elicitation(wait: WaitRow | None) -> dict[str, Any] | None:
    if wait is None or wait.kind != "question":
        return None
    return {
        "step": wait.place.step,
        "type": wait.type,
        "prompt": wait.prompt,
        "options": list(wait.options),
        "default": wait.default,
        "wait": wait.id,
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
