"""Programs of one's own: Python functions that yield effects, run, kept and gated like every playbook."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects import registry
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import Program
from cuebook.kernel.engine import Observer
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.models.port import Model
from cuebook.service import ID_LETTERS, Principal, Service
from cuebook.surfaces.python import Result, Session, Tools, Where
from cuebook.surfaces.wiring import Wiring

PROGRAM = "python"
"""What stands for the dialect of a run whose program is a Python function."""

Written: TypeAlias = Callable[[dict[str, Any]], Program[Any]]
"""A function of its inputs that yields effects and receives their outcomes."""


class Programs:
    """Runs of Python functions, by their names.

    async with Programs(deploy) as programs:
        row = await programs.start("deploy", {"version": "1.2"})
        row = await programs.finish(row.id)

    A run keeps the function's name, not its code: whoever drives it must have the same function. While a run waits, its
    process may end; with the same functions and the same store, another one goes on with it.
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
        self._session = Session(model, tools, store, None, on_event)
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
        """What is configured, with changes."""
        return msgspec.structs.replace(self._wiring.settings(), **changes)

    async def start(
        self, name: str, inputs: Mapping[str, Any] | None = None, who: Principal = Principal(), **settings: Any
    ) -> RunRow:
        """Creates a run; `service.drive` or `finish` takes it from there."""
        who.require("runner", "start runs")
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(self._functions) or "none"
            raise NotFound(f"There is no program '{name}' here.", fix=f"There are: {known}.")
        engine = self.service.engine
        now, text = engine.clock(), _source_of(function)
        chosen = self.settings(**settings)
        row = RunRow(
            id="".join(secrets.choice(ID_LETTERS) for _ in range(10)),
            tenant=who.tenant,
            owner=who.name,
            dialect=PROGRAM,
            interpreter=1,
            playbook=digest_of(text),
            name=name,
            created=now,
            updated=now,
            model=chosen.model,
        )
        policy = (await self.service.policy(who)).snapshot()
        await engine.start(row, text, dict(inputs or {}), chosen, policy)
        return row

    async def finish(self, run: str, *, every: float = 0.2) -> RunRow:
        """Drives a run to its end. Whenever it waits, this waits for someone to decide, here or at the command line."""
        service = self.service
        while True:
            row = await service.drive(run)
            if row.status in ENDED:
                return row
            while run not in await service.store.ready(service.engine.clock(), service.engine.driver):
                await asyncio.sleep(every)
                await service.store.expire(service.engine.clock())

    async def result(self, run: str) -> Result:
        return await self._session.result(self.service, run)

    def _program(self, row: RunRow, text: str, inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
        if row.dialect != PROGRAM:
            dialect = registry.named(row.dialect)
            return dialect.start(dialect.parse(text, row.name), inputs, row.interpreter)
        function = self._functions.get(row.name)
        if function is None:
            raise NotFound(f"There is no program '{row.name}' here.", fix="Give its function to Programs.")
        return lambda state: function(inputs)


def _source_of(function: Written) -> str:
    """What a run keeps as the text it was started from."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}:{function.__qualname__}\n"
