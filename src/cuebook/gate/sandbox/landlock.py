"""Runs processes that the kernel restricts to certain paths (Landlock) and system calls (seccomp).

Both restrictions apply to the thread that requests them and to everything it starts. So each command gets its own thread
in this process with the same restrictions, and nothing stands between the command and the kernel: it runs at full speed.

Such a process stays in the system's own namespaces, so files outside cannot be opened, but their existence is visible.
Landlock does not check calls that change the mode, owner, times or attributes of a file. A read-only process is denied all
of these calls; a process with write access can use them wherever our own user could, even on files outside.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import NamedTuple

from cuebook.formats.addresses import Private
from cuebook.gate.sandbox import landlock_rules, orphans, process_tree, seccomp, system_paths
from cuebook.gate.sandbox.child import Child, NotStarted, Started, close, start
from cuebook.gate.sandbox.landlock_rules import READ, WRITE, Ruleset, WritableAroundHidden
from cuebook.gate.sandbox.limits import TAG, WATCH, Overrun, Watched, hard_memory, lower, lowered, new_tag
from cuebook.gate.sandbox.network.environment import proxied
from cuebook.gate.sandbox.network.proxy import Proxy, no_private
from cuebook.gate.sandbox.network.sockets import Sockets
from cuebook.kernel.engine.descriptors import NoDescriptors, exhausted, lacks_descriptors
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import EVERYWHERE, Confined, Confinement, Limits, SandboxName

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_SOURCES = ("/dev/urandom", "/dev/random", "/sys/devices/system/cpu")
# Not /proc/self: a rule applies to one folder, but /proc/self is a different folder for each process.
_PROC = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")

_PATIENCE = 30.0
_SWEEPS = 200
_BETWEEN_SWEEPS = 0.01


class Landlock:
    """Starts each process from its own confined thread."""

    def __init__(self, private: Private = no_private) -> None:
        self._private = private

    @property
    def name(self) -> SandboxName:
        return "landlock"

    @property
    def problem(self) -> str:
        return problem()

    async def spawn(self, confinement: Confinement) -> Confined:
        await confinement.hold()
        started = _Start(confinement, self._private)
        try:
            return await asyncio.shield(started.process)
        except asyncio.CancelledError:
            await started.give_up()
            raise


@cache
def problem() -> str:
    """Why Landlock cannot be used here; empty if it can. Found out once, by trying it."""
    if sys.platform != "linux":
        return "Landlock works only on Linux"
    has, needs = landlock_rules.version(), landlock_rules.NEEDED
    if has < needs:
        return f"the kernel has {f'Landlock {has}' if has > 0 else 'no Landlock'}, but version {needs} is needed (Linux 6.12)"
    if seccomp.filter_for_landlock(network=False, reads_only=False) is None:
        return f"the system calls of this architecture ({platform.machine()}) are unknown"
    outside = subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={})
    try:
        return _tried(outside.pid)
    finally:
        outside.kill()
        outside.wait()


def _tried(outside: int) -> str:
    results: SimpleQueue[Started | Exception] = SimpleQueue()
    domain = _Domain(Confinement(argv=("/bin/true",), cwd="/"), results.put)
    try:
        started = results.get(timeout=_PATIENCE)
    except Empty:
        return "a process in Landlock does not start"
    if isinstance(started, Exception):
        return f"Landlock cannot start a process here ({started})"
    # `kill` relies on this: otherwise it would kill all of the user's processes.
    confined = domain.is_kept_from(outside)
    with suppress(subprocess.TimeoutExpired):
        started.process.wait(timeout=_PATIENCE)
    close(*started.streams)
    code = started.process.returncode
    if not confined:
        started.process.kill()
        return "a process in Landlock can send signals to processes outside"
    domain.discard(started)
    return "" if code == 0 else f"a process in Landlock exited with code {code}"


def _argv(confinement: Confinement) -> list[str]:
    """The command, wrapped in programs that set its limits and make the kernel kill it when its thread exits."""
    limiting, ending = shutil.which("prlimit"), shutil.which("setpriv")
    argv = list(confinement.argv)
    if ending is not None:
        argv = [ending, "--pdeathsig", "KILL", "--", *argv]
    if limiting is not None:
        argv = [limiting, *_options(confinement.limits), "--", *argv]
    return argv


def _options(limits: Limits) -> Iterator[str]:
    for what, most in _wanted(limits).items():
        soft, hard = lowered(what, most, resource.getrlimit(what)[1])
        yield f"--{_NAMES[what]}={soft}:{hard}"


_NAMES = {
    resource.RLIMIT_CORE: "core",
    resource.RLIMIT_CPU: "cpu",
    resource.RLIMIT_NOFILE: "nofile",
    resource.RLIMIT_DATA: "data",
}


def _wanted(limits: Limits) -> dict[int, int]:
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_DATA: hard_memory(limits),
    }


def _limit(pid: int, limits: Limits) -> None:
    """Sets the limits again from outside: a library preloaded into every program could have prevented setting them."""
    for one in process_tree.below(pid):
        with suppress(ProcessLookupError):
            for what, most in _wanted(limits).items():
                lower(one, what, most)


def _tag(pid: int, tag: int) -> None:
    for one in process_tree.below(pid):
        with suppress(ProcessLookupError):
            lower(one, TAG, tag)


def _ruleset(confinement: Confinement, argv: list[str]) -> Ruleset:
    if confinement.placed:
        raise NotStarted("Landlock cannot give a process files of its own.", fix="Install bubblewrap.")
    if system_paths.fixed(confinement):
        raise NotStarted(
            "Landlock cannot keep a command from changing Cuebook if Cuebook is installed in the workspace.",
            fix="Install Cuebook elsewhere, for example with pipx, or install bubblewrap.",
        )
    programs = [word for word in (*argv[: -len(confinement.argv)], confinement.argv[0]) if word.startswith("/")]
    writable = [*system_paths.writable(confinement), *system_paths.existing(_DEVICES)]
    readable = [
        *system_paths.readable(network=confinement.network == EVERYWHERE, python=confinement.python),
        *system_paths.readable_too(confinement),
        *system_paths.existing(programs),
        *system_paths.existing((*_SOURCES, *(f"/proc/{name}" for name in _PROC))),
    ]
    rules = Ruleset(landlock_rules.hidden(system_paths.hidden(confinement)), network=confinement.network == EVERYWHERE)
    try:
        for path in dict.fromkeys(writable):
            rules.allow(path, WRITE)
        for path in dict.fromkeys(readable):
            rules.allow(path, READ)
    except WritableAroundHidden:
        rules.close()
        raise NotStarted(
            "Landlock cannot keep commands away from the store of runs if it is inside the workspace.",
            fix="Keep the store elsewhere (--store, CUEBOOK_STORE), or install bubblewrap.",
        ) from None
    except BaseException:
        rules.close()
        raise
    return rules


class _Request(NamedTuple):
    """A function to call in a confined thread, and the queue for its error."""

    what: Callable[[], None]
    answer: SimpleQueue[OSError | None]


class _Domain:
    """A confined thread that starts one process and lives as long as the process. The kernel kills the process when the
    thread exits, and only a signal from this thread reaches everything that the process started and nothing else.
    """

    def __init__(self, confinement: Confinement, tell: Callable[[Started | Exception], None]) -> None:
        self._confinement = confinement
        self._tell = tell
        self._asking = threading.Lock()
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._over = False
        self.requests = -1
        """The descriptor from which the process's requests for sockets are read, if it has a proxy. The code that takes the process
        closes it."""
        self.wanted = True
        """Whether to start the process, if it has not been started yet."""
        threading.Thread(target=self._work, name="cuebook-landlock", daemon=True).start()

    def kill(self) -> None:
        """Kills every process in this domain. Returns once all of them have received the signal."""
        self._ask(_kill_all)

    def is_kept_from(self, pid: int) -> bool:
        """Whether signals from this domain cannot reach the process."""
        return isinstance(self._ask(lambda: os.kill(pid, 0)), PermissionError)

    def discard(self, started: Started) -> None:
        """For a process that the caller never received: kills everything, and stops the thread once the process is gone."""

        def last() -> None:
            _kill_all()
            started.process.wait()

        self._end(_Request(last, SimpleQueue()))

    def drop_requests(self) -> None:
        """Answers no requests for sockets: the process gets none."""
        if self.requests >= 0:
            close(self.requests)
            self.requests = -1

    def end(self) -> None:
        """Stops the thread, after the process has exited."""
        self._end(None)

    def _end(self, last: _Request | None) -> None:
        with self._asking:
            if not self._over:
                self._over = True
                if last is not None:
                    self._requests.put(last)
                self._requests.put(None)

    def _ask(self, what: Callable[[], None]) -> OSError | None:
        with self._asking:
            if self._over or sys.is_finalizing():  # the thread no longer answers, and the kernel kills the process
                return None
            request = _Request(what, SimpleQueue())
            self._requests.put(request)
            try:
                return request.answer.get(timeout=_PATIENCE)
            except Empty:
                return None

    def _work(self) -> None:
        try:
            started = self._begun()
        except Exception as error:  # the caller is waiting for this thread, whatever the error
            self.drop_requests()
            self._tell(error)
            return
        self._tell(started)
        # From here on, open no files and start no threads in this thread: it is confined, and so would they be.
        while (request := self._requests.get()) is not None:
            try:
                request.what()
            except OSError as error:
                request.answer.put(error)
            else:
                request.answer.put(None)

    def _begun(self) -> Started:
        if exhausted():
            raise NoDescriptors
        confinement = self._confinement
        argv = _argv(confinement)
        # git treats a file that it is not allowed to open as an error, but ignores a missing file.
        everywhere = confinement.network == EVERYWHERE
        notifies = bool(confinement.network) and not everywhere
        env = {"GIT_CONFIG_NOSYSTEM": "1", **confinement.env, orphans.MARK: orphans.mark()}
        code = seccomp.filter_for_landlock(
            network=everywhere,
            reads_only=confinement.reads_only,
            proxied=notifies,
            idle=notifies and confinement.idle_sockets,
        )
        assert code is not None  # `problem` has checked this
        try:
            rules = _ruleset(confinement, argv)
            try:
                if not self.wanted:
                    raise NotStarted("The start was cancelled.")
                with _COLLECTION.held_back():
                    rules.restrict()
                    self.requests = _installed(code, notifies=notifies)
                    return start(argv, env=env, cwd=confinement.cwd)
            finally:
                rules.close()
        except OSError as error:
            if lacks_descriptors(error):
                raise NoDescriptors from None
            raise


def _installed(code: bytes, *, notifies: bool) -> int:
    try:
        return seccomp.install(code, notifies=notifies)
    except OSError as error:
        if not notifies:
            raise
        raise NotStarted(
            f"Landlock cannot limit a command to certain hosts here: the kernel passes on no requests for sockets ({error}).",
            fix="Install bubblewrap, or run it without network.",
        ) from None


def _kill_all() -> None:
    """Landlock lets a signal from a domain reach only the processes in it. No process can leave its domain, and none can be
    started while the kernel sends the signal, so no process can escape this.
    """
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


class _Collection:
    """Pauses the garbage collector while threads are being confined. It could run in one of them, and other code's
    finalizers could not remove their files there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding = 0
        self._enabled = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        with self._lock:
            if not self._holding:
                self._enabled = gc.isenabled()
                gc.disable()
            self._holding += 1
        try:
            yield
        finally:
            with self._lock:
                self._holding -= 1
                if self._enabled and not self._holding:
                    gc.enable()


