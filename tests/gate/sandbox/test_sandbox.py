"""What a sandbox does for the processes it starts: streams, limits, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate import sandbox as sandboxes
from cuebook.gate.sandbox import NoSandbox, bubblewrap, choose, landlock, process_tree
from cuebook.gate.sandbox.child import NotStarted
from cuebook.gate.sandbox.orphans import MARK
from cuebook.gate.sandbox.probe import probe
from cuebook.gate.sandbox.seccomp import filter_for, filter_for_landlock
from cuebook.kernel.ports import Limits, Sandbox
from tests.gate.sandbox.sandboxes import (
    LIMITS,
    PATH,
    SANDBOXES,
    WORKING,
    confined,
    none_left,
    python,
    run,
    token,
    until,
    with_word,
)

ROOT = Path(__file__).resolve().parents[3]

DAEMON = """
import os, sys, time
ready, word = sys.argv[1], sys.argv[2]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        open(ready, "w").close()
        time.sleep(600)
    time.sleep(600)
while not os.path.exists(ready):
    time.sleep(0.01)
print("started", flush=True)
if len(sys.argv) > 3:
    time.sleep(600)
"""

# Doubles ten times and stops there, so that it is bounded even where nothing else bounds it.
BOMB = """
import os, sys, time
for _ in range(10):
    try:
        os.fork()
    except OSError:
        pass
