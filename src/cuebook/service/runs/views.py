"""`RunView`: a run with everything that users see of it, folded from its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.gate.policy import Override
from cuebook.kernel.answers import IN_ADVANCE, UNATTENDED
from cuebook.kernel.context import Attachment, Text, ToolCall
from cuebook.kernel.engine.files import KeptFile, kept_in
from cuebook.kernel.events import (
    ArtifactMade,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    RunStarted,
    StepFinished,
    StepStarted,
    ValueSet,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry, Place, blocks_in, step_at
from cuebook.kernel.outcomes import Answer, Failed, Resumed, is_incomplete
from cuebook.kernel.run import RunRow, StepRow, WaitRow
from cuebook.kernel.votes import decided_words
from cuebook.service.runs.tool_calls import Plan, ToolCalls, ToolUse

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
"""The file suffix and the content type of each type of artifact. An artifact without a type is Markdown."""


_BRIEF = 60
"""The maximum length of a changed value in a note, in characters."""


class Answered(msgspec.Struct, frozen=True):
    """A question that a step asked, its answer, and who answered."""

    question: str
    answer: str
    by: str

    @property
    def giver(self) -> str:
        """Who answered, in words."""
        return _GIVERS.get(self.by, self.by) or "a person"


def only_answered(step: StepRow, output: Text | None, answers: Sequence[Answered]) -> bool:
    """Whether a step's output is just the last answer that someone gave in it."""
    return output is not None and not step.totals.calls and bool(answers) and str(output) == answers[-1].answer


_GIVERS = {IN_ADVANCE: "an answer given in advance", UNATTENDED: "its default, because the run is unattended"}


class Answers:
    """Collects the answers from the entries of a journal, one entry at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}

    def see(self, event: object) -> Answered | None:
        match event:
            case WaitOpened(kind="question"):
                self._asked[event.wait] = event.prompt
            case WaitClosed(kind="question", how="answered"):
                return Answered(self._asked.pop(event.wait, ""), str(event.answer.get("value", "")), event.by)
            case Performed(outcome=Answer(question=question) as given) if question:
                return Answered(question, given.value, IN_ADVANCE if given.given_for else given.by)
        return None


def changed_words(name: str, value: Any, by: str) -> str:
    """The note that someone changed a value."""
    return f"changed by {by or 'someone'}: {name} = {_brief(value)}"


class RunView(msgspec.Struct, frozen=True):
    """A run with everything that a user sees of it."""

    run: RunRow
    steps: list[StepRow]
    waits: list[WaitRow]
    values: dict[str, Any]
    outputs: dict[str, Text]
    """Each step's last output, by label."""
    artifact: ArtifactMade | None
    result: Any
    notes: dict[str, list[str]] = {}
    """Notes on each step, by label: warnings, changed values and decisions."""
    inputs: dict[str, Any] = {}
    """The current inputs: a fork or a resume may have changed some."""
    answers: dict[str, list[Answered]] = {}
    """Each step's questions and their answers, by label."""
    partial: dict[str, str] = {}
    """The partial replies of models in interrupted steps, by label."""
    passed_on: dict[str, str] = {}
    """The labels of steps whose output is the output of a step inside them, each with the inner step's label."""
    changed_inputs: frozenset[str] = frozenset()
    """The inputs that were changed. They are also among the values."""
    incomplete: frozenset[str] = frozenset()
    """Steps whose output was not stored in full: it exceeded the limit or contained bytes that are not text."""
    calls: tuple[ToolUse, ...] = ()
    """The tool calls that models requested, in order."""
    plans: tuple[Plan, ...] = ()
    """The plans that models keep, one for each step that has one."""
    overrides: tuple[Override, ...] = ()
    """What was allowed in advance for this run, including what was revoked since."""
    children: tuple[RunRow, ...] = ()
    """The child runs that it has started, oldest first."""
    files: tuple[KeptFile, ...] = ()
    """The files that its steps have produced, in order."""


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
    tools = ToolCalls()

    def change(given: Mapping[str, Any]) -> None:
        own = {name: value for name, value in given.items() if name in inputs}
        inputs.update(own)
        changed.update(own)

    def note_changes(step: str, given: Mapping[str, Any], by: str) -> None:
        changes = [changed_words(name, value, by) for name, value in given.items()]
        if changes:
            notes.setdefault(step, []).extend(changes)

    entries = list(entries)
    for entry in entries:
        event, step = entry.event, step_at(entry.place)
        # What a model's tool returned is not the output of the step. A cut there is a warning.
        if isinstance(event, Performed) and entry.place.step and is_incomplete(event.outcome):
            incomplete.add(step)
        if (answered := asking.see(event)) is not None:
            answers.setdefault(step, []).append(answered)
        nesting.see(entry)
        tools.see(entry)
        match event:
            case RunStarted():
                inputs.update(event.inputs)
            case Forked():
                change(event.values)
                note_changes(event.step, event.values, event.owner)
            case Performed(outcome=Resumed(overrides=overrides, by=by)):
                change(overrides)
                note_changes(step, overrides, by)
            case Performed(outcome=Failed(details={"said": str(said)})):
                partial[entry.place.step] = said
            case Warned():
                notes.setdefault(step, []).append(f"warning: {event.message}")
            case WaitOpened(kind="approval"):
                asked[event.wait] = event.prompt
            case WaitClosed(kind="approval", wait=wait) if wait in asked:
                notes.setdefault(step, []).append(f"{asked[wait]} {_decided(event)}")
            case Noted(name=name, data=data):
                note = registry.note(row.dialect, name, data)
                if note.lasting:
                    notes.setdefault(step, []).append(note.words)
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
        tuple(tools.calls.values()),
        tuple(tools.plans),
        files=tuple(kept_in(entries)),
    )


