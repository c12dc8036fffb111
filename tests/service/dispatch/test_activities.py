"""What an activation does when its tenant is at its limit, and when Temporal has given it up."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from cuebook.kernel.errors import StoreError
from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.temporal import activities
from cuebook.service.dispatch.temporal.activities import Activities
from cuebook.service.dispatch.temporal.slots import Slots
from cuebook.service.dispatch.temporal.workflow import Order
from tests.service.dispatch.team import Team
from tests.service.dispatch.test_temporal import HELD
from tests.support.programs import eventually, new_row

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]


async def test_a_freed_slot_of_a_tenant_goes_to_a_waiting_run_at_once(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither delays nor sweeps help: only the worker that frees the slot wakes the next run."""
    monkeypatch.setattr(sweep, "EVERY", 600.0)
    monkeypatch.setattr(activities, "AT_LIMIT", 600.0)
    monkeypatch.setattr(activities, "_LONGEST", 600.0)
    worker = await team.worker(limits__tenant_runs=1)
    runs = [await team.start(HELD) for _ in range(4)]

    async def turned_away() -> bool:
        return [len(runs) for runs in worker._activities._waiting.values()] == [3]

    await eventually(turned_away)
    assert team.lines() == ["a"]
    (team.work / "go").touch()
    assert [await team.ended(run) for run in runs] == ["completed"] * 4
    assert [await team.drives(run) for run in runs] == [1] * 4
    assert worker._activities._waiting == {}


async def test_the_longer_a_run_waits_for_its_tenant_the_less_often_it_is_delivered(team: Team) -> None:
    made = Activities(team.service, team.queue, Slots(1))
    delays = [made._turned_away(new_row("x")) for _ in range(2000)]
    for delay, middle in zip(delays, [1, 2, 4, 8, 16, *[30] * 1995], strict=True):
        assert 0.8 * middle <= delay <= 1.2 * middle
    assert len({*delays[-20:]}) > 1, "runs that began to wait together are not delivered together"


@pytest.mark.parametrize("requested", [False, True])
async def test_an_activation_that_temporal_gave_up_is_not_an_error(team: Team, requested: bool) -> None:
    slots = Slots(1)
    made, environment = Activities(team.service, team.queue, slots), ActivityEnvironment()
    async with slots.taken(1.0):
        activation = asyncio.create_task(environment.run(made.activate, Order("x", team.queue)))
        await asyncio.sleep(0.05)
        environment.cancel(ActivityCancellationDetails(cancel_requested=requested, timed_out=not requested))
        if requested:
            with pytest.raises(asyncio.CancelledError):
                await activation
            return
        with pytest.raises(ApplicationError) as caught:
            await activation
    assert caught.value.category == ApplicationErrorCategory.BENIGN, "which the SDK does not log"
    assert not caught.value.non_retryable


async def test_a_run_that_cannot_be_driven_now_is_logged_by_its_code_alone(
    team: Team, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(run: str) -> None:
        raise StoreError("canary words of a server")

    made = Activities(team.service, team.queue, Slots(1))
    monkeypatch.setattr(team.service, "row", lost)
    for activity in (made.cancel, made.activate):
        with pytest.raises(ApplicationError):
            await ActivityEnvironment().run(activity, Order("x", team.queue))
    found = [one.fields for one in caplog.records if one.msg == "run.postponed"]  # type: ignore[attr-defined]
    assert found == [{"run": "x", "code": StoreError.code}] * 2
    assert "canary" not in caplog.text
