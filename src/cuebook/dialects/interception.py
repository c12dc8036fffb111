"""Wraps a program so that its effects and outcomes can be intercepted, for example to limit its model calls."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

import msgspec

from cuebook.kernel.conversation.subagents import Spending, spending_of
from cuebook.kernel.effects import All, AskModel, Branch, Effect, Program
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply

T = TypeVar("T")


def intercepted(
    program: Program[T], before: Callable[[Any], Any], after: Callable[[Any, Any], Failed | None]
) -> Program[T]:
    """Runs a program. `before` returns the effect to yield, or a failure that replaces it. `after` receives the effect
    and its outcome, and may return a failure that replaces the outcome.
    """
    send: Any = None
    throw: BaseException | None = None
    while True:
        try:
            asked = program.send(send) if throw is None else program.throw(throw)
        except StopIteration as stop:
            result: T = stop.value
            return result
        send = throw = None
        effect = before(asked)
        failed = effect if isinstance(effect, Failed) else None
        if failed is None:
            try:
                send = yield effect
            except GeneratorExit:
                program.close()
                raise
            except BaseException as error:
                throw = error
                continue
            failed = after(asked, send)
        if failed is not None:
            throw = EffectFailed(failed)


# --- model budgets ------------------------------------------------------------------------------------------


class Spent(msgspec.Struct):
    tokens: int = 0
    money: float = 0.0
    unknown: bool = False
    """Whether the cost of any call is unknown."""
    last_tokens: int = 0
    last_money: float = 0.0
    """The last call alone."""

    def add(self, reply: Reply) -> None:
        self.last_tokens, self.last_money = reply.usage.input + reply.usage.output, reply.usage.cost or 0.0
        self.tokens += self.last_tokens
        self.money += self.last_money
        self.unknown = self.unknown or reply.usage.cost is None

    def add_report(self, spending: Spending) -> None:
        self.tokens += spending.tokens
        self.money += spending.money
        self.unknown = self.unknown or spending.unknown


Over = Callable[[Spent, AskModel], Failed | None]
"""The failure that replaces a model call, or None if the call is allowed."""


def limited(program: Program[T], over: Over, begun: Spent | None = None) -> Program[T]:
    """Runs a program whose model calls fail once `over` returns a failure. A call in progress is not interrupted.

    A branch counts from what was spent when it began, so that its path does not depend on its siblings. What a sub-agent
    has spent counts once it has finished.
    """
    spent = Spent() if begun is None else copy(begun)

    def before(asked: Any) -> Any:
        reasons = (over(spent, ask) for ask in _asks(asked))
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason is not None or not isinstance(asked, All):
            return asked if reason is None else reason
        branches = tuple(_limited_branch(one, over, spent) for one in asked.branches)
        return msgspec.structs.replace(asked, branches=branches)

    def after(asked: Any, outcome: Any) -> None:
        for one in outcome if isinstance(outcome, tuple) else (outcome,):
            if isinstance(one, Reply):
                spent.add(one)
            elif (spending := spending_of(one)) is not None:
                spent.add_report(spending)

    return intercepted(program, before, after)


def _limited_branch(branch: Effect | Branch, over: Over, spent: Spent) -> Effect | Branch:
    if not isinstance(branch, Branch):
        return branch
    start, begun = branch.start, copy(spent)
    return Branch(lambda state: limited(start(state), over, begun))


def _asks(asked: Any) -> list[AskModel]:
    every = asked.branches if isinstance(asked, All) else (asked,)
    return [one for one in every if isinstance(one, AskModel)]
