"""The driver takes one run from where its journal ends to where it waits or ends.

It owns the run's generators: it sends outcomes in, follows branches below `All`, delivers cancellation, and
drops everything when the run waits. How each kind of effect is handled is in `acts`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cuebook.kernel import acts
from cuebook.kernel.effects import All, Branch, Cancelled, Effect, EffectFailed, Failed, Program
from cuebook.kernel.errors import CuebookError, Fenced, NonDeterminism, StoreError
from cuebook.kernel.events import (
    ENDED,
    TOLD,
    AnyEvent,
    BranchFinished,
    CancelRequested,
    Driven,
    Performed,
    RunFinished,
    RunStatus,
    StepFinished,
    StepStarted,
    Suspended,
)
from cuebook.kernel.journal import ROOT, Key, Place, branch_path, plain
from cuebook.kernel.ports import Claim, Estimate, News
from cuebook.kernel.replay import Cursor, Recorded
from cuebook.kernel.retry import rewinds
from cuebook.kernel.run import STATUS_OF_WAIT, RunRow, Signal, WaitRow
from cuebook.kernel.scribe import Scribe

if TYPE_CHECKING:
    from cuebook.kernel.engine import Engine


class Line:
    """A branch of the program while it is in memory: the root, or one below `All`."""

    __slots__ = ("cancelled", "cursor", "interruptible", "live", "program", "task")

    def __init__(self, cursor: Cursor, cancelled: bool = False) -> None:
        self.cursor = cursor
        self.program: Program[Any] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.live = False
        """Whether it has passed everything that its journal holds."""
        self.interruptible = False
        """Whether it is inside a performer, where a cancellation may cut in."""
        self.cancelled = cancelled
        """Whether it has received its cancellation: what it yields from then on is rollback."""


class Driver:
    """Drives one claimed run, once."""

    def __init__(self, engine: Engine, claim: Claim) -> None:
        self.engine = engine
        self.clock = engine.clock
        self._claim = claim
        self.scribe = Scribe(engine.store, engine.codec, claim, engine.clock, engine)
        self.scribe.on_broken = self._broken
        self.run_id = claim.row.id
        self.row = claim.row
        self.waits: dict[str, WaitRow] = {wait.id: wait for wait in claim.waits}
        self.signals = list(claim.signals)
        self._taken: set[int] = set()
        self.parked: dict[str, tuple[WaitRow, asyncio.Future[WaitRow | None]]] = {}
        self.cancel: CancelRequested | None = None
        self._lines: set[Line] = set()
        self._cancel_thrown = False
        self._active = 0
        self._wake = asyncio.Event()
        self._root: asyncio.Task[Any] | None = None
        self._began = time.monotonic()
        self.under_way: dict[Key, Estimate] = {}
        """Model calls that have begun, by what they may use at most."""
        self._hard = False
        self._retried = False
        self.finishing = False
        """Whether everything is being dropped: what is interrupted now was not cancelled by anyone."""

    # --- the life of a drive ---

    async def drive(self) -> RunRow:
        entries = [self.engine.codec.entry(record) for record in self._claim.records]
        if self.row.status in ENDED:
            retry = next((signal for signal in self.signals if signal.kind == "retry"), None)
            if retry is None:
                await self.scribe.give_up()
                return self.row
            self.signals.remove(retry)
            for rewound in rewinds(entries, retry.payload.get("whole_step", False), retry.by):
                self.scribe.note(rewound, Place(rewound.path))
            await self.scribe.commit(Driven(self.engine.driver), Place(), taken=[retry.id])
            self._retried = True
            self._claim = await self.engine.store.claim(self.run_id, self.engine.driver, self.clock())
            entries = [self.engine.codec.entry(record) for record in self._claim.records]
            self.scribe = Scribe(self.engine.store, self.engine.codec, self._claim, self.clock, self.engine)
            self.scribe.on_broken = self._broken
            self.row = self._claim.row
        self.recorded = Recorded(entries, self._claim.inherited)
        self.settings = self.recorded.settings
        self.cancel = self.recorded.cancel
        self._hard = self.cancel is not None and self.cancel.hard
        try:
            return await self._drive()
        finally:
            await self._drop()

    async def _drive(self) -> RunRow:
        self._active = 1
        self._root = asyncio.get_running_loop().create_task(self._run_root())
        self._root.add_done_callback(lambda _: self._wake.set())
        if not self._retried:
            self.scribe.note(Driven(self.engine.driver), Place())  # written with the program's first record
        self._hear(News([], self.signals))
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.scribe.broken is not None:
                raise self.scribe.broken
            if self._hard:
                return await self._finish(Failed("cancelled", "Cancelled at once, on a second request."), None)
            if self._root.done():
                return await self._ended(self._root)
            if self._active == 0 and await self._suspended():
                return self.row

    async def _run_root(self) -> Any:
        line = Line(self.recorded.cursor(ROOT))
        line.task = asyncio.current_task()
        start = self.engine.programs(self.row, self._claim.text, self.recorded.inputs)
        return await self._follow(line, start(self.recorded.state(ROOT)))

    async def _ended(self, root: asyncio.Task[Any]) -> RunRow:
        try:
            result = plain(root.result())
        except EffectFailed as error:
            return await self._finish(error.failed, error.seq)
        except Cancelled:
            return await self._finish(Failed("cancelled", "Cancelled."), None)
        except NonDeterminism as error:
            seconds = time.monotonic() - self._began
            await self.scribe.release(Suspended("paused", error.code, seconds), Place(), unless_news=False)
            raise
        except (Fenced, StoreError):
            raise
        except CuebookError as error:
            return await self._finish(Failed(error.code, error.message, error.fix), None)
        except Exception as error:
            return await self._finish(_defect(error), None)
        if self._cancel_thrown:
            return await self._finish(Failed("cancelled", "Cancelled."), None)
        await self._release(RunFinished("completed", result, seconds=time.monotonic() - self._began))
        return self.row

    async def _finish(self, failed: Failed, seq: int | None) -> RunRow:
        status: RunStatus = {"cancelled": "cancelled", "expired": "expired"}.get(failed.code, "failed")  # type: ignore[assignment]
        if status == "cancelled" and self.cancel is not None and self.cancel.reason:
            failed = Failed(failed.code, f"{failed.message} {self.cancel.reason}")
        seconds = time.monotonic() - self._began
        await self._release(RunFinished(status, error=failed, step=self.row.step, failed_seq=seq, seconds=seconds))
        return self.row

    async def _release(self, event: RunFinished) -> None:
        await self.scribe.release(event, Place(), unless_news=False)
        self.row.driver = ""

    async def _suspended(self) -> bool:
        """Gives the run up if nothing came meanwhile; nothing of it stays in memory then."""
        kinds = {wait.kind for wait, _ in self.parked.values()}
        kind = next(kind for kind in STATUS_OF_WAIT if kind in kinds)
        status = STATUS_OF_WAIT[kind][0]
        reason = "" if kind in ("question", "approval", "breakpoint") else kind
        event = Suspended(status, reason, time.monotonic() - self._began)
        if await self.scribe.release(event, Place(), unless_news=True):
            self.row.driver = ""
            return True
        await self.hear()
        if self._active == 0:
            self._wake.set()
        return False

    async def _drop(self) -> None:
        self.finishing = True
        tasks = [line.task for line in self._lines if line.task is not None and not line.task.done()]
        if self._root is not None and not self._root.done():
            tasks.append(self._root)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        for line in self._lines:
            if line.program is not None:
                with suppress(RuntimeError, Cancelled):  # a program that yields in `finally` is dropped all the same
                    line.program.close()

    def _broken(self, error: BaseException) -> None:
        self._wake.set()

    # --- what reaches the run from outside ---

    async def hear(self) -> None:
        """Takes up the answers and signals that came for the run."""
        self._hear(await self.engine.store.news(self.run_id))

    def _hear(self, news: News) -> None:
        for wait in news.waits:
            self.waits[wait.id] = wait
            if wait.state != "open":
                self._unpark(wait.id, wait)
        self.signals = [signal for signal in news.signals if signal.id not in self._taken]
        for signal in [signal for signal in self.signals if signal.kind == "cancel"]:
            self.take(signal)
            self._request_cancel(signal.by, str(signal.payload.get("reason", "")), signal.id)
        for wait_id, (wait, _) in list(self.parked.items()):
            if wait.kind == "message" and acts.message_for(self, wait) is not None:
                self._unpark(wait_id, None)

    def _request_cancel(self, by: str, reason: str, signal: int) -> None:
        hard = self.cancel is not None
        self.cancel = CancelRequested(by, reason, hard)
        self.scribe.note(self.cancel, Place(), taken=[signal])
        if hard:
            self._hard = True
            self._wake.set()
            return
        for wait in list(self.parked):
            self._unpark(wait, None)
        for line in list(self._lines):
            if line.interruptible and not line.cancelled and line.task is not None:
                line.task.cancel()

    # --- branches ---

    async def _follow(self, line: Line, program: Program[Any]) -> Any:
        """Runs a program to its end: sends in what came of each thing it asks."""
        line.program = program
        self._lines.add(line)
        send: Any = None
        throw: BaseException | None = None
        while True:
            try:
                asked = program.send(send) if throw is None else program.throw(throw)
            except StopIteration as stop:
                self._lines.discard(line)
                return stop.value
            send = throw = None
            if isinstance(asked, Effect):
                seq, outcome = await self._effect(line, asked)
            elif isinstance(asked, TOLD):
                send = self._tell(line, asked)
                continue
            elif isinstance(asked, All):
                seq, outcome = await self._all(line, asked)
            else:
                raise CuebookError(f"A program yielded a {type(asked).__name__}, which is neither effect nor event.")
            if type(outcome) is Failed:
                throw = self._thrown(line, outcome, seq)
            else:
                send = outcome

    def _thrown(self, line: Line, failed: Failed, seq: int | None) -> BaseException:
        if failed.code != "cancelled":
            return EffectFailed(failed, seq)
        line.cancelled = self._cancel_thrown = True
        return Cancelled(failed.message)

    async def _effect(self, line: Line, effect: Effect) -> tuple[int | None, Any]:
        """The outcome of an effect, from the journal or from the world, and the number of its record."""
        key = line.cursor.next_effect()
        if not line.live:
            entry = self.recorded.outcome(key, effect)
            if entry is not None:
                return entry.seq, entry.event.outcome  # type: ignore[union-attr]
            if acts.lies_behind(effect) and self.recorded.past(line.cursor.path):
                return None, acts.PASSED
            self.recorded.require_end(key, effect)
            line.live = not self.recorded.past(line.cursor.path)
        if self.cancel is not None and not line.cancelled:
            return await self.record(key, effect, Failed("cancelled", "Cancelled."))
        return await acts.handler(effect)(self, line, key, effect)

    async def _all(self, line: Line, asked: All) -> tuple[int | None, Any]:
        key = line.cursor.next_effect()
        paths = [branch_path(line.cursor.path, key[1], key[2], key[3], n) for n in range(len(asked.branches))]
        loop = asyncio.get_running_loop()
        self._active += max(0, len(paths) - 1)  # this line stands still, each of its branches moves
        left = [len(paths)]
        tasks: list[asyncio.Task[Any]] = []
        try:
            for path, branch in zip(paths, asked.branches, strict=True):
                child = Line(self.recorded.cursor(path), line.cancelled)
                child.task = loop.create_task(self._branch(child, branch, left))
                tasks.append(child.task)
            if tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            outcomes = tuple([await task for task in tasks])
        finally:
            for task in tasks:
                task.cancel()
        recorded = self.recorded.outcomes.get(key)
        if recorded is not None:
            return recorded.seq, recorded.event.outcome  # type: ignore[union-attr]
        if self.cancel is not None and not line.cancelled:
            return await self.record(key, None, Failed("cancelled", "Cancelled."))
        return None, outcomes

    async def _branch(self, line: Line, branch: Effect | Branch, left: list[int]) -> Any:
        """One member of an `All`. Its result is recorded, so that a finished branch is not run again."""
        path = line.cursor.path
        try:
            if isinstance(branch, Effect):
                self._lines.add(line)
                return (await self._effect(line, branch))[1]
            known = self.recorded.branches.get(path)
            if known is not None:
                return known.value if known.failed is None else known.failed
            value, failed, seq = None, None, None
            try:
                value = plain(await self._follow(line, branch.start(self.recorded.state(path))))
            except EffectFailed as error:
                failed, seq = error.failed, error.seq
            except Cancelled:
                failed = Failed("cancelled", "Cancelled.")
            except (NonDeterminism, Fenced, StoreError):
                raise
            except CuebookError as error:
                failed = Failed(error.code, error.message, error.fix)
            except Exception as error:
                failed = _defect(error)
            self.scribe.note(BranchFinished(value, failed, seq), Place(path))
            return value if failed is None else failed
        finally:
            self._lines.discard(line)
            left[0] -= 1
            if left[0] > 0:  # the last one hands its turn to the line that stood still
                self._rest()

    def _rest(self) -> None:
        self._active -= 1
        if self._active == 0:
            self._wake.set()

    def _tell(self, line: Line, event: AnyEvent) -> Any:
        cursor = line.cursor
        reply: Any = None
        if type(event) is StepStarted:
            cursor.enter(event.label)
            top = cursor.frames[-1]
            reply = self.recorded.edits.get((cursor.path, top.label, top.visit), {})
        where, number = cursor.next_event()
        place = cursor.place()
        if line.live or not self.recorded.was_told(where, number):
            if type(event) is StepFinished:
                event = acts.with_usage(self, place, event)
            self.scribe.note(event, place)
        if type(event) is StepFinished:
            cursor.leave()
        return reply

    # --- for `acts` ---

    def take(self, signal: Signal) -> None:
        """Marks a signal as used: the store may still show it until the record that says so is written."""
        self.signals.remove(signal)
        self._taken.add(signal.id)

    @property
    def seconds(self) -> float:
        """How long the run has been driven, this time included."""
        return self.row.totals.seconds + time.monotonic() - self._began

    async def record(self, key: Key, effect: Effect | None, outcome: Any, attempt: int = 1) -> tuple[int, Any]:
        """Makes an outcome durable; only then may the program see it."""
        fingerprint = effect.fingerprint if effect is not None else "All"
        done = self.scribe.commit(Performed(outcome, fingerprint), Place(*key, attempt))
        seq = self.scribe.seq
        await done
        return seq, outcome

    async def park(self, wait: WaitRow) -> WaitRow | None:
        """Stands still until the wait is decided. None: it was interrupted, or a message is there."""
        decided = self.waits.get(wait.id)
        if decided is not None and decided.state != "open":
            return decided
        future: asyncio.Future[WaitRow | None] = asyncio.get_running_loop().create_future()
        self.parked[wait.id] = (wait, future)
        self._rest()
        return await future

    def _unpark(self, wait_id: str, decided: WaitRow | None) -> None:
        _, future = self.parked.pop(wait_id, (None, None))
        if future is not None and not future.done():
            self._active += 1
            future.set_result(decided)


def _defect(error: Exception) -> Failed:
    """An exception that a program did not mean to raise."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno})" if frame else ""
    return Failed("program_error", f"The program failed: {type(error).__name__}: {error}{where}")


ProgramFactory = Callable[[Any], Program[Any]]
