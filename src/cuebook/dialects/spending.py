"""What a part of a program has used of models, and an end to its questions once that is too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.listening import listening
from cuebook.kernel.effects import All, AskModel, Program
from cuebook.kernel.outcomes import Failed, Reply

T = TypeVar("T")


class Spent(msgspec.Struct):
    tokens: int = 0
    money: float = 0.0
    unknown: bool = False
    """Whether nobody knows what some call cost."""

    def add(self, reply: Reply) -> None:
        self.tokens += reply.usage.input + reply.usage.output
        self.money += reply.usage.cost or 0.0
        self.unknown = self.unknown or reply.usage.cost is None


Over = Callable[[Spent, AskModel], Failed | None]
"""Why a model may not be asked this any more, or None."""


def within(program: Program[T], over: Over) -> Program[T]:
    """The same program; once `over` says why, no model is asked any more. A call under way is not cut."""
    spent = Spent()

    def asks(asked: Any) -> Any:
        reasons = (over(spent, ask) for ask in _asks(asked))
        return next((reason for reason in reasons if reason is not None), asked)

    def told(asked: Any, outcome: Any) -> None:
        for one in outcome if isinstance(outcome, tuple) else (outcome,):
            if isinstance(one, Reply):
                spent.add(one)

    return listening(program, asks, told)


def _asks(asked: Any) -> list[AskModel]:
    every = asked.branches if isinstance(asked, All) else (asked,)
    return [one for one in every if isinstance(one, AskModel)]
