"""What a person sees while a run is driven in the foreground: a terminal's view, plain lines, or events as JSON.

Results go to stdout, progress to stderr; on a terminal both are one stream. Views only show: they decide nothing.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Protocol

import msgspec

from cuebook.kernel.effects import Failed, Usage
from cuebook.kernel.events import (
    Performed,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service import RunView
from cuebook.surfaces.cli import wording
from cuebook.surfaces.cli.options import Given

Seen = Entry | TextChunk | TextReset


class View(Protocol):
    def begin(self, title: str, row: RunRow, steps: list[StepRow]) -> None:
        """The steps are those known so far; a new run tells them itself."""

    def see(self, event: Seen) -> None: ...

    def end(self, view: RunView) -> None:
        """The run waits or has ended."""


def view_for(given: Given) -> View:
    if given.get("as_events"):
        return Events(sys.stdout)
    if given.get("as_json"):
        return Plain(sys.stderr, sys.stdout, as_json=True)
    if given.get("as_live") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        from cuebook.surfaces.cli.terminal import Terminal

        return Terminal(color=not given.get("no_color"))
    return Plain(sys.stderr, sys.stdout)


class Plain:
    """Progress as lines on stderr, the last output on stdout."""

    def __init__(self, progress: IO[str], results: IO[str], *, as_json: bool = False) -> None:
        self._progress = progress
        self._results = results
        self._as_json = as_json

    def begin(self, title: str, row: RunRow, steps: list[StepRow]) -> None:
        self._say(f"{title} (run {row.id}, {row.model})")

    def see(self, event: Seen) -> None:
        if not isinstance(event, Entry):
            return
        match event.event:
            case StepStarted(label=label, title=title):
                self._say(f"step {label}: {title}")
            case StepFinished(status="completed") as finished:
                self._say(f"  {stats(finished)}")
            case StepFinished(label=label, status=status, reason=reason):
                self._say(f"  {status}: {reason}")
            case Warned(message=message):
                self._say(f"  warning: {message}")
            case WaitOpened(prompt=prompt):
                self._say(f"  {prompt}")
            case Performed(outcome=Failed() as failed) if failed.code != "cancelled":
                self._say(f"  failed: {failed}")
            case _:
                pass

    def end(self, view: RunView) -> None:
        for name, words in summary(view):
            self._say(f"{name}: {words}")
        if self._as_json:
            self._results.write(json_line(wording.as_object(view)))
        elif view.run.status == "completed" and (output := wording.final_output(view)) is not None:
            text = str(output)
            self._results.write(text if text.endswith("\n") else text + "\n")
        self._results.flush()

    def _say(self, line: str) -> None:
        print(" ".join(line.split("\n")), file=self._progress, flush=True)


class Events:
    """Every event as a line of JSON."""

    def __init__(self, results: IO[str]) -> None:
        self._results = results

    def begin(self, title: str, row: RunRow, steps: list[StepRow]) -> None:
        pass

    def see(self, event: Seen) -> None:
        self._results.write(json_line(event_object(event)))
        self._results.flush()

    def end(self, view: RunView) -> None:
        pass


def event_object(event: Seen) -> dict[str, Any]:
    """An event as NDJSON and other streams carry it; `id` is what a reader comes back with."""
    if isinstance(event, Entry):
        body = msgspec.to_builtins(event.event, enc_hook=str)
        kind = body.pop("is")
        place = {"path": event.place.path, "step": event.place.step, "visit": event.place.visit}
        return {"id": str(event.seq), "run": event.run, "at": event.at, "event": kind, "place": place, "data": body}
    data: dict[str, Any] = {"step": event.step}
    if isinstance(event, TextReset):
        return {"id": str(event.seq), "run": event.run, "event": "TextReset", "data": data}
    data |= {"offset": event.offset, "text": event.text}
    return {"id": event.id, "run": event.run, "event": "TextChunk", "data": data}


def json_line(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode() + "\n"


def stats(finished: StepFinished) -> str:
    """What a step took: time, tokens, money."""
    parts = [wording.duration(finished.seconds)]
    if finished.usage is not None:
        parts += used(finished.usage)
    return ", ".join(parts)


def used(usage: Usage) -> list[str]:
    cost = "cost unknown" if usage.cost is None else wording.money(usage.cost)
    return [f"{usage.input:,} tokens in", f"{usage.output:,} out", cost]


def summary(view: RunView) -> list[tuple[str, str]]:
    """The closing lines: name and words."""
    row = view.run
    lines = [("status", wording.status_of(row))]
    if row.error is not None:
        where = f" (step {row.step})" if row.step and row.status == "failed" else ""
        lines.append(("why", f"{row.error}{where}"))
    lines += [(wait.kind.replace("_", " "), wait.prompt) for wait in view.waits]
    lines += [
        ("steps", wording.steps_done(view.steps)),
        ("model", row.model),
        ("tokens", wording.tokens_of(row.totals)),
        ("cost", wording.cost_of(row.totals)),
        ("time", wording.duration(row.totals.seconds)),
        ("run", row.id),
        ("next" if row.status != "completed" else "again", wording.what_next(row, view.waits)),
    ]
    return lines
