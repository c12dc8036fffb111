"""A store after many weeks: 100,000 runs, and what lists, starts and prunes cost in it. `python -m bench.second_week`.

Times are wall times and CPU times, because other processes may be using the machine.
"""

from __future__ import annotations

import asyncio
import random
import time

from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.events import Driven, RunFinished, RunStarted, RunStatus, StepFinished, StepStarted
from cuebook.kernel.journal import Place
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitRow, id_from
from tests.support.records import RecordWriter

RUNS = 100_000
AGE = 365 * 86400.0
"""The runs were started within this many seconds."""
TENANT = "local"
NAMES = [f"playbooks/{word}-{number}.md" for word in ("daily", "release", "triage", "bill") for number in range(15)]
OWNERS = [f"person{number}" for number in range(25)]
TRIGGERS = ["", "", "", "schedule:nightly", "schedule:hourly", "webhook:github", "mcp", "token"]
SHARES: dict[RunStatus, int] = {"completed": 85, "failed": 10, "cancelled": 3, "awaiting_input": 2}
"""Of the runs, in percent."""
_TOGETHER = 200


def row_of(number: int, of: int, now: float) -> RunRow:
    chance = random.Random(number)
    created = now - AGE * (1 - number / of)
    name = chance.choice(NAMES)
    return RunRow(
        id=id_from(f"{number} of {of}"),
        tenant=TENANT,
        owner=chance.choice(OWNERS),
        dialect="markdown",
        interpreter=1,
        playbook=digest_of(name),
        name=name,
        created=created,
        updated=created,
        model="openai/gpt-5",
        trigger=chance.choice(TRIGGERS),
    )


async def one_run(store: Store, row: RunRow, status: RunStatus, steps: int = 3) -> None:
    """A run with its records, steps and texts, as if it had been driven."""
    writer = RecordWriter(row.id)
    text = f"# {row.name}\n\nA playbook.\n"
    await store.create(row, text, writer.batch(RunStarted({"customer": row.id, "count": 3})))
    writer = RecordWriter.after(await store.claim(row.id, "bench", time.time()))
    await store.append(writer.batch(Driven("bench")))
    done: list[StepRow] = []
    for number in range(1, steps + 1):
        label = str(number)
        reply = Text(f"The reply of step {label} in run {row.id}. " * 30)
        events = (StepStarted(label, "A step"), StepFinished(label, output=reply))
        done.append(StepRow("", label, 1, title="A step", status="completed", seq=writer.seq + 1))
        await store.append(writer.batch(*events, steps=done[-1:]))
    row.status, row.updated, row.step = status, row.created + 60, str(steps)
    row.totals = Totals(steps=steps, completed=steps, steps_done=steps, calls=steps, input=4000, output=900, cost=0.01)
    if status == "awaiting_input":
        place = Place("", "3", 1, 0)
        wait = WaitRow(
            id=f"w{row.id}", run=row.id, tenant=row.tenant, owner=row.owner, place=place, kind="question",
            prompt="Go on?", purpose="question", opened=row.updated,
        )  # fmt: skip
        await store.release(writer.batch(Driven("bench"), row=row, opened=[wait]), unless_news=False)
        return
    await store.release(writer.batch(RunFinished(status), row=row), unless_news=False)


async def fill(store: Store, runs: int, first: int = 0, now: float | None = None) -> None:
    now = time.time() if now is None else now
    await store.heartbeat("bench", now)
    for part in range(first, first + runs, _TOGETHER):
        rows = [row_of(number, first + runs, now) for number in range(part, min(part + _TOGETHER, first + runs))]
        await asyncio.gather(*(one_run(store, row, status_of(row)) for row in rows))
        await store.heartbeat("bench", time.time())


def status_of(row: RunRow) -> RunStatus:
    return random.Random(row.id).choices(list(SHARES), list(SHARES.values()))[0]


if __name__ == "__main__":
    import sys

    from cuebook.stores.sqlite import SqliteStore

    async def main() -> None:
        store = SqliteStore(sys.argv[1], synchronous="NORMAL")
        began, cpu = time.perf_counter(), time.process_time()
        await fill(store, int(sys.argv[2]))
        print(time.perf_counter() - began, time.process_time() - cpu)
        await store.close()

    asyncio.run(main())
