"""Runs processes in their own namespaces, created by bubblewrap: they see only what was put there.

They see a file system that contains little more than the system's programs, no network, and no processes but their own.
When the first of them exits, the kernel kills all the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import cache
from typing import NamedTuple

from cuebook.formats.addresses import Private
from cuebook.gate.sandbox import orphans, process_tree, system_paths
from cuebook.gate.sandbox.child import Child, NotStarted, close, on_exit
from cuebook.gate.sandbox.limits import WATCH, Overrun, Watched, hard_memory, lower
from cuebook.gate.sandbox.network import namespace
from cuebook.gate.sandbox.network.environment import proxied
from cuebook.gate.sandbox.network.proxy import Proxy, no_private
from cuebook.gate.sandbox.seccomp import filter_for
from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors
from cuebook.kernel.ports import EVERYWHERE, Confined, Confinement, Limits, SandboxName

_OWN = 1
"""The number of processes inside that belong to bubblewrap: its init process."""
_TASKS_A_PROCESS = 8
"""The kernel counts threads, we count processes; this stops a fork bomb that is faster than our checks."""

_COPIED = 1 << 20
"""System files smaller than this many bytes are copied, which is cheaper than a mount."""

# bubblewrap reports a signal as an exit code above 128, but a program can also exit with such a code. Only the codes of
# these signals are treated as signals; others, such as git's 129 for a usage error, are left unchanged.
_SIGNALS = frozenset(
    {
        *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL),
        *(signal.SIGSEGV, signal.SIGPIPE, signal.SIGTERM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS),
    }
)


class Bubblewrap:
    """Starts processes through `bwrap`."""

    def __init__(self, private: Private = no_private) -> None:
        self._private = private

    @property
    def name(self) -> SandboxName:
        return "bubblewrap"

    @property
    def problem(self) -> str:
        return problem()

    async def spawn(self, confinement: Confinement) -> Confined:
        program = shutil.which("bwrap")
        if program is None:
            raise NotStarted(
                "bubblewrap is not installed.", fix="Install it, for example with `apt install bubblewrap`."
            )
        return await _start(program, confinement, self._private)


@cache
def problem() -> str:
    """Why bubblewrap cannot be used here; empty if it can. Found out once, by trying it."""
    program = shutil.which("bwrap")
    if program is None:
        return "the program bwrap is not installed"
    if not hasattr(os, "memfd_create"):
        return "bwrap works only on Linux"
    if not hasattr(os, "pidfd_open"):
        return "this Python has no os.pidfd_open"
    view = _View(Confinement(argv=(), cwd="/"))
    argv = [program, *view.options, "--", "/bin/true"]
    try:
        done = subprocess.run(
            argv, env={}, pass_fds=view.files, capture_output=True, stdin=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap could not be run ({error})"
    finally:
        close(*view.files)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        return said or f"bwrap exits with code {done.returncode}"
    return ""


@cache
def version() -> tuple[int, ...]:
    done = subprocess.run([shutil.which("bwrap") or "bwrap", "--version"], env={}, capture_output=True, text=True)
    return tuple(map(int, re.findall(r"\d+", done.stdout)[:3]))


async def _start(program: str, confinement: Confinement, private: Private) -> Confined:
    everywhere = confinement.network == EVERYWHERE
    proxy = Proxy(confinement.network, private=private) if confinement.network and not everywhere else None
    if proxy is not None:
        confinement = proxied(confinement)
    code = filter_for(everywhere or not confinement.local_sockets)
    inside: socket.socket | None = None
    if code is None:  # without a filter, nothing holds the process back
        await confinement.hold()
    with ExitStack() as ours:
        with ExitStack() as theirs:
            try:
                info, info_end = _pipe(ours, theirs)
                holding, released = _pipe(theirs, ours)
                asked, filtering = socket.socketpair()
                theirs.enter_context(asked)
                ours.enter_context(filtering)
                argv = [program, "--info-fd", str(info_end), "--block-fd", str(holding)]
                view = _View(confinement)
                theirs.callback(close, *view.files)
                # Passed by descriptor because every user can read a process's arguments, and not as bubblewrap's own
                # environment because the loader would act on those variables before anything is confined.
                options = _in_memory("options", _encoded(view.options, confinement.env))
                theirs.callback(close, options)
                argv += ["--args", str(options)]
                kept = [info_end, holding, *view.files, options]
                if code is not None:
                    kept.append(asked.fileno())
                    argv += ["--seccomp", str(kept[-1])]
                command = confinement.argv
                if proxy is not None:
                    inside, opened = socket.socketpair()
                    ours.enter_context(inside)
                    theirs.enter_context(opened)
                    kept.append(opened.fileno())
                    command = namespace.opening(command, opened.fileno())
                argv += ["--", *command]
            except OSError as error:
                if lacks_descriptors(error):
                    raise NoDescriptors from None
                raise NotStarted(
                    f"{program} could not be started ({error}).", fix="Run `cuebook doctor` to see what works here."
                ) from None
            # Started from this thread because bubblewrap is killed when the thread that started it exits.
            child = Child(argv, env={}, keep=kept, name=f"{orphans.NAME}:{orphans.owner()}")
        first = 0
        try:
            if code is not None:
                await confinement.hold()
                _hand_over(code, filtering)
            first = await _first(info, child)
            descriptors = _let_go(first, released, confinement.limits, child)
        except BaseException as error:
            # The first process inside must be killed while it is still waiting, because it would take a closed pipe as the
            # signal to continue. It is killed by PID, because looking it up needs a descriptor and there may be none left.
            if first:
                process_tree.send(first, signal.SIGKILL)
            child.discard()
            if isinstance(error, OSError) and lacks_descriptors(error):
                raise NoDescriptors from None
            raise
        if proxy is not None and inside is not None:
            namespace.serve(proxy, inside.dup())
    return _Wrapped(child, first, descriptors, confinement.limits, proxy)


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[int, int]:
    """Creates a pipe and registers each end with the stack that closes it."""
    reading, writing = os.pipe()
    reads.callback(close, reading)
    writes.callback(close, writing)
    return reading, writing


def _hand_over(code: bytes, filtering: socket.socket) -> None:
    """Passes the system call filter to bubblewrap. It starts nothing before it has received both the filter and our
    go-ahead on the block descriptor; which of the two it waits for first depends on its version. If this process is gone,
    bubblewrap gets an empty filter and rejects it. The socket is shut down rather than closed, because a process forked
    in the meantime would keep it open.
    """
    try:
        filtering.sendall(code)
        filtering.shutdown(socket.SHUT_WR)
    except OSError:  # bubblewrap has exited and reports why
        pass


def _in_memory(name: str, data: bytes) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _encoded(options: list[str], env: Mapping[str, str]) -> bytes:
    variables = [part for name, value in env.items() for part in ("--setenv", name, value)]
    try:
        parts = [os.fsencode(option) for option in (*options, *variables)]
    except UnicodeEncodeError:
        parts = [b"\0"]
    # NUL terminates an option; anything after it would be taken for the next option.
    if any(b"\0" in part for part in parts):
        raise NotStarted(
            "A variable or path contains a character that cannot be passed to a process.", fix="Remove the character."
        )
    return b"".join(part + b"\0" for part in parts)


class _View:
    """The file system that a process sees, as options for bubblewrap. Each mount has a cost, so there are few of them."""

    def __init__(self, confinement: Confinement) -> None:
        self.options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        self.files: list[int] = []
        """Descriptors of the files to copy in."""
        self._limits = confinement.limits
        if confinement.network == EVERYWHERE:
            self.options.append("--share-net")
        # Read-only because the kernel checks nothing but the owner for much of /proc: root could use it to break out.
        self.options += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
        self._scratch("/dev/shm")
        self.options += ["--remount-ro", "/dev"]
        writable = sorted(_mountable(system_paths.writable(confinement)))
        readable = _mountable(system_paths.readable_too(confinement))
        if "/tmp" not in (*readable, *writable):
            self._scratch("/tmp")
        shown = self._show_system(_system(confinement.network == EVERYWHERE, confinement.python), writable)
        for path in sorted(readable):
            if not system_paths.within(path, (*shown, *writable)):
                self.options += ["--ro-bind-try", path, path]
                shown.append(path)
        for path in writable:
            self.options += ["--bind", path, path]
        self._protect(confinement, writable)
        for path, content in confinement.placed.items():
            self.files.append(_in_memory("placed", content.encode()))
            self.options += ["--ro-bind-data", str(self.files[-1]), path]
        if not system_paths.within(confinement.cwd, (*shown, *writable)):
            self.options += ["--dir", confinement.cwd]
        self.options += ["--remount-ro", "/", "--chdir", confinement.cwd]

    def _protect(self, confinement: Confinement, writable: list[str]) -> None:
        """Covers hidden paths with /dev/null and mounts fixed paths read-only over themselves. The folders above them
        become mounts as well; otherwise a path could be moved away together with its folder.

        All mounts are ordered from the outside in, because a later mount covers whatever was mounted below it before.
        """
        fixed = system_paths.fixed(confinement)
        hidden = system_paths.hidden(confinement)
        on_the_way = {folder for path in (*fixed, *hidden) for folder in _between(path, writable)}
        mounts = {folder: ("--bind", folder) for folder in on_the_way if not system_paths.within(folder, fixed)}
        mounts |= {path: ("--ro-bind", path) for path in fixed}
        mounts |= dict.fromkeys(hidden, ("--ro-bind", "/dev/null"))
        for path in sorted(mounts):
            self.options += [*mounts[path], path]

    def _show_system(self, whole: tuple[_Part, ...], writable: list[str]) -> list[str]:
        parts = [part for part in whole if not system_paths.within(part.path, writable)]
        for part in parts:
            target = part.target
            if part.way == "--file":
                try:
                    self.files.append(os.open(part.path, os.O_RDONLY | os.O_CLOEXEC))
                except OSError as error:
                    if lacks_descriptors(error):
                        close(*self.files)
                        raise
                    continue  # it was deleted after the first check
                target = str(self.files[-1])
            self.options += [part.way, target, part.path]
        return [part.path for part in parts]

    def _scratch(self, path: str) -> None:
        """Adds a folder in memory that disappears with the process. Its size is bounded, since it takes up memory."""
        size = ["--size", str(max(self._limits.memory // 4, 1 << 20))] if version() >= (0, 7) else []
        self.options += [*size, "--tmpfs", path]


def _between(path: str, places: list[str]) -> list[str]:
    """The folders between one of the places and a path below it."""
    around = next((place for place in places if system_paths.within(path, (place,))), None)
    found = []
    folder = os.path.dirname(path)
    while around is not None and folder != around and system_paths.within(folder, (around,)):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


class _Part(NamedTuple):
    """How one system path gets into a view."""

    way: str
    target: str
    path: str


@cache
def _system(network: bool, python: bool) -> tuple[_Part, ...]:
    """The system's paths, without those that are below another of them."""
    paths = sorted(_mountable(system_paths.readable(network=network, python=python)))
    outermost = [path for path in paths if not system_paths.within(path, [other for other in paths if other != path])]
    return tuple(_part(path, outermost) for path in outermost)


