"""A child process with three pipes: the common part of every sandbox that starts processes itself.

It starts a process and notices its exit; confining the process is up to the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cuebook.gate.sandbox import process_tree
from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors
from cuebook.kernel.errors import CuebookError


class NotStarted(CuebookError):
    """The process could not be started."""

    code = "not_started"


class Started(NamedTuple):
    """A process that was started, with our ends of its standard streams."""

    process: subprocess.Popen[bytes]
    streams: tuple[int, int, int]


def start(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, keep: Sequence[int] = (), name: str = ""
) -> Started:
    """Starts a process in its own session, with only the given environment and under the given name, if any. It opens no
    files, so it also works in a thread that is not allowed to open any.
    """
    theirs: list[int] = []
    ours: list[int] = []
    try:
        for reads in (True, False, False):
            reading, writing = os.pipe()
            theirs.append(reading if reads else writing)
            ours.append(writing if reads else reading)
        process = subprocess.Popen(
            [name or argv[0], *argv[1:]],
            executable=argv[0],
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            env=env,
            cwd=cwd,
            pass_fds=keep,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        close(*ours)
        if lacks_descriptors(error):
            raise NoDescriptors from None
        raise NotStarted(
            f"{argv[0]} could not be started ({error}).", fix="Check the program and the size of its arguments."
        ) from None
    finally:
        close(*theirs)
    return Started(process, (ours[0], ours[1], ours[2]))


class Child:
    """A child process, started here or in another thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        keep: Sequence[int] = (),
        name: str = "",
    ) -> None:
        self._adopt(start(argv, env=env, cwd=cwd, keep=keep, name=name))

    @classmethod
    def of(cls, started: Started) -> Child:
        child = cls.__new__(cls)
        child._adopt(started)
        return child

    def _adopt(self, started: Started) -> None:
        self._process, self.streams = started
        self.pid = self._process.pid
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as the process has exited. It stays a zombie until `reap`, so its PID cannot be reused yet."""
        self._notice()

    def reap(self) -> int:
        """Returns the exit code of a process that has exited, or the negative number of the signal that ended it."""
        return self._process.wait()

    def discard(self) -> None:
        """For a process that the caller never received: kills it and everything it started, and closes its pipes."""
        process_tree.send(self.pid, signal.SIGSTOP)  # so that it cannot start more processes in the meantime
        self._await_stop()
        ended: set[int] = {self.pid}
        while more := [pid for pid in process_tree.below(self.pid) if pid not in ended]:
            for pid in reversed(more):
                process_tree.send(pid, signal.SIGKILL)
            ended.update(more)
        self._process.kill()
        self._process.wait()
        close(*self.streams)

    def _await_stop(self) -> None:
        """Waits until the stop signal has taken effect: before that, the process may be starting another."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _notice(self) -> None:
        if not hasattr(os, "pidfd_open"):
            self._notice_in_thread()
            return
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # there are no free descriptors
            self._notice_in_thread()
            return
        on_exit(handle, self.ended)

    def _notice_in_thread(self) -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
            try:
                loop.call_soon_threadsafe(_settle, self.ended)
            except RuntimeError:  # the loop is closed, so nothing is waiting for the process
                pass

        threading.Thread(target=work, name="cuebook-child", daemon=True).start()


def on_exit(pidfd: int, done: asyncio.Future[None]) -> None:
    """Sets the future's result once the process behind the descriptor has exited; closes the descriptor."""
    loop = asyncio.get_running_loop()

    def over() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        _settle(done)

    loop.add_reader(pidfd, over)


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def close(*descriptors: int) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass
