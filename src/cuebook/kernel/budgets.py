"""Budgets: checked before a model call against what it may use at most. A call under way is never cut for money."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.effects import AskModel
from cuebook.kernel.ports import Estimate

if TYPE_CHECKING:
    from cuebook.kernel.driver import Driver


class Over(msgspec.Struct, frozen=True):
    """Why a call may not be made yet."""

    code: str
    message: str


def over_budget(driver: Driver, effect: AskModel, estimate: Estimate | None) -> Over | None:
    """Why the call would break the run's budget, other calls under way included; None if it would not."""
    used, settings, budget = driver.row.totals, driver.settings, driver.settings.budget
    if budget.steps is not None and used.steps_done >= budget.steps:
        return Over("steps", f"The budget of {budget.steps} steps is used up.")
    if budget.seconds is not None and driver.seconds >= budget.seconds:
        return Over("seconds", f"The budget of {budget.seconds:g} s is used up ({driver.seconds:.1f} s).")
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
        model = effect.model or settings.model
        return Over("unknown_price", f"The price of {model} is not known, and the run has a budget of money.")
    most = used.cost + sum(call.cost or 0.0 for call in calls)
    if most > budget.money or used.cost >= budget.money > 0:
        return Over("money", f"The next call may bring the run to ${most:.4f}; its budget is ${budget.money:.4f}.")
    return None