def _part(path: str, shown: list[str]) -> _Part:
    real = os.path.realpath(path)
    if real != path and system_paths.within(real, shown):
        return _Part("--symlink", real, path)
    if os.path.isfile(path) and os.access(path, os.R_OK) and os.path.getsize(path) < _COPIED:
        return _Part("--file", "", path)
    return _Part("--ro-bind-try", path, path)


def _mountable(paths: Iterable[str]) -> set[str]:
    """Leaves out /proc and /dev: a process has its own, which the system's would cover."""
    return {path for path in paths if not system_paths.within(path, ("/proc", "/dev"))}


async def _first(info: int, child: Child) -> int:
    """Returns the PID of the first process inside, which is now waiting for us; all the others descend from it."""
    said = b""
    while b"}" not in said:
        await _readable(info)
        piece = os.read(info, 4096)
        if not piece:
            await child.ended
            raise _failed(child)
        said += piece
    return int(json.loads(said)["child-pid"])


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _let_go(first: int, released: int, limits: Limits, child: Child) -> tuple[int, int]:
    """Sets the limits of the first process inside and lets it continue; returns one descriptor for noticing its exit and
    one for killing it. Both are opened first, because nothing may fail after the process continues.
    """
    held: list[int] = []
    try:
        _limit(first, limits)
        held += [os.pidfd_open(first)]
        held += [os.dup(held[0])]
        os.write(released, b"\n")
    except OSError as error:
        close(*held)
        if isinstance(error, ProcessLookupError | PermissionError | BrokenPipeError):
            raise _failed(child) from None
        raise
    return held[0], held[1]


