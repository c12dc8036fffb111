"""Handles each kind of effect: immediately, by waiting, by calling a model, or by acting on the world.

Each function returns the number of the outcome's record and the outcome itself, once the outcome is durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from cuebook.kernel import boot_clock
from cuebook.kernel.answers import advance_answer
from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    Acting,
    AskApproval,
    AskHuman,
    AskModel,
    Bound,
    Breakpoint,
    Checkpoint,
    Effect,
    Now,
    Random,
    Recall,
    Remember,
    RunPlaybook,
    Wait,
)
from cuebook.kernel.engine import in_doubt
from cuebook.kernel.engine.approval import CANCELLED, CUT_OFF, CutShort, admit, interruptibly, present
from cuebook.kernel.engine.budget import NO_BUDGET, Over, cut_by_budget, out_of_time, spent, within_budget
from cuebook.kernel.engine.descriptors import NoDescriptors, exhausted, lacks_descriptors, pauses
from cuebook.kernel.engine.files import StoredFiles
from cuebook.kernel.engine.reply_stream import ReplyStream
from cuebook.kernel.errors import CuebookError, Elsewhere, Fenced, with_fix
from cuebook.kernel.events import (
    FOR_HOST,
    Checkpointed,
    ModelAsked,
    Noted,
    Performed,
    Performing,
    StepFinished,
    Warned,
)
from cuebook.kernel.journal import Key, Place, plain
from cuebook.kernel.outcomes import (
    REJECTED_BY,
    REQUESTED,
    SAID,
    SUPERSEDED,
    UNANSWERED,
    Answer,
    AnyOutcome,
    Done,
    Drawn,
    Elapsed,
    Failed,
    Message,
    Moment,
    Reply,
    Resumed,
    Usage,
)
from cuebook.kernel.ports import Action, Admitted, Call, Limits, Recalling, at_once
from cuebook.kernel.run import HOST

if TYPE_CHECKING:
    from cuebook.kernel.engine.allowance import Paid
    from cuebook.kernel.engine.driver import Driver, Line

T = TypeVar("T")
Acted = tuple[int | None, Any]
Handler = Callable[["Driver", "Line", Key, Any], Awaitable[Acted]]

PASSED = Resumed()
"""The outcome of a checkpoint, and of a breakpoint that does not pause."""


def handler(effect: Effect) -> Handler:
    return _HANDLERS.get(type(effect), _act_on_world)


def may_lie_behind(effect: Effect) -> bool:
    """Whether the program may have passed it without a record: a breakpoint that did not pause, or an earlier checkpoint."""
    return isinstance(effect, Breakpoint | Checkpoint)


# --- at once ------------------------------------------------------------------------------------------


def _now(driver: Driver, line: Line, key: Key, effect: Now) -> Awaitable[Acted]:
    return driver.record(key, effect.fingerprint, Moment(driver.clock()))


def _random(driver: Driver, line: Line, key: Key, effect: Random) -> Awaitable[Acted]:
    return driver.record(key, effect.fingerprint, Drawn(random.random()))


async def _checkpoint(driver: Driver, line: Line, key: Key, effect: Checkpoint) -> Acted:
    cursor = line.cursor
    event = Checkpointed(plain(effect.state), msgspec.to_builtins(cursor), effect.texts)
    await driver.writer.commit(event, cursor.place(), None, checkpoints=[(cursor.path, driver.writer.seq + 1)])
    return None, PASSED


# --- by waiting ---------------------------------------------------------------------------------------


async def _ask_human(driver: Driver, line: Line, key: Key, effect: AskHuman) -> Acted:
    labels = (effect.label, *(frame.label for frame in reversed(line.cursor.frames)))
    given = await driver.answers_given()
    opened = (key, "question") in driver.recorded.opened
    answer = None if opened else advance_answer(effect, labels, driver.settings, given, driver.engine.fill_in)
    if answer is not None:
        if isinstance(answer, Answer):
            given[answer.given_for] += 1
        return await driver.record(key, effect.fingerprint, answer)
    expiry = effect.expires_after if effect.expires_after is not None else driver.settings.pause_expiry
    closed = await driver.waits.wait(
        line,
        key,
        "question",
        effect.question,
        type=effect.type,
        options=effect.options,
        default=effect.default,
        expires_after=expiry,
        details=_of_question(effect),
    )
    if closed.how == "answered":
        return await driver.record(key, effect.fingerprint, Answer(str(closed.answer.get("value", "")), closed.by))
    return await driver.record(key, effect.fingerprint, unanswered(closed.how, "question"))


def _of_question(effect: AskHuman) -> dict[str, Any]:
    """The details of a question: the schema of its form, and who may answer."""
    return {**({"schema": effect.schema} if effect.schema else {}), **({"by": list(effect.by)} if effect.by else {})}


async def _ask_approval(driver: Driver, line: Line, key: Key, effect: AskApproval) -> Acted:
    admitted = await admit(driver, line, key, effect)
    return await driver.record(key, effect.fingerprint, admitted if isinstance(admitted, Failed) else Done())


async def _breakpoint(driver: Driver, line: Line, key: Key, effect: Breakpoint) -> Acted:
    if effect.step not in driver.settings.breakpoints and (key, "breakpoint") not in driver.recorded.opened:
        return None, PASSED
    if driver.settings.unattended and (key, "breakpoint") not in driver.recorded.opened:
        words = f"The breakpoint after step {effect.step} was skipped because the run is unattended."
        driver.writer.note(Warned("breakpoint_passed", words), Place(*key))
        return None, PASSED
    prompt = f"Paused after step {effect.step}."
    closed = await driver.waits.wait(line, key, "breakpoint", prompt, expires_after=driver.settings.pause_expiry)
    if closed.how == "answered":
        return await driver.record(key, effect.fingerprint, Resumed(closed.answer.get("overrides", {}), closed.by))
    return await driver.record(key, effect.fingerprint, unanswered(closed.how, "breakpoint"))


async def _run_playbook(driver: Driver, line: Line, key: Key, effect: RunPlaybook) -> Acted:
    from cuebook.kernel.engine.children import run_playbook  # most runs have no children

    return await run_playbook(driver, line, key, effect)


async def _bound(driver: Driver, line: Line, key: Key, effect: Bound) -> Acted:
    return await driver.record(key, effect.fingerprint, Done() if key in driver.recorded.retried else effect.failed)


async def _wait_for(driver: Driver, line: Line, key: Key, effect: Wait) -> Acted:
    if effect.channel is None:
        closed = await driver.waits.wait(
            line, key, "timer", effect.about or "Waiting for time to pass.", expires_after=effect.seconds or 0
        )
    else:
        prompt = f"Waiting for a message on '{effect.channel}'."
        details = {"channel": effect.channel}
        closed = await driver.waits.wait(line, key, "message", prompt, expires_after=effect.seconds, details=details)
    if closed.how == "answered":
        return await driver.record(key, effect.fingerprint, Message(closed.answer.get("value"), closed.by))
    if closed.how == "expired":
        return await driver.record(key, effect.fingerprint, Elapsed())
    return await driver.record(key, effect.fingerprint, CANCELLED)


def unanswered(how: str, kind: str) -> Failed:
    """The failure of a question, a pause or a wait for an assistant that expired or was cancelled."""
    if how == "expired":
        words = {
            "question": "The question was not answered in time.",
            "breakpoint": "The run was not resumed in time.",
            FOR_HOST: "No assistant did this step in time.",
        }
        fixes = {
            "question": "Retry the run to be asked again.",
            "breakpoint": "Retry the run, then resume it.",
            FOR_HOST: "Retry the run to wait for one again.",
        }
        return Failed("expired", words[kind], fix=fixes[kind])
    return CANCELLED


# --- by calling a model --------------------------------------------------------------------------------


async def _ask_model(driver: Driver, line: Line, key: Key, effect: AskModel) -> Acted:
    if driver.engine.acts(effect, driver.settings):
        from cuebook.kernel.engine.acting_models import ask_agent  # most runs have no coding agent

        return await ask_agent(driver, line, key, effect)
    admitted = await admit(driver, line, key, effect)
    if short_of_descriptors(admitted):
        admitted = await patiently(driver, line, key, admitted, lambda: admit(driver, line, key, effect))
    if isinstance(admitted, Failed):
        return await driver.record(key, effect.fingerprint, admitted)
    if driver.settings.asked(effect.model) == HOST or (key, FOR_HOST) in driver.recorded.opened:
        return await _ask_host(driver, line, key, effect, admitted)
    if (key, "key:1") in driver.recorded.opened:
        from cuebook.kernel.engine import rejected_keys

        if not await rejected_keys.changed(driver, line, key):
            return await driver.record(key, effect.fingerprint, CANCELLED)
    while True:
        paid = await _paid(driver, line, key, effect)
        if paid is CANCELLED:
            return await driver.record(key, effect.fingerprint, CANCELLED)
        assert not isinstance(paid, Failed)
        attempt, outcome = await _asked(driver, line, key, effect, admitted, paid)
        if not isinstance(outcome, Failed) or REJECTED_BY not in outcome.details:
            break
        from cuebook.kernel.engine import rejected_keys

        unspent = paid.settlement(outcome) if paid is not None else ()
        if not await rejected_keys.rejected(driver, line, key, attempt, outcome, unspent):
            return await driver.record(key, effect.fingerprint, CANCELLED)
    if paid is None or paid.hold is None:
        return await driver.record(key, effect.fingerprint, outcome, attempt)
    return await recorded_with(driver, key, effect, outcome, attempt, paid)


async def _paid(driver: Driver, line: Line, key: Key, effect: AskModel) -> Paid | Failed | None:
    """Permission for a model call, where something limits what may be used."""
    limited = (key, "allowance:1") in driver.recorded.opened or await driver.engine.allowance(driver.outermost.row)
    if not limited and driver.budget == NO_BUDGET:
        return None
    from cuebook.kernel.engine.allowance import paid_for

    return await paid_for(driver, line, key, effect, count(1)) or CANCELLED


async def _asked(
    driver: Driver, line: Line, key: Key, effect: AskModel, admitted: Admitted, paid: Paid | None
) -> tuple[int, AnyOutcome]:
    """Asks the model once. Returns the number of the attempt and its outcome."""
    attempt = driver.recorded.asked.get(key, 0) + 1
    try:
        effect.prompt.encode()
        since, added = driver.writer.keep_context(effect.context)
    except UnicodeError as error:
        return 0, Failed("not_storable", f"The prompt is not valid text: {error}.")
    model = driver.settings.asked(effect.model)
    free = driver.engine.is_free(effect, driver.settings)
    event = ModelAsked(
        model, effect.context.digest, Text(effect.prompt), effect.fingerprint, free, admitted.ruling, since, added
    )
    seq = driver.writer.note(event, Place(*key, attempt))
    stream = ReplyStream(driver, key, seq, effect)
    if attempt > 1:
        stream.reset()
    if paid is not None and paid.expected is not None:
        driver.under_way[key] = paid.expected
    try:
        outcome = await perform(driver, line, key, effect, attempt, stream, admitted)
    finally:
        driver.under_way.pop(key, None)  # from here on its real usage counts
    if isinstance(outcome, Reply):
        outcome = stream.close(outcome)
    elif isinstance(outcome, Failed) and stream.said:  # users have read it, and it cost money
        outcome = msgspec.structs.replace(outcome, details={**outcome.details, SAID: stream.said})
    return attempt, outcome


async def recorded_with(
    driver: Driver, key: Key, effect: AskModel, outcome: AnyOutcome, attempt: int, paid: Paid
) -> Acted:
    """Records an outcome, gives back what was set aside for it, and looks at what is left."""
    recorded = await driver.record(key, effect.fingerprint, outcome, attempt, spent=paid.settlement(outcome))
    allowance = None if paid.hold is None else await driver.engine.allowance(driver.outermost.row)
    if allowance is not None and paid.hold is not None:
        await allowance.settled(driver.outermost.row, paid.hold)
    return recorded


async def _ask_host(driver: Driver, line: Line, key: Key, effect: AskModel, admitted: Admitted) -> Acted:
    """Waits until an assistant answers the call. Its money and tokens are unknown, so only steps and time are limited."""
    from cuebook.kernel.engine import host

    limited = driver.budget != NO_BUDGET and (key, FOR_HOST) not in driver.recorded.opened
    if limited and not await afforded(driver, line, key, lambda: out_of_time(driver), count(1)):
        return await driver.record(key, effect.fingerprint, CANCELLED)
    outcome = await host.ask(driver, line, key, effect, admitted)
    return await driver.record(key, effect.fingerprint, _as_journaled(driver, effect, outcome, own=True))


async def ready(driver: Driver, line: Line) -> bool:
    """Waits for missing secrets before the run's first effect here. Returns False if the run was cancelled in the
    meantime."""
    while (lacking := await _lacking(driver, line)) is not None:
        if driver.cancel is not None and not line.cursor.cancelled:
            driver.waits.close_cancelled(Place().key)
            return False
        prompt, details = with_fix(lacking.message, lacking.fix), {"code": lacking.code}
        driver.waits.close_met("secret", unless=prompt)
        closed = await driver.waits.wait(
            line, Place().key, "secret", prompt, purpose=driver.waits.next_purpose("secret"), details=details
        )
        if closed.how != "answered":
            return False
    driver.waits.close_met("secret")
    return True


async def _lacking(driver: Driver, line: Line) -> Failed | None:
    try:
        return await driver.engine.prepare(driver.row)
    except Elsewhere as error:
        if driver.cancel is None or line.cursor.cancelled:
            raise
        return Failed.of(error)  # a run can be cancelled from anywhere


def must_ask_before(driver: Driver, *, seen_before: bool) -> bool:
    """Whether `may_begin` may have to wait or to close a wait; most steps simply begin."""
    return seen_before or driver.cancel is not None or driver.budget != NO_BUDGET


async def may_begin(driver: Driver, line: Line, place: Place, *, seen_before: bool) -> None:
    """Waits before a step's first effect if the run's step or time budget is used up."""
    key: Key = (place.path, place.step, place.visit, -1)
    if seen_before and not driver.recorded.waits_at(key):
        return  # it had already begun
    if driver.cancel is not None:
        driver.waits.close_cancelled(key)
    elif driver.budget != NO_BUDGET and any(one.steps_done for one in driver.outermost.used()):
        await afforded(driver, line, key, lambda: out_of_time(driver), count(1))


async def afforded(driver: Driver, line: Line, key: Key, over: Callable[[], Over | None], asked: Iterator[int]) -> bool:
    """Waits for a larger budget whenever the current budget is used up. Returns False if the run was cancelled in the
    meantime."""
    while (why := over()) is not None:
        purpose, details = f"budget:{next(asked)}", {"code": why.code}
        closed = await driver.waits.wait(line, key, "budget", why.message, purpose=purpose, details=details)
        if closed.how != "answered":
            return False
    return True


# --- by acting on the world ---------------------------------------------------------------------------


async def _act_on_world(driver: Driver, line: Line, key: Key, effect: Effect) -> Acted:
    attempt = driver.recorded.intents.get(key, 0)
    doubted = bool(attempt) and not effect.repeatable
    unanswered: Failed | None = None
    if attempt:
        await driver.engine.clear()  # a repetition must not overlap with the original
        recalled = await _recalled(driver, line, key, effect, attempt)
        if recalled is None:
            doubted = False
        elif recalled is not NOT_ASKED:
            unanswered = in_doubt.unanswered(effect, recalled)
            if unanswered is None and not _is_unanswered(recalled):
                recorded = await driver.record(key, effect.fingerprint, recalled, attempt)
                _tell_recorded(driver, key, effect, attempt)
                return recorded
    asked = count(1)
    while True:
        if doubted:
            decision = await in_doubt.settle(driver, line, key, effect, attempt, unanswered)
            if decision is not None:
                return await driver.record(key, effect.fingerprint, decision, attempt)
        attempt, outcome = await _attempted(driver, line, key, effect, attempt + 1, doubted, asked)
        unanswered = in_doubt.unanswered(effect, outcome)
        if unanswered is None:
            break
        doubted = True
    try:
        recorded = await driver.record(key, effect.fingerprint, outcome, attempt)
        _tell_recorded(driver, key, effect, attempt)
        return recorded
    except Fenced:
        if effect.changes and not (isinstance(outcome, Failed) and outcome.code == "cancelled"):
            await in_doubt.send_late(driver, key, outcome)
        raise


NOT_ASKED = Failed("not_asked", "It cannot be asked for.")
"""Instead of an outcome: the performer cannot be asked what became of an effect."""


async def _recalled(driver: Driver, line: Line, key: Key, effect: Effect, attempt: int) -> AnyOutcome | None:
    """The outcome of an attempt that a lost process began, from the machine that performed it; None if it never began there."""
    performer: object = driver.engine.performers.get(type(effect))
    if not isinstance(performer, Recalling) or (key, f"in_doubt:{attempt}") in driver.recorded.opened:
        return NOT_ASKED
    seconds = getattr(effect, "timeout", None) or Limits().seconds
    missing = await present(driver, line, key, effect, seconds)
    if missing is not None:
        cut = CANCELLED if effect.repeatable else CUT_OFF
        return cut if missing is CANCELLED else _as_unanswered(missing)
    stream = ReplyStream(driver, key, driver.writer.seq, effect)
    limits = Limits(seconds=max(0.0, seconds - driver.waits.waited.get(key, 0.0)))
    call = call_of(driver, key, effect, attempt, stream, Admitted(_nothing, dict, limits=limits))
    try:
        outcome = await interruptibly(driver, line, performer.recall(effect, call), not effect.repeatable)
    except CutShort as cut:
        return cut.failed
    except CuebookError as error:
        return _as_unanswered(driver.redactor.value(Failed.of(error)))
    return None if outcome is None else _as_journaled(driver, effect, outcome)


def _tell_recorded(driver: Driver, key: Key, effect: Effect, attempt: int) -> None:
    performer: object = driver.engine.performers.get(type(effect))
    if isinstance(performer, Recalling):
        performer.recorded(driver.run_id, driver.recorded.begun.get(key, (0, 0.0))[0])


def _nothing(action: Action) -> Failed | None:
    return None


def _as_unanswered(failed: Failed) -> Failed:
    """A failure that does not say what became of the effect."""
    return msgspec.structs.replace(failed, details={**failed.details, UNANSWERED: True})


def _is_unanswered(outcome: AnyOutcome) -> bool:
    return isinstance(outcome, Failed) and bool(outcome.details.get(UNANSWERED))


async def _attempted(
    driver: Driver, line: Line, key: Key, effect: Effect, attempt: int, doubted: bool, asked: Iterator[int]
) -> tuple[int, AnyOutcome]:
    """The outcome of the effect, after the gate and within the run's budget, and the number of the attempt."""
    admitted = await admit(driver, line, key, effect)
    if short_of_descriptors(admitted):
        admitted = await patiently(driver, line, key, admitted, lambda: admit(driver, line, key, effect))
    if isinstance(admitted, Failed):
        return attempt, unbegun(admitted, doubted)
    allowed = admitted.limits.seconds
    if key in driver.waits.waited:
        allowed = max(0.0, allowed - driver.waits.waited.pop(key))
        admitted = msgspec.structs.replace(admitted, limits=msgspec.structs.replace(admitted.limits, seconds=allowed))
    while True:
        if isinstance(effect, Acting) and driver.budget != NO_BUDGET:
            if not await afforded(driver, line, key, lambda: out_of_time(driver), asked):
                return attempt, unbegun(CANCELLED, doubted)
            limits = msgspec.structs.replace(admitted.limits, seconds=allowed)
            admitted = msgspec.structs.replace(admitted, limits=within_budget(driver, limits))
        outcome = await _begun(driver, line, key, effect, attempt, admitted, doubted)
        if not isinstance(outcome, Failed) or not cut_by_budget(driver, admitted.limits, allowed, outcome):
            return attempt, _after_approval(effect, outcome)
        if not effect.repeatable:
            return attempt, _after_approval(effect, spent(driver, outcome))
        attempt += 1  # it changed nothing, so it is repeated when there is time again


