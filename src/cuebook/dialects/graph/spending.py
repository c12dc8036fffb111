"""A node's own budget: what its model calls may use together, attempts and judges included."""

from __future__ import annotations

from typing import Any, TypeVar

from cuebook.dialects.graph.model import Node
from cuebook.kernel.effects import All, AskModel, EffectFailed, Failed, Program, Reply

T = TypeVar("T")

SPENT = "node_budget"
"""The code of a failure for want of budget."""


def within(program: Program[T], node: Node, tokens: int | None, money: float | None) -> Program[T]:
    """The same program; once the budget is used up, no model is asked any more. A call under way is not cut."""
    used, cost, unknown = 0, 0.0, False
    send: Any = None
    throw: BaseException | None = None
    while True:
        try:
            asked = program.send(send) if throw is None else program.throw(throw)
        except StopIteration as stop:
            result: T = stop.value
            return result
        send = throw = None
        if _asks(asked):
            over = _over(node, tokens, money, used, cost, unknown)
            if over is not None:
                throw = EffectFailed(over)
                continue
        try:
            send = yield asked
        except GeneratorExit:
            program.close()
            raise
        except BaseException as error:
            throw = error
            continue
        for outcome in send if isinstance(send, tuple) else (send,):
            if isinstance(outcome, Reply):
                used += outcome.usage.input + outcome.usage.output
                cost += outcome.usage.cost or 0.0
                unknown = unknown or outcome.usage.cost is None


def _asks(asked: Any) -> bool:
    every = asked.branches if isinstance(asked, All) else (asked,)
    return any(isinstance(one, AskModel) for one in every)


def _over(node: Node, tokens: int | None, money: float | None, used: int, cost: float, unknown: bool) -> Failed | None:
    words = f"Node {node.id} has used up its budget"
    fix = "Raise it under x_cuebook."
    if tokens is not None and used >= tokens:
        return Failed(SPENT, f"{words} of {tokens} tokens ({used} used).", fix)
    if money is not None and unknown:
        return Failed(SPENT, f"{words}: nobody knows what its calls cost.", "Give it a budget of tokens.")
    if money is not None and cost >= money:
        return Failed(SPENT, f"{words} of ${money:g} (${cost:.4f} used).", fix)
    return None
