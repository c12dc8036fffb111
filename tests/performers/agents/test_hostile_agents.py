"""Agents that misbehave: each ends in a typed outcome within its limits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from cuebook.kernel.run import RunRow
from tests.performers.agents.harness import AgentHarness, until_exists


@pytest.mark.parametrize(
    ("line", "code"),
    [("hang", "agent_timeout"), ("flood", "agent_protocol"), ("garbage", "agent_protocol"), ("line", "agent_protocol")],
)
async def test_a_turn_without_an_end_is_stopped_and_in_doubt(harness: AgentHarness, line: str, code: str) -> None:
    harness.configure(seconds=3 if line == "hang" else 60)
    harness.open()
    run = await harness.do("say Begun.", line)
    (wait,) = await harness.waits(run)
    assert (run.status, wait.kind, wait.details["failed"]["code"]) == ("awaiting_approval", "in_doubt", code)
    run = await harness.decide(run, "stop")
    assert (run.status, run.error.code if run.error else "") == ("failed", "in_doubt")


@pytest.mark.parametrize(("mode", "code"), [("future", "agent_protocol"), ("exits", "agent_died")])
async def test_an_agent_that_cannot_be_started_fails_the_step_before_anything_was_sent(
    harness: AgentHarness, mode: str, code: str
) -> None:
    harness.configure(mode)
    if mode == "exits":
        harness.configure(command=["/bin/sh", "-c", "echo no such key >&2; exit 3"])
    harness.open()
    run = await harness.do("say Hello.")
    assert (run.status, run.error.code if run.error else "") == ("failed", code)
    assert mode == "future" or "no such key" in str(run.error)


async def test_an_agent_that_dies_in_mid_turn_continues_once_with_its_session(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("say Begun.", "die", "say Done.")
    assert (run.status, await harness.said(run)) == ("completed", "Done.")
    assert [prompt.startswith("Your process was interrupted") for prompt in harness.prompts()] == [False, True]


async def test_an_agent_that_dies_and_cannot_continue_is_in_doubt_and_can_be_said_to_be_done(
    harness: AgentHarness,
) -> None:
    harness.configure("no-load")
    harness.open()
    run = await harness.do("say Begun.", "die", "say Done.")
    (wait,) = await harness.waits(run)
    assert (wait.kind, wait.details["failed"]["code"]) == ("in_doubt", "agent_died")
    run = await harness.decide(run, "done", outcome={"content": "I finished it myself."})
    assert (run.status, await harness.said(run)) == ("completed", "I finished it myself.")


async def test_a_turn_is_repeated_only_if_someone_says_so(harness: AgentHarness) -> None:
    harness.configure("no-load")
    harness.open()
    run = await harness.do("say Begun.", "die", "say Done.")
    run = await harness.decide(run, "repeat")
    assert (run.status, await harness.said(run)) == ("completed", "Begun.Done.")


async def test_requests_for_another_session_and_unknown_requests_are_refused(harness: AgentHarness) -> None:
    harness.rule('[tools]\nallow = ["agent_*"]\n[files]\nallow = ["write:**"]\n')
    harness.open()
    run = await harness.do("stray made.txt")
    assert (run.status, harness.made()) == ("completed", False)


async def test_cancelling_a_run_ends_its_agent_and_leaves_the_turn_in_doubt(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.start("mark here.txt", "say Done.")
    driving = asyncio.create_task(harness.service.drive(run.id))
    await until_exists(harness.work / "here.txt")
    await harness.service.cancel(run.id)
    run = await driving
    assert run.status == "cancelled"
    (step,) = await harness.service.steps(run.id)
    assert step.status == "in_doubt"


async def continued_after_a_kill(harness: AgentHarness) -> RunRow:
    """A run whose process was killed in the middle of the agent's turn, and which another process has continued."""
    here = harness.work / "here.txt"
    harness.open()
    run = await harness.start("say Begun.", f"mark {here}", "say Done.")
    await harness.service.close()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cuebook", "resume", run.id, "--store", harness.place),
        cwd=harness.work,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    await until_exists(here)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    harness.open()
    return await harness.service.drive(run.id)


async def test_a_killed_cuebook_leaves_no_agent_and_its_session_is_continued(harness: AgentHarness) -> None:
    run = await continued_after_a_kill(harness)
    assert [wait.prompt for wait in await harness.waits(run)] == []
    assert (run.status, await harness.said(run)) == ("completed", "Done.")
    assert len(harness.prompts()) == 2


async def test_a_killed_cuebook_leaves_a_turn_in_doubt_that_cannot_be_continued(harness: AgentHarness) -> None:
    harness.configure("no-load")
    run = await continued_after_a_kill(harness)
    (wait,) = await harness.waits(run)
    assert (run.status, wait.kind) == ("awaiting_approval", "in_doubt")
    assert wait.prompt.endswith(": a turn of acp/test")
    assert "which the agent may have changed in part" in str(wait.details["preview"])
