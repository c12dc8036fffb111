"""Programs by a fork: a process for each call, as ever, but one that has everything of `cuebook` loaded already.

A new Python takes up to a second to import what a run needs, a fork a few milliseconds. The child is a process of its
own with the environment, folder, arguments and streams that it is given. What is different: calls share a seed of
hashes, and what they import is there before they ask. Tests about that start the real thing, as `Desk.begin` does.
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

ROOT = Path(__file__).resolve().parents[1]
_CHILD = Path(__file__).with_name("forking_child.py")
_PATIENCE = 60.0

Wrote = tuple[int, str, str]
"""The exit code, stdout and stderr."""


def heed_interrupts() -> None:
    """Whoever runs the tests in the background may have had signals ignored, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Parent:
    """The process that forks, for one call at a time."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` is what Python is started with; its PYTHONPATH is the folder that `cuebook` is in."""
        self._environ = dict(environ)
        self._line, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, str(_CHILD), str(theirs.fileno())],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            preexec_fn=heed_interrupts,
        )
        theirs.close()
        self._told = self._line.makefile("rb")
        self._read = set(json.loads(self._told.readline()))

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Whether Python itself, and everything that was loaded, would have read the same from this environment."""
        own = {name for name in (*environ, *self._environ) if name.startswith(("PYTHON", "LANG", "LC_"))}
        # Python's `sysconfig` asks for HOME, for a folder that nobody here uses; `keyring` is not loaded yet.
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
        child = int(self._told.readline())
        try:
            written = _exchanged(to_given, (stdin or "").encode(), out, err)
        except BaseException:
            os.kill(child, signal.SIGKILL)  # it is there until the parent is told to fork once more
            self._told.readline()
            raise
        return int(self._told.readline()), written[0], written[1]

    def close(self) -> None:
        self._told.close()
        self._line.close()
        self._process.wait(_PATIENCE)


def _exchanged(given: int | None, stdin: bytes, out: int, err: int) -> tuple[str, str]:
    """As `communicate` does it: writes and reads until nobody has the other ends any more, and closes all."""
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


class Parents:
    """All that there are of one kind. There is more than one where a call is made within another."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._idle: list[Parent] = []
        self._all: list[Parent] = []
        atexit.register(self.close)

    def call(
        self, program: str, args: list[str], folder: Path, environ: Mapping[str, str], stdin: str | None = None
    ) -> Wrote | None:
        """A module by its name or a script by its path. None where a fork would not be what a new process is."""
        parent = self._idle.pop() if self._idle else self._new()
        try:
            return parent.call(program, args, folder, environ, stdin) if parent.fits(environ) else None
        finally:
            self._idle.append(parent)

    def _new(self) -> Parent:
        made = Parent(self._environ)
        self._all.append(made)
        return made

    def close(self) -> None:
        for parent in self._all:
            parent.close()


_ours = Parents({**os.environ, "PYTHONPATH": str(ROOT / "src")})


def run_child(module: str, *args: object) -> Wrote:
    """Runs a program of the tests to its end, with the environment that the tests have themselves."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    words = [str(arg) for arg in args]
    wrote = _ours.call(module, words, ROOT, environ)
    if wrote is not None:
        return wrote
    command = [sys.executable, "-m", module, *words]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    return ran.returncode, ran.stdout, ran.stderr
