"""What a person sees while a run is driven in the foreground: a terminal's view, plain lines, or events as JSON.

Results go to stdout, progress to stderr; on a terminal both are one stream. Views only show: they decide nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, Protocol, runtime_checkable

import msgspec

from cuebook.dialects.registry import Publisher, Publishing
from cuebook.kernel.context import Text
from cuebook.kernel.events import (
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
from cuebook.kernel.outcomes import CommandResult, Failed, HttpResponse, Reply, ToolResult, Usage
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service import RunView
from cuebook.surfaces import wording
from cuebook.surfaces.cli import onward
from cuebook.surfaces.cli.answers import Source
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import hand_over, harmless, in_json
from cuebook.surfaces.summaries import action_line, asked_lines, note_words, outcome_lines, output_lines

Seen = Entry | TextChunk | TextReset


_TOLD = ("attempt", "contract", "postcondition", "repair")
"""What dialects note that is said as it happens. A condition that does not hold is said by the step that is skipped."""

ASKED = ("question", "approval", "in_doubt", "breakpoint")
"""What a person can be asked for in place."""


class View(Protocol):
    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        """The steps are those known so far, the plan what the playbook tells; a program of one's own tells it later."""

    def see(self, event: Seen) -> None: ...

    def tick(self) -> None:
        """A moment has passed."""

    def rest(self) -> None:
        """Nothing is under way: somebody else may write to the same screen now."""

    def end(self, view: RunView) -> None:
        """The run waits or has ended."""


@runtime_checkable
class Remembering(Protocol):
    """A view that shows more of a run than what happens from now on."""

    def remember(self, source: Source | None, entries: Sequence[Entry]) -> None:
        """What the playbook says, and everything that has happened. It comes before `begin`."""


def view_for(given: Given, *, asking: bool = False) -> View:
    """With `asking`, whoever asks shows the questions too, and the view need not."""
    if given.get("as_events"):
        return Events(sys.stdout)
    if given.get("as_json"):
        return Plain(sys.stderr, sys.stdout, as_json=True)
    if given.get("as_live") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        from cuebook.surfaces.cli.terminal import Terminal

        return Terminal(color=not given.get("no_color"), asking=asking)
    return Plain(sys.stderr, sys.stdout, asking=asking)


class Plain:
    """Progress as lines on stderr, the last output on stdout."""

    def __init__(self, progress: IO[str], results: IO[str], *, as_json: bool = False, asking: bool = False) -> None:
        self._progress = progress
        self._results = results
        self._as_json = as_json
        self._unshown = ASKED if asking else ()
        self._failure = ""
        """What was told last of something that failed."""
        self._titles: dict[str, str] = {}
        self._named: set[str] = set()
        """The steps that have had a line of their own."""
        self._silent = ""
        """The step that began last, as long as nothing was shown that it gave."""

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        self._say(f"{title} (run {row.id}{f', {row.model}' if row.model else ''})")
        for step in steps:
            self._titles[step.label] = step.title
            if step.started and not step.finished:
                self._go_on(step.label)

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
                self._tell(event.place.step, [*output_lines(str(output)), *self._words_of(event.event)])
            case other:
                if isinstance(other, Performed) and isinstance(other.outcome, CommandResult | HttpResponse):
                    self._silent = ""
                self._tell(event.place.step, self._words_of(other))

    def _words_of(self, event: object) -> list[str]:
        """What is said below the line of a step."""
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
                return noted(other)

    def _tell(self, step: str, lines: list[str]) -> None:
        if lines and step in self._titles and step not in self._named:  # it was begun before, as after a retry
            self._go_on(step)
        for line in lines:
            self._say(f"  {line}")

    def _go_on(self, step: str) -> None:
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
        elif view.run.status == "completed" and (output := wording.final_output(view)) is not None:
            text = str(output)
            hand_over(text if text.endswith("\n") else text + "\n", self._results)
        self._results.flush()

    def _object(self, view: RunView) -> dict[str, Any]:
        """The run as JSON has it."""
        return onward.as_object(view)

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        """The closing lines: name and words."""
        return summary(view)

    def _say(self, line: str) -> None:
        print(harmless(" ".join(line.split("\n"))), file=self._progress, flush=True)


class Events:
    """Every event as a line of JSON."""

    def __init__(self, results: IO[str]) -> None:
        self._results = results
        self.published = Published(None, "")
        """What the playbook's format calls the events; whoever knows the playbook sets it."""

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
    """A run's events as a stream carries them: each as it is, and what the playbook's format calls it beside that."""

    def __init__(self, source: Source | None, run: str, seen: Iterable[Entry] = ()) -> None:
        """`seen` is what happened before, which is not shown but may count."""
        self._names: Publisher = _nameless
        if source is not None and isinstance(source.dialect, Publishing):
            self._names = source.dialect.publisher(source.document, run)
        for entry in seen:
            self._names(entry)

    def objects_of(self, event: Seen) -> list[dict[str, Any]]:
        """Our event with the first that the format has for it; the others follow by themselves, under the same id."""
        ours = event_object(event)
        first, *others = self._names(event) or [{}]
        return [{**ours, **first}, *({"id": ours["id"], **one} for one in others)]


