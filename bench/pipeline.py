"""The overhead of a pipeline step beyond starting its process: 1,000 steps of `cli true` against bare starts.

    python -m bench.pipeline [--steps 1000] [--rounds 3] [--json]

The engine, the gate with a policy, the sandbox and the journal in SQLite are those of an ordinary run with one observer. The
overhead of a step is the time from the exit of one process until the next may run, minus the time that a bare start takes to get
there. So the processes themselves, which vary more than the overhead, do not count. During the overhead, the outcome and the next
intent are written while the next sandbox is prepared. Both the median and the mean over all steps are shown; the mean includes slow
commits and other rare delays. `no fsync` does not wait for the disk; with `fsync`, Cuebook's default, a step waits for the disk
twice, so that figure is compared with raw SQLite commits on the same disk. A bare start runs the same program in the same sandbox;
one in ten starts is bare.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

import msgspec

from bench.floor import raw_commits
from bench.gate import Clocked, _confinement, _ended
from bench.run import Table
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.run.interpret import interpret
from cuebook.gate.gate import Gate
from cuebook.gate.policy import Layer, Policy, bundle_from
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sandbox import choose
from cuebook.gate.secrets import Vault
from cuebook.kernel.effects import Program, RunCommand
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.ports import Confined, Confinement
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.commands import CommandPerformer
from cuebook.stores.sqlite import SqliteStore

MOST = 1.0
"""Maximum milliseconds that a step may add to its process."""


class Mark(NamedTuple):
    """The times of one process."""

    asked: float
    let_go: float
    ended: float
    bare: bool
    """Whether this was a bare start, before one of the run's processes."""


class Marked(Clocked):
    """A sandbox that records the times of each process, and starts a bare process before every tenth one. The machine's
    speed changes within seconds, so only neighbouring processes can be compared.
    """

    def __init__(self, sandbox: Any, bare: Confinement) -> None:
        super().__init__(sandbox)
        self.marks: list[Mark] = []
        self._bare = bare
        self._asked = 0

    async def spawn(self, confinement: Confinement) -> Confined:
        self._asked += 1
        if self._asked % 10 == 0:
            await _ended(await self.noted(self._bare, bare=True))
        return await self.noted(confinement, bare=False)

    async def noted(self, confinement: Confinement, *, bare: bool) -> Confined:
        asked = time.perf_counter()
        process = await super().spawn(confinement)
        let_go = time.perf_counter()
        waiting = process.wait

        async def wait() -> int:
            code = await waiting()
            self.marks.append(Mark(asked, let_go, time.perf_counter(), bare))
            return code

        process.wait = wait  # type: ignore[method-assign]
        return process


class Ran(msgspec.Struct, frozen=True):
    """Milliseconds."""

    bare: float
    """A bare start, from the request to the exit of the process, as the median."""
    process: float
    """The same within the run."""
    added: list[float]
    """For each step, the time from the exit of one process until the next may run, minus the time of a bare start."""
    between: list[float]
    """The part of that time before the next process is requested. It involves no process, so the first and last steps can
    be compared."""
    floor: float
    """A raw SQLite commit on the same disk."""

    @property
    def typical(self) -> float:
        return median(self.added)

    @property
    def mean(self) -> float:
        return fmean(self.added)

    @property
    def first(self) -> float:
        return median(self.between[:100])

    @property
    def last(self) -> float:
        return median(self.between[-100:])


def text_of(steps: int) -> str:
    listed = "".join(f"  - {{id: s{number}, command: cli true}}\n" for number in range(steps))
    return f"name: Bench\nsteps:\n{listed}"


