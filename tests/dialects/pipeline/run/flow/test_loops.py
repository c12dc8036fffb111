"""Loops: a step for each item, so many at once, and what becomes of the items that fail."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from cuebook.dialects.pipeline.run.flow import loops
from cuebook.kernel.events import Checkpointed
from cuebook.kernel.run import Signal
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import play, same_on_replay

DECISIONS: tuple[Literal["approve", "deny"], ...] = ("approve", "deny", "approve")
ORDERS = """
steps:
  - id: orders
    command: cli printf '[{"id":"A1","n":1},{"id":"A2","n":2},{"id":"A3","n":3}]'
    output: json
"""


async def test_a_step_runs_for_each_item_and_its_results_are_in_order(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        ORDERS
        + """
  - id: double
    for_each: $orders.json
    as: order
    key: ${order.id}
    concurrency: 2
    command: cli printf '{"twice":%d,"at":%d}' ${order.n}${order.n} ${loop.index}
    output: json
  - id: after
    command: cli cat
    stdin: $double.results
  - id: one
    command: cli echo ${double.results.1.twice} ${double.items.0.key} ${double.json.completed}
""",
    )
    assert row.status == "completed", row.error
    outputs = await harness.outputs(row.id)
    assert json.loads(outputs["after"]) == [{"twice": 11 * (n + 1), "at": n} for n in range(3)]
    assert outputs["one"] == "22 A1 3\n"
    assert list(await harness.statuses(row.id)) == [
        *("orders", "double", "double[A1]", "double[A2]", "double[A3]", "after", "one"),
    ]
    await same_on_replay(harness, row.id)


async def test_a_list_of_steps_runs_for_each_item(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        ORDERS
        + """
  - id: handle
    for_each: $orders.json
    key: ${item.id}
    steps:
      - id: fetch
        command: cli printf %s ${item.n}
      - id: only_even
        condition: $fetch.json == 2
        command: cli sh -c 'echo even >> made'
      - id: shout
        for_each: [a, b]
        as: letter
        command: cli printf %s ${letter}-${item.id}-${fetch.stdout}
  - id: after
    command: cli cat
    stdin: $handle.results
""",
    )
    assert row.status == "completed", row.error
    assert harness.made("made") == ["even"]
    statuses = await harness.statuses(row.id)
    assert statuses["only_even[A1]"] == "skipped"
    assert statuses["shout[A3][1]"] == "completed"
    assert json.loads((await harness.outputs(row.id))["after"])[0] == {
        "total": 2, "completed": 2, "failed": 0, "skipped": 0, "failures": [],
    }  # fmt: skip
    await same_on_replay(harness, row.id)


async def test_a_failing_item_stops_the_loop_and_a_retry_continues_there(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: send
    for_each: [a, b, c, d]
    key: ${item}
    command: cli sh -c 'echo $0 >> made; test $0 != b -o -e fixed' ${item}
""",
    )
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.message.startswith("Step send failed: 1 of 4 failed: b: The command failed (exit code 1)")
    assert harness.made("made") == ["a", "b"]
    statuses = await harness.statuses(row.id)
    assert (statuses["send"], statuses["send[a]"], statuses["send[b]"]) == ("failed", "completed", "failed")
    assert "send[c]" not in statuses
    await same_on_replay(harness, row.id)
    (harness.workspace / "fixed").touch()
    await harness.store.signal(Signal(row.id, "retry", {}, "me"))
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["a", "b", "b", "c", "d"]
    await same_on_replay(harness, row.id)


