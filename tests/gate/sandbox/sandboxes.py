"""Runs things in real sandboxes, and looks for what is left of them."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cuebook.gate.sandbox import bubblewrap, landlock
from cuebook.kernel.ports import Confinement, Limits, Sandbox
from cuebook.performers.commands.process import Running

WORKING = [name for name, way in (("bubblewrap", bubblewrap), ("landlock", landlock)) if not way.problem()]
SANDBOXES = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("bubblewrap", "landlock")]
PATH = "/usr/local/bin:/usr/bin:/bin"


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str
    overrun: str | None


def confined(argv: tuple[str, ...], folder: Path, **more: Any) -> Confinement:
    """In `folder`, which can be written unless said otherwise."""
    more = {"env": {"PATH": PATH}, "writable": (str(folder),), **more}
    return Confinement(argv=argv, cwd=str(folder), **more)


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *map(str, arguments))


async def run(
    sandbox: Sandbox, confinement: Confinement, *, seconds: float = 20.0, kill: bool = False, stdin: bytes = b""
) -> Done:
    """Runs it to its end, or for so many seconds if it is to be killed then."""
    running = Running(await sandbox.spawn(confinement), stdin, 1 << 20)
    try:
        code = await running.ended(seconds)
        if code is None:
            assert kill, f"it did not end: {running.stdout.text()} {running.stderr.text()}"
            running.process.kill()
            code = await running.ended(20.0)
        await running.drained()
        assert code is not None
        overrun = getattr(running.process, "overrun", None)
        return Done(code, running.stdout.text(), running.stderr.text(), overrun)
    finally:
        running.close()


def token() -> str:
    """A word that is found among the arguments of whatever is started with it."""
    return f"token{secrets.token_hex(8)}"


def with_word(word: str) -> list[int]:
    """The living processes that have a word among their arguments, whatever namespace they are in. Not this one."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(int(entry))
    return found


async def none_left(word: str, seconds: float = 10.0) -> list[int]:
    """What is left with that word; it is given a moment, because whoever was killed takes one to be gone."""
    for _ in range(int(seconds / 0.05)):
        if not with_word(word):
            return []
        await asyncio.sleep(0.05)
    return with_word(word)


async def until(condition: Any, seconds: float = 20.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass")


LIMITS = Limits(seconds=30.0, memory=512 << 20)
