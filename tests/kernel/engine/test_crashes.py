"""The process is killed at a write of a run, in thorough mode at every single one; the resumed run ends as if nothing had
happened.

Effects count themselves: each side effect appends a line to a file.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import ENDED, WAITING, RunFinished
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings, Signal
from tests.support.fork_server import run_child
from tests.support.programs import begin, engine_on, lines, new_row
from tests.support.sampling import THOROUGH, some
from tests.support.shared_stores import open_shared, shared_place

ROOT = Path(__file__).parents[3]
CHILD = "tests.kernel.engine.crash_process"


class Folders:
    """The folders of a test, each with a store of its own."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root = root
        self._stack = stack
        self.kind = "sqlite"

    def make(self, name: str) -> Path:
        folder = self._root / name
        folder.mkdir()
        self._stack.enter_context(shared_place(self.kind, folder))
        return folder


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    with ExitStack() as stack:
        yield Folders(tmp_path, stack)


async def settle(engine: Engine, folder: Path, run: str) -> tuple[str, int]:
    """Drives a run to its end as a careful person would; returns its status and how often an effect was in doubt."""
    doubts = 0
    for _ in range(20):
        row = await served(engine, run)
        if row.status not in ("awaiting_input", "awaiting_approval", "paused"):
            return row.status, doubts
        for wait in await engine.store.waits(run=run):
            answer: dict[str, Any] = {"value": "yes"}
            if wait.kind == "in_doubt":
                doubts += 1
                line = wait.details["effect"]["arguments"]["line"]
                done = lines(folder).count(line) > (await planned_before(engine, run, line))
                answer = {"decision": "done", "outcome": {"is": "ToolResult", "value": line}} if done else {
                    "decision": "repeat"
                }  # fmt: skip
            await engine.store.complete_wait(wait.id, answer, "me", engine.clock())
    raise AssertionError("it does not come to an end")


async def served(engine: Engine, run: str) -> RunRow:
    """Drives the run until it waits or ends, only as far as a server would by itself."""
    row = await engine.store.run(run)
    waits = row.status in WAITING and not row.driver and await engine.store.waits(run=run)
    if row.status not in ENDED and not waits:
        assert run in await engine.store.ready(engine.clock(), engine.driver), (
            f"{row.status}, and no server takes it up"
        )
    while run in await engine.store.ready(engine.clock(), engine.driver):
        row = await engine.drive(run)
    return row


async def planned_before(engine: Engine, run: str, line: str) -> int:
    """How often the parent run wrote the line."""
    row = await engine.store.run(run)
    return 1 if row.parent and line in ("two", "three") else 0


async def picture(store: Store, engine: Engine, run: str) -> dict[str, Any]:
    """Everything that must be the same however often the process was killed."""
    row = await store.run(run)
    entries = [entry async for entry in engine.entries(run)]
    finished = [entry.event for entry in entries if isinstance(entry.event, RunFinished)]
    assert len(finished) == 1
    return {
        "status": row.status,
        "result": finished[0].result,
        "steps": [(s.path, s.label, s.visit, s.status, s.totals.calls) for s in await store.steps(run)],
        "done": row.totals.steps_done,
        "calls": row.totals.calls,
        "cost": round(row.totals.cost, 6),
        "waits": await store.waits(run=run),
    }


async def prepare(folder: Path, shape: str) -> str:
    """Starts the run in the test process and answers its first question, so that the child has work to do."""
    store = open_shared(folder)
    engine = engine_on(store, folder)
    name = {"answered": "everything", "forked": "everything", "called": "calling", "deep": "calling"}.get(shape, shape)
    run = await begin(engine, name, beside=shape == "called", deep=shape == "deep")
    if shape in ("answered", "concurrent", "checkpointed", "called", "deep"):
        if shape != "concurrent":
            await engine.drive(run)
        for wait in await store.waits(run=run):
            await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
    if shape == "forked":
        await settle(engine, folder, run)
        step = next(s for s in await store.steps(run) if s.label == "3")
        child = new_row("everything", "child")
        child.parent = run
        await engine.fork(child, step, {}, {})
        run = "child"
    await engine.close()
    await store.close()
    return run


async def undisturbed(folder: Path, shape: str) -> tuple[dict[str, Any], Counter[str]]:
    run = await prepare(folder, shape)
    store = open_shared(folder)
    engine = engine_on(store, folder)
    status, doubts = await settle(engine, folder, run)
    assert (status, doubts) == ("completed", 0)
    seen = await picture(store, engine, run)
    await engine.close()
    await store.close()
    return seen, Counter(lines(folder))


