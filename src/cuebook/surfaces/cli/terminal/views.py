"""Views of a run that is driven in the foreground: on a terminal, as plain lines, or as JSON events.

Results go to stdout and progress to stderr; on a terminal both are one stream. Views only display; they decide nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, Protocol, runtime_checkable

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.context import Text
from cuebook.kernel.events import (
    FOR_HOST,
    Noted,
    Performed,
    Performing,
    PlannedStep,
    StepFinished,
    StepSkipped,
    StepStarted,
    TextChunk,
    TextReset,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import CommandResult, Failed, HttpResponse, Page, Reply, ToolResult, Usage
from cuebook.kernel.run import RunRow, StepRow
from cuebook.kernel.votes import rule_of, votes_words
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import RunView
from cuebook.surfaces import display
from cuebook.surfaces.cli import next_steps
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.terminal.output import fitted, hand_over, harmless, in_json
from cuebook.surfaces.display import action_line, asked_lines, outcome_lines, output_lines

Seen = Entry | TextChunk | TextReset


ASKED = ("question", "approval", "in_doubt", "breakpoint")
"""The kinds of waits that a person at the terminal can decide."""


class View(Protocol):
    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        """Begins with the steps so far and the plan of the playbook. A Python program announces its plan later."""

    def see(self, event: Seen) -> None: ...

    def tick(self) -> None:
        """Called at regular intervals."""

    def rest(self) -> None:
        """Nothing is running: an asker may use the screen now."""

    def end(self, view: RunView) -> None:
        """The run is waiting or has ended."""


@runtime_checkable
class Remembering(Protocol):
    """A view that also needs the earlier events of a run."""

    def remember(self, source: Playbook | None, entries: Sequence[Entry]) -> None:
        """Receives the playbook and all events so far. Called before `begin`."""


def view_for(given: Given, *, asking: bool = False) -> View:
    """The view for these options. With `asking`, the asker shows the questions instead of the view."""
    if given.get("as_events"):
        return Events(sys.stdout)
    if given.get("as_json"):
        return Plain(sys.stderr, sys.stdout, as_json=True)
    if given.get("as_live") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        from cuebook.surfaces.cli.terminal.rich_view import Terminal

        return Terminal(color=not given.get("no_color"), asking=asking)
    return Plain(sys.stderr, sys.stdout, asking=asking)


class Plain:
    """Progress as lines on stderr, the last output on stdout."""

    def __init__(self, progress: IO[str], results: IO[str], *, as_json: bool = False, asking: bool = False) -> None:
        self._progress = progress
        self._results = results
        self._as_json = as_json
        self._unshown = ASKED if asking else ()
        self._dialect = ""
        self._failure = ""
        """The last failure that was shown."""
        self._titles: dict[str, str] = {}
        self._named: set[str] = set()
        """The steps whose heading was shown."""
        self._silent = ""
        """The current step, until some of its output is shown."""

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        self._dialect = row.dialect
        self._say(f"{title} (run {row.id}{f', {row.model}' if row.model else ''})")
        for step in steps:
            self._titles[step.label] = step.title
            if step.started and not step.finished:
                self._continue_step(step.label)

    def see(self, event: Seen) -> None:
        if not isinstance(event, Entry):
            return
        match event.event:
            case StepStarted(label=label, title=title):
                self._failure = ""
                self._named.add(label)
                self._silent = label
                self._say(f"step {named(label, title)}{again(event)}")
            case StepSkipped(label=label, title=title, reason=reason):
                self._named.add(label)
                self._silent = ""
                self._say(f"step {named(label, title)}")
                self._say(f"  skipped: {reason}")
            case StepFinished(label=self._silent, status="completed", output=Text() as output):
                self._print_below(event.place.step, [*output_lines(str(output)), *self._lines_of(event.event)])
            case other:
                if isinstance(other, Performed) and isinstance(other.outcome, CommandResult | HttpResponse | Page):
                    self._silent = ""
                self._print_below(event.place.step, self._lines_of(other))

    def _lines_of(self, event: object) -> list[str]:
        """The lines for an event below the heading of its step."""
        match event:
            case StepFinished(status="completed") as finished:
                return [stats(finished)]
            case StepFinished(status=status, reason=reason):
                return [] if says_again(reason, self._failure) else [f"{status}: {reason}"]
            case Warned(message=message):
                return [f"warning: {message}"]
            case WaitOpened(kind=kind) as wait if kind not in self._unshown:
                return asked_lines(wait)
            case Performed() as performed if (failed := failure_of(performed)) is not None:
                self._failure = str(failed)
                return [f"failed: {failed}"]
            case other:
                return noted(other, self._dialect)

    def _print_below(self, step: str, lines: list[str]) -> None:
        if lines and step in self._titles and step not in self._named:  # it was started earlier, as in a retry
            self._continue_step(step)
        for line in lines:
            self._say(f"  {line}")

    def _continue_step(self, step: str) -> None:
        self._named.add(step)
        self._say(f"step {named(step, self._titles[step])} (continued)")

    def tick(self) -> None:
        pass

    def rest(self) -> None:
        pass

    def end(self, view: RunView) -> None:
        for name, words in self._summary(view):
            self._say(f"{name}: {words}")
        if self._as_json:
            self._results.write(json_line(self._object(view)))
        elif view.run.status == "completed" and (output := run_objects.final_output(view)) is not None:
            text = str(output)
            hand_over(text if text.endswith("\n") else text + "\n", self._results)
        self._results.flush()

    def _object(self, view: RunView) -> dict[str, Any]:
        """The object that `--json` prints."""
        return next_steps.as_object(view)

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        """The closing lines as name and text."""
        return summary(view)

    def _say(self, line: str) -> None:
        print(fitted(harmless(" ".join(line.split("\n"))), self._progress), file=self._progress, flush=True)


class Events:
    """Every event as a line of JSON."""

    def __init__(self, results: IO[str]) -> None:
        self._results = results
        self.published = Published(None, "")
        """Adds the events of the playbook's format; set once the playbook is known."""

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        pass

    def see(self, event: Seen) -> None:
        for line in self.published.objects_of(event):
            self._results.write(json_line(line))
        self._results.flush()

    def tick(self) -> None:
        pass

    def rest(self) -> None:
        pass

    def end(self, view: RunView) -> None:
        pass


