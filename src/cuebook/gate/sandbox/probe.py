"""Finds out what a sandbox really prevents, by running a small process in it that tries to break out.

It does not rely on what a library or the kernel claims about itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from cuebook.gate.sandbox import bubblewrap, landlock, system_paths
from cuebook.gate.sandbox.child import close
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Confinement, Limits, Sandbox

_SECONDS = 30.0
_MUST_HOLD = ("reading files outside", "writing files outside", "network access")

# Runs inside and prints which attempts succeeded. Changes are checked from outside, since the same path may lead to a
# different place inside.
_ATTEMPTS = """
import json, os, socket, sys
outside, port = sys.argv[1], int(sys.argv[2])
done = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    done.append(name)
def connect():
    with socket.socket() as it:
        it.settimeout(5)
        it.connect(("127.0.0.1", port))
attempt("writing within", lambda: open("within", "w").close())
attempt("reading files outside", lambda: open(outside).close())
attempt("-", lambda: open(outside + ".new", "w").close())
attempt("-", lambda: os.chmod(outside, 0o640))
attempt("network access", connect)
attempt("finding out which files exist outside", lambda: os.stat(outside))
print(json.dumps(done))
"""


class Probe(msgspec.Struct, frozen=True):
    """The result of trying one sandbox."""

    name: str
    works: bool
    detail: str


async def probe() -> list[Probe]:
    """Tries each sandbox, in the order in which they are preferred."""
    return list(
        await asyncio.gather(
            _tried("bubblewrap", bubblewrap.Bubblewrap(), bubblewrap.problem()),
            _tried("landlock", landlock.Landlock(), landlock.problem()),
        )
    )


async def _tried(name: str, sandbox: Sandbox, problem: str) -> Probe:
    if problem:
        return Probe(name, False, f"{problem[0].upper()}{problem[1:].rstrip('.')}.")
    hits = 0

    def hit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hits
        hits += 1
        writer.close()

    server = await asyncio.start_server(hit, "127.0.0.1", 0)
    try:
        with tempfile.TemporaryDirectory(prefix="cuebook-probe-") as folder:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(_SECONDS):
                done = await _attempts(sandbox, Path(folder), port)
    except TimeoutError:
        return Probe(name, False, "It could not be tried: a process in it did not exit.")
    except (CuebookError, ValueError) as error:
        return Probe(name, False, f"It could not be tried: {error}")
    finally:
        server.close()
        await server.wait_closed()
    return _verdict(name, {*done, *(["network access"] if hits else [])})


async def _attempts(sandbox: Sandbox, folder: Path, port: int) -> list[str]:
    outside, within = folder / "outside", folder / "within"
    outside.write_text("must not be read")
    within.mkdir()
    process = await sandbox.spawn(
        Confinement(
            argv=(sys.executable, "-I", "-S", "-c", _ATTEMPTS, str(outside), str(port)),
            cwd=str(within),
            env={"PATH": "/usr/bin:/bin"},
            writable=(str(within),),
            readable=tuple(system_paths.existing([sys.executable])),
            limits=Limits(seconds=_SECONDS),
        )
    )
    try:
        code = await process.wait()
        said = os.read(process.stdout, 65_536)
        if code != 0 or not said:
            why = os.read(process.stderr, 2_000).decode("utf-8", "replace").strip()
            raise ValueError(f"the process exited with code {code}. {why}".strip())
    finally:
        process.kill()
        close(process.stdin, process.stdout, process.stderr)
    done: list[str] = json.loads(said)
    if outside.stat().st_mode & 0o777 == 0o640:
        done.append(_CHMOD)
    if outside.with_name("outside.new").exists():
        done.append("writing files outside")
    return done


def _verdict(name: str, done: set[str]) -> Probe:
    broken = [what for what in _MUST_HOLD if what in done]
    if "writing within" not in done:
        return Probe(name, False, "It starts a process, but does not let it write to its own folder.")
    held = [what for what in (*_MUST_HOLD, *_LESSER) if what not in done]
    parts = [f"It prevents {_listed(held)}."] if held else []
    if broken:
        parts.insert(0, f"It does NOT prevent {_listed(broken)}.")
    lesser = [what for what in _LESSER if what in done]
    if lesser:
        parts.append(f"It does not prevent {_listed(lesser)}.")
    return Probe(name, not broken, " ".join(parts))


_CHMOD = "changing permissions of files outside by commands with write access"
_LESSER = (_CHMOD, "finding out which files exist outside")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