def _after_approval(effect: Effect, outcome: AnyOutcome) -> AnyOutcome:
    """Marks a failure that came after someone approved the effect, so the program can distinguish it."""
    if isinstance(outcome, Failed) and isinstance(effect, Acting) and effect.approval:
        return msgspec.structs.replace(outcome, details={**outcome.details, "approved": True})
    return outcome


def unbegun(failed: Failed, doubted: bool) -> Failed:
    """The outcome of an effect that was not begun this time. If it may have happened before, the doubt remains."""
    return msgspec.structs.replace(failed, details={**failed.details, "in_doubt": True}) if doubted else failed


async def _begun(
    driver: Driver, line: Line, key: Key, effect: Effect, attempt: int, admitted: Admitted, doubted: bool
) -> AnyOutcome:
    """Performs an admitted effect; if it may change something, its intent is recorded first."""
    begin: Callable[[], Awaitable[None]] = at_once
    if effect.changes:
        begin = Intent(driver, key, effect, attempt, admitted)
        if admitted.still is not None or not getattr(driver.engine.performers.get(type(effect)), "prepares", False):
            await begin()
    elif isinstance(effect, Acting) and effect.witnessed:
        seq = driver.writer.note(Performing(effect, effect.fingerprint, admitted.ruling), Place(*key, attempt))  # type: ignore[arg-type]
        driver.recorded.begun[key] = (seq, driver.clock())
    stream = ReplyStream(driver, key, driver.writer.seq, effect)
    outcome = await perform(driver, line, key, effect, attempt, stream, admitted, begin)
    if isinstance(outcome, Failed) and outcome.code == "changed":
        return unbegun(outcome, doubted)
    if isinstance(begin, Intent) and not begin.passed and isinstance(outcome, Failed):  # it was still being prepared
        cut = outcome.code == "cancelled"
        if begin.asked_for or not cut:
            await begin.written()
        return unbegun(CANCELLED if cut else outcome, doubted)
    await begin()  # an intent that could not be written is not a failure of the effect: it ends the drive
    return outcome


