"""Rollbacks: offered in reverse order when a run ends without completing, each gated, with what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.pipeline.parse import parse, read
from cuebook.kernel.events import Performing
from cuebook.kernel.run import RunRow
from tests.dialects.pipeline.harness import PipelineHarness

RELEASE = """\
name: Release
steps:
  - id: build
    command: cli sh -c "echo built > build.txt; echo 7"
    rollback: cli rm build.txt
  - id: tag
    command: cli touch tag-${build.stdout}
    rollback: cli rm tag-${build.stdout}
    rollback_hint: Remove the tag.
  - id: deploy
    command: cli false
"""


async def ended(harness: PipelineHarness, text: str, *said: Any) -> RunRow:
    """A run whose offers are decided in this way, in order."""
    harness.pipeline = parse(text, "release.yml")
    row = await harness.do()
    return await decided(harness, row, *said)


async def decided(harness: PipelineHarness, row: RunRow, *said: Any) -> RunRow:
    for step, decision in said:
        assert row.status == "awaiting_approval", row.error
        wait = await harness.wait(row.id)
        assert wait.place.step == step, wait.prompt
        await harness.service.decide(wait.id, decision, reason="As agreed")
        row = await harness.service.drive(row.id)
    return row


async def test_a_failed_run_is_undone_in_reverse_order(harness: PipelineHarness) -> None:
    harness.pipeline = parse(RELEASE, "release.yml")
    row = await harness.do()
    wait = await harness.wait(row.id)
    assert "Step deploy failed" in wait.prompt
    assert "Undo step tag?" in str(wait.details["preview"]) + wait.prompt
    assert "rm tag-7" in wait.details["preview"]["command"]
    assert (harness.workspace / "tag-7").exists()
    row = await decided(harness, row, ("undo.tag", "approve"), ("undo.build", "approve"))
    assert row.status == "failed"
    assert row.error is not None
    assert row.step == "deploy"
    assert row.error.message.startswith("Step deploy failed")
    assert "Undone: tag, build." in row.error.message
    assert row.error.details["undone"] == ["tag", "build"]
    assert not (harness.workspace / "tag-7").exists()
    assert not (harness.workspace / "build.txt").exists()
    ran = [entry.place.step async for entry in harness.service.entries(row.id) if isinstance(entry.event, Performing)]
    assert ran == ["build", "tag", "deploy", "undo.tag", "undo.build"]
    assert (await harness.service.verify(row.id)).broken_at is None


async def test_a_retry_does_again_what_was_undone(harness: PipelineHarness) -> None:
    row = await ended(harness, RELEASE, ("undo.tag", "approve"), ("undo.build", "deny"))
    assert row.error is not None
    assert "Undone: tag. Not undone: build (not undone: local denied it: As agreed)." in row.error.message
    assert "does everything again from step tag" in row.error.fix
    harness.pipeline = parse(RELEASE.replace("cli false", "cli true"), "release.yml")
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert (harness.workspace / "tag-7").exists()
    ran = [entry.place.step async for entry in harness.service.entries(row.id) if isinstance(entry.event, Performing)]
    assert ran == ["build", "tag", "deploy", "undo.tag", "tag", "deploy"]


async def test_a_rollback_that_fails_halfway_says_what_is_left(harness: PipelineHarness) -> None:
    text = RELEASE.replace("rollback: cli rm tag-${build.stdout}", "rollback: cli rm no-such-file")
    row = await ended(harness, text, ("undo.tag", "approve"), ("undo.build", "approve"))
    assert row.status == "failed"
    assert row.error is not None
    assert "Undone: build. Not undone: tag (failed: The command failed (exit code 1)" in row.error.message
    assert "To undo it by hand: tag: Remove the tag." in row.error.fix
    assert f"`cuebook show {row.id}`" in row.error.fix or "`cuebook show RUN`" in row.error.fix
    steps = {step.label: (step.status, step.reason) for step in await harness.service.steps(row.id)}
    assert steps["undo.tag"][0] == "failed"
    assert steps["undo.build"][0] == "completed"
    assert steps["undo"][0] == "failed"


async def test_a_cancelled_run_is_undone_and_stays_cancelled(harness: PipelineHarness) -> None:
    text = RELEASE.replace("command: cli false", "command: cli true\n    approval: required")
    harness.pipeline = parse(text, "release.yml")
    row = await harness.do()
    assert (await harness.wait(row.id)).place.step == "deploy"
    await harness.service.cancel(row.id, "Too late")
    row = await harness.service.drive(row.id)
    row = await decided(harness, row, ("undo.tag", "approve"), ("undo.build", "approve"))
    assert row.status == "cancelled"
    assert row.error is not None
    assert "Undone: tag, build." in row.error.message
    assert not (harness.workspace / "build.txt").exists()


async def test_a_second_cancel_stops_without_undoing_more(harness: PipelineHarness) -> None:
    text = RELEASE.replace("command: cli false", "command: cli true\n    approval: required")
    harness.pipeline = parse(text, "release.yml")
    row = await harness.do()
    await harness.service.cancel(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    await harness.service.cancel(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "cancelled"
    assert (harness.workspace / "tag-7").exists()


async def test_a_denied_step_offers_to_undo_what_came_before(harness: PipelineHarness) -> None:
    text = RELEASE.replace("command: cli false", "command: cli true\n    approval: required")
    row = await ended(harness, text, ("deploy", "deny"), ("undo.tag", "approve"), ("undo.build", "deny"))
    assert row.status == "cancelled"
    assert row.error is not None
    assert "Undone: tag. Not undone: build" in row.error.message


async def test_a_step_that_failed_in_part_is_undone_too(harness: PipelineHarness) -> None:
    text = RELEASE.replace("command: cli false", "command: cli sh -c 'touch half; exit 1'\n    rollback: cli rm half")
    row = await ended(harness, text, ("undo.deploy", "approve"), ("undo.tag", "deny"), ("undo.build", "deny"))
    assert row.error is not None
    assert row.error.details["undone"] == ["deploy"]
    assert not (harness.workspace / "half").exists()


async def test_offers_end_when_one_is_not_answered(harness: PipelineHarness) -> None:
    harness.pipeline = parse(RELEASE, "release.yml")
    row = await harness.do()
    wait = await harness.wait(row.id)
    assert wait.expires is not None
    harness.now = wait.expires + 1
    await harness.service.expire()
    row = await harness.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert "Not undone: tag (not answered in time); build (not offered)." in row.error.message


async def test_a_run_that_completes_undoes_nothing(harness: PipelineHarness) -> None:
    row = await ended(harness, RELEASE.replace("cli false", "cli true"))
    assert row.status == "completed"


@pytest.mark.parametrize(
    ("written", "code", "says"),
    [
        ("llm", "BAD_ROLLBACK", "cannot undo anything"),
        ("rm -r x", "BAD_ROLLBACK", "cannot undo anything"),
        ("{comand: cli true}", "SCHEMA", "Unknown key 'comand'"),
        ("cli rm $$ ${later.stdout}", "UNKNOWN_REFERENCE", "unknown step"),
    ],
)
def test_a_wrong_rollback_is_found_with_its_line(written: str, code: str, says: str) -> None:
    found = read(f"name: A\nsteps:\n  - id: a\n    command: cli true\n    rollback: {written}\n", "a.yml").errors
    assert (found[0].code, found[0].line) == (code, 5), found
    assert says in found[0].message
