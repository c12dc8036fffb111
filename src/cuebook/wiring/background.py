"""Everything that a server or worker does in addition to driving runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from cuebook.kernel.triggers import NAMED_TRIGGERS
from cuebook.service.job_runner import Handler
from cuebook.service.service import Service

if TYPE_CHECKING:
    from cuebook.wiring.wiring import Wiring


@asynccontextmanager
async def background(wiring: Wiring, service: Service) -> AsyncIterator[None]:
    """Removes old runs as `[retention]` says, does the jobs that are due, and continues runs whose key has been changed."""
    from cuebook.wiring.triggers import administration_of, clock_watched, events_watched

    triggers = administration_of(wiring, service)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_retention(wiring, service))
        messages = [wiring.notifier(service).delivery.refit] if service.notifies else []
        await stack.enter_async_context(clock_watched(service, [triggers.schedules.refit, *messages]))
        await stack.enter_async_context(events_watched(service, triggers))
        await stack.enter_async_context(service.key_waits.watched(wiring.providers.may_try))
        await stack.enter_async_context(_jobs(service, dict.fromkeys(NAMED_TRIGGERS, triggers.handle)))
        await stack.enter_async_context(delivering(wiring, service))
        yield


def delivering(wiring: Wiring, service: Service) -> AbstractAsyncContextManager[None]:
    """Delivers messages until the end of the block, apart from other jobs, because receivers may be slow."""
    return _jobs(service, wiring.notifier(service).handlers if service.notifies else {})


@asynccontextmanager
async def _jobs(service: Service, handlers: Mapping[str, Handler]) -> AsyncIterator[None]:
    if not handlers:
        yield
        return
    runner = service.job_runner(handlers)
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _retention(wiring: Wiring, service: Service) -> AbstractAsyncContextManager[None]:
    from cuebook.service.retention import Criteria
    from cuebook.service.retention.automatic import automatic

    names = ("older_than", "status", "playbook", "larger_than", "keep")
    given = {name: wiring.config.get(f"retention.{name}") for name in names}
    criteria = Criteria(**{**given, "playbook": given["playbook"] or ""})
    sensitive = wiring.config.get("retention.sensitive")
    return automatic(service, criteria, contents=wiring.config.get("retention.contents"), sensitive=sensitive)
