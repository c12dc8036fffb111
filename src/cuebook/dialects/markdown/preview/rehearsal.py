"""Rehearses a Markdown run: interprets the playbook with stand-ins for all outcomes and records what it would do.

If a branch depends on a value that is known only during a run, each branch is rehearsed separately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec

from cuebook.dialects.markdown.model import Book, Output, Step, answers_only, approves_only, branches_on_itself
from cuebook.dialects.markdown.parse import answer_names
from cuebook.dialects.markdown.parse.directives import variable_of
from cuebook.dialects.markdown.preview.branches import Foresight, Fork, Values, Way, fork_words, way_words
from cuebook.dialects.markdown.run.interpret import opening, proceed
from cuebook.dialects.markdown.run.placeholders import placeholders
from cuebook.dialects.markdown.run.scope import Scope
from cuebook.dialects.options import with_options
from cuebook.dialects.presentation.preview import (
    Act,
    Alternative,
    Choice,
    Filled,
    Unread,
    likely_answer,
    question_details,
    report,
)
from cuebook.formats.forms import fields_of, filled_in
from cuebook.kernel.answers import advance_answer
from cuebook.kernel.context import Context, Text
from cuebook.kernel.effects import (
    AskApproval,
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
from cuebook.kernel.run import Settings

MOST_REPEATED = 20_000
"""The maximum number of steps that are repeated to make a later step take another branch."""

Shown = tuple[int, Act]
"""An act, and the position of its step or parent step."""


class Rehearsal(msgspec.Struct, frozen=True):
    parts: list[Act | Choice]
    failed: bool
    """Whether the program failed with the first outcome of each fork."""


def rehearse(
    book: Book, inputs: Mapping[str, str], foresight: Foresight, settings: Settings = Settings()
) -> Program[Rehearsal]:
    """Everything that a run would do. Missing inputs are assumed. Yields only `ReadSource`."""
    drive = _Drive(book, inputs, foresight, settings)
    yield from drive.follow_first()
    parts: list[Act | Choice] = []
    for position, group in groupby(drive.first.shown, key=lambda shown: shown[0]):
        acts = [act for _, act in group]
        fork = foresight.forks.get(position)
        if fork is None:
            parts += acts
        else:
            parts.append((yield from _choice(drive, fork, acts, drive.first.within[position])))
    if drive.rough:
        words = f"Too many combinations of branches: {drive.rough} of them are shown as if earlier steps had taken their first branch."
        parts.append(Act(report=("warning", words), details={"warning": words}))
    return Rehearsal(parts, drive.first.failed)


def _choice(drive: _Drive, fork: Fork, first: list[Act], within: list[str]) -> Program[Choice]:
    # The assumed values lead to the first outcome, unless an earlier step has no output.
    followed = next((way for way in (fork.first, *fork.ways) if within == _labels(fork, way)), fork.first)
    found: list[tuple[Way, list[Act]]] = []
    for way in fork.ways:
        found.append((way, first if way.branch == followed.branch else (yield from drive.at(fork, way))))
    shared = 0
    while all(len(acts) > shared for _, acts in found) and _alike([acts[shared] for _, acts in found]):
        shared += 1
    step = fork.step
    return Choice(
        step.label,
        step.title,
        fork.on,
        fork_words(fork),
        tuple(first[:shared]),
        tuple(Alternative(way_words(step, way), way.values, tuple(acts[shared:]), way.branch) for way, acts in found),
        way_words(step, followed),
    )


def _labels(fork: Fork, way: Way) -> list[str]:
    """The labels of the sub-steps that run."""
    return [] if way.branch is None else [sub.label for sub in fork.step.branches[way.branch].steps]


def _alike(several: list[Act]) -> bool:
    first = several[0]
    return all((one.label, one.details, one.effect) == (first.label, first.details, first.effect) for one in several)


def steps_at(book: Book, position: int, label: str, title: str) -> list[Step]:
    """The sub-step with this label and title at a position and its parent step, or the step alone."""
    if not 0 <= position < len(book.steps):
        return []
    top = book.steps[position]
    subs = (sub for branch in top.branches for sub in branch.steps if (sub.label, sub.title) == (label, title))
    sub = next(subs, None)
    return [top] if sub is None else [sub, top]


class _Drive:
    """Rehearses the program with the first outcome of each fork, and again from the start of each other branch."""

    def __init__(self, book: Book, inputs: Mapping[str, str], foresight: Foresight, settings: Settings) -> None:
        self._book = book
        self._inputs = inputs
        self._foresight = foresight
        self._settings = settings
        self._prompts = _Prompts(book, inputs)
        self._repeated = 0
        self.rough = 0
        """The number of branches that were rehearsed from their own step only."""
        self._given_first = self._given(foresight.assumed)
        self._scope_first = Scope(book, self._given_first)
        self.first = self._stage(self._scope_first, foresight.assumed, 0)

    def follow_first(self) -> Program[None]:
        yield from self.first.follow(self._with_options(_whole(self._book, self._scope_first, self._given_first)))

    def at(self, fork: Fork, way: Way) -> Program[list[Act]]:
        """The acts of a fork's step with this outcome."""
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
        yield from stage.follow(self._with_options(proceed(self._book, scope, since)), until=fork.position)
        shown = [act for position, act in stage.shown if position == fork.position]
        wanted, begun = _labels(fork, way), stage.within.get(fork.position, [])
        if begun == wanted or (stage.failed and begun == wanted[: len(begun)]):
            return shown
        # The values depend on each other, which stand-ins cannot model. Nothing is better than a wrong branch.
        return [_report(fork.step.label, fork.step.title, "unclear", "only a run can show this branch")]

    def _given(self, assumed: Values) -> dict[str, Any]:
        missing = {one.name: assumed.get(one.name) for one in self._book.inputs if one.name not in self._inputs}
        return {**{name: _stand_in(name, value) for name, value in missing.items()}, **self._inputs}

    def _scope(self, assumed: Values, known: Values, mark: _Mark) -> Scope:
        """The scope after the first rehearsal, with the values that are known to differ."""
        scope = Scope(self._book, self._given(assumed))
        named = dict(islice(self.first.named, mark.named))
        named |= {name: _stand_in(name, value) for name, value in known.items()}
        scope.resume(named, mark.context, mark.last)
        return scope

    def _stage(self, scope: Scope, assumed: Values, position: int) -> _Stage:
        return _Stage(self._book, scope, assumed, self._settings, self._prompts, position)

    def _with_options(self, program: Program[Any]) -> Program[Any]:
        return with_options(lambda state: program, self._settings.options)(None)


