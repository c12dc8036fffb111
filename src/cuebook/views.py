"""What people look at: a run with everything about it, folded from its journal, and texts as one reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.kernel.context import Text
from cuebook.kernel.events import (
    ArtifactMade,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    RunStarted,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
    ValueSet,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import Answer, Failed, Reply, Resumed, is_incomplete
from cuebook.kernel.questions import BEFOREHAND, UNATTENDED
from cuebook.kernel.run import RunRow, StepRow, WaitRow

ARTIFACT_FILES: dict[str, tuple[str, str]] = {
    "": (".md", "text/markdown"),
    "markdown": (".md", "text/markdown"),
    "json": (".json", "application/json"),
    "chartjs": (".json", "application/json"),
    "mermaid": (".mmd", "text/plain"),
    "html_css": (".html", "text/html"),
    "javascript": (".js", "text/plain"),
    "typescript": (".ts", "text/plain"),
}
"""How an artifact of each type is kept in a file: the end of its name, and its content type. One without a type is
kept as Markdown.
"""


_BRIEF = 60
"""Characters of a changed value that a note shows."""


class Answered(msgspec.Struct, frozen=True):
    """A question that a step asked, what was answered and by whom."""

    question: str
    answer: str
    by: str

    @property
    def giver(self) -> str:
        """Who answered, for people to read."""
        return _GIVERS.get(self.by, self.by) or "a person"


def only_answered(step: StepRow, output: Text | None, answers: Sequence[Answered]) -> bool:
    """Whether the output of a step is nothing but the last answer that a person gave in it."""
    return output is not None and not step.totals.calls and bool(answers) and str(output) == answers[-1].answer


_GIVERS = {BEFOREHAND: "an answer given beforehand", UNATTENDED: "its default, as nobody was asked"}


class Answers:
    """Collects what was answered, from the entries of a journal, one at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}

    def see(self, event: object) -> Answered | None:
        match event:
            case WaitOpened(kind="question"):
                self._asked[event.wait] = event.prompt
            case WaitClosed(kind="question", how="answered"):
                return Answered(self._asked.pop(event.wait, ""), str(event.answer.get("value", "")), event.by)
            case Performed(outcome=Answer(question=question) as given) if question:
                return Answered(question, given.value, given.by)
        return None


def changed_words(name: str, value: Any, by: str) -> str:
    """That a value was changed, and by whom."""
    return f"changed by {by or 'a person'}: {name} = {_brief(value)}"


class RunView(msgspec.Struct, frozen=True):
    """A run with everything a person looks at."""

    run: RunRow
    steps: list[StepRow]
    waits: list[WaitRow]
    values: dict[str, Any]
    outputs: dict[str, Text]
    """Each step's last text, by label."""
    artifact: ArtifactMade | None
    result: Any
    notes: dict[str, list[str]] = {}
    """What is to be known of each step besides its output, by label: warnings, and who decided what."""
    inputs: dict[str, Any] = {}
    """Those it has by now: a fork or a resumption may have changed some."""
    answers: dict[str, list[Answered]] = {}
    """What each step asked, and what was answered, by label."""
    partial: dict[str, str] = {}
    """What models had said in steps that were cut short, by label."""
    passed_on: dict[str, str] = {}
    """Steps whose output is that of a step within them, by label, and the label of that one."""
    changed_inputs: frozenset[str] = frozenset()
    """Those that were changed. The program tells them among its values too."""
    incomplete: frozenset[str] = frozenset()
    """Steps of whose output not all was kept as it was: it was longer than the limit, or had bytes that are no text."""