class Intent:
    """Writes the intent once, when the performer is about to act or has finished; every caller waits for it."""

    def __init__(self, driver: Driver, key: Key, effect: Effect, attempt: int, admitted: Admitted) -> None:
        self._driver, self._key, self.effect, self._attempt = driver, key, effect, attempt
        self._ruling = admitted.ruling
        self._written: asyncio.Future[None] | None = None
        self._since = 0.0
        self.passed = False
        """Whether the performer was started; from then on the effect may happen."""

    @property
    def asked_for(self) -> bool:
        return self._written is not None

    async def __call__(self) -> None:
        await self.written()
        self.passed = True
        self._driver.acting[self._key] = (self.effect, self._attempt)

    async def written(self) -> None:
        driver = self._driver
        if self._written is None:
            event = Performing(self.effect, self.effect.fingerprint, self._ruling)  # type: ignore[arg-type]
            self._since = boot_clock.seconds_since_boot()
            self._written = driver.writer.begin(event, Place(*self._key, self._attempt))
            driver.recorded.begun[self._key] = (driver.writer.seq, driver.clock())
        if self._written.done():
            self._written.result()
        else:
            await asyncio.shield(self._written)
        if not self.passed:
            await driver.engine.hold(driver.run_id, driver.writer.epoch, self._since)


