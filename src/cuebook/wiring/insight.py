"""What a server or worker tells its operators: logs, metrics and traces, as the configuration says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import cuebook
from cuebook.formats.words import with_extra
from cuebook.kernel.errors import BadInput
from cuebook.service.service import Service
from cuebook.system.logs import OURS, logging_to
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.service.insight.meters import Meters
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
        exports = wiring.config.get("otel.endpoint") is not None
        meters = _meters(service, stack) if collects or exports else None
        if exports and meters is not None:
            await stack.enter_async_context(_exported(wiring, service, meters))
        yield service.metrics(meters, cuebook.__version__) if collects and meters is not None else None


@asynccontextmanager
async def traced(wiring: Wiring, service: Service) -> AsyncIterator[None]:
    """Sends the traces of a command that drives a run itself."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_exported(wiring, service, _meters(service, stack)))
        yield


def _meters(service: Service, stack: AsyncExitStack) -> Meters:
    from cuebook.service.insight.meters import Meters
    from cuebook.service.insight.metrics import CountingHandler

    meters = Meters(service.driven_row)
    stack.callback(service.observe(meters.see))
    handler, log = CountingHandler(meters), logging.getLogger(OURS)
    log.addHandler(handler)
    stack.callback(log.removeHandler, handler)
    return meters


@asynccontextmanager
async def _exported(wiring: Wiring, service: Service, meters: Meters) -> AsyncIterator[None]:
    """Sends traces and metrics to the collector."""
    headers = collector_headers(wiring)
    from cuebook.service.insight.otlp import Otlp

    config = wiring.config
    otlp = Otlp(config.get("otel.endpoint"), headers, cuebook.__version__, meters)
    stop = service.observe(otlp.traces(service.sight, texts=config.get("otel.texts")).see)
    try:
        yield
    finally:
        stop()
        await otlp.close()


def collector_headers(wiring: Wiring) -> dict[str, str]:
    """The headers for the collector. Raises `BadInput` if nothing could be sent to it."""
    config = wiring.config
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    except ImportError:
        where = config.origin("otel.endpoint")
        missing = f"{where}: otel.endpoint needs OpenTelemetry, which is not installed."
        raise BadInput(missing, fix=with_extra("otel")) from None
    from cuebook.service.insight.otlp import headers_of

    handle = config.get("otel.headers")
    return headers_of(wiring.factory.vault.resolve(handle)) if handle else {}
