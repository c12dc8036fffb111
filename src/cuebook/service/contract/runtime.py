"""The runtime contract: requests start, resume, cancel and show runs, and an envelope answers each request.

It works for every dialect and depends on no surface: the command line, Python and REST pass requests and envelopes
through unchanged. A run continues in this process after its caller stops waiting.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.playbook import read as read_playbook
from cuebook.formats.forms import filled_in
from cuebook.gate.roles import Principal
from cuebook.kernel.answers import fitting
from cuebook.kernel.engine.waits import ALLOWANCE
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
from cuebook.kernel.run import Budget, RunRow, Settings, WaitRow
from cuebook.service.contract.envelope import Envelope, EnvelopeWriter, refused, strict_form
from cuebook.service.contract.requests import Cancel, Resume, Run, Status, read
from cuebook.service.playbooks.library import Stored
from cuebook.service.service import Service
from cuebook.service.waits.decisions import Decision, decided
from cuebook.service.worker import Worker

log = logging.getLogger("cuebook")

INLINE = "inline"
"""The name of a playbook that was passed as text."""
_LONGEST_PATH = 4096
_STATUS = "Nothing was changed. The action `status` shows its run."
_TOKENS = "The action `status` returns the token of an open wait; `cuebook inbox` lists all open waits."

_DECISIONS: dict[str, tuple[Decision, Decision]] = {"approval": ("deny", "approve"), "in_doubt": ("stop", "repeat")}
"""The decisions for no and yes, by kind of wait."""

NewSettings = Callable[[Any, Path | None], Settings]
"""Returns the settings for a new run of this document from this folder."""


class Runtime:
    """Answers requests over one service. Close it before the service."""

    def __init__(
        self,
        service: Service,
        worker: Worker,
        settings: NewSettings,
        stored: Stored,
        *,
        where: str = "",
    ) -> None:
        """`where` describes where a run continues when its caller stops waiting, for example ` in this process`.

        The worker drives the runs. If it is open, it also keeps driving every run that a request starts or changes.
        """
        self._service = service
        self._worker = worker
        self._settings = settings
        self.stored = stored
        self._where = where

    async def handle(
        self, request: Mapping[str, Any] | str | bytes, who: Principal = Principal(), *, strict: bool = False
    ) -> Envelope:
        """Answers a user's request with an envelope. Raises `InvalidRequest` if the request is malformed."""
        asked = read(request)
        until = None if asked.wait_ms is None else time.monotonic() + asked.wait_ms / 1000
        run, extra, drives, changed = "", {}, True, True
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
                    changed = await self._cancel(run, asked, who)
                    extra = {"cancelled": changed}
                case Status():
                    run = await self._named(asked.run_id, who)
                    drives, changed = who.may("runner"), False
            if changed:
                await self._worker.take(run)
            envelope = {**await self._envelope(run, until, who, drives=drives), **extra}
        except Elsewhere as error:
            envelope = _undone(error, run)
            if isinstance(asked, Status):  # a status request does not need the run to continue
                envelope = {**await self._envelope(run, until, who, drives=False), "error": envelope["error"]}
        except Exception as error:
            envelope = _undone(error, run)
        return strict_form(envelope) if strict else envelope

    async def drive(self, run: str, who: Principal = Principal()) -> Envelope:
        """Drives a run that was started without a request, until it waits for someone or ends."""
        try:
            return await self._envelope(run, None, who)
        except Exception as error:
            return _undone(error, run)

    async def under_way(self) -> list[str]:
        """The runs that continue in this process, not only in another process."""
        return await self._worker.requested()

    async def finished(self) -> None:
        """Waits until every run that continues here is waiting for someone or has ended."""
        await self._worker.finish_requested()

    async def close(self) -> None:
        """Stops driving the runs that continue here. Each can be continued where it stopped."""
        await self._worker.close()

    # --- the requests ---

    async def _start(self, asked: Run, who: Principal) -> str:
        args = asked.args if asked.args_json is None else _args(asked.args_json)
        playbook = self._playbook(asked.pipeline)
        settings = self._settings(playbook.document, None if playbook.path is None else playbook.path.parent)
        options = {"cwd": asked.cwd, "max_output": asked.max_output_bytes}
        chosen = {name: value for name, value in options.items() if value is not None}
        settings = msgspec.structs.replace(
            settings, options={**settings.options, **chosen}, budget=_shortened(settings.budget, _seconds(asked), 0.0)
        )
        row = await self._service.start(playbook, args or {}, settings, who, key=asked.key or "")
        return row.id

    def _playbook(self, given: str) -> Playbook:
        """The playbook that `pipeline` specifies: by a stored playbook's id or title, by path, or as text."""
        stored = self.stored.named(given)
        if stored is None and ("\n" in given or given.lstrip().startswith("{")):
            return read_playbook(given, INLINE)
        if stored is None and len(given) < _LONGEST_PATH and "\0" not in given:
            stored = self.stored.at(Path(given))
            left_out = None if stored is not None else self.stored.left_out(Path(given))
            if left_out is not None:
                fix = left_out.fix or f"`cuebook validate {shlex.quote(str(left_out.path))}` lists all its problems."
                raise BadInput(f"The stored playbook '{given}' cannot be run: {left_out.problem}", fix=fix)
        if stored is None:
            known = ", ".join(one.id for one in self.stored.all()) or "none"
            raise BadInput(
                f"There is no stored playbook '{given[:200]}'.",
                fix=f"Pass the text of a playbook, or one of these ids: {known}.",
            )
        return stored.playbook

    async def _named(self, run: str, who: Principal) -> str:
        """Checks that this is a full run id. Only people may shorten it, because they see which run they get."""
        row = await self._service.get(run, who)
        if row.id != run:
            raise NotFound(f"There is no run {run}.", fix=f"Pass the full id: {row.id}.")
        return run

    async def _wait(self, token: str, who: Principal) -> WaitRow:
        try:
            return await self._service.waiting(token, who)
        except NotFound as error:
            raise NotFound(error.message, fix=_TOKENS) from None

    async def _resume(self, wait: WaitRow, asked: Resume, who: Principal) -> None:
        await self._service.expire(wait.run)
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
            case "budget" if yes and wait.details.get("code") == ALLOWANCE:
                await service.budgets.allow(wait.run, who, reason=asked.reason)
            case "breakpoint" | "budget" | "secret" if yes:
                await service.resume(wait.run, who, settings=settings, wait=wait)
            case _ if yes:
                raise BadInput(f"This cannot be approved: {wait.prompt}", fix="Deny it to cancel the run.")
            case _:
                await self._check_open(wait)
                await service.cancel(wait.run, asked.reason, who)

    async def _decided_before(self, wait: WaitRow, asked: Resume, late: Refused) -> None:
        """Accepts a repeated decision. Raises an error for a different decision, after the run has processed the
        first."""
        if isinstance(late, AlreadyAnswered):
            row = await self._service.wait_row(wait.id)
            if _said(row, asked):
                return
            word = decided(row) or "answered"
            raise Conflict(f"The wait {wait.id} was already decided by {row.by}: {word}.", fix=_STATUS)
        await self._worker.drive_until(wait.run, None)
        status = (await self._service.row(wait.run)).status
        if asked.approve and status not in WAITING:
            raise late

    async def _check_open(self, wait: WaitRow) -> None:
        row = await self._service.wait_row(wait.id)
        if row.state != "open":
            raise AlreadyAnswered(f"The wait {wait.id} was already decided.", fix=_STATUS)

    async def _time(self, wait: WaitRow, asked: Resume, who: Principal) -> dict[str, Any]:
        """The new budget. It grows only if the run is waiting because its budget is spent."""
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
        """Cancels a run. Returns False if it had already ended."""
        try:
            await self._service.cancel(run, asked.reason, who)
        except Refused:
            if (await self._service.row(run)).status not in ENDED:
                raise
            return False
        return True

    # --- envelopes ---

    async def _envelope(self, run: str, until: float | None, who: Principal, *, drives: bool = True) -> Envelope:
        worker = self._worker
        rests = await (worker.drive_until(run, until) if drives else worker.watch_until(run, until))
        view = await self._service.view(run, who)
        writer = EnvelopeWriter(self._service.tokens.resume, await self._gives_data(view.run))
        if rests:
            return writer.of(view)
        if not drives and not await worker.is_driven(run):
            return writer.still(view)
        return writer.late(view, " in another process" if await self._service.is_driven_elsewhere(run) else self._where)

    async def _gives_data(self, row: RunRow) -> Callable[[str], bool]:
        """Returns a function that says which steps output data. All other steps, and all steps of an unreadable
        playbook, output text."""
        try:
            playbook = await self._service.playbook_of(row)
        except CuebookError:
            playbook = None
        if playbook is None:
            return lambda label: False
        dialect, document = playbook.dialect, playbook.document
        return lambda label: dialect.gives_data(document, label)


