"""The time that a run may be active: looked at before anything is done, and no effect outlasts it."""

from __future__ import annotations

from cuebook.dialects.pipeline.model import Retry
from cuebook.kernel.run import Budget
from tests.dialects.pipeline.bench import Bench, cli, http, shell
from tests.performers.http_servers import Server, hang


async def test_a_command_is_ended_when_the_time_of_its_run_is_over(bench: Bench) -> None:
    row = await bench.do(shell("a", "echo begun; sleep 60; touch made"), cli("b", "true"), budget=Budget(seconds=1.0))
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "timeout"
    assert "the run's budget of 1 s was used up" in row.error.message
    assert await bench.outputs(row.id) == {"a": "begun\n"}
    assert not (bench.workspace / "made").exists()


async def test_a_request_is_ended_likewise(bench: Bench) -> None:
    async with Server(hang) as server:
        row = await bench.do(http("a", server.url()), budget=Budget(seconds=1.0))
    assert row.error is not None
    assert "the run's budget of 1 s" in row.error.message


async def test_nothing_is_begun_any_more_and_a_larger_budget_goes_on(bench: Bench) -> None:
    row = await bench.do(
        shell("a", "sleep 60", on_error="continue"), cli("b", "touch", "made"), budget=Budget(seconds=1.0)
    )
    assert (row.status, row.reason) == ("paused", "budget")
    assert not (bench.workspace / "made").exists()
    assert "The budget of 1 s is used up" in (await bench.wait(row.id)).prompt
    await bench.service.resume(row.id, settings={"budget": {"seconds": 1000}})
    assert (await bench.service.drive(row.id)).status == "completed"
    assert (bench.workspace / "made").exists()


async def test_the_time_of_a_wait_does_not_count(bench: Bench) -> None:
    row = await bench.do(
        shell("a", "echo a >> made; test $(wc -l < made) -ge 2", retry=Retry(2, delay=3.0)), budget=Budget(seconds=2.5)
    )
    assert row.status == "completed", row.error


async def test_attempts_share_the_time(bench: Bench) -> None:
    row = await bench.do(shell("a", "sleep 60", retry=Retry(5, delay=0.0)), budget=Budget(seconds=1.0))
    assert (row.status, row.reason) == ("paused", "budget")


async def test_a_budget_of_steps_holds_for_commands_too(bench: Bench) -> None:
    row = await bench.do(cli("a", "true"), cli("b", "touch", "made"), budget=Budget(steps=1))
    assert (row.status, row.reason) == ("paused", "budget")
    assert not (bench.workspace / "made").exists()


async def test_a_step_has_sixty_seconds_at_most_unless_it_says_so(bench: Bench) -> None:
    """What is asked for beyond the ceiling of five minutes is not given."""
    from cuebook.dialects.pipeline.acting import Given, acting
    from cuebook.dialects.pipeline.resolve import Scope
    from cuebook.gate.limits import MAX_SECONDS, Ceilings

    scope = Scope(bench.pipeline, {})
    for timeout, wanted in ((None, 60.0), (0.5, 0.5), (120.0, 120.0), (4000.0, MAX_SECONDS)):
        effect = acting(cli("a", "true", timeout=timeout), scope, Given(), {}, "")
        assert Ceilings().for_effect(effect).seconds == wanted
