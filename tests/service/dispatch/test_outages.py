"""Under Temporal, a killed or stopped worker, a restarted database and a restarted Temporal lose nothing and double nothing."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Any

import pytest

from cuebook.kernel.events import ENDED
from cuebook.service.dispatch.temporal import worker
from tests.service.dispatch.team import Team
from tests.service.dispatch.test_temporal import HELD
from tests.support.postgres import server as database
from tests.support.programs import eventually
from tests.support.sampling import many

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]


def numbered(steps: int, sleep: str = "") -> str:
    """A pipeline whose steps append a line each. Between them are steps that only read, and so may be repeated."""
    return "name: N\nargs: {n: {type: integer}}\nsteps:\n" + "".join(
        f"  - {{id: r{step}, command: cli true, effect: read}}\n"
        if step % 2
        else f"  - id: s{step}\n    command: cli sh -c 'echo \"$CUEBOOK_ARG_N s{step}\" >> log{sleep}'\n"
        for step in range(steps)
    )


async def settled(team: Team, runs: list[str]) -> Counter[str]:
    """Waits until every run has ended. Effects in doubt are repeated; returns how often, by the line that they write."""
    repeated: Counter[str] = Counter()

    async def over() -> bool:
        rows = [await team.service.row(run) for run in runs]
        for number, row in enumerate(rows):
            for wait in await team.service.waits(row.id):
                assert wait.kind == "in_doubt"
                await team.service.decide(wait.id, "repeat")
                repeated[f"{number} {wait.place.step}"] += 1
        return all(row.status in ENDED for row in rows)

    await eventually(over, 110)
    return repeated


async def check(team: Team, runs: list[str], steps: int, repeated: Counter[str]) -> None:
    """Checks that nothing is lost, and that only what was in doubt happened twice."""
    assert [(await team.service.row(run)).status for run in runs] == ["completed"] * len(runs)
    counted = Counter(team.lines())
    assert set(counted) == {f"{number} s{step}" for number in range(len(runs)) for step in range(0, steps, 2)}
    assert {line: count for line, count in counted.items() if count > 1 + repeated[line]} == {}
    for run in runs:
        assert (await team.service.verify(run)).broken_at is None


@pytest.mark.timeout(300)
async def test_the_death_of_a_worker_repeats_no_finished_effect(team: Team) -> None:
    doomed, _ = team.hire(), team.hire()
    count, steps = many(8, 40), many(6, 20)
    runs = [await team.start(numbered(steps, "; sleep 0.02"), n=number) for number in range(count)]
    team.serving()
    await team.logged(count)
    doomed.send_signal(signal.SIGKILL)
    await check(team, runs, steps, await settled(team, runs))


async def test_a_worker_that_was_stopped_too_long_is_fenced(team: Team) -> None:
    team.hire("one|1|1|1|1")
    team.hire("two|2|2|2|2")
    team.serving()
    run = await team.start(HELD)
    await team.logged()
    stopped = team.driver_of(run)
    stopped.send_signal(signal.SIGSTOP)
    try:
        (wait,) = await team.waits(run)
        assert wait.kind == "in_doubt"
        assert "may still be running" in wait.prompt
        (team.work / "go").touch()
    finally:
        stopped.send_signal(signal.SIGCONT)

    async def attached() -> Any:
        return (await team.service.wait_row(wait.id)).details.get("late")

    assert (await eventually(attached, 60))["exit_code"] == 0
    await team.service.decide(wait.id, "done")
    assert await team.ended(run) == "completed"
    assert team.lines() == ["a", "b"]
    assert await team.workflow_ends(run) == "COMPLETED"


async def test_runs_that_wait_survive_a_restart_of_temporal(
    team: Team,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_CHECK_EVERY", 0.2)
    await team.worker()
    asking = "name: A\nsteps:\n  - {id: a, command: cli true, approval: required}\n"
    waiting, deciding = [await team.start(asking) for _ in range(2)]
    held = await team.start(HELD)
    waits = [(await team.waits(run))[0] for run in (waiting, deciding)]
    await team.logged()
    team.temporal.stop()
    await team.service.decide(waits[1].id, "approve")  # nobody can be woken

    async def said(words: str) -> bool:
        # The surface and the worker, each at least once: a slow machine sees a second outage.
        return len([one for one in caplog.messages if words in one]) >= 2

    await eventually(lambda: said("Until it is back, runs in progress continue"))
    await asyncio.sleep(1.0)  # the SDK and the sweep try again and again
    team.temporal.start()
    await team.service.decide(waits[0].id, "approve")
    (team.work / "go").touch()
    assert [await team.ended(run) for run in (waiting, deciding, held)] == ["completed"] * 3
    assert team.lines() == ["a", "b"]
    assert await team.drives(held) == 1, "the outage did not interrupt it"
    await eventually(lambda: said("responds again"))
    assert await said("cannot be reached")
    assert capfd.readouterr() == ("", ""), "the SDK logs nothing itself"


async def test_a_restart_of_the_database_under_load_loses_nothing(team: Team) -> None:
    await team.worker()
    await team.worker()
    count, steps = many(6, 30), many(5, 20)
    runs = [await team.start(numbered(steps), n=number) for number in range(count)]
    await team.logged(count)
    await asyncio.to_thread(database().restart)
    await check(team, runs, steps, await settled(team, runs))
