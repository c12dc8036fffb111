"""Machines that share one Postgres database: real `cuebook worker` processes, and a service that starts and watches runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.events import ENDED, Driven, Performed, Performing
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.worker import SERVED
from tests.support.fork_server import restore_signals
from tests.support.programs import eventually
from tests.support.runtime import RuntimeHarness

ROOT = Path(__file__).resolve().parents[3]
LEASE = 1.0
"""Seconds."""
PATIENCE = 90.0
"""Seconds that a machine without load needs only a few of."""

_SURELY_OVER = 6.0
"""Seconds after which a command that may still be running elsewhere would have added its line, even on a busy machine."""


class Machine:
    """A `cuebook` process with its own identity."""

    def __init__(self, argv: list[str], folder: Path, environ: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                argv,
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                preexec_fn=restore_signals,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until_up(self) -> Machine:
        """Waits until it looks for runs."""
        end = time.monotonic() + PATIENCE
        while "offers workspace:" not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.01)
        return self

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Asks it to stop, and returns its exit code."""
        self.send(signal.SIGTERM)
        return self.code()

    def code(self) -> int:
        """Its exit code, once it has exited."""
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Fleet(RuntimeHarness):
    """Several machines, and the runs that they share."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        super().__init__(folder, monkeypatch)
        self.place = url
        monkeypatch.setenv("FLEET_KEY", "k" * 64)
        monkeypatch.setenv("CUEBOOK_SIGNING_KEY", "env:FLEET_KEY")
        self.machines: list[Machine] = []

    # --- machines ---

    def begin(
        self,
        *args: str,
        url: str = "",
        environ: dict[str, str] | None = None,
        within: Sequence[str] = (),
        folder: Path | None = None,
        **deviations: Any,
    ) -> Machine:
        """Starts `cuebook` on a machine that deviates from this one; see `machine_process`. `within` is a command that
        starts it, `folder` where it works.
        """
        given = {"lease": LEASE, **deviations}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        own = {"PYTHONPATH": path, "CUEBOOK_STORE": url or self.place}
        argv = [*within, sys.executable, "-m", "tests.service.fleet.machine_process", json.dumps(given), *args]
        log = self.folder / f"machine-{len(self.machines)}.log"
        machine = Machine(argv, folder or self.work, {**os.environ, **own, **(environ or {})}, log)
        self.machines.append(machine)
        return machine

    def hire(self, *args: str, **more: Any) -> Machine:
        """Starts a worker. `until_up` waits for it."""
        return self.begin("worker", *args, **more)

    def hire_elsewhere(self, *args: str, **more: Any) -> Machine:
        """Starts a worker that this machine and the other workers cannot inspect."""
        name = f"far{len(self.machines)}"
        return self.hire(*args, host=f"{name}|id-{name}|boot|pid|time", **more)

    async def shut_down(self) -> None:
        for machine in self.machines:
            machine.end()
        await self.close()

    async def is_held_by(self, run: str, machine: Machine) -> bool:
        query = "SELECT d.pid FROM runs r JOIN drivers d ON d.id = r.driver WHERE r.id = %s"
        async with await psycopg.AsyncConnection.connect(self.place) as database:
            found = await (await database.execute(query, (run,))).fetchone()
        return found == (machine.process.pid,)

    async def use_model(self, url: str) -> None:
        """Makes the model server at this URL the model of all machines."""
        (self.config / "cuebook.toml").write_text(f'model = "test/echo-1"\n\n[providers.test]\nbase_url = "{url}"\n')
        await self.reopen()

    async def reopen(self, url: str = "") -> None:
        """Opens the service anew, at another URL of the database if one is given."""
        await self.close()
        self.place = url or self.place
        self.open()

    # --- runs ---

    async def start(self, text: str, **inputs: Any) -> str:
        """Starts a run that any worker may drive."""
        settings = self.wiring.settings(folder=self.work)
        run = (await self.service.start(Playbook.from_text(text, "inline"), inputs, settings)).id
        await self.offer(run)
        return run

    async def offer(self, run: str) -> None:
        """Leaves a run to the workers, as `cuebook serve` does."""
        await self.service.keep("", SERVED, run, {})

    async def until(self, run: str, *statuses: str) -> RunRow:
        async def looked() -> RunRow | None:
            row = await self.service.row(run)
            return row if row.status in statuses else None

        found: RunRow = await eventually(looked, PATIENCE)
        return found

    async def finish(self, runs: Sequence[str]) -> None:
        """Waits until all runs have completed."""

        async def ended() -> bool:
            return all([(await self.service.row(run)).status in ENDED for run in runs])

        with suppress(TimeoutError):
            await eventually(ended, PATIENCE)
        rows = [await self.service.row(run) for run in runs]
        assert {row.status for row in rows} == {"completed"}, await self._explained(rows)

    async def _explained(self, rows: Sequence[RunRow]) -> str:
        """Why runs have not completed."""
        said = [f"{machine.log.name}: {machine.said}" for machine in self.machines]
        for row in rows:
            if row.status != "completed":
                waits = [(wait.kind, wait.prompt) for wait in await self.service.waits(row.id)]
                last = [str(entry)[:300] async for entry in self.service.entries(row.id)][-6:]
                said += ["", f"{row.id} {row.status} {row.reason} {row.driver} {row.epoch} {row.error} {waits}", *last]
        return "\n".join(said)

    async def settle(self, runs: Sequence[str]) -> list[WaitRow]:
        """Decides about effects in doubt until all runs have completed, as a person who looks at the log would. Returns
        the decided waits.
        """
        decided: list[WaitRow] = []
        seen: dict[str, float] = {}

        async def all_ended() -> bool:
            left = [run for run in runs if (await self.service.row(run)).status not in ENDED]
            for run in left:
                for wait in await self.service.waits(run):
                    assert wait.kind == "in_doubt", wait
                    done = self._has_happened(wait)
                    if not done and time.monotonic() - seen.setdefault(wait.id, time.monotonic()) < _SURELY_OVER:
                        continue
                    decided.append(wait)
                    outcome = {"exit_code": 0, "stdout": ""} if done else None
                    await self.service.decide(wait.id, "done" if done else "repeat", outcome=outcome)
            return not left

        with suppress(TimeoutError):
            await eventually(all_ended, PATIENCE)
        await self.finish(runs)
        return decided

    def _has_happened(self, wait: WaitRow) -> bool:
        """Whether the effect of a wait has added its line to the log."""
        effect = wait.details["effect"]
        step = re.search(r" (s\d+)", effect["argv"][-1])
        assert step is not None, effect
        return f"{effect['env']['CUEBOOK_ARG_N']} {step[1]}" in self.lines()

    def lines(self, name: str = "log") -> list[str]:
        path = self.work / name
        return path.read_text().splitlines() if path.exists() else []

    async def lines_reach(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.lines()) >= count

        await eventually(enough, PATIENCE)

    async def drivers(self, run: str) -> list[str]:
        """The drivers of a run, in order."""
        return [e.event.driver async for e in self.service.entries(run) if isinstance(e.event, Driven)]

    def logged(self) -> Counter[str]:
        return Counter(self.lines())

    async def repeats(self, run: str) -> int:
        """How many effects of a run were begun more than once."""
        begun = Counter([e.place.key async for e in self.service.entries(run) if isinstance(e.event, Performing)])
        return sum(1 for times in begun.values() if times > 1)

    async def check(self, runs: Sequence[str]) -> None:
        """Checks that journals are intact and that no effect has two outcomes."""
        for run in runs:
            verdict = await self.service.verify(run)
            assert verdict.broken_at is None, verdict
            outcomes = Counter([e.place.key async for e in self.service.entries(run) if isinstance(e.event, Performed)])
            assert set(outcomes.values()) <= {1}, outcomes


def steps(count: int, *, sleep: float = 0.0) -> str:
    """A pipeline of steps that each add a line to the log, except for every fourth, which only reads."""
    text = "name: Steps\nargs: {n: {type: integer, default: 0}}\nsteps:\n"
    for step in range(count):
        write = f'echo "$CUEBOOK_ARG_N s{step}" >> log; ' if step % 4 != 3 else ""
        text += f"  - id: s{step}\n    command: cli sh -c '{write}sleep {sleep}'\n"
        text += "" if write else "    effect: read\n"
    return text


def written(count: int, runs: int) -> Counter[str]:
    """The lines of this many runs of `steps`, each once."""
    return Counter(f"{run} s{step}" for run in range(runs) for step in range(count) if step % 4 != 3)
