"""Parallel branches: all of them, or the first that succeeds."""

from __future__ import annotations

import json

from cuebook.kernel.run import Signal
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import play, same_on_replay


async def test_all_branches_run_and_their_steps_can_be_referred_to(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: checks
    parallel: all
    branches:
      lint:
        - id: find
          command: cli printf 3
        - id: lint_run
          command: cli printf 'found ${find.stdout}'
      test:
        - id: test_run
          command: cli printf '{"ok":true}'
  - id: after
    command: cli printf '%s %s' ${find.stdout} ${lint_run.stdout}
  - id: all
    command: cli cat
    stdin: $checks.results
""",
    )
    assert row.status == "completed", row.error
    outputs = await harness.outputs(row.id)
    assert outputs["after"] == "3 found 3"
    assert json.loads(outputs["all"]) == {"lint": "found 3", "test": {"ok": True}}
    await same_on_replay(harness, row.id)


async def test_a_failing_branch_fails_the_step_after_the_others_and_a_retry_continues(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: checks
    parallel: all
    branches:
      one:
        - id: a
          command: cli sh -c 'echo a >> made; test -e fixed'
        - id: b
          command: cli sh -c 'echo b >> made'
      two:
        - id: c
          command: cli sh -c 'sleep 0.3; echo c >> made'
""",
    )
    assert row.status == "failed"
    assert row.error is not None
    assert "1 of 2 failed: one: Step a failed" in row.error.message
    assert harness.made("made") == ["a", "c"]
    (harness.workspace / "fixed").touch()
    await harness.store.signal(Signal(row.id, "retry", {}, "me"))
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["a", "c", "a", "b"]
    await same_on_replay(harness, row.id)


async def test_the_first_success_wins_and_the_others_are_ended(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: mirror
    parallel: any
    branches:
      slow:
        - id: from_slow
          command: cli sh -c 'touch began; sleep 30; echo slow'
      person:
        - id: from_person
          approval: required
          command: cli echo person
      broken:
        - id: from_broken
          command: cli false
      fast:
        - id: from_fast
          command: cli sh -c 'until [ -e began ]; do sleep 0.01; done; echo fast'
  - id: after
    command: cli echo ${mirror.winner} ${mirror.results.fast}
""",
    )
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["after"] == "fast fast\n"
    statuses = await harness.statuses(row.id)
    assert statuses["from_slow"] == "in_doubt"
    assert statuses["from_broken"] in ("failed", "in_doubt")  # it may still be under way when the fast one ends
    assert not await harness.store.waits(run=row.id)
    await same_on_replay(harness, row.id)


async def test_if_no_branch_succeeds_the_step_fails(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: mirror
    parallel: any
    branches:
      a: [{id: one, command: cli false}]
      b: [{id: two, command: "cli sh -c 'exit 3'"}]
""",
    )
    assert row.status == "failed"
    assert row.error is not None
    assert "2 of 2 failed: a: Step one failed" in row.error.message


async def test_branches_loops_and_waits_can_be_nested(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: regions
    for_each: [eu, us]
    key: ${item}
    concurrency: 2
    steps:
      - id: both
        parallel: all
        branches:
          x:
            - id: in_x
              for_each: [1, 2]
              as: n
              command: cli printf '%s' ${item}${n}
          y:
            - id: in_y
              command: cli printf %s ${item}
      - id: joined
        command: cli printf '%s' '${in_y.stdout} ${in_x.results.1} ${both.results.y}'
  - id: after
    command: cli cat
    stdin: $regions.results
""",
    )
    assert row.status == "completed", row.error
    assert json.loads((await harness.outputs(row.id))["after"]) == ["eu eu2 eu", "us us2 us"]
    assert (await harness.statuses(row.id))["in_x[us][1]"] == "completed"
    await same_on_replay(harness, row.id)


async def test_the_error_names_the_step_that_was_stopped_and_not_the_one_that_began_last(
    harness: PipelineHarness,
) -> None:
    row = await play(
        harness,
        """
steps:
  - id: both
    parallel: all
    branches:
      lost:
        - id: stuck
          command: cli sleep 60
          timeout_ms: 300
      fine:
        - id: first
          command: cli sleep 0.6
        - id: last
          command: cli touch made
""",
    )
    row = await harness.decide(row.id, "stop")
    assert row.error is not None
    assert (row.status, row.error.code, row.step) == ("failed", "in_doubt", "stuck")
    assert "sleep 60" in row.error.message
