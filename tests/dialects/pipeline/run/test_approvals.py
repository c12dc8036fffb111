"""Steps at the gate: refusals before anything is done, questions to a person, and cleanup after a step."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.model import Arg, Mcp, Output, Secret, Step
from cuebook.kernel.errors import WaitExpired
from cuebook.kernel.events import Performed, WaitOpened
from cuebook.kernel.outcomes import CommandResult
from cuebook.kernel.run import Settings
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness, cli, http, pipeline, python, ref, shell, words
from tests.gate.harness import LOCAL, settled
from tests.support.programs import new_row


class Watched(dict[str, str]):
    """An environment that records every lookup."""

    def __init__(self, **values: str) -> None:
        super().__init__(values)
        self.seen: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.seen.append(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.append(name)
        return super().get(name, default)


async def test_a_run_without_a_policy_does_nothing(harness: PipelineHarness) -> None:
    await harness.service._engine.start(new_row("pipeline.yml"), "text", {}, Settings(), None)
    harness.pipeline = pipeline(cli("a", "touch", "made"))
    row = await harness.service.take_up("run")
    assert row.error is not None
    assert row.error.code == "no_policy"
    assert not (harness.workspace / "made").exists()


async def test_a_denied_secret_is_never_looked_up(tmp_path: Path) -> None:
    environ = Watched(TOKEN="s3cret-of-the-test")
    harness = PipelineHarness(tmp_path, {**ANYTHING, "secrets": {"deny": ["env:TOKEN"]}}, environ=environ)
    row = await harness.do(cli("a", "touch", "made", env={"T": Secret("env:TOKEN")}))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert "TOKEN" not in environ.seen
    assert not (harness.workspace / "made").exists()
    await harness.close()


async def test_a_secret_that_may_be_asked_for_does_not_undo_a_denial(tmp_path: Path) -> None:
    policy = {"secrets": {"ask": ["*"]}, "commands": {"deny": ["touch *"]}}
    harness = PipelineHarness(tmp_path, policy, environ={"TOKEN": "s3cret-of-the-test"})
    row = await harness.do(cli("a", "touch", "made", env={"T": Secret("env:TOKEN")}))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert await harness.events(row.id, WaitOpened) == []
    await harness.close()


async def test_a_policy_question_is_asked_once_and_offers_permanent_rules(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"commands": {"ask": ["*"]}})
    row = await harness.do(cli("a", "touch", "made"))
    wait = await harness.wait(row.id)
    assert wait.details["purpose"] == "policy"
    assert ["command", "touch made"] in wait.details["suggestions"]
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert len(await harness.events(row.id, WaitOpened)) == 1
    await harness.close()


async def test_an_approval_by_the_step_and_one_by_the_policy_are_one(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"commands": {"ask": ["*"]}})
    row = await harness.do(cli("a", "touch", "made", approval=True), cli("b", "true", approval=True))
    row = await harness.decide(row.id, "approve")
    assert row.status == "awaiting_approval"
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert len(await harness.events(row.id, WaitOpened)) == 2
    await harness.close()


async def test_what_was_approved_is_what_runs(harness: PipelineHarness) -> None:
    """The script is changed after it was shown: the person is asked again, about the new one."""
    script = harness.workspace / "deploy.sh"
    script.write_text("echo harmless >> made\n")
    row = await harness.do(cli("a", "sh", "deploy.sh", approval=True))
    wait = await harness.wait(row.id)
    script.write_text("echo harmful >> made\n")
    await harness.service.decide(wait.id, "approve")
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert harness.made("made") == []
    assert [name for name in (await harness.wait(row.id)).details["changed"] if "deploy.sh" in name]


async def test_a_large_output_comes_through(harness: PipelineHarness) -> None:
    row = await harness.do(
        python("a", "print('x' * 500_000)", output=Output("text", max_bytes=512_000)), cli("b", "true")
    )
    (performed, _) = await harness.events(row.id, Performed)
    assert isinstance(performed.outcome, CommandResult)
    assert len(performed.outcome.stdout) == 500_001
    assert not performed.outcome.truncated


async def test_a_command_that_takes_too_long_is_ended_with_everything_it_started(harness: PipelineHarness) -> None:
    """Processes have other ids inside the sandbox, so the test watches whether it keeps writing."""
    script = "(trap '' TERM; while :; do date +%s%N > beat; sleep 0.05; done) & setsid sleep 60 & sleep 60"
    row = await harness.do(shell("a", script, timeout=4.0))
    assert (await harness.wait(row.id)).details["failed"]["code"] == "timeout"
    beat = harness.workspace / "beat"
    before = beat.read_text()
    await asyncio.sleep(0.5)
    assert beat.read_text() == before


async def test_a_cancelled_run_ends_its_command_with_everything_it_started(harness: PipelineHarness) -> None:
    script = "(trap '' TERM; while :; do date +%s%N > beat; sleep 0.05; done) & sleep 60"
    run = await harness.start(shell("a", script), cli("b", "touch", "made"))
    driving = asyncio.create_task(harness.service.drive(run))
    beat = harness.workspace / "beat"
    await settled(lambda: os.path.exists(beat) and bool(beat.read_text()))
    await harness.service.cancel(run, "enough")
    row = await driving
    assert row.status == "cancelled"
    before = beat.read_text()
    await asyncio.sleep(0.5)
    assert beat.read_text() == before
    assert not (harness.workspace / "made").exists()


async def test_a_tool_without_a_server_is_refused(harness: PipelineHarness) -> None:
    row = await harness.do(Step("a", Mcp("nobody.home", {})))
    assert row.error is not None
    assert row.error.code == "no_such_tool"


@pytest.mark.parametrize(
    ("step", "approved"),
    [
        (cli("a", "false", approval=True, on_error="continue"), "true"),
        (cli("a", "sleep", "60", timeout=0.5, effect="read", approval=True, on_error="continue"), "true"),
        (cli("a", "echo", "x", output=Output("json"), approval=True, on_error="continue"), "true"),
        (http("a", "http://127.0.0.1:1/", approval=True, on_error="continue"), "true"),
        (cli("a", "no-such-program", approval=True, on_error="continue"), "false"),
        (cli("a", "rm", "x", approval=True, on_error="continue"), "false"),
        (cli("a", "false", on_error="continue"), "false"),
    ],
)
async def test_a_step_counts_as_approved_even_if_it_fails_afterwards(tmp_path: Path, step: Step, approved: str) -> None:
    harness = PipelineHarness(tmp_path, {**ANYTHING, "commands": {"allow": ["*"], "deny": ["rm *"]}})
    row = await harness.do(step, cli("b", "echo", words(ref("a", "approved"))))
    if row.status == "awaiting_approval":
        row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert (await harness.statuses(row.id))["a"] == "failed"
    assert (await harness.outputs(row.id))["b"] == f"{approved}\n"
    await harness.close()


async def test_all_overdue_approvals_expire_at_once(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {**ANYTHING, "approvals": {"expires_after": 60}})
    first, *others = [(await harness.do(shell("a", "echo x >> made", approval=True))).id for _ in range(5)]
    waits = [await harness.wait(run) for run in others]
    await harness.decide(first, "approve")
    harness.now += 61
    assert sorted(await harness.store.expire(harness.now)) == sorted(others)
    assert await harness.store.waits() == []
    for wait in waits:
        with pytest.raises(WaitExpired):
            await harness.service.decide(wait.id, "approve", LOCAL)
    assert [(await harness.service.drive(run)).status for run in others] == ["expired"] * 4
    assert harness.made("made") == ["x"], "only what was approved in time"
    assert await harness.store.expire(harness.now) == []
    await harness.close()


async def test_commands_of_two_runs_in_one_workspace_do_not_wait_for_each_other(harness: PipelineHarness) -> None:
    """Each ends only after the other has started: no run locks the workspace."""
    meeting = 'touch "$CUEBOOK_ARG_ME"; until test -e "$CUEBOOK_ARG_OTHER"; do sleep 0.02; done'
    args = [Arg("me"), Arg("other")]
    steps = [shell("a", meeting, timeout=30.0)]
    runs = [
        await harness.start(*steps, args=args, inputs={"me": me, "other": other})
        for me, other in (("one", "two"), ("two", "one"))
    ]
    rows = await asyncio.gather(*map(harness.service.drive, runs))
    assert [row.status for row in rows] == ["completed", "completed"]
