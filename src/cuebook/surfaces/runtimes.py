"""The runtime contract from Python: requests in, envelopes out, as the command line and others have them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from cuebook import runtime
from cuebook.envelope import Envelope
from cuebook.kernel.engine import Observer
from cuebook.kernel.errors import Refused
from cuebook.performers.models.port import Model
from cuebook.service import Principal, Service
from cuebook.surfaces.results import Session, Tools, Where
from cuebook.surfaces.wiring import Wiring


class Runtime:
    """Answers requests, over what is configured.

    async with Runtime() as runtime:
        envelope = await runtime.handle({"action": "run", "pipeline": text})

    A run whose caller waits no longer (`waitMs`) goes on in this process. Leaving the block lets go of it, and it can be
    taken up again where it stopped; `finished` waits for it.
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
        """Does what is asked. `InvalidRequest`, with the code `invalid_request`, for what is no request at all."""
        return await self._within()[1].handle(request, who, strict=strict)

    async def finished(self) -> None:
        """Waits until every run that goes on here waits for someone or has ended."""
        await self._within()[1].finished()

    def _within(self) -> tuple[Service, runtime.Runtime]:
        if self._parts is None:
            raise Refused("This runtime is not open.", fix="Use it within `async with cuebook.Runtime() as runtime:`.")
        return self._parts
