"""What a server or worker tells its operators: logs, metrics and traces, as the configuration says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from cuebook.service.service import Service
from cuebook.system.logs import logging_to
from cuebook.wiring.wiring import Wiring


@contextmanager
def logging_of(wiring: Wiring) -> Iterator[None]:
    """Writes the logs of this process to stderr."""
    config = wiring.config
    with logging_to(level=config.get("log.level"), form=config.get("log.format"), masked=wiring.factory.redactor.value):
        yield


@asynccontextmanager
async def insight(wiring: Wiring, service: Service) -> AsyncIterator[None]:
    """Observes the runs of this process while the context is open."""
    async with AsyncExitStack() as stack:
        if logging.getLogger("cuebook.runs").isEnabledFor(logging.WARNING):
            from cuebook.service.insight.run_log import RunLog

            stack.callback(service.observe(RunLog(service.driven_row).see))
        yield