time.sleep(600)
"""


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(request.param)


@pytest.fixture(params=[*SANDBOXES, "none"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(request.param)


# --- choosing ---


def test_at_least_one_sandbox_works_here() -> None:
    assert WORKING


def test_auto_takes_the_first_that_works() -> None:
    assert choose().name == WORKING[0]


def test_each_can_be_asked_for_by_name() -> None:
    assert [choose(name).name for name in ("bubblewrap", "landlock", "none")] == ["bubblewrap", "landlock", "none"]


async def test_where_none_works_nothing_is_started_and_every_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sandboxes._WAYS, "bubblewrap", lambda: (bubblewrap.Bubblewrap, "bwrap is not there"))
    monkeypatch.setitem(sandboxes._WAYS, "landlock", lambda: (landlock.Landlock, "the kernel is old"))
    with pytest.raises(NoSandbox) as refused:
        await choose().spawn(confined(("/bin/true",), tmp_path))
    assert "bwrap is not there" in str(refused.value)
    assert "the kernel is old" in str(refused.value)
    assert 'sandbox = "none"' in refused.value.fix


async def test_one_that_was_asked_for_and_does_not_work_is_not_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sandboxes._WAYS, "landlock", lambda: (landlock.Landlock, "the kernel is old"))
    chosen = choose("landlock")
    assert chosen.name == "landlock"
    with pytest.raises(NoSandbox, match="the kernel is old"):
        await chosen.spawn(confined(("/bin/true",), tmp_path))


def test_nothing_heavy_is_loaded_to_choose() -> None:
    code = "import sys; from cuebook.gate.sandbox import choose; choose(); print('ctypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_bubblewrap_its_absence_is_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "not installed" in bubblewrap.problem.__wrapped__()


# --- probing ---


async def test_a_probe_tells_what_holds_by_trying_it() -> None:
    told = {it.name: it for it in await probe()}
    assert list(told) == ["bubblewrap", "landlock"]
    assert {name for name, it in told.items() if it.works} == set(WORKING)
    for name in WORKING:
        assert "It prevents reading files outside, writing files outside" in told[name].detail


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_probe_does_not_praise_landlock_for_what_it_lets_pass(name: str) -> None:
    (told,) = [it for it in await probe() if it.name == name]
    assert ("does not prevent changing permissions of files outside" in told.detail) == (name == "landlock")


async def test_a_probe_finds_out_what_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "Bubblewrap", lambda: choose("none"))
    monkeypatch.setattr(bubblewrap, "problem", lambda: "")
    told = next(it for it in await probe() if it.name == "bubblewrap")
    assert not told.works
    assert "NOT prevent reading files outside, writing files outside and network access" in told.detail


# --- a process and its streams ---


async def test_a_process_has_three_streams_its_folder_and_its_environment(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.stdin.read()); print('err', file=sys.stderr)"
    confinement = confined(python(code), tmp_path, env={"PATH": PATH, "WORD": "given"})
    done = await run(any_sandbox, confinement, stdin=b"in")
    assert (done.code, done.stdout, done.stderr) == (0, f"{tmp_path} given in\n", "err\n")


async def test_nothing_is_inherited_from_our_environment(
    any_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUEBOOK_TEST_CANARY", "canary")
    done = await run(any_sandbox, confined(("/usr/bin/env",), tmp_path))
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_", MARK, "GIT_CONFIG_NOSYSTEM"}


async def test_exit_codes_and_signals_come_back(any_sandbox: Sandbox, tmp_path: Path) -> None:
    expected = {
        "exit 0": 0,
        "exit 3": 3,
        "exit 129": 129,
        "kill -KILL $$": -9,
        "kill -SEGV $$": -11,
        "kill -TERM $$": -15,
    }
    for script, code in expected.items():
        assert (await run(any_sandbox, confined(("/bin/sh", "-c", script), tmp_path))).code == code


async def test_what_may_be_written_is_written(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = "import os; open('a', 'w').write('x'); os.mkdir('d'); os.rename('a', 'd/b'); os.symlink('d/b', 'l')"
    done = await run(any_sandbox, confined(python(code), tmp_path))
    assert done.code == 0, done.stderr
    assert (tmp_path / "l").read_text() == "x"


async def test_a_program_that_cannot_be_executed_is_told_of(any_sandbox: Sandbox, tmp_path: Path) -> None:
    done = await run(any_sandbox, confined(("/no/such/program",), tmp_path))
    assert done.code != 0
    assert "/no/such/program" in done.stderr


async def test_what_no_process_can_be_given_is_refused(any_sandbox: Sandbox, tmp_path: Path) -> None:
    for bad in ("nul \0 in it", "half a pair \ud800"):
        with pytest.raises(NotStarted):
            await any_sandbox.spawn(confined(("/bin/true",), tmp_path, env={"A": bad}))


async def test_many_at_once_do_not_get_in_each_others_way(any_sandbox: Sandbox, tmp_path: Path) -> None:
    async def one(number: int) -> str:
        return (await run(any_sandbox, confined(("/bin/echo", str(number)), tmp_path))).stdout

    assert await asyncio.gather(*(one(number) for number in range(12))) == [f"{number}\n" for number in range(12)]


async def test_no_descriptor_is_left_open(any_sandbox: Sandbox, tmp_path: Path) -> None:
    await run(any_sandbox, confined(("/bin/true",), tmp_path))  # whatever is opened once and kept
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run(any_sandbox, confined(("/bin/true",), tmp_path))
        with pytest.raises(NotStarted):
            await any_sandbox.spawn(confined(("/bin/true",), tmp_path, env={"A": "\0"}))
    await asyncio.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_pipelines_of_a_shell_always_work(any_sandbox: Sandbox, tmp_path: Path) -> None:
    """Each of its processes ends while the shell starts the next one, and tells the shell by a signal."""

    async def one() -> tuple[int, str, str]:
        return (await run(any_sandbox, confined(("/bin/sh", "-c", "echo abc | cat | cat | cat"), tmp_path)))[:3]

    for _ in range(15):
        assert await asyncio.gather(*(one() for _ in range(4))) == [(0, "abc\n", "")] * 4


@pytest.mark.needs("git")
async def test_the_usual_tools_work_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    script = "git init -q r && cd r && echo x > f && git add f && mkdir -p a/b && cp -a f a/b && tar cf t.tar a && grep -r x ."
    env = {"PATH": PATH, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = await run(sandbox, confined(("/bin/sh", "-ec", script), tmp_path, env=env))
    assert done.code == 0, done.stderr


# --- the end ---


async def test_terminating_reaches_the_whole_group(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    script = "trap 'echo asked; exit 7' TERM; sleep 600 & echo ready > ready; wait"
    process = await any_sandbox.spawn(confined(("/bin/sh", "-c", script, word), tmp_path))
    try:
        await until((tmp_path / "ready").exists)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 7
        assert os.read(process.stdout, 100) == b"asked\n"
    finally:
        _drop(process)
    assert await none_left(word) == []


async def test_killing_ends_what_ignores_every_request(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    script = "trap '' TERM INT HUP; (trap '' TERM; sleep 600)& echo ready > ready; sleep 600; sleep 600"
    process = await any_sandbox.spawn(confined(("/bin/sh", "-c", script, word), tmp_path))
    try:
        await until((tmp_path / "ready").exists)
        process.terminate()
        process.kill()
        process.kill()
        assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
        process.kill()
        process.terminate()
    finally:
        _drop(process)
    assert await none_left(word) == []


async def test_no_daemon_outlives_its_process(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    done = await run(any_sandbox, confined(python(DAEMON, tmp_path / "ready", word), tmp_path))
    assert (done.code, done.stdout) == (0, "started\n"), done.stderr
    assert await none_left(word, 2.0) == []


async def test_no_daemon_outlives_the_killing_of_its_process(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    process = await any_sandbox.spawn(confined(python(DAEMON, tmp_path / "ready", word, "stay"), tmp_path))
    try:
        await until((tmp_path / "ready").exists)
        assert len(with_word(word)) >= 3
        process.kill()
        await asyncio.wait_for(process.wait(), 20)
    finally:
        _drop(process)
    assert await none_left(word) == []


async def test_waiting_may_be_given_up_and_taken_up_again(any_sandbox: Sandbox, tmp_path: Path) -> None:
    process = await any_sandbox.spawn(confined(("/bin/sh", "-c", "read line; exit 5"), tmp_path))
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.1)
        os.write(process.stdin, b"go\n")
        assert list(await asyncio.gather(process.wait(), process.wait())) == [5, 5]
    finally:
        _drop(process)


async def test_a_start_that_is_given_up_leaves_nothing(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    for pause in (0.0, 0.001, 0.002, 0.004, 0.008):
        starting = asyncio.ensure_future(any_sandbox.spawn(confined(("/bin/sleep", "600", word), tmp_path)))
        await asyncio.sleep(pause)
        starting.cancel()
        for process in await asyncio.gather(starting, return_exceptions=True):
            if not isinstance(process, BaseException):
                process.kill()
                await process.wait()
                _drop(process)
    assert await none_left(word) == []


@pytest.mark.needs("landlock")
async def test_a_program_that_begins_while_its_start_is_given_up_is_asked_to_end_in_landlock(tmp_path: Path) -> None:
    word = token()
    script = "trap 'echo asked > asked; exit 0' TERM; echo > ready; while true; do sleep 0.02; done"
    before = set(threading.enumerate())
    starting = asyncio.ensure_future(choose("landlock").spawn(confined(("/bin/sh", "-c", script, word), tmp_path)))
    while "cuebook-landlock" not in {thread.name for thread in set(threading.enumerate()) - before}:
        await asyncio.sleep(0)
    _block_until((tmp_path / "ready").exists)  # so nothing hears that it has begun
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (tmp_path / "asked").exists()
    assert await none_left(word) == []


async def test_a_start_that_fails_halfway_is_told_and_leaves_nothing(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int, limits: Limits) -> None:
        raise ProcessLookupError

    word = token()
    monkeypatch.setattr(bubblewrap, "_limit", gone)
    monkeypatch.setattr(landlock, "_limit", gone)
    with pytest.raises(NotStarted):
        await sandbox.spawn(confined(("/bin/sleep", "600", word), tmp_path))
    assert await none_left(word) == []


STARTING = """
import asyncio, sys
from pathlib import Path
from cuebook.gate.sandbox import choose
from tests.gate.sandbox.sandboxes import confined
async def main():
    name, word, folder, script = sys.argv[1:]
    process = await choose(name).spawn(confined(("/bin/sh", "-c", script, word), Path(folder)))
    await process.wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_command_does_not_outlive_our_own_sudden_end(name: str, tmp_path: Path) -> None:
    if name == "landlock" and shutil.which("setpriv") is None:
        pytest.skip("needs the program setpriv: install util-linux")
    word = token()
    ours = _started(STARTING, name, word, str(tmp_path), "echo ready > ready; read line")
    try:
        await until((tmp_path / "ready").exists)
    finally:
        ours.kill()
        ours.wait()
    assert await none_left(word) == []


