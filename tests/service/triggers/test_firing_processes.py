"""Real processes on one store: each firing starts one run, also if a process is killed in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cuebook.service.triggers import Target
from cuebook.service.triggers.schedules import Schedule
from tests.service.triggers.scheduled import TEA
from tests.support.programs import eventually
from tests.support.shared_stores import SharedStore

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def processes(folder: Path, *kinds: str) -> Iterator[list[subprocess.Popen[str]]]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    started: list[subprocess.Popen[str]] = []
    try:
        for dies in kinds:
            command = [sys.executable, "-m", "tests.service.triggers.firing_process", str(folder), dies]
            started.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
            )
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        yield started
    finally:
        for one in started:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()


async def add_due(store: SharedStore, folder: Path, names: list[str]) -> None:
    """Adds schedules whose moment has just come, and comes again in a day or more."""
    book = folder / "tea.md"
    book.write_text(TEA)
    now = store.now()
    for name in names:
        schedule = Schedule(
            tenant="local", name=name, owner="local", target=Target(str(book), "tea.md"), created=now - 1,
            cron="0 0 1 1 *", zone="UTC", next=now - 1, overlap="queue",
        )  # fmt: skip
        assert await store.put_job(schedule.job(now)) is not None


async def all_fired(store: SharedStore, names: list[str]) -> bool:
    found = [Schedule.of(job) for job in await store.jobs("schedule")]
    return len(found) == len(names) and all(one.history and one.history[0].run for one in found)


async def test_two_processes_fire_each_of_many_schedules_once(shared_store: SharedStore, tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(20)]
    with processes(tmp_path, "", ""):
        await add_due(shared_store, tmp_path, names)
        await eventually(lambda: all_fired(shared_store, names))
    runs = await shared_store.runs(limit=None)
    assert sorted(one.trigger for one in runs) == sorted(f"schedule:{name}" for name in names)


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_a_process_that_is_killed_while_it_fires_loses_and_repeats_nothing(
    shared_store: SharedStore, tmp_path: Path, dies: str
) -> None:
    await add_due(shared_store, tmp_path, ["tea"])
    with processes(tmp_path, dies) as (killed,):
        assert killed.wait(30) == -9
    assert len(await shared_store.runs(limit=None)) == (dies == "after")
    with processes(tmp_path, ""):
        await eventually(lambda: all_fired(shared_store, ["tea"]))
    (run,) = await shared_store.runs(limit=None)
    (schedule,) = [Schedule.of(job) for job in await shared_store.jobs("schedule")]
    assert [(one.state, one.run) for one in schedule.history] == [("started", run.id)]
