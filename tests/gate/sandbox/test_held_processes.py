"""A program that is held has not begun, whatever becomes of us; and what is left running all the same is ended."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from cuebook.gate.sandbox import choose, orphans, process_tree
from cuebook.gate.sandbox.seccomp import filter_for
from cuebook.kernel.engine.descriptors import NoDescriptors
from cuebook.kernel.errors import StoreError
from cuebook.kernel.ports import Sandbox
from cuebook.system.process import surely_gone
from tests.gate.sandbox.sandboxes import SANDBOXES, confined, none_left, run, token, until

ROOT = Path(__file__).resolve().parents[3]

HOLDING = """
import asyncio, sys
from pathlib import Path
import msgspec
from cuebook.gate.sandbox import choose
from tests.gate.sandbox.sandboxes import confined

name, word, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])

async def for_ever():
    (folder / "held").touch()
    await asyncio.sleep(600)

async def main():
    argv = ("/bin/sh", "-c", "touch ran; exec sleep 600", word)
    await choose(name).spawn(msgspec.structs.replace(confined(argv, folder), hold=for_ever))

asyncio.run(main())
"""

STARTING = """
import asyncio, os, sys, threading, time
from pathlib import Path
from cuebook.gate.sandbox import choose
from tests.gate.sandbox.sandboxes import confined

name, word, folder, after = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])

def die():
    time.sleep(after)
    os.kill(os.getpid(), 9)

async def main():
    sandbox = choose(name)
    assert not sandbox.problem
    threading.Thread(target=die).start()
    await sandbox.spawn(confined(("/bin/sleep", "600", word), folder))
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(params=[*SANDBOXES, "none"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(request.param)


async def test_nothing_of_a_program_runs_while_it_is_held(any_sandbox: Sandbox, tmp_path: Path) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        held.set()
        await go.wait()

    confinement = msgspec.structs.replace(confined(("/bin/sh", "-c", "touch ran"), tmp_path), hold=hold)
    running = asyncio.create_task(run(any_sandbox, confinement))
    await held.wait()
    await asyncio.sleep(0.3)
    assert not (tmp_path / "ran").exists()
    assert not running.done()
    go.set()
    assert (await running).code == 0
    assert (tmp_path / "ran").exists()


async def test_what_holds_it_may_fail_and_then_it_never_runs(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()

    async def hold() -> None:
        await asyncio.sleep(0.05)
        raise StoreError("It could not be written.")

    argv = ("/bin/sh", "-c", "touch ran; exec sleep 600", word)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreError):
        await any_sandbox.spawn(msgspec.structs.replace(confined(argv, tmp_path), hold=hold))
    assert await none_left(word) == []
    assert not (tmp_path / "ran").exists()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_where_there_is_no_filter_it_is_held_all_the_same(
    any_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.gate.sandbox.bubblewrap.filter_for", lambda network: None)
    order = []

    async def hold() -> None:
        order.append((tmp_path / "ran").exists())

    confinement = msgspec.structs.replace(confined(("/bin/sh", "-c", "touch ran"), tmp_path), hold=hold)
    assert (await run(any_sandbox, confinement)).code == 0
    assert order == [False]
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_program_that_is_held_when_we_are_killed_never_runs(name: str, tmp_path: Path) -> None:
    word = token()
    ours = _started(HOLDING, name, word, str(tmp_path))
    try:
        await until((tmp_path / "held").exists)
    finally:
        ours.kill()
        ours.wait()
    assert await none_left(word) == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.needs("bubblewrap")
@pytest.mark.skipif(filter_for(False) is None, reason="nothing to hold it by")
def test_a_filter_that_never_comes_starts_nothing(tmp_path: Path) -> None:
    """What the holding rests on: bubblewrap refuses an empty filter."""
    reading, writing = os.pipe()
    os.close(writing)
    argv = ["bwrap", "--ro-bind", "/", "/", "--bind", str(tmp_path), str(tmp_path), "--seccomp", str(reading), "--"]
    done = subprocess.run(
        [*argv, "/bin/sh", "-c", f"touch {tmp_path}/ran"], pass_fds=[reading], capture_output=True, timeout=30
    )
    os.close(reading)
    assert done.returncode != 0
    assert not (tmp_path / "ran").exists()


# --- what is left running ---


@pytest.mark.parametrize("after", [0.003, 0.006, 0.009, 0.2])
@pytest.mark.parametrize("name", [*SANDBOXES, "none"])
async def test_what_a_killed_one_left_running_is_ended_by_the_next(name: str, after: float, tmp_path: Path) -> None:
    word = token()
    ours = _started(STARTING, name, word, str(tmp_path), str(after))
    assert ours.wait() == -signal.SIGKILL
    for _ in range(3):  # one that was just being forked is not called by its name yet
        await orphans.clear()
        if not await none_left(word, seconds=0.5):
            break
    assert await none_left(word) == []


async def test_looking_for_what_was_left_never_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*about: object) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(os, "listdir", refused)
    await orphans.clear()
    assert "left running: Too many open files" in caplog.text


def test_an_owner_that_cannot_be_looked_at_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuebook.system.process.state_of", lambda pid: [])
    assert not surely_gone(os.getpid(), "1")
    assert surely_gone(2**22 + 1, "1")


@pytest.mark.needs("bubblewrap")
async def test_a_start_for_which_there_is_no_descriptor_leaves_none_open(tmp_path: Path) -> None:
    sandbox = choose("bubblewrap")
    await run(sandbox, confined(("/bin/true",), tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    for spare in range(2, 12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before - 1 + spare, hard))
        try:
            with suppress(NoDescriptors):
                await run(sandbox, confined(("/bin/true",), tmp_path))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_what_belongs_to_one_that_lives_is_left_alone(any_sandbox: Sandbox, tmp_path: Path) -> None:
    process = await any_sandbox.spawn(confined(("/bin/sleep", "600"), tmp_path))
    try:
        assert process.pid not in orphans.end()
        assert process_tree.born(process.pid)
    finally:
        process.kill()
        await process.wait()
        for descriptor in (process.stdin, process.stdout, process.stderr):
            os.close(descriptor)


def test_one_that_was_marked_in_another_namespace_is_left_alone(tmp_path: Path) -> None:
    """Its owner's number means nothing here."""
    code = "import time; print('ready', flush=True); time.sleep(600)"
    foreign = {"PATH": "/usr/bin:/bin", orphans.MARK: "1.999999.5.x"}
    gone = {**foreign, orphans.MARK: f"{orphans.owner().partition('.')[0]}.999999.5.x"}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) for env in (foreign, gone)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        ended = orphans.end()
        assert processes[0].pid not in ended
        assert processes[1].wait(30) == -signal.SIGKILL
        assert processes[0].poll() is None
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _started(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT)