@pytest.mark.parametrize("name", SANDBOXES)
async def test_in_bubblewrap_nothing_outlives_our_own_sudden_end(name: str, tmp_path: Path) -> None:
    word = token()
    ours = _started(STARTING, name, word, str(tmp_path), "setsid sleep 600 & echo ready > ready; sleep 600")
    try:
        await until((tmp_path / "ready").exists)
        inside = set(with_word(word)) - {ours.pid}
        assert inside
    finally:
        ours.kill()
        ours.wait()
    if name != "bubblewrap":  # which is not promised of the others
        for pid in with_word(word):
            process_tree.send(pid, signal.SIGKILL)
    assert await none_left(word) == []


# --- limits ---


async def test_a_fork_bomb_is_contained_and_leaves_nothing(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    limits = Limits(processes=20)
    confinement = confined(python(BOMB, word), tmp_path, limits=limits)
    done = await run(any_sandbox, confinement, seconds=2.0, kill=True)
    assert (done.code, done.overrun) == (-signal.SIGKILL, "processes")
    assert await none_left(word) == []


async def test_one_process_too_many_ends_the_command(any_sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    code = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(600)
"""
    done = await run(any_sandbox, confined(python(code, word), tmp_path, limits=Limits(processes=10)))
    assert (done.code, done.overrun) == (-signal.SIGKILL, "processes")
    assert await none_left(word) == []


# Each leaves the tree at once, forgets its environment, and tries to look like none of them.
HIDING = """
import os, resource, sys, time
def hide():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", sys.argv[1], sys.argv[2]], {})
        os._exit(0)
    os.wait()
for _ in range(40):
    hide()
time.sleep(600)
"""
HIDDEN = """
import resource, time
try:
    resource.setrlimit(resource.RLIMIT_RTTIME, (5, 5))
except (OSError, ValueError):
    pass
time.sleep(600)
"""


async def test_processes_that_left_the_tree_count_and_are_ended(sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    done = await run(sandbox, confined(python(HIDING, HIDDEN, word), tmp_path, limits=Limits(processes=30)))
    assert (done.code, done.overrun) == (-signal.SIGKILL, "processes")
    assert await none_left(word) == []


async def test_nothing_hides_from_the_end_of_its_command(sandbox: Sandbox, tmp_path: Path) -> None:
    word = token()
    script = HIDING.replace("40", "3").replace("time.sleep(600)", "print('over')")
    done = await run(sandbox, confined(python(script, HIDDEN, word), tmp_path))
    assert (done.code, done.stdout) == (0, "over\n"), done.stderr
    assert with_word(word) == []


async def test_the_end_of_one_command_ends_nothing_else(any_sandbox: Sandbox, tmp_path: Path) -> None:
    others = [await any_sandbox.spawn(confined(("/bin/sleep", "600"), tmp_path)) for _ in range(3)]
    outside = await asyncio.create_subprocess_exec("/bin/sleep", "600")
    try:
        for _ in range(3):
            await run(any_sandbox, confined(("/bin/sleep", "600"), tmp_path), seconds=0.05, kill=True)
        assert process_tree.born(outside.pid)
        assert all(process_tree.born(process.pid) for process in others)
    finally:
        outside.kill()
        await outside.wait()
        for process in others:
            process.kill()
            assert await process.wait() == -signal.SIGKILL
            _drop(process)


async def test_what_takes_too_much_memory_is_ended(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = "import time\nheld = []\nfor _ in range(400): held.append(b'x' * (1 << 20)); time.sleep(0.002)\nprint('survived')"
    done = await run(any_sandbox, confined(python(code), tmp_path, limits=Limits(memory=100 << 20)))
    assert "survived" not in done.stdout
    assert done.overrun == "memory" or "MemoryError" in done.stderr or done.code == -signal.SIGKILL


async def test_memory_counts_for_all_processes_together(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = b'x' * (50 << 20)
        time.sleep(10)
        os._exit(0)
time.sleep(10)
print("survived")
"""
    done = await run(any_sandbox, confined(python(code), tmp_path, limits=Limits(memory=100 << 20)))
    assert done.overrun == "memory"


async def test_memory_that_processes_share_is_counted_once(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = """
import os, time
held = b'x' * (60 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
for _ in range(4):
    os.wait()
print("survived")
"""
    done = await run(any_sandbox, confined(python(code), tmp_path, limits=Limits(memory=150 << 20)))
    assert done.stdout == "survived\n", done.stderr
    assert done.overrun is None


async def test_what_takes_too_much_of_the_processor_is_ended(any_sandbox: Sandbox, tmp_path: Path) -> None:
    done = await run(any_sandbox, confined(python("while True: pass"), tmp_path, limits=Limits(cpu_seconds=1)))
    assert done.code in (-signal.SIGXCPU, -signal.SIGKILL)


async def test_files_that_are_open_are_limited(any_sandbox: Sandbox, tmp_path: Path) -> None:
    code = """
files = []
try:
    while len(files) < 5000:
        files.append(open("/dev/null"))
except OSError:
    pass
print(len(files))
"""
    done = await run(any_sandbox, confined(python(code), tmp_path, limits=Limits(open_files=50)))
    assert 10 < int(done.stdout) < 50


async def test_no_core_is_dumped(any_sandbox: Sandbox, tmp_path: Path) -> None:
    assert (await run(any_sandbox, confined(("/bin/sh", "-c", "kill -SEGV $$"), tmp_path))).code == -signal.SIGSEGV
    assert os.listdir(tmp_path) == []


async def test_what_only_reserves_memory_is_let_be(any_sandbox: Sandbox, tmp_path: Path) -> None:
    """Many runtimes reserve much more than they will ever use."""
    code = "import mmap; mmap.mmap(-1, 8 << 30, prot=0, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); print('fine')"
    argv = (sys.executable, "-I", "-c", code)
    done = await run(any_sandbox, confined(argv, tmp_path, limits=LIMITS))
    assert done.stdout == "fine\n", done.stderr


async def test_limits_are_set_before_the_program_begins(any_sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(cpu_seconds=17, open_files=77)
    argv = ("/bin/sh", "-c", "ulimit -t; ulimit -n; ulimit -c")
    for _ in range(5):
        done = await run(any_sandbox, confined(argv, tmp_path, limits=limits))
        assert done.stdout.split() == ["17", "77", "0"]


async def test_a_process_has_no_privileges_and_gets_none(sandbox: Sandbox, tmp_path: Path) -> None:
    process = await sandbox.spawn(confined(("/bin/sh", "-c", "echo ready; read line"), tmp_path))
    try:
        assert os.read(process.stdout, 10) == b"ready\n"
        fields = _status(f"/proc/{process_tree.below(process.pid)[-1]}")
        assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        assert fields["NoNewPrivs"] == "1"
    finally:
        process.kill()
        await process.wait()
        _drop(process)


async def test_our_own_threads_are_not_confined(sandbox: Sandbox, tmp_path: Path) -> None:
    before = _filtered_threads()
    await run(sandbox, confined(("/bin/true",), tmp_path))
    await until(lambda: _filtered_threads() <= before)  # the one that was confined takes a moment to end
    assert gc.isenabled()


# --- without a sandbox ---


async def test_without_a_sandbox_everything_outside_is_open_and_its_name_says_so(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").write_text("open")
    done = await run(choose("none"), confined(("/bin/cat", str(tmp_path / "outside")), tmp_path / "inside"))
    assert done.stdout == "open"
    assert choose("none").name == "none"


async def test_without_a_sandbox_an_end_is_noticed_on_systems_without_descriptors_for_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    word = token()
    done = await run(choose("none"), confined(python(DAEMON, tmp_path / "ready", word), tmp_path))
    assert (done.code, done.stdout) == (0, "started\n"), done.stderr
    monkeypatch.delattr(os, "waitid", raising=False)
    assert (await run(choose("none"), confined(("/bin/sh", "-c", "exit 3"), tmp_path))).code == 3
    assert await none_left(word) == []


# --- the parts ---


@pytest.mark.parametrize("kind", ["writable", "readable"])
async def test_the_whole_file_system_is_never_let_in(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    (tmp_path / "everything").symlink_to("/")
    for path in ("/", "//", str(tmp_path / "everything")):
        with pytest.raises(NotStarted):
            await sandbox.spawn(confined(("/bin/true",), tmp_path, **{kind: (str(tmp_path), path)}))


async def test_a_folder_within_one_that_can_be_written_is_written_too(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    argv = ("/bin/sh", "-c", "echo x > deep/file")
    done = await run(sandbox, confined(argv, tmp_path, readable=(str(tmp_path / "deep"), str(tmp_path))))
    assert done.code == 0, done.stderr


async def test_a_folder_within_one_that_can_only_be_read_is_written(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    argv = ("/bin/sh", "-c", "echo x > deep/file; echo x > file")
    places = {"readable": (str(tmp_path),), "writable": (str(tmp_path / "deep"),)}
    await run(sandbox, confined(argv, tmp_path, **places))
    assert (tmp_path / "deep" / "file").exists()
    assert not (tmp_path / "file").exists()


async def test_what_is_told_by_a_link_is_found_by_the_link_and_by_its_place(sandbox: Sandbox, tmp_path: Path) -> None:
    real, link, workspace = tmp_path / "real", tmp_path / "link", tmp_path / "workspace"
    real.mkdir()
    workspace.mkdir()
    (real / "file").write_text("seen\n")
    link.symlink_to(real)
    argv = ("/bin/cat", f"{link}/file", f"{real}/file")
    assert (await run(sandbox, confined(argv, workspace, readable=(str(link),)))).stdout == "seen\nseen\n"


async def test_the_systems_own_processes_are_never_shown(sandbox: Sandbox, tmp_path: Path) -> None:
    if sandbox.name == "bubblewrap":
        argv = ("/bin/sh", "-c", "ls /proc | grep -c '^[0-9]'")
        assert int((await run(sandbox, confined(argv, tmp_path, readable=("/proc", "/dev")))).stdout) < 10


def test_processes_are_known_by_number_and_birth() -> None:
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        assert child.pid in process_tree.below(os.getpid())
        assert process_tree.born(child.pid)
    finally:
        child.kill()
        # It is dead and not yet buried: it counts for nothing any more.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_tree.born(child.pid) == ""
        child.wait()
    assert child.pid not in process_tree.below(os.getpid())


def test_children_are_found_where_the_system_does_not_list_them() -> None:
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        assert child.pid in process_tree._children_by_parent(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_looking_stops_once_there_are_too_many() -> None:
    children = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(3)]
    try:
        assert len(process_tree.below(1, 0)) >= 1
        assert len(process_tree.below(os.getpid(), 1)) >= 2
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_a_filter_is_whole_steps_and_differs_with_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        alone, together = filter_for.__wrapped__(False), filter_for.__wrapped__(True)
        assert alone is not None
        assert together is not None
        assert len(alone) % 8 == len(together) % 8 == 0
        assert alone != together
        filters = {
            filter_for_landlock.__wrapped__(network=network, reads_only=reads_only, proxied=proxied)
            for network, proxied in ((True, False), (False, False), (False, True))
            for reads_only in (True, False)
        }
        filters.add(filter_for_landlock.__wrapped__(network=False, reads_only=True, proxied=True, idle=True))
        assert len(filters) == 7
        assert {len(code) % 8 for code in filters if code} == {0}
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    assert filter_for.__wrapped__(False) is None
    assert filter_for_landlock.__wrapped__(network=False, reads_only=False) is None


def _started(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT)


def _block_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)


def _status(process: str) -> dict[str, str]:
    lines = Path(process, "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _filtered_threads() -> set[str]:
    """Our own threads that the kernel holds to a list of system calls."""
    found = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has just ended
            if _status(f"/proc/self/task/{thread}")["Seccomp"] == "2":
                found.add(thread)
    return found


def _drop(process: Any) -> None:
    for descriptor in (process.stdin, process.stdout, process.stderr):
        os.close(descriptor)
