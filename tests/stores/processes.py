"""Starts the child processes of the store tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def spawn(module: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that reads and writes line by line."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.stores.{module}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def child(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive its test."""
    process = spawn(module, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hear(process: subprocess.Popen[str]) -> str:
    """The next line that a child prints; its remaining output if it has died."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line and process.poll() is not None:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return line


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
