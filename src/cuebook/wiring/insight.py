"""What a server or worker tells its operators: logs, metrics and traces, as the configuration says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import cuebook
from cuebook.service.service import Service
from cuebook.system.logs import OURS, logging_to
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.service.insight.metrics import Metrics


@contextmanager
def logging_of(wiring: Wiring) -> Iterator[None]:
    """Writes the logs of this process to stderr."""
    config = wiring.config
    with logging_to(level=config.get("log.level"), form=config.get("log.format"), masked=wiring.factory.redactor.value):
        yield


@asynccontextmanager
async def insight(wiring: Wiring, service: Service, *, serves: bool = False) -> AsyncIterator[Metrics | None]:
    """Observes the runs of this process while the context is open."""
    async with AsyncExitStack() as stack:
        if logging.getLogger("cuebook.runs").isEnabledFor(logging.WARNING):
            from cuebook.service.insight.run_log import RunLog

            stack.callback(service.observe(RunLog(service.driven_row).see))
        collects = serves or wiring.config.get("metrics.address") is not None
        yield _metrics(service, stack) if collects else None


def _metrics(service: Service, stack: AsyncExitStack) -> Metrics:
    from cuebook.service.insight.meters import Meters
    from cuebook.service.insight.metrics import CountingHandler

    meters = Meters(service.driven_row)
    stack.callback(service.observe(meters.see))
    handler, log = CountingHandler(meters), logging.getLogger(OURS)
    log.addHandler(handler)
    stack.callback(log.removeHandler, handler)
    return service.metrics(meters, cuebook.__version__)
