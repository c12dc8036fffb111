"""Wraps a program so that its effects and outcomes can be intercepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cuebook.kernel.effects import Program
from cuebook.kernel.outcomes import EffectFailed, Failed

T = TypeVar("T")


class Instead(msgspec.Struct, frozen=True):
    """An outcome that replaces an effect, which is not performed."""

    outcome: Any


def intercepted(
    program: Program[T],
    before: Callable[[Any], Any],
    after: Callable[[Any, Any], Failed | None],
    failing: Callable[[Failed], None] = lambda failed: None,
) -> Program[T]:
    """Runs a program. `before` returns the effect to yield, `Instead` of it an outcome, or a failure that replaces it. `after`
    receives the effect and its outcome, and may return a failure that replaces the outcome. `failing` sees the failures of
    effects.
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
        if isinstance(effect, Instead):
            send = effect.outcome
            continue
        failed = effect if isinstance(effect, Failed) else None
        if failed is None:
            try:
                send = yield effect
            except GeneratorExit:
                program.close()
                raise
            except BaseException as error:
                if isinstance(error, EffectFailed):
                    failing(error.failed)
                throw = error
                continue
            failed = after(asked, send)
        if failed is not None:
            throw = EffectFailed(failed)
