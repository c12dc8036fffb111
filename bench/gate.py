"""The overhead of the gate for a command, compared with a bare start of the same process in the same sandbox."""

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

from cuebook.gate.gate import Gate
from cuebook.gate.policy import Layer, Policy, bundle_from
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sandbox import choose
from cuebook.gate.secrets import Vault
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.outcomes import CommandResult
from cuebook.kernel.ports import Admitted, Call, Case, Confined, Confinement, Sandbox
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.commands.performer import DEFAULT_PATH
from cuebook.stores.memory import MemoryStore

EFFECT = RunCommand(("true",))
WARMING = 5

Through = Callable[[], Awaitable[object]]
"""Runs `EFFECT` once, through the gate."""


class Clocked:
    """A sandbox that also records how long each process took."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.name = sandbox.name
        self.problem = sandbox.problem
        self.took = 0.0

    async def spawn(self, confinement: Confinement) -> Confined:
        began = time.perf_counter()
        process = await self._sandbox.spawn(confinement)
        waiting = process.wait

        async def wait() -> int:
            code = await waiting()
            self.took = (time.perf_counter() - began) * 1000
            return code

        process.wait = wait  # type: ignore[method-assign]
        return process


async def compare(sandbox: Clocked, workspace: Path, through: Through, rounds: int) -> dict[str, float]:
    """Median milliseconds of a bare start, of a call through the gate, and of the call without the process itself.

    Bare starts and calls alternate. The last figure is measured within each call, since starts vary more than the overhead.
    """
    bare: list[float] = []
    whole: list[float] = []
    added: list[float] = []
    with tempfile.TemporaryDirectory() as private:
        confinement = _confinement(workspace, private)
        for number in range(WARMING + rounds):
            pair = (await _timed(lambda: _start(sandbox, confinement)), await _timed(through))
            if number >= WARMING:
                bare.append(pair[0])
                whole.append(pair[1])
                added.append(pair[1] - sandbox.took)
    return {"bare": median(bare), "whole": median(whole), "added": median(added)}


def _confinement(workspace: Path, private: str) -> Confinement:
    """The confinement that the performer uses for `EFFECT`."""
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
    await _ended(await sandbox.spawn(confinement))


async def _ended(process: Confined) -> None:
    code = await process.wait()
    for descriptor in (process.stdin, process.stdout, process.stderr):
        os.close(descriptor)
    assert code == 0


async def _timed(action: Through) -> float:
    started = time.perf_counter()
    await action()
    return (time.perf_counter() - started) * 1000


async def with_gate(rounds: int) -> dict[str, float]:
    """The gate's decision, the performer and the redactor, as in a run, but without the journal's commits."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(os.path.realpath(folder))  # noqa: ASYNC240
        sandbox = Clocked(choose())
        performer = CommandPerformer(sandbox, workspace)
        redactor = SecretRedactor()
        redactor.add("env:BENCH", "a-secret-that-is-nowhere-to-be-found")
        vault = Vault(environ={}, keyring=lambda name: None, redactor=redactor)
        policy = Policy((Layer("user", "bench", bundle_from({"commands": {"allow": ["true"]}}), may_allow=True),))

        async def current(tenant: str) -> Policy:
            return policy

        gate = Gate({RunCommand: performer}, MemoryStore(), current, vault, redactor=redactor)
        case = Case(_row(), Settings(), policy.snapshot())

        async def through() -> None:
            ruling = await gate.examine(EFFECT, case)
            assert isinstance(ruling, Admitted), ruling
            call = Call(
                run="bench",
                key="bench",
                attempt=1,
                settings=Settings(),
                emit=lambda text: True,
                reset=lambda: None,
                warn=lambda code, message: None,
                permits=ruling.permits,
                secrets=ruling.secrets,
                limits=ruling.limits,
            )
            outcome = redactor.value(await performer.perform(EFFECT, call))
            assert isinstance(outcome, CommandResult), outcome

        return {**await compare(sandbox, workspace, through, rounds), "sandbox": sandbox.name}  # type: ignore[dict-item]


def _row() -> RunRow:
    return RunRow(
        id="bench", tenant="local", owner="local", dialect="markdown", interpreter=1, playbook="", name="bench",
        created=0, updated=0,
    )  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=100)
    print(json.dumps(asyncio.run(with_gate(options.parse_args().rounds))))


if __name__ == "__main__":
    main()
