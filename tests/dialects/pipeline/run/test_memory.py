"""What runs of a pipeline leave to later ones: the outputs of the last that completed, and values that steps keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.dialects.pipeline.check import check
from cuebook.dialects.pipeline.parse import parse
from cuebook.gate.roles import Principal
from cuebook.kernel.engine.memory import LARGEST
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.copies.transfer import copy_decisions
from cuebook.stores.memory import MemoryStore
from tests.dialects.pipeline.harness import PipelineHarness
from tests.gate.harness import LOCAL

CHANGES = """\
name: Watch
args: {now: {}}
steps:
  - {id: fetch, command: 'cli echo ${now}'}
  - id: tell
    command: cli echo "was ${default(previous.fetch.stdout, 'nothing')}"
    condition: $fetch.stdout != $previous.fetch.stdout
"""

COUNT = """\
name: Count
steps:
  - id: add
    command: cli expr ${default(state.count, 0)} + 1
    output: json
    state: {count: $add.json, seen: [$add.json, x]}
  - {id: fail, command: cli false, condition: $add.json == 2}
"""


@pytest.fixture
async def harness(tmp_path: Path, store: Store) -> AsyncIterator[PipelineHarness]:
    made = PipelineHarness(tmp_path, store=store)
    yield made
    await made.close()


async def run(
    harness: PipelineHarness, text: str, name: str = "watch.yml", who: Principal = LOCAL, **given: object
) -> RunRow:
    harness.pipeline = parse(text, name)
    settings = Settings(model="test/scripted")
    row = await harness.service.start_program("pipeline", name, dict(given), settings, who)
    return await harness.service.drive(row.id)


async def told(harness: PipelineHarness, now: str, name: str = "watch.yml") -> str:
    row = await run(harness, CHANGES, name, now=now)
    assert row.status == "completed", row.error
    return (await harness.outputs(row.id)).get("tell", "").strip()


async def test_a_step_sees_the_output_of_the_previous_successful_run(harness: PipelineHarness) -> None:
    assert await told(harness, "1") == "was nothing"
    assert await told(harness, "1") == ""
    assert await told(harness, "2") == "was 1"
    assert await told(harness, "3") == "was 2"
    broken = CHANGES + "  - {id: end, command: cli false}\n"
    assert (await run(harness, broken, now="4")).status == "failed"
    assert await told(harness, "4") == "was 3"  # a run that failed does not count


async def test_other_playbooks_and_other_tenants_have_other_runs_and_values(harness: PipelineHarness) -> None:
    await told(harness, "1")
    assert await told(harness, "1", name="other.yml") == "was nothing"
    stranger = Principal("bob", "elsewhere")
    row = await run(harness, CHANGES, who=stranger, now="1")
    assert (await harness.outputs(row.id))["tell"].strip() == "was nothing"
    for who, count in ((LOCAL, "1"), (stranger, "1")):
        row = await run(harness, COUNT, "count.yml", who)
        assert (await harness.outputs(row.id))["add"].strip() == count


async def test_a_value_is_kept_when_its_step_completes_whatever_becomes_of_the_run(harness: PipelineHarness) -> None:
    counts = []
    for status in ("completed", "failed", "completed"):
        row = await run(harness, COUNT, "count.yml")
        assert row.status == status, row.error
        counts.append((await harness.outputs(row.id))["add"].strip())
    assert counts == ["1", "2", "3"]
    (body,) = [one for one in (await harness.store.kept("local", "state")).values() if one["name"] == "seen"]
    assert (body["value"], body["playbook"]) == ([3, "x"], "count.yml")


async def test_a_run_sees_one_state_from_its_start_and_its_own_changes(harness: PipelineHarness) -> None:
    text = """\
name: S
steps:
  - {id: a, command: cli echo 1, state: {x: $a.stdout}}
  - {id: gate, command: cli true, approval: required}
  - {id: b, command: 'cli echo ${state.x} ${default(state.y, 0)}', state: {x: null}}
  - {id: c, command: 'cli echo ${default(state.x, "gone")}'}