# --- performing ---------------------------------------------------------------------------------------


def short_of_descriptors(outcome: object) -> bool:
    return isinstance(outcome, Failed) and outcome.code == NoDescriptors.code


async def patiently(
    driver: Driver, line: Line, key: Key, outcome: T | Failed, work: Callable[[], Awaitable[T | Failed]]
) -> T | Failed:
    """Repeats work as long as it had too few file descriptors. That is not a failure of the run: other, possibly unrelated
    work uses them and will release them.
    """
    words = "Too many files and connections are open; it continues when some have been closed."
    driver.writer.note(Warned(NoDescriptors.code, f"Step {key[1]}: {words}" if key[1] else words), Place(*key))
    for seconds in pauses():
        try:
            await interruptibly(driver, line, asyncio.sleep(seconds))
        except CutShort as cut:
            return cut.failed
        outcome = await work()
        if not short_of_descriptors(outcome):
            break
    return outcome


async def perform(
    driver: Driver,
    line: Line,
    key: Key,
    effect: Effect,
    attempt: int,
    stream: ReplyStream,
    admitted: Admitted,
    begin: Callable[[], Awaitable[None]] = at_once,
) -> AnyOutcome:
    def work() -> Awaitable[AnyOutcome]:
        return _perform_once(driver, line, key, effect, attempt, stream, admitted, begin)

    outcome = await work()
    return await patiently(driver, line, key, outcome, work) if short_of_descriptors(outcome) else outcome