class Published:
    """The events of a run as JSON objects, including the events that the playbook's format defines."""

    def __init__(self, source: Playbook | None, run: str, seen: Iterable[Entry] = ()) -> None:
        """`seen` are the earlier events: not shown, but they may affect later ones."""
        self._projection = Projection() if source is None else source.observed(seen, run)

    def objects_of(self, event: Seen) -> list[dict[str, Any]]:
        """Cuebook's event merged with the format's first one, followed by the format's other events with the same id."""
        ours = event_object(event)
        first, *others = self._projection.see(event).published or [{}]
        return [{**ours, **first}, *({"id": ours["id"], **one} for one in others)]


def event_object(event: Seen) -> dict[str, Any]:
    """An event as a JSON object; `id` is where a reader resumes the stream."""
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


def failure_of(performed: Performed) -> Failed | None:
    """The failure to show for an outcome. Returns None for a missing text and for a model without tools, because the
    program reports those itself.
    """
    outcome = performed.outcome
    if not isinstance(outcome, Failed) or outcome.code in ("cancelled", "tools_unsupported"):
        return None
    if performed.fingerprint.startswith("ReadSource"):
        return None
    return outcome


def says_again(reason: str, failure: str) -> bool:
    """Whether a failed step's reason repeats the failure that was already shown."""
    return bool(reason) and failure.startswith(reason.rstrip(". "))