def _whole(book: Book, scope: Scope, inputs: Mapping[str, Any]) -> Program[Any]:
    yield from opening(book, inputs)
    return (yield from proceed(book, scope))


def _stand_in(name: str, value: str | None) -> str:
    return f"<{name}>" if value is None else value


class _Mark(msgspec.Struct, frozen=True):
    """The state at the start of a step."""

    context: Context
    last: tuple[str, Text] | None
    named: int
    """The number of values named so far."""


class _Stage:
    """Answers every effect of a program with a stand-in."""

    def __init__(
        self, book: Book, scope: Scope, assumed: Values, settings: Settings, prompts: _Prompts, position: int
    ) -> None:
        self._book = book
        self._scope = scope
        self._assumed = assumed
        self._settings = settings
        self._prompts = prompts
        self._position = position - 1
        self._frames: list[StepStarted] = []
        self.shown: list[Shown] = []
        self.within: dict[int, list[str]] = {}
        """The sub-steps that have begun, by position."""
        self.marks: dict[int, _Mark] = {}
        """The state at the start of each step, by position."""
        self.named: list[tuple[str, str]] = []
        """All named values, in order."""
        self.failed = False
        self._approval = ""
        """The question to the approver of the step that is not shown yet."""
        self._texts: dict[tuple[int, str, str], dict[str, str | None]] = {}
        """The sources that prompts refer to, by step and name; None for a source that was not read."""

    def follow(self, program: Program[Any], until: int | None = None) -> Program[None]:
        """Follows the program to the end of the step at this position."""
        send: Any = None
        throw: EffectFailed | None = None
        while True:
            try:
                asked = program.send(send) if throw is None else program.throw(throw)
            except StopIteration:
                break
            except EffectFailed as error:
                self._report("failed", str(error.failed))
                self.failed = True
                break
            if until is not None and isinstance(asked, StepStarted) and not self._frames and self._position == until:
                break
            send = (yield from self._source(asked)) if isinstance(asked, ReadSource) else self._played(asked)
            throw = EffectFailed(send) if isinstance(send, Failed) else None
        program.close()

    def _show(self, effect: Effect, details: dict[str, Any], **known: Any) -> None:
        step = self._frames[-1] if self._frames else StepStarted("")
        details = {"step": step.label, "title": step.title, **details}
        details |= {"approval": self._approval} if self._approval else {}
        act = Act(label=step.label, title=step.title, effect=effect, approval=self._approval, details=details, **known)
        self._approval = ""
        self.shown.append((self._position, act))

    def _report(self, kind: str, words: str) -> None:
        step = self._frames[-1] if self._frames else StepStarted("")
        self.shown.append((self._position, _report(step.label, step.title, kind, words)))

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
                    self._report("skipped", asked.reason)
                self._frames.pop()
            case StepSkipped(label=label, title=title, reason=reason):
                self._position += not self._frames
                self.shown.append((self._position, _report(label, title, "skipped", reason)))
            case ValueSet(name=name, value=value):
                self.named.append((name, value))
            case Warned(message=message):
                self._report("warning", message)
            case Effect():
                return self._outcome(asked)
        return None

    def _outcome(self, effect: Effect) -> Any:
        match effect:
            case AskModel(prompt=prompt):
                self._show(effect, {"prompt": prompt}, filled=self._filled(prompt=True))
                return Reply(Text(self._said()))
            case CallTool(tool=tool, arguments=arguments, approval=asked):
                self._approval = asked
                self._show(effect, {"tool": tool, "arguments": arguments}, filled=self._filled())
                return ToolResult(self._said())
            case AskHuman():
                return self._answered(effect)
            case AskApproval(approval=asked):
                self._approval = asked
                if all(map(approves_only, self._steps()[:1])):
                    self._show(effect, {})
                return Done()
            case Breakpoint() | Checkpoint():
                return Resumed()
            case Wait():
                return Elapsed()
            case _:
                self._show(effect, {"effect": effect.fingerprint})
                return Done()

    def _source(self, effect: ReadSource) -> Program[Source | Failed]:
        try:
            found: Source = yield effect
        except EffectFailed as error:
            return error.failed
        text = None if isinstance(found, Unread) else str(found.content)
        step = self._frames[-1] if self._frames else StepStarted("")
        self._texts.setdefault((self._position, step.label, step.title), {})[effect.source] = text
        self._show(effect, {"source": effect.source, "read": text is not None}, text=text)
        return found

    def _filled(self, *, prompt: bool = False) -> Filled:
        steps = self._steps()
        copies = 1 + sum(step.output is not None and bool(step.output.extract) for step in steps)
        if not prompt:
            return Filled(copies=copies)
        texts = [self._texts.get((self._position, step.label, step.title), {}) for step in steps]
        return self._prompts.filled(steps, texts, copies)

    # --- stand-ins ---

    def _steps(self) -> list[Step]:
        frame = self._frames[-1] if self._frames else StepStarted("")
        return steps_at(self._book, self._position, frame.label, frame.title)

    def _said(self) -> str:
        """A reply or result that sets the output to its assumed value."""
        steps = self._steps()
        # A step that branches on itself already has its output, so its sub-steps do not set it.
        own = [step for step in steps if step is steps[0] or not branches_on_itself(self._book, step)]
        outputs = [step.output for step in own if step.output is not None]
        outputs.sort(key=lambda output: self._assumed.get(output.name) is None)
        label = self._frames[-1].label if self._frames else "?"
        return (
            _saying(outputs[0], self._assumed.get(outputs[0].name), label) if outputs else f"<output of step {label}>"
        )

    def _answered(self, effect: AskHuman) -> Answer | Failed:
        answer = advance_answer(
            effect,
            [effect.label, *(frame.label for frame in reversed(self._frames))],
            self._settings,
            fill_in=filled_in,
        )
        known = answer is not None
        if answer is None:
            answer = Answer(self._answer_to(effect))
        said = str(answer) if isinstance(answer, Failed) else answer.value
        details = {"question": question_details(effect), "answer" if known else "as_if": said}
        self._show(effect, details, answer=said, is_assumed=not known, filled=self._filled())
        return answer

    def _answer_to(self, effect: AskHuman) -> str:
        label = effect.label or (self._frames[-1].label if self._frames else "")
        steps = self._steps()
        if effect.schema is not None:
            return self._form_of(effect, label)
        names = [f"__elicit_step_{label}", *(f"__elicit_step_{step.number}" for step in steps[:1])]
        if steps and answers_only(steps[0]) and steps[0].output is not None:
            names.append(steps[0].output.name)
        assumed = [value for name in names if (value := self._assumed.get(name)) is not None]
        return assumed[0] if assumed else likely_answer(effect, label)

    def _form_of(self, effect: AskHuman, label: str) -> str:
        """An answer to a form that sets its fields to their assumed values."""
        answer = likely_answer(effect, label)
        value = json.loads(answer)
        kinds = {one.name: one.kind for one in fields_of(effect.schema)}
        if not isinstance(value, dict) or not kinds:
            return answer
        for name, said in self._assumed.items():
            if said is not None and name in kinds:
                value[name] = said if kinds[name] in ("text", "choice") else json.loads(said)
        return json.dumps(value, ensure_ascii=False)