async def _perform_once(
    driver: Driver,
    line: Line,
    key: Key,
    effect: Effect,
    attempt: int,
    stream: ReplyStream,
    admitted: Admitted,
    begin: Callable[[], Awaitable[None]],
) -> AnyOutcome:
    performer = driver.engine.performers.get(type(effect))
    if performer is None:
        return Failed("no_performer", f"Nothing here can perform '{effect.kind}'.", fix="Configure it first.")

    call = call_of(driver, key, effect, attempt, stream, admitted, begin)
    doubt = isinstance(begin, Intent) and not begin.effect.repeatable
    try:
        changed = None if admitted.still is None else await interruptibly(driver, line, admitted.still())
        if changed is not None:
            return _as_journaled(driver, effect, changed)
        revealed = driver.engine.revealed(driver.run_id, effect)
        outcome = await interruptibly(driver, line, performer.perform(revealed, call), doubt)
    except CutShort as cut:
        return cut.failed
    except CuebookError as error:
        return driver.redactor.value(Failed.of(error))
    except Exception as error:
        if lacks_descriptors(error) and not (doubt and getattr(begin, "passed", True)):
            return Failed.of(NoDescriptors())
        message = f"'{effect.fingerprint}' failed: {type(error).__name__}: {error}"
        return driver.redactor.value(Failed("performer_error", message))
    if isinstance(outcome, Failed) and not doubt and exhausted():  # whatever the message says, this may be the reason
        return Failed.of(NoDescriptors())
    return _as_journaled(driver, effect, outcome)


