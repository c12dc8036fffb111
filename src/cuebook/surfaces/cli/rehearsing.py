"""Follows a Markdown playbook's program on stand-ins: everything that a run would do, while nothing is done.

Where a branch depends on something that only the run brings, each way is followed by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import groupby, islice
from typing import Any

import msgspec

from cuebook.dialects.markdown.interpret import opening, proceed
from cuebook.dialects.markdown.model import Book, Output, Step
from cuebook.dialects.markdown.scope import Scope
from cuebook.dialects.options import heeding
from cuebook.kernel.context import Context, Text
from cuebook.kernel.effects import (
    AskHuman,
    AskModel,
    Breakpoint,
    CallTool,
    Checkpoint,
    Effect,
    Program,
    ReadSource,
    Wait,
)
from cuebook.kernel.events import StepFinished, StepSkipped, StepStarted, ValueSet, Warned
from cuebook.kernel.outcomes import Answer, Done, EffectFailed, Elapsed, Failed, Reply, Resumed, Source, ToolResult
from cuebook.kernel.questions import beforehand
from cuebook.kernel.run import Settings
from cuebook.surfaces.reading.foreseeing import Foresight, Fork, Values, Way, answers_only, branches_on_itself

MOST_REPEATED = 20_000
"""Steps that are gone through once more so that a step behind them takes another way."""

Read = Callable[[str], Source | Failed | None]
"""The text behind a source where it can be told here; None where it is not looked at."""


def unread(source: str) -> None:
    return None


class Shown(msgspec.Struct, frozen=True):
    """One thing that a run would do, or say."""

    position: int
    """Of the step it belongs to, or of the step around that."""
    label: str
    title: str
    what: dict[str, Any]
    effect: Effect | None = None
    text: str = ""
    """What was read, where it is a text that a prompt refers to."""


class Ways(msgspec.Struct, frozen=True):
    """A step of which only the run can tell where it leads: everything that may come."""

    fork: Fork
    before: list[Shown]
    """The same on every way."""
    shown: list[tuple[Way, list[Shown]]]
    followed: Way
    """The one that all later steps are shown after."""


class Rehearsal(msgspec.Struct, frozen=True):
    parts: list[Shown | Ways]
    failed: bool
    """Whether the program ended in a failure along the first way."""


def rehearse(
    book: Book,
    inputs: Mapping[str, str],
    foresight: Foresight,
    *,
    settings: Settings = Settings(),
    read: Read = unread,
) -> Rehearsal:
    """Everything a run would do. Inputs that are not given are assumed, too."""
    drive = _Drive(book, inputs, foresight, settings, read)
    parts: list[Shown | Ways] = []
    for position, group in groupby(drive.first.shown, key=lambda shown: shown.position):
        fork = foresight.forks.get(position)
        if fork is None:
            parts += group
        else:
            parts.append(_ways(drive, fork, list(group), drive.first.within[position]))
    if drive.rough:
        words = f"There are too many ways: {drive.rough} are shown as if the steps before had gone the first way."
        parts.append(Shown(len(book.steps), "", "", {"warning": words}))
    return Rehearsal(parts, drive.first.failed)


def _ways(drive: _Drive, fork: Fork, first: list[Shown], within: list[str]) -> Ways:
    # What is assumed leads along the first way, unless a step on the way to it has nothing to say.
    followed = next((way for way in (fork.first, *fork.ways) if within == _labels(fork, way)), fork.first)
    found = [(way, first if way.branch == followed.branch else drive.at(fork, way)) for way in fork.ways]
    shared = 0
    while all(len(shown) > shared for _, shown in found) and _alike([shown[shared] for _, shown in found]):
        shared += 1
    return Ways(fork, first[:shared], [(way, shown[shared:]) for way, shown in found], followed)


def _labels(fork: Fork, way: Way) -> list[str]:
    """The sub-steps of a way."""
    return [] if way.branch is None else [sub.label for sub in fork.step.branches[way.branch].steps]


def _alike(several: list[Shown]) -> bool:
    first = several[0]
    return all((one.label, one.what, one.effect) == (first.label, first.what, first.effect) for one in several)


def steps_at(book: Book, position: int, label: str, title: str) -> list[Step]:
    """The step of that name at a position, and the one that it belongs to."""
    if not 0 <= position < len(book.steps):
        return []
    top = book.steps[position]
    subs = (sub for branch in top.branches for sub in branch.steps if (sub.label, sub.title) == (label, title))
    sub = next(subs, None)
    return [top] if sub is None else [sub, top]


class _Drive:
    """Follows the program along the first ways, and again from where another way begins."""

    def __init__(
        self, book: Book, inputs: Mapping[str, str], foresight: Foresight, settings: Settings, read: Read
    ) -> None:
        self._book = book
        self._inputs = inputs
        self._foresight = foresight
        self._settings = settings
        self._read = read
        self._repeated = 0
        self.rough = 0
        """Ways that were followed from their step alone."""
        given = self._given(foresight.assumed)
        scope = Scope(book, given)
        self.first = self._stage(scope, foresight.assumed, 0)
        self.first.follow(self._heeded(_whole(book, scope, given)))

    def at(self, fork: Fork, way: Way) -> list[Shown]:
        """What the step does if it goes this way."""
        assumed, since = self._foresight.values_for(fork, way)
        known: Values = {}
        again = fork.position - since
        if self._repeated + again <= MOST_REPEATED:
            self._repeated += again
        elif again:
            since, known = fork.position, way.values
            self.rough += 1
        scope = self._scope(assumed, known, self.first.marks[since])
        stage = self._stage(scope, assumed, since)
        stage.follow(self._heeded(proceed(self._book, scope, since)), until=fork.position)
        shown = [one for one in stage.shown if one.position == fork.position]
        wanted, begun = _labels(fork, way), stage.within.get(fork.position, [])
        if begun == wanted or (stage.failed and begun == wanted[: len(begun)]):
            return shown
        # Its values depend on each other in a way that stand-ins do not follow: better nothing than another way.
        return [Shown(fork.position, fork.step.label, fork.step.title, {"unclear": "this way only shows in a run"})]

    def _given(self, assumed: Values) -> dict[str, Any]:
        missing = {one.name: assumed.get(one.name) for one in self._book.inputs if one.name not in self._inputs}
        return {**{name: _stand_in(name, value) for name, value in missing.items()}, **self._inputs}

    def _scope(self, assumed: Values, known: Values, mark: _Mark) -> Scope:
        """As the first ways left it, but for values that are known to be others."""
        scope = Scope(self._book, self._given(assumed))
        named = dict(islice(self.first.named, mark.named))
        named |= {name: _stand_in(name, value) for name, value in known.items()}
        scope.resume(named, mark.context, mark.last)
        return scope

    def _stage(self, scope: Scope, assumed: Values, position: int) -> _Stage:
        return _Stage(self._book, scope, assumed, self._settings, self._read, position)

    def _heeded(self, program: Program[Any]) -> Program[Any]:
        return heeding(lambda state: program, self._settings.options)(None)


def _whole(book: Book, scope: Scope, inputs: Mapping[str, Any]) -> Program[Any]:
    yield from opening(book, inputs)
    return (yield from proceed(book, scope))


def _stand_in(name: str, value: str | None) -> str:
    return f"<{name}>" if value is None else value


class _Mark(msgspec.Struct, frozen=True):
    """What there was when a step began."""

    context: Context
    last: tuple[str, Text] | None
    named: int
    """How many values had been given a name."""


class _Stage:
    """Plays everything that a program asks for."""

    def __init__(
        self, book: Book, scope: Scope, assumed: Values, settings: Settings, read: Read, position: int
    ) -> None:
        self._book = book
        self._scope = scope
        self._assumed = assumed
        self._settings = settings
        self._read = read
        self._position = position - 1
        self._frames: list[StepStarted] = []
        self.shown: list[Shown] = []
        self.within: dict[int, list[str]] = {}
        """The sub-steps that were begun, by position."""
        self.marks: dict[int, _Mark] = {}
        """By position."""
        self.named: list[tuple[str, str]] = []
        """Every value that was given a name, in order."""
        self.failed = False

    def follow(self, program: Program[Any], until: int | None = None) -> None:
        """What the program does, up to the end of the step at this position."""
        send: Any = None
        throw: EffectFailed | None = None
        while True:
            try:
                asked = program.send(send) if throw is None else program.throw(throw)
            except StopIteration:
                break
            except EffectFailed as error:
                self._show({"failed": str(error.failed)})
                self.failed = True
                break
            if until is not None and isinstance(asked, StepStarted) and not self._frames and self._position == until:
                break
            send = self._played(asked)
            throw = EffectFailed(send) if isinstance(send, Failed) else None
        program.close()

    def _show(self, what: dict[str, Any], effect: Effect | None = None, text: str = "") -> None:
        step = self._frames[-1] if self._frames else StepStarted("")
        self.shown.append(Shown(self._position, step.label, step.title, what, effect, text))

    def _played(self, asked: Any) -> Any:
        match asked:
            case StepStarted():
                if self._frames:
                    self.within[self._position].append(asked.label)
                else:
                    self._position += 1
                    self.within[self._position] = []
                    self.marks[self._position] = _Mark(self._scope.context, self._scope.last, len(self.named))
                self._frames.append(asked)
                return {}
            case StepFinished():
                if asked.status == "skipped":
                    self._show({"skipped": asked.reason})
                self._frames.pop()
            case StepSkipped(label=label, title=title, reason=reason):
                self._position += not self._frames
                self.shown.append(Shown(self._position, label, title, {"skipped": reason}))
            case ValueSet(name=name, value=value):
                self.named.append((name, value))
            case Warned(message=message):
                self._show({"warning": message})
            case Effect():
                return self._outcome(asked)
        return None

    def _outcome(self, effect: Effect) -> Any:
        match effect:
            case AskModel(prompt=prompt):
                self._show({"prompt": prompt}, effect)
                return Reply(Text(self._said()))
            case CallTool(tool=tool, arguments=arguments):
                self._show({"tool": tool, "arguments": arguments}, effect)
                return ToolResult(self._said())
            case AskHuman():
                return self._answered(effect)
            case ReadSource(source=source):
                return self._source(effect, source)
            case Breakpoint() | Checkpoint():
                return Resumed()
            case Wait():
                return Elapsed()
            case _:
                self._show({"effect": effect.fingerprint}, effect)
                return Done()

    def _source(self, effect: ReadSource, source: str) -> Source | Failed:
        found = self._read(source)
        if found is None:
            self._show({"source": source, "read": False}, effect)
            return Source(Text(f"<text of {source}>"))
        if isinstance(found, Source):
            self._show({"source": source, "read": True}, effect, str(found.content))
        return found

    # --- stand-ins ---

    def _steps(self) -> list[Step]:
        frame = self._frames[-1] if self._frames else StepStarted("")
        return steps_at(self._book, self._position, frame.label, frame.title)

    def _said(self) -> str:
        """What a model or a tool says here: whatever gives the name that depends on it the value that is assumed."""
        steps = self._steps()
        # A step that has run already has its own output: what its sub-steps say is theirs alone.
        own = [step for step in steps if step is steps[0] or not branches_on_itself(self._book, step)]
        outputs = [step.output for step in own if step.output is not None]
        outputs.sort(key=lambda output: self._assumed.get(output.name) is None)
        label = self._frames[-1].label if self._frames else "?"
        return (
            _saying(outputs[0], self._assumed.get(outputs[0].name), label) if outputs else f"<output of step {label}>"
        )

    def _answered(self, effect: AskHuman) -> Answer | Failed:
        answer = beforehand(effect, [effect.label, *(frame.label for frame in reversed(self._frames))], self._settings)
        known = answer is not None
        if answer is None:
            answer = Answer(self._answer_to(effect))
        said = str(answer) if isinstance(answer, Failed) else answer.value
        asked = {"prompt": effect.question, "type": effect.type, "options": list(effect.options)}
        self._show({"question": {**asked, "default": effect.default}, "answer" if known else "as_if": said}, effect)
        return answer

    def _answer_to(self, effect: AskHuman) -> str:
        label = effect.label or (self._frames[-1].label if self._frames else "")
        steps = self._steps()
        names = [f"__elicit_step_{label}", *(f"__elicit_step_{step.number}" for step in steps[:1])]
        if steps and answers_only(steps[0]) and steps[0].output is not None:
            names.append(steps[0].output.name)
        assumed = [value for name in names if (value := self._assumed.get(name)) is not None]
        if assumed:
            return assumed[0]
        if effect.default is not None:
            return effect.default
        if effect.type == "confirm":
            return "yes"
        return effect.options[0] if effect.options else f"<answer in step {label}>"


def _saying(output: Output, value: str | None, label: str) -> str:
    """A text from which `@output` takes this value; None for one that no condition asks for."""
    if output.extract:
        taken = f"<{output.extract} of step {label}>" if value is None else value
        return json.dumps({output.extract: taken}, ensure_ascii=False)
    return f"<output of step {label}>" if value is None else value
