"""Processes that the kernel holds to a list of paths (Landlock) and of system calls (seccomp), by the library sandlock.

They stay in the system's own namespaces. So files outside cannot be opened, but their existence is visible. Landlock does
not look at calls that change mode, owner, times or attributes of a file: a process that only reads is refused all of them;
one that may write can use them as far as our own user could, also on files outside.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import threading
from functools import cache
from typing import Any

from cuebook.gate.sandbox import orphans, process_tree, system_paths
from cuebook.gate.sandbox.child import NotStarted, close
from cuebook.gate.sandbox.limits import WATCH, Overrun, Watched, hard_memory, lower
from cuebook.gate.sandbox.seccomp import CHANGES_OF_ATTRIBUTES, keep_attributes
from cuebook.kernel.engine.descriptors import NoDescriptors, exhausted, lacks_descriptors
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Confined, Confinement, Limits, SandboxName

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_SOURCES = ("/dev/urandom", "/dev/random", "/sys/devices/system/cpu")
_PROC = ("self", "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")

# Nothing but these would keep a process from setting limits and priorities of ours: of RLIMIT_CPU one dies as surely
# as of a signal. The price is that programs cannot ask for their own limits either.
_REFUSED = (
    *("prlimit64", "setpriority", "ioprio_set", "sched_setaffinity", "sched_setattr", "sched_setparam"),
    *("sched_setscheduler", "migrate_pages", "move_pages", "process_madvise"),
)

# Root's privileges reach what no path leads to, such as devices and the network's settings. They go before it starts.
_UNPRIVILEGED = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--")

# Landlock knows TCP and only the usual way to connect: MPTCP and the data that goes out with the first packet pass by
# it. A rule about addresses, any, makes sandlock look at every connection itself; this one refuses all of them.
_NO_NETWORK: dict[str, Any] = {"net_allow": ["tcp://127.0.0.1:1"], "net_deny": ["*"]}
_NETWORK: dict[str, Any] = {"net_allow": ["tcp://*:*", "udp://*:*"], "net_allow_bind": ["*"]}


class Landlock:
    """Starts processes through sandlock, each with a thread of ours that waits for its end."""

    @property
    def name(self) -> SandboxName:
        return "landlock"

    @property
    def problem(self) -> str:
        return problem()

    async def spawn(self, confinement: Confinement) -> Confined:
        await confinement.hold()
        started = _Started(confinement)
        try:
            return await asyncio.shield(started.process)
        except asyncio.CancelledError:
            started.abandon()
            raise


@cache
def problem() -> str:
    """Why it cannot be used here; nothing if it can. Asked once, by using it."""
    try:
        import sandlock
    except (ImportError, OSError) as error:
        return f"the Python package sandlock cannot be loaded ({error})"
    has, needs = sandlock.landlock_abi_version(), sandlock.min_landlock_abi()
    if has < needs:
        return (
            f"the kernel offers {f'Landlock {has}' if has > 0 else 'no Landlock'}, and {needs} is needed (Linux 6.12)"
        )
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "as root it needs the program setpriv, to give up root's privileges"
    tried = Confinement(argv=("/bin/true",), cwd="/")
    try:
        process = _policy(tried).popen(_argv(tried))
        ended = process.wait(timeout=30)
    except (RuntimeError, ValueError, OSError) as error:
        return f"sandlock cannot start a process here ({error})"
    return "" if ended.success else f"a process in sandlock ended with {ended.exit_code}"


def _argv(confinement: Confinement) -> list[str]:
    if os.geteuid() != 0:
        return list(confinement.argv)
    return [shutil.which("setpriv") or "setpriv", *_UNPRIVILEGED, *confinement.argv]


def _policy(confinement: Confinement) -> Any:
    import sandlock

    limits = confinement.limits
    hidden = system_paths.hidden(confinement)
    if any(system_paths.within(path, system_paths.writable(confinement)) for path in hidden):
        raise NotStarted(
            "Landlock cannot keep commands away from the store of runs if it is inside the workspace.",
            fix="Keep the store elsewhere (--store, CUEBOOK_STORE), or install bubblewrap.",
        )
    if system_paths.fixed(confinement):
        raise NotStarted(
            "Landlock cannot keep a command from changing Cuebook itself where that is installed in the workspace.",
            fix="Install Cuebook elsewhere, as with pipx, or install bubblewrap.",
        )
    whole = system_paths.readable(network=confinement.network, python=confinement.python)
    readable = [*whole, *system_paths.readable_too(confinement), *system_paths.existing(_argv(confinement)[:1])]
    readable += [
        *system_paths.existing(_SOURCES),
        *system_paths.existing(f"/proc/{name}" for name in _PROC if name != "self"),
    ]
    return sandlock.Sandbox(
        fs_readable=[*dict.fromkeys(readable), "/proc/self"],
        fs_writable=list(dict.fromkeys([*system_paths.writable(confinement), *system_paths.existing(_DEVICES)])),
        fs_denied=hidden,
        clean_env=True,
        # git takes a file that it may not open for an error, and one that is not there for none.
        env={"GIT_CONFIG_NOSYSTEM": "1", **confinement.env, orphans.MARK: orphans.mark()},
        cwd=confinement.cwd,
        max_memory=hard_memory(limits),
        max_processes=limits.processes,
        extra_deny_syscalls=[*_REFUSED, *(CHANGES_OF_ATTRIBUTES if confinement.reads_only else ())],
        **(_NETWORK if confinement.network else _NO_NETWORK),
    )


class _Started:
    """The thread that starts a process and waits for it.

    It is one thread for the whole of it, because the kernel ends the process together with the thread that began it.
    """

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._loop = asyncio.get_running_loop()
        self.process: asyncio.Future[Confined] = self._loop.create_future()
        self._unwanted = False
        threading.Thread(target=self._work, name="cuebook-landlock", daemon=True).start()

    def abandon(self) -> None:
        """The caller no longer waits for the process: it is ended as soon as it has started."""
        self._unwanted = True
        if self.process.done() and not self.process.cancelled() and self.process.exception() is None:
            _drop(self.process.result())

    def _work(self) -> None:
        try:
            process = self._begun()
        except Exception as error:  # the caller waits for this thread, whatever the error was
            self._call(self._fail, error)
            return
        if not self._call(self._give, process):
            process.kill()
        process.wait_here()

    def _begun(self) -> _Locked:
        from sandlock.sandbox import StdioMode

        if exhausted():  # sandlock opens files for the process, with descriptors of ours
            raise NoDescriptors
        keep_attributes()
        piped = StdioMode.PIPED
        streams: list[int] = []
        try:
            # There before it starts: afterwards there may be none left, and it would have begun.
            for _ in range(3):
                streams.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            native = _policy(self._confinement).popen(_argv(self._confinement), piped, piped, piped)
        except Exception as error:
            scarce = lacks_descriptors(error) or (not isinstance(error, CuebookError) and exhausted())
            close(*streams)
            if scarce:  # sandlock does not always say why
                raise NoDescriptors from None
            raise
        try:
            _limit(native.pid, self._confinement.limits)
            # sandlock closes a pipe that it still has when it begins to wait.
            for stream, own in zip((native.stdin, native.stdout, native.stderr), streams, strict=True):
                os.dup2(stream.fileno(), own, inheritable=False)
                stream.close()
            return _Locked(native, streams, self._confinement.limits, self._loop)
        except BaseException:
            close(*streams)
            with native:  # ends it, and closes what it still has
                raise

    def _give(self, process: _Locked) -> None:
        if self._unwanted:
            _drop(process)
        else:
            self.process.set_result(process)

    def _fail(self, error: Exception) -> None:
        if self._unwanted:
            return
        if not isinstance(error, CuebookError):
            error = NotStarted(
                f"sandlock could not start {self._confinement.argv[0]} ({error}).",
                fix="Run `cuebook doctor` to see which sandboxes work here.",
            )
        self.process.set_exception(error)

    def _call(self, what: Any, value: Any) -> bool:
        return _tell(self._loop, what, value)


def _tell(loop: asyncio.AbstractEventLoop, what: Any, *values: Any) -> bool:
    """Calls something in the loop's thread; False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(what, *values)
    except RuntimeError:
        return False
    return True