def _nameless(event: Seen) -> list[dict[str, Any]]:
    return []


def event_object(event: Seen) -> dict[str, Any]:
    """An event of ours as a stream carries it; `id` is what a reader comes back with."""
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
    """A failure to be shown as it happens. Of a text that is missing, and of a model that takes no tools, the program
    says itself what becomes of it.
    """
    outcome = performed.outcome
    if not isinstance(outcome, Failed) or outcome.code in ("cancelled", "tools_unsupported"):
        return None
    if performed.fingerprint.startswith("ReadSource"):
        return None
    return outcome


def says_again(reason: str, failure: str) -> bool:
    """Whether a step ended for what was told already."""
    return bool(reason) and failure.startswith(reason.rstrip(". "))


def named(label: str, title: str) -> str:
    """A step as people call it. One without a title of its own has its label as one."""
    return f"{label}: {title}" if title not in ("", label) else label


def again(entry: Entry) -> str:
    """What is added to a step's title where it is not visited for the first time."""
    return f" (visit {entry.place.visit})" if entry.place.visit > 1 else ""


def noted(event: object) -> list[str]:
    """What a person wants to know besides: which way a run goes and why, what is tried again, what is
    run, sent and called, and how that ended.
    """
    match event:
        case Noted(name="route" | "model_attempt" as name, data=data):
            return [note_words(name, data)]
        case Noted(name=name, data=data) if name in _TOLD:
            return [f"{name}: {note_words(name, data)}"]
        case Performing(effect=effect) if line := action_line(effect):
            return [line]
        case Performed(outcome=CommandResult() | HttpResponse() as outcome):
            return outcome_lines(outcome)
        case Noted(name="retry", data=data):
            return [f"tries again ({data.get('attempt')}): {wording.short(data.get('reason', ''))}"]
        case Performed(outcome=Reply(calls=calls)):
            return [f"calls {call.name} {wording.short(call.malformed or json_text(call.arguments))}" for call in calls]
        case Performed(outcome=ToolResult(is_error=True, value=value)):
            return [f"the tool failed: {wording.short(value)}"]
    return []


def json_text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def json_line(value: Any) -> str:
    return in_json(json_text(value)) + "\n"


def stats(finished: StepFinished) -> str:
    """What a step took: time, tokens, money."""
    parts = [wording.duration(finished.seconds)]
    if finished.usage is not None:
        parts += used(finished.usage)
    return ", ".join(parts)


def used(usage: Usage) -> list[str]:
    cost = "cost unknown" if usage.cost is None else wording.money(usage.cost)
    return [f"{usage.input:,} tokens in", f"{usage.output:,} out", cost]


def _of_models(view: RunView) -> list[tuple[str, str]]:
    """What is said of a run that may ask models: its own, or those of its steps where it has none."""
    row = view.run
    model = row.model or ", ".join(dict.fromkeys(step.model for step in view.steps if step.model)) or "none"
    return [("model", model), ("tokens", wording.tokens_of(row.totals)), ("cost", wording.cost_of(row.totals))]


def summary(view: RunView) -> list[tuple[str, str]]:
    """The closing lines: name and words."""
    row = view.run
    lines = [("status", wording.status_of(row, view.waits))]
    if row.error is not None:
        told = (
            not row.step
            or row.status != "failed"
            or str(row.error).startswith((f"Step {row.step} ", f"Node {row.step} "))
        )
        where = "" if told else f" (step {row.step})"
        lines.append(("why", f"{row.error}{where}"))
    for wait in view.waits:
        which = f" ({wait.id})" if sum(one.kind == wait.kind for one in view.waits) > 1 else ""
        lines.append((wait.kind.replace("_", " "), f"{wait.prompt}{which}"))
        if wait.kind == "question" and (choices := wording.choices_of(wait)):
            lines.append(("answers", choices))
        if wait.expires is not None and wait.kind in (*ASKED, "timer"):
            lines.append(("until", wording.moment(wait.expires)))
    lines += [
        ("steps", wording.steps_of(row)),
        *([("incomplete", wording.incomplete_of(view))] if view.incomplete else []),
        *([("artifact", view.artifact.type)] if view.artifact is not None and view.artifact.type else []),
        *(_of_models(view) if row.model or row.totals.calls else []),
        ("time", wording.duration(row.totals.seconds)),
        ("run", row.id),
        *onward.besides(row, view.waits),
        ("next" if row.status != "completed" else "again", onward.what_next(row, view.waits)),
        *(onward.others(view.waits) if row.status == "awaiting_input" else ()),
    ]
    return lines
