"""Playbook tests: finds the files, loads their cases, and runs each case on the real engine with an in-memory store.

`tea.test.yaml` contains the cases for the playbook `tea` in the same folder, which may be in any dialect. This module
prints nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect, Document
from cuebook.dialects.playbook import Playbook
from cuebook.formats.values import BadFile
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.kernel.votes import ROLE, rule_of, votes_of
from cuebook.performers.files.neighbours import instead_of, reader
from cuebook.performers.models import DEFAULT
from cuebook.performers.models.model import Model
from cuebook.performers.models.recorded import RecordedModel
from cuebook.service.service import Principal, Service
from cuebook.stores.memory import MemoryStore
from cuebook.testing.cases import Case, cases_in
from cuebook.testing.expectations import Mismatch, Outcome, compare
from cuebook.testing.outcomes import outcome_of
from cuebook.testing.reader import CaseReader, read
from cuebook.testing.scripts import AskingGate
from cuebook.testing.stage import Stage

SUFFIXES = (".test.yaml", ".test.yml")
_SKIPPED_FOLDERS = ("node_modules", "__pycache__", "dist", "build")
_DATA = {".json"}
_MOST_TURNS = 10_000
_EMBEDDED_MAX_TOKENS = 512

Real = Callable[[str], Model]
"""Returns the model with this name, to record its replies."""


class CaseFile(msgspec.Struct, frozen=True):
    """A test file and the playbook it is about."""

    path: Path
    playbook: Path
    text: str
    broken: str
    """Why the playbook cannot be run; empty if it can."""
    cases: tuple[Case, ...]


class Ran(msgspec.Struct, frozen=True):
    """A case and its result."""

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
    """The test files for these paths: the file itself, the files below a folder, or the file next to a playbook."""
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
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(place, name) for name in sorted(files) if name.endswith(SUFFIXES))


def _beside(playbook: Path) -> Path:
    if not playbook.exists():
        raise BadInput(f"There is no file {playbook}.", fix=instead_of(playbook))
    stems = [playbook.name.removesuffix(one) for one in playbook_suffixes() if playbook.name.endswith(one)]
    for name in stems or [playbook.name]:
        for suffix in SUFFIXES:
            if playbook.with_name(name + suffix).is_file():
                return playbook.with_name(name + suffix)
    raise BadInput(
        f"{playbook} has no tests.",
        fix=f"Write them in {playbook.with_name((stems or [playbook.name])[0] + SUFFIXES[0])}, next to it.",
    )


def playbook_suffixes() -> tuple[str, ...]:
    """The suffixes of playbooks, longest first, except for suffixes that are common for data files."""
    every = {suffix for dialect in registry.dialects() for suffix in dialect.suffixes}
    return tuple(sorted(every - _DATA, key=lambda suffix: (-len(suffix), suffix)))


def _without(name: str, suffixes: Sequence[str]) -> str:
    return next((name.removesuffix(one) for one in suffixes if name.endswith(one)), name)


# --- loading ------------------------------------------------------------------------------------------------


def load(path: Path) -> CaseFile:
    """Loads the cases from a file. Raises `BadFile` with every invalid line."""
    playbook = _playbook_of(path)
    text, broken, dialect, document = _read_playbook(playbook)
    return CaseFile(path, playbook, text, broken, cases_of(path, dialect, document))


def cases_of(path: Path, dialect: Dialect | None, document: Document | None) -> tuple[Case, ...]:
    """The cases in a file, for a playbook, as far as it can be read. Raises `BadFile` with every invalid line."""
    reader = CaseReader(str(path))
    labels: list[str] | None = None
    tools: tuple[str, ...] | None = None
    rules: tuple[str, ...] = ()
    if dialect is not None and document is not None:
        labels, tools, rules = _labels(document, dialect), dialect.scripted_tools(document), dialect.refusal_rules()
    plain = dialect is not None and dialect.typed_inputs
    cases = cases_in(read(path), reader, path.parent, labels, plain=plain, tools=tools, rules=rules)
    reader.finish()
    return cases


def _playbook_of(path: Path) -> Path:
    if not path.is_file():
        raise BadFile(f"There is no file {path}.", fix=instead_of(path))
    stem = _without(path.name, SUFFIXES)
    found = [one for suffix in playbook_suffixes() if (one := path.with_name(stem + suffix)).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(one.name for one in found)
        raise BadFile(f"{path}: both {both} match its name.", fix="Rename one of them.")
    names = ", ".join(stem + suffix for suffix in playbook_suffixes())
    raise BadFile(f"{path}: its playbook is missing.", fix=f"Put one of these next to it: {names}.")


def _read_playbook(path: Path) -> tuple[str, str, Dialect | None, Document | None]:
    """The playbook's text, why it cannot be run, the dialect, and the document if it can be run."""
    try:
        with path.open("rb") as file:
            text = registry.text_of(file.read(registry.LARGEST + 1))
    except (OSError, UnicodeDecodeError) as error:
        return "", f"{path} cannot be read: {error}", None, None
    dialect: Dialect | None = None
    try:
        text = registry.whole(text, str(path), reader(path))
        dialect = registry.detect(text, path.name)
        return text, "", dialect, dialect.parse(text, str(path))
    except BadInput as error:
        return text, str(error), dialect, None


def _labels(document: Document, dialect: Dialect) -> list[str]:
    """The labels of the document's steps, and of their groups."""
    labels = [label for one in document.labels for label in (dialect.step_group(one), one) if label]
    labels += [one.label for one in dialect.outline(document) if one.label not in labels]
    return list(dict.fromkeys(labels))