def _drop(process: Confined) -> None:
    process.kill()
    close(process.stdin, process.stdout, process.stderr)


def _limit(pid: int, limits: Limits) -> None:
    """Called right after the start: a child process that it has already started gets the limits as well."""
    for one in process_tree.below(pid):
        try:
            lower(one, resource.RLIMIT_CORE, 0)
            lower(one, resource.RLIMIT_CPU, limits.cpu_seconds)
            lower(one, resource.RLIMIT_NOFILE, limits.open_files)
        except ProcessLookupError:
            continue


class _Locked:
    def __init__(self, native: Any, streams: list[int], limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._native = native
        self._loop = loop
        self.pid: int = native.pid
        self.stdin, self.stdout, self.stderr = streams
        self.overrun: Overrun | None = None
        """Which limit it went beyond, if that ended it."""
        self._ended: asyncio.Future[int] = loop.create_future()
        self._watched = Watched(self.pid, limits, self._too_much)
        WATCH.add(self._watched)

    def terminate(self) -> None:
        if self._native.pid is not None:
            process_tree.send_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._native.kill()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def wait_here(self) -> None:
        """Waits in the thread that started it. sandlock ends what is left in other groups when it returns."""
        result = self._native.wait()
        WATCH.remove(self._watched)
        for pid in self._watched.leftovers():
            process_tree.send(pid, signal.SIGKILL)
        _tell(self._loop, self._over, _exit_code(result))

    def _over(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def _too_much(self, what: Overrun) -> None:
        self.overrun = self.overrun or what
        self.kill()


def _exit_code(result: Any) -> int:
    from sandlock import ExitReason

    if result.reason == ExitReason.EXITED:
        return int(result.exit_code)
    return -result.signal if result.reason == ExitReason.SIGNALED else -signal.SIGKILL
