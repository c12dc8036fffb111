"""Budgets as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cuebook.formats.words import counted
from cuebook.kernel.engine.budget import money_words
from cuebook.service.budgets.administration import BudgetState, LimitState


def budget_object(state: BudgetState, waiting: Sequence[str] = ()) -> dict[str, Any]:
    """A budget as data; `waiting` are the runs that wait for it."""
    budget = state.budget
    return {
        "name": budget.name,
        "day": budget.day,
        "month": budget.month,
        "day_tokens": budget.day_tokens,
        "month_tokens": budget.month_tokens,
        "soft": budget.soft,
        "unknown_cost": budget.unknown_cost,
        "by": budget.by,
        "changed": budget.changed,
        "periods": [_period(one) for one in state.limits],
        "waiting": list(waiting),
    }


def _period(one: LimitState) -> dict[str, Any]:
    """A limit with what is used of it. `held` is the most that calls may cost whose outcome is not known (yet)."""
    used = one.used
    return {
        "period": one.period,
        "name": one.name,
        "person": one.person,
        "money": one.money,
        "money_used": round(used.cost, 9),
        "money_held": round(max(0.0, used.held), 9),
        "money_left": None if one.money_left is None else round(one.money_left, 9),
        "unknown_costs": max(0, used.unknown_costs),
        "tokens": one.tokens,
        "tokens_used": used.tokens,
        "tokens_held": max(0, used.held_tokens),
        "tokens_left": one.tokens_left,
        "ends": one.ends,
    }


def limit_cells(one: LimitState) -> Iterator[tuple[str, str, str]]:
    """What is used, the limit, and what is left, in words: for money and for tokens."""
    used = one.used
    if one.money is not None and one.money_left is not None:
        parts = [money_words(used.cost)]
        if used.held > 1e-9:
            parts.append(f"up to {money_words(used.held)} of unknown cost")
        elif used.unknown_costs > 0:
            parts.append(f"{counted(used.unknown_costs, 'call')} of unknown cost")
        yield " + ".join(parts), money_words(one.money), money_words(one.money_left)
    if one.tokens is not None and one.tokens_left is not None:
        held = f" + up to {used.held_tokens:,}" if used.held_tokens > 0 else ""
        yield f"{used.tokens:,}{held} tokens", f"{one.tokens:,} tokens", f"{one.tokens_left:,} tokens"
