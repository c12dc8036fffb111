"""Attempts of one step: which failures are retried, when, and what is recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.model import (
    Arg,
    ArgRef,
    HttpStatus,
    JsonPath,
    Mcp,
    Output,
    Postcondition,
    Retry,
    Secret,
    Step,
)
from cuebook.kernel.events import Performed, WaitOpened
from tests.dialects.pipeline.harness import (
    ANYTHING,
    PipelineHarness,
    by_hand,
    cli,
    good_server,
    http,
    python,
    shell,
    words,
)
from tests.support.http_servers import Handler, Server, answer, hang, hanging_after, raw

AT_ONCE = Retry(3, delay=0.0)

ONCE_MORE = "echo try >> made; test $(wc -l < made) -ge {}"
"""Fails until the line was written so often."""


async def test_a_command_is_tried_until_it_succeeds(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", ONCE_MORE.format(3), retry=AT_ONCE))
    assert row.status == "completed", row.error
    assert harness.made("made") == ["try"] * 3
    first, second = await harness.notes(row.id, "attempt")
    assert (first["number"], first["code"], second["number"]) == (1, "exit_code", 2)


async def test_it_makes_no_more_attempts_than_allowed(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", ONCE_MORE.format(9), retry=AT_ONCE))
    assert row.status == "failed"
    assert harness.made("made") == ["try"] * 3


async def test_what_was_printed_last_is_the_output(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "wc -l < made; " + ONCE_MORE.format(3), retry=AT_ONCE), cli("b", "true"))
    assert (await harness.outputs(row.id))["a"].strip() == "2"


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(3, 600.0), [600.0, 600.0]),
        (Retry(3, 600.0, "exponential"), [600.0, 600.0]),
        (Retry(3, 10.0), [10.0, 10.0]),
        (Retry(4, 10.0, "exponential", 30.0), [10.0, 20.0, 30.0]),
    ],
)
async def test_it_waits_between_attempts_and_the_wait_is_in_the_journal(
    harness: PipelineHarness, retry: Retry, delays: list[float]
) -> None:
    run = await harness.start(shell("a", ONCE_MORE.format(9), retry=retry))
    row = await harness.service.take_up(run)
    for number, delay in enumerate(delays, 1):
        assert (row.status, row.reason) == ("paused", "timer")
        assert len(harness.made("made")) == number
        wait = await harness.wait(run)
        assert wait.expires is not None
        assert wait.expires - wait.opened == pytest.approx(delay)
        harness.now += delay
        await harness.store.expire(harness.now)
        row = await harness.service.take_up(run)
    assert row.status == "failed"
    assert len(harness.made("made")) == len(delays) + 1


async def test_jitter_shortens_a_wait_by_half_at_most(harness: PipelineHarness) -> None:
    run = await harness.start(shell("a", "false", retry=Retry(2, 10.0, jitter=True)))
    await harness.service.take_up(run)
    (opened,) = await harness.events(run, WaitOpened)
    (note,) = await harness.notes(run, "attempt")
    assert opened.kind == "timer"
    assert 5.0 <= note["delay"] <= 10.0


async def test_each_attempt_has_its_own_time(harness: PipelineHarness) -> None:
    """A command that only reads and was still running is ended, and tried again."""
    row = await harness.do(shell("a", "sleep 60", timeout=0.5, retry=Retry(2, 0.0), effect="read"))
    assert (row.status, row.error and row.error.code) == ("failed", "timeout")
    assert [note["code"] for note in await harness.notes(row.id, "attempt")] == ["timeout"]


async def test_a_broken_contract_and_a_postcondition_are_failures_like_others(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("a", "echo a >> made; test $(wc -l < made) -ge 2 && echo 1", output=Output("json"), retry=AT_ONCE),
    )
    assert row.status == "completed", row.error
    async with Server(answer("", 500), answer("", 201)) as server:
        row = await harness.do(
            http("b", server.url(), "POST", postcondition=Postcondition((HttpStatus(201),)), retry=AT_ONCE)
        )
    assert row.status == "completed", row.error
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("handler", "method", "requests"),
    [
        (answer("", 503), "POST", 3),
        (raw(b""), "GET", 3),
        (raw(b""), "POST", 1),
        (hang, "POST", 1),
        (hanging_after(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), "PUT", 1),
        (hang, "GET", 3),
    ],
)
async def test_an_effect_that_may_have_happened_is_not_repeated(
    harness: PipelineHarness, handler: Handler, method: str, requests: int
) -> None:
    async with Server(handler) as server:
        row = await harness.do(http("a", server.url(), method, timeout=0.5, retry=AT_ONCE))
        assert row.status == ("failed" if requests > 1 else "awaiting_approval")
        assert len(server.requests) == requests


async def test_a_refusal_is_not_retried(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {**ANYTHING, "commands": {"deny": ["rm *"]}})
    row = await harness.do(cli("a", "rm", "-rf", ".", retry=AT_ONCE))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert len(await harness.events(row.id, Performed)) == 1
    row = await harness.do(cli("a", "true", approval=True, retry=AT_ONCE))
    row = await harness.decide(row.id, "deny")
    assert row.status == "cancelled"
    await harness.close()


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (cli("a", "true", cwd="link", retry=AT_ONCE), "outside_workspace"),
        (cli("a", "no-such-program", retry=AT_ONCE), "no_such_command"),
        (cli("a", "echo", "a\0b", retry=AT_ONCE), "bad_command"),
        (cli("a", "true", env={"T": Secret("env:NOT_SET")}, retry=AT_ONCE), "secret_missing"),
        (http("a", "http://localhost:1/", retry=AT_ONCE), "refused_address"),
        (http("a", "http://127.0.0.1:1/", more={"headers": {"Host": words("x")}}, retry=AT_ONCE), "bad_request"),
        (http("a", "http://x.example/", more={"body": Secret("env:TOKEN")}, retry=AT_ONCE), "insecure_secret"),
        (Step("a", Mcp("nobody.home", {}), retry=AT_ONCE), "no_such_tool"),
    ],
)
async def test_a_failure_that_would_be_refused_again_is_not_retried(tmp_path: Path, step: Step, code: str) -> None:
    harness = PipelineHarness(tmp_path, environ={"TOKEN": "s3cret-of-the-test"})
    (harness.workspace / "link").symlink_to(tmp_path)
    row = await harness.do(step)
    assert row.error is not None
    assert row.error.code == code
    assert await harness.notes(row.id, "attempt") == []
    await harness.close()


async def test_every_attempt_is_approved(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", ONCE_MORE.format(2), approval=True, retry=AT_ONCE))
    row = await harness.decide(row.id, "approve")
    assert row.status == "awaiting_approval"
    assert (await harness.wait(row.id)).prompt.startswith("Step a asks for approval (attempt 2).")
    assert harness.made("made") == ["try"]
    assert (await harness.decide(row.id, "approve")).status == "completed"
    assert harness.made("made") == ["try", "try"]


async def test_a_tool_that_did_not_answer_is_not_called_again_unless_it_only_reads(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    waiting = Mcp("good.wait", {"seconds": 60})
    row = await harness.do(
        Step("a", Mcp("good.add", {"a": 1, "b": 1})),
        Step("b", waiting, timeout=0.5, retry=AT_ONCE, on_error="continue"),
        Step("c", waiting, timeout=0.5, retry=Retry(2, 0.0), on_error="continue", effect="read"),
    )
    row = await harness.decide(row.id, "approve")
    assert (await harness.wait(row.id)).kind == "in_doubt"
    row = await harness.decide(row.id, "done", outcome={"value": "it was done"})
    assert row.status == "completed", row.error
    assert [note["code"] for note in await harness.notes(row.id, "attempt")] == ["timeout"]
    await harness.close()


@pytest.mark.parametrize(
    ("server", "code"), [("floods", "server_failed"), ("dies_in_call", "dropped"), ("lies", "bad_result")]
)
async def test_a_tool_whose_server_failed_in_the_call_is_in_doubt_and_not_called_again(
    tmp_path: Path, server: str, code: str
) -> None:
    harness = PipelineHarness(tmp_path, servers=by_hand(tmp_path, server))
    row = await harness.do(Step("a", Mcp("s.t", {}), retry=AT_ONCE))
    row = await harness.decide(row.id, "approve")
    wait = await harness.wait(row.id)
    assert (wait.kind, wait.details["failed"]["code"]) == ("in_doubt", code)
    assert await harness.notes(row.id, "attempt") == []
    await harness.close()


async def test_a_failure_that_can_only_recur_is_not_retried(harness: PipelineHarness) -> None:
    missing = cli("a", "echo", words(ArgRef("x")), retry=AT_ONCE)
    nowhere = http("a", words("http://", ArgRef("x")), retry=AT_ONCE)
    for step, inputs, code in ((missing, {}, "missing_argument"), (nowhere, {"x": "[bad"}, "bad_url")):
        row = await harness.do(step, inputs=inputs, args=[Arg("x")])
        assert row.error is not None
        assert row.error.code == code
        assert await harness.notes(row.id, "attempt") == []


async def test_a_cancelled_wait_ends_the_run(harness: PipelineHarness) -> None:
    run = await harness.start(shell("a", ONCE_MORE.format(9), retry=Retry(3, 600.0)))
    driving = asyncio.create_task(harness.service.drive(run))
    while not await harness.store.waits(run=run):
        await asyncio.sleep(0.02)
    await harness.service.cancel(run, "enough")
    driving.cancel()
    row = await harness.service.drive(run)
    assert row.status == "cancelled"
    assert harness.made("made") == ["try"]


async def test_what_was_done_is_not_done_again_because_its_output_was_cut(harness: PipelineHarness) -> None:
    long = "import sys; open('made', 'a').write('made\\n'); print('[', '1,' * 20_000, ']')"
    for effect, times in (("write", 1), ("read", 3)):
        async with Server(answer("[" + "1," * 20_000 + "1]")) as server:
            posted = http("a", server.url(), "POST", output=Output("json"), retry=AT_ONCE, effect=effect)
            row = await harness.do(posted)
            assert row.error is not None
            assert row.error.code == "output_contract"
            assert len(server.requests) == times
    assert (await harness.do(python("a", long, output=Output("json"), retry=AT_ONCE))).status == "failed"
    assert harness.made("made") == ["made"]


async def test_the_attempts_of_a_step_share_their_key(harness: PipelineHarness) -> None:
    """A service that knows the key does nothing twice, even if a success looked like a failure."""
    script = "printenv CUEBOOK_IDEMPOTENCY_KEY >> made; test $(wc -l < made) -ge {}"
    async with Server(answer("", 503), answer()) as server:
        steps = (
            shell("a", script.format(2), retry=AT_ONCE),
            http("b", server.url(), "POST", retry=AT_ONCE),
            http("c", server.url()),
        )
        row = await harness.do(*steps)
        again = await harness.do(*steps)
    assert (row.status, again.status) == ("completed", "completed")
    sent = [seen.headers.get("idempotency-key", "") for seen in server.requests]
    assert [bool(key) for key in sent] == [True, True, False, True, False], "reading needs none"
    keys = [*harness.made("made"), *filter(None, sent)]
    assert (len(set(keys)), len(keys)) == (4, 6)
    of_run = [key for key in keys if key.startswith(f"{row.id}/")]
    assert [key.partition("#")[0] for key in of_run] == [f"{row.id}/a", f"{row.id}/a", f"{row.id}/b", f"{row.id}/b"]


@pytest.mark.parametrize(
    "broken", [{"output": Output("json")}, {"postcondition": Postcondition((JsonPath(("ok",), True, "$.ok"),))}]
)
async def test_what_was_done_is_not_done_again_because_of_what_it_said(
    harness: PipelineHarness, broken: dict[str, Any]
) -> None:
    async with Server(answer('{"ok": false}' if "postcondition" in broken else "created", 201)) as server:
        row = await harness.do(http("a", server.url(), "POST", retry=AT_ONCE, **broken))
        assert row.status == "failed"
        assert len(server.requests) == 1
    async with Server(answer("created", 201)) as server:
        row = await harness.do(http("a", server.url(), retry=AT_ONCE, output=Output("json")))
        assert (row.status, len(server.requests)) == ("failed", AT_ONCE.max_attempts), "reading is tried again"
