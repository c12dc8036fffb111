"""The runtime contract: start, resume, cancel and look at runs by requests, each answered by an envelope.

It holds for playbooks of every dialect, and knows no surface: the command line, Python, REST and MCP carry its requests and
envelopes as they are. A run goes on in this process when its caller waits no longer.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cuebook.decisions import Decision, decided
from cuebook.dialects import registry
from cuebook.dialects.registry import GivingData
from cuebook.envelope import Envelope, Telling, refused, strict_form
from cuebook.gate.people import Principal
from cuebook.kernel.errors import (
    AlreadyAnswered,
    BadInput,
    Conflict,
    CuebookError,
    Elsewhere,
    NotFound,
    Refused,
    WaitClosed,
    WaitExpired,
)
from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.questions import fitting
from cuebook.kernel.run import Budget, RunRow, Settings, WaitRow
from cuebook.requests import Cancel, Resume, Run, Status, read
from cuebook.service import Service
from cuebook.stored import Stored

log = logging.getLogger("cuebook")

INLINE = "inline"
"""What a playbook is called that came as a text."""
_LONGEST_PATH = 4096
_STATUS = "Nothing was changed. The action `status` tells how its run goes on."
_TOKENS = "The action `status` gives the token of what a run waits for; `cuebook inbox` lists everything that waits."
_GLANCE = 0.1
"""Seconds between two looks at a run that is followed."""

_DECISIONS: dict[str, tuple[Decision, Decision]] = {"approval": ("deny", "approve"), "in_doubt": ("stop", "repeat")}
"""What no and yes mean, by what is decided."""

Accepted = Callable[[str], Awaitable[None]]
NewSettings = Callable[[Any, Path | None], Settings]
"""What a run of this document, from this folder, is started with."""


class _Playbook(NamedTuple):
    text: str
    name: str
    folder: Path | None


class Runtime:
    """Answers requests over one service. Close it before the service."""

    def __init__(
        self,
        service: Service,
        settings: NewSettings,
        stored: Stored,
        *,
        where: str = "",
        accepted: Accepted | None = None,
    ) -> None:
        """`where` says where a run goes on whose caller waits no longer, as in ` in this process`.

        `accepted` is told of each run that somebody's request has begun, or made to go on, before anything is done.
        """
        self._accepted = accepted
        self._service = service
        self._settings = settings
        self.stored = stored
        self._where = where
        self._driving: dict[str, asyncio.Task[RunRow]] = {}

    async def handle(
        self, request: Mapping[str, Any] | str | bytes, who: Principal = Principal(), *, strict: bool = False
    ) -> Envelope:
        """Does what is asked, on somebody's behalf. `InvalidRequest` for what is no request; all else is an envelope."""
        asked = read(request)
        until = None if asked.wait_ms is None else time.monotonic() + asked.wait_ms / 1000
        run, besides, drives, done = "", {}, True, True
        try:
            match asked:
                case Run():
                    run = await self._start(asked, who)
                case Resume():
                    wait = await self._wait(asked.token, who)
                    run = wait.run
                    await self._resume(wait, asked, who)
                case Cancel():
                    run = await self._named(asked.run_id, who)
                    done = await self._cancel(run, asked, who)
                    besides = {"cancelled": done}
                case Status():
                    run = await self._named(asked.run_id, who)
                    drives, done = who.may("runner"), False
            if done and self._accepted is not None:
                await self._accepted(run)
            envelope = {**await self._told(run, until, who, drives=drives), **besides}
        except Elsewhere as error:
            envelope = _undone(error, run)
            if isinstance(asked, Status):  # to be told how a run is, nobody has to go on with it
                envelope = {**await self._told(run, until, who, drives=False), "error": envelope["error"]}
        except Exception as error:
            envelope = _undone(error, run)
        return strict_form(envelope) if strict else envelope

    async def go_on(self, run: str, who: Principal = Principal()) -> Envelope:
        """Goes on with a run that was started otherwise, until it waits for someone or has ended."""
        try:
            return await self._told(run, None, who)
        except Exception as error:
            return _undone(error, run)

    async def under_way(self) -> list[str]:
        """The runs that go on here, and not only elsewhere."""
        return [run for run in list(self._driving) if not await self._elsewhere(run)]

    async def finished(self) -> None:
        """Waits until every run that goes on here waits for someone or has ended."""
        while self._driving:
            await asyncio.wait(list(self._driving.values()))

    async def close(self) -> None:
        """Lets go of what still goes on here: it can be taken up again where it stopped."""
        tasks = list(self._driving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is asked ---

    async def _start(self, asked: Run, who: Principal) -> str:
        args = asked.args if asked.args_json is None else _args(asked.args_json)
        playbook = self._playbook(asked.pipeline)
        dialect = registry.detect(playbook.text, playbook.name)
        settings = self._settings(dialect.parse(playbook.text, playbook.name), playbook.folder)
        options = {"cwd": asked.cwd, "max_output": asked.max_output_bytes}
        chosen = {name: value for name, value in options.items() if value is not None}
        settings = msgspec.structs.replace(
            settings, options={**settings.options, **chosen}, budget=_shortened(settings.budget, _seconds(asked), 0.0)
        )
        row = await self._service.start(playbook.text, playbook.name, args or {}, settings, who, key=asked.key or "")
        return row.id

    def _playbook(self, given: str) -> _Playbook:
        """What `pipeline` means: the id or the title of a stored playbook, the path of one, or a text."""
        stored = self.stored.named(given)
        if stored is None and ("\n" in given or given.lstrip().startswith("{")):
            return _Playbook(given, INLINE, None)
        if stored is None and len(given) < _LONGEST_PATH and "\0" not in given:
            stored = self.stored.at(Path(given))
            left_out = None if stored is not None else self.stored.left_out(Path(given))
            if left_out is not None:
                fix = (
                    left_out.fix
                    or f"`cuebook validate {shlex.quote(str(left_out.path))}` tells all that is wrong in it."
                )
                raise BadInput(f"The stored playbook '{given}' cannot be run: {left_out.problem}", fix=fix)
        if stored is None:
            known = ", ".join(one.id for one in self.stored.all()) or "none"
            raise BadInput(
                f"There is no stored playbook '{given[:200]}'.", fix=f"Give the text of one; stored are: {known}."
            )
        return _Playbook(stored.text, stored.name, stored.path.parent)

    async def _named(self, run: str, who: Principal) -> str:
        """A run by its whole id: the beginning of one is for people, who see which run they get."""
        row = await self._service.get(run, who)
        if row.id != run:
            raise NotFound(f"There is no run {run}.", fix=f"Give the whole id, as in {row.id}.")
        return run

    async def _wait(self, token: str, who: Principal) -> WaitRow:
        try:
            return await self._service.waiting(token, who)
        except NotFound as error:
            raise NotFound(error.message, fix=_TOKENS) from None

    async def _resume(self, wait: WaitRow, asked: Resume, who: Principal) -> None:
        await self._service.store.expire(self._service.engine.clock(), wait.run)
        try:
            await self._decide(wait, asked, who)
        except (AlreadyAnswered, WaitClosed, WaitExpired) as late:
            await self._decided_before(wait, asked, late)

    async def _decide(self, wait: WaitRow, asked: Resume, who: Principal) -> None:
        service, yes = self._service, asked.approve
        settings = await self._time(wait, asked, who)
        match wait.kind:
            case "approval" | "in_doubt":
                word = _DECISIONS[wait.kind][yes]
                await service.decide(wait.id, word, who, reason=asked.reason, settings=settings)
            case "question" if yes or wait.type == "confirm":
                await service.answer(wait.id, _answer(wait, asked), who)
            case "breakpoint" | "budget" | "secret" if yes:
                await service.resume(wait.run, who, settings=settings, wait=wait)
            case _ if yes:
                raise BadInput(f"Nobody can approve this: {wait.prompt}", fix="Deny it to cancel the run.")
            case _:
                await self._check_open(wait)
                await service.cancel(wait.run, asked.reason, who)

    async def _decided_before(self, wait: WaitRow, asked: Resume, late: Refused) -> None:
        """Saying again what was said is fine. Otherwise it is told that it was too late, once the run knows that too."""
        if isinstance(late, AlreadyAnswered):
            row = await self._service.store.wait(wait.id)
            if _said(row, asked):
                return
            word = decided(row) or "answered"
            raise Conflict(f"The wait {wait.id} was decided already by {row.by}: {word}.", fix=_STATUS)
        await self._rest(wait.run, None)
        status = (await self._service.store.run(wait.run)).status
        if asked.approve and status not in WAITING:
            raise late

    async def _check_open(self, wait: WaitRow) -> None:
        row = await self._service.store.wait(wait.id)
        if row.state != "open":
            raise AlreadyAnswered(f"The wait {wait.id} was decided already.", fix=_STATUS)

    async def _time(self, wait: WaitRow, asked: Resume, who: Principal) -> dict[str, Any]:
        """The budget from here on. More than the run has is only given where it asks for more."""
        spent = wait.kind == "budget" and asked.approve
        if asked.timeout_ms is None and not spent:
            return {}
        row = await self._service.get(wait.run, who)
        begun, now = await self._service.settings(wait.run, who)
        budget = now.budget
        if not spent:
            shorter = _shortened(budget, _seconds(asked), row.totals.seconds)
            return {} if shorter == budget else {"budget": msgspec.to_builtins(shorter)}
        code = str(wait.details.get("code", ""))
        more = _seconds(asked) if code == "seconds" else None
        raised = _raised(code, begun.budget, budget, more, row.totals.seconds)
        return {} if raised == budget else {"budget": msgspec.to_builtins(raised)}

    async def _cancel(self, run: str, asked: Cancel, who: Principal) -> bool:
        """Whether there was something to cancel."""
        try:
            await self._service.cancel(run, asked.reason, who)
        except Refused:
            if (await self._service.store.run(run)).status not in ENDED:
                raise
            return False
        return True

    # --- going on ---

    async def _told(self, run: str, until: float | None, who: Principal, *, drives: bool = True) -> Envelope:
        rests = await (self._rest(run, until) if drives else self._followed(run, until))
        view = await self._service.view(run, who)
        playbook = await self._service.store.playbook(view.run.playbook)
        telling = Telling(self._service.tokens.resume, _data_of(view.run, playbook))
        if rests:
            return telling.of(view)
        if not drives and not await self._at_work(run):
            return telling.still(view)
        return telling.late(view, " in another process" if await self._elsewhere(run) else self._where)

    async def _rest(self, run: str, until: float | None) -> bool:
        """Goes on with a run until it waits for someone or has ended; False if that takes longer."""
        while await self._moves(run):
            task = self._driving.get(run)
            if task is None:
                task = self._driving[run] = asyncio.create_task(self._service.drive(run))
                task.add_done_callback(lambda done: self._let_go(run, done))
            left = None if until is None else max(0.0, until - time.monotonic())
            done, _ = await asyncio.wait([task], timeout=left)
            if not done:
                return False
            task.result()
        return True

    async def _followed(self, run: str, until: float | None) -> bool:
        """The same on behalf of someone who may only look: whoever drives it goes on with it, and nobody takes it up."""
        while await self._moves(run):
            left = _GLANCE if until is None else min(_GLANCE, until - time.monotonic())
            if left <= 0 or not await self._at_work(run):
                return False
            await asyncio.sleep(left)
        return True

    async def _at_work(self, run: str) -> bool:
        """Whether somebody drives it, here or elsewhere."""
        return run in self._driving or await self._service.store.alive(run)

    async def _moves(self, run: str) -> bool:
        """Whether a run goes on without anybody's doing."""
        service, now = self._service, self._service.engine.clock()
        row = await service.store.run(run)
        if row.status in ENDED:
            return await service.is_due(run)
        if row.status not in WAITING or row.reason == "timer":
            return True
        await service.store.expire(now, run)
        if row.reason == "non_determinism":
            return False
        return not await service.store.waits(run=run) or await service.is_due(run)

    async def _elsewhere(self, run: str) -> bool:
        """Whether another process drives it."""
        engine, store = self._service.engine, self._service.store
        return (await store.run(run)).driver != engine.driver and await store.alive(run)

    def _let_go(self, run: str, task: asyncio.Task[RunRow]) -> None:
        self._driving.pop(run, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Elsewhere):  # whoever asked for it is told
            log.warning("run %s: %s", run, error)


def _undone(error: Exception, run: str) -> Envelope:
    """Of a request that came to nothing; what nobody expected is told in the log only."""
    if isinstance(error, CuebookError):
        return refused(error, run)
    log.error("A request failed.", exc_info=error)
    defect = CuebookError("Something unexpected went wrong; the log says what.")
    return {**refused(defect, run), "error": {"message": str(defect), "code": "internal"}}


def _args(text: str) -> dict[str, Any]:
    try:
        args: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"argsJson is no JSON object: {error}.", fix='Write it as in {"name": "value"}.') from None
    return args


