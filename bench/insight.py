"""What logs, metrics and traces add to a step. `python -m bench.insight [--rounds N]`.

All candidates are measured in turn in the same process. Times are processor time of the thread that drives the runs, because other
processes may be using the machine; what the exporter does in its own thread is not part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.run import Table
from cuebook.config import load
from cuebook.dialects.playbook import Playbook, read
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service.insight.meters import Meters
from cuebook.service.insight.otlp import Otlp
from cuebook.service.insight.run_log import RunLog
from cuebook.service.service import Service
from cuebook.system.logs import logging_to
from cuebook.wiring.wiring import Wiring

STEPS, RUNS = 10, 25
BOOK = "# Ten\n\n" + "".join(f"## STEP {number}: Say {number}\n\nSay it.\n\n" for number in range(1, STEPS + 1))
NOWHERE = "http://127.0.0.1:9"
"""No collector answers there."""


class _Nowhere(io.StringIO):
    """A stream that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


Watch = Callable[[Service, ExitStack], None]


def nothing(service: Service, stack: ExitStack) -> None:
    pass


def logs(level: str, form: str) -> Watch:
    def watch(service: Service, stack: ExitStack) -> None:
        stack.enter_context(logging_to(_Nowhere(), level=level, form=form))
        stack.callback(service.observe(RunLog(service.driven_row).see))

    return watch


def metrics(service: Service, stack: ExitStack) -> None:
    meters = Meters(service.driven_row)
    stack.callback(service.observe(meters.see))
    service.metrics(meters, "0")


def served(service: Service, stack: ExitStack) -> None:
    logs("info", "text")(service, stack)
    metrics(service, stack)


async def measured(watch: Watch, book: Playbook, folder: Path) -> float:
    """Seconds of processor time for one step."""
    models = {"test": ScriptedModel(["Said."], cycle=True)}
    wiring = Wiring(load({"store": str(folder / "runs.db"), "model": "test/one"}, folder=folder), models=models)
    service = wiring.service()
    settings = wiring.settings(document=book.document)
    try:
        with ExitStack() as stack:
            watch(service, stack)
            took = 0.0
            for count in (3, RUNS):  # the first runs are not counted
                began = time.thread_time()
                for _ in range(count):
                    row = await service.start(book, {}, settings)
                    assert (await service.take_up(row.id)).status == "completed"
                took = time.thread_time() - began
            return took / RUNS / STEPS
    finally:
        await service.close()


async def compare(rounds: int) -> Table:
    book = read(BOOK, "ten.md")
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    otlp = Otlp(NOWHERE, {}, "0", Meters(lambda run: None))

    def traces(service: Service, stack: ExitStack) -> None:
        stack.callback(service.observe(otlp.traces(service.sight).see))

    candidates: dict[str, Watch] = {
        "without any": nothing,
        "without any, again": nothing,
        "logs": logs("info", "text"),
        "logs at level debug, as JSON": logs("debug", "json"),
        "metrics": metrics,
        "logs and metrics, as `cuebook serve` has them": served,
        "traces, with a collector that is down": traces,
    }
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, watch in candidates.items():
            with tempfile.TemporaryDirectory() as place:
                times[name].append(await measured(watch, book, Path(place)))
    await otlp.close()
    table = Table()
    base = times["without any"]
    for name, found in times.items():
        table.add(f"a step, {name}", median(found) * 1e6, "us")
        ratio = median(one / other for one, other in zip(found, base, strict=True))
        table.add("  ratio to none in the same round (median)", ratio, "x")
        table.add("  ratio of the fastest rounds", min(found) / min(base), "x")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(compare(parser.parse_args().rounds)).show()


if __name__ == "__main__":
    main()
