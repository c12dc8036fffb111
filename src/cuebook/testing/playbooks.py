"""Tests of playbooks: finds the files, loads their cases, and runs each on the real engine with an in-memory store.

`tea.test.yaml` holds the cases of `tea.playbook.md`, `tea.md`, `tea.yml` or `tea.pbasm` beside it. What is printed is a
surface's business.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.told import ProgramRun
from cuebook.dialects.registry import Conversing, Dialect, Publishing, Tracing, Typed
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.events import Performed, RunStarted, StepStarted, WaitOpened, Warned
from cuebook.kernel.journal import Entry, without_void
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.performers.beside import instead_of, reader
from cuebook.performers.models import DEFAULT
from cuebook.performers.models.port import Model
from cuebook.performers.models.recorded import RecordedModel
from cuebook.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.testing.cases import Case, cases_in
from cuebook.testing.expectations import Mismatch, Outcome, compare
from cuebook.testing.reading import BadFile, Reader, read
from cuebook.testing.scripts import AskingGate
from cuebook.testing.stage import Stage, playbook_of

SUFFIXES = (".test.yaml", ".test.yml")
PLAYBOOKS = (".playbook.md", ".md", ".yml", ".yaml", ".pbasm")
_PASSED_OVER = ("node_modules", "__pycache__", "dist", "build")
_MOST_TURNS = 10_000
_EMBEDDED_MAX_TOKENS = 512
_SUB_STEP = re.compile(r"(\d+)[a-z]", re.ASCII)

Real = Callable[[str], Model]
"""The model behind a name, for a recording."""


class CaseFile(msgspec.Struct, frozen=True):
    """A test file and the playbook it is about."""

    path: Path
    playbook: Path
    text: str
    broken: str
    """Why the playbook cannot be run; empty where it can."""
    cases: tuple[Case, ...]


class Ran(msgspec.Struct, frozen=True):
    """A case, and what became of it."""

    file: CaseFile
    case: Case
    seconds: float
    mismatches: tuple[Mismatch, ...] = ()
    outcome: Outcome | None = None
    error: str = ""
    """Why the case could not be run at all."""

    @property
    def passed(self) -> bool:
        return not self.mismatches and not self.error


# --- finding ------------------------------------------------------------------------------------------------


def find(paths: Sequence[Path]) -> list[Path]:
    """The test files that are meant: a file, those below a folder, or the one beside a playbook."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(_below(path)))
        elif path.name.endswith(SUFFIXES):
            found[path] = None
        else:
            found[_beside(path)] = None
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
        yield from (Path(place, name) for name in sorted(files) if name.endswith(SUFFIXES))


def _beside(playbook: Path) -> Path:
    if not playbook.exists():
        raise BadInput(f"There is no file {playbook}.", fix=instead_of(playbook))
    stem = _without(playbook.name, PLAYBOOKS)
    for name in dict.fromkeys((stem, _without(playbook.name, PLAYBOOKS[1:]))):
        for suffix in SUFFIXES:
            if playbook.with_name(name + suffix).is_file():
                return playbook.with_name(name + suffix)
    raise BadInput(
        f"{playbook} has no tests.", fix=f"Write them into {playbook.with_name(stem + SUFFIXES[0])}, beside it."
    )


def _without(name: str, suffixes: Sequence[str]) -> str:
    return next((name.removesuffix(one) for one in suffixes if name.endswith(one)), name)


# --- loading ------------------------------------------------------------------------------------------------


def load(path: Path) -> CaseFile:
    """The cases of a file. `BadFile` names every line that is wrong."""
    playbook = _playbook_of(path)
    text, broken, document = _read_playbook(playbook)
    reader = Reader(str(path))
    plain = _has_types(text, playbook.name)
    cases = cases_in(read(path), reader, path.parent, _labels(document), plain=plain, tools=_tools(document))
    reader.finish()
    return CaseFile(path, playbook, text, broken, cases)


def _has_types(text: str, name: str) -> bool:
    """Whether its inputs are more than texts."""
    try:
        return isinstance(registry.detect(text, name), Typed)
    except BadInput:
        return False


