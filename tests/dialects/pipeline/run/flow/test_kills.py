"""A process that is killed while a run waits: another one continues it, and each effect happens exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.dialects.pipeline.run.flow.kill_process import harness_on
from tests.dialects.pipeline.run.flow.playbooks import later, same_on_replay

ROOT = Path(__file__).parents[5]
PAUSE = """
name: Pause
steps:
  - id: before
    command: cli sh -c 'echo before >> made'
  - id: cool
    wait: 2h
  - id: after
    command: cli sh -c 'echo after >> made'
"""


async def begun(folder: Path, text: str) -> str:
    (folder / "pipeline.yml").write_text(text)
    harness = harness_on(folder)
    run = await harness.start()
    await harness.close()
    return run


def driving(folder: Path, run: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.dialects.pipeline.run.flow.kill_process", str(folder), run]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


async def killed_once(folder: Path, run: str, reached: Callable[[], Awaitable[bool]]) -> None:
    """Drives a run in a process, and kills that process when the run has come far enough."""
    process = driving(folder, run)
    try:
        while not await reached():
            assert process.poll() is None
            await asyncio.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)


@pytest.mark.timeout(30)
async def test_a_wait_outlives_the_process_that_began_it(tmp_path: Path) -> None:
    run = await begun(tmp_path, PAUSE)
    harness = harness_on(tmp_path)

    async def paused() -> bool:
        return (await harness.store.run(run)).status == "paused"

    await killed_once(tmp_path, run, paused)
    assert (await later(harness, 7000, run)).status == "paused"
    assert harness.made("made") == ["before"]
    row = await later(harness, 300, run)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["before", "after"]
    await same_on_replay(harness, run)
    await harness.close()
