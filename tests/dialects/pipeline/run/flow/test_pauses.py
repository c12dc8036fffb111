"""Waits: for a time, for a date, and until a condition holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cuebook.dialects.pipeline.run.flow import pauses
from cuebook.kernel.events import Checkpointed
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import later, play, same_on_replay


async def test_a_wait_is_a_row_on_disk_until_its_time(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
args: {pause: {default: 2h}}
steps:
  - id: before
    command: cli sh -c 'echo before >> made'
  - id: cool
    wait: ${pause}
  - id: after
    command: cli sh -c 'echo after >> made'
""",
        pause="2h",
    )
    assert row.status == "paused"
    assert row.reason == "timer"
    (wait,) = await harness.store.waits(run=row.id)
    assert wait.prompt.startswith("Step cool waits until ")
    assert wait.expires is not None
    assert wait.expires - wait.opened == pytest.approx(7200)
    row = await later(harness, 7100, row.id)
    assert row.status == "paused"
    row = await later(harness, 101, row.id)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["before", "after"]
    await same_on_replay(harness, row.id)


async def test_a_date_is_waited_for_and_a_past_date_is_over(harness: PipelineHarness) -> None:
    past, moment = (datetime.fromtimestamp(harness.now + seconds, UTC).isoformat() for seconds in (-500, 500))
    row = await play(
        harness,
        f"""
steps:
  - id: past
    wait: {{at: "{past}"}}
  - id: window
    wait: {{at: "{moment}"}}
""",
    )
    assert row.step == "window"
    assert row.status == "paused"
    row = await later(harness, 501, row.id)
    assert row.status == "completed", row.error


@pytest.mark.parametrize("value", ["soon", "10", "-5m", "9999999d"])
async def test_a_duration_that_cannot_be_read_fails_the_step_with_the_line(
    harness: PipelineHarness, value: str
) -> None:
    row = await play(
        harness,
        """
args: {pause: {default: 2h}}
steps:
  - id: cool
    wait: ${pause}
""",
        pause=value,
    )
    assert row.error is not None
    assert row.error.code == "bad_time"
    assert "line 5" in row.error.message


POLL = """
steps:
  - id: ready
    command: cli cat state
    effect: read
    wait: {until: $ready.stdout == "up", every: 10s, timeout: 5m}
  - id: after
    command: cli echo ${ready.stdout}
"""


async def test_a_condition_is_polled_until_it_holds(harness: PipelineHarness) -> None:
    row = await play(harness, POLL)
    assert row.status == "paused"  # the file does not exist yet, which counts as not yet
    (harness.workspace / "state").write_text("down\n")
    row = await later(harness, 11, row.id)
    assert row.status == "paused"
    (harness.workspace / "state").write_text("up\n")
    row = await later(harness, 11, row.id)
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["after"] == "up\n"
    (note,) = await harness.notes(row.id, "until")
    assert note == {"text": '$ready.stdout == "up"', "held": True, "attempts": 3}
    await same_on_replay(harness, row.id)


async def test_a_condition_that_never_holds_fails_at_the_timeout(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "STRETCH", 4)
    (harness.workspace / "state").write_text("down\n")
    row = await play(harness, POLL)
    for _ in range(40):
        if row.status != "paused":
            break
        row = await later(harness, 10.5, row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "wait_timeout"
    assert 'The condition $ready.stdout == "up" did not hold within 300 s' in row.error.message
    assert len(await harness.events(row.id, Checkpointed)) >= 5
    await same_on_replay(harness, row.id)