_COLLECTION = _Collection()


class _Start:
    """The caller's view of a process that is being started."""

    def __init__(self, confinement: Confinement, private: Private) -> None:
        hosts = () if confinement.network == EVERYWHERE else confinement.network
        self._proxy = Proxy(hosts, private=private) if hosts else None
        if self._proxy is not None:
            confinement = proxied(confinement)
        self._confinement = confinement
        self._loop = asyncio.get_running_loop()
        self.process: asyncio.Future[_Locked] = self._loop.create_future()
        self._abandoned = False
        self._domain = _Domain(confinement, self._tell)

    async def give_up(self) -> None:
        """Cancels the start. If the process has started by then, it is terminated first and killed after the grace period,
        like any running process.
        """
        self._domain.wanted = False
        try:
            process = await asyncio.shield(self.process)
        except asyncio.CancelledError:
            self._abandon()
            raise
        except Exception:  # it was not started
            return
        try:
            process.terminate()
            async with asyncio.timeout(self._confinement.limits.grace):  # `wait_for` can lose a cancellation
                await process.wait()
        except TimeoutError:
            pass
        finally:
            process.discard()

    def _abandon(self) -> None:
        """Nothing is waiting for the process anymore, so it is killed as soon as it has started."""
        self._abandoned = True
        if self.process.done() and not self.process.cancelled() and self.process.exception() is None:
            self.process.result().discard()

    def _tell(self, result: Started | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, result)
        except RuntimeError:  # the loop is closed
            if isinstance(result, Started):
                self._drop(result)

    def _take(self, result: Started | Exception) -> None:
        if isinstance(result, Exception):
            self._fail(result)
        elif self._abandoned:
            self._drop(result)
        else:
            try:
                self.process.set_result(_Locked(result, self._domain, self._confinement.limits, self._proxy))
            except Exception as error:
                self._drop(result)
                self._fail(error)

    def _drop(self, started: Started) -> None:
        self._domain.drop_requests()
        self._domain.discard(started)
        close(*started.streams)

    def _fail(self, error: Exception) -> None:
        if self._abandoned:
            return
        if not isinstance(error, CuebookError):
            error = NotStarted(
                f"Landlock could not start {self._confinement.argv[0]} ({error}).",
                fix="Run `cuebook doctor` to see which sandboxes work here.",
            )
        self.process.set_exception(error)