"""
    row = await run(harness, text, "s.yml")
    await run(harness, "name: S\nsteps:\n  - {id: a, command: cli true, state: {x: 8, y: 9}}\n", "s.yml")
    harness.pipeline = parse(text, "s.yml")
    await harness.decide(row.id, "approve")
    found = await harness.outputs(row.id)
    assert (found["b"], found["c"]) == ("1 0\n", "gone\n")
    kept = {one["name"]: one["value"] for one in (await harness.store.kept("local", "state")).values()}
    assert kept == {"y": 9}  # null removes a value


async def test_a_value_that_is_too_large_fails_the_step(harness: PipelineHarness) -> None:
    text = f"name: S\nsteps:\n  - {{id: a, command: cli seq 1 {LARGEST // 4}, output: {{type: text, max_bytes: 400000}}, state: {{x: $a.stdout}}}}\n"
    row = await run(harness, text, "s.yml")
    assert row.error is not None
    assert row.error.code == "state_too_large"
    assert not await harness.store.kept("local", "state")


async def test_values_are_copied_to_another_store(harness: PipelineHarness) -> None:
    await run(harness, COUNT, "count.yml")
    other = MemoryStore()
    assert await copy_decisions(harness.store, other) == 2
    assert await other.kept("local", "state") == await harness.store.kept("local", "state")
    await other.close()


async def test_a_replay_of_a_run_uses_what_it_recalled(harness: PipelineHarness) -> None:
    await told(harness, "1")
    row = await run(harness, CHANGES, now="2")
    await told(harness, "3")
    harness.pipeline = parse(CHANGES, "watch.yml")
    verdict = await harness.service.verify(row.id)
    assert verdict.broken_at is None
    kinds = [
        type(entry.event.outcome).__name__ for entry in await harness.entries(row.id) if hasattr(entry.event, "outcome")
    ]
    assert kinds[0] == "Source"


def test_mistakes_are_found_at_load() -> None:
    text = """\
name: N
steps:
  - id: a
    command: cli echo ${previous.a} ${previous.a.stderr}
    state: {1x: 2, y: $b.stdout, z: $a.stdot}
  - {id: b, command: http https://example.com, state: {t: "secret:env:X"}}
"""
    found = [(one.code, one.line) for one in check(text, "p.yml") if one.severity == "error"]
    assert sorted(found, key=lambda one: one[::-1]) == [
        ("UNKNOWN_REFERENCE", 4),
        ("UNKNOWN_REFERENCE", 4),
        ("FORWARD_REFERENCE", 5),
        ("SCHEMA", 5),
        ("UNKNOWN_REFERENCE", 5),
        ("SECRET_MISPLACED", 6),
    ]


def test_a_misspelt_step_or_value_of_an_earlier_run_is_a_warning() -> None:
    text = """\
name: N
steps:
  - id: count
    command: cli echo ${previous.cuont.stdout} ${state.totel}
    state: {total: 1}
  - {id: same, command: "cli echo ${previous.count.stdout} ${previous.same.stdout} ${state.total}"}
"""
    found = [(one.line, one.message) for one in check(text, "p.yml") if one.severity == "warning"]
    assert [line for line, _ in found] == [4, 4]
    assert "there is no step 'cuont'" in found[0][1]
    assert "no step keeps a value 'totel'" in found[1][1]


def test_a_path_into_an_answer_is_checked_against_the_schema_of_the_question() -> None:
    text = """\
name: N
steps:
  - id: window
    input: {text: How long?, schema: {type: object, properties: {minutes: {type: integer}}}}
  - {id: log, command: "cli echo ${window.json.minutess} ${window.json.minutes}"}
  - {id: deep, command: "cli echo ${window.json.minutes.start}"}
"""
    found = [(one.severity, one.code, one.line) for one in check(text, "p.yml") if one.severity != "note"]
    assert found == [("warning", "NOT_IN_SCHEMA", 5), ("error", "UNKNOWN_REFERENCE", 6)]
