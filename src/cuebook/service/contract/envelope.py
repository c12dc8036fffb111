"""The envelope: the runtime contract's answer about a run, in one of four forms. Pure.

The strict form has only the fields of the published format; the normal form has more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from cuebook.gate import approvals
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.effects import OUTPUT_OF
from cuebook.kernel.errors import (
    AlreadyAnswered,
    BadInput,
    Conflict,
    CuebookError,
    NotFound,
    Refused,
    StoreError,
    with_fix,
)
from cuebook.kernel.events import WAITING
from cuebook.kernel.journal import step_at
from cuebook.kernel.run import StepRow, WaitRow
from cuebook.kernel.short_ids import short_id
from cuebook.service.rate_limit import TooManyRuns
from cuebook.service.runs.views import RunView

Envelope = dict[str, Any]

MOST_ITEMS = 100
MOST_BYTES = 32_768
"""Limits on the total size of the earlier outputs that an approval shows."""
_CORE: dict[str, tuple[str, ...]] = {
    "ok": (),
    "status": (),
    "output": (),
    "requiresApproval": ("prompt", "items", "resumeToken"),
    "error": ("message", "code"),
}
"""The fields of the strict form, with their own fields."""

_URGENT = ("approval", "in_doubt", "question", "budget", "secret", "breakpoint", "model", "message", "timer", "needs")
"""Kinds of waits, most urgent first."""

_KINDS = {"in_doubt": "retry", "breakpoint": "pause", "step": "workflow_step"}
"""The envelope's names for kinds of waits, if they differ from ours."""


class EnvelopeWriter:
    """Creates the envelopes of runs."""

    def __init__(self, resume_token: Callable[[str], str], is_data: Callable[[str], bool]) -> None:
        """`is_data` returns whether the output of the step with this label is data rather than text."""
        self._resume_token = resume_token
        self._is_data = is_data

    def of(self, view: RunView) -> Envelope:
        """The envelope of a run that is waiting or has ended."""
        row, output = view.run, self._output(view)
        if row.status == "completed":
            return self._made("ok", view, output)
        if row.status in ("cancelled", "expired"):
            return self._made("cancelled", view, output, reason="" if row.error is None else row.error.message)
        wait = _first(view.waits) if row.status in WAITING else None
        if wait is not None:
            return self._made("needs_approval", view, output, requiresApproval=self._asked(wait, view))
        return self._made("error", view, output, error=self._failure(view))

    def late(self, view: RunView, where: str) -> Envelope:
        """The envelope of a run that continues after its caller stops waiting."""
        run = view.run.id
        message = f"Run {run} continues{where}; it neither ended nor needed anyone's input within the given time."
        error = {"message": message, "code": "timeout"}
        return self._made("error", view, self._output(view), error=error)

    def still(self, view: RunView) -> Envelope:
        """The envelope of a run that could continue but that no process is driving."""
        run = view.run.id
        fix = f"`cuebook resume {run}` continues it, as does a status request from a user who may run it."
        error = {"message": with_fix(f"No process is driving run {run}.", fix), "code": "not_driven"}
        return self._made("error", view, self._output(view), error=error)

    # --- parts ---

    def _made(self, status: str, view: RunView, output: list[Any], **more: Any) -> Envelope:
        made: Envelope = {"ok": status != "error", "status": status, "output": output}
        core = {name: value for name, value in more.items() if name in _CORE}
        steps = [_step(step, incomplete=step.label in view.incomplete) for step in view.steps]
        extra = {name: value for name, value in more.items() if name not in core and value}
        if view.incomplete:
            extra["incomplete"] = sorted(view.incomplete)
        return {**made, **core, "runId": view.run.id, **extra, "steps": steps}

    def _output(self, view: RunView) -> list[Any]:
        """The items of the run's result; before it ends, the items of the last completed step with an output."""
        if view.artifact is not None:
            return items_of(str(view.artifact.content), data=view.artifact.type == "json")
        done = [step for step in view.steps if step.status == "completed" and step.label in view.outputs]
        last = max(done, key=lambda step: (step.finished or 0.0, step.seq), default=None)
        return [] if last is None else self._items(last.label, view)

    def _items(self, label: str, view: RunView) -> list[Any]:
        return items_of(str(view.outputs[label]), data=self._is_data(label))

    def _asked(self, wait: WaitRow, view: RunView) -> dict[str, Any]:
        preview = wait.details.get("preview", {})
        shown = [preview] if wait.kind == "in_doubt" and preview else self._shown(preview, view)
        items, left_out = capped(shown)
        made: dict[str, Any] = {"prompt": wait.prompt, "items": items, "resumeToken": self._resume_token(wait.id)}
        extra = {
            "approvalId": wait.id,
            "shortId": short_id(wait.id),
            "kind": kind_of(wait),
            "stepId": step_at(wait.place),
            "preview": preview,
            "itemsLeftOut": left_out,
            "rules": wait.details.get("rules", []),
            "expiresAt": None if wait.expires is None else _moment(wait.expires),
            "options": list(wait.options) if wait.kind == "question" else [],
            "default": wait.default,
        }
        return {**made, **{name: value for name, value in extra.items() if value}}

    def _shown(self, preview: dict[str, str], view: RunView) -> list[Any]:
        """The outputs of earlier steps to show, as data; if there are none, the action itself."""
        steps = [name.removeprefix(OUTPUT_OF) for name in preview if name.startswith(OUTPUT_OF)]
        if not steps:
            return [preview] if preview else []
        found: list[Any] = []
        for label in steps:
            shown = preview[f"{OUTPUT_OF}{label}"]
            found += self._items(label, view) if label in view.outputs else items_of(shown, data=True)
        return found

    def _failure(self, view: RunView) -> dict[str, Any]:
        row = view.run
        if row.error is None:  # its program no longer matches its journal
            return {"message": f"Run {row.id} is {row.status}: {row.reason}.", "code": row.reason or row.status}
        error = {"message": with_fix(row.error.message, row.error.fix), "code": row.error.code}
        step = str(row.error.details.get("step", "") or row.step)
        return {**error, "stepId": step} if step else error


