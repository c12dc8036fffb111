"""No process gets out of its sandbox: every way out that is known here is tried in each one that works."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cuebook.gate.sandbox import choose
from cuebook.gate.sandbox.child import NotStarted
from cuebook.kernel.ports import EVERYWHERE, Limits
from tests.gate.sandbox.sandboxes import LIMITS, SANDBOXES, WORKING, confined, python, run

CANARY = "canary-3f9a1c77"
ATTEMPTS = Path(__file__).with_name("escape_attempts.py")
libc = ctypes.CDLL(None)


class Escape(NamedTuple):
    """What came of trying everything in one sandbox."""

    sandbox: str
    results: dict[str, str | None]
    before: dict[str, Any]
    after: dict[str, Any]
    hits: list[str]
    target_alive: bool
    target_limits: tuple[str, str]
    target_priority: int
    stderr: str


def _state(folder: Path) -> dict[str, Any]:
    """Everything that can be seen of the files in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        extra = os.listxattr(path, follow_symlinks=False) if path.is_file() else []
        found[path.name] = (data, status.st_mode, status.st_uid, status.st_mtime_ns, extra)
    return found


class Servers:
    """Real servers of every kind outside; whatever reaches one of them is noted."""

    def __init__(self, outside: Path, target: int) -> None:
        self.hits: list[str] = []
        self._sockets: list[socket.socket] = []
        first = self._listen("tcp", socket.AF_INET, ("127.0.0.1", 0))
        self.port = first.getsockname()[1]
        second = self._listen("tcp6", socket.AF_INET6, ("::1", 0)) if socket.has_ipv6 else first
        self.port6 = second.getsockname()[1]
        self._listen("unix", socket.AF_UNIX, str(outside / "socket"))
        self._listen("abstract", socket.AF_UNIX, f"\0cuebook-{target}")
        self._receive("udp", socket.AF_INET, ("127.0.0.1", self.port))
        self._receive("unix datagram", socket.AF_UNIX, str(outside / "datagrams"))
        self._receive("abstract datagram", socket.AF_UNIX, f"\0cuebook-datagrams-{target}")

    def _listen(self, name: str, family: int, address: Any) -> socket.socket:
        made = self._made(family, socket.SOCK_STREAM, address)
        made.listen()
        threading.Thread(target=self._serve, args=(name, made.accept), daemon=True).start()
        return made

    def _receive(self, name: str, family: int, address: Any) -> None:
        made = self._made(family, socket.SOCK_DGRAM, address)
        threading.Thread(target=self._serve, args=(name, lambda: made.recvfrom(100)), daemon=True).start()

    def _made(self, family: int, kind: int, address: Any) -> socket.socket:
        made = socket.socket(family, kind)
        self._sockets.append(made)
        made.bind(address)
        return made

    def _serve(self, name: str, take: Any) -> None:
        while True:
            try:
                taken, _ = take()
            except OSError:
                return
            if not taken:  # it was closed: every datagram that is sent here holds something
                return
            self.hits.append(name)
            if isinstance(taken, socket.socket):
                taken.close()

    def close(self) -> None:
        for it in self._sockets:
            try:
                it.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            it.close()