def view_of(row: RunRow, steps: list[StepRow], waits: list[WaitRow], entries: Iterable[Entry]) -> RunView:
    values: dict[str, Any] = {}
    outputs: dict[str, Text] = {}
    artifact: ArtifactMade | None = None
    result: Any = None
    notes: dict[str, list[str]] = {}
    asked: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    changed: set[str] = set()
    incomplete: set[str] = set()
    answers: dict[str, list[Answered]] = {}
    partial: dict[str, str] = {}
    asking = Answers()
    nesting = Nesting()

    def change(given: Mapping[str, Any]) -> None:
        own = {name: value for name, value in given.items() if name in inputs}
        inputs.update(own)
        changed.update(own)

    def told_of(step: str, given: Mapping[str, Any], by: str) -> None:
        said = [changed_words(name, value, by) for name, value in given.items()]
        if said:
            notes.setdefault(step, []).extend(said)

    for entry in entries:
        event = entry.event
        if isinstance(event, Performed) and is_incomplete(event.outcome):
            incomplete.add(entry.place.step)
        if (answered := asking.see(event)) is not None:
            answers.setdefault(entry.place.step, []).append(answered)
        nesting.see(entry)
        match event:
            case RunStarted():
                inputs.update(event.inputs)
            case Forked():
                change(event.values)
                told_of(event.step, event.values, event.owner)
            case Performed(outcome=Resumed(overrides=overrides, by=by)):
                change(overrides)
                told_of(entry.place.step, overrides, by)
            case Performed(outcome=Failed(details={"said": str(said)})):
                partial[entry.place.step] = said
            case Warned():
                notes.setdefault(entry.place.step, []).append(f"warning: {event.message}")
            case WaitOpened(kind="approval"):
                asked[event.wait] = event.prompt
            case WaitClosed(kind="approval", wait=wait) if wait in asked:
                notes.setdefault(entry.place.step, []).append(f"{asked[wait]} {_decided(event)}")
            case Noted(name="route", data=data):
                notes.setdefault(entry.place.step, []).append(route_words(data))
            case ValueSet():
                values[event.name] = event.value
            case ArtifactMade():
                artifact = event
            case _:
                output = getattr(event, "output", None)
                if output is not None:
                    outputs[entry.place.step] = output
                result = getattr(event, "result", result)
    shown = _at_breakpoints(steps, waits)
    return RunView(
        row,
        shown,
        waits,
        values,
        outputs,
        artifact,
        result,
        notes,
        inputs,
        answers,
        partial,
        nesting.passed_on,
        frozenset(changed),
        frozenset(incomplete),
    )


class Nesting:
    """Finds steps whose output is that of a step within them, from the entries of a journal, one at a time."""

    def __init__(self) -> None:
        self._open: list[tuple[Place, str, dict[str, str]]] = []
        """The steps it stands in, each with the digests that steps within have given, and their labels."""
        self.passed_on: dict[str, str] = {}

    def see(self, entry: Entry) -> str | None:
        """The label of the step within whose output a step that finishes now has as its own."""
        event, path = entry.event, entry.place.path
        if isinstance(event, StepStarted):
            self._open.append((entry.place, event.label, {}))
        if not isinstance(event, StepFinished):
            return None
        own = next((one for one in reversed(self._open) if one[0].path == path and one[1] == event.label), None)
        if own is None:
            return None
        self._open.remove(own)
        self.passed_on.pop(event.label, None)
        if event.output is None:
            return None
        around = [within for place, _, within in self._open if place.path == path]
        if not around and not own[2]:
            return None
        digest = event.output.digest
        for within in around:
            within[digest] = event.label
        source = own[2].get(digest)
        if source is not None:
            self.passed_on[event.label] = source
        return source


def with_results(view: RunView, playbook: str, entries: Iterable[Entry]) -> RunView:
    """Where the dialect says what each step came to, these are the values, and what a person changed in them shows in the
    outputs. `playbook` is the text that the run was started with.
    """
    dialect = next((one for one in registry.dialects() if one.name == view.run.dialect), None)
    if not isinstance(dialect, registry.Tracing):
        return view
    values = dialect.values(dialect.parse(playbook, view.run.name), entries)
    outputs = {
        label: text if label not in values or msgspec.json.decode(str(text)) == values[label] else _json(values[label])
        for label, text in view.outputs.items()
    }
    return msgspec.structs.replace(view, values=values, outputs=outputs)


