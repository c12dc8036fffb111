"""Cuebook from Python: load a playbook, run it, and go on with a run that waits. What `import cuebook` offers.

Every function has an async twin, whose name begins with `a`; the others are those, run to their end. It joins wiring and
service, and knows no dialect.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from cuebook.config import load as load_config
from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect, Finding, Input, InvalidPlaybook, Problem, Tracing
from cuebook.kernel.engine import Observer, Programs
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.events import WAITING, PlannedStep, Warned
from cuebook.kernel.journal import Entry, without_void
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Budget, WaitRow
from cuebook.performers.beside import reader
from cuebook.performers.models.port import Model
from cuebook.performers.python import python_tool as tool
from cuebook.performers.tools import Tool
from cuebook.service import RunView, Service
from cuebook.surfaces.wiring import Wiring

__all__ = [
    "Artifact",
    "BadInput",
    "CuebookError",
    "Finding",
    "Input",
    "InvalidPlaybook",
    "Playbook",
    "Problem",
    "Result",
    "Step",
    "Wait",
    "afind",
    "aload",
    "arun",
    "find",
    "load",
    "run",
    "tool",
]

T = TypeVar("T")

Source: TypeAlias = "str | os.PathLike[str] | Playbook"
"""A path, the text itself (which has a line break), or what `load` gave."""
Tools: TypeAlias = Iterable[Callable[..., Any] | Tool]
Where: TypeAlias = "str | os.PathLike[str] | Store | None"
"""Where runs are kept: a file, a store object, or what is configured."""
Decision: TypeAlias = Literal["approve", "deny", "repeat", "stop", "done"]

GIVEN = "python"
"""The provider under whose name a model object answers."""

_SUFFIXES = {
    "markdown": ".md",
    "json": ".json",
    "chartjs": ".json",
    "mermaid": ".mmd",
    "html_css": ".html",
    "javascript": ".js",
    "typescript": ".ts",
}


_UNNAMED = {"graph": "workflow.yml", "program": "program.pbasm"}
"""What a text without a name is called, if it is in this dialect and not Markdown."""


def _name_for(text: str) -> str:
    return next(
        (name for dialect, name in _UNNAMED.items() if registry.named(dialect).recognises(text, "")), "playbook.md"
    )


# --- what there is to see -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Playbook:
    """A playbook that can be run: its text, and what it says."""

    text: str
    name: str
    document: Any = field(repr=False)
    """The parsed form, as its dialect has it."""
    dialect: Dialect = field(repr=False)
    path: Path | None = None

    @classmethod
    def from_text(cls, text: str, name: str = "", *, path: Path | None = None) -> Playbook:
        """Parses a text. `InvalidPlaybook` names every problem and its line."""
        name = name or _name_for(text)
        dialect = registry.detect(text, name)
        return cls(text, name, dialect.parse(text, str(path or name)), dialect, path)

    @property
    def title(self) -> str:
        return str(self.document.title)

    @property
    def description(self) -> str:
        return str(getattr(self.document, "description", ""))

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(self.document.inputs)

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """Label and title of each step."""
        return tuple(self.document.plan)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all steps and sub-steps."""
        walk = getattr(self.document, "walk", None)
        return tuple(dict.fromkeys(step.label for step in (walk() if walk is not None else self.steps)))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What the parser found odd; `check` finds more."""
        return tuple(getattr(self.document, "warnings", ()))

    def check(self) -> list[Finding]:
        """Everything that looks like a mistake: findings with code, severity, message, line, column and fix."""
        checker = importlib.import_module(f"cuebook.dialects.{self.dialect.name}.check")
        return list(checker.check(self.text, self.name))


@dataclass(frozen=True)
class Step:
    """A step of a run."""

    label: str
    title: str
    status: str
    reason: str
    output: str | None


@dataclass(frozen=True)
class Wait:
    """Something that a run waits for."""

    id: str
    kind: str
    """`question`, `approval`, `breakpoint`, `budget` or `in_doubt`."""
    step: str
    prompt: str
    type: str
    """Of a question: `input`, `confirm` or `select`."""
    options: tuple[str, ...]
    default: str | None
    details: Mapping[str, Any] = field(repr=False)
    """Of an approval: the summary, the preview and the rules that ask for it."""


@dataclass(frozen=True)
class Artifact:
    """What a run was for."""

    content: str
    type: str
    """As the playbook says; empty where it does not."""

    @property
    def suffix(self) -> str:
        """What the name of its file ends in."""
        return _SUFFIXES.get(self.type, ".md")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it to a file; into a folder, as `artifact` with its suffix."""
        place = Path(path)
        if place.is_dir():
            place = place / f"artifact{self.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.content, encoding="utf-8")
        return place

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True)
class Result:
    """A run, as it was when it ended or began to wait."""

    run: str
    """Its id."""
    status: str
    reason: str
    model: str
    output: str | None
    """The artifact's text, or the last output there is."""
    artifact: Artifact | None
    values: Mapping[str, Any]
    """Named outputs, and inputs that were changed; of a workflow graph, what each node came to."""
    outputs: Mapping[str, str]
    """The text of each step, by label."""
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    warnings: tuple[str, ...]
    error: str | None
    cost: float | None
    """US dollars; None where nobody knows."""
    tokens: int
    """Of all model calls, in and out."""
    result: Any = field(repr=False)
    """What its program returned."""
    trace: Mapping[str, Any] | None = field(repr=False)
    """Of a workflow graph: the steps, the edges that were followed and why, and the sources."""
    _session: Session = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    @property
    def waiting(self) -> bool:
        return self.status in WAITING

    # --- going on ---

    async def aanswer(self, value: str, wait: str | None = None) -> Result:
        """Answers the question it waits for, and goes on. A value that does not fit is `BadInput`."""
        one = self._wait(("question",), wait)
        said = _answer(value, "given")
        return await self._session.going_on(self.run, lambda service: service.answer(one, said))

    async def aresume(self, overrides: Mapping[str, Any] | None = None, **settings: Any) -> Result:
        """Ends a pause and goes on: with values to change, and settings such as `budget` or `model`."""
        return await self._session.going_on(
            self.run, lambda service: service.resume(self.run, overrides=overrides, settings=settings)
        )

    async def adecide(
        self,
        decision: Decision,
        wait: str | None = None,
        *,
        reason: str = "",
        outcome: Mapping[str, Any] | None = None,
    ) -> Result:
        """Approves or denies what it wants to do, or settles what is in doubt; then goes on."""
        kinds = ("approval",) if decision in ("approve", "deny") else ("in_doubt",)
        one = self._wait(kinds, wait)
        return await self._session.going_on(
            self.run, lambda service: service.decide(one, decision, reason=reason, outcome=outcome)
        )

    async def aretry(self, *, whole_step: bool = False) -> Result:
        """Goes on with a failed run where it failed."""
        return await self._session.going_on(self.run, lambda service: service.retry(self.run, whole_step=whole_step))

    async def acancel(self, reason: str = "") -> Result:
        return await self._session.going_on(self.run, lambda service: service.cancel(self.run, reason))

    def answer(self, value: str, wait: str | None = None) -> Result:
        """Answers the question it waits for, and goes on. A value that does not fit is `BadInput`."""
        return _finished(self.aanswer(value, wait), "aanswer")

    def resume(self, overrides: Mapping[str, Any] | None = None, **settings: Any) -> Result:
        """Ends a pause and goes on: with values to change, and settings such as `budget` or `model`."""
        return _finished(self.aresume(overrides, **settings), "aresume")

    def decide(
        self,
        decision: Decision,
        wait: str | None = None,
        *,
        reason: str = "",
        outcome: Mapping[str, Any] | None = None,
    ) -> Result:
        """Approves or denies what it wants to do, or settles what is in doubt; then goes on."""
        return _finished(self.adecide(decision, wait, reason=reason, outcome=outcome), "adecide")

    def retry(self, *, whole_step: bool = False) -> Result:
        """Goes on with a failed run where it failed."""
        return _finished(self.aretry(whole_step=whole_step), "aretry")

    def cancel(self, reason: str = "") -> Result:
        return _finished(self.acancel(reason), "acancel")

    def _wait(self, kinds: tuple[str, ...], named: str | None) -> str:
        if named is not None:
            return named
        fitting = [wait.id for wait in self.waits if wait.kind in kinds]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise BadInput(f"Run {self.run} waits for {len(fitting)} of them.", fix=f"Name one: {', '.join(fitting)}.")
        waits = ", ".join(wait.kind for wait in self.waits) or "nothing"
        raise BadInput(f"Run {self.run} is {self.status} and waits for {waits}.", fix="Look at `waits` of the result.")