async def run(folder: Path, steps: int, synchronous: Literal["FULL", "NORMAL"]) -> Ran:
    workspace = folder / "workspace"
    workspace.mkdir()
    sandbox = Marked(choose(), _confinement(workspace, str(folder)))
    performer = CommandPerformer(sandbox, workspace)
    redactor = SecretRedactor()
    redactor.add("env:BENCH", "a-secret-that-is-nowhere-to-be-found")
    vault = Vault(environ={}, keyring=lambda name: None, redactor=redactor)
    policy = Policy((Layer("user", "bench", bundle_from({"commands": {"allow": ["true"]}}), may_allow=True),))
    store = SqliteStore(folder / "store.db", synchronous=synchronous)

    async def current(tenant: str) -> Policy:
        return policy

    gate = Gate({RunCommand: performer}, store, current, vault, redactor=redactor)
    document = parse(text_of(steps), "bench.yml")

    def programs(row: RunRow, text: str, inputs: Any, options: Any) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(document, inputs, options, state)

    engine = Engine(store, programs, {RunCommand: performer}, gate=gate, redactor=redactor)
    now = time.time()
    row = RunRow(
        id="bench", tenant="local", owner="local", dialect="pipeline", interpreter=1, playbook="bench", name="bench",
        created=now, updated=now,
    )  # fmt: skip
    seen = [0]

    def watch(event: object) -> None:
        seen[0] += 1

    engine.observe(watch)
    await engine.start(row, "bench", {}, Settings(), policy.snapshot())
    row = await engine.drive("bench")
    assert row.status == "completed", row.error
    await engine.close()
    await store.close()
    bare = [mark for mark in sandbox.marks if mark.bare]
    return Ran(
        bare=median((mark.ended - mark.asked) * 1000 for mark in bare),
        process=median((mark.ended - mark.asked) * 1000 for mark in sandbox.marks if not mark.bare),
        added=_added(sandbox.marks),
        between=[(after.asked - one.ended) * 1000 for _, one, after in _own(sandbox.marks)],
        floor=raw_commits(folder / "floor.db", 200) / 200 * 1000,
    )


def _added(marks: list[Mark]) -> list[float]:
    """The overhead of each step, compared with the bare starts around it."""
    added = []
    starts = [(mark.let_go - mark.asked if mark.bare else None) for mark in marks]
    for at, one, after in _own(marks):
        around = [start for start in starts[max(0, at - 100) : at + 100] if start is not None]
        added.append((after.let_go - one.ended - median(around)) * 1000)
    return added


def _own(marks: list[Mark]) -> Iterator[tuple[int, Mark, Mark]]:
    for at, (one, after) in enumerate(itertools.pairwise(marks)):
        if not (one.bare or after.bare):
            yield at, one, after


def ran(folder: Path, steps: int, synchronous: Literal["FULL", "NORMAL"]) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return asyncio.run(run(Path(os.path.realpath(place)), steps, synchronous))


def measure(table: Table, rounds: int, steps: int, folder: Path) -> None:
    loose, durable = [], []
    for number in range(rounds):
        print(f"{steps} steps of `cli true`, round {number + 1} ...", file=sys.stderr, flush=True)
        loose.append(ran(folder, steps, "NORMAL"))
        durable.append(ran(folder, steps, "FULL"))
    best = min(loose, key=lambda one: one.typical)  # other work on the machine can only add to the cost
    table.add("`true` in the sandbox, without the engine", best.bare, "ms")
    table.add("the same process within a run", best.process, "ms")
    target = f"at most {MOST:g} ms"
    table.add(f"what a step adds, {steps} steps, no fsync", best.typical, "ms", target, best.typical <= MOST)
    table.add("  the mean", best.mean, "ms")
    first, last = best.first, best.last
    table.add("  between two processes, the first", first, "ms")
    table.add("  the last", last, "ms")
    flat = last / first
    table.add("  the last against the first", flat, "x", "flat: at most 1.25x", flat <= 1.25)
    kept = min(durable, key=lambda one: one.typical - 2 * one.floor)
    table.add("a raw SQLite commit", kept.floor, "ms")
    table.add("what a step adds, fsync", kept.typical, "ms")
    table.add("  the mean", kept.mean, "ms")
    more = kept.typical - 2 * kept.floor
    table.add("  beyond two raw commits", more, "ms", target, more <= MOST)
    began = time.perf_counter()
    parse(f"{text_of(steps)}# not read before\n", "bench.yml")
    table.add(f"{steps} steps: parsed and checked", (time.perf_counter() - began) * 1000, "ms")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--folder", type=Path, default=None, help="where stores are created; a temporary folder by default"
    )
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
