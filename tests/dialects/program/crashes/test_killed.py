"""A process that is killed in the middle of an action leaves a run that another one completes in the same way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuebook.dialects.program.machine import machine
from cuebook.kernel.events import BranchFinished
from cuebook.stores.sqlite import SqliteStore
from tests.dialects.program.crashes.crash_process import settle
from tests.dialects.program.crashes.kill_process import service_on
from tests.dialects.program.crashes.test_resume import begun, picture
from tests.kernel.engine.test_crashes import ROOT


@pytest.fixture(autouse=True)
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same setting as in the killed process."""
    monkeypatch.setattr(machine, "CHECKPOINT_EVERY", 3)


async def killed(folder: Path, where: str) -> tuple[SqliteStore, str]:
    """A run whose process was killed."""
    store = SqliteStore(folder / "store.db")
    service = service_on(store, folder)
    run = await begun(service)
    await service.close()
    await store.close()
    command = [sys.executable, "-m", "tests.dialects.program.crashes.kill_process", str(folder), run, where]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, env=environ, capture_output=True, timeout=120)
    assert done.returncode == -9, done.stderr.decode()
    return SqliteStore(folder / "store.db"), run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["python:1", "python:2", "between", "stream"])
async def test_a_killed_run_ends_the_same_way(where: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    store = SqliteStore(whole / "store.db")
    service = service_on(store, whole)
    run = await begun(service)
    assert await settle(service, run) == "completed"
    wanted = await picture(service, run)
    await service.close()
    await store.close()

    store, run = await killed(broken, where)
    service = service_on(store, broken)
    before = [entry async for entry in service.entries(run)]
    branches = sum(isinstance(entry.event, BranchFinished) for entry in before)
    assert (branches == 1) if where == "between" else (branches < 2), "it was killed where it was meant to be"
    assert (await service.get(run)).status == "running"
    assert await settle(service, run) == "completed"
    assert await picture(service, run) == wanted
    assert (await service.replay(run)).complete
    asked = (broken / "asked.txt").read_text().split()
    once = {"python:1": ["Main"], "python:2": ["Main", "Enough"], "between": ["Size"], "stream": ["Shout", "Size"]}
    usual = (whole / "asked.txt").read_text().split()
    for name in once[where]:
        assert asked.count(name) == usual.count(name), "what is on disk is not asked again"
    assert len(asked) - len(usual) in ((1,) if where in ("between", "stream") else (0, 1))
    await service.close()
    await store.close()