def _attempted(name: str, folder: Path, *, network: tuple[str, ...] = ()) -> Escape:
    outside, workspace = folder / "outside", folder / "workspace"
    outside.mkdir()
    workspace.mkdir()
    for file in ("secret", "movable", "removable"):
        (outside / file).write_text(CANARY)
        (outside / file).chmod(0o600)
    inherited = os.open(outside / "secret", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    target = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", CANARY],
        cwd=outside, env={"CANARY": CANARY}, stdin=inherited, start_new_session=True,
    )  # fmt: skip
    servers = Servers(outside, target.pid)
    memory = _shared_memory(target.pid)
    before = _state(outside)
    try:
        confinement = confined(
            (
                sys.executable,
                "-I",
                "-S",
                str(ATTEMPTS),
                str(outside),
                *map(str, (target.pid, servers.port, servers.port6)),
            ),
            workspace,
            readable=(str(ATTEMPTS),),
            limits=LIMITS,
            network=network,
        )
        done = asyncio.run(run(choose(name), confinement, seconds=60))  # type: ignore[arg-type]
        assert done.stdout, done.stderr
        end = time.monotonic() + 10
        while network == EVERYWHERE and not {"tcp", "udp"} <= set(servers.hits) and time.monotonic() < end:
            time.sleep(0.01)  # the threads of the servers may be late on a busy machine
        return Escape(
            name,
            json.loads(done.stdout),
            before,
            _state(outside),
            list(servers.hits),
            target.poll() is None,
            _cpu_limit(target.pid),
            os.getpriority(os.PRIO_PROCESS, target.pid),
            done.stderr,
        )
    finally:
        servers.close()
        libc.shmctl(memory, 0, None)
        os.close(inherited)
        target.kill()
        target.wait()


def _shared_memory(key: int) -> int:
    made: int = libc.shmget(key, 4096, 0o1600)
    assert made >= 0
    return made


def _cpu_limit(pid: int) -> tuple[str, str]:
    line = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max cpu"))
    soft, hard = line.split()[3:5]
    return soft, hard


@pytest.fixture(scope="module", params=SANDBOXES)
def escape(request: pytest.FixtureRequest) -> Iterator[Escape]:
    os.environ["CUEBOOK_TEST_CANARY"] = CANARY
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield _attempted(request.param, Path(folder))
    finally:
        del os.environ["CUEBOOK_TEST_CANARY"]


def test_at_least_one_sandbox_works_here() -> None:
    assert WORKING


def test_nothing_outside_is_read(escape: Escape) -> None:
    read = {name for name, result in escape.results.items() if result and CANARY in result}
    assert read == set()


def test_no_folder_outside_is_listed(escape: Escape) -> None:
    assert escape.results["list_folder"] is None or escape.results["list_folder"] == "[]"
    assert escape.results["list_home"] is None


def test_the_passwords_of_the_system_are_not_read(escape: Escape) -> None:
    assert escape.results["read_shadow"] is None


def test_the_environment_is_what_was_given(escape: Escape) -> None:
    own = escape.results["own_environment"]
    assert own is not None
    assert "PATH=" in own
    assert "CUEBOOK_TEST_CANARY" not in own
    assert "CUEBOOK_TEST_CANARY" not in (escape.results["read_environment_of_parent"] or "")


def test_no_content_outside_is_changed(escape: Escape) -> None:
    assert {name: seen[0] for name, seen in escape.after.items()} == {
        name: seen[0] for name, seen in escape.before.items()
    }


def test_a_command_that_may_write_changes_nothing_else_of_a_file_outside_in_bubblewrap(escape: Escape) -> None:
    changed = {name for name in escape.before if escape.before[name] != escape.after[name]}
    assert changed == (set() if escape.sandbox == "bubblewrap" else {"secret"})


def test_neither_programs_nor_settings_of_the_system_are_opened_for_writing(escape: Escape) -> None:
    assert escape.results["write_programs"] is None
    assert escape.results["write_system_settings"] is None
    assert escape.results["open_the_emergency_switch"] is None
    assert escape.results["open_the_disk"] is None
    assert escape.results["open_kernel_messages"] is None


def test_no_server_outside_is_reached(escape: Escape) -> None:
    assert escape.hits == []


def test_no_socket_of_a_dangerous_kind_is_made(escape: Escape) -> None:
    made = {name for name in ("raw_socket", "packet_socket", "hypervisor_socket") if escape.results[name] is not None}
    assert made == set()


