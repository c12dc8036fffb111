"""The runtime contract in the Python API: requests in, envelopes out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from cuebook.kernel.engine.engine import Observer
from cuebook.kernel.errors import Refused
from cuebook.performers.models.model import Model
from cuebook.service.contract import runtime
from cuebook.service.contract.envelope import Envelope
from cuebook.service.service import Principal, Service
from cuebook.surfaces.python.results import Session, Tools, Where
from cuebook.wiring.wiring import Wiring


class Runtime:
    """Handles requests with the configured service.

    async with Runtime() as runtime:
        envelope = await runtime.handle({"action": "run", "pipeline": text})

    A run whose caller has stopped waiting (`waitMs`) continues in this process. Leaving the block releases it, and it can be
    resumed where it stopped; `finished` waits for it.
    """

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        tools: Tools = (),
        store: Where = None,
        on_event: Observer | None = None,
    ) -> None:
        self._session = Session(model, tools, store, on_event)
        self._opened: AbstractAsyncContextManager[tuple[Service, Wiring]] | None = None
        self._parts: tuple[Service, runtime.Runtime] | None = None

    async def __aenter__(self) -> Runtime:
        self._opened = self._session.opened()
        service, wiring = await self._opened.__aenter__()
        self._parts = service, wiring.runtime(service)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None and self._parts is not None:
            (_, running), self._parts = self._parts, None
            await running.close()
            await self._opened.__aexit__(kind, error, trace)

    @property
    def service(self) -> Service:
        return self._within()[0]

    async def handle(
        self, request: Mapping[str, Any] | str, who: Principal = Principal(), *, strict: bool = False
    ) -> Envelope:
        """Handle a request. Raises `InvalidRequest`, with the code `invalid_request`, for a malformed one."""
        return await self._within()[1].handle(request, who, strict=strict)

    async def finished(self) -> None:
        """Wait until every run in this process has ended or is waiting for a person."""
        await self._within()[1].finished()

    def _within(self) -> tuple[Service, runtime.Runtime]:
        if self._parts is None:
            raise Refused("This runtime is not open.", fix="Use it within `async with cuebook.Runtime() as runtime:`.")
        return self._parts