def strict_form(envelope: Envelope) -> Envelope:
    """The envelope with only the fields of the published format."""
    return {
        name: {part: value[part] for part in parts} if parts else value
        for name, value in envelope.items()
        if (parts := _CORE.get(name)) is not None
    }


def refused(error: CuebookError, run: str = "") -> Envelope:
    """The envelope of a request that failed."""
    made: Envelope = {
        "ok": False,
        "status": "error",
        "output": [],
        "error": {"message": str(error), "code": code_of(error)},
    }
    return {**made, "runId": run} if run else made


_CODES: tuple[tuple[tuple[type[CuebookError], ...], str], ...] = (
    ((NotFound,), "not_found"),
    ((AlreadyAnswered, Conflict), "conflict"),
    ((NotAllowed, TooManyRuns), ""),
    ((BadInput,), "invalid_request"),
    ((Refused,), "invalid_state"),
    ((StoreError,), "internal"),
)


def code_of(error: CuebookError) -> str:
    """The format's code for an error, or else our own code."""
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code or error.code
    return error.code


def kind_of(wait: WaitRow) -> str:
    """The kind of a wait, in the format's terms."""
    kind = str(wait.details.get("purpose") or "policy") if wait.kind == "approval" else wait.kind
    return _KINDS.get(kind, kind)


def items_of(text: str, *, data: bool) -> list[Any]:
    """Splits a text into items: the members of a JSON list, another JSON value, or the text itself."""
    if not data:
        return [text]
    try:
        value = msgspec.json.decode(text.strip().encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return [text]
    return value if isinstance(value, list) else [value]


def capped(items: Sequence[Any]) -> tuple[list[Any], int]:
    """The items that fit the limits, and the number that were left out. A long text is cut in the middle."""
    kept: list[Any] = []
    left = MOST_BYTES
    for item in items[:MOST_ITEMS]:
        size = len(msgspec.json.encode(item))
        if size > left and isinstance(item, str):
            item = approvals.shown(item)
            size = len(msgspec.json.encode(item))
        if size > left:
            break
        left -= size
        kept.append(item)
    return kept, len(items) - len(kept)


def _first(waits: Sequence[WaitRow]) -> WaitRow | None:
    return min(waits, key=lambda wait: (_URGENT.index(wait.kind), wait.opened), default=None)


def _step(step: StepRow, *, incomplete: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"id": step.name, "status": step.status}
    if incomplete:
        made["incomplete"] = True
    if step.title:
        made["name"] = step.title
    if step.reason:
        made["reason"] = step.reason
    if step.started is not None and step.finished is not None:
        made["seconds"] = round(step.totals.seconds, 3)  # without the time it spent waiting for someone
    return made


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
