"""Python programs: functions that yield effects, with the same journal and gate as playbooks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from cuebook.kernel.effects import Program
from cuebook.kernel.engine.engine import Observer
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.models.model import Model
from cuebook.service.service import Principal, Service
from cuebook.surfaces.python.results import Result, Session, Tools, Where
from cuebook.wiring.wiring import Wiring

Written: TypeAlias = Callable[[dict[str, Any]], Program[Any]]
"""A function of its inputs that yields effects and receives their outcomes."""


class Programs:
    """Runs Python functions by name.

    async with Programs(deploy) as programs:
        row = await programs.start("deploy", {"version": "1.2"})
        row = await programs.finish(row.id)

    A run stores the function's name, not its code: the process that drives it must have the same function. While a run is
    waiting, its process may exit; another process with the same functions and the same store can continue it.
    """

    def __init__(
        self,
        *functions: Written,
        model: str | Model | None = None,
        tools: Tools = (),
        store: Where = None,
        on_event: Observer | None = None,
    ) -> None:
        self._functions = {function.__name__: function for function in functions}
        self._session = Session(model, tools, store, on_event)
        self._opened: AbstractAsyncContextManager[tuple[Service, Wiring]] | None = None
        self.service: Service
        self._wiring: Wiring

    async def __aenter__(self) -> Programs:
        self._opened = self._session.opened(self._program)
        self.service, self._wiring = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    def settings(self, **changes: Any) -> Settings:
        """The configured settings, with changes."""
        return msgspec.structs.replace(self._wiring.settings(), **changes)

    async def start(
        self, name: str, inputs: Mapping[str, Any] | None = None, who: Principal = Principal(), **settings: Any
    ) -> RunRow:
        """Create a run without driving it; `service.drive` and `finish` drive it."""
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(self._functions) or "none"
            raise NotFound(f"Unknown program '{name}'.", fix=f"Known programs: {known}.")
        settings_now = self.settings(**settings)
        return await self.service.start_program(_source_of(function), name, inputs or {}, settings_now, who)

    async def finish(self, run: str, *, every: float = 0.2) -> RunRow:
        """Drive a run to its end. If it is waiting, wait until someone decides, here or at the command line."""
        service = self.service
        while True:
            row = await service.drive(run)
            if row.status in ENDED:
                return row
            while not await service.is_due(run):  # noqa: ASYNC110 - others may change the store
                await asyncio.sleep(every)

    async def result(self, run: str) -> Result:
        return await self._session.result(self.service, run)

    def _program(
        self, row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        function = self._functions.get(row.name)
        if function is None:
            raise NotFound(f"Unknown program '{row.name}'.", fix="Pass its function to Programs.")
        return lambda state: function(inputs)


def _source_of(function: Written) -> str:
    """The source code that a run stores as its text."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}:{function.__qualname__}\n"