# --- running ------------------------------------------------------------------------------------------------


async def run(file: CaseFile, case: Case, real: Real | None = None, *, real_steps: bool = False) -> Ran:
    """Runs one case. With `real`, replies missing from its recording are requested from that model and recorded. With
    `real_steps`, the steps that the case lists under `real` are performed.
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
    try:
        playbook = Playbook.from_text(file.text, file.playbook.name)
    except BadInput as refused:
        return Outcome(refused=str(refused))
    dialect = playbook.dialect
    stage = Stage(case, file.playbook.parent, dialect, _recording(case, real), real=real_steps)
    clock = _Clock()
    service = Service(MemoryStore(), stage.performers(), gate=AskingGate(), clock=clock, watches=registry.WATCHES)
    try:
        try:
            row = await service.start(playbook, case.inputs, _settings(case))
        except BadInput as refused:
            return Outcome(refused=str(refused))
        acting = _Acting(service, case, clock, playbook)
        row = await acting.through(row)
        return await _result(service, row, case, stage, acting)
    finally:
        await service.close()


def _recording(case: Case, real: Real | None) -> Model | None:
    if case.recorded is None:
        return None
    if real is not None:
        return RecordedModel(case.recorded, real(case.model or DEFAULT), keep_stopped=True)
    if not case.recorded.is_file():
        raise BadInput(f"There is no recording {case.recorded}.", fix="`cuebook test --record` creates it.")
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
    """A clock that skips waits."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead

    def advance_to(self, moment: float) -> None:
        self._ahead = max(self._ahead, moment - time.time())


class _Acting:
    """Plays the user in a case: answers, decides and resumes as the case says, until there is nothing more to do."""

    def __init__(self, service: Service, case: Case, clock: _Clock, playbook: Playbook) -> None:
        self._dialect = playbook.dialect
        self._within = {one.label: one.within for one in playbook.dialect.outline(playbook.document) if one.within}
        self._service = service
        self._clock = clock
        self._approvals = {step: list(said) for step, said in case.approvals.items()}
        self._answers = {step: list(values) for step, values in case.answers.items()}
        self.in_order = list(case.answers_in_order or ())
        self._overrides = case.overrides
        self.refused: list[tuple[str, str]] = []
        """Invalid answers by step, with the error; the next answer in the list is tried instead."""

    async def through(self, row: RunRow) -> RunRow:
        for _ in range(_MOST_TURNS):
            row = await self._service.take_up(row.id)
            waits = await self._service.waits(row.id)
            if not [wait for wait in waits if await self._did(wait)]:
                return row
        raise CuebookError(f"The run did not end within {_MOST_TURNS} turns.")

    async def _did(self, wait: WaitRow) -> bool:
        step = wait.place.step
        if wait.kind == "timer" and wait.expires is not None:
            self._clock.advance_to(wait.expires)
            await self._service.expire()
            return True
        decided = self._decided(step) if wait.kind == "approval" else ""
        if decided:
            said, _, reason = decided.partition(" ")
            decision: Literal["approve", "deny", "changes"] = said if said in ("approve", "changes") else "deny"  # type: ignore[assignment]
            await self._service.decide(wait.id, decision, self._voter(wait), reason=reason.strip())
            return True
        if wait.kind == "breakpoint" and step in self._overrides:
            await self._service.resume(wait.run, overrides=self._overrides[step])
            return True
        answers = self.in_order or self._answers.get(step) or self._answers.get(self._around(step), [])
        while wait.kind == "question" and answers:
            value = answers.pop(0)
            try:
                await self._service.answer(wait.id, value)
                return True
            except BadInput as refused:
                self.refused.append((step, str(refused)))
        return False

    def _decided(self, step: str) -> str:
        """The next decision at a step; empty if there is none. The last decision for all items of a loop is repeated."""
        if self._approvals.get(step):
            return self._approvals[step].pop(0)
        of_all = self._approvals.get(self._dialect.step_group(step), [])
        return of_all.pop(0) if len(of_all) > 1 else next(iter(of_all), "")

    def _voter(self, wait: WaitRow) -> Principal:
        """Someone who may decide: the next of the named people, or someone else if the approval demands that."""
        rule, voted = rule_of(wait.details), {vote["by"] for vote in votes_of(wait.answer)}
        named = [one for one in rule.by if not one.startswith(ROLE) and one != wait.owner]
        if not (rule.by or rule.counts or rule.different_person):
            return Principal()
        others = [*named, *(f"approver{number}" for number in range(1, rule.votes + rule.denials + 1))]
        return Principal(next(one for one in others if one not in voted))

    def _around(self, step: str) -> str:
        """The step that a sub-step belongs to, or the group of a step: its answers apply to both."""
        return self._within.get(step) or self._dialect.step_group(step) or step


async def _result(service: Service, row: RunRow, case: Case, stage: Stage, acting: _Acting) -> Outcome:
    """The result of the run, from its journal and from what the stage has seen."""
    outcome = await outcome_of(service, row, unattended=case.unattended)
    return msgspec.structs.replace(
        outcome,
        refused_answers=tuple(acting.refused),
        asked=tuple(stage.asked),
        calls=tuple(stage.calls),
        missing=stage.missing,
        commands=tuple(stage.scripts.ran),
        requests=tuple(stage.scripts.sent),
        left=stage.lines.left,
        answers_left=len(acting.in_order),
        unrecorded=frozenset(),
    )
