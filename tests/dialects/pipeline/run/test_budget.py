"""The time budget of a run: checked before every effect, and no effect outlasts it."""

from __future__ import annotations

from pathlib import Path

from cuebook.dialects.pipeline.model import Mcp, Retry, Step
from cuebook.kernel.events import Performing
from cuebook.kernel.run import Budget
from tests.dialects.pipeline.harness import PipelineHarness, cli, good_server, http, shell
from tests.support.http_servers import Server, hang


async def test_a_command_that_may_change_something_is_ended_when_the_time_is_over(harness: PipelineHarness) -> None:
    """It is not repeated automatically; a person who retries it must grant more time first."""
    script = "echo begun; test -e go || sleep 60; touch made"
    row = await harness.do(shell("a", script), cli("b", "true"), budget=Budget(seconds=3.0))
    wait = await harness.wait(row.id)
    assert (wait.kind, wait.details["failed"]["code"]) == ("in_doubt", "budget_spent")
    assert "the run's budget of 3 s was used up" in wait.prompt
    assert wait.details["preview"]["its output until then"] == "begun\n"
    assert not (harness.workspace / "made").exists()
    row = await harness.decide(row.id, "repeat")
    assert (row.status, row.reason) == ("paused", "budget")
    (harness.workspace / "go").touch()
    await harness.service.resume(row.id, settings={"budget": {"seconds": 1000}})
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_a_step_that_was_cut_off_is_not_retried(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "echo w >> f; sleep 60", retry=Retry(3, delay=0.0)), budget=Budget(seconds=3.0))
    assert (await harness.wait(row.id)).details["failed"]["code"] == "budget_spent"
    assert await harness.notes(row.id, "attempt") == []
    assert harness.made("f") == ["w"]


async def test_a_request_that_may_change_something_is_ended_when_the_time_is_over(harness: PipelineHarness) -> None:
    async with Server(hang) as server:
        row = await harness.do(http("a", server.url(), "POST"), budget=Budget(seconds=3.0))
    assert "the run's budget of 3 s" in (await harness.wait(row.id)).prompt


async def test_a_tool_that_may_change_something_is_ended_when_the_time_is_over(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    waiting = Step("b", Mcp("good.wait", {"seconds": 60}), retry=Retry(3, delay=0.0))
    row = await harness.do(Step("a", Mcp("good.add", {"a": 1, "b": 1})))  # its start takes no time of the other run's
    row = await harness.decide(row.id, "approve")
    row = await harness.do(waiting, budget=Budget(seconds=2.0))
    assert (await harness.wait(row.id)).details["failed"]["code"] == "budget_spent"
    assert await harness.notes(row.id, "attempt") == []
    await harness.close()


async def test_a_read_only_step_waits_for_more_time_and_is_repeated(harness: PipelineHarness) -> None:
    script = "test -e go || sleep 60; echo read"
    row = await harness.do(shell("a", script, effect="read"), budget=Budget(seconds=3.0))
    assert (row.status, row.reason) == ("paused", "budget")
    wait = await harness.wait(row.id)
    assert (wait.place.step, "The budget of 3 s is used up" in wait.prompt) == ("a", True)
    await harness.service.resume(row.id, settings={"budget": {"seconds": 6.0}})
    row = await harness.service.drive(row.id)
    assert (row.status, row.reason) == ("paused", "budget"), "and once more, when that is over too"
    assert "The budget of 6 s is used up" in (await harness.wait(row.id)).prompt
    (harness.workspace / "go").touch()
    await harness.service.resume(row.id, settings={"budget": {"seconds": 1000}})
    assert (await harness.service.drive(row.id)).status == "completed"
    assert await harness.outputs(row.id) == {"a": "read\n"}
    attempts = [entry.place.attempt for entry in await harness.entries(row.id) if isinstance(entry.event, Performing)]
    assert attempts == [1, 2, 3]


async def test_a_step_with_a_shorter_timeout_fails_by_itself(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "sleep 60", timeout=0.3, effect="read"), budget=Budget(seconds=100.0))
    assert (row.status, row.error and row.error.code) == ("failed", "timeout")


async def test_no_further_step_starts_and_a_larger_budget_continues_the_run(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "sleep 60"), cli("b", "touch", "made"), budget=Budget(seconds=3.0))
    row = await harness.decide(row.id, "done", outcome={"exit_code": 0})
    assert (row.status, row.reason) == ("paused", "budget")
    assert not (harness.workspace / "made").exists()
    assert "The budget of 3 s is used up" in (await harness.wait(row.id)).prompt
    await harness.service.resume(row.id, settings={"budget": {"seconds": 1000}})
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "made").exists()


async def test_the_time_of_a_wait_does_not_count(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("a", "echo a >> made; test $(wc -l < made) -ge 2", retry=Retry(2, delay=7.0)), budget=Budget(seconds=6.0)
    )
    assert row.status == "completed", row.error


async def test_attempts_share_the_time(harness: PipelineHarness) -> None:
    script = "test -e f || { touch f; exit 1; }; sleep 60"
    row = await harness.do(shell("a", script, retry=Retry(5, delay=0.0)), budget=Budget(seconds=3.0))
    assert (await harness.wait(row.id)).details["failed"]["code"] == "budget_spent"
    assert len(await harness.notes(row.id, "attempt")) == 1


async def test_a_step_budget_also_applies_to_commands(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "true"), cli("b", "touch", "made"), budget=Budget(steps=1))
    assert (row.status, row.reason) == ("paused", "budget")
    assert not (harness.workspace / "made").exists()


async def test_a_step_has_sixty_seconds_at_most_unless_it_says_so(harness: PipelineHarness) -> None:
    """A timeout above the ceiling of five minutes is not granted."""
    from cuebook.dialects.pipeline.run.action import Given, acting
    from cuebook.dialects.pipeline.run.resolve import Scope
    from cuebook.gate.limits import MAX_SECONDS, Ceilings

    scope = Scope(harness.pipeline, {})
    for timeout, wanted in ((None, 60.0), (0.5, 0.5), (120.0, 120.0), (4000.0, MAX_SECONDS)):
        effect = acting(cli("a", "true", timeout=timeout), scope, Given(), {}, "")
        assert Ceilings().for_effect(effect).seconds == wanted
