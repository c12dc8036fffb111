"""The driver advances one run from the end of its journal until the run waits or ends.

It owns the run's generators: it sends outcomes in, follows branches below `All`, delivers cancellation, and
drops everything when the run waits. `handlers` handles the effects and `waits` the waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from cuebook.kernel.effects import All, Branch, Effect, Program, RunPlaybook, WithTexts
from cuebook.kernel.engine import children, handlers, in_doubt, kept_steps
from cuebook.kernel.engine.approval import CANCELLED, CUT_OFF
from cuebook.kernel.engine.child_waits import ChildWaits
from cuebook.kernel.engine.selection import DECIDED, Selection, is_superseded
from cuebook.kernel.engine.waits import Waits
from cuebook.kernel.errors import CuebookError, Elsewhere, Fenced, NonDeterminism, StoreError
from cuebook.kernel.events import (
    ENDED,
    YIELDED_EVENTS,
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
from cuebook.kernel.files import files_of
from cuebook.kernel.fold.replay import ALL, Cursor, Recorded
from cuebook.kernel.journal import ROOT, Entry, Key, Place, branch_path, plain, without_void
from cuebook.kernel.outcomes import SUPERSEDED, Answer, Cancelled, Done, EffectFailed, Failed
from cuebook.kernel.ports import Claim, Estimate, News, Redactor
from cuebook.kernel.run import WORKTREE, Budget, RunRow, Settings, Signal, Totals

if TYPE_CHECKING:
    from cuebook.kernel.engine.engine import Engine
    from cuebook.kernel.spending import Spending

log = logging.getLogger("cuebook")

PATIENCE = 5.0
"""Seconds that an interrupted performer has to stop."""


class Line:
    """A branch of the program while it is in memory: the root, or a branch below `All`."""

    __slots__ = ("cursor", "cut", "interruptible", "live", "program", "task")

    def __init__(self, cursor: Cursor, *, cut: bool = False) -> None:
        self.cursor = cursor
        self.cut = cut
        """Whether the `All` around it was decided without it, so that it is interrupted."""
        self.program: Program[Any] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.live = False
        """Whether it has passed all records of its journal."""
        self.interruptible = False
        """Whether it is inside a performer, which a cancellation may interrupt."""


_DECIDED_ELSEWHERE = CancelRequested(reason=DECIDED.message)
"""Why a child is cancelled whose branch was interrupted."""


class StartedBy(NamedTuple):
    """The origin of a child run."""

    driver: Driver
    key: Key
    """The effect that started it."""
    cancelled: bool = False
    """Whether that effect is cancelled, so that the child only has to end."""

    @property
    def at(self) -> Key:
        """The effect of the outermost run that this one belongs to."""
        above = self.driver.started_by
        return self.key if above is None else above.at


def _child_waits(driver: Driver, claim: Claim, started_by: StartedBy) -> ChildWaits:
    chain = (*started_by.driver.chain, driver.run_id)
    return ChildWaits(driver, claim, started_by.driver.outermost, started_by.at, chain)


class Driver:
    """Drives one claimed run, once."""

    recorded: Recorded
    settings: Settings

    def __init__(
        self, engine: Engine, claim: Claim, *, prepared: bool = False, started_by: StartedBy | None = None
    ) -> None:
        self.engine = engine
        self._prepared = prepared
        self.clock = engine.clock
        self.run_id = claim.row.id
        self.started_by = started_by
        """Of a child run: the driver that drives it, and the effect that started it."""
        self.outermost: Driver = self if started_by is None else started_by.driver.outermost
        self.waits = Waits(self, claim) if started_by is None else _child_waits(self, claim, started_by)
        self.children: dict[str, Driver] = {}
        """The child runs that are being driven."""
        self.resting: dict[str, list[Totals]] = {}
        """What the child runs that wait have used, if there is a budget."""
        self.under_way: dict[Key, Estimate] = {}
        """Model calls in progress, with the maximum that each may use."""
        self.acting: dict[Key, tuple[Effect, int]] = {}
        self.kept: dict[str, list[Entry]] = {}
        """The records of the steps that are still to be taken over from a parent with another text."""
        """Effects with an intent but no outcome, begun by this driver or a lost driver, with their attempt."""
        self.cancel: CancelRequested | None = None
        self.finishing = False
        """Whether everything is being dropped. If so, an interruption does not mean that someone cancelled the run."""
        self._take_up(claim)
        self._lines: set[Line] = set()
        self._active = 1
        self._wake = asyncio.Event()
        self._root: asyncio.Task[Any] | None = None
        self._began = time.monotonic()
        self._cancel_thrown = False
        self._handing_over = False
        """Whether a branch stopped before its next effect, so that another process performs it."""
        self._given: Counter[str] | None = None
        self._worktrees: dict[str, str] = {}
        """The worktrees of branches that have one of their own, by path."""
        self._seq_of: dict[int, tuple[Failed, int]] = {}
        """The records of failures that a program received as values, by identity."""

    def _take_up(self, claim: Claim) -> None:
        self._claim = claim
        charged = None if self.outermost is self else self.outermost.row
        self.writer = self.engine.writer(claim, charged)
        self.writer.on_broken = self._wake_up

    @property
    def row(self) -> RunRow:
        return self.writer.state.row

    @property
    def redactor(self) -> Redactor:
        """Masks what this run must not show."""
        return self.engine.redactor_of(self.run_id)

    @property
    def chain(self) -> tuple[str, ...]:
        """Of a child run: the runs from the outermost run's child down to this one."""
        return () if self.started_by is None else (*self.started_by.driver.chain, self.run_id)

    @property
    def budget(self) -> Budget:
        """The budget that the run shares with its parent and its children."""
        return self.outermost.settings.budget

    def used(self) -> Iterator[Totals]:
        """What the run and its unfinished children have used. Finished children are part of their parent's totals."""
        yield self.row.totals
        for child in self.children.values():
            yield from child.used()
        for below in self.resting.values():
            yield from below

    def calls_under_way(self) -> Iterator[Estimate]:
        yield from self.under_way.values()
        for child in self.children.values():
            yield from child.calls_under_way()

    @property
    def seconds(self) -> float:
        """How long the run has been driven, including this drive."""
        return self.writer.state.watch.before + self._lasted()

    # --- the life of a drive ---

    async def drive(self) -> RunRow:
        async with self.waits.lock:  # signals that arrive in the meantime are handled when everything is in place
            if not await self._begin():
                return self.row
        try:
            return await self._until_rest()
        finally:
            await self._drop()

    async def _begin(self) -> bool:
        """Starts the program. Returns False if the run has already ended and no retry was requested."""
        entries = self._entries()
        retry = self.waits.signal("retry") if self.row.status in ENDED else None
        if self.row.status in ENDED:
            if retry is None:
                await self.writer.give_up()
                return False
            entries = await self._rewind(retry)
        self.recorded = Recorded(entries, self._claim.inherited)
        self.kept = await kept_steps.read(self)
        self.acting = dict(self.recorded.doubtful)
        self.settings = self.engine.placed(self.recorded.settings)
        self.cancel = self.recorded.cancel
        self._root = asyncio.get_running_loop().create_task(self._run_root())
        self._root.add_done_callback(self._root_done)
        if retry is None:
            self.writer.note(
                Driven(self.engine.driver, self.engine.machine), Place()
            )  # written with the program's first record
        self._heed(self.waits.hear(News(self._claim.waits, self._claim.signals)))
        if self.started_by is not None and self.started_by.cancelled:
            self.inherit_cancel()
        return True

    def _entries(self) -> list[Entry]:
        return [self.engine.codec.entry(record) for record in self._claim.records]

    async def _rewind(self, retry: Signal) -> list[Entry]:
        """Rewinds the failed effects and reads the journal again, because replay may now begin at another
        checkpoint."""
        from cuebook.kernel.fold.retry import rewinds

        self.waits.take(retry)
        entries = [entry async for entry in self.engine.entries(self.run_id)]
        self.writer.state.know_done(await self.engine.store.steps(self.run_id))
        for rewound in rewinds(entries, retry.payload.get("whole_step", False), retry.by, self._claim.inherited):
            self.writer.note(rewound, Place(rewound.path))
        await self.writer.commit(Driven(self.engine.driver, self.engine.machine), Place(), None, taken=[retry.id])
        watch = self.writer.state.watch
        self._take_up(await self.engine.store.claim(self.run_id, self.engine.driver, self.clock()))
        self.writer.state.watch = watch  # it saw the beginning of this drive
        return self._entries()

    async def _until_rest(self) -> RunRow:
        assert self._root is not None
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.writer.broken is not None:
                raise self.writer.broken
            if self.cancel is not None and self.cancel.hard:
                await self.engine.leave(self.run_id)
                await children.end_all(self)
                self.finishing = True
                self._leave_in_doubt()
                return await self._finish(Failed("cancelled", "Cancelled at once, on a second request."), None)
            if self._root.done() or self._active == 0:
                await self.engine.leave(self.run_id)
            if self._root.done():
                return await self._ended(self._root)
            if self._active == 0 and self._handing_over:
                await self._hand_over()
                return self.row
            if self._active == 0 and await self._suspended():
                return self.row

    async def _run_root(self) -> Any:
        line = Line(self.recorded.cursor(ROOT))
        line.task = self._root
        self._cancel_thrown = line.cursor.cancelled
        if not self._prepared and not await handlers.ready(self, line):
            self._leave_in_doubt()
            raise Cancelled
        start = self.engine.programs(self.row, self._claim.text, self.recorded.inputs, self.recorded.options)
        return await self._follow(line, start(self.recorded.state(ROOT)))

    async def _ended(self, root: asyncio.Task[Any]) -> RunRow:
        try:
            result = plain(root.result())
        except EffectFailed as error:
            return await self._finish(error.failed, self._where(error))
        except Cancelled:
            return await self._finish(CANCELLED, None)
        except NonDeterminism as error:
            await self.writer.release(Suspended("paused", error.code, self._lasted()), Place(), unless_news=False)
            raise
        except (Elsewhere, Fenced, StoreError):
            raise
        except CuebookError as error:
            self._leave_in_doubt()
            return await self._finish(Failed.of(error), None)
        except (Exception, GeneratorExit) as error:
            self._leave_in_doubt()
            return await self._finish(_defect(error), None)
        if self._cancel_thrown:
            return await self._finish(CANCELLED, None)
        await self.writer.release(RunFinished("completed", result, seconds=self._lasted()), Place(), unless_news=False)
        return self.row

    async def _finish(self, failed: Failed, seq: int | None) -> RunRow:
        status: RunStatus = "failed"
        if failed.code == "expired":
            status = "expired"
        elif failed.code == "denied":
            status = "cancelled"
        elif failed.code == "cancelled":
            status = "cancelled"
            reason = self.cancel.reason if self.cancel is not None else ""
            failed = Failed(failed.code, f"{failed.message} {reason}".strip(), failed.fix, details=failed.details)
        # A run may continue after a failed step, so the error refers to that step, not to the last one.
        step = str(failed.details.get("step") or self.row.step)
        event = RunFinished(status, error=failed, step=step, failed_seq=seq, seconds=self._lasted())
        await self.writer.release(event, Place(), unless_news=False)
        return self.row

    async def _suspended(self) -> bool:
        """Gives up the run unless there is news. A run that was given up leaves nothing in memory."""
        async with self.waits.lock:
            if self._active > 0:
                return False
            event = Suspended(*self.waits.status(), self._lasted(), self.waits.lacking())
            if await self.writer.release(event, Place(), unless_news=True):
                return True
        await self.hear()
        if self._active == 0:
            self._wake_up()
        return False

    async def _hand_over(self) -> None:
        """Gives up the run between two effects; its journal says everything that another process needs."""
        async with self.waits.lock:
            self.finishing = True
            await self.writer.hand_over()

    async def stop_here(self) -> NoReturn:
        """Stops a branch before its next effect. When no branch is active any more, the run is handed over."""
        self._handing_over = True
        self.rest()
        await asyncio.get_running_loop().create_future()  # until it is dropped
        raise asyncio.CancelledError

    def _leave_in_doubt(self) -> None:
        """Marks effects in progress, and those that a lost driver began, as in doubt: they may or may not have happened."""
        for key, (effect, attempt) in self.acting.items():
            if not effect.repeatable:
                outcome = in_doubt.said(self, key, effect, attempt) or CUT_OFF
                self.writer.note(Performed(outcome, effect.fingerprint), Place(*key, attempt))

    async def _drop(self) -> None:
        self.finishing = True
        await self.engine.leave(self.run_id)
        tasks = [line.task for line in self._lines if line.task is not None and not line.task.done()]
        if self._root is not None and not self._root.done():
            tasks.append(self._root)
        for task in tasks:
            task.cancel()
            task.add_done_callback(_heard)
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=PATIENCE)
            if stubborn:
                log.warning("Run %s: %d performers did not stop and were abandoned.", self.run_id, len(stubborn))
        for line in self._lines:
            if line.program is not None:
                with suppress(Exception, Cancelled):  # a program that yields in `finally` is dropped too
                    line.program.close()

    def _lasted(self) -> float:
        return time.monotonic() - self._began

    # --- answers and signals from outside ---

    async def hear(self) -> None:
        """Handles the answers and signals that arrived for the run."""
        async with self.waits.lock:
            if self.finishing:
                return
            self._heed(self.waits.hear(await self.engine.store.news(self.run_id)))
            for child in list(self.children.values()):
                await child.look()
            for late in self.waits.late_for_parked():
                self.waits.take(late)
                await self.engine.store.signal(late)  # its question is open now, so the store attaches it

    def offered(self) -> None:
        """Continues branches that wait for something which this process has gained."""
        if self.finishing or self.writer.broken is not None:
            return
        self.waits.offered()
        for child in self.children.values():
            child.offered()

    async def look(self) -> None:
        """Looks, in a child run, at the decisions that the outermost run has heard of."""
        async with self.waits.lock:
            if not self.finishing and self.writer.broken is None and isinstance(self.waits, ChildWaits):
                self.waits.look()
        for child in list(self.children.values()):
            await child.look()

    def inherit_cancel(self) -> None:
        """Cancels a child run because its parent is cancelled; immediately, if the parent is."""
        assert self.started_by is not None
        if self.writer.broken is not None:
            return
        requested = self.started_by.driver.cancel or _DECIDED_ELSEWHERE
        signal = Signal(self.run_id, "cancel", {"reason": requested.reason}, requested.by)
        wanted = 2 if requested.hard else 1
        had = 0 if self.cancel is None else 2 if self.cancel.hard else 1
        self._heed([signal] * (wanted - had))

    def _heed(self, cancels: list[Signal]) -> None:
        for signal in cancels:
            hard = self.cancel is not None
            self.cancel = CancelRequested(signal.by, str(signal.payload.get("reason", "")), hard)
            self.writer.note(self.cancel, Place(), taken=[signal.id] if signal.id else [])
            for child in self.children.values():
                child.inherit_cancel()
            if hard:
                self._wake_up()
                return
            self.waits.interrupt()
            for line in list(self._lines):
                if line.interruptible and not line.cursor.cancelled and line.task is not None:
                    line.task.cancel()

    def stops(self, line: Line) -> bool:
        """Whether a branch is cancelled, alone or with the run, and has not received that yet."""
        return (self.cancel is not None or line.cut) and not line.cursor.cancelled

    def cut(self, path: str) -> None:
        """Interrupts a branch and those below it."""
        for line in list(self._lines):
            if line.cursor.path.startswith(path):
                line.cut = True
                if line.interruptible and not line.cursor.cancelled and line.task is not None:
                    line.task.cancel()
        for child in self.children.values():
            if child.started_by is not None and child.started_by.key[0].startswith(path):
                child.inherit_cancel()
        self.waits.interrupt(path)

    # --- active branches: when there are none, the run waits ---

    def rest(self) -> None:
        self._active -= 1
        if self._active == 0:
            self._wake_up()

    def move(self) -> None:
        self._active += 1

    def _wake_up(self) -> None:
        self._wake.set()

    def _root_done(self, root: asyncio.Task[Any]) -> None:
        _heard(root)
        self._wake.set()

    # --- branches ---

    async def _follow(self, line: Line, program: Program[Any]) -> Any:
        """Runs a program to its end and sends it the outcome of each effect."""
        line.program = program
        line.live = line.live or not self.recorded.past(line.cursor.path)
        self._lines.add(line)
        send: Any = None
        throw: BaseException | None = None
        while True:
            try:
                asked = program.send(send) if throw is None else program.throw(throw)
            except StopIteration as stop:
                self._lines.discard(line)
                if not line.live:
                    self.recorded.require_spent(line.cursor.path, "ends")
                return stop.value
            send = throw = None
            if isinstance(asked, Effect):
                seq, outcome = await self._effect(line, asked)
            elif isinstance(asked, YIELDED_EVENTS):
                send, seen_before = self._tell(line, asked)
                if type(asked) is StepStarted and handlers.must_ask_before(self, seen_before=seen_before):
                    await handlers.may_begin(self, line, line.cursor.place(), seen_before=seen_before)
                continue
            elif isinstance(asked, All):
                seq, outcome = await self._all(line, asked)
            else:
                raise CuebookError(
                    f"A program yielded a {type(asked).__name__}, which is neither an effect nor an event."
                )
            if type(outcome) is not Failed:
                send = outcome
            elif outcome.code in ("cancelled", SUPERSEDED):
                line.cursor.cancelled = True
                self._cancel_thrown = self._cancel_thrown or outcome.code == "cancelled"
                throw = Cancelled(outcome.message, in_doubt=bool(outcome.details.get("in_doubt")))
            else:
                throw = EffectFailed(outcome, seq)

    def _effect(self, line: Line, effect: Effect) -> Awaitable[handlers.Acted]:
        """The outcome of an effect, from the journal or from the world, and the number of its record."""
        key = line.cursor.next_effect()
        if line.live and not self.finishing and not self.engine.stopping and not self.stops(line):
            return handlers.handler(effect)(self, line, key, effect)
        return self._effect_if_wanted(line, key, effect)

    async def _effect_if_wanted(self, line: Line, key: Key, effect: Effect) -> handlers.Acted:
        """The outcome of an effect that may be in the journal, or that the run may no longer want."""
        if self.finishing:
            raise asyncio.CancelledError
        if not line.live:
            entry = self.recorded.take(key, effect.fingerprint)
            if entry is not None:
                return entry.seq, entry.event.outcome  # type: ignore[union-attr]
            if handlers.may_lie_behind(effect) and self.recorded.past(line.cursor.path):
                return None, handlers.PASSED
            self._go_live(line, f"asks for '{effect.fingerprint}' at {Place(*key)}")
        if self.engine.stopping:
            await self.stop_here()
        if self.stops(line):
            attempt = self.recorded.intents.get(key, 0)
            if isinstance(effect, RunPlaybook):
                await children.end(self, line, key)
            cut = await in_doubt.cancelled(self, key, effect, attempt) if attempt else CANCELLED
            self.waits.close_cancelled(key)
            return await self.record(key, effect.fingerprint, cut, attempt or 1)
        return await handlers.handler(effect)(self, line, key, effect)

    def _go_live(self, line: Line, asks: str) -> None:
        self.recorded.require_spent(line.cursor.path, asks)
        line.live = not self.recorded.past(line.cursor.path)

    async def _all(self, line: Line, asked: All) -> tuple[int | None, Any]:
        key = line.cursor.next_effect()
        entry = None if line.live else self.recorded.take(key, ALL)
        paths = [branch_path(line.cursor.path, key[1], key[2], key[3], n) for n in range(len(asked.branches))]
        if asked.at_once or asked.until:
            outcomes = await Selection(self, line, asked, paths, entry is not None).outcomes()
            if entry is not None and not isinstance(entry.event.outcome, Done):  # type: ignore[union-attr]
                return entry.seq, entry.event.outcome  # type: ignore[union-attr]
            if entry is None and self.stops(line):
                return await self.record(key, ALL, CANCELLED)
            if entry is None and any(is_superseded(one) for one in outcomes):
                await self.record(key, ALL, Done())
            return None, outcomes
        self._active += max(0, len(paths) - 1)  # this line is idle while its branches run
        left = [len(paths)]
        tasks: list[asyncio.Task[Any]] = []
        try:
            for path, branch in zip(paths, asked.branches, strict=True):
                tasks.append(self.begin_branch(line, path, branch, left))
            if tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()  # an engine error ends the drive, even if other branches are waiting
            outcomes = tuple([task.result() for task in tasks])
        finally:
            for task in tasks:
                task.cancel()
        if entry is not None:
            return entry.seq, entry.event.outcome  # type: ignore[union-attr]
        if self.stops(line):
            return await self.record(key, ALL, CANCELLED)
        return None, outcomes

    def begin_branch(
        self, line: Line, path: str, branch: Effect | Branch, left: list[int] | None = None, *, cut: bool = False
    ) -> asyncio.Task[Any]:
        """Starts one member of an `All` below a branch."""
        own = branch.worktree if isinstance(branch, Branch) else ""
        if worktree := own or self._worktrees.get(line.cursor.path, ""):
            self._worktrees[path] = worktree
        child = Line(self.recorded.cursor(path, cancelled=line.cursor.cancelled), cut=cut or line.cut)
        child.task = asyncio.get_running_loop().create_task(self._branch(child, branch, left))
        child.task.add_done_callback(_heard)
        return child.task

    async def _branch(self, line: Line, branch: Effect | Branch, left: list[int] | None) -> Any:
        """Runs one member of an `All` and records its result, so a finished branch is not run again. With `left`, it counts
        how many of the members have not ended."""
        path = line.cursor.path
        broken = False
        try:
            if isinstance(branch, Effect):
                self._lines.add(line)
                seq, outcome = await self._effect(line, branch)
                return self._remember(outcome, seq)
            known = self.recorded.branches.get(path)
            if known is not None:
                return self.ended_before(known)
            value, texts, failed, seq = None, (), None, None
            try:
                value = await self._follow(line, branch.start(self.recorded.state(path)))
                if isinstance(value, WithTexts):
                    value, texts = value.value, value.texts
                value = plain(value)
            except EffectFailed as error:
                failed, seq = error.failed, self._where(error)
            except Cancelled:
                failed = CANCELLED if self.cancel is not None else DECIDED
            except (NonDeterminism, Elsewhere, Fenced, StoreError):
                raise
            except CuebookError as error:
                failed = Failed.of(error)
            except (Exception, GeneratorExit) as error:
                failed = _defect(error)
            self.writer.note(BranchFinished(value, failed, seq, texts), Place(path))
            return self.ended_before(BranchFinished(value, failed, seq, texts))
        except BaseException:
            broken = True
            raise
        finally:
            self._lines.discard(line)
            if left is not None:
                left[0] -= 1
                if left[0] > 0 and not broken:  # the last one passes its turn to the idle line
                    self.rest()

    def ended_before(self, known: BranchFinished) -> Any:
        """The outcome of a branch as its end was recorded."""
        if known.failed is not None:
            return self._remember(known.failed, known.failed_seq)
        return (known.value, known.texts) if known.texts else known.value

    def _remember(self, outcome: Any, seq: int | None) -> Any:
        if type(outcome) is Failed and seq is not None:
            self._seq_of[id(outcome)] = (outcome, seq)
        return outcome

    def _where(self, error: EffectFailed) -> int | None:
        """The record of a failure, even if the program received it as a value and raised it itself."""
        return error.seq or self._seq_of.get(id(error.failed), (None, None))[1]

    def _tell(self, line: Line, event: AnyEvent) -> tuple[Any, bool]:
        """The reply to an event, and whether it was recorded before."""
        if self.kept and type(event) is StepStarted:
            kept_steps.take_over(self, line, event)
        place, seen_before, reply = self.recorded.tell(line.cursor, event, live=line.live)
        if not seen_before:
            self.writer.note(handlers.with_usage(self, place, event) if type(event) is StepFinished else event, place)
        return reply, seen_before

    # --- for `handlers` ---

    def settings_at(self, path: str) -> Settings:
        """The run's settings for the effects of a branch: with its own worktree, if it has one."""
        worktree = self._worktrees.get(path)
        if worktree is None:
            return self.settings
        return msgspec.structs.replace(self.settings, options={**self.settings.options, WORKTREE: worktree})

    async def answers_given(self) -> Counter[str]:
        """How many advance answers were already used for each label, if any label has several."""
        if self._given is not None:
            return self._given
        outcomes: list[Any] = []
        if any(isinstance(one, tuple) for one in self.settings.answers.values()):
            entries = without_void([entry async for entry in self.engine.entries(self.run_id)])
            outcomes = [entry.event.outcome for entry in entries if isinstance(entry.event, Performed)]
        if self._given is None:  # another branch may have been faster
            self._given = Counter(one.given_for for one in outcomes if isinstance(one, Answer))
        return self._given

    def record(
        self, key: Key, fingerprint: str, outcome: Any, attempt: int = 1, spent: Sequence[Spending] = ()
    ) -> Awaitable[tuple[int, Any]]:
        """Makes an outcome durable before the program sees it, together with other changes of what was spent."""
        if self.finishing:  # everything still open has been recorded
            raise asyncio.CancelledError
        self.acting.pop(key, None)  # its outcome is known: an immediate cancel no longer interrupts it
        if self.cancel is None and isinstance(outcome, Failed) and outcome.code == CANCELLED.code:
            outcome = msgspec.structs.replace(DECIDED, details=outcome.details)  # only its branch was interrupted
        also: dict[str, Any] = {"files": [one.digest for one in files_of(outcome)]} if files_of(outcome) else {}
        if spent:
            also["spent"] = spent
        return self.writer.commit(Performed(outcome, fingerprint), Place(*key, attempt), outcome, **also)


def _heard(task: asyncio.Task[Any]) -> None:
    """Retrieves a task's error, which a dropped task would otherwise report as never awaited."""
    if not task.cancelled():
        task.exception()


def _defect(error: BaseException) -> Failed:
    """The failure for an unexpected exception in a program."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno})" if frame else ""
    return Failed("program_error", f"The program failed: {type(error).__name__}: {error}{where}")