def call_of(
    driver: Driver,
    key: Key,
    effect: Effect,
    attempt: int,
    stream: ReplyStream,
    admitted: Admitted,
    begin: Callable[[], Awaitable[None]] = at_once,
) -> Call:
    """The context in which a performer performs an effect."""

    def warn(code: str, message: str) -> None:
        words = f"Step {key[1]}: {message}" if key[1] else message
        driver.writer.note(Warned(code, words), Place(*key, attempt))

    def note(name: str, data: dict[str, Any]) -> None:
        driver.writer.note(Noted(name, data), Place(*key, attempt))

    which = (effect.attempt_at if isinstance(effect, Acting) else "") or key[3]
    intent, since = driver.recorded.begun.get(key, (0, 0.0))
    return Call(
        run=driver.run_id,
        key=f"{driver.run_id}/{key[0]}{_quoted(key[1])}#{key[2]}.{which}~{driver.recorded.rewinds}",
        step=key[1],
        intent=intent,
        since=since,
        attempt=attempt,
        settings=driver.settings_at(key[0]),
        emit=stream.emit,
        reset=stream.reset,
        warn=warn,
        note=note,
        permits=admitted.permits,
        secrets=admitted.secrets,
        limits=admitted.limits,
        begin=begin,
        slots=driver.engine.slots,
        files=StoredFiles(driver.engine.store, driver.row.tenant, driver.redactor),
        masked=driver.redactor.value,
    )


