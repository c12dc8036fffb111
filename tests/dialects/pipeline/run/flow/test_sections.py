"""`on_failure`, `finally`, and what follows a denied or expired approval."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.run import state
from cuebook.kernel.run import Signal
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import play, same_on_replay

DEPLOY = """
steps:
  - id: build
    command: cli sh -c 'echo build >> made'
  - id: deploy
    command: cli sh -c 'echo deploy >> made; test -e fixed'
  - id: after
    command: cli sh -c 'echo after >> made'
on_failure:
  - id: tell
    command: cli sh -c 'echo "$0 $1" >> made' ${failure.step} ${failure.code}
finally:
  - id: clean
    command: cli sh -c 'echo clean >> made'
  - id: only_if_failed
    condition: $failure.code != null
    command: cli sh -c 'echo failed >> made'
"""


async def test_after_a_failure_both_sections_run_and_the_run_still_fails(harness: PipelineHarness) -> None:
    row = await play(harness, DEPLOY)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.message.startswith("Step deploy failed")
    assert row.step == "deploy"
    assert harness.made("made") == ["build", "deploy", "deploy exit_code", "clean", "failed"]
    assert (await harness.statuses(row.id))["after"] == "skipped"
    await same_on_replay(harness, row.id)
    (harness.workspace / "fixed").touch()
    await harness.store.signal(Signal(row.id, "retry", {}, "me"))
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert harness.made("made")[5:] == ["deploy", "after", "clean"]
    await same_on_replay(harness, row.id)


async def test_without_a_failure_only_finally_runs(harness: PipelineHarness) -> None:
    (harness.workspace / "fixed").touch()
    row = await play(harness, DEPLOY)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["build", "deploy", "after", "clean"]


async def test_finally_runs_after_a_cancellation(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: ask
    approval: required
    command: cli sh -c 'echo ask >> made'
on_failure:
  - id: tell
    command: cli sh -c 'echo tell >> made'
finally:
  - id: clean
    command: cli sh -c 'echo "clean $0" >> made' ${failure.code}
""",
    )
    assert row.status == "awaiting_approval"
    await harness.store.signal(Signal(row.id, "cancel", {}, "me"))
    row = await harness.service.drive(row.id)
    assert row.status == "cancelled"
    assert harness.made("made") == ["clean cancelled"]
    assert (await harness.statuses(row.id)) == {"ask": "failed", "clean": "completed"}


async def test_a_failure_in_a_section_does_not_hide_the_first(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: work
    command: cli sh -c 'exit 3'
on_failure:
  - id: tell
    command: cli sh -c 'exit 4'
  - id: unreached
    command: cli sh -c 'echo unreached >> made'
finally:
  - id: clean
    command: cli sh -c 'echo clean >> made'
""",
    )
    assert row.status == "failed"
    assert row.error is not None
    assert "Step work failed" in row.error.message
    assert harness.made("made") == ["clean"]
    assert (await harness.statuses(row.id))["tell"] == "failed"


async def test_a_failure_in_finally_fails_a_run_that_had_succeeded(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: work
    command: cli true
finally:
  - id: clean
    command: cli sh -c 'exit 4'
""",
    )
    assert row.status == "failed"
    assert row.error is not None
    assert "Step clean failed" in row.error.message


async def test_a_section_continues_after_its_own_wait_and_checkpoint(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "STRETCH", 1)
    row = await play(
        harness,
        """
steps:
  - id: work
    command: cli sh -c 'echo 7; exit 3'
on_failure:
  - id: first
    command: cli sh -c 'echo first >> made'
  - id: ask
    approval: required
    command: cli sh -c 'echo "$0 $1" >> made' ${failure.message} ${work.exit_code}
finally:
  - id: clean
    approval: required
    command: cli sh -c 'echo clean >> made'
""",
    )
    for _ in range(2):
        assert row.status == "awaiting_approval"
        await harness.service.decide((await harness.wait(row.id)).id, "approve")
        row = await harness.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.message.startswith("Step work failed")
    made = harness.made("made")
    assert made[0] == "first"
    assert made[-1] == "clean"
    assert made[1].startswith("Step work failed")


# --- denial and expiry as branches ---

RUNBOOK = """
steps:
  - id: restart
    approval: required
    on_denied:
      - id: page
        command: cli sh -c 'echo "page $0" >> made' ${restart.errorMessage}
      - id: wait_for_page
        command: cli printf paged
    command: cli sh -c 'echo restart >> made'
  - id: report
    command: cli sh -c 'echo "$0" >> made' "${restart.approved} ${restart.denied} ${restart.skipped} ${restart.error}"
  - id: quote
    condition: "!$wait_for_page.skipped"
    command: cli sh -c 'echo "$0" >> made' ${wait_for_page.stdout}
"""


async def test_a_denial_runs_its_own_steps_and_the_run_continues(harness: PipelineHarness) -> None:
    row = await play(harness, RUNBOOK)
    await harness.service.decide((await harness.wait(row.id)).id, "deny", reason="too risky")
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    made = harness.made("made")
    assert made[0].startswith("page ")
    assert "too risky" in made[0]
    assert made[1:] == ["false true true false", "paged"]
    assert (await harness.statuses(row.id))["restart"] == "skipped"
    await same_on_replay(harness, row.id)


async def test_an_approval_skips_the_steps_of_a_denial(harness: PipelineHarness) -> None:
    row = await play(harness, RUNBOOK)
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["restart", "true false false false"]


async def test_an_expired_approval_is_a_branch_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    policy = {**ANYTHING, "approvals": {"expires_after": 60, "on_expiry": "cancel"}}
    harness = PipelineHarness(tmp_path_factory.mktemp("expiry"), policy)
    row = await play(
        harness,
        """
steps:
  - id: restart
    approval: required
    on_expired: skip_rest
    command: cli sh -c 'echo restart >> made'
  - id: after
    command: cli sh -c 'echo after >> made'
finally:
  - id: clean
    command: cli sh -c 'echo clean >> made'
""",
    )
    assert row.status == "awaiting_approval"
    row = await harness.later(61, row.id)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["clean"]
    assert (await harness.statuses(row.id))["after"] == "skipped"
    await harness.close()
