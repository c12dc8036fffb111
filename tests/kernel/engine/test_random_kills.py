"""Processes that drive one run are killed repeatedly at random moments. `make chaos` does it for longer."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cuebook.stores.sqlite import SqliteStore
from tests.kernel.engine.test_crashes import ROOT, picture, prepare, settle, undisturbed
from tests.support.programs import engine_on, lines
from tests.support.sampling import many

ROUNDS = many(3, 60)


def drive_and_kill(folder: Path, run: str, after: float) -> None:
    command = [sys.executable, "-m", "tests.kernel.engine.crash_process", str(folder), run, "never", "0"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    child = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        child.wait(after)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", ["answered", "concurrent", "checkpointed", "nested"])
async def test_a_run_survives_repeated_kills(shape: str, tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    wanted, wanted_lines = await undisturbed(tmp_path / "undisturbed", shape)
    for number in range(ROUNDS):
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        run = await prepare(folder, shape)
        for _ in range(3):
            await asyncio.to_thread(drive_and_kill, folder, run, random.uniform(0.1, 0.6))
        store = SqliteStore(folder / "store.db")
        engine = engine_on(store, folder)
        assert {int(seq) for seq in lines(folder, "told")} <= {record.seq async for record in store.records(run)}
        status, _ = await settle(engine, folder, run)
        assert status == "completed"
        assert await picture(store, engine, run) == wanted
        assert Counter(lines(folder)) == wanted_lines
        assert (await engine.verify(run)).broken_at is None
        await engine.close()
        await store.close()
