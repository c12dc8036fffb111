"""A program that is stopped at any journal write is resumed and ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.program.conversation import ProgramConversation
from cuebook.dialects.program.machine import machine
from cuebook.kernel.errors import StoreError
from cuebook.kernel.events import Checkpointed
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore, group_commit
from tests.dialects.program.crashes.crash_process import PROGRAM, service_on, settle
from tests.kernel.engine.test_crashes import ROOT
from tests.support.records import killed
from tests.support.sampling import many, some


@pytest.fixture(autouse=True)
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CHECKPOINT_EVERY", 3)


async def begun(service: Service) -> str:
    row = await service.start(Playbook.from_text(PROGRAM, "crash.pbasm"), {}, Settings(model="test/place"))
    return row.id


async def picture(service: Service, run: str) -> dict[str, Any]:
    """Everything that must be equal, no matter what happened to the process."""
    entries = [entry async for entry in service.entries(run)]
    shown = ProgramConversation.of(entries)
    return {
        "status": (await service.row(run)).status,
        "result": shown.result,
        "messages": sorted(shown.messages),
        "variables": shown.variables,
        "trace": sorted(shown.lines),
        "calls": sorted(shown.calls),
        "verdicts": shown.verdicts,
        "steps": sorted((s.path, s.label, s.visit, s.status) for s in await service.steps(run)),
        "said": [one.text for one in shown.said if one.by == "user"],
    }


async def test_a_whole_run(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store)
    run = await begun(service)
    assert await settle(service, run) == "completed"
    shown = await picture(service, run)
    assert shown["result"]["value"] == "four FOUR"
    assert shown["messages"] == ["a word?", "enough", "looking at four"]
    assert shown["verdicts"] == ["C2:R"]
    entries = [entry async for entry in service.entries(run)]
    assert sum(isinstance(entry.event, Checkpointed) for entry in entries) >= 4
    assert (await service.replay(run)).complete
    await service.close()
    await store.close()


def stop_at(monkeypatch: pytest.MonkeyPatch, when: str, number: int) -> list[int]:
    """Makes every write from the N-th on fail, or the N-th succeed without a report. Counts the attempts so far."""
    count = [0]
    commit = group_commit.Writer._attempt

    def counted(self: Any, writes: list[Any], begun: bool) -> None:
        count[0] += 1
        if count[0] == number and when == "after":
            commit(self, writes, begun)
        if count[0] >= number:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise StoreError("The process is gone.")
        commit(self, writes, begun)

    monkeypatch.setattr(group_commit.Writer, "_attempt", counted)
    return count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_stopped_at_every_write(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "whole.db")
    service = service_on(store)
    run = await begun(service)
    with monkeypatch.context() as patched:
        count = stop_at(patched, when, sys.maxsize)
        assert await settle(service, run) == "completed"
        every = range(1, count[0] + 1)
    wanted = await picture(service, run)
    await service.close()
    await store.close()
    stopped = 0
    for number in some(every, 8):
        file = tmp_path / f"at{number}.db"
        store = SqliteStore(file)
        service = service_on(store)
        run = await begun(service)
        with monkeypatch.context() as patched:
            stop_at(patched, when, number)
            try:
                await settle(service, run)
            except StoreError:
                stopped += 1
            try:
                await service.close()
                await store.close()
            except StoreError:
                pass
        store = SqliteStore(file)
        await killed(store, service._engine.driver)
        service = service_on(store)
        assert await settle(service, run) == "completed"
        assert await picture(service, run) == wanted, f"stopped {when} write {number}"
        assert (await service.replay(run)).complete
        await service.close()
        await store.close()
    assert stopped >= many(7, 15)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", some([4, 11, 17], 2))
async def test_killed(number: int, tmp_path: Path) -> None:
    whole = SqliteStore(tmp_path / "whole.db")
    service = service_on(whole)
    run = await begun(service)
    await settle(service, run)
    wanted = await picture(service, run)
    await service.close()
    await whole.close()
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store)
    run = await begun(service)
    await service.close()
    await store.close()
    command = [
        sys.executable,
        "-m",
        "tests.dialects.program.crashes.crash_process",
        str(tmp_path),
        run,
        "after",
        str(number),
    ]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environ = {**os.environ, "PYTHONPATH": path}
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, env=environ, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr.decode()
    store = SqliteStore(tmp_path / "store.db")
    service = service_on(store)
    assert await settle(service, run) == "completed"
    assert await picture(service, run) == wanted
    await service.close()
    await store.close()
