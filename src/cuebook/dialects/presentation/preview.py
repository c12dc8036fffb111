"""The `Preview` of a run: the value that `explain`, `plan`, `--dry-run`, the web pages and MCP all show.

A dialect creates it before anything runs. `service.preview` adds the decisions of the policy and the estimated cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, AskHuman, CallTool, Effect, Program, ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import PlannedStep
from cuebook.kernel.outcomes import EffectFailed, Failed, Source
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.dialect import Dialect, Document

T = TypeVar("T")
D = TypeVar("D")


# --- acts -----------------------------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True):
    """The parts of an effect that are not known before the run."""

    names: tuple[str, ...] = ()
    """References to values that the run fills in, as written: outputs of earlier steps and missing inputs."""
    secrets: tuple[str, ...] = ()
    """References to missing secret inputs, as written. Their places are left empty."""
    probe: Effect | None = None
    """The effect with a plain word in place of each unknown value. The word is a valid host or program name, so that
    the gate can decide on the probe."""
    stand_ins: Mapping[str, str] = {}
    """The plain words, each with the reference that it replaces."""

    def in_words(self, text: str) -> str:
        """Replaces the plain words in a message about the probe with the references."""
        for stand_in, name in self.stand_ins.items():
            text = text.replace(stand_in, name)
        return text


class Filled(msgspec.Struct, frozen=True):
    """How many values of unknown size are filled into a prompt."""

    unknown: int = 0
    """The number of inputs and sources that are not known yet."""
    outputs: int = 0
    """The number of outputs of earlier steps."""
    copies: int = 1
    """How many times the outcome is included in later calls."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run would do or report, as far as it is known in advance."""

    label: str = ""
    title: str = ""
    effect: Effect | None = None
    """None for a report and for a step that can only fail."""
    open: Open = Open()
    filled: Filled = Filled()
    calls: tuple[CallTool, ...] = ()
    """The tools that the model may call."""
    condition: str = ""
    """The condition as written in the playbook."""
    runs: bool | None = True
    """Whether the condition holds; None if it is not known before the run."""
    approval: str = ""
    """The question to an approver, if the step needs approval."""
    answer: str | None = None
    """The answer to its question."""
    is_assumed: bool = False
    """Whether the answer is only an assumption, made to show what follows."""
    text: str | None = None
    """The text that was read; None if it is not read before the run."""
    report: tuple[str, str] | None = None
    """The kind of the report, such as `skipped`, and its text."""
    warnings: tuple[str, ...] = ()
    problem: str = ""
    """The reason the step can only fail."""
    then: tuple[str, ...] = ()
    """Where the run goes next."""
    attempts: int = 1
    on_failure: str = ""
    """What happens if the step fails; empty if the run stops."""
    lacks: tuple[str, ...] = ()
    """The missing declarations that a step should have if it may change something."""
    details: Mapping[str, Any] = {}
    """The act as JSON, in its dialect's terms."""


class Alternative(msgspec.Struct, frozen=True):
    """One of the branches that a run may take."""

    when: str
    """The condition, or `otherwise`."""
    values: Mapping[str, str | None]
    """The values that lead here. None stands for any value that no condition mentions."""
    acts: tuple[Act, ...]
    branch: int | None = None
    """The number of the branch; None if no condition holds."""


class Choice(msgspec.Struct, frozen=True):
    """A step whose branch is not known before the run: all its branches, and what each would do."""

    label: str
    title: str
    on: tuple[str, ...]
    """The names whose values decide the branch."""
    reason: str
    """A clause for each name that describes the origin of its value."""
    before: tuple[Act, ...]
    """The acts that all branches have in common."""
    alternatives: tuple[Alternative, ...]
    followed: str
    """The condition of the branch that the later acts assume."""


def report(label: str, title: str, kind: str, words: str) -> Act:
    """An act that only reports something, such as that a step is skipped."""
    return Act(label=label, title=title, report=(kind, words), details={"step": label, "title": title, kind: words})


def question_details(effect: AskHuman) -> dict[str, Any]:
    """A question as JSON."""
    asked = {"prompt": effect.question, "type": effect.type, "options": list(effect.options)}
    return {**asked, "default": effect.default}


def likely_answer(effect: AskHuman, label: str) -> str:
    """The answer that a preview assumes: the default, yes, the first option, or a stand-in."""
    if effect.default is not None:
        return effect.default
    if effect.schema is not None:
        from cuebook.formats.forms import likely

        return likely(effect.schema)
    if effect.type == "confirm":
        return "yes"
    return effect.options[0] if effect.options else f"<answer in step {label}>"


# --- steps ----------------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the playbook, and where it may lead."""

    label: str
    title: str = ""
    condition: str = ""
    asks_approval: bool = False
    does: tuple[str | Effect, ...] = ()
    """Its actions in order: clauses such as `calls web.find`, or effects."""
    gives: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """More clauses about the step."""
    decided_by: str = ""
    """A clause for what decides which branch is taken, if that is not known before the run."""
    branches: tuple[Branch, ...] = ()
    steps: tuple[Step, ...] = ()
    details: Mapping[str, Any] = {}
    """The step as JSON, in its dialect's terms."""


