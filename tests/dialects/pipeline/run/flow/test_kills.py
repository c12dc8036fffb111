"""A process that is killed within a loop or a wait: another one continues, and each effect happens exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cuebook.kernel.errors import Busy
from cuebook.kernel.events import Driven
from cuebook.stores import leases
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.kill_process import harness_on
from tests.dialects.pipeline.run.flow.playbooks import later, same_on_replay
from tests.support.sampling import many

ROOT = Path(__file__).parents[5]
ITEMS = many(40, 200)
BROKEN = (7, 19, 31)
LOOP = f"""
name: Loop
steps:
  - id: each
    for_each: {list(range(ITEMS))}
    concurrency: 3
    on_error: continue
    command: cli sh item.sh ${{item}}
  - id: after
    command: cli echo ${{each.json.completed}} ${{each.json.failed}}
"""
SCRIPT = f"""
echo $1 >> made
while test $1 -ge $(cat limit); do sleep 0.02; done
case $1 in {"|".join(map(str, BROKEN))}) exit 3;; esac
"""
"""What is done for an item. From a limit on it does not end, so that a process is killed in the middle of the loop."""
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


def driving(folder: Path, run: str, *lease: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.dialects.pipeline.run.flow.kill_process", str(folder), run, *lease]
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


async def resolve_doubts(harness: PipelineHarness, run: str) -> int:
    """Decides about commands that were caught half done by what the file shows. Returns how many there were."""
    found = [wait for wait in await harness.store.waits(run=run) if wait.kind == "in_doubt"]
    for wait in found:
        item = wait.details["effect"]["argv"][-1]
        if item in harness.made("made"):
            code = 3 if int(item) in BROKEN else 0
            await harness.service.decide(wait.id, "done", outcome={"exit_code": code})
        else:
            await harness.service.decide(wait.id, "repeat")
    return len(found)


async def test_a_loop_that_is_killed_does_everything_once(tmp_path: Path) -> None:
    run = await begun(tmp_path, LOOP)
    harness = harness_on(tmp_path)
    (harness.workspace / "item.sh").write_text(SCRIPT)
    for limit in (ITEMS // 3, ITEMS * 2 // 3):
        (harness.workspace / "limit").write_text(str(limit))

        async def reached(limit: int = limit) -> bool:
            await resolve_doubts(harness, run)
            return (harness.workspace / "made").exists() and len(harness.made("made")) >= limit - 2

        await killed_once(tmp_path, run, reached)
        assert len(harness.made("made")) < ITEMS
    (harness.workspace / "limit").write_text(str(ITEMS))
    row = await harness.service.drive(run)
    while await resolve_doubts(harness, run):
        row = await harness.service.drive(run)
    assert row.status == "completed", row.error
    assert sorted(harness.made("made"), key=int) == [str(number) for number in range(ITEMS)]
    assert (await harness.outputs(run))["after"] == f"{ITEMS - len(BROKEN)} {len(BROKEN)}\n"
    statuses = await harness.statuses(run)
    assert [number for number in range(ITEMS) if statuses[f"each[{number}]"] == "failed"] == list(BROKEN)
    assert (await harness.service.verify(run)).broken_at is None
    await same_on_replay(harness, run)
    await harness.close()


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


SECTIONS = """
name: Sections
steps:
  - id: broken
    command: cli false
on_failure:
  - id: told
    command: cli sh section.sh told
  - id: after_told
    command: cli sh -c 'echo "after_told $0" >> made' ${failure.step}
finally:
  - id: cleaned
    for_each: [1, 2]
    command: cli sh section.sh cleaned-${item}
  - id: last
    command: cli sh -c 'echo "last $0" >> made' ${failure.code}
"""
SECTION = """
echo $1 >> made
while test $1 = $(cat holds); do sleep 0.02; done
"""


@pytest.mark.parametrize("held", ["told", "cleaned-2"])
async def test_a_kill_inside_a_section_continues_there(tmp_path: Path, held: str) -> None:
    run = await begun(tmp_path, SECTIONS)
    harness = harness_on(tmp_path)
    (harness.workspace / "section.sh").write_text(SECTION)
    (harness.workspace / "holds").write_text(held)

    async def reached() -> bool:
        return held in harness.made("made")

    await killed_once(tmp_path, run, reached)
    (harness.workspace / "holds").write_text("nothing")
    await harness.service.drive(run)
    (wait,) = await harness.store.waits(run=run)
    assert wait.kind == "in_doubt"
    await harness.service.decide(wait.id, "done", outcome={"exit_code": 0})
    row = await harness.service.drive(run)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.message.startswith("Step broken failed")
    assert harness.made("made") == ["told", "after_told broken", "cleaned-1", "cleaned-2", "last exit_code"]
    await same_on_replay(harness, run)
    await harness.close()


LONG = """
name: Long
steps:
  - id: before
    command: cli sh -c 'echo began >> made'
  - id: long
    command: cli sleep 1000
    effect: read
    timeout_ms: 5000
"""


async def test_a_step_much_longer_than_the_lease_keeps_its_run_until_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE", 1.5)
    monkeypatch.setattr(leases, "LONGEST_GAP", 0.2)
    run = await begun(tmp_path, LONG)
    process = driving(tmp_path, run, "1.5")
    harness = harness_on(tmp_path)
    try:
        async with asyncio.timeout(60):
            while not harness.made("made"):
                await asyncio.sleep(0.05)
            looks = 0
            while (await harness.store.run(run)).status == "running":
                with suppress(Busy):
                    await harness.store.claim(run, "another", harness.now)
                    raise AssertionError("the run was taken over")
                looks += 1
                await asyncio.sleep(0.1)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
    assert looks > 5
    row = await harness.store.run(run)
    assert row.error is not None
    assert "still running after 5 s" in row.error.message
    assert "a longer time limit, up to `max_seconds` under [limits]" in row.error.fix
    assert harness.made("made") == ["began"]
    drivers = {one.driver for one in await harness.events(run, Driven)}
    assert len(drivers) == 1
    await harness.close()