# --- loading ------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Playbook:
    """A playbook from its file. `BadInput` if it cannot be read, `InvalidPlaybook` with every problem in it."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            text = registry.text_of(file.read(registry.LARGEST + 1))
    except UnicodeDecodeError:
        raise BadInput(f"{place} is no UTF-8 text.", fix="Save it as UTF-8.") from None
    except (OSError, ValueError) as error:  # a path may hold what no path can
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{place} cannot be read: {why}.", fix="Check the path.") from None
    return Playbook.from_text(registry.whole(text, str(place), reader(place)), place.name, path=place)


async def aload(path: str | os.PathLike[str]) -> Playbook:
    """As `load`, from a coroutine."""
    return await asyncio.to_thread(load, path)


def _playbook(source: Source) -> Playbook:
    if isinstance(source, Playbook):
        return source
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return Playbook.from_text(source)
    return load(source)


# --- running ------------------------------------------------------------------------------------------------


def run(
    playbook: Source,
    inputs: Mapping[str, Any] | None = None,
    *,
    model: str | Model | None = None,
    answers: Mapping[str, str] | Mapping[int, str] | None = None,
    unattended: bool = False,
    breakpoints: Iterable[str | int] = (),
    tools: Tools = (),
    store: Where = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    on_event: Observer | None = None,
) -> Result:
    """Runs a playbook until it ends, or waits for someone.

    - `model`: `provider/model`, `local`, or an object that answers; otherwise what is configured.
    - `answers`: by step label, for questions that the run asks. `unattended`: nobody is there to ask, so questions are
      answered by their defaults and breakpoints are passed.
    - `tools`: Python functions that the playbook calls by `@tool(python, name)`. They pass the gate like all others: what
      does not say that it only reads (`tool(f, reads_only=True)`) waits for an approval, unless a policy allows it.
    - `store`: the file or store that keeps the run; otherwise the configured one, which the command line sees, too.
    - `options`: `strict` (a warning fails the run), `stop_on_no` (a confirmation that is answered with no stops it), and
      what the dialect has of its own.
    - `on_event` is called with everything that happens, as it happens.

    Whatever the settings leave open is configured as for the command line.
    """
    work = arun(
        playbook,
        inputs,
        model=model,
        answers=answers,
        unattended=unattended,
        breakpoints=breakpoints,
        tools=tools,
        store=store,
        max_tokens=max_tokens,
        temperature=temperature,
        budget=budget,
        options=options,
        on_event=on_event,
    )
    return _finished(work, "arun")


async def arun(
    playbook: Source,
    inputs: Mapping[str, Any] | None = None,
    *,
    model: str | Model | None = None,
    answers: Mapping[str, str] | Mapping[int, str] | None = None,
    unattended: bool = False,
    breakpoints: Iterable[str | int] = (),
    tools: Tools = (),
    store: Where = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    on_event: Observer | None = None,
) -> Result:
    """As `run`, from a coroutine."""
    book = _playbook(playbook)
    folder = book.path.absolute().parent if book.path is not None else None
    flags: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    session = Session(model, tools, store, on_event, flags)
    given = {str(label): _answer(answer, f"for step {label}") for label, answer in (answers or {}).items()}
    paused = tuple(str(label) for label in breakpoints)
    _check_labels(book, (*given, *paused))
    settings = {
        "answers": given,
        "unattended": unattended,
        "breakpoints": paused,
        "options": dict(options or {}),
        **({"budget": budget} if budget is not None else {}),
    }

    async def begin(service: Service, wiring: Wiring) -> str:
        chosen = msgspec.structs.replace(wiring.settings(folder=folder), **settings)
        return (await service.start(book.text, book.name, inputs or {}, chosen)).id

    return await session.driven(begin)


def _answer(value: Any, which: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"The answer {which} is {value!r}, which is no text.", fix="Give it as a text, such as 'yes'.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"The answer {which} holds half a character.", fix="Correct it.") from None
    return value


def _check_labels(book: Playbook, labels: Iterable[str]) -> None:
    known = book.labels
    for label in labels:
        if label not in known:
            raise BadInput(f"{book.name} has no step {label}.", fix=f"It has: {', '.join(known)}.")


def find(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """A run that was started before, here or elsewhere, by its id or the beginning of it. It is not driven.

    Give the tools and the model that it was started with if they were objects.
    """
    return _finished(afind(run, model=model, tools=tools, store=store), "afind")


async def afind(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """As `find`, from a coroutine."""
    session = Session(model, tools, store)
    async with session.opened() as (service, _):
        return await session.result(service, (await service.get(run)).id)


def _finished(work: Coroutine[Any, Any, T], twin: str) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise BadInput("This was called inside a running event loop.", fix=f"Await its async twin, {twin}.")


# --- inside -------------------------------------------------------------------------------------------------


class Session:
    """What a run was started with and needs again to go on. Opens the service for each call, and closes it."""

    def __init__(
        self,
        model: str | Model | None = None,
        tools: Tools = (),
        store: Where = None,
        on_event: Observer | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> None:
        self._models: dict[str, Model] = {}
        self._flags = dict(flags or {})
        if isinstance(model, str):
            self._flags["model"] = model
        elif model is not None:
            self._models = {GIVEN: model}
            self._flags["model"] = f"{GIVEN}/{type(model).__name__}"
        self._tools = [_as_tool(one) for one in tools]
        self._store: Store | None = None
        if isinstance(store, str | os.PathLike):
            self._flags["store"] = os.fspath(store)
        elif store is not None:
            self._store = _Open(store)
        self._on_event = on_event

    @asynccontextmanager
    async def opened(self, programs: Programs | None = None) -> AsyncIterator[tuple[Service, Wiring]]:
        config = load_config({name: value for name, value in self._flags.items() if value is not None})
        wiring = Wiring(config, models=self._models, tools=self._tools, store=self._store)
        service = wiring.service(programs=programs)
        if self._on_event is not None:
            service.observe(self._on_event)
        try:
            yield service, wiring
        finally:
            await service.close()

    async def driven(self, begin: Callable[[Service, Wiring], Awaitable[str]]) -> Result:
        async with self.opened() as (service, wiring):
            run = await begin(service, wiring)
            await service.drive(run)
            return await self.result(service, run)

    async def going_on(self, run: str, act: Callable[[Service], Awaitable[Any]]) -> Result:
        async def begin(service: Service, wiring: Wiring) -> str:
            await act(service)
            return run

        return await self.driven(begin)

    async def result(self, service: Service, run: str) -> Result:
        view = await service.view(run)
        entries = without_void([entry async for entry in service.engine.entries(run)])
        warnings = tuple(entry.event.message for entry in entries if isinstance(entry.event, Warned))
        results, trace = await self._traced(service, view, entries)
        return _result(view, warnings, results, trace, self)

    async def _traced(
        self, service: Service, view: RunView, entries: list[Entry]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """What each node came to and the trace, where the dialect has them."""
        dialect = next((one for one in registry.dialects() if one.name == view.run.dialect), None)
        if dialect is None or not isinstance(dialect, Tracing):
            return view.values, None
        document = dialect.parse(await service.store.playbook(view.run.playbook), view.run.name)
        return view.values, dialect.trace(document, entries)["trace"]


class _Open:
    """A store that belongs to the caller: it stays open when the service is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        return None