class Branch(msgspec.Struct, frozen=True):
    """A branch of a step, with its sub-steps."""

    words: str
    steps: tuple[Step, ...] = ()


# --- the preview ----------------------------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True):
    """The maximum number of model calls, if it does not follow from the acts."""

    calls: int | None
    """The maximum number of calls; None if only a budget limits them."""
    words: tuple[str, ...] = ()
    details: Mapping[str, Any] = {}


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do, as far as that is known before it starts."""

    title: str
    inputs: Mapping[str, Any] = {}
    """The known inputs, as a run would store them."""
    declared: tuple[str, ...] = ()
    """The names of all inputs that the playbook declares."""
    is_unfit: bool = False
    """Whether a given input is invalid."""
    heading: str = "what runs, in this order"
    steps: tuple[Step, ...] = ()
    steps_key: str = "steps"
    """The key of the steps in JSON."""
    acts: Sequence[Act | Choice] = ()
    reads: tuple[ReadSource, ...] = ()
    """Sources that the run reads before its first step."""
    unforeseeable: str = ""
    """A clause that says why the acts cannot be shown one by one; empty if they can."""
    fails: bool = False
    """Whether every run would fail."""
    failure: str = ""
    """The reason a run would fail before its first step."""
    notes: tuple[str, ...] = ()
    hosts: Mapping[str, str] = {}
    """Hosts that the playbook names outside its acts, each with its purpose."""
    listings: Mapping[str, Mapping[str, str]] = {}
    """The state of other things that the playbook uses, by kind and name."""
    limits: Limits | None = None
    """None if the upper bound follows from the acts."""
    details: Mapping[str, Any] = {}
    """Additional JSON keys, in the dialect's terms."""

    @property
    def missing(self) -> list[str]:
        """Declared inputs that have no value."""
        return [name for name in self.declared if self.inputs.get(name) is None]

    def every_act(self) -> Iterator[Act]:
        """The acts of all branches."""
        for part in self.acts:
            if isinstance(part, Choice):
                yield from part.before
                for alternative in part.alternatives:
                    yield from alternative.acts
            else:
                yield part

    @property
    def questions(self) -> list[Act]:
        """The acts that ask the user something, without duplicates."""
        asked = [act for act in self.every_act() if isinstance(act.effect, AskHuman)]
        return list({(act.label, act.title): act for act in asked}.values())


# --- construction ---------------------------------------------------------------------------------------


class Unread(Source, frozen=True):
    """A source that the preview did not read. Its content is a placeholder for the text."""


Read = Callable[[ReadSource], Source | Failed]


def unread(effect: ReadSource) -> Unread:
    return Unread(Text(f"<text of {effect.source}>"))


def played(program: Program[T], read: Read = unread) -> T:
    """Returns the result of a program that only reads sources. Raises `EffectFailed` where a run would fail."""
    send: Any = None
    failed: EffectFailed | None = None
    while True:
        try:
            asked = program.send(send) if failed is None else program.throw(failed)
        except StopIteration as stop:
            made: T = stop.value
            return made
        if isinstance(asked, All):
            send = tuple(read(one) for one in asked.branches if isinstance(one, ReadSource))
            failed = None
        else:
            send = read(asked) if isinstance(asked, ReadSource) else None
            failed = EffectFailed(send) if isinstance(send, Failed) else None


def ready(preview: Preview) -> Program[Preview]:
    """Wraps a preview that reads no sources in a program."""
    return preview
    yield


def known_inputs(
    accept: Callable[[D, Mapping[str, Any]], dict[str, Any]], document: D, given: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The inputs as a run would store them. If any are missing or invalid, the unchanged inputs, with a note."""
    try:
        return accept(document, given), ()
    except BadInput as error:
        return dict(given), (error.message,)


def declared_inputs(document: Document) -> tuple[str, ...]:
    return tuple(declared.name for declared in document.inputs)


def plain_preview(dialect: Dialect, document: Document, given: Mapping[str, Any], settings: Settings) -> Preview:
    """The default preview: the steps, and the acts of the program with stand-ins for outcomes."""
    from cuebook.dialects.rehearsal import Rehearsal

    inputs, notes = known_inputs(dialect.accept, document, given)
    rehearsal = Rehearsal()
    if not notes:
        rehearsal.follow(dialect.start(document, inputs, dialect.interpreter, settings.options)(None))
    words = "the number of model calls is known only during the run" if document.asks_model else "no model is called"
    return Preview(
        title=document.title,
        inputs=inputs,
        declared=declared_inputs(document),
        steps=tuple(_planned(step) for step in document.every_step),
        acts=rehearsal.acts,
        unforeseeable="its inputs are incomplete" if notes else "",
        fails=rehearsal.failed,
        notes=notes,
        limits=Limits(None if document.asks_model else 0, (words,)),
    )


def _planned(step: PlannedStep) -> Step:
    return Step(label=step.label, title=step.title, details={"label": step.label, "title": step.title})