def _playbook_of(path: Path) -> Path:
    if not path.is_file():
        raise BadFile(f"There is no file {path}.", fix=instead_of(path))
    stem = _without(path.name, SUFFIXES)
    found = [one for suffix in PLAYBOOKS if (one := path.with_name(stem + suffix)).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(one.name for one in found)
        raise BadFile(f"{path}: both {both} lie beside it.", fix="Rename one of them.")
    names = " or ".join(stem + suffix for suffix in PLAYBOOKS)
    raise BadFile(f"{path}: its playbook is not there.", fix=f"It is {names}, beside it.")


def _read_playbook(path: Path) -> tuple[str, str, Any]:
    """The text, why it cannot be run, and what it says if it can."""
    try:
        with path.open("rb") as file:
            text = registry.text_of(file.read(registry.LARGEST + 1))
    except (OSError, UnicodeDecodeError) as error:
        return "", f"{path} cannot be read: {error}", None
    try:
        text = registry.whole(text, str(path), reader(path))
        document = registry.detect(text, path.name).parse(text, str(path))
    except BadInput as error:
        return text, str(error), None
    return text, "", document


def _labels(document: Any) -> list[str] | None:
    """The labels of its steps."""
    if document is None:
        return None
    every = document.walk() if hasattr(document, "walk") else document.plan
    labels = [label for step in every for label in (playbook_of(step.label), step.label) if label]
    return list(dict.fromkeys(labels))


def _tools(document: Any) -> list[str] | None:
    """What a case may have results for, where the playbook says all of it: Python playbooks by name, and `Agent.` for
    whatever an agent offers that lives elsewhere.
    """
    if not isinstance(document, ProgramText):
        return None
    agents = document.agents.values()
    own = [one.name for agent in agents for one in agent.playbooks.values() if one.kind == "python"]
    return own + [f"{agent.name}." for agent in agents if agent.remote is not None]


# --- running ------------------------------------------------------------------------------------------------


async def run(file: CaseFile, case: Case, real: Real | None = None, *, real_steps: bool = False) -> Ran:
    """Runs one case. With `real`, what is missing in its recording is asked of that model, and kept. With `real_steps`,
    steps that the case performs for real may be.
    """
    began = time.perf_counter()
    if file.broken:
        return Ran(file, case, 0.0, error=file.broken)
    try:
        outcome = await _outcome(file, case, real, real_steps)
    except CuebookError as error:
        return Ran(file, case, time.perf_counter() - began, error=str(error))
    mismatches = tuple(compare(case.expect, outcome))
    return Ran(file, case, time.perf_counter() - began, mismatches, outcome)


async def _outcome(file: CaseFile, case: Case, real: Real | None, real_steps: bool) -> Outcome:
    stage = Stage(case, file.playbook.parent, _recording(case, real), real=real_steps)
    clock = _Clock()
    service = Service(MemoryStore(), stage.performers(), gate=AskingGate(), clock=clock, watches=registry.WATCHES)
    try:
        try:
            row = await service.start(file.text, file.playbook.name, case.inputs, _settings(case))
        except BadInput as refused:
            return Outcome(refused=str(refused))
        acting = _Acting(service, case, clock)
        row = await acting.through(row)
        return await _told(service, row, case, stage, acting)
    finally:
        await service.close()


def _recording(case: Case, real: Real | None) -> Model | None:
    if case.recorded is None:
        return None
    if real is not None:
        return RecordedModel(case.recorded, real(case.model or DEFAULT), keep_stopped=True)
    if not case.recorded.is_file():
        raise BadInput(f"There is no recording {case.recorded}.", fix="`cuebook test --record` makes it.")
    return RecordedModel(case.recorded, mode="replay")


def _settings(case: Case) -> Settings:
    answers: dict[str, str | tuple[str, ...]] = {}
    if case.unattended:
        answers = {step: said[0] if len(said) == 1 else tuple(said) for step, said in case.answers.items() if said}
    model = case.model or ("test/scripted" if case.recorded is None else DEFAULT)
    return Settings(
        model=model,
        max_tokens=_EMBEDDED_MAX_TOKENS if model.partition("/")[0] == "local" else None,
        breakpoints=tuple(dict.fromkeys((*case.breakpoints, *case.overrides))),
        answers=answers,
        unattended=case.unattended,
        options=case.options,
    )


class _Clock:
    """The time, without the waits that nobody need sit through."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead

    def advance_to(self, moment: float) -> None:
        self._ahead = max(self._ahead, moment - time.time())


class _Acting:
    """The person in a case: answers, decides and resumes as the case says, until there is nothing more to do."""

    def __init__(self, service: Service, case: Case, clock: _Clock) -> None:
        self._service = service
        self._clock = clock
        self._approvals = {step: list(said) for step, said in case.approvals.items()}
        self._answers = {step: list(values) for step, values in case.answers.items()}
        self.in_order = list(case.answers_in_order or ())
        self._overrides = case.overrides
        self.refused: list[tuple[str, str]] = []
        """Answers that did not fit, by step: in a list of several they are tried, a single one must fit."""

    async def through(self, row: RunRow) -> RunRow:
        for _ in range(_MOST_TURNS):
            row = await self._service.engine.drive(row.id)
            waits = await self._service.store.waits(run=row.id)
            if not [wait for wait in waits if await self._did(wait)]:
                return row
        raise CuebookError(f"The run did not come to an end in {_MOST_TURNS} turns.")

    async def _did(self, wait: WaitRow) -> bool:
        step = wait.place.step
        if wait.kind == "timer" and wait.expires is not None:
            self._clock.advance_to(wait.expires)
            await self._service.store.expire(self._clock())
            return True
        if wait.kind == "approval" and self._approvals.get(step):
            said, _, reason = self._approvals[step].pop(0).partition(" ")
            decision: Literal["approve", "deny"] = "approve" if said == "approve" else "deny"
            await self._service.decide(wait.id, decision, reason=reason.strip())
            return True
        if wait.kind == "breakpoint" and step in self._overrides:
            await self._service.resume(wait.run, overrides=self._overrides[step])
            return True
        answers = self.in_order or self._answers.get(step) or self._answers.get(_around(step), [])
        while wait.kind == "question" and answers:
            value = answers.pop(0)
            try:
                await self._service.answer(wait.id, value)
                return True
            except BadInput as refused:
                self.refused.append((step, str(refused)))
        return False


def _around(step: str) -> str:
    """The step that a sub-step belongs to, or the playbook of a line: an answer for it is an answer for both."""
    sub = _SUB_STEP.fullmatch(step)
    return sub[1] if sub else playbook_of(step) or step


def _published(dialect: Dialect, document: Any, entries: Sequence[Entry]) -> Iterator[str]:
    """The names that the playbook's format has for what happened."""
    if isinstance(dialect, Publishing):
        names = dialect.publisher(document, "")
        yield from (str(one["type"]) for entry in entries for one in names(entry))


async def _told(service: Service, row: RunRow, case: Case, stage: Stage, acting: _Acting) -> Outcome:
    """What the run came to, from its journal."""
    view = await service.view(row.id)
    outcome = Outcome(
        status=row.status,
        error="" if row.error is None else str(row.error),
        step=row.step,
        refused_answers=tuple(acting.refused),
        asked=tuple(stage.asked),
        calls=tuple(stage.calls),
        missing=stage.missing,
        commands=tuple(stage.scripts.ran),
        requests=tuple(stage.scripts.sent),
        left=stage.lines.left,
        answers_left=len(acting.in_order),
        skipped=tuple(step.label for step in view.steps if step.status == "skipped"),
        outputs={label: str(text) for label, text in view.outputs.items()},
    )
    gathered: dict[str, Any] = {
        "ran": {},
        "path": [],
        "variables": {},
        "warnings": [],
        "questions": [],
        "approvals": [],
    }
    entries = without_void([entry async for entry in service.engine.entries(row.id)])
    dialect = registry.named(row.dialect)
    document = dialect.parse(await service.store.playbook(row.playbook), row.name)
    for entry in entries:
        match entry.event:
            case RunStarted(inputs=inputs):
                gathered["variables"].update(inputs)
            case StepStarted(label=label):
                gathered["ran"][label] = None
                gathered["path"].append(label)
            case Warned(message=message):
                gathered["warnings"].append(message)
            case WaitOpened(kind="question", prompt=prompt):
                gathered["questions"].append((entry.place.step, prompt))
            case WaitOpened(kind="approval", prompt=prompt):
                gathered["approvals"].append((entry.place.step, prompt))
            case Performed(outcome=Answer()) if case.unattended:
                gathered["questions"].append((entry.place.step, ""))
    artifact = view.artifact
    if isinstance(dialect, Conversing):
        outcome = _heard(outcome, dialect.told(entries), gathered["variables"])
    return msgspec.structs.replace(
        outcome,
        ran=tuple(label for label in gathered["ran"] if label not in outcome.skipped),
        path=tuple(gathered["path"]),
        results=dialect.values(document, entries) if isinstance(dialect, Tracing) else {},
        events=tuple(_published(dialect, document, entries)),
        variables={**gathered["variables"], **view.values},
        warnings=tuple(gathered["warnings"]),
        questions=tuple(gathered["questions"]),
        approvals=tuple(gathered["approvals"]),
        artifact=None if artifact is None else str(artifact.content),
        artifact_type="" if artifact is None else artifact.type,
    )


def _heard(outcome: Outcome, run: ProgramRun, variables: dict[str, Any]) -> Outcome:
    """What was said and how it came about. Variables of an agent are also known by its name, as in `Desk.size`."""
    for agent, known in run.variables.items():
        variables.update(known)
        variables.update({f"{agent}.{name}": value for name, value in known.items()})
    return msgspec.structs.replace(
        outcome,
        messages=run.messages,
        result=run.value,
        refusals=run.refusals,
        triggers=run.triggers,
    )
