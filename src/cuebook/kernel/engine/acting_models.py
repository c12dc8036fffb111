"""Calls a model that acts on the world itself: a coding agent.

Its prompt is an intent. Once it was sent, the call is never simply repeated: it is taken up where it stopped, if the agent
can do that, or someone decides.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, PromptAgent
from cuebook.kernel.engine import in_doubt
from cuebook.kernel.engine.allowance import Paid, paid_for
from cuebook.kernel.engine.approval import CANCELLED, admit
from cuebook.kernel.engine.budget import within_budget
from cuebook.kernel.engine.handlers import Intent, call_of, perform, recorded_with, unbegun
from cuebook.kernel.engine.reply_stream import ReplyStream
from cuebook.kernel.errors import Fenced
from cuebook.kernel.events import ModelAsked
from cuebook.kernel.journal import Key, Place
from cuebook.kernel.outcomes import RESUMABLE, SAID, UNANSWERED, AnyOutcome, Failed, Reply
from cuebook.kernel.ports import ActingModels, Admitted

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

_SHOWN = 500
"""How many characters of the prompt its intent repeats."""


async def ask_agent(driver: Driver, line: Line, key: Key, effect: AskModel) -> tuple[int | None, Any]:
    """The outcome of the call, and the number of its record."""
    intent = _intent(driver, effect)
    attempt = driver.recorded.intents.get(key, 0)
    begun, lost = bool(attempt), False
    if begun:
        await driver.engine.clear()  # the agent of a lost process must not go on beside its successor
    was_asked = (key, f"in_doubt:{attempt}") in driver.recorded.opened
    doubted = begun and (was_asked or not await _continues(driver, key, effect, attempt))
    unanswered: Failed | None = None
    asked = count(1)
    paid = Paid()
    while True:
        if doubted:
            decision = await in_doubt.settle(driver, line, key, intent, attempt, unanswered)
            if decision is not None:
                return await driver.record(key, effect.fingerprint, decision, attempt)
        attempt = max(attempt, driver.recorded.asked.get(key, 0)) + 1
        outcome, paid = await _attempted(driver, line, key, effect, intent, attempt, begun, asked)
        unanswered = in_doubt.unanswered(intent, outcome)
        if unanswered is None:
            break
        first_loss = bool(unanswered.details.get(RESUMABLE)) and not lost
        lost = doubted = begun = True
        if first_loss and await _continues(driver, key, effect, attempt):
            doubted = False
    try:
        return await recorded_with(driver, key, effect, outcome, attempt, paid)
    except Fenced:
        if not (isinstance(outcome, Failed) and outcome.code == "cancelled"):
            await in_doubt.send_late(driver, key, outcome)
        raise


def _intent(driver: Driver, effect: AskModel) -> PromptAgent:
    return PromptAgent(
        model=driver.settings.asked(effect.model),
        asked=effect.model or "",
        prompt=effect.prompt[:_SHOWN],
        session=effect.session,
    )


async def _continues(driver: Driver, key: Key, effect: AskModel, attempt: int) -> bool:
    performer = driver.engine.performers.get(AskModel)
    call = call_of(
        driver, key, effect, attempt, ReplyStream(driver, key, driver.writer.seq, effect), Admitted(_none, dict)
    )
    return isinstance(performer, ActingModels) and await performer.continues(effect, call)


def _none(action: Any) -> Failed | None:
    return None


async def _attempted(
    driver: Driver,
    line: Line,
    key: Key,
    effect: AskModel,
    intent: PromptAgent,
    attempt: int,
    begun: bool,
    asked: Any,
) -> tuple[AnyOutcome, Paid]:
    admitted = await admit(driver, line, key, effect)
    if isinstance(admitted, Failed):
        return unbegun(admitted, begun), Paid()
    paid = await paid_for(driver, line, key, effect, asked)
    if paid is None:
        return unbegun(CANCELLED, begun), Paid()
    # Its own configuration limits its time; of the run, only the budget does.
    limits = msgspec.structs.replace(admitted.limits, seconds=math.inf)
    admitted = msgspec.structs.replace(admitted, limits=within_budget(driver, limits))
    try:
        effect.prompt.encode()
        since, added = driver.writer.keep_context(effect.context)
    except UnicodeError as error:
        return Failed("not_storable", f"The prompt is not valid text: {error}."), paid
    model = driver.settings.asked(effect.model)
    event = ModelAsked(
        model, effect.context.digest, Text(effect.prompt), effect.fingerprint, False, admitted.ruling, since, added
    )
    seq = driver.writer.note(event, Place(*key, attempt))
    stream = ReplyStream(driver, key, seq, effect)
    if attempt > 1:
        stream.reset()
    begin = Intent(driver, key, intent, attempt, admitted)
    outcome = await perform(driver, line, key, effect, attempt, stream, admitted, begin)
    if isinstance(outcome, Reply):
        outcome = stream.close(outcome)
    elif isinstance(outcome, Failed) and stream.said:
        outcome = msgspec.structs.replace(outcome, details={**outcome.details, SAID: stream.said})
    if isinstance(outcome, Failed) and outcome.details.get(UNANSWERED):
        await begin()  # the doubt must outlive this process, even if it concerns an earlier prompt of the session
        return outcome, paid
    if isinstance(outcome, Failed) and not begin.passed:  # it was still being prepared, so no prompt was sent
        if begin.asked_for:
            await begin.written()
        return unbegun(CANCELLED if outcome.code == "cancelled" else outcome, begun), paid
    await begin()
    return outcome, paid