def test_no_other_process_is_touched(escape: Escape) -> None:
    assert escape.target_alive
    assert escape.target_limits == ("unlimited", "unlimited")
    assert escape.target_priority == os.getpriority(os.PRIO_PROCESS, 0)
    touching = {
        *("signal_another", "signal_another_by_descriptor", "signal_group_of_another", "trace_another"),
        *("take_descriptor_of_another", "read_memory_of_another", "open_memory_of_another", "set_limits_of_another"),
        *("set_priority_of_another", "bind_another_to_a_processor", "type_into_the_terminal"),
        *("see_limits_of_another", "open_shared_memory_of_another"),
        *("enter_the_namespace_of_another", "read_arguments_of_another", "read_environment_of_another"),
    }
    assert {name for name in touching if escape.results[name] is not None} == set()


def test_no_dangerous_part_of_the_kernel_is_reached(escape: Escape) -> None:
    reaching = {
        *("read_keyring", "add_key", "load_program_into_the_kernel", "ring", "handle_page_faults", "count_events"),
        *("new_user_namespace", "new_namespace_by_clone", "read_after_mounting_it", "read_by_handle"),
        *("read_in_a_namespace_of_ones_own", "raise_own_limits"),
    }
    assert {name for name in reaching if escape.results[name] is not None} == set()


@pytest.mark.parametrize("name", SANDBOXES)
def test_with_the_network_the_rest_still_holds(name: str, tmp_path: Path) -> None:
    escape = _attempted(name, tmp_path, network=EVERYWHERE)
    assert "tcp" in escape.hits
    assert "udp" in escape.hits
    assert not {hit for hit in escape.hits if "unix" in hit or "abstract" in hit}
    assert not {attempt for attempt, result in escape.results.items() if result and CANARY in result}
    assert {name: seen[0] for name, seen in escape.after.items()} == {
        name: seen[0] for name, seen in escape.before.items()
    }
    assert escape.results["hypervisor_socket"] is None
    assert escape.target_alive


@pytest.mark.parametrize("name", SANDBOXES)
def test_with_a_list_of_hosts_nothing_else_opens(name: str, tmp_path: Path) -> None:
    escape = _attempted(name, tmp_path, network=("example.com",))
    assert escape.hits == []
    assert not {attempt for attempt, result in escape.results.items() if result and CANARY in result}
    assert {name: seen[0] for name, seen in escape.after.items()} == {
        name: seen[0] for name, seen in escape.before.items()
    }
    assert [escape.results[one] for one in ("raw_socket", "packet_socket", "hypervisor_socket")] == [None] * 3
    assert escape.target_alive


@pytest.mark.parametrize("name", SANDBOXES)
def test_the_loader_obeys_nobody_before_the_sandbox_is_closed(name: str, tmp_path: Path) -> None:
    """A library named in the environment is loaded by the confined program at most, never by what confines it."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    source = workspace / "evil.c"
    source.write_text(
        "#include <stdio.h>\n"
        "#include <unistd.h>\n"
        "__attribute__((constructor)) void loaded(void) {\n"
        f'  FILE *f = fopen("{outside}/loaded", "w"); if (f) fclose(f);\n'
        f'  if (!chown("{outside}", 1, 1)) puts("privileged");\n'
        "}\n"
    )
    library = workspace / "evil.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    for variable in ("LD_PRELOAD", "LD_AUDIT"):
        env = {"PATH": "/usr/bin:/bin", variable: str(library)}
        done = asyncio.run(run(choose(name), confined(("/bin/true",), workspace, env=env)))  # type: ignore[arg-type]
        assert done.code == 0, done.stderr
        assert done.stdout == ""
    assert list(outside.iterdir()) == []
    assert outside.stat().st_uid == os.getuid()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_variable_cannot_be_read_as_an_option_of_the_sandbox(name: str, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "A": "x\0--ro-bind\0/\0/mnt", "B": "--bind / /mnt"}
    with pytest.raises(NotStarted):
        await run(choose(name), confined(("/bin/true",), tmp_path, env=env))  # type: ignore[arg-type]
    env = {"PATH": "/usr/bin:/bin", "--bind": "/", "B": "--bind / /mnt"}
    done = await run(choose(name), confined(python("import os; print(os.environ['B'])"), tmp_path, env=env))  # type: ignore[arg-type]
    assert done.stdout == "--bind / /mnt\n", done.stderr


@pytest.mark.parametrize("name", SANDBOXES)
async def test_what_may_only_be_read_is_not_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("as it was")
    code = """