class Nesting:
    """Finds steps whose output is the output of a step inside them, one journal entry at a time."""

    def __init__(self) -> None:
        self._open: list[tuple[Place, str, dict[str, str]]] = []
        """The open steps, each with the output digests of its inner steps, and their labels."""
        self.passed_on: dict[str, str] = {}

    def see(self, entry: Entry) -> str | None:
        """If this entry ends a step whose output is the output of an inner step, returns the inner step's label."""
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


def with_results(view: RunView, playbook: Playbook | None, entries: Iterable[Entry]) -> RunView:
    """The view with the step results that the dialect defines as values, including changes that users made.

    A Python program has no playbook.
    """
    values = playbook.observed(entries).values() if playbook is not None else None
    if values is None:
        return view
    outputs = {
        label: text if label not in values or msgspec.json.decode(str(text)) == values[label] else _json(values[label])
        for label, text in view.outputs.items()
    }
    return msgspec.structs.replace(view, values=values, outputs=outputs)


def _json(value: Any) -> Text:
    return Text(msgspec.json.encode(value).decode())


def _brief(value: Any) -> str:
    """A value on one short line."""
    text = value if isinstance(value, str) else str(_json(value))
    line = " ".join(text.split())
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 1]}…"


def _at_breakpoints(steps: list[StepRow], waits: list[WaitRow]) -> list[StepRow]:
    """Shows a step as paused while the run is waiting at its breakpoint, although the step itself has finished."""
    reached = {(w.place.path, w.place.step, w.place.visit) for w in waits if w.kind == "breakpoint"}
    if not reached:
        return steps
    return [msgspec.structs.replace(s, status="paused") if s.key in reached else s for s in steps]


def _decided(closed: WaitClosed) -> str:
    if closed.how != "answered":
        return closed.how
    reason = str(closed.answer.get("reason", "")).strip()
    lasts = {"run": " for this run", "always": " for all runs"}.get(closed.answer.get("lasts", ""), "")
    words = decided_words(closed.answer, closed.by).replace(" by ", f"{lasts} by ", 1)
    return f"{words}{f': {reason}' if reason else ''}"


class Sent(msgspec.Struct, frozen=True):
    """One part of the request to a model."""

    role: str
    text: str
    """With the tool calls that are requested in it."""
    files: tuple[Attachment, ...] = ()


def sent(asked: ModelAsked, calls: Iterable[ModelAsked], load: Callable[[str], str]) -> list[Sent]:
    """The request to a model, in order: the parts of the context, then the prompt.

    `calls` are all model calls of the run, some of which contain blocks of the context; `load` returns a stored text by its
    digest. Adjacent system texts are merged.
    """
    found = [Sent("user", str(asked.prompt))]
    blocks = {digest: block for call in calls for digest, block in blocks_in(call).items()}
    digest = asked.context
    while digest:
        if digest in blocks:
            digest, block = blocks[digest]
            found.append(Sent(block.role, str(block.text) + _written(block.calls), block.attachments))
            continue
        digest, role, text, _, requested, *rest = msgspec.json.decode(load(digest))
        files = rest[1] if len(rest) > 1 else ()
        attached = tuple(Attachment(media_type, Text(load(data)), name) for media_type, data, name in files)
        found.append(Sent(role, load(text) + _written(msgspec.convert(requested, tuple[ToolCall, ...])), attached))
    merged: list[Sent] = []
    for one in reversed(found):
        if merged and merged[-1].role == one.role == "system":
            one = Sent("system", f"{merged.pop().text}\n\n{one.text}")
        merged.append(one)
    return merged


def _written(calls: Iterable[ToolCall]) -> str:
    return "".join(f"\n[calls {call.name} {_json(call.arguments)}]" for call in calls)
