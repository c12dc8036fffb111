"""A program within another: everything it asks and everything it is told passes by, and may be answered by a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cuebook.kernel.effects import Program
from cuebook.kernel.outcomes import EffectFailed, Failed

T = TypeVar("T")


def listening(program: Program[T], asks: Callable[[Any], Any], told: Callable[[Any, Any], Failed | None]) -> Program[T]:
    """The same program. `asks` gives what is really asked, or the failure that comes instead; `told` sees what was asked
    with its outcome, and may make a failure of that.
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
        really = asks(asked)
        failed = really if isinstance(really, Failed) else None
        if failed is None:
            try:
                send = yield really
            except GeneratorExit:
                program.close()
                raise
            except BaseException as error:
                throw = error
                continue
            failed = told(asked, send)
        if failed is not None:
            throw = EffectFailed(failed)