def _json(value: Any) -> Text:
    return Text(msgspec.json.encode(value).decode())


def _brief(value: Any) -> str:
    """A value in one short line."""
    text = value if isinstance(value, str) else str(_json(value))
    line = " ".join(text.split())
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 1]}…"


_REASONS = {"fan out": "its branches begin at once", "join": "its branch is done, and they come together there"}
"""Reasons that a journal has in the words of the format."""


def route_words(data: Mapping[str, Any]) -> str:
    """Which way a run went from a step, and why."""
    to, reason = str(data.get("to", "")), str(data.get("reason", ""))
    reason = _REASONS.get(reason, reason)
    if data.get("asked") and reason == "only path":
        reason = "the default"
    words = f"ends here: {reason}" if to == "(end)" else f"goes on to {to}: {reason}"
    if data.get("saved"):
        return f"{words} (proved, no model was asked)"
    said = " ".join(str(data.get("rationale") or "").split())
    default = "the model named none of the ways, asked twice" if data.get("unusable") else "no condition holds"
    parts = ([default] if data.get("default") else []) + ([f"the model says: {said}"] if said else [])
    return f"{words} ({'; '.join(parts)})" if parts else words


def _at_breakpoints(steps: list[StepRow], waits: list[WaitRow]) -> list[StepRow]:
    """A step is over when its breakpoint is reached; it shows as paused until somebody ends the pause."""
    reached = {(w.place.path, w.place.step, w.place.visit) for w in waits if w.kind == "breakpoint"}
    if not reached:
        return steps
    return [msgspec.structs.replace(s, status="paused") if s.key in reached else s for s in steps]


def _decided(closed: WaitClosed) -> str:
    if closed.how != "answered":
        return closed.how
    said = "approved" if closed.answer.get("decision") == "approve" else "denied"
    reason = str(closed.answer.get("reason", "")).strip()
    return f"{said} by {closed.by}{f': {reason}' if reason else ''}"


class Sent(msgspec.Struct, frozen=True):
    """One piece of what a model was sent."""

    role: str
    text: str


def sent(asked: ModelAsked, load: Callable[[str], str]) -> list[Sent]:
    """Everything that a model was sent with a call, in order: the context, piece by piece, and the prompt last.

    `load` gives a stored text by its digest. Neighbours of one role are sent as one.
    """
    found = [Sent("user", str(asked.prompt))]
    digest = asked.context
    while digest:
        parent, role, text, _, calls = msgspec.json.decode(load(digest))
        written = "".join(f"\n[calls {call['name']} {_json(call.get('arguments', {}))}]" for call in calls)
        found.append(Sent(role, load(text) + written))
        digest = parent
    merged: list[Sent] = []
    for one in reversed(found):
        if merged and merged[-1].role == one.role == "system":
            one = Sent("system", f"{merged.pop().text}\n\n{one.text}")
        merged.append(one)
    return merged


class Shown:
    """What one reader of a run's events has seen of the texts under way."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}
        self._asked: dict[Place, int] = {}

    def showing(self, event: TextChunk | TextReset) -> TextChunk | TextReset:
        self._until[event.seq] = event.offset + len(event.text) if isinstance(event, TextChunk) else 0
        return event

    def lacks(self, chunk: TextChunk) -> bool:
        return chunk.offset >= self._until.get(chunk.seq, 0)

    def rest_before(self, entry: Entry) -> TextChunk | None:
        """The end of a text that the reader has begun to see: it comes before the outcome, however slow the reader."""
        event = entry.event
        if isinstance(event, ModelAsked):
            self._asked[entry.place] = entry.seq
        if not isinstance(event, Performed):
            return None
        seq = self._asked.pop(entry.place, 0)
        until = self._until.pop(seq, None)
        self._until[seq] = 1 << 62  # what is still in the queue of it was seen
        if until is None or not isinstance(event.outcome, Reply):
            return None
        text = event.outcome.text[: event.outcome.released][until:]
        return TextChunk(entry.run, seq, entry.place.step, until, text) if text else None
