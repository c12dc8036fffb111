"""An event loop without real time or outside events, for `child`. It imports no other Cuebook modules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class _Nothing:
    """Replaces the loop's selector, since there is no input. Timers fire at once; without any, nothing can continue."""

    def __init__(self, standstill: type[BaseException]) -> None:
        self.passed = 0.0
        self._standstill = standstill

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise self._standstill
        self.passed += max(0.0, timeout)
        return []


class Loop(asyncio.BaseEventLoop):
    def __init__(self, standstill: type[BaseException]) -> None:
        super().__init__()
        self._selector = _Nothing(standstill)

    def time(self) -> float:
        return self._selector.passed

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Runs the function at once, because threads could finish in any order."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def started(standstill: type[BaseException]) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """The function that runs a coroutine, and the awaitable of an open call."""
    loop = Loop(standstill)
    asyncio.set_event_loop(loop)
    return loop.run_until_complete, loop.create_future