def _failed(child: Child) -> NotStarted:
    os.set_blocking(child.streams[2], False)
    try:
        said = os.read(child.streams[2], 2000).decode("utf-8", "replace").strip()
    except BlockingIOError:
        said = ""
    return NotStarted(
        f"bubblewrap could not start the process: {said or 'it gave no reason.'}",
        fix="Run `cuebook doctor` to see which sandboxes work here.",
    )


def _limit(pid: int, limits: Limits) -> None:
    """Sets the kernel's limits on the first process inside; its children inherit them."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_DATA: hard_memory(limits),
    }
    if _counts_by_namespace():
        wanted[resource.RLIMIT_NPROC] = limits.processes * _TASKS_A_PROCESS
    for what, most in wanted.items():
        lower(pid, what, most)


@cache
def _counts_by_namespace() -> bool:
    """Whether the kernel counts a user's tasks per namespace. Older kernels count all of the user's tasks together."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)


class _Wrapped:
    def __init__(
        self, child: Child, first: int, descriptors: tuple[int, int], limits: Limits, proxy: Proxy | None
    ) -> None:
        self._child = child
        self._first = first
        watching, handle = descriptors
        self._handle: int | None = handle
        self._ending = threading.Lock()
        self.pid = child.pid
        self.stdin, self.stdout, self.stderr = child.streams
        self.overrun: Overrun | None = None
        """The limit whose violation ended it, if any."""
        self._code: int | None = None
        self._gone = asyncio.get_running_loop().create_future()
        on_exit(watching, self._gone)
        self.refused: Collection[str] = () if proxy is None else proxy.refused
        if proxy is not None:
            self._gone.add_done_callback(lambda _: proxy.close())
        self._watched = Watched(first, limits, self._too_much, spare=_OWN)
        WATCH.add(self._watched)

    def terminate(self) -> None:
        if not self._gone.done():
            process_tree.send_group(self._first, signal.SIGTERM)

    def kill(self) -> None:
        with self._ending:
            if self._handle is None:
                return
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            except ProcessLookupError:
                pass

    async def wait(self) -> int:
        await asyncio.shield(self._child.ended)
        # bubblewrap exits as soon as the command does; processes that the command left behind are killed only now.
        self.kill()
        await asyncio.shield(self._gone)
        WATCH.remove(self._watched)
        with self._ending:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                close(handle)
                self._code = _meaning(self._child.reap())
                process_tree.bury(self._first)
        assert self._code is not None
        return self._code

    def _too_much(self, what: Overrun) -> None:
        self.overrun = self.overrun or what
        self.kill()


def _meaning(code: int) -> int:
    return 128 - code if code - 128 in _SIGNALS else code