def writes(child: str, folder: Path, run: str, *more: str) -> range:
    """The numbers of the writes of a child that is not killed, and one more."""
    code, written, said = run_child(child, folder, run, "before", 0, *more)
    assert code == 0, said
    return range(1, int(written) + 2)


def die(child: str, folder: Path, run: str, when: str, number: int, *more: str) -> bool:
    """Whether the child was killed at that write; False if there are no more writes."""
    code, _, said = run_child(child, folder, run, when, number, *more)
    assert code in (0, -9), said
    return code == -9


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("shape", "when", "disk"),
    [
        *itertools.product(
            ["everything", "answered", "concurrent", "checkpointed", "forked", "nested", "calling", "called", "deep"],
            ["before", "after"],
            ["fast"],
        ),
        *itertools.product(["answered", "concurrent"], ["before", "after"], ["slow"]),
        *(
            pytest.param(shape, when, "postgres", marks=pytest.mark.needs("postgres"))
            for shape, when in itertools.product(
                ["everything", "answered", "concurrent", "forked", "called"], ["before", "after"]
            )
        ),
    ],
)
async def test_killed_at_every_write(shape: str, when: str, disk: str, folders: Folders) -> None:
    folders.kind = "postgres" if disk == "postgres" else "sqlite"
    wanted, wanted_lines = await undisturbed(folders.make("undisturbed"), shape)
    whole = folders.make("whole")
    every = writes(CHILD, whole, await prepare(whole, shape), disk)
    died, doubted = 0, 0
    for number in some(every, 5):
        folder = folders.make(f"at{number}")
        run = await prepare(folder, shape)
        died += await asyncio.to_thread(die, CHILD, folder, run, when, number, disk)
        store = open_shared(folder)
        engine = engine_on(store, folder)
        kept = {record.seq async for record in store.records(run)}
        assert {int(seq) for seq in lines(folder, "told")} <= kept, "an acknowledged record was lost"
        _, doubts = await settle(engine, folder, run)
        doubted += doubts
        assert await picture(store, engine, run) == wanted
        assert Counter(lines(folder)) == wanted_lines, f"killed {when} write {number}"
        for one in (run, *(row.id for row in await store.runs(limit=None) if row.caller)):
            assert (await store.run(one)).status == "completed"
            assert (await engine.verify(one)).problem == ""
            assert (await engine.replay(one)).complete
        await engine.close()
        await store.close()
    assert died >= 3
    assert doubted > 0 or not THOROUGH, "some effect must have been caught half done"


ENDS = {"answer": "completed", "expiry": "expired", "cancel": "cancelled", "retry": "completed"}
"""The reason why a run is taken up, and how it ends."""


async def waiting_for(folder: Path, why: str) -> str:
    """A run that received something while no process was driving it."""
    store = open_shared(folder)
    engine = engine_on(store, folder)
    settings = Settings(pause_expiry=3600.0 if why == "expiry" else None)
    run = await begin(engine, "failing" if why == "retry" else "everything", settings=settings)
    row = await engine.drive(run)
    assert row.status == ("failed" if why == "retry" else "awaiting_input")
    match why:
        case "answer":
            (wait,) = await store.waits(run=run)
            await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
        case "expiry":
            await store.expire(engine.clock() + 7200.0, run)
        case "cancel" | "retry":
            await store.signal(Signal(run, why, {}, "me"))
    await engine.close()
    await store.close()
    return run


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("why", ENDS)
async def test_a_run_killed_around_its_claim_is_taken_up_by_any_server(
    why: str, when: str, kind: str, folders: Folders
) -> None:
    """The first writes are a heartbeat, the claim, and the reason for the claim."""
    folders.kind = kind
    died = 0
    for number in range(1, 5):
        folder = folders.make(f"at{number}")
        run = await waiting_for(folder, why)
        died += await asyncio.to_thread(die, CHILD, folder, run, when, number)
        store = open_shared(folder)
        engine = engine_on(store, folder)
        status, _ = await settle(engine, folder, run)
        assert status == ENDS[why], f"killed {when} write {number}"
        assert Counter(lines(folder)).most_common(1)[0][1] == (2 if why == "retry" else 1), (
            "a retry does one thing again"
        )
        assert (await engine.verify(run)).broken_at is None
        await engine.close()
        await store.close()
    assert died >= 3