import os
for action in (lambda: open("file", "w"), lambda: open("new", "w"), lambda: os.mkdir("d"), lambda: os.unlink("file"),
               lambda: os.truncate("file", 0), lambda: os.rename("file", "x"), lambda: os.symlink("/", "l")):
    try:
        action()
    except OSError:
        continue
    print("written")
print(open("file").read())
"""
    confinement = confined(python(code), tmp_path, writable=(), readable=(str(tmp_path),))
    done = await run(choose(name), confinement)  # type: ignore[arg-type]
    assert done.stdout == "as it was\n", done.stderr
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "as it was"


CHANGES = """
import ctypes, fcntl, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
def call(number, *arguments):
    if libc.syscall(number, *(ctypes.c_long(it) if isinstance(it, int) else it for it in arguments)) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def flags(path, request, size):
    with open(path) as file:
        held = bytearray(size)
        fcntl.ioctl(file, 0x80086601 if size == 8 else 0x801C581F, held)
        held[0] ^= 0x40 if size == 8 else 0x80  # nodump
        fcntl.ioctl(file, request, held)
def descriptor(path, change):
    opened = os.open(path, os.O_RDONLY)
    try:
        change(opened)
    finally:
        os.close(opened)
attributes = struct.pack("QII", ctypes.addressof(value := ctypes.create_string_buffer(b"1")), 1, 0)
more = struct.pack("QIIII", 0x80, 0, 0, 0, 0)
ways = {
    "mode": lambda it: os.chmod(it, 0o777),
    "mode by descriptor": lambda it: descriptor(it, lambda opened: os.fchmod(opened, 0o777)),
    "mode without following": lambda it: call(452, -100, it.encode(), 0o777, 0x100),
    "owner": lambda it: os.chown(it, 1, 1),
    "owner by descriptor": lambda it: descriptor(it, lambda opened: os.fchown(opened, 1, 1)),
    "owner of the link": lambda it: os.lchown(it, 1, 1),
    "times": lambda it: os.utime(it, (1, 1)),
    "times now": lambda it: os.utime(it),
    "times by descriptor": lambda it: descriptor(it, lambda opened: os.utime(opened, (1, 1))),
    "attribute": lambda it: os.setxattr(it, "user.note", b"1"),
    "attribute without following": lambda it: os.setxattr(it, "user.note", b"1", follow_symlinks=False),
    "attribute by descriptor": lambda it: descriptor(it, lambda opened: os.setxattr(opened, "user.note", b"1")),
    "attribute by the newest call": lambda it: call(463, -100, it.encode(), 0, b"user.note", attributes, 16),
    "attribute removed": lambda it: os.removexattr(it, "user.kept"),
    "attribute removed by the newest call": lambda it: call(466, -100, it.encode(), 0, b"user.kept"),
    "flags": lambda it: flags(it, 0x40086602, 8),
    "flags by the other request": lambda it: flags(it, 0x401C5820, 28),
    "flags by the newest call": lambda it: call(469, -100, it.encode(), more, 24, 0),
}
if x86:
    ways |= {
        "mode by the old call": lambda it: call(90, it.encode(), 0o777),
        "times by the old call": lambda it: call(132, it.encode(), struct.pack("qq", 1, 1)),
        "times by another old call": lambda it: call(235, it.encode(), struct.pack("qqqq", 1, 0, 1, 0)),
        "times by a third old call": lambda it: call(261, -100, it.encode(), struct.pack("qqqq", 1, 0, 1, 0)),
    }
