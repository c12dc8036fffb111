"""What the gate adds to a command: the whole way of it beside the bare start of the same process in the same sandbox."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from cuebook.gate.sandbox import choose
from cuebook.kernel.confinement import Confinement, Sandbox
from cuebook.kernel.effects import CommandResult, RunCommand
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Settings
from cuebook.performers.commands import DEFAULT_PATH, CommandPerformer

EFFECT = RunCommand(("true",))
WARMING = 5

Through = Callable[[], Awaitable[object]]
"""Runs `EFFECT` once, all the way."""


async def compare(sandbox: Sandbox, workspace: Path, through: Through, rounds: int) -> dict[str, float]:
    """Milliseconds of a bare start and of the whole way, in turns, and what lies between: medians."""
    bare: list[float] = []
    whole: list[float] = []
    with tempfile.TemporaryDirectory() as private:
        confinement = _confinement(workspace, private)
        for number in range(WARMING + rounds):
            pair = (await _timed(lambda: _start(sandbox, confinement)), await _timed(through))
            if number >= WARMING:
                bare.append(pair[0])
                whole.append(pair[1])
    between = [after - before for before, after in zip(bare, whole, strict=True)]
    return {"bare": median(bare), "whole": median(whole), "added": median(between)}


def _confinement(workspace: Path, private: str) -> Confinement:
    """As the performer confines `EFFECT`."""
    folders = DEFAULT_PATH.split(os.pathsep)
    program = next(path for folder in folders if os.path.isfile(path := os.path.join(folder, EFFECT.argv[0])))
    return Confinement(
        argv=(program,),
        cwd=str(workspace),
        env={"PATH": DEFAULT_PATH, "HOME": private, "TMPDIR": private},
        writable=(private, str(workspace)),
        readable=(str(workspace), program, *folders),
    )


async def _start(sandbox: Sandbox, confinement: Confinement) -> None:
    process = await sandbox.spawn(confinement)
    code = await process.wait()
    for descriptor in (process.stdin, process.stdout, process.stderr):
        os.close(descriptor)
    assert code == 0


async def _timed(action: Through) -> float:
    started = time.perf_counter()
    await action()
    return (time.perf_counter() - started) * 1000


async def performer_alone(rounds: int) -> dict[str, float]:
    """The performer without engine and gate: what it adds by itself."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(os.path.realpath(folder))  # noqa: ASYNC240
        sandbox = choose()
        performer = CommandPerformer(sandbox, workspace)
        call = Call(
            run="bench", key="bench", attempt=1, settings=Settings(), emit=lambda text: True, reset=lambda: None,
            warn=lambda code, message: None,
        )  # fmt: skip

        async def through() -> None:
            await performer.describe(EFFECT, Settings())
            outcome = await performer.perform(EFFECT, call)
            assert isinstance(outcome, CommandResult)

        return await compare(sandbox, workspace, through, rounds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=100)
    print(json.dumps(asyncio.run(performer_alone(options.parse_args().rounds))))


if __name__ == "__main__":
    main()