def _undone(error: Exception, run: str) -> Envelope:
    """The envelope of a request that failed. The details of an unexpected error appear only in the log."""
    if isinstance(error, CuebookError):
        return refused(error, run)
    log.error("A request failed.", exc_info=error)
    defect = CuebookError("An unexpected error occurred; the log has the details.")
    return {**refused(defect, run), "error": {"message": str(defect), "code": "internal"}}


def _args(text: str) -> dict[str, Any]:
    try:
        args: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"argsJson is not a JSON object: {error}.", fix='Write it like {"name": "value"}.') from None
    return args


def _seconds(asked: Run | Resume) -> float | None:
    return None if asked.timeout_ms is None else asked.timeout_ms / 1000


def _shortened(budget: Budget, seconds: float | None, used: float) -> Budget:
    """The budget with at most this many seconds from now on."""
    if seconds is None or (budget.seconds is not None and budget.seconds <= used + seconds):
        return budget
    return msgspec.structs.replace(budget, seconds=used + seconds)


def _raised(code: str, begun: Budget, budget: Budget, seconds: float | None, used: float) -> Budget:
    """The budget with the spent part raised by its initial amount or by the given time."""
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
        raise BadInput(f"This question needs an answer: {wait.prompt}", fix="Pass it as `answer`.")
    return said


def _fitting(row: WaitRow, asked: Resume) -> str:
    return fitting(row.type, row.options, _answer(row, asked), row.details.get("schema"), filled_in)


def _said(row: WaitRow, asked: Resume) -> bool:
    """Whether a request repeats the earlier decision."""
    match row.kind:
        case "approval" | "in_doubt":
            return decided(row) == _DECISIONS[row.kind][asked.approve]
        case "question":
            return bool(row.answer.get("value") == _fitting(row, asked))
        case _:
            return asked.approve
