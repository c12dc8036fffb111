"""Budgets: tokens and money are checked before a model call against its maximum, time and steps before each effect.

A call in progress is never cut off to save money. Effects on the world get no more time than the run has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Estimate, Limits
from cuebook.kernel.run import Budget

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver


NO_BUDGET = Budget()

SPENT = "budget_spent"
"""Failure code of an effect that was stopped because the run was out of time. It must not be repeated automatically."""


class Over(msgspec.Struct, frozen=True):
    """The reason why a call may not be made yet."""

    code: str
    message: str


def over_budget(driver: Driver, effect: AskModel, estimate: Estimate | None) -> Over | None:
    """Returns why the call, together with others in progress, would exceed the run's budget, or None if it would not."""
    settings, budget = driver.settings, driver.budget
    over = out_of_time(driver)
    if over is not None:
        return over
    if budget.tokens is None and budget.money is None:
        return None
    estimate = estimate or Estimate(0, 0, None)
    calls = [*driver.outermost.calls_under_way(), estimate]
    used = tuple(driver.outermost.used())
    used_tokens, used_money = sum(one.tokens for one in used), sum(one.cost for one in used)
    tokens = used_tokens + sum(call.input_tokens + call.output_tokens for call in calls)
    if budget.tokens is not None and (tokens > budget.tokens or used_tokens >= budget.tokens):
        return Over("tokens", f"The next call may bring the run to {tokens} tokens; its budget is {budget.tokens}.")
    if budget.money is None:
        return None
    if estimate.cost is None and not settings.unknown_cost:
        model = settings.asked(effect.model)
        return Over("unknown_price", f"The price of {model} is unknown, but the run has a money budget.")
    most = used_money + sum(call.cost or 0.0 for call in calls)
    if most > budget.money or used_money >= budget.money > 0:
        words = f"The next call may bring the run to {money_words(most)}; its budget is {money_words(budget.money)}."
        return Over("money", words)
    return None


def money_words(cost: float) -> str:
    """Six decimals under a cent, otherwise four."""
    if cost == 0:
        return "$0"
    return f"${cost:.6f}" if cost < 0.01 else f"${cost:.4f}"


def out_of_time(driver: Driver) -> Over | None:
    """Returns why the run must stop (its steps or its time are used up), or None."""
    budget = driver.budget
    if budget.steps is not None and sum(one.steps_done for one in driver.outermost.used()) >= budget.steps:
        return Over("steps", f"The budget of {budget.steps} steps is used up.")
    seconds = driver.outermost.seconds
    if budget.seconds is not None and seconds >= budget.seconds:
        return Over("seconds", f"The budget of {budget.seconds:g} s is used up ({seconds:.1f} s).")
    return None


def within_budget(driver: Driver, limits: Limits) -> Limits:
    """The limits of an effect, with no more time than the run has left."""
    budget = driver.budget.seconds
    if budget is None:
        return limits
    left = max(0.0, budget - driver.outermost.seconds)
    return limits if limits.seconds <= left else msgspec.structs.replace(limits, seconds=left)


def cut_by_budget(driver: Driver, limits: Limits, allowed: float, failed: Failed) -> bool:
    """Whether an effect ran out of time only because the run did, before reaching its own limit."""
    shortened = failed.code == "timeout" and limits.seconds < allowed
    return shortened and driver.outermost.seconds >= (driver.budget.seconds or 0.0)


def spent(driver: Driver, failed: Failed) -> Failed:
    """The failure of an effect that was cut off and may have changed something: the user must decide what to do."""
    budget = driver.budget.seconds
    return msgspec.structs.replace(
        failed,
        code=SPENT,
        message=f"It was stopped because the run's budget of {budget:g} s was used up while it was under way.",
        fix=f"Check what it has done so far. `cuebook retry {driver.outermost.run_id}` asks for more time and runs it again.",
        details={**failed.details, "budget": budget},
    )
