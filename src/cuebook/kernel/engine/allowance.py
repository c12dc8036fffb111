"""Asks before each model call whether the people and playbooks concerned may still use it, and pauses the run if not.

What a call may use at most is set aside before it and given back with its outcome, in the transaction that counts what it
really used. If the outcome is lost, it stays set aside: a call of unknown cost never counts as one that cost nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.effects import AskModel
from cuebook.kernel.engine.approval import CutShort, interruptibly
from cuebook.kernel.engine.budget import NO_BUDGET, over_budget
from cuebook.kernel.engine.handlers import afforded
from cuebook.kernel.engine.waits import ALLOWANCE
from cuebook.kernel.journal import Key
from cuebook.kernel.outcomes import AnyOutcome, Failed, Reply, Usage
from cuebook.kernel.ports import Estimate
from cuebook.kernel.spending import Allowance, Exceeded, Hold, Spending

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

PATIENCE = 30.0
"""Seconds to wait for calls in progress, which may leave more than what is set aside for them."""
_PAUSES = (0.1, 1.0)
"""Seconds before the second try; they double up to the second number."""


class Paid:
    """Permission for one model call."""

    __slots__ = ("expected", "hold")

    def __init__(self, expected: Estimate | None = None, hold: Hold | None = None) -> None:
        self.expected = expected
        """The most that it may use, if the run has a budget."""
        self.hold = hold

    def settlement(self, outcome: AnyOutcome) -> list[Spending]:
        """What the record of the outcome changes in addition to counting what the call used."""
        return [] if self.hold is None else [given_back(self.hold.most, outcome)]


async def paid_for(driver: Driver, line: Line, key: Key, effect: AskModel, asked: Iterator[int]) -> Paid | None:
    """Waits until the run's own budget and all others leave enough for a call. Returns None if the run was cancelled."""
    paused = count(1)
    while True:
        expected = None
        if driver.budget != NO_BUDGET:

            def estimate() -> Estimate | None:
                return driver.engine.estimate(effect, driver.settings)

            if not await afforded(driver, line, key, lambda: over_budget(driver, effect, estimate()), asked):
                return None
            expected = estimate()
        allowance = await driver.engine.allowance(driver.outermost.row)
        if allowance is None:
            _close_open(driver, key)
            return Paid(expected)
        hold = await _hold(driver, line, key, effect, allowance, paused)
        if isinstance(hold, Failed):
            return None
        if hold is None or driver.budget == NO_BUDGET or over_budget(driver, effect, expected) is None:
            return Paid(expected, hold)
        await driver.engine.store.add_spending([_negative(hold.most)])  # another branch was faster


async def _hold(
    driver: Driver, line: Line, key: Key, effect: AskModel, allowance: Allowance, paused: Iterator[int]
) -> Hold | Failed | None:
    while True:
        found = await _patiently(driver, line, effect, allowance)
        if not isinstance(found, Exceeded):
            _close_open(driver, key)
            return found
        await allowance.paused(driver.outermost.row, found)
        closed = await driver.waits.wait(
            line,
            key,
            "budget",
            found.message,
            purpose=f"{ALLOWANCE}:{next(paused)}",
            expires_after=None if found.until is None else max(0.0, found.until - driver.clock()),
            details={"code": ALLOWANCE, "budget": found.budget, "until": found.until, **_needs(found)},
        )
        if closed.how == "cancelled" and driver.stops(line):
            return Failed("cancelled", "")


async def _patiently(
    driver: Driver, line: Line, effect: AskModel, allowance: Allowance
) -> Hold | Exceeded | Failed | None:
    end, pause = time.monotonic() + PATIENCE, _PAUSES[0]
    while True:
        most = driver.engine.most(effect, driver.settings) or Estimate(0, 0, None)
        found = await allowance.hold(driver.outermost.row, driver.settings.asked(effect.model), most)
        if not isinstance(found, Exceeded) or not found.passing or time.monotonic() > end:
            return found
        if driver.engine.stopping:
            await driver.stop_here()
        try:
            await interruptibly(driver, line, asyncio.sleep(pause))
        except CutShort as cut:
            return cut.failed
        pause = min(pause * 2, _PAUSES[1])


def _close_open(driver: Driver, key: Key) -> None:
    """Closes a wait from before that nothing has ended, because there is enough now."""
    if (key, f"{ALLOWANCE}:1") in driver.recorded.opened:
        driver.waits.close_cancelled(key, ALLOWANCE)


def _needs(why: Exceeded) -> dict[str, Any]:
    """The most that the call may use: the run continues when there is room for that."""
    return {} if why.most is None else {"money": why.most.held, "tokens": why.most.held_tokens}


def given_back(most: Spending, outcome: AnyOutcome) -> Spending:
    """What was set aside for a call and is not needed, because its outcome says what it used."""
    usage: Usage | None = None
    if isinstance(outcome, Reply):
        usage = outcome.usage
    elif isinstance(outcome, Failed) and outcome.details.get("usage"):
        usage = msgspec.convert(outcome.details["usage"], Usage)
    elif isinstance(outcome, Failed) and (outcome.code == "cancelled" or outcome.details.get("in_doubt")):
        return msgspec.structs.replace(most, held=0.0, held_tokens=0)  # nobody knows what it used
    back = _negative(most)
    if usage is not None and usage.cost is None:
        back.held = 0.0
    return back


def _negative(most: Spending) -> Spending:
    return msgspec.structs.replace(most, held=-most.held, held_tokens=-most.held_tokens)
