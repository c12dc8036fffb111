"""A child process with three pipes: the common part of every sandbox that starts processes itself.

It knows how a process is started and how its end is noticed, and nothing about how it is confined.
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
    """Starts a process in a session of its own, with the given environment and nothing else of ours; under another name,
    if one is given. It opens no file, so it works in a thread that may open none.
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
            f"{argv[0]} could not be started ({error}).", fix="Check the program, and how much it is given."
        ) from None
    finally:
        close(*theirs)
    return Started(process, (ours[0], ours[1], ours[2]))


class Child:
    """A process that is started here, or was started in another thread."""

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
        """Done as soon as the process has ended. It is a zombie until `reap`, so its number is still its own."""
        self._notice()

    def reap(self) -> int:
        """The exit code of a process that has ended, or minus the signal that ended it."""
        return self._process.wait()

    def discard(self) -> None:
        """For a process that was not handed out: ends it and everything it started, and closes its pipes."""
        process_tree.send(self.pid, signal.SIGSTOP)  # so that it cannot start another process meanwhile
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
        """A signal takes a moment: until the process has stopped, it may be starting another one."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _notice(self) -> None:
        if not hasattr(os, "pidfd_open"):
            self._notice_in_thread()
            return
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # there is no descriptor left
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
            except RuntimeError:  # the loop is closed, so nothing waits for it
                pass

        threading.Thread(target=work, name="cuebook-child", daemon=True).start()


def on_exit(pidfd: int, done: asyncio.Future[None]) -> None:
    """Settles the future once the process of the descriptor has ended; closes the descriptor."""
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