for way, change in ways.items():
    for path in sys.argv[1:]:
        try:
            change(path)
        except OSError:
            continue
        print("changed:", way, path)
print("tried", len(ways))
"""


def _kept(*paths: Path) -> list[Any]:
    """Mode, owner, times, attributes and flags of files."""
    found = []
    for path in paths:
        status = path.stat()
        extra = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        flags = subprocess.run(["lsattr", "-d", str(path)], capture_output=True, text=True).stdout.split()[:1]
        found.append(
            (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_ctime_ns, extra, flags)
        )
    return found


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_command_that_only_reads_changes_no_mode_owner_time_or_attribute(name: Any, tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    files = [workspace / "file", outside / "file"]
    for file in files:
        file.write_text("as it was")
        os.setxattr(file, "user.kept", b"1")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = _kept(*files, workspace, outside)
    where = {"writable": (str(scratch),), "readable": (str(workspace),), "reads_only": True}
    done = await run(choose(name), confined(python(CHANGES, *files), workspace, **where))
    assert done.stdout.splitlines()[-1].startswith("tried"), done.stderr
    assert done.stdout.splitlines()[:-1] == []
    assert _kept(*files, workspace, outside) == before


@pytest.mark.parametrize("name", SANDBOXES)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no second way of calling")
@pytest.mark.parametrize("way", ["32 bits", "x32"])
async def test_calls_in_the_way_of_another_machine_change_nothing(name: Any, way: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("as it was")
    file.chmod(0o600)
    x32 = """
import ctypes, sys
print("calling", flush=True)
ctypes.CDLL(None).syscall(0x40000000 | 90, sys.argv[1].encode(), 0o777)
"""
    code = """
import ctypes, mmap, struct, sys
low = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
at = ctypes.addressof(ctypes.c_char.from_buffer(low))
low[512:512 + len(sys.argv[1]) + 1] = sys.argv[1].encode() + bytes(1)
chmod = bytes.fromhex("53b80f000000bb") + struct.pack("<I", at + 512) + bytes.fromhex("b9ff010000cd805bc3")
low[:len(chmod)] = chmod
assert at < 1 << 32
print("calling", flush=True)
ctypes.CFUNCTYPE(ctypes.c_int)(at)()
"""
    where = {"writable": (), "readable": (str(tmp_path),), "reads_only": True}
    done = await run(choose(name), confined(python(x32 if way == "x32" else code, file), tmp_path, **where))
    assert done.stdout == "calling\n", done.stderr
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("git")
@pytest.mark.parametrize("name", SANDBOXES)
def test_common_programs_still_read(name: Any, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (tmp_path / "file").write_text("hello\n")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "file").write_text("hello again\n")
    script = """
set -e
git status --short; git log --oneline; git diff --stat; ls -la; cat file; grep hello file; find . -name file; wc -l file
python3 -c "import asyncio, json, tempfile, subprocess; asyncio.run(asyncio.sleep(0)); tempfile.mkdtemp(); print('python')"
awk '{print}' file; sed p file; sort file; head file; stat file; tar -cf - file | wc -c; echo over
"""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch)}
    where = {"writable": (str(scratch),), "readable": (str(tmp_path),), "reads_only": True, "env": env}
    done = asyncio.run(run(choose(name), confined(("/bin/sh", "-c", script), tmp_path, **where)))
    assert done.stdout.endswith("over\n"), done.stderr


# --- files that are hidden within what is open ---


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_hidden_file_can_neither_be_read_nor_changed(name: Any, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    (folder / "below").mkdir(parents=True)
    hidden = folder / "below" / "store.db"
    hidden.write_text("kept")
    attempts = """
import os, sys
path = sys.argv[1]
def attempt(action):
    try:
        print(action())
    except OSError:
        pass