def _as_tool(given: Callable[..., Any] | Tool) -> Tool:
    if hasattr(given, "spec"):
        return cast(Tool, given)
    if not callable(given):
        raise BadInput(f"{given!r} is no tool.", fix="Give functions, or what cuebook.tool() makes of them.")
    return tool(given)


def _result(
    view: RunView,
    warnings: tuple[str, ...],
    values: Mapping[str, Any],
    trace: Mapping[str, Any] | None,
    session: Session,
) -> Result:
    row, totals = view.run, view.run.totals
    outputs = {label: str(text) for label, text in view.outputs.items()}
    artifact = None if view.artifact is None else Artifact(str(view.artifact.content), view.artifact.type)
    last = next(reversed(outputs.values())) if outputs else None
    return Result(
        run=row.id,
        status=row.status,
        reason=row.reason,
        model=row.model,
        output=last if artifact is None else artifact.content,
        artifact=artifact,
        values=values,
        trace=trace,
        outputs=outputs,
        steps=tuple(
            Step(step.label, step.title, step.status, step.reason, outputs.get(step.label)) for step in view.steps
        ),
        waits=tuple(_wait(wait) for wait in view.waits),
        warnings=warnings,
        error=None if row.error is None else str(row.error),
        cost=None if totals.unknown_costs else totals.cost,
        tokens=totals.tokens,
        result=view.result,
        _session=session,
    )


def _wait(row: WaitRow) -> Wait:
    return Wait(row.id, row.kind, row.place.step, row.prompt, row.type, row.options, row.default, row.details)