def _saying(output: Output, value: str | None, label: str) -> str:
    """A reply from which `@output` extracts this value. None stands for any value that no condition mentions."""
    if output.extract:
        taken = f"<{output.extract} of step {label}>" if value is None else value
        return json.dumps({output.extract: taken}, ensure_ascii=False)
    return f"<output of step {label}>" if value is None else value


def _report(label: str, title: str, kind: str, words: str) -> Act:
    made = report(label, title, kind, words)
    return msgspec.structs.replace(made, details={kind: words}) if kind == "warning" and not label else made


class _Prompts:
    """Counts the values in prompts that are unknown before the run."""

    def __init__(self, book: Book, inputs: Mapping[str, str]) -> None:
        self._book = book
        self._declared = frozenset(declared.name for declared in book.inputs)
        self._inputs = inputs
        self._set = frozenset(name for step in book.walk() for name in _set_by(step))

    def filled(self, steps: Sequence[Step], texts: Sequence[Mapping[str, str | None]], copies: int) -> Filled:
        """The counts for one prompt. `texts` are the sources that each step has read."""
        unknown = outputs = 0
        for step, read in zip(steps, texts, strict=True):
            if step is not steps[0] and branches_on_itself(self._book, step):
                continue  # its text was used before its branch was chosen
            used: list[str | None] = [step.content, *read.values()]
            if step.prompt is not None:
                used.append(self._referred(step.prompt.argument))
            for text in used:
                names = [found.name for found in placeholders(text or "")]
                unknown += text is None
                unknown += sum(map(self._is_missing, names))
                outputs += sum(map(self._is_set, names))
        return Filled(unknown, outputs, copies)

    def _referred(self, argument: str) -> str | None:
        """The known text of a prompt: a variable reference, or empty. Returns None if the prompt's name is unknown."""
        names = [found.name for found in placeholders(argument)]
        if variable_of(argument) is not None:
            return argument
        return None if any(self._is_missing(name) or self._is_set(name) for name in names) else ""

    def _is_missing(self, name: str) -> bool:
        return name in self._declared and name not in self._inputs

    def _is_set(self, name: str) -> bool:
        return name not in self._declared and name in self._set


def _set_by(step: Step) -> list[str]:
    answers = answer_names(step) if step.elicitation is not None else ()
    return [*answers, step.output.name] if step.output is not None else list(answers)