attempt(lambda: open(path).read())
attempt(lambda: open("below/store.db").read())
attempt(lambda: open(path, "w").write("owned"))
attempt(lambda: open(path, "a").write("owned"))
attempt(lambda: os.truncate(path, 0))
attempt(lambda: os.unlink(path))
attempt(lambda: os.rename(path, "moved"))
attempt(lambda: os.rename("below", "elsewhere"))
attempt(lambda: os.link(path, "linked"))
attempt(lambda: open("mine", "w").write("owned"))
attempt(lambda: os.rename("mine", path))
attempt(lambda: os.makedirs("below2"))
attempt(lambda: os.symlink(path, "link"))
attempt(lambda: open("link").read())
attempt(lambda: open("link", "w").write("owned"))
"""
    where: dict[str, Any] = {"readable": (str(folder),), "hidden": (str(hidden),)}
    if name == "landlock":  # it cannot be hidden from whoever may write around it, so nothing is started there
        with pytest.raises(NotStarted):
            await run(choose(name), confined(python(attempts, hidden), folder, **where))
        where["writable"] = ()
    done = await run(choose(name), confined(python(attempts, hidden), folder, **where))
    assert "kept" not in done.stdout, done
    assert hidden.read_text() == "kept"
    assert (folder / "below2").exists() == (name == "bubblewrap")
    assert not (folder / "moved").exists()
    assert not (folder / "linked").exists()


@pytest.mark.parametrize("name", SANDBOXES)
@pytest.mark.parametrize("writes", [True, False])
async def test_a_hidden_file_is_hidden_by_each_of_its_names(name: Any, writes: bool, tmp_path: Path) -> None:
    folder, store = tmp_path / "open", tmp_path / "elsewhere" / "store.db"
    (folder / "below").mkdir(parents=True)
    store.parent.mkdir()
    store.write_text("kept")
    os.link(store, folder / "below" / "innocent")
    (folder / "file").write_text("read")
    script = (
        "cat file; cat below/*; echo owned > below/innocent; mv below moved; ln below/innocent more; cat moved/* more"
    )
    where: dict[str, Any] = {
        "writable": (str(folder),) if writes else (),
        "readable": (str(folder),),
        "hidden": (str(store),),
    }
    confinement = confined(("/bin/sh", "-c", script), folder, **where)
    if name == "landlock" and writes:  # it cannot be hidden from whoever may write around it
        with pytest.raises(NotStarted):
            await run(choose(name), confinement)
    else:
        assert (await run(choose(name), confinement)).stdout == "read"
    assert store.read_text() == "kept"


@pytest.mark.parametrize("name", SANDBOXES)
async def test_everything_around_a_hidden_file_can_still_be_read(name: Any, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    (folder / "below" / "deep").mkdir(parents=True)
    for path in ("top", "below/beside", "below/deep/deeper", "below/store.db"):
        (folder / path).write_text(f"{path}\n")
    (tmp_path / "outside").write_text("outside\n")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "inner").symlink_to("below/beside")
    script = "cat top below/beside below/deep/deeper inner; ls; ls below; ls below/deep; cat below/store.db link"
    where = {"writable": (), "readable": (str(folder),), "hidden": (str(folder / "below" / "store.db"),)}
    done = await run(choose(name), confined(("/bin/sh", "-c", script), folder, **where))
    lines = ["top", "below/beside", "below/deep/deeper", "below/beside", "below", "inner", "link", "top"]
    assert done.stdout.split() == [*lines, "beside", "deep", "store.db", "deeper"], done.stderr


@pytest.mark.needs("landlock")
async def test_nothing_in_a_hidden_folder_is_read_in_landlock(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    (folder / "kept").mkdir(parents=True)
    (folder / "kept" / "inside").write_text("kept")
    (folder / "file").write_text("read")
    (folder / "again").symlink_to(folder)
    script = "cat file; ls kept; cat kept/inside again/kept/inside"
    where = {"writable": (), "readable": (str(folder), str(folder / "again")), "hidden": (str(folder / "kept"),)}
    done = await run(choose("landlock"), confined(("/bin/sh", "-c", script), folder, **where))
    assert done.stdout == "read", done.stderr


@pytest.mark.parametrize("name", [*SANDBOXES, "none"])
async def test_processes_that_have_ended_count_until_they_are_waited_for(name: Any, tmp_path: Path) -> None:
    code = """
