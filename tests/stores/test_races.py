"""Two processes on one file at the same moment: one wins, the other gets an error, and the journal stays intact."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AskHuman, CallTool, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Busy
from cuebook.kernel.events import Performed, Performing
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.run import Signal
from cuebook.service.worker import Worker
from cuebook.stores import leases
from cuebook.stores.sqlite import SqliteStore
from tests.stores.processes import child, hear, tell
from tests.stores.race_process import LEASE
from tests.support.programs import PROGRAMS, Held, begin, engine_on, eventually, lines, service_on
from tests.support.records import claim, create, driven, wait_row
from tests.support.shared_stores import SharedStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are stopped and continued by signals")
ROUNDS = 40


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with child("race_process", tmp_path) as process:
        assert hear(process) == "ready"
        yield process


@pytest.fixture
def distant(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """As a process of another machine."""
    with child("race_process", tmp_path, "distant|id|boot|pid|time") as process:
        assert hear(process) == "ready"
        yield process


@pytest.fixture
def third(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with child("race_process", tmp_path) as process:
        assert hear(process) == "ready"
        yield process


Process = subprocess.Popen[str]


def together(one: Process, first: str, two: Process, second: str) -> tuple[str, str]:
    """Makes both processes do something at the same moment; returns what each prints."""
    moment = time.time() + 0.01
    tell(one, f"{first} {moment}")
    tell(two, f"{second} {moment}")
    return hear(one), hear(two)


async def open_waits(store: SharedStore, expires: float | None = None) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(), opened=[wait_row(f"w{n}", expires=expires) for n in range(ROUNDS)]))


async def test_if_two_processes_answer_at_once_one_wins(
    shared_store: SharedStore, other: Process, third: Process
) -> None:
    await open_waits(shared_store)
    winners: Counter[str] = Counter()
    for number in range(ROUNDS):
        said = together(other, f"answer w{number} yes one", third, f"answer w{number} no two")
        won = [line for line in said if line.startswith("won")]
        (refused,) = [line for line in said if not line.startswith("won")]
        assert len(won) == 1
        assert refused.startswith("AlreadyAnswered")
        name = won[0].removeprefix("won ")
        decided = await shared_store.wait(f"w{number}")
        assert (decided.by, decided.answer) == (name, {"value": {"one": "yes", "two": "no"}[name]})
        winners[name] += 1
    assert sum(winners.values()) == ROUNDS


async def test_an_answer_and_the_expiry_never_both_apply(
    shared_store: SharedStore, other: Process, third: Process
) -> None:
    for number in range(ROUNDS // 2):
        run = f"run{number}"
        await create(shared_store, run)
        writer = await claim(shared_store, run)
        await shared_store.append(writer.batch(*driven(), opened=[wait_row(f"w{number}", run, expires=2000.0)]))
        answered, expired = together(other, f"answer w{number} yes one", third, "expire")
        state = (await shared_store.wait(f"w{number}")).state
        if answered.startswith("won"):
            assert (state, expired) == ("answered", "expired")
        else:
            assert (state, expired) == ("expired", f"expired {run}")
            assert answered.startswith("WaitExpired")


async def test_an_answer_never_comes_after_a_cancel(shared_store: SharedStore, other: Process, third: Process) -> None:
    for number in range(ROUNDS // 2):
        run = f"run{number}"
        await create(shared_store, run)
        writer = await claim(shared_store, run)
        await shared_store.append(writer.batch(*driven(), opened=[wait_row(f"w{number}", run)]))
        answered, cancelled = together(other, f"answer w{number} yes one", third, f"cancel {run}")
        assert cancelled == "cancelled", "a cancel is always taken"
        state = (await shared_store.wait(f"w{number}")).state
        assert state == ("answered" if answered.startswith("won") else "cancelled")
        assert answered.startswith(("won", "WaitClosed"))


async def test_two_processes_never_drive_one_run(
    shared_store: SharedStore, tmp_path: Path, other: Process, third: Process
) -> None:
    engine = engine_on(shared_store, tmp_path)
    await begin(engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    tell(third, "drive run")
    assert hear(third).startswith("Busy")
    with pytest.raises(Busy, match=str(other.pid)):
        await engine.drive("run")
    (tmp_path / "go").touch()
    assert hear(other) == "completed"
    assert lines(tmp_path) == ["do", "held"]
    await engine.close()


async def test_if_two_processes_start_driving_at_once_one_does(
    shared_store: SharedStore, tmp_path: Path, other: Process, third: Process
) -> None:
    engine = engine_on(shared_store, tmp_path)
    for number in range(10):
        await begin(engine, "failing", f"run{number}", tool="append")
        tell(other, f"drive run{number}")
        tell(third, f"drive run{number}")
        said = sorted([hear(other), hear(third)])
        assert "completed" in said
        assert said[0] == "completed" or said[0].startswith("Busy")
        assert (await engine.verify(f"run{number}")).broken_at is None
    assert Counter(lines(tmp_path)) == {"step 1": 10, "step 2": 10, "fragile": 10, "step 3": 10}


async def _stop(process: Process, store: SharedStore) -> None:
    """Stops a process, but not in the middle of a heartbeat: it would keep the lock of a SQLite file."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        if not isinstance(store, SqliteStore) or _is_free(store.path):
            return
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.sleep(0.01)


