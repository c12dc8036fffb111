"""Budgets: checked before a model call against what it may use at most. A call under way is never cut for money."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.effects import AskModel
from cuebook.kernel.run import Settings, Totals

if TYPE_CHECKING:
    from cuebook.kernel.engine import Engine


class Over(msgspec.Struct, frozen=True):
    """Why a call may not be made yet."""

    code: str
    message: str


def over_budget(engine: Engine, used: Totals, settings: Settings, effect: AskModel) -> Over | None:
    budget = settings.budget
    if budget.steps is not None and used.steps_done >= budget.steps:
        return Over("steps", f"The budget of {budget.steps} steps is used up.")
    if budget.seconds is not None and used.seconds >= budget.seconds:
        return Over("seconds", f"The budget of {budget.seconds:g} s is used up ({used.seconds:.1f} s).")
    if budget.tokens is None and budget.money is None:
        return None
    estimate = engine.estimate(effect, settings)
    if estimate is None:
        return None
    tokens = used.tokens + estimate.input_tokens + estimate.output_tokens
    if budget.tokens is not None and tokens > budget.tokens:
        return Over("tokens", f"The next call may bring the run to {tokens} tokens; its budget is {budget.tokens}.")
    if budget.money is None:
        return None
    if estimate.cost is None:
        if settings.unknown_cost:
            return None
        model = effect.model or settings.model
        return Over("unknown_price", f"The price of {model} is not known, and the run has a budget of money.")
    if used.cost + estimate.cost > budget.money:
        most = used.cost + estimate.cost
        return Over("money", f"The next call may bring the run to ${most:.4f}; its budget is ${budget.money:.4f}.")
    return None
