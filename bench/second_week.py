"""A store after many weeks: 100,000 runs, and what lists, starts and prunes cost in it. `python -m bench.second_week`.

Times are wall times and CPU times, because other processes may be using the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.run import Table
from cuebook.gate.roles import Principal
from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.effects import Now, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import Driven, RunFinished, RunStarted, RunStatus, StepFinished, StepStarted
from cuebook.kernel.journal import Place
from cuebook.kernel.ports import Job, RunFilter, RunMark, Store
from cuebook.kernel.run import RunRow, Settings, StepRow, Totals, WaitRow, id_from
from cuebook.service.retention import Criteria, Retention
from cuebook.stores.sqlite import SqliteStore, group_commit
from tests.support.records import RecordWriter

ROOT = Path(__file__).resolve().parent.parent
RUNS = 100_000
PAGE = 100
PARTS = ("lists", "pages", "starts", "postgres", "prune")
_TOKEN = "a-token-for-the-benchmark-of-the-second-week"
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
        is_long = number == steps and random.Random(row.id + label).random() < 0.2  # a text of its own, then
        reply = Text(f"The reply of step {label} in run {row.id}. " * (300 if is_long else 30))
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


# --- lists ---


def filters(now: float) -> dict[str, RunFilter]:
    """What a list may be asked for: with many results, with few, with none, and with none but old ones."""
    return {
        "everything": {},
        "a playbook": {"name": NAMES[3]},
        "a playbook without runs": {"name": "none.md"},
        "an owner": {"owner": OWNERS[3]},
        "owners without runs": {"visible": ["no one", "nobody"]},
        "failed": {"status": ["failed"]},
        "waiting": {"status": ["awaiting_input", "awaiting_approval"]},
        "a status without runs": {"status": ["expired"]},
        "a schedule": {"trigger": "schedule:nightly"},
        "a trigger without runs": {"trigger": "files"},
        "the last day": {"since": now - 86400},
        "the oldest week": {"until": now - AGE + 7 * 86400},
        "one owner, the oldest week": {"until": now - AGE + 7 * 86400, "owner": OWNERS[3]},
        "two words": {"words": ["daily", "person7"]},
        "three words, the last not found": {"words": ["a", "p", "nothing like it"]},
        "everything at once, not found": {
            "name": NAMES[3], "owner": OWNERS[3], "status": ["failed"], "trigger": "files", "words": ["zz"],
        },
    }  # fmt: skip


async def lists(store: Store, table: Table, where: str = "", rounds: int = 15) -> None:
    now = time.time()
    middle = (await store.runs(tenant=TENANT, until=now - AGE / 2, limit=1))[0]
    found: dict[str, tuple[float, float, float]] = {}
    for name, which in filters(now).items():
        for part, before in (("", None), (", from the middle on", RunMark(middle.created, middle.id))):
            asked = which.copy()
            asked |= {"tenant": TENANT, "caller": "", "before": before}
            taken = [await _timed(lambda asked=asked: store.runs(limit=PAGE + 1, **asked)) for _ in range(rounds)]  # type: ignore[misc]
            walls, cpus = [one[0] for one in taken], [one[1] for one in taken]
            found[name + part] = (median(walls), max(walls), median(cpus))
            print(f"  {name + part:<55} {median(walls):7.1f} {max(walls):7.1f} {median(cpus):7.1f}", file=sys.stderr)
    first = found["everything"]
    table.add(f"the first page of all runs{where}", first[0], "ms")
    slowest = max(found, key=lambda name: found[name][0])
    wall, _, cpu = found[slowest]
    table.add(f"the slowest list{where} ({slowest})", wall, "ms", "under 100 ms", wall < 100)
    table.add("its CPU time here", cpu, "ms")
    table.add(f"the longest of all that were measured{where}", max(one[1] for one in found.values()), "ms")


async def in_postgres(folder: Path, runs: int, table: Table) -> None:
    """Lists in a Postgres store, which has only the rows of the runs."""
    from bench.postgres import served
    from cuebook.stores.postgres import PostgresStore
    from cuebook.stores.rows import RUN, run_values

    with served(folder) as server, server.schema() as url:
        store, now = PostgresStore(url), time.time()
        await store.runs()

        async def add(connection: Any) -> None:
            async with connection.cursor().copy(f"COPY runs ({RUN}) FROM STDIN") as copy:
                for number in range(runs):
                    row = row_of(number, runs, now)
                    row.status = status_of(row)
                    await copy.write_row(run_values(row))
            await connection.execute("VACUUM ANALYZE runs")

        await store._database.use(add)
        await lists(store, table, " in Postgres")
        which = {**filters(now)["three words, the last not found"], "tenant": TENANT, "caller": ""}
        rows = await store._all("SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL", ())
        before = _cpu_of([pid for (pid,) in rows])
        for _ in range(30):
            await store.runs(**which)  # type: ignore[arg-type]
        used = (_cpu_of([pid for (pid,) in rows]) - before) / 30 * 1000
        table.add("the CPU time of its slowest list in Postgres", used, "ms", "under 100 ms", used < 100)
        await store.close()


def _cpu_of(processes: Sequence[int]) -> float:
    """The seconds of CPU that processes have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


