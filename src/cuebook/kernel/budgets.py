"""Budgets: checked before a model call against what it may use at most, and of time and steps before anything is done.

A call under way is never cut for money. What acts on the world is given no more time than the run has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.confinement import Limits
from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Estimate
from cuebook.kernel.run import Budget

if TYPE_CHECKING:
    from cuebook.kernel.driver import Driver


NO_BUDGET = Budget()

SPENT = "budget_spent"
"""The failure of what was ended because the run's time was over, and must not be repeated by itself."""


class Over(msgspec.Struct, frozen=True):
    """Why a call may not be made yet."""

    code: str
    message: str


def over_budget(driver: Driver, effect: AskModel, estimate: Estimate | None) -> Over | None:
    """Why the call would break the run's budget, other calls under way included; None if it would not."""
    used, settings, budget = driver.row.totals, driver.settings, driver.settings.budget
    over = out_of_time(driver)
    if over is not None:
        return over
    if budget.tokens is None and budget.money is None:
        return None
    estimate = estimate or Estimate(0, 0, None)
    calls = [*driver.under_way.values(), estimate]
    tokens = used.tokens + sum(call.input_tokens + call.output_tokens for call in calls)
    if budget.tokens is not None and (tokens > budget.tokens or used.tokens >= budget.tokens):
        return Over("tokens", f"The next call may bring the run to {tokens} tokens; its budget is {budget.tokens}.")
    if budget.money is None:
        return None
    if estimate.cost is None and not settings.unknown_cost:
        model = settings.asked(effect.model)
        return Over("unknown_price", f"The price of {model} is not known, and the run has a budget of money.")
    most = used.cost + sum(call.cost or 0.0 for call in calls)
    if most > budget.money or used.cost >= budget.money > 0:
        words = f"The next call may bring the run to {money_words(most)}; its budget is {money_words(budget.money)}."
        return Over("money", words)
    return None


def money_words(cost: float) -> str:
    """Under a cent six decimals, otherwise four, as the Markdown format has it."""
    if cost == 0:
        return "$0"
    return f"${cost:.6f}" if cost < 0.01 else f"${cost:.4f}"


def out_of_time(driver: Driver) -> Over | None:
    """Why nothing more may be done: the steps or the time of the run are used up. None if they are not."""
    used, budget = driver.row.totals, driver.settings.budget
    if budget.steps is not None and used.steps_done >= budget.steps:
        return Over("steps", f"The budget of {budget.steps} steps is used up.")
    if budget.seconds is not None and driver.seconds >= budget.seconds:
        return Over("seconds", f"The budget of {budget.seconds:g} s is used up ({driver.seconds:.1f} s).")
    return None


def within_budget(driver: Driver, limits: Limits) -> Limits:
    """The limits of an effect, with no more time than the run has left."""
    budget = driver.settings.budget.seconds
    if budget is None:
        return limits
    left = max(0.0, budget - driver.seconds)
    return limits if limits.seconds <= left else msgspec.structs.replace(limits, seconds=left)


def cut_by_budget(driver: Driver, limits: Limits, allowed: float, failed: Failed) -> bool:
    """Whether it ran out of time earlier than it would have by itself, because the run's time was over."""
    shortened = failed.code == "timeout" and limits.seconds < allowed
    return shortened and driver.seconds >= (driver.settings.budget.seconds or 0.0)


def spent(driver: Driver, failed: Failed) -> Failed:
    """What becomes of an effect that was cut off and may have changed something: only a person can say what next."""
    budget = driver.settings.budget.seconds
    return msgspec.structs.replace(
        failed,
        code=SPENT,
        message=f"It was ended because the run's budget of {budget:g} s was used up while it was under way.",
        fix=f"See what it has done so far; `cuebook retry {driver.run_id}` does it again, and asks for more time before.",
        details={**failed.details, "budget": budget},
    )
