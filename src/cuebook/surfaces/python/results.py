"""A run in the Python API: its result, the ways to continue it, and the session it was started in."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from cuebook.config import load as load_config
from cuebook.kernel.engine.engine import Observer, Programs
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import WAITING, Warned
from cuebook.kernel.journal import without_void
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.performers.models.model import Model
from cuebook.performers.tools.functions import python_tool as tool
from cuebook.performers.tools.toolbox import Tool
from cuebook.service.audit.export import Audited
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import Principal, RunView, Service
from cuebook.service.stream import Follower
from cuebook.surfaces.python.watch import Left, Published, Watch, harmless, left_by
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.dialects.presentation.projection import ProgramRun
    from cuebook.service.host_steps import HostStep

T = TypeVar("T")

Tools: TypeAlias = Iterable[Callable[..., Any] | Tool]
Where: TypeAlias = "str | os.PathLike[str] | Store | None"
"""The store: a file, a store object, or None for the configured one."""
Decision: TypeAlias = Literal["approve", "deny", "changes", "repeat", "stop", "done"]
Decide: TypeAlias = "Callable[[Wait], str | tuple[str, str] | None]"
"""Returns `approve`, `deny` or `changes`, alone or with a reason, or None to leave the approval open."""
Say: TypeAlias = "Callable[[Wait], Any]"
"""Returns the answer to a question or an awaitable of it, or None to leave it open. A form may be answered by a value."""

GIVEN = "python"
"""The provider name of model objects."""


# --- values -----------------------------------------------------------------------------------


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
    """Something that a run is waiting for."""

    id: str
    kind: str
    """`question`, `approval`, `breakpoint`, `budget`, `secret` or `in_doubt`."""
    step: str
    prompt: str
    type: str
    """For a question: `input`, `confirm`, `select` or `form`, whose details have the `schema` of the answer."""
    options: tuple[str, ...]
    default: str | None
    details: Mapping[str, Any] = field(repr=False)
    """For an approval: the summary, the complete preview, and the rules that require it."""


@dataclass(frozen=True)
class Artifact:
    """The result of a run, with its type."""

    content: str
    type: str
    """The type that the playbook declares; empty if it declares none."""

    @property
    def suffix(self) -> str:
        """The suffix of its file name."""
        return run_objects.artifact_file(self.type)[0]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, or into a folder as `artifact` with its suffix."""
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
    """A run at the moment it ended or started waiting."""

    run: str
    """Its id."""
    status: str
    reason: str
    model: str
    output: str | None
    """The artifact's text, or the last output."""
    artifact: Artifact | None
    values: Mapping[str, Any]
    """Named outputs and changed inputs, or whatever else the dialect defines as values."""
    outputs: Mapping[str, str]
    """The output of each step, by label."""
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    warnings: tuple[str, ...]
    error: str | None
    steps_done: int
    """Number of completed steps of the playbook, each counted once, without sub-steps."""
    steps_total: int
    cost: float | None
    """US dollars; None if it is unknown."""
    tokens: int
    """Input and output tokens of all model calls."""
    result: Any = field(repr=False)
    """The value that its program returned."""
    trace: Mapping[str, Any] | None = field(repr=False)
    """The execution trace, if the dialect defines one: steps, edges followed with their reasons, sources."""
    events: tuple[Published, ...] = field(repr=False)
    """The events that the playbook's format defines, without those undone by a retry."""
    program: ProgramRun | None = field(repr=False)
    """For a conversational playbook: its messages, executed lines, stack, variables, result and refused replies,
    and the number of model calls.
    """
    _session: Session = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    @property
    def waiting(self) -> bool:
        return self.status in WAITING

    # --- continuing ---

    async def aanswer(self, value: Any, wait: str | None = None) -> Result:
        """Answer the open question and continue; a form takes a value. Raises `BadInput` for an invalid one."""
        one = self._wait(("question",), wait)
        is_form = any(known.id == one and known.type == "form" for known in self.waits)
        said = value if is_form else checked_answer(value, "given")
        return await self._session.continued(self.run, lambda service: service.answer(one, said))

    async def aresume(self, overrides: Mapping[str, Any] | None = None, **settings: Any) -> Result:
        """Continue after a pause, optionally with changed values and settings such as `budget` or `model`."""
        return await self._session.continued(
            self.run, lambda service: service.resume(self.run, overrides=overrides, settings=settings)
        )

    async def adecide(
        self,
        decision: Decision,
        wait: str | None = None,
        *,
        reason: str = "",
        outcome: Mapping[str, Any] | None = None,
        to: str = "",
    ) -> Result:
        """Approve or deny the pending action, ask for changes, or decide on an action in doubt; then continue."""
        kinds = ("approval",) if decision in ("approve", "deny", "changes") else ("in_doubt",)
        one = self._wait(kinds, wait)
        return await self._session.continued(
            self.run, lambda service: service.decide(one, decision, reason=reason, outcome=outcome, to=to)
        )

    async def anext_step(self, claim: str = "") -> HostStep:
        """Take the next step of a run with the model `host`, to do it yourself; with a claim, see it again and keep it."""
        async with self._session.opened() as (service, _):
            return await service.host_steps.take(await service.get(self.run), Principal(), claim)

    async def acomplete_step(self, claim: str, result: Any) -> Result:
        """Complete the step with its result and continue. Raises `BadInput` with the reason if the result is refused."""

        async def complete(service: Service) -> None:
            done = await service.host_steps.complete(await service.get(self.run), claim, result, Principal())
            if done.refused and done.left:
                raise BadInput(
                    f"The result was refused: {done.refused}.", fix="Correct it and complete the step again."
                )

        return await self._session.continued(self.run, complete)

    async def acall_step_tool(self, claim: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call one of the step's tools and continue; the next step has its result in `results`. Raises `BadInput` if the
        step may not use the tool.
        """

        async def call(service: Service) -> None:
            await service.host_steps.call(await service.get(self.run), claim, tool, arguments or {}, Principal())

        return await self._session.continued(self.run, call)

    async def aretry(self, *, whole_step: bool = False) -> Result:
        """Retry a failed run where it failed."""
        return await self._session.continued(self.run, lambda service: service.retry(self.run, whole_step=whole_step))

    async def afork(
        self, step: str, values: Mapping[str, Any] | None = None, *, visit: int | None = None, **settings: Any
    ) -> Result:
        """Start a new run that keeps the results before a step and continues with other values or settings."""

        async def begin(service: Service, wiring: Wiring) -> str:
            return (await service.fork(self.run, step, visit=visit, values=values, settings=settings)).id

        return await self._session.driven(begin)

    async def arestart(self, step: str, *, visit: int | None = None) -> Result:
        """Start a new run that keeps the results before a step and repeats the rest."""
        return await self.afork(step, visit=visit)

    async def acancel(self, reason: str = "") -> Result:
        return await self._session.continued(self.run, lambda service: service.cancel(self.run, reason))

    async def aaudit(self) -> Audited:
        """The evidence of the run: actions, approvals and results, with a check of its journal."""
        async with self._session.opened() as (service, _):
            return await service.audit(self.run)

    def audit(self) -> Audited:
        """The evidence of the run: actions, approvals and results, with a check of its journal."""
        return finished(self.aaudit(), "aaudit")

    def next_step(self, claim: str = "") -> HostStep:
        """Take the next step of a run with the model `host`, to do it yourself; with a claim, see it again and keep it."""
        return finished(self.anext_step(claim), "anext_step")

    def complete_step(self, claim: str, result: Any) -> Result:
        """Complete the step with its result and continue. Raises `BadInput` with the reason if the result is refused."""
        return finished(self.acomplete_step(claim, result), "acomplete_step")

    def call_step_tool(self, claim: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call one of the step's tools and continue; the next step has its result in `results`. Raises `BadInput` if the
        step may not use the tool.
        """
        return finished(self.acall_step_tool(claim, tool, arguments), "acall_step_tool")

    def answer(self, value: Any, wait: str | None = None) -> Result:
        """Answer the open question and continue; a form takes a value. Raises `BadInput` for an invalid one."""
        return finished(self.aanswer(value, wait), "aanswer")

    def resume(self, overrides: Mapping[str, Any] | None = None, **settings: Any) -> Result:
        """Continue after a pause, optionally with changed values and settings such as `budget` or `model`."""
        return finished(self.aresume(overrides, **settings), "aresume")

    def decide(
        self,
        decision: Decision,
        wait: str | None = None,
        *,
        reason: str = "",
        outcome: Mapping[str, Any] | None = None,
        to: str = "",
    ) -> Result:
        """Approve or deny the pending action, ask for changes, or decide on an action in doubt; then continue."""
        return finished(self.adecide(decision, wait, reason=reason, outcome=outcome, to=to), "adecide")

    def retry(self, *, whole_step: bool = False) -> Result:
        """Retry a failed run where it failed."""
        return finished(self.aretry(whole_step=whole_step), "aretry")

    def fork(
        self, step: str, values: Mapping[str, Any] | None = None, *, visit: int | None = None, **settings: Any
    ) -> Result:
        """Start a new run that keeps the results before a step and continues with other values or settings."""
        return finished(self.afork(step, values, visit=visit, **settings), "afork")

    def restart(self, step: str, *, visit: int | None = None) -> Result:
        """Start a new run that keeps the results before a step and repeats the rest."""
        return finished(self.arestart(step, visit=visit), "arestart")

    def cancel(self, reason: str = "") -> Result:
        return finished(self.acancel(reason), "acancel")

    def _wait(self, kinds: tuple[str, ...], named: str | None) -> str:
        if named is not None:
            return named
        fitting = [wait.id for wait in self.waits if wait.kind in kinds]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise BadInput(
                f"Run {self.run} has {len(fitting)} matching waits.", fix=f"Name one of them: {', '.join(fitting)}."
            )
        waits = ", ".join(wait.kind for wait in self.waits) or "nothing"
        raise BadInput(f"Run {self.run} is {self.status} and is waiting for {waits}.", fix="See `result.waits`.")


# --- inside -------------------------------------------------------------------------------------------------


class Session:
    """The parts a run was started with, which it needs to continue. Opens and closes the service for each call."""

    def __init__(
        self,
        model: str | Model | None = None,
        tools: Tools = (),
        store: Where = None,
        on_event: Observer | None = None,
        flags: Mapping[str, Any] | None = None,
        decide: Decide | None = None,
        answer: Say | None = None,
        watches: Iterable[Watch[Any]] = (),
    ) -> None:
        self._decide = decide
        self._answer = answer
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
        self._on_event = None if on_event is None else harmless("on_event", on_event)
        self._watches = tuple(watches)

    @asynccontextmanager
    async def opened(self, programs: Programs | None = None) -> AsyncIterator[tuple[Service, Wiring]]:
        config = load_config({name: value for name, value in self._flags.items() if value is not None})
        wiring = Wiring(config, models=self._models, tools=self._tools, store=self._store)
        await wiring.connect()
        service = wiring.service(programs=programs)
        if self._on_event is not None and service.dispatcher is None:
            service.observe(self._on_event)
        try:
            yield service, wiring
        finally:
            await service.close()

    async def driven(self, begin: Callable[[Service, Wiring], Awaitable[str]]) -> Result:
        async with self.opened() as (service, wiring):
            run = await begin(service, wiring)
            for watch in self._watches:
                await watch.follow(service, run)
            drive = service.drive if service.dispatcher is None else self._follower(service, run)
            row = await drive(run)
            while row.status in WAITING and await self._acted(service, run):
                row = await drive(run)
            return await self.result(service, run)

    def _follower(self, service: Service, run: str) -> Callable[[str], Awaitable[RunRow]]:
        """Follows the worker that drives the run, and passes on its events."""
        follower = Follower(service.stream, run, self._on_event or (lambda event: None), 0)

        async def drive(run: str) -> RunRow:
            return await follower.follow(service.drive(run))

        return drive

    async def _acted(self, service: Service, run: str) -> bool:
        """Pass open waits to the caller's `decide` and `answer` functions. Returns whether anything was decided or answered."""
        acted = False
        for row in await service.waits(run):
            if row.kind == "approval" and self._decide is not None:
                acted |= await self._decided(service, row, self._decide(_wait(service.in_full(row))))
            elif row.kind == "question" and self._answer is not None:
                said = self._answer(_wait(row))
                value = await said if inspect.isawaitable(said) else said
                if value is not None:
                    await service.answer(row.id, value if row.type == "form" else checked_answer(value, "given"))
                    acted = True
        return acted

    async def _decided(self, service: Service, row: WaitRow, said: str | tuple[str, str] | None) -> bool:
        if said is None:
            return False
        decision, reason = (said, "") if isinstance(said, str) else said
        await service.decide(row.id, cast(Decision, decision), reason=reason)
        return True

    async def continued(self, run: str, act: Callable[[Service], Awaitable[Any]]) -> Result:
        async def begin(service: Service, wiring: Wiring) -> str:
            await act(service)
            return run

        return await self.driven(begin)

    async def result(self, service: Service, run: str) -> Result:
        view = await service.view(run)
        entries = without_void([entry async for entry in service.entries(run)])
        warnings = tuple(entry.event.message for entry in entries if isinstance(entry.event, Warned))
        waits = tuple(_wait(service.in_full(wait)) for wait in view.waits)
        return _result(view, waits, warnings, await left_by(service, view.run, entries), self)


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
        raise BadInput(f"{given!r} is not a tool.", fix="Pass functions, or tools made with cuebook.tool().")
    return tool(given)


def _result(view: RunView, waits: tuple[Wait, ...], warnings: tuple[str, ...], left: Left, session: Session) -> Result:
    row, totals, counts = view.run, view.run.totals, run_objects.steps_object(view.run)
    outputs = {label: str(text) for label, text in view.outputs.items()}
    artifact = None if view.artifact is None else Artifact(str(view.artifact.content), view.artifact.type)
    output = run_objects.last_output(view)
    last = None if output is None else str(output)
    return Result(
        run=row.id,
        status=row.status,
        reason=row.reason,
        model=row.model,
        output=last if artifact is None else artifact.content,
        artifact=artifact,
        values=view.values,
        trace=left.trace,
        events=left.events,
        program=left.program,
        outputs=outputs,
        steps=tuple(
            Step(step.label, step.title, step.status, step.reason, outputs.get(step.label)) for step in view.steps
        ),
        waits=waits,
        warnings=warnings,
        error=None if row.error is None else str(row.error),
        steps_done=counts["steps_done"],
        steps_total=counts["steps_total"],
        cost=None if totals.unknown_costs else totals.cost,
        tokens=totals.tokens,
        result=view.result,
        _session=session,
    )


def _wait(row: WaitRow) -> Wait:
    return Wait(row.id, row.kind, row.place.step, row.prompt, row.type, row.options, row.default, row.details)


def check_callable(**given: Any) -> None:
    """Raise `BadInput` for an argument that must be callable and is not."""
    for name, one in given.items():
        if one is not None and not callable(one):
            raise BadInput(
                f"{name} must be a function, got {one!r:.60}.",
                fix="Pass a function, such as answer=lambda wait: 'yes', or fixed answers as answers={STEP: TEXT}.",
            )


def checked_answer(value: Any, which: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"The answer {which} must be a string, got {value!r}.", fix="Pass a string, such as 'yes'.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"The answer {which} contains an unpaired surrogate.", fix="Remove it.") from None
    return value


def finished(work: Coroutine[Any, Any, T], twin: str) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise BadInput("This was called inside a running event loop.", fix=f"Await its async twin, {twin}.")