async def pages(path: Path, table: Table, rounds: int = 15) -> None:
    """The same over HTTP, with a client in the same process."""
    import httpx2 as httpx

    from cuebook.config import load
    from cuebook.surfaces.web.app import make_site
    from cuebook.surfaces.web.server import bound, make_server
    from cuebook.wiring.wiring import Wiring

    wiring = Wiring(load({"store": str(path)}, folder=path.parent))
    service = wiring.service()
    site = make_site(wiring, service, folders=[path.parent], serve_token=_TOKEN)
    listening = bound("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = make_server(site, "127.0.0.1", listening.getsockname()[1])
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False) as client:
        for what in (
            "/api/runs",
            "/api/runs?search=nothing+like+it",
            "/runs",
            "/runs?status=failed&search=person7",
            "/inbox",
            "/",
        ):
            (await client.get(what)).raise_for_status()
            taken = [await _timed(lambda what=what: client.get(what)) for _ in range(rounds)]  # type: ignore[misc]
            wall = median(one[0] for one in taken)
            table.add(
                f"GET {what}",
                wall,
                "ms",
                "under 100 ms" if "runs" in what else "",
                wall < 100 if "runs" in what else None,
            )
    server.stop()
    await serving
    await service.close()


async def _timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


# --- starts ---


