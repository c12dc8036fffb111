"""The metrics of a process as Prometheus reads them: what `Meters` counted, what the store contains, and the process itself.

Labels have few values: never a run, a person or a tenant.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import RunStatus
from cuebook.kernel.ports import Store, Tally
from cuebook.service.insight.meters import Counter, Histogram, Meters
from cuebook.system.logs import event_of

if TYPE_CHECKING:
    from prometheus_client.core import CollectorRegistry, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTED_EVERY = 5.0
"""Seconds between two counts of the store, however often it is scraped."""
_PATIENCE = 5.0
"""Seconds that the store has to count."""
_STATUSES: tuple[RunStatus, ...] = (
    "pending", "running", "paused", "awaiting_input", "awaiting_approval", "completed", "failed", "cancelled", "expired",
)  # fmt: skip

COUNTERS = {
    "started": ("runs_started", "Runs that this process created, by what started them."),
    "ended": ("runs_ended", "Runs that ended while this process drove them."),
    "drives": ("drives", "How often this process began to drive a run."),
    "suspended": ("runs_suspended", "How often a run of this process began to wait, by its status then."),
    "steps": ("steps", "Steps that ended."),
    "effects": ("effects", "Effects that were performed, by kind and outcome."),
    "calls": ("model_calls", "Model calls that were answered."),
    "tokens": ("model_tokens", "Tokens; cached ones are part of the input, reasoning ones part of the output."),
    "cost": ("model_cost_dollars", "US dollars, for calls whose cost is known."),
    "unknown_costs": ("model_unknown_costs", "Model calls whose cost is unknown; it is not in the dollars."),
    "attempts": ("model_attempts_failed", "Attempts of a provider that failed and were repeated, by reason."),
    "fallbacks": (
        "model_fallbacks",
        "Model calls that went to the next model of a chain, by the provider that failed.",
    ),
    "limited": ("model_calls_limited", "Model calls that waited for a limit of their provider."),
    "waits_opened": ("waits_opened", "Waits that were opened, by kind."),
    "waits_closed": ("waits_closed", "Waits that ended, by kind and how."),
    "events": ("log_events", "Events in the log, such as sign_in.refused, at its level."),
    "messages": ("log_messages", "Other lines in the log, by level."),
    "job_failures": ("job_failures", "Jobs that failed and will be tried again, by kind."),
}
"""The counters of `Meters`, each with its name and what it means."""
_HISTOGRAMS = {
    "run_seconds": ("run_seconds", "Working time of runs that ended, without waits."),
    "step_seconds": ("step_seconds", "Working time of steps that ended."),
    "effect_seconds": ("effect_seconds", "Duration of effects, by kind."),
    "commit_seconds": ("store_commit_seconds", "How long it took until records were durable."),
}


class Metrics:
    """The metrics of one process."""

    def __init__(self, meters: Meters, store: Store, version: str) -> None:
        self._meters = meters
        self._store = store
        self._version = version
        self._counting: asyncio.Task[Tally | None] | None = None
        self._counted_at = 0.0
        self._took = 0.0
        self._registry: CollectorRegistry | None = None
        self._tally: Tally | None = None

    async def text(self) -> bytes:
        """The metrics now. A store that does not answer is a metric too."""
        from prometheus_client.exposition import generate_latest

        self._tally = await self._counted()
        return generate_latest(self._registered())

    def collect(self) -> Iterator[Metric]:
        """For the registry of `prometheus_client`."""
        from prometheus_client.core import GaugeMetricFamily

        info = GaugeMetricFamily("cuebook_info", "The version of this process.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        for field, (name, help) in COUNTERS.items():
            yield _counter(f"cuebook_{name}", help, getattr(self._meters, field))
        for field, (name, help) in _HISTOGRAMS.items():
            yield _histogram(f"cuebook_{name}", help, getattr(self._meters, field))
        up = "Whether the store answered in time."
        yield GaugeMetricFamily("cuebook_store_up", up, value=float(self._tally is not None))
        if self._tally is not None:
            yield from self._of_store(self._tally)

    def _of_store(self, tally: Tally) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        def gauge(name: str, help: str, label: str, values: dict[str, float]) -> Metric:
            family = GaugeMetricFamily(f"cuebook_{name}", help, labels=[label])
            for one, value in sorted(values.items()):
                family.add_metric([one], value)
            return family

        took = "How long the store took to count what it contains."
        yield GaugeMetricFamily("cuebook_store_count_seconds", took, value=self._took)
        runs = {str(status): float(tally.runs.get(status, 0)) for status in _STATUSES}
        yield gauge("runs", "Runs in the store, by status.", "status", runs)
        queued = "Runs in the store that have work to do and no process that drives them."
        yield GaugeMetricFamily("cuebook_runs_queued", queued, value=tally.queued)
        yield gauge("waits", "Open waits in the store, by kind.", "kind", dict(tally.waits))
        jobs = tally.jobs
        yield gauge("jobs", "Jobs in the store, by kind.", "kind", {kind: one.all for kind, one in jobs.items()})
        yield gauge("jobs_due", "Jobs that are due, by kind.", "kind", {kind: one.due for kind, one in jobs.items()})
        late = "For how long the earliest job has been due, by kind."
        yield gauge("jobs_late_seconds", late, "kind", {kind: one.late for kind, one in jobs.items()})

    def _registered(self) -> CollectorRegistry:
        if self._registry is None:
            from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
            from prometheus_client.core import CollectorRegistry

            self._registry = registry = CollectorRegistry(auto_describe=False)
            for kind in (ProcessCollector, PlatformCollector, GCCollector):
                kind(registry=registry)
            registry.register(self)
        return self._registry

    async def _counted(self) -> Tally | None:
        """What the store contains; several who ask at once share one answer."""
        counting = self._counting
        if counting is None or (counting.done() and time.monotonic() - self._counted_at >= _COUNTED_EVERY):
            counting = self._counting = asyncio.create_task(self._count())
        return await asyncio.shield(counting)

    async def _count(self) -> Tally | None:
        began = time.monotonic()
        tally = None
        with suppress(TimeoutError, CuebookError):
            async with asyncio.timeout(_PATIENCE):
                tally = await self._store.tally(self._store.now())
        self._counted_at = time.monotonic()
        self._took = self._counted_at - began
        return tally


def _counter(name: str, help: str, counter: Counter) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, help, labels=list(counter.labels))
    for labels, value in sorted(counter.values.items()):
        family.add_metric(labels, value)
    if not counter.labels and not counter.values:
        family.add_metric([], 0)
    return family


def _histogram(name: str, help: str, histogram: Histogram) -> Metric:
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    family = HistogramMetricFamily(name, help, labels=list(histogram.labels))
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    for labels, counts in sorted(histogram.counts.items()):
        buckets, total = [], 0
        for bound, count in zip(bounds, counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric(labels, buckets, histogram.sums[labels])
    return family


class CountingHandler(logging.Handler):
    """Counts what is logged."""

    def __init__(self, meters: Meters) -> None:
        super().__init__()
        self._meters = meters

    def emit(self, record: logging.LogRecord) -> None:
        event = event_of(record)
        if not event:
            self._meters.messages.add(record.levelname.lower())
            return
        self._meters.events.add(event)
        if event == "job.failed":
            self._meters.job_failures.add(str(getattr(record, "fields", {}).get("kind", "")))


def time_commits(store: Store, meters: Meters) -> None:
    """Measures how long appends take. The store itself knows nothing of that, and pays nothing without metrics."""
    append = store.append

    def timed(batch: object) -> asyncio.Future[None]:
        began = time.perf_counter()
        done: asyncio.Future[None] = append(batch)  # type: ignore[arg-type]
        done.add_done_callback(lambda _: meters.commit_seconds.see(time.perf_counter() - began))
        return done

    store.append = timed  # type: ignore[method-assign]