class _Locked:
    def __init__(self, started: Started, domain: _Domain, limits: Limits, proxy: Proxy | None) -> None:
        self._started = started
        self._domain = domain
        self.pid = started.process.pid
        self.stdin, self.stdout, self.stderr = started.streams
        self.overrun: Overrun | None = None
        """The limit whose violation ended it, if any."""
        self._code: int | None = None
        self._ending = threading.Lock()
        tag = new_tag()
        _limit(self.pid, limits)
        if tag is not None:
            _tag(self.pid, tag)
        self._child = Child.of(started)
        self._watched = Watched(self.pid, limits, self._too_much, tag=tag)
        WATCH.add(self._watched)
        self.refused: Collection[str] = () if proxy is None else proxy.refused
        if proxy is not None:
            sockets, domain.requests = Sockets(domain.requests, proxy), -1
            self._child.ended.add_done_callback(lambda _: sockets.close())

    def terminate(self) -> None:
        with self._ending:
            # Once the process is reaped, its PID may belong to another process.
            if self._code is None:
                process_tree.send_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._domain.kill()

    def discard(self) -> None:
        """Kills a process whose caller is gone, and closes its streams."""
        WATCH.remove(self._watched)
        self._domain.discard(self._started)
        close(self.stdin, self.stdout, self.stderr)

    async def wait(self) -> int:
        await asyncio.shield(self._child.ended)
        WATCH.remove(self._watched)
        inherited: set[int] = set()
        for _ in range(_SWEEPS):
            left = self._watched.leftovers()
            self.kill()
            if not left:
                break
            inherited.update(left)
            await asyncio.sleep(_BETWEEN_SWEEPS)
        for pid in inherited:
            process_tree.bury(pid)
        with self._ending:
            if self._code is None:
                self._code = self._child.reap()
        self._domain.end()
        return self._code

    def _too_much(self, what: Overrun) -> None:
        self.overrun = self.overrun or what
        self.kill()