def _seconds(asked: Run | Resume) -> float | None:
    return None if asked.timeout_ms is None else asked.timeout_ms / 1000


def _shortened(budget: Budget, seconds: float | None, used: float) -> Budget:
    """The budget with no more than so many seconds from now on."""
    if seconds is None or (budget.seconds is not None and budget.seconds <= used + seconds):
        return budget
    return msgspec.structs.replace(budget, seconds=used + seconds)


def _raised(code: str, begun: Budget, budget: Budget, seconds: float | None, used: float) -> Budget:
    """The budget with so much more of what is spent: as much again as the run began with, or the time given."""
    if code == "seconds" and seconds is not None:
        return msgspec.structs.replace(budget, seconds=max(used, budget.seconds or 0.0) + seconds)
    spent = getattr(budget, code, None)
    if spent is None:
        return budget
    return msgspec.structs.replace(budget, **{code: spent + (getattr(begun, code) or spent)})


def _answer(wait: WaitRow, asked: Resume) -> str:
    if wait.type == "confirm":
        return "yes" if asked.approve else "no"
    said = asked.answer if asked.answer is not None else wait.default
    if said is None:
        raise BadInput(f"This wants an answer: {wait.prompt}", fix="Give it as `answer`.")
    return said


def _said(row: WaitRow, asked: Resume) -> bool:
    """Whether this is what was decided before."""
    match row.kind:
        case "approval" | "in_doubt":
            return decided(row) == _DECISIONS[row.kind][asked.approve]
        case "question":
            return bool(row.answer.get("value") == fitting(row.type, row.options, _answer(row, asked)))
        case _:
            return asked.approve


def _data_of(row: RunRow, playbook: str) -> Callable[[str], bool]:
    """Of which steps the output is data. What cannot be read any more gives text."""
    try:
        dialect = registry.named(row.dialect)
        if not isinstance(dialect, GivingData):
            return lambda label: False
        document = dialect.parse(playbook, row.name)
    except CuebookError:
        return lambda label: False
    return lambda label: dialect.gives_data(document, label)
