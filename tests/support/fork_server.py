"""Runs programs in forked processes that have already imported everything of `cuebook`.

A new Python takes up to a second to import what a run needs, a fork a few milliseconds. Each call is still a separate
process with its own environment, folder, arguments and streams. Two things differ: calls share a hash seed, and their
imports are already loaded. Tests that depend on either start a new process with `CommandLine.begin`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

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
        self._process = subprocess.Popen(
            [sys.executable, str(_CHILD), str(theirs.fileno())],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            preexec_fn=restore_signals,
        )
        theirs.close()
        self._replies = self._line.makefile("rb")
        self._read = set(json.loads(self._replies.readline()))

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Whether Python itself, and everything that was loaded, would have read the same from this environment."""
        own = {name for name in (*environ, *self._environ) if name.startswith(("PYTHON", "LANG", "LC_"))}
        # Python's `sysconfig` asks for HOME, for a folder that is not used here; `keyring` is not loaded yet.
        names = (own | self._read) - {"HOME", "PYTHONPATH", "PYTHON_KEYRING_BACKEND"}
        return all(environ.get(name) == self._environ.get(name) for name in names)

    def call(self, program: str, args: list[str], folder: Path, environ: Mapping[str, str], stdin: str | None) -> Wrote:
        asked = {"program": program, "args": args, "folder": str(folder), "environ": dict(environ)}
        body = json.dumps(asked).encode()
        given, to_given = (os.open(os.devnull, os.O_RDWR), None) if stdin is None else os.pipe()
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        socket.send_fds(self._line, [len(body).to_bytes(8, "big")], [given, to_out, to_err])
        for number in (given, to_out, to_err):
            os.close(number)
        self._line.sendall(body)
        child = int(self._replies.readline())
        try:
            written = _exchanged(to_given, (stdin or "").encode(), out, err)
        except BaseException:
            os.kill(child, signal.SIGKILL)  # it exists until the server is asked to fork again
            self._replies.readline()
            raise
        return int(self._replies.readline()), written[0], written[1]

    def close(self) -> None:
        self._replies.close()
        self._line.close()
        self._process.wait(_PATIENCE)


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
    """A pool of fork servers: calls within calls need more than one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._idle: list[ForkServer] = []
        self._all: list[ForkServer] = []
        atexit.register(self.close)

    def call(
        self, program: str, args: list[str], folder: Path, environ: Mapping[str, str], stdin: str | None = None
    ) -> Wrote | None:
        """Runs a module by name or a script by path. Returns None if a fork would behave differently from a new process."""
        parent = self._idle.pop() if self._idle else self._new()
        try:
            return parent.call(program, args, folder, environ, stdin) if parent.fits(environ) else None
        finally:
            self._idle.append(parent)

    def _new(self) -> ForkServer:
        made = ForkServer(self._environ)
        self._all.append(made)
        return made

    def close(self) -> None:
        for parent in self._all:
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