def _is_free(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        return True


async def test_a_driver_that_was_stopped_keeps_its_run_on_the_same_machine(
    shared_store: SharedStore, tmp_path: Path, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE", LEASE)
    service = service_on(shared_store, tmp_path)
    await begin(service._engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    await _stop(other, shared_store)
    worker = Worker(service, "", every=0.02)
    await worker.open()
    await worker.take("run")
    await asyncio.sleep(LEASE * 3)
    assert not service.drives("run")
    with pytest.raises(Busy):
        await service.take_up("run")
    os.kill(other.pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert await asyncio.to_thread(hear, other) == "completed"
    await worker.close()
    assert lines(tmp_path) == ["do", "held"]
    assert await shared_store.waits(run="run") == []
    await service._engine.close()


async def test_a_driver_elsewhere_that_was_stopped_too_long_is_fenced_and_its_outcome_is_shown(
    shared_store: SharedStore, tmp_path: Path, distant: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE", LEASE)
    other = distant
    engine = engine_on(shared_store, tmp_path)
    await begin(engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    for _ in range(int(LEASE * 20)):
        await asyncio.sleep(0.1)
        assert await shared_store.alive("run"), "its heartbeats are seen"
    await _stop(other, shared_store)
    await eventually(lambda: _gone(shared_store, "run"), LEASE * 20)
    row = await engine.drive("run")
    assert row.status == "awaiting_approval", "it is not known what became of the effect"
    (asked,) = await shared_store.waits(run="run")
    assert "process ended" not in asked.prompt
    assert f"process {other.pid} on distant" in asked.prompt
    assert "may still be running" in asked.prompt
    before = [record.seq async for record in shared_store.records("run")]
    (tmp_path / "go").touch()
    os.kill(other.pid, signal.SIGCONT)
    assert (await asyncio.to_thread(hear, other)).startswith("Fenced")
    assert [record.seq async for record in shared_store.records("run")] == before, "it recorded nothing more"
    (wait,) = await shared_store.waits(run="run")
    assert wait.details["late"] == {"is": "ToolResult", "value": "from the first"}
    await shared_store.complete_wait(
        wait.id, {"decision": "done", "outcome": wait.details["late"]}, "me", engine.clock()
    )
    assert (await engine.drive("run")).status == "completed"
    assert lines(tmp_path) == ["do", "held"]
    entries = [entry.event async for entry in engine.entries("run")]
    assert sum(isinstance(event, Performing) and event.effect.fingerprint == "CallTool hold" for event in entries) == 1
    assert sum(isinstance(event, Performed) and event.fingerprint == "CallTool hold" for event in entries) == 1
    assert (await engine.verify("run")).broken_at is None
    assert (await engine.replay("run")).complete
    await engine.close()


async def _gone(store: SharedStore, run: str) -> bool:
    return not await store.alive(run)


async def test_a_killed_driver_is_replaced_immediately(
    shared_store: SharedStore, tmp_path: Path, other: Process
) -> None:
    engine = engine_on(shared_store, tmp_path)
    await begin(engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    assert await shared_store.alive("run")
    other.kill()
    other.wait()
    assert not await shared_store.alive("run"), "its lease is not waited for"
    assert await shared_store.ready(0.0, engine.driver) == ["run"]
    assert (await engine.drive("run")).status == "awaiting_approval"
    (asked,) = await shared_store.waits(run="run")
    assert "the process exited while" in asked.prompt
    await engine.close()


async def test_if_two_processes_take_the_last_slot_at_once_one_gets_it(
    shared_store: SharedStore, other: Process, third: Process
) -> None:
    for number in range(ROUNDS):
        taken = [slot for slot in together(other, f"take x{number} 1", third, f"take x{number} 1") if slot != "none"]
        assert len(taken) == 1
        if number % 2:  # and again with the slot that was freed
            tell(other, f"free {taken[0]}")
            assert hear(other) == "freed"
            again = together(other, f"take x{number} 1", third, f"take x{number} 1")
            assert again.count("none") == 1
            assert taken[0] not in again


async def test_the_slots_of_a_killed_process_are_free_at_once(
    shared_store: SharedStore, other: Process, third: Process
) -> None:
    for _ in range(2):
        tell(other, "take x 2 0")
        assert hear(other) != "none"
    tell(third, "take x 2 0")
    assert hear(third) == "none"
    other.kill()
    other.wait()
    for _ in range(2):
        tell(third, "take x 2 0")
        assert hear(third) != "none"
    tell(third, "take x 2 0")
    assert hear(third) == "none"


async def test_the_slots_of_a_process_killed_elsewhere_are_free_after_its_lease(
    shared_store: SharedStore, distant: Process, third: Process
) -> None:
    tell(distant, "take x 1 0")
    assert hear(distant) != "none"
    tell(third, "take x 1 0")
    assert hear(third) == "none"
    distant.kill()
    distant.wait()

    async def taken() -> bool:
        tell(third, "take x 1 0")
        return hear(third) != "none"

    await eventually(taken)


async def test_a_second_process_cancels_what_the_first_drives(
    shared_store: SharedStore, tmp_path: Path, other: Process
) -> None:
    engine = engine_on(shared_store, tmp_path)
    await begin(engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    await shared_store.signal(Signal("run", "cancel", {"reason": "Enough."}, "me"))
    assert await asyncio.to_thread(hear, other) == "cancelled"
    assert lines(tmp_path) == ["do", "undo"]
    assert [step.status for step in await shared_store.steps("run")] == ["in_doubt"]


async def test_a_second_process_reads_everything_while_the_first_drives(
    shared_store: SharedStore, tmp_path: Path, other: Process, third: Process
) -> None:
    engine = engine_on(shared_store, tmp_path)
    await begin(engine, "undoing", hold=True)
    tell(other, "drive run")
    assert hear(other) == "holding"
    tell(third, "look run")
    status, steps, waits, records, broken, text = hear(third).split()
    assert (status, steps, waits, broken, text) == ("running", "1", "0", "None", "text")
    assert int(records) >= 5
    (tmp_path / "go").touch()
    assert hear(other) == "completed"


async def test_an_answer_from_a_second_process_is_heard_while_the_first_is_busy(
    shared_store: SharedStore, tmp_path: Path, other: Process
) -> None:
    def start(state: Any) -> Program[Any]:
        outcomes = yield All((CallTool("hold"), AskHuman("Well?")))
        return outcomes[1].value

    held = Held()
    PROGRAMS["asking while busy"] = lambda inputs: start
    engine = engine_on(shared_store, tmp_path, hold=held)
    driving = asyncio.create_task(engine.drive(await begin(engine, "asking while busy")))
    (wait,) = await eventually(lambda: shared_store.waits(run="run"))
    tell(other, f"answer {wait.id} fine two 0")
    assert await asyncio.to_thread(hear, other) == "won two"
    await eventually(lambda: _answered(engine))
    held.go.set()
    assert (await driving).status == "completed"
    await engine.close()


async def _answered(engine: Engine) -> bool:
    outcomes = [e.event.outcome async for e in engine.entries("run") if isinstance(e.event, Performed)]
    return Answer("fine", "two") in outcomes
