"""Runs programs in forked processes that have already imported everything of `cuebook`.

A new Python takes up to a second to import what a run needs, a fork a few milliseconds. Each call is still a separate
process with its own environment, folder, arguments and streams. Three things differ: calls share a hash seed, their imports
are already loaded, and `ps` shows the fork server. Tests that depend on these start a new process with `CommandLine.start`.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_CHILD = Path(__file__).with_name("fork_server_process.py")
_PATIENCE = 60.0

Wrote = tuple[int, str, str]
"""The exit code, stdout and stderr."""


def restore_signals() -> None:
    """Resets signals that are ignored when the tests run in the background: child processes would inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class ForkServer:
    """One forking process, for one call at a time."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` is the environment of Python; its PYTHONPATH is the folder that contains `cuebook`."""
        self._environ = dict(environ)
        self._line, theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, str(_CHILD), str(theirs.fileno())],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            preexec_fn=restore_signals,
        )
        theirs.close()
        self._received = b""
        self._read = set(json.loads(self._reply()))

    def another(self) -> ForkServer:
        """One more, which need not load anything."""
        made = copy.copy(self)
        made._line, theirs = socket.socketpair()
        made._process = None
        self._ask({}, [theirs.fileno()])
        theirs.close()
        return made

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Whether Python itself, and everything that was loaded, would have read the same from this environment."""
        own = {name for name in (*environ, *self._environ) if name.startswith(("PYTHON", "LANG", "LC_"))}
        # Python's `sysconfig` asks for HOME, for a folder that is not used here; `keyring` is not loaded yet.
        names = (own | self._read) - {"HOME", "PYTHONPATH", "PYTHON_KEYRING_BACKEND"}
        return all(environ.get(name) == self._environ.get(name) for name in names)

    def call(self, program: str, args: list[str], folder: Path, environ: Mapping[str, str], stdin: str | None) -> Wrote:
        given, to_given = (os.open(os.devnull, os.O_RDWR), None) if stdin is None else os.pipe()
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        streams = [given, to_out, to_err]
        child = self.begin(program, args, folder, environ, streams)
        for number in streams:
            os.close(number)
        try:
            written = _exchanged(to_given, (stdin or "").encode(), out, err)
        except BaseException:
            os.kill(child, signal.SIGKILL)  # it exists until the server is asked to fork again
            self._reply()
            raise
        return int(self._reply()), written[0], written[1]

    def begin(
        self,
        program: str,
        args: list[str],
        folder: Path,
        environ: Mapping[str, str],
        streams: list[int],
        terminal: str = "",
    ) -> int:
        """Starts a process with these standard streams and returns its id; `ended` has to be awaited before the next one."""
        asked = {
            "program": program,
            "args": args,
            "folder": str(folder),
            "environ": dict(environ),
            "terminal": terminal,
        }
        self._ask(asked, streams)
        return int(self._reply())

    def ended(self, within: float | None) -> int | None:
        """The exit code of what was begun; None if it has not ended after this many seconds."""
        if b"\n" not in self._received and within is not None and not select.select([self._line], [], [], within)[0]:
            return None
        return int(self._reply())

    def _ask(self, asked: dict[str, Any], descriptors: list[int]) -> None:
        body = json.dumps(asked).encode()
        socket.send_fds(self._line, [len(body).to_bytes(8, "big")], descriptors)
        self._line.sendall(body)

    def _reply(self) -> bytes:
        while b"\n" not in self._received:
            piece = self._line.recv(65536)
            if not piece:
                raise EOFError("the fork server has ended")
            self._received += piece
        reply, _, self._received = self._received.partition(b"\n")
        return reply

    def close(self) -> None:
        self._line.close()
        if self._process is not None:
            self._process.wait(_PATIENCE)


class ForkedProcess(subprocess.Popen[Any]):
    """A forked process with the interface of a new one."""

    returncode: int | None

    def __init__(
        self, pool: ForkServers, parent: ForkServer, args: list[str], *, terminal: str = "", **given: Any
    ) -> None:
        """`args` begins with the program; `terminal` is what the process is to the terminal that its stdin is."""
        self._pool, self._parent, self._terminal = pool, parent, terminal
        super().__init__(args, **given)

    def _execute_child(self, args: list[str], *given: Any) -> None:
        cwd, env, streams = given[4], given[5], given[9:15]
        taking = [streams[0], streams[3], streams[5]]
        taking = [own if number == -1 else number for own, number in enumerate(taking)]
        self.pid = self._parent.begin(args[0], args[1:], cwd, env, taking, self._terminal)
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._looked(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._looked(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _looked(self, within: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ended(within)
            if self.returncode is not None:
                self._pool.given_back(self._parent)
        return self.returncode


def _exchanged(given: int | None, stdin: bytes, out: int, err: int) -> tuple[str, str]:
    """Like `Popen.communicate`: writes and reads until the other ends are closed, and closes all."""
    left, got, until = memoryview(stdin), {out: b"", err: b""}, time.monotonic() + _PATIENCE
    with selectors.DefaultSelector() as watched, contextlib.ExitStack() as open_ones:
        for number in (out, err):
            watched.register(number, selectors.EVENT_READ)
            open_ones.callback(os.close, number)
        if given is not None:
            os.set_blocking(given, False)
            watched.register(given, selectors.EVENT_WRITE)
        while watched.get_map():
            ready = watched.select(until - time.monotonic())
            if not ready:
                raise TimeoutError(f"it is still there after {_PATIENCE:g} seconds: {got}")
            for key, _ in ready:
                if key.fd == given:
                    with contextlib.suppress(BrokenPipeError):
                        left = left[os.write(given, left) :]
                        if left:
                            continue
                    watched.unregister(given)
                    os.close(given)
                    given = None
                elif piece := os.read(key.fd, 65536):
                    got[key.fd] += piece
                else:
                    watched.unregister(key.fd)
    return _text(got[out]), _text(got[err])


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


class ForkServers:
    """A pool of fork servers: each is occupied until what it began has ended."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._first: ForkServer | None = None
        """It begins no program, so that it can always make another one."""
        self._idle: list[ForkServer] = []
        self._all: list[ForkServer] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def call(
        self, program: str, args: list[str], folder: Path, environ: Mapping[str, str], stdin: str | None = None
    ) -> Wrote | None:
        """Runs a module by name or a script by path. Returns None if a fork would behave differently from a new process."""
        parent = self.taken(environ)
        if parent is None:
            return None
        try:
            return parent.call(program, args, folder, environ, stdin)
        finally:
            self.given_back(parent)

    def taken(self, environ: Mapping[str, str]) -> ForkServer | None:
        """A fork server that nothing else uses until it is given back. Returns None if a fork would behave differently."""
        with self._lock:
            if self._first is None:
                self._first = ForkServer(self._environ)
            if not self._first.fits(environ):
                return None
            if not self._idle:
                self._all.append(self._first.another())
                self._idle.append(self._all[-1])
            return self._idle.pop()

    def given_back(self, parent: ForkServer) -> None:
        self._idle.append(parent)

    def close(self) -> None:
        for parent in (*self._all, *([self._first] if self._first else [])):
            parent.close()


_ours = ForkServers({**os.environ, "PYTHONPATH": str(ROOT / "src")})


def run_child(module: str, *args: object) -> Wrote:
    """Runs a test program to its end, with the environment of the tests."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    words = [str(arg) for arg in args]
    wrote = _ours.call(module, words, ROOT, environ)
    if wrote is not None:
        return wrote
    command = [sys.executable, "-m", module, *words]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    return ran.returncode, ran.stdout, ran.stderr
