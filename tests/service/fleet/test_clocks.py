"""Machines whose clocks are hours apart: leases, timers and expiries follow the clock of the database."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.service.fleet.fleet import LEASE, Fleet
from tests.support.runtime import ALLOWED
from tests.support.sampling import many

pytestmark = pytest.mark.needs("postgres")

HOURS = 7200.0
LONG = """
name: Long
steps:
  - id: work
    command: cli sh -c 'echo x >> log; until test -e go; do sleep 0.05; done'
"""
ASKING = "name: Asking\nsteps:\n  - {id: a, command: cli true, approval: required}\n"


def retried_after(seconds: float) -> str:
    """A step that succeeds when it is repeated after a delay."""
    return (
        "name: Timer\nsteps:\n  - id: a\n    command: cli test -e go\n    effect: read\n"
        f"    retry: {{max_attempts: 2, delay_ms: {int(seconds * 1000)}}}\n"
    )


async def test_workers_whose_clocks_are_hours_apart(fleet: Fleet) -> None:
    fleet.rule(f"{ALLOWED}[approvals]\nexpires_after = 3600\n")
    workers = [fleet.hire_elsewhere("--at-once", "4", clock=clock) for clock in (HOURS, -HOURS)]
    for worker in workers:
        worker.until_up()
    long = [await fleet.start(LONG) for _ in range(4)]
    later = [await fleet.start(retried_after(3600)) for _ in range(2)]
    asking = [await fleet.start(ASKING) for _ in range(2)]
    soon = [await fleet.start(retried_after(1)) for _ in range(2)]
    for run in (*later, *soon):
        await fleet.until(run, "paused")
    for run in asking:
        await fleet.until(run, "awaiting_approval")
    await fleet.lines_reach(4)
    await asyncio.sleep(LEASE * 1.5)
    assert [len(await fleet.drivers(run)) for run in long] == [1] * 4, "no one has taken over what is under way"
    assert len(fleet.lines()) == 4
    (fleet.work / "go").touch()
    await fleet.finish(long)
    for run in soon:
        row = await fleet.until(run, "completed", "failed")
        assert row.created <= row.updated <= fleet.service.clock() + 1
    assert [(await fleet.service.row(run)).status for run in later] == ["paused"] * 2
    assert [(await fleet.service.row(run)).status for run in asking] == ["awaiting_approval"] * 2
    await fleet.check([*long, *soon, *later, *asking])


@pytest.mark.parametrize("clock", [HOURS, -HOURS][: many(1, 2)])
async def test_a_command_on_a_machine_with_a_wrong_clock(fleet: Fleet, clock: float) -> None:
    """It neither ends a wait too early nor refuses an answer that is in time."""
    fleet.rule(f"{ALLOWED}[approvals]\nexpires_after = 3600\n")
    fleet.hire().until_up()
    run = await fleet.start(ASKING)
    await fleet.until(run, "awaiting_approval")
    looking = fleet.begin("inbox", "--json", clock=clock)
    assert looking.code() == 0, looking.said
    assert looking.process.stdout is not None
    (shown,) = json.loads(looking.process.stdout.read())
    assert (await fleet.service.row(run)).status == "awaiting_approval"
    deciding = fleet.begin("decide", shown["wait"], "approve", clock=clock)
    assert deciding.code() == 0, deciding.said
    await fleet.finish([run])
    await fleet.check([run])