import os, time
for number in range(400):
    if os.fork() == 0:
        os._exit(0)
time.sleep(30)
"""
    done = await run(choose(name), confined(python(code), tmp_path, limits=Limits(processes=100)))
    assert (done.code, done.overrun) == (-9, "processes"), done


@pytest.mark.parametrize("name", SANDBOXES)
async def test_what_is_fixed_can_be_read_and_not_changed(name: Any, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    (folder / "env" / "lib").mkdir(parents=True)
    (folder / "env" / "lib" / "site.py").write_text("kept")
    attempts = """
import os
def attempt(action):
    try:
        action()
    except OSError:
        pass
print(open("env/lib/site.py").read())
attempt(lambda: open("env/lib/site.py", "w").write("owned"))
attempt(lambda: open("env/lib/evil.pth", "w").write("owned"))
attempt(lambda: os.rename("env", "elsewhere"))
attempt(lambda: os.unlink("env/lib/site.py"))
attempt(lambda: open("mine", "w").write("mine"))
"""
    where: dict[str, Any] = {"readable": (str(folder),), "fixed": (str(folder / "env"),)}
    if name == "landlock":  # it cannot take a folder out of another one, so nothing is started there
        with pytest.raises(NotStarted):
            await run(choose(name), confined(python(attempts), folder, **where))
        where["writable"] = ()
    done = await run(choose(name), confined(python(attempts), folder, **where))
    assert done.stdout == "kept\n", done
    assert (folder / "env" / "lib" / "site.py").read_text() == "kept"
    assert sorted(path.name for path in (folder / "env" / "lib").iterdir()) == ["site.py"]
    assert (folder / "mine").exists() == (name == "bubblewrap")


@pytest.mark.parametrize("name", SANDBOXES)
@pytest.mark.parametrize(
    ("hidden", "fixed"),
    [("a/store.db", "a/env"), ("env/store.db", "env"), ("store.db", "a/b/env"), ("a/b/store.db", "a/env")],
)
async def test_what_is_hidden_and_what_is_fixed_do_not_uncover_each_other(
    name: Any, tmp_path: Path, hidden: str, fixed: str
) -> None:
    store, env = tmp_path / hidden, tmp_path / fixed
    store.parent.mkdir(parents=True, exist_ok=True)
    env.mkdir(parents=True, exist_ok=True)
    store.write_text("kept")
    (env / "site.py").write_text("kept as well")
    script = """
cat "$1"; echo owned > "$1"; rm -f "$1"; echo owned > "$2/site.py"; echo owned > "$2/evil.pth"
mv "$2" moved; for top in *; do mv "$top" "moved-$top"; done; true
"""
    argv = ("/bin/sh", "-c", script, "sh", hidden, fixed)
    confinement = confined(argv, tmp_path, hidden=(str(store),), fixed=(str(env),))
    if name == "landlock":
        with pytest.raises(NotStarted):
            await run(choose(name), confinement)
    else:
        assert (await run(choose(name), confinement)).stdout == ""
    assert store.read_text() == "kept"
    assert (env / "site.py").read_text() == "kept as well"
    assert not (env / "evil.pth").exists()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_what_is_fixed_is_not_led_to_by_a_link_that_could_be_replaced(name: Any, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "open", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "env").symlink_to(elsewhere)
    with pytest.raises(NotStarted, match="is a link"):
        await run(choose(name), confined(("/bin/true",), folder, fixed=(str(folder / "env"),)))
    # A link that nobody inside can replace is none of its business.
    (tmp_path / "env").symlink_to(elsewhere)
    done = await run(choose(name), confined(("/bin/true",), folder, fixed=(str(tmp_path / "env"),)))
    assert done.code == 0, done.stderr