def named(label: str, title: str) -> str:
    """The label and the title of a step; only the label if it has no separate title."""
    return f"{label}: {title}" if title not in ("", label) else label


def again(entry: Entry) -> str:
    """The suffix of a step's title from its second visit on."""
    return f" (visit {entry.place.visit})" if entry.place.visit > 1 else ""


def noted(event: object, dialect: str) -> list[str]:
    """The lines for routes, retries, commands, requests and tool calls, and for their results."""
    match event:
        case Noted(name=name, data=data):
            live = registry.note(dialect, name, data).live
            return [live] if live else []
        case Performing(effect=effect) if line := action_line(effect):
            return [line]
        case Performed(outcome=CommandResult() | HttpResponse() | Page() as outcome):
            return outcome_lines(outcome)
        case Performed(outcome=Reply(calls=calls)):
            return [f"calls {call.name} {display.short(call.malformed or json_text(call.arguments))}" for call in calls]
        case Performed(outcome=ToolResult(is_error=True, value=value)):
            return [f"the tool failed: {display.short(value)}"]
    return []


def json_text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def json_line(value: Any) -> str:
    return in_json(json_text(value)) + "\n"


def stats(finished: StepFinished) -> str:
    """The time, tokens and money that a step used."""
    parts = [display.duration(finished.seconds)]
    if finished.usage is not None:
        parts += used(finished.usage)
    return ", ".join(parts)


def used(usage: Usage) -> list[str]:
    cost = "cost unknown" if usage.cost is None else display.money(usage.cost)
    return [f"{usage.input:,} tokens in", f"{usage.output:,} out", cost]


def _of_models(view: RunView) -> list[tuple[str, str]]:
    """The model of a run, or the models of its steps if it has none, with tokens and cost."""
    row = view.run
    model = row.model or ", ".join(dict.fromkeys(step.model for step in view.steps if step.model)) or "none"
    return [("model", model), ("tokens", display.tokens_of(row.totals)), ("cost", display.cost_of(row.totals))]


def summary(view: RunView) -> list[tuple[str, str]]:
    """The closing lines as name and text."""
    row = view.run
    lines = [("status", display.status_of(row, view.waits))]
    if row.error is not None:
        names_step = (
            not row.step
            or row.status != "failed"
            or str(row.error).startswith((f"Step {row.step} ", f"Node {row.step} "))
        )
        where = "" if names_step else f" (step {row.step})"
        lines.append(("why", f"{row.error}{where}"))
    for wait in view.waits:
        which = f" ({wait.id})" if sum(one.kind == wait.kind for one in view.waits) > 1 else ""
        if wait.kind == FOR_HOST:
            lines.append(
                ("waits for", f"the assistant (step {wait.place.step})" if wait.place.step else "the assistant")
            )
        else:
            lines.append((wait.kind.replace("_", " "), f"{wait.prompt}{which}"))
        if words := rule_of(wait.details).words():
            lines.append(("who decides", words))
        if words := votes_words(wait.details, wait.answer):
            lines.append(("votes", words))
        if wait.kind == "question" and (choices := display.choices_of(wait)):
            lines.append(("answers", choices))
        if wait.expires is not None and wait.kind in (*ASKED, "timer", FOR_HOST):
            lines.append(("until", display.moment(wait.expires)))
    lines += [
        ("steps", display.steps_of(row)),
        *([("incomplete", display.incomplete_of(view))] if view.incomplete else []),
        *([("artifact", view.artifact.type)] if view.artifact is not None and view.artifact.type else []),
        *(_of_models(view) if row.model or row.totals.calls else []),
        ("time", display.duration(row.totals.seconds)),
        ("run", row.id),
        *next_steps.hints(row, view.waits),
        ("next" if row.status != "completed" else "more", next_steps.what_next(row, view.waits)),
        *(next_steps.other_answers(view.waits) if row.status == "awaiting_input" else ()),
    ]
    return lines