async def test_with_continue_every_item_runs_and_the_result_names_the_failed_ones(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: send
    for_each: [a, b, c]
    key: ${item}
    on_error: continue
    command: cli sh -c 'test $0 != b' ${item}
  - id: report
    condition: $send.error
    command: cli echo ${send.json.failed} ${send.items.1.status} ${send.json.failures.0.key}
""",
    )
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["report"] == "1 failed b\n"
    assert (await harness.statuses(row.id))["send"] == "failed"
    (note,) = await harness.notes(row.id, "items")
    assert note["failed"] == 1
    await same_on_replay(harness, row.id)


async def test_a_condition_about_the_item_skips_items(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        ORDERS
        + """
  - id: big
    for_each: $orders.json
    condition: ${item.n} > 1
    command: cli sh -c 'echo $0 >> made' ${item.id}
  - id: never
    for_each: $orders.json
    condition: $orders.exit_code == 7
    command: cli sh -c 'echo never >> made'
""",
    )
    assert row.status == "completed", row.error
    assert harness.made("made") == ["A2", "A3"]
    statuses = await harness.statuses(row.id)
    assert (statuses["big[0]"], statuses["never"]) == ("skipped", "skipped")
    assert "never[0]" not in statuses


async def test_each_item_asks_and_the_question_says_which(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        ORDERS
        + """
  - id: send
    for_each: $orders.json
    key: ${item.id}
    concurrency: 3
    approval: required
    on_denied: continue
    command: cli sh -c 'echo $0 >> made' ${item.id}
""",
    )
    assert row.status == "awaiting_approval"
    waits = {wait.prompt: wait for wait in await harness.store.waits(run=row.id)}
    assert [prompt.partition(".")[0] for prompt in sorted(waits)] == [
        f"Step send[A{n}] asks for approval" for n in (1, 2, 3)
    ]
    assert json.loads(waits[sorted(waits)[1]].details["preview"]["item"]) == {"id": "A2", "n": 2}
    for prompt, decision in zip(sorted(waits), DECISIONS, strict=True):
        await harness.service.decide(waits[prompt].id, decision)
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert sorted(harness.made("made")) == ["A1", "A3"]
    await same_on_replay(harness, row.id)


async def test_a_denied_item_ends_the_run_unless_the_step_says_otherwise(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        ORDERS
        + """
  - id: send
    for_each: $orders.json
    approval: required
    on_error: continue
    command: cli sh -c 'echo $0 >> made' ${item.id}
""",
    )
    await harness.service.decide((await harness.wait(row.id)).id, "deny")
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    for _ in range(2):
        await harness.service.decide((await harness.wait(row.id)).id, "approve")
        row = await harness.service.drive(row.id)
    assert row.status == "cancelled"
    assert harness.made("made") == ["A2", "A3"]


@pytest.mark.parametrize(
    ("value", "kind"), [('{"a": 1}', "a table"), ('"abc"', "text"), ("null", "null"), ("3", "a number")]
)
async def test_a_loop_over_something_else_fails_with_the_line(harness: PipelineHarness, value: str, kind: str) -> None:
    (harness.workspace / "value").write_text(value)
    row = await play(
        harness,
        """
steps:
  - id: orders
    command: cli cat value
  - id: send
    for_each: $orders.json
    command: cli echo ${item}
""",
    )
    assert row.error is not None
    assert row.error.code == "not_a_list"
    assert row.error.message == f"Step send failed: line 6: for_each needs a list, but this is {kind}."


async def test_two_items_with_the_same_key_are_refused(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: send
    for_each: [x, y]
    key: same
    command: cli echo ${item}
""",
    )
    assert row.error is not None
    assert row.error.code == "bad_key"
    assert "line 5: the items 0 and 1 have the same key 'same'" in row.error.message


async def test_an_empty_list_is_done_at_once(harness: PipelineHarness) -> None:
    row = await play(
        harness,
        """
steps:
  - id: none
    command: cli printf []
    output: json
  - id: send
    for_each: $none.json
    command: cli echo ${item}
  - id: after
    command: cli cat
    stdin: $send.results
""",
    )
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["after"] == "[]"


async def test_a_long_loop_makes_checkpoints_and_resumes_from_them(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "PART", 4)
    numbers = ", ".join(str(n) for n in range(10))
    row = await play(
        harness,
        f"""
steps:
  - id: send
    for_each: [{numbers}]
    concurrency: 3
    approval: required
    command: cli sh -c 'echo $0 >> made; echo $0' ${{item}}
  - id: after
    command: cli cat
    stdin: $send.results
""",
    )
    while row.status == "awaiting_approval":
        waits = await harness.store.waits(run=row.id)
        assert len(waits) <= 3
        await harness.service.decide(waits[0].id, "approve")
        row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert sorted(map(int, harness.made("made"))) == list(range(10))
    assert json.loads((await harness.outputs(row.id))["after"]) == list(range(10))
    assert len(await harness.events(row.id, Checkpointed)) >= 2
    await same_on_replay(harness, row.id)
