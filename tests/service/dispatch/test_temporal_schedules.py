"""Schedules under a real Temporal server, which counts their time: workers fire them once, and only ids are in its history."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import ScheduleHandle, WorkflowExecutionStatus

from cuebook.kernel.errors import BadInput
from cuebook.service.dispatch.dispatcher import Unreachable
from cuebook.service.dispatch.temporal.connection import Server
from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
from cuebook.service.dispatch.temporal.schedules import TemporalTimers
from cuebook.service.triggers import Target
from cuebook.service.triggers.administration import TriggerAdministration
from cuebook.service.triggers.schedules import Schedule
from cuebook.wiring.triggers import administration_of
from tests.service.dispatch.team import Team
from tests.support.programs import eventually

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]

BOOK = "name: Nightly\nsteps:\n  - {id: a, command: cli sh -c 'echo a >> log'}\n"


class Timed:
    def __init__(self, team: Team) -> None:
        self.team = team
        self.admin: TriggerAdministration = administration_of(team.wiring, team.service)
        (team.work / "nightly.yml").write_text(BOOK)

    async def add(self, cron: str = "30 6 * * 1-5", **more: Any) -> Schedule:
        now = self.team.service.clock()
        workspace = self.team.wiring.factory.workspace.path
        target = Target(str(self.team.work / "nightly.yml"), "nightly.yml", workspace=workspace)
        return await self.admin.add(
            Schedule(
                tenant="local", name="nightly", owner="local", target=target, created=now, cron=cron,
                zone="Europe/Berlin", next=now + 3600, **more,
            )
        )  # fmt: skip

    async def handle(self, timer: str) -> ScheduleHandle:
        return (await self.team.dispatcher.connection.client()).get_schedule_handle(timer)

    async def schedule(self) -> Schedule:
        return await self.admin.triggers.known(Schedule, "nightly", "local")


@pytest.fixture
def timed(team: Team) -> Timed:
    return Timed(team)


async def test_temporal_counts_the_time_and_a_worker_fires_and_drives_the_run(timed: Timed) -> None:
    made = await timed.add()
    handle = await timed.handle(made.timer)
    described = await handle.describe()
    assert len(described.info.next_action_times) > 0
    assert described.info.next_action_times[0].timestamp() % 3600 == 1800.0
    assert (await timed.team.service._store.next_due(["schedule"])) is None  # the store counts nothing
    await timed.team.worker()
    async with timed.team.wiring.background(timed.team.service):
        await handle.trigger()

        async def fired() -> str:
            history = (await timed.schedule()).history
            return history[0].run if history else ""

        run = await eventually(fired, 60)
    assert await timed.team.ended(run) == "completed"
    assert timed.team.lines() == ["a"]
    # A second delivery of the same moment, as after a crash of the worker, starts nothing.
    moment = (await timed.schedule()).history[0].at
    assert await timed.admin.schedules.fire_at(made.timer, moment)
    assert [one.state for one in (await timed.schedule()).history] == ["started"]
    assert (await timed.schedule()).requested == ()


async def test_its_history_contains_ids_and_moments_only(timed: Timed) -> None:
    made = await timed.add()
    await timed.team.worker()
    await (await timed.handle(made.timer)).trigger()
    client = await timed.team.dispatcher.connection.client()

    async def ended() -> Any:
        actions = (await (await timed.handle(made.timer)).describe()).info.recent_actions
        if not actions:
            return None
        workflow = client.get_workflow_handle(actions[0].action.workflow_id)  # type: ignore[attr-defined]
        done = (await workflow.describe()).status == WorkflowExecutionStatus.COMPLETED
        return workflow if done else None

    history = await (await eventually(ended, 60)).fetch_history()
    assert made.timer in history.to_json()
    for word in ("nightly", "local", "echo"):
        assert word not in history.to_json().replace(made.timer, "")


async def test_it_is_paused_resumed_and_removed_there_as_well(timed: Timed) -> None:
    made = await timed.add()
    handle = await timed.handle(made.timer)
    await timed.admin.pause(Schedule, "nightly")
    assert (await handle.describe()).schedule.state.paused
    await timed.admin.resume(Schedule, "nightly")
    assert not (await handle.describe()).schedule.state.paused
    await timed.admin.remove(Schedule, "nightly")
    assert not await timed.admin.schedules.fire_at(made.timer, 0.0)
    with pytest.raises(Exception, match=r"not found|no rows"):
        await handle.describe()


async def test_a_timer_that_was_lost_is_created_again(timed: Timed) -> None:
    made = await timed.add()
    await (await timed.handle(made.timer)).delete()
    await timed.admin.restore_timers()
    await timed.admin.restore_timers()
    assert (await (await timed.handle(made.timer)).describe()).id == made.timer


async def test_a_moment_that_is_too_late_is_missed(timed: Timed) -> None:
    made = await timed.add(catch_up=600.0)
    now = timed.team.service.clock()
    assert await timed.admin.schedules.fire_at(made.timer, now - 601)
    assert [one.state for one in (await timed.schedule()).history] == ["missed"]


async def test_what_temporal_does_not_accept_or_cannot_hear_is_not_stored(timed: Timed) -> None:
    with pytest.raises(BadInput, match="Temporal does not accept"):
        await timed.add("0 6 L * *")
    nowhere = TemporalTimers(TemporalDispatcher(Server("127.0.0.1:1")))
    timed.admin._timers = nowhere
    with pytest.raises(Unreachable):
        await timed.add()
    assert await timed.admin.triggers.page(Schedule) == []
