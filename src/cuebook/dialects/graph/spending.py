"""A node's own budget: what its model calls may use together, attempts and judges included."""

from __future__ import annotations

from typing import TypeVar

from cuebook.dialects import spending
from cuebook.dialects.graph.model import Node
from cuebook.dialects.spending import Spent
from cuebook.kernel.budgets import money_words
from cuebook.kernel.effects import Program
from cuebook.kernel.outcomes import Failed

T = TypeVar("T")

SPENT = "node_budget"
"""The code of a failure for want of budget."""


def within(program: Program[T], node: Node, tokens: int | None, money: float | None) -> Program[T]:
    """The same program; once the budget is used up, no model is asked any more. A call under way is not cut."""
    return spending.within(program, lambda spent, ask: _over(node, tokens, money, spent))


def _over(node: Node, tokens: int | None, money: float | None, spent: Spent) -> Failed | None:
    words = f"Node {node.id} has used up its budget"
    fix = "Raise it under x_cuebook."
    if tokens is not None and spent.tokens >= tokens:
        return Failed(SPENT, f"{words} of {tokens} tokens ({spent.tokens} used).", fix)
    if money is not None and spent.unknown:
        return Failed(SPENT, f"{words}: nobody knows what its calls cost.", "Give it a budget of tokens.")
    if money is not None and spent.money >= money:
        return Failed(SPENT, f"{words} of {money_words(money)} ({money_words(spent.money)} used).", fix)
    return None