def _program(row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    def stepping(state: Any) -> Program[Any]:
        yield Now()

    return stepping


async def starts(full: Store, empty: Store, table: Table, rounds: int = 20, count: int = 50) -> None:
    """The cost of starting a run in a full store and in an empty one, in turn."""
    engines = {"full": Engine(full, _program, {}), "empty": Engine(empty, _program, {})}
    for together in (1, count):
        walls: dict[str, list[float]] = {name: [] for name in engines}
        cpus: dict[str, list[float]] = {name: [] for name in engines}
        for turn, (name, engine) in itertools.product(range(rounds), engines.items()):
            rows = [_new_row(f"{name} {together} {turn} {number}") for number in range(count)]
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            for first in range(0, count, together):
                part = rows[first : first + together]
                await asyncio.gather(*(engine.start(row, f"# {row.name}", {"n": 1}, Settings()) for row in part))
            walls[name].append((time.perf_counter() - wall) / count * 1e6)
            cpus[name].append((time.process_time() - cpu) / count * 1e6)
        how = "alone" if together == 1 else f"{together} at once"
        for unit, taken in (("CPU", cpus), ("wall", walls)):
            ratio = median(taken["full"]) / median(taken["empty"])
            table.add(f"a start, {how}, empty store, {unit}", median(taken["empty"]), "µs")
            table.add(f"a start, {how}, {unit}, against an empty store", ratio, "x", "at most 1.2x", ratio <= 1.2)


def _new_row(named: str) -> RunRow:
    row = row_of(random.randrange(1 << 30), 1 << 30, time.time())
    row.id = id_from(f"{named} {time.time_ns()}")
    row.created = row.updated = time.time()
    return row


# --- pruning ---


class Held:
    """How long each commit of removals holds the write lock: from its beginning to its end, which is on disk."""

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.cpus: list[float] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        attempt, held = group_commit.Writer._attempt, self

        def timed(writer: Any, writes: Any, begun: bool) -> None:
            if not begun:
                writer._begin(patience=group_commit.BUSY_TIMEOUT)
            wall, cpu = time.perf_counter(), time.thread_time()
            attempt(writer, writes, True)
            if any(one.operation.__module__.endswith("removals") for one in writes):
                held.walls.append((time.perf_counter() - wall) * 1000)
                held.cpus.append((time.thread_time() - cpu) * 1000)

        group_commit.Writer._attempt = timed  # type: ignore[assignment]
        try:
            yield
        finally:
            group_commit.Writer._attempt = attempt  # type: ignore[method-assign]


async def prune(store: SqliteStore, path: Path, table: Table) -> None:
    """Prunes half of the runs, while another process writes."""
    # Otherwise SQLite moves the log to the file within some commits, after it has released the lock that is measured.
    store._connection.execute("PRAGMA wal_autocheckpoint = 0")

    async def record(*_: Any) -> None:
        return None

    engine, held = Engine(store, _program, {}), Held()
    retention = Retention(engine, record)
    quiet = await _waits(path, asyncio.sleep(5))
    wall, cpu = time.perf_counter(), time.process_time()
    with held.measured():
        pruning = asyncio.create_task(retention.prune(Criteria(older_than=AGE / 2), Principal()))
        waits = await _waits(path, pruning)
    seconds = time.perf_counter() - wall
    done = len(pruning.result().deleted)
    table.add("runs pruned", done, "")
    table.add("for each run, CPU", (time.process_time() - cpu) / done * 1e6, "µs")
    table.add("for each run, with pauses", seconds / done * 1e6, "µs")
    table.add("the lock is held, CPU, median", median(held.cpus), "ms")
    table.add("the lock is held, CPU, longest", max(held.cpus), "ms", "at most 50 ms", max(held.cpus) <= 50)
    table.add("the lock is held, wall, median", median(held.walls), "ms")
    table.add(
        "the lock is held, wall, 99th percentile",
        _percentile(held.walls, 99),
        "ms",
        "at most 50 ms",
        _percentile(held.walls, 99) <= 50,
    )
    table.add("the lock is held, wall, longest", max(held.walls), "ms", "at most 50 ms", max(held.walls) <= 50)
    for name, taken in (("before", quiet), ("meanwhile", waits)):
        table.add(f"a write of another process {name}, 99th percentile", _percentile(taken, 99), "ms")
        table.add(f"a write of another process {name}, longest", max(taken), "ms")


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


async def _waits(path: Path, work: Awaitable[Any]) -> list[float]:
    """How long small writes of another process take while something else goes on, in milliseconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.second_week", "--write", str(path), stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018
    await process.stdout.readline()
    await work
    process.stdin.close()
    return list(json.loads(await process.stdout.read()))


async def write(path: Path) -> None:
    """Writes a job every ten milliseconds until its standard input is closed; prints how long each write took."""
    store = SqliteStore(path)
    taken: list[float] = []
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    job = Job(kind="bench", tenant="bench", name="bench", due=None, body={})
    known = await store.put_job(job) or await store.job("bench", "bench", "bench")
    print("ready", flush=True)
    while not ended.done():
        assert known is not None
        began = time.perf_counter()
        known = await store.put_job(known)
        taken.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.01)
    print(json.dumps(taken), flush=True)
    await store.close()


async def measure(folder: Path, given: argparse.Namespace) -> Table:
    table = Table()
    path = Path(given.store) if given.store else folder / "full.db"
    if not path.exists():
        print(f"making {given.runs:,} runs ...", file=sys.stderr)
        made = SqliteStore(path, synchronous="NORMAL")
        await fill(made, given.runs)
        await made.close()
    full, empty = SqliteStore(path), SqliteStore(folder / "empty.db")
    if "lists" in given.parts:
        await lists(full, table)
    if "pages" in given.parts:
        await pages(path, table)
    if "starts" in given.parts:
        await starts(full, empty, table)
    if "postgres" in given.parts:
        await in_postgres(folder, given.runs, table)
    if "prune" in given.parts:
        await prune(full, path, table)
    await full.close()
    await empty.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--store", help="a store made by this benchmark, or where to make one; it is changed")
    parser.add_argument("--only", dest="parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        asyncio.run(write(Path(given.write)))
        return
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(measure(Path(place), given)).show()
    print("load:", *(f"{one:.1f}" for one in os.getloadavg()))


if __name__ == "__main__":
    main()
