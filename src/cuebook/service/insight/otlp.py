"""Sends traces and metrics to a collector over OTLP, from threads of their own.

A collector that is slow or gone costs a run nothing: spans wait in a bounded queue, and what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cuebook.kernel.outcomes import Usage
from cuebook.service.insight.meters import Counter, Meters
from cuebook.service.insight.metrics import COUNTERS

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

    from cuebook.service.insight.sight import Sight
    from cuebook.service.insight.traces import Traces

_TIMEOUT = 5.0
"""Seconds that the collector has to take a batch."""
_AGAIN = 600.0
"""Seconds until the log says again that the collector cannot be reached."""
_PARTING = 1.5
"""Seconds to send what is left when the process ends."""
_DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
"""The bounds that the conventions recommend."""
_OF_CALLS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "error.type",
)
"""The attributes of a call's span that its measurements have too."""


class Otlp:
    """The exporters of one process."""

    def __init__(
        self, endpoint: str, headers: Mapping[str, str], version: str, meters: Meters, *, every: float = 30.0
    ) -> None:
        """Metrics are sent `every` so many seconds."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from cuebook.service.insight.traces import RunIds

        for signal in ("trace", "metric"):
            logging.getLogger(f"{OTLPSpanExporter.__module__.rpartition('.')[0]}.{signal}_exporter").addFilter(_SELDOM)
        resource = Resource.create({"service.version": version, **_service()})
        self._ids = RunIds()
        given = dict(headers)
        spans = OTLPSpanExporter(f"{endpoint}/v1/traces", headers=given, timeout=_TIMEOUT)
        self._tracing = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(spans))
        numbers = OTLPMetricExporter(f"{endpoint}/v1/metrics", headers=given, timeout=_TIMEOUT)
        reader = PeriodicExportingMetricReader(numbers, every * 1000, _TIMEOUT * 1000)
        self._metering = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._metering.get_meter("cuebook", version)
        self._tracer = self._tracing.get_tracer("cuebook", version)
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "", explicit_bucket_boundaries_advisory=_DURATIONS
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "", explicit_bucket_boundaries_advisory=_TOKENS
        )
        for field, (name, help) in COUNTERS.items():
            meter.create_observable_counter(f"cuebook.{name}", [_observed(getattr(meters, field))], "", help)

    def traces(self, sight: Callable[[str], Sight | None], *, texts: bool = False) -> Traces:
        from cuebook.service.insight.traces import Traces

        sampler = self._tracing.sampler
        return Traces(self._tracer, self._ids, sampler, sight, texts=texts, measure=self._measure)

    def _measure(self, attributes: Mapping[str, Any], seconds: float, usage: Usage | None) -> None:
        about = {name: attributes[name] for name in _OF_CALLS if name in attributes}
        self._seconds.record(seconds, about)
        if usage is not None:
            self._tokens.record(usage.input, {**about, "gen_ai.token.type": "input"})
            self._tokens.record(usage.output, {**about, "gen_ai.token.type": "output"})

    async def close(self) -> None:
        """Sends what is left, if the collector takes it in time."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def finish() -> None:
            for provider in (self._tracing, self._metering):
                with suppress(Exception):
                    provider.shutdown()
            with suppress(RuntimeError):  # the loop did not wait
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=finish, name="cuebook-otlp", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                await done.wait()


class _Seldom(logging.Filter):
    """Says once in ten minutes that a collector cannot be reached, instead of with every attempt to send something."""

    def __init__(self) -> None:
        super().__init__()
        self._said = -_AGAIN

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or record.created - self._said < _AGAIN:
            return False
        self._said = record.created
        record.msg, record.args = "Traces or metrics could not be sent to the collector (otel.endpoint).", None
        return True


_SELDOM = _Seldom()


def _service() -> dict[str, str]:
    """The name of the service, unless the environment names it."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if named else {"service.name": "cuebook"}


def _observed(counter: Counter) -> Callable[[CallbackOptions], list[Observation]]:
    """A callback with the numbers of a counter, which another thread calls."""

    def observe(options: CallbackOptions) -> list[Observation]:
        from opentelemetry.metrics import Observation

        values = list(counter.values.items())
        return [Observation(value, dict(zip(counter.labels, labels, strict=True))) for labels, value in values]

    return observe


def headers_of(text: str) -> dict[str, str]:
    """The headers in `NAME=VALUE,NAME=VALUE`, as OpenTelemetry writes them."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
