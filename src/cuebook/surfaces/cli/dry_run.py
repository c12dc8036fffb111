"""A run without a world: follows a program on stand-ins, shows what each model would be asked, and performs nothing.

Where a branch depends on something that only the run brings, each way is followed by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from cuebook.dialects.markdown.model import Book, Output, Step
from cuebook.dialects.options import heeding
from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    Answer,
    AskHuman,
    AskModel,
    Breakpoint,
    CallTool,
    Checkpoint,
    Done,
    Effect,
    EffectFailed,
    Elapsed,
    Failed,
    Program,
    ReadSource,
    Reply,
    Resumed,
    Source,
    ToolResult,
    Wait,
)
from cuebook.kernel.events import StepFinished, StepSkipped, StepStarted, Warned
from cuebook.kernel.questions import beforehand
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli import live
from cuebook.surfaces.cli.foreseeing import (
    Foresight,
    Fork,
    Values,
    Way,
    answers_only,
    branches_on_itself,
    foresee,
    fork_words,
    way_words,
)
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import say
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.texts import LocalTexts
from cuebook.surfaces.wiring import Wiring

Start = Callable[[Mapping[str, Any]], Program[Any]]
"""Starts the program with these inputs."""

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


def rehearse(book: Book, start: Start, inputs: Mapping[str, str], foresight: Foresight, **given: Any) -> Rehearsal:
    """Everything a run would do. Inputs that are not given are assumed, too."""
    drive = _Drive(book, start, inputs, foresight, **given)
    stage = drive.along(foresight.assumed)
    parts: list[Shown | Ways] = []
    for position, group in groupby(stage.shown, key=lambda shown: shown.position):
        fork = foresight.forks.get(position)
        if fork is None:
            parts += group
        else:
            parts.append(_ways(drive, fork, list(group), stage.within[position]))
    return Rehearsal(parts, stage.failed)


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
    """Follows one program as often as there are ways to show."""

    def __init__(
        self,
        book: Book,
        start: Start,
        inputs: Mapping[str, str],
        foresight: Foresight,
        *,
        settings: Settings = Settings(),
        read: Read = unread,
    ) -> None:
        self._book = book
        self._start = start
        self._inputs = inputs
        self._foresight = foresight
        self._settings = settings
        self._read = read

    def along(self, assumed: Values, until: int | None = None) -> _Stage:
        missing = {one.name: assumed.get(one.name) for one in self._book.inputs if one.name not in self._inputs}
        given = {name: f"<{name}>" if value is None else value for name, value in missing.items()}
        stage = _Stage(self._book, assumed, self._settings, self._read)
        stage.follow(self._start({**given, **self._inputs}), until)
        return stage

    def at(self, fork: Fork, way: Way) -> list[Shown]:
        """What the step does if it goes this way."""
        stage = self.along(self._foresight.values_for(fork, way), until=fork.position)
        shown = [one for one in stage.shown if one.position == fork.position]
        wanted, begun = _labels(fork, way), stage.within.get(fork.position, [])
        if begun == wanted or (stage.failed and begun == wanted[: len(begun)]):
            return shown
        # Its values depend on each other in a way that stand-ins do not follow: better nothing than another way.
        return [Shown(fork.position, fork.step.label, fork.step.title, {"unclear": "this way only shows in a run"})]


class _Stage:
    """Plays everything that a program asks for."""

    def __init__(self, book: Book, assumed: Values, settings: Settings, read: Read) -> None:
        self._book = book
        self._assumed = assumed
        self._settings = settings
        self._read = read
        self._position = -1
        self._frames: list[StepStarted] = []
        self.shown: list[Shown] = []
        self.within: dict[int, list[str]] = {}
        """The sub-steps that were begun, by position."""
        self.failed = False

    def follow(self, program: Program[Any], until: int | None) -> None:
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

    def _show(self, what: dict[str, Any], effect: Effect | None = None) -> None:
        step = self._frames[-1] if self._frames else StepStarted("")
        self.shown.append(Shown(self._position, step.label, step.title, what, effect))

    def _played(self, asked: Any) -> Any:
        match asked:
            case StepStarted():
                if self._frames:
                    self.within[self._position].append(asked.label)
                else:
                    self._position += 1
                    self.within[self._position] = []
                self._frames.append(asked)
                return {}
            case StepFinished():
                if asked.status == "skipped":
                    self._show({"skipped": asked.reason})
                self._frames.pop()
            case StepSkipped(label=label, title=title, reason=reason):
                self._position += not self._frames
                self.shown.append(Shown(self._position, label, title, {"skipped": reason}))
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
            self._show({"source": source, "read": True}, effect)
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


# --- the command ----------------------------------------------------------------------------------------


def show(
    given: Given,
    playbook: Playbook,
    inputs: Mapping[str, str],
    wiring: Wiring,
    *,
    answers: Mapping[str, str] | None = None,
    unattended: bool = False,
    options: Mapping[str, Any] | None = None,
) -> int:
    """`--dry-run`: exit code 1 where the run could only fail. Answers are those that are given beforehand."""
    settings = Settings(
        answers=dict(answers or {}), unattended=unattended, folder=playbook.folder, options=dict(options or {})
    )
    rehearsal = rehearsed(playbook, inputs, settings, LocalTexts(wiring, settings))
    if given["as_json"]:
        sys.stdout.write(live.json_line(as_objects(rehearsal)))
    else:
        for number, words in enumerate(in_words(rehearsal)):
            say(f"\n{words}" if number else words)
    return 1 if rehearsal.failed else 0


def rehearsed(playbook: Playbook, inputs: Mapping[str, str], settings: Settings, read: Read) -> Rehearsal:
    book = playbook.document

    def start(accepted: Mapping[str, Any]) -> Program[Any]:
        program = playbook.dialect.start(book, accepted, playbook.dialect.interpreter, settings.options)
        return heeding(program, settings.options)(None)

    return rehearse(book, start, inputs, foresee(book, inputs, settings), settings=settings, read=read)


# --- in words -------------------------------------------------------------------------------------------


def as_objects(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """What `--json` prints: everything in order, with all ways of a step under it."""
    return [_ways_object(part) if isinstance(part, Ways) else _object(part) for part in _flat(rehearsal)]


def _flat(rehearsal: Rehearsal) -> list[Shown | Ways]:
    flat: list[Shown | Ways] = []
    for part in rehearsal.parts:
        flat += [*part.before, part] if isinstance(part, Ways) else [part]
    return flat


def _object(shown: Shown) -> dict[str, Any]:
    if "warning" in shown.what and not shown.label:
        return shown.what
    system = {"system": _system(shown.effect)} if isinstance(shown.effect, AskModel) else {}
    return {"step": shown.label, "title": shown.title, **system, **shown.what}


def _system(effect: Effect | None) -> str:
    context = effect.context if isinstance(effect, AskModel) else ()
    return "\n\n".join(str(block.text) for block in context if block.role == "system")


def _ways_object(ways: Ways) -> dict[str, Any]:
    step = ways.fork.step
    return {
        "step": step.label,
        "title": step.title,
        "depends_on": list(ways.fork.on),
        "ways": [
            {"when": way_words(step, way), "values": way.values, "shown": [_object(one) for one in shown]}
            for way, shown in ways.shown
        ],
        "followed": way_words(step, ways.followed),
    }


def in_words(rehearsal: Rehearsal) -> Iterator[str]:
    """One passage after the other: together they may be far longer than the playbook."""
    parts = _flat(rehearsal)
    for part in parts:
        yield from _ways_words(part, part is parts[-1]) if isinstance(part, Ways) else [_words(part)]


def _ways_words(ways: Ways, last: bool) -> Iterator[str]:
    step = ways.fork.step
    yield f"=== Step {step.label}: {step.title}\nwhere it goes on depends on {fork_words(ways.fork)}"
    for way, shown in ways.shown:
        yield f">>> {_when(step, way)}{'' if shown else ': nothing'}"
        yield from map(_words, shown)
    if not last:
        yield f"<<< what follows is shown {_as_when(step, ways.followed)}"


def _as_when(step: Step, way: Way) -> str:
    words = way_words(step, way)
    return "as on the last of these ways" if words == "otherwise" else f"as if {words}"


def _when(step: Step, way: Way) -> str:
    words = way_words(step, way)
    return words if words == "otherwise" else f"if {words}"


def _words(shown: Shown) -> str:
    what = shown.what
    if "warning" in what:
        return f"warning: {what['warning']}"
    heading = f"=== Step {shown.label}: {shown.title}"
    if "prompt" in what:
        system = _system(shown.effect)
        system = f"--- system\n{system}\n" if system else ""
        return f"{heading}\n{system}--- prompt\n{what['prompt']}"
    if "question" in what:
        return f"{heading}\n{_question_words(what)}"
    if "tool" in what:
        arguments = json.dumps(what["arguments"], ensure_ascii=False, indent=2)
        return f"{heading}\n--- tool {what['tool']}\n{arguments}"
    if "source" in what:
        return f"{heading}\n--- text {what['source']}{'' if what['read'] else ' (not read here)'}"
    name = next(iter(what))
    return f"{heading}\n{name}: {what[name]}"


def _question_words(what: Mapping[str, Any]) -> str:
    asked = what["question"]
    options = f"\noptions: {', '.join(asked['options'])}" if asked["options"] else ""
    default = f"\ndefault: {asked['default']}" if asked["default"] is not None else ""
    answer = f"answered: {what['answer']}" if "answer" in what else f"shown as if answered: {what['as_if']}"
    return f"--- question ({asked['type']})\n{asked['prompt']}{options}{default}\n{answer}"
