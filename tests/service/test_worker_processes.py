"""Two worker processes on one store: no step runs twice, none is abandoned while it runs, and a kill loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.events import ENDED, Driven, WaitOpened
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.dispatch.follow import waits_for
from tests.support.programs import eventually
from tests.support.runtime import ALLOWED, RuntimeHarness
from tests.support.shared_stores import shared_place, url_of

ROOT = Path(__file__).resolve().parents[2]
LEASE = 1.0
"""Seconds: much less than the steps below take."""

LONG = """
name: Long
args: {n: {type: integer, default: 0}}
steps:
  - id: work
    command: cli sh -c 'echo "$CUEBOOK_ARG_N" >> log; until test -e go; do sleep 0.05; done'
  - id: after
    command: cli sh -c 'echo "$CUEBOOK_ARG_N" >> done'
"""


class Workers:
    def __init__(self, runtime: RuntimeHarness) -> None:
        self._office = runtime
        self.processes: list[subprocess.Popen[str]] = []

    def hire(self, host: str = "") -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.service.worker_process",
                self._office.place,
                str(LEASE),
                *([host] if host else []),
            ],
            cwd=self._office.work,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
async def runtime(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RuntimeHarness]:
    """A runtime on a store that the workers share with it."""
    made = RuntimeHarness(tmp_path, monkeypatch)
    with shared_place(request.param, tmp_path):
        made.place = url_of(tmp_path) or made.place
        monkeypatch.setenv("WORKERS_KEY", "k" * 64)
        monkeypatch.setenv("CUEBOOK_SIGNING_KEY", "env:WORKERS_KEY")
        made.open()
        yield made
        await made.close()


@pytest.fixture
def workers(runtime: RuntimeHarness) -> Iterator[Workers]:
    made = Workers(runtime)
    yield made
    made.end()


async def start(runtime: RuntimeHarness, text: str, **inputs: Any) -> str:
    settings = Settings(workspace=runtime.wiring.factory.workspace.path)
    return (await runtime.service.start(Playbook.from_text(text, "inline"), inputs, settings)).id


async def until(runtime: RuntimeHarness, run: str, holds: Callable[[RunRow], bool]) -> RunRow:
    async def looked() -> RunRow | None:
        row = await runtime.service.row(run)
        return row if holds(row) else None

    found: RunRow = await eventually(looked, 90)
    return found


async def asked(runtime: RuntimeHarness, run: str) -> dict[str, Any]:
    """The envelope with the question. For a moment the run waits already, and its driver has not left it yet."""

    async def envelope() -> dict[str, Any] | None:
        found = await runtime.ask({"action": "status", "runId": run})
        return found if "requiresApproval" in found else None

    found: dict[str, Any] = await eventually(envelope, 90)
    return found


async def ended(runtime: RuntimeHarness, run: str) -> str:
    return (await until(runtime, run, lambda row: row.status in ENDED)).status


def lines(runtime: RuntimeHarness, name: str = "log") -> list[str]:
    path = runtime.work / name
    return path.read_text().splitlines() if path.exists() else []


async def drives(runtime: RuntimeHarness, run: str) -> int:
    return len([1 async for entry in runtime.service.entries(run) if isinstance(entry.event, Driven)])


def driver_of(run: str, workers: Workers, runtime: RuntimeHarness) -> subprocess.Popen[str]:
    """The worker that holds the run."""
    query = "SELECT d.pid FROM runs r JOIN drivers d ON d.id = r.driver WHERE r.id = {}"
    if runtime.place.startswith("postgresql:"):
        with psycopg.connect(runtime.place) as database:
            (pid,) = database.execute(query.format("%s"), (run,)).fetchone() or (0,)
    else:
        with closing(sqlite3.connect(runtime.place)) as store:
            (pid,) = store.execute(query.format("?"), (run,)).fetchone()
    return next(process for process in workers.processes if process.pid == pid)


async def under_way(runtime: RuntimeHarness, workers: Workers, *hosts: str) -> str:
    """A run whose first step is being done by one of two workers."""
    for host in hosts or ("", ""):
        workers.hire(host)
    run = await start(runtime, LONG)

    async def begun() -> bool:
        return bool(lines(runtime))

    await eventually(begun, 90)
    return run


async def test_a_step_longer_than_the_lease_is_left_to_its_driver(runtime: RuntimeHarness, workers: Workers) -> None:
    workers.hire()
    workers.hire()
    runs = [await start(runtime, LONG, n=number) for number in range(4)]

    async def all_begun() -> bool:
        return len(lines(runtime)) >= 4

    await eventually(all_begun, 90)
    await asyncio.sleep(LEASE * 2.5)  # the lease of a worker that does not renew it is over by now
    assert len(lines(runtime)) == 4, "nobody has taken over what is under way"
    (runtime.work / "go").touch()
    assert [await ended(runtime, run) for run in runs] == ["completed"] * 4
    assert sorted(lines(runtime, "done")) == ["0", "1", "2", "3"]
    assert [await drives(runtime, run) for run in runs] == [1] * 4
    for run in runs:
        assert not [e async for e in runtime.service.entries(run) if isinstance(e.event, WaitOpened)]


async def test_a_killed_workers_step_is_asked_about_and_never_repeated_by_itself(
    runtime: RuntimeHarness, workers: Workers
) -> None:
    run = await under_way(runtime, workers)
    driver_of(run, workers, runtime).send_signal(signal.SIGKILL)
    await until(runtime, run, lambda row: row.status == "awaiting_approval")
    waiting = await asked(runtime, run)
    assert waiting["requiresApproval"]["kind"] == "retry"
    assert len(lines(runtime)) == 1
    (runtime.work / "go").touch()
    late = await runtime.resume(waiting, True, waitMs=0)
    assert late["status"] in ("ok", "error")
    assert await ended(runtime, run) == "completed"
    assert len(lines(runtime)) == 2, "repeated, because somebody said so"
    assert lines(runtime, "done") == ["0"]


async def test_a_killed_workers_step_that_only_reads_is_repeated(runtime: RuntimeHarness, workers: Workers) -> None:
    reading = LONG.replace("  - id: after", "    effect: read\n  - id: after").replace(
        'echo "$CUEBOOK_ARG_N" >> log; ', ""
    )
    first = workers.hire()
    run = await start(runtime, reading)
    await until(runtime, run, lambda row: row.status == "running" and row.step == "work")
    first.send_signal(signal.SIGKILL)
    workers.hire()
    (runtime.work / "go").touch()
    assert await ended(runtime, run) == "completed"
    assert lines(runtime, "done") == ["0"]


async def test_a_worker_stopped_on_this_machine_keeps_its_run_and_is_named(
    runtime: RuntimeHarness, workers: Workers
) -> None:
    run = await under_way(runtime, workers, "", "")
    assert await waits_for(runtime.service, run) == ""
    stopped = driver_of(run, workers, runtime)
    stopped.send_signal(signal.SIGSTOP)
    try:
        await eventually(lambda: waits_for(runtime.service, run))
        assert f"`kill -CONT {stopped.pid}`" in await waits_for(runtime.service, run)
    finally:
        stopped.send_signal(signal.SIGCONT)
    (runtime.work / "go").touch()
    assert await ended(runtime, run) == "completed"
    assert lines(runtime) == ["0"]


async def test_a_worker_that_was_stopped_too_long_is_fenced(runtime: RuntimeHarness, workers: Workers) -> None:
    """It is stopped on another machine: its lease expires, another worker takes over, and its late outcome is attached."""
    run = await under_way(runtime, workers, "one|1|1|1|1", "two|2|2|2|2")
    stopped = driver_of(run, workers, runtime)
    stopped.send_signal(signal.SIGSTOP)
    try:
        await until(runtime, run, lambda row: row.status == "awaiting_approval")
        (wait,) = await runtime.service.waits(run)
        assert wait.kind == "in_doubt"
        assert "may still be running" in wait.prompt
        (runtime.work / "go").touch()
    finally:
        stopped.send_signal(signal.SIGCONT)

    async def attached() -> Any:
        return (await runtime.service.wait_row(wait.id)).details.get("late")

    assert (await eventually(attached, 90))["exit_code"] == 0
    await runtime.service.decide(wait.id, "done")
    assert await ended(runtime, run) == "completed"
    assert len(lines(runtime)) == 1
    assert lines(runtime, "done") == ["0"]


async def test_an_unanswered_approval_expires_without_anyone_looking(runtime: RuntimeHarness, workers: Workers) -> None:
    runtime.rule(ALLOWED + "[approvals]\nexpires_after = 0.5\n")
    workers.hire()
    runs = [
        await start(runtime, "name: G\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n")
        for _ in range(3)
    ]
    assert [await ended(runtime, run) for run in runs] == ["expired"] * 3
    assert not runtime.made()


async def test_an_approval_given_here_is_acted_on_there_once(runtime: RuntimeHarness, workers: Workers) -> None:
    workers.hire()
    workers.hire()
    text = "name: G\nsteps:\n  - {id: a, command: cli sh -c 'echo x >> log', approval: required}\n"
    run = await start(runtime, text)
    await until(runtime, run, lambda row: row.status == "awaiting_approval")
    waiting = await asked(runtime, run)
    several = await asyncio.gather(*(runtime.resume(waiting, True) for _ in range(3)))
    assert [one["status"] for one in several] == ["ok"] * 3
    assert lines(runtime) == ["x"]


async def test_randomly_killed_workers_do_nothing_twice(runtime: RuntimeHarness, workers: Workers) -> None:
    """Every effect happens at most once, and every run ends or waits for a person with a reason."""
    chance = random.Random(6)
    text = "name: R\nargs: {n: {type: integer}}\nsteps:\n" + "".join(
        f"  - id: s{step}\n    command: cli sh -c 'echo \"$CUEBOOK_ARG_N s{step}\" >> log; sleep 0.1'\n"
        for step in range(3)
    )
    runs = [await start(runtime, text, n=number) for number in range(6)]
    workers.hire()
    workers.hire()
    for _ in range(4):
        await asyncio.sleep(chance.uniform(0.2, 0.8))
        chance.choice([one for one in workers.processes if one.poll() is None]).kill()
        workers.hire()

    async def at_rest() -> bool:
        rows = [await runtime.service.row(run) for run in runs]
        return all(row.status in (*ENDED, "awaiting_approval") for row in rows)

    await eventually(at_rest, 100)
    counted = Counter(lines(runtime))
    assert counted
    assert set(counted.values()) == {1}
    for run in runs:
        envelope = await runtime.ask({"action": "status", "runId": run})
        assert envelope["status"] == "ok" or envelope["requiresApproval"]["kind"] == "retry"
        assert (await runtime.service.verify(run)).broken_at is None
