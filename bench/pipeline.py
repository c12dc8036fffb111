"""What a step of a pipeline costs beside starting its process: 1,000 steps of `cli true` against bare starts.

    python -m bench.pipeline [--steps 1000] [--rounds 3] [--json]

Everything is as in an ordinary run: the gate with a policy, the sandbox, the journal in SQLite. What a step adds is the
time between the end of its process and the start of the next one's, so that processes, which differ more than what is
looked for, are left out. `no fsync` does not wait for the disk; with `fsync` a step waits for it twice, before its
command and after, so that figure stands beside the raw commits of SQLite on the same disk. Bare starts are those of the
same program in the same sandbox, after each run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from bench.floor import raw_commits
from bench.gate import Clocked, _confinement, _start
from bench.run import Table
from cuebook.dialects.pipeline.interpret import interpret
from cuebook.dialects.pipeline.parse import parse
from cuebook.gate.gate import Gate
from cuebook.gate.policy import Layer, Policy, bundle_from
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sandbox import choose
from cuebook.gate.secrets import Vault
from cuebook.kernel.confinement import Confined, Confinement
from cuebook.kernel.effects import Program, RunCommand
from cuebook.kernel.engine import Engine
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.commands import CommandPerformer
from cuebook.stores.sqlite import SqliteStore

MOST = 1.0
"""Milliseconds that a step may cost on top of its process."""


class Marked(Clocked):
    """A sandbox that notes when each process was started and when it had ended."""

    def __init__(self, sandbox: Any) -> None:
        super().__init__(sandbox)
        self.marks: list[tuple[float, float]] = []

    async def spawn(self, confinement: Confinement) -> Confined:
        began = time.perf_counter()
        process = await super().spawn(confinement)
        waiting = process.wait

        async def wait() -> int:
            code = await waiting()
            self.marks.append((began, time.perf_counter()))
            return code

        process.wait = wait  # type: ignore[method-assign]
        return process


class Ran(msgspec.Struct, frozen=True):
    """Milliseconds."""

    bare: float
    """A bare start, the median."""
    process: float
    """A process within the run, the median."""
    added: list[float]
    """Between two processes, for each step."""
    floor: float
    """A raw commit of SQLite on the same disk."""

    @property
    def typical(self) -> float:
        return median(self.added)

    def near(self, step: int, width: int = 50) -> float:
        return median(self.added[max(0, step - width) : step + width])


def text_of(steps: int) -> str:
    listed = "".join(f"  - {{id: s{number}, command: cli true}}\n" for number in range(steps))
    return f"name: Bench\nsteps:\n{listed}"


async def run(folder: Path, steps: int, synchronous: Literal["FULL", "NORMAL"]) -> Ran:
    workspace = folder / "workspace"
    workspace.mkdir()
    sandbox = Marked(choose())
    performer = CommandPerformer(sandbox, workspace)
    redactor = SecretRedactor()
    redactor.add("env:BENCH", "a-secret-that-is-nowhere-to-be-found")
    vault = Vault(environ={}, keyring=lambda name: None, redactor=redactor)
    policy = Policy((Layer("user", "bench", bundle_from({"commands": {"allow": ["true"]}}), may_allow=True),))
    store = SqliteStore(folder / "store.db", synchronous=synchronous)

    async def today(tenant: str) -> Policy:
        return policy

    gate = Gate({RunCommand: performer}, store, today, vault, redactor=redactor)
    document = parse(text_of(steps), "bench.yml")

    def programs(row: RunRow, text: str, inputs: Any, options: Any) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(document, inputs, options, state)

    engine = Engine(store, programs, {RunCommand: performer}, gate=gate, redactor=redactor)
    now = time.time()
    row = RunRow(
        id="bench", tenant="local", owner="local", dialect="pipeline", interpreter=1, playbook="bench", name="bench",
        created=now, updated=now,
    )  # fmt: skip
    await engine.start(row, "bench", {}, Settings(), policy.snapshot())
    row = await engine.drive("bench")
    assert row.status == "completed", row.error
    await engine.close()
    await store.close()
    marks, sandbox.marks = sandbox.marks, []
    confinement = _confinement(workspace, str(folder))
    for _ in range(min(steps, 200)):
        await _start(sandbox, confinement)
    return Ran(
        bare=median((ended - began) * 1000 for began, ended in sandbox.marks),
        process=median((ended - began) * 1000 for began, ended in marks),
        added=[(after[0] - before[1]) * 1000 for before, after in itertools.pairwise(marks)],
        floor=raw_commits(folder / "floor.db", 200) / 200 * 1000,
    )


def ran(folder: Path, steps: int, synchronous: Literal["FULL", "NORMAL"]) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return asyncio.run(run(Path(os.path.realpath(place)), steps, synchronous))


def measure(table: Table, rounds: int, steps: int, folder: Path) -> None:
    loose, durable = [], []
    for number in range(rounds):
        print(f"{steps} steps of `cli true`, round {number + 1} ...", file=sys.stderr, flush=True)
        loose.append(ran(folder, steps, "NORMAL"))
        durable.append(ran(folder, steps, "FULL"))
    best = min(loose, key=lambda one: one.typical)  # what else the machine does only ever adds
    table.add("`true` in the sandbox, started bare", best.bare, "ms")
    table.add("the same process within a run", best.process, "ms")
    target = f"at most {MOST:g} ms"
    table.add(f"what a step adds, {steps} steps, no fsync", best.typical, "ms", target, best.typical <= MOST)
    early, late = best.near(50), best.near(steps - 50)
    table.add("  near the first", early, "ms")
    table.add("  near the last", late, "ms")
    table.add("  the last against the first", late / early, "x", "flat: at most 1.25x", late <= 1.25 * early)
    kept = min(durable, key=lambda one: one.typical - 2 * one.floor)
    table.add("a raw commit of SQLite", kept.floor, "ms")
    table.add("what a step adds, fsync", kept.typical, "ms")
    more = kept.typical - 2 * kept.floor
    table.add("  beyond two raw commits", more, "ms", target, more <= MOST)
    began = time.perf_counter()
    parse(f"{text_of(steps)}# not read before\n", "bench.yml")
    table.add(f"{steps} steps: read and checked", (time.perf_counter() - began) * 1000, "ms")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, default=None, help="where stores are made; the usual place by default")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    gc.freeze()  # as the command line does
    gc.set_threshold(10_000, 20, 20)
    table = Table()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        measure(table, chosen.rounds, chosen.steps, Path(folder))
    table.show()
    if chosen.json:
        print(json.dumps(table.rows))


if __name__ == "__main__":
    main()