def _quoted(label: str) -> str:
    return label if label.isascii() and label.isalnum() else quote(label, safe="")


_RESERVED = ("cancelled", "expired", "in_doubt", "denied", SUPERSEDED, REQUESTED)
"""Failure codes reserved for the engine, because they decide how a run ends."""


def _as_journaled(driver: Driver, effect: Effect, outcome: AnyOutcome, *, own: bool = False) -> AnyOutcome:
    """The outcome as the journal will return it, so a program sees the same value before and after a crash. With `own`, it
    is the engine's, which may use the reserved codes.
    """
    codec = driver.engine.codec
    outcome = driver.redactor.value(outcome)
    try:
        event = codec.read_back(Performed(outcome, effect.fingerprint))
    except (TypeError, ValueError, RecursionError, CuebookError) as error:
        problem = str(error) or type(error).__name__
        return Failed("not_storable", f"The result of '{effect.fingerprint}' cannot be stored: {problem}")
    kept: AnyOutcome = event.outcome  # type: ignore[union-attr]
    if isinstance(kept, Failed) and kept.code in _RESERVED and not own:
        return msgspec.structs.replace(kept, code=f"effect_{kept.code}", details={})
    return kept


def with_usage(driver: Driver, place: Place, event: StepFinished) -> StepFinished:
    """Adds the step's usage to the event."""
    step = driver.writer.state.step_at(place)
    if step is None or step.label != event.label:
        return event
    totals = step.totals
    cost = None if totals.unknown_costs else totals.cost
    origin = "unknown" if cost is None else step.origin
    usage = Usage(totals.input, totals.output, totals.cached, totals.reasoning, cost, origin)
    now = driver.clock()
    seconds = totals.seconds + max(0.0, now - (step.since or now))
    return msgspec.structs.replace(event, usage=usage if totals.calls else None, seconds=seconds)


async def _recall(driver: Driver, line: Line, key: Key, effect: Recall) -> Acted:
    from cuebook.kernel.engine import memory

    return await memory.recall(driver, line, key, effect)


async def _remember(driver: Driver, line: Line, key: Key, effect: Remember) -> Acted:
    from cuebook.kernel.engine import memory

    return await memory.remember(driver, line, key, effect)


_HANDLERS: dict[type[Effect], Handler] = {
    Now: _now,
    Random: _random,
    Checkpoint: _checkpoint,
    AskHuman: _ask_human,
    AskApproval: _ask_approval,
    Breakpoint: _breakpoint,
    Bound: _bound,
    Wait: _wait_for,
    AskModel: _ask_model,
    Recall: _recall,
    Remember: _remember,
    RunPlaybook: _run_playbook,
}
