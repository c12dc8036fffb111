"""A changing effect without an answer is in doubt: a person decides what happened before it is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.dialects.pipeline.model import Mcp, Retry, Step
from tests.dialects.pipeline.harness import PipelineHarness, cli, good_server, http, shell
from tests.support.http_servers import Server, answer, hang, raw

AT_ONCE = Retry(3, 0.0)


async def test_a_command_that_took_too_long_is_asked_about_before_it_is_tried_again(harness: PipelineHarness) -> None:
    script = "echo try >> made; test $(wc -l < made) -ge 2 || { echo so far; sleep 60; }"
    row = await harness.do(shell("a", script, timeout=1.5, retry=AT_ONCE), cli("b", "true"))
    wait = await harness.wait(row.id)
    assert (row.status, wait.kind, harness.made("made")) == ("awaiting_approval", "in_doubt", ["try"])
    assert (
        "The command was still running after 1.5 s and was stopped. It is not known whether this happened"
        in wait.prompt
    )
    assert wait.details["preview"]["its output until then"] == "so far\n"
    assert (await harness.statuses(row.id))["a"] == "in_doubt"
    row = await harness.decide(row.id, "repeat")
    assert (row.status, harness.made("made")) == ("completed", ["try", "try"])


async def test_it_can_be_stopped_and_says_why(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "sleep 60", timeout=0.3, on_error="continue"), cli("b", "touch", "made"))
    row = await harness.decide(row.id, "stop")
    assert row.error is not None
    assert (row.status, row.error.code) == ("failed", "in_doubt")
    assert "still running after 0.3 s" in row.error.message
    assert "sh -c 'sleep 60'" in row.error.message
    assert not (harness.workspace / "made").exists()


@pytest.mark.parametrize("silence", [hang, raw(b""), raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal")])
async def test_an_unanswered_request_is_sent_again_only_by_a_person(harness: PipelineHarness, silence: object) -> None:
    async with Server(silence, answer("done", 201)) as server:  # type: ignore[arg-type]
        row = await harness.do(http("a", server.url(), "POST", timeout=1.0, retry=AT_ONCE))
        assert ((await harness.wait(row.id)).kind, len(server.requests)) == ("in_doubt", 1)
        row = await harness.decide(row.id, "repeat")
        assert row.status == "completed", row.error
        first, second = server.requests
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


async def test_what_a_person_found_out_is_its_outcome(harness: PipelineHarness) -> None:
    async with Server(hang) as server:
        row = await harness.do(http("a", server.url(), "POST", timeout=0.5))
    row = await harness.decide(row.id, "done", outcome={"status": 201, "body": "made"})
    assert row.status == "completed", row.error
    assert await harness.outputs(row.id) == {"a": "made"}


async def test_a_request_that_was_never_sent_has_simply_failed(harness: PipelineHarness) -> None:
    async with Server() as server:
        gone = server.url()
    row = await harness.do(http("a", gone, "POST", retry=AT_ONCE))
    assert (row.status, row.error and row.error.code) == ("failed", "unreachable")
    assert len(await harness.notes(row.id, "attempt")) == 2


async def test_what_only_reads_has_simply_failed(harness: PipelineHarness) -> None:
    async with Server(hang) as server:
        row = await harness.do(http("a", server.url(), timeout=0.3))
    assert (row.status, row.error and row.error.code) == ("failed", "timeout")


async def test_a_tool_that_did_not_answer_is_asked_about(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    slow = Step("b", Mcp("good.wait", {"seconds": 60}), timeout=0.5)
    row = await harness.do(Step("a", Mcp("good.add", {"a": 1, "b": 1})), slow)
    row = await harness.decide(row.id, "approve")
    wait = await harness.wait(row.id)
    assert (wait.kind, "did not answer within 0.5 seconds" in wait.prompt) == ("in_doubt", True)
    await harness.service.cancel(row.id, "enough")
    row = await harness.service.drive(row.id)
    assert (row.status, (await harness.statuses(row.id))["b"]) == ("cancelled", "in_doubt")
    await harness.close()
