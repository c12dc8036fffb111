"""Wraps a program so that its effects and outcomes can be intercepted, for example to limit its model calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cuebook.kernel.effects import All, AskModel, Program
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

    def add(self, reply: Reply) -> None:
        self.tokens += reply.usage.input + reply.usage.output
        self.money += reply.usage.cost or 0.0
        self.unknown = self.unknown or reply.usage.cost is None


Over = Callable[[Spent, AskModel], Failed | None]
"""The failure that replaces a model call, or None if the call is allowed."""


def limited(program: Program[T], over: Over) -> Program[T]:
    """Runs a program whose model calls fail once `over` returns a failure. A call in progress is not interrupted."""
    spent = Spent()

    def before(asked: Any) -> Any:
        reasons = (over(spent, ask) for ask in _asks(asked))
        return next((reason for reason in reasons if reason is not None), asked)

    def after(asked: Any, outcome: Any) -> None:
        for one in outcome if isinstance(outcome, tuple) else (outcome,):
            if isinstance(one, Reply):
                spent.add(one)

    return intercepted(program, before, after)


def _asks(asked: Any) -> list[AskModel]:
    every = asked.branches if isinstance(asked, All) else (asked,)
    return [one for one in every if isinstance(one, AskModel)]
