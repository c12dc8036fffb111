"""Edit and continue: a run continues with a changed text, in a fork that supersedes it, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import Busy, Conflict, CuebookError, Refused, WaitClosed
from cuebook.kernel.run import RunRow, Settings
from cuebook.testing import ScriptedModel
from tests.support.runtime import RuntimeHarness

PIPELINE = """
name: Log
steps:
  - id: one
    command: cli sh -c 'echo one >> log'
  - id: two
    command: cli sh -c 'echo two >> log'
  - id: three
    command: cli sh -c 'echo three >> log'
    approval: required
  - id: four
    command: cli sh -c 'echo four >> log'
"""
MARKDOWN = """# Letter

## STEP 1: Draft
Draft a letter.

## STEP 2: Ask
@elicit(confirm, "Send it?")

## STEP 3: Send
Say that it was sent.
"""
GRAPH = """
id: letter
name: Letter
entry: draft
nodes:
  draft: {name: Draft, instruction: Draft a letter.}
  check: {name: Check, instruction: Check it.}
  send: {name: Send, instruction: Send it.}
edges:
  - {from: draft, to: check}
  - {from: check, to: send}
"""
PROGRAM = """# Desk
Works.

## Main() -> Any
### Triggers
- T1:BGN At the beginning
### Steps
- 01:EXE $n:int = 1
- 02:QUE $m:int = Count()
- 03:YLD for call
- 04:QUE $k:int = Last()
- 05:YLD for call
- 06:RET $m + $k

## Count() -> int
### Steps
- 01:EXE $i:int = 10
- 02:EXE $i = $i + 1
- 03:RET $i

## Last() -> int
### Steps
- 01:RET 100
"""


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch)
    yield made
    await made.close()


def opened(runtime: RuntimeHarness, *says: Any) -> RuntimeHarness:
    if says:
        runtime.models = {"test": ScriptedModel(list(says))}
    return runtime.open()


async def begun(runtime: RuntimeHarness, text: str, name: str, **more: Any) -> RunRow:
    settings = Settings(workspace=runtime.wiring.factory.workspace.path, model="test/one", **more)
    row = await runtime.service.start(Playbook.from_text(text, name), {}, settings)
    return await runtime.service.drive(row.id)


async def verdicts(runtime: RuntimeHarness, run: str, text: str, name: str) -> dict[str, str]:
    plan = await runtime.service.edit_plan(run, Playbook.from_text(text, name))
    return {one.step: one.verdict for one in plan.verdicts}


async def continued(runtime: RuntimeHarness, run: str, text: str, name: str) -> RunRow:
    row = await runtime.service.continue_with(run, Playbook.from_text(text, name))
    return await runtime.service.drive(row.id)


async def approved(runtime: RuntimeHarness, row: RunRow) -> RunRow:
    while row.status in ("awaiting_approval", "awaiting_input"):
        for wait in await runtime.service.waits(row.id):
            await (
                runtime.service.answer(wait.id, "yes")
                if wait.kind == "question"
                else runtime.service.decide(wait.id, "approve")
            )
        row = await runtime.service.drive(row.id)
    return row


async def sound(runtime: RuntimeHarness, *runs: str) -> None:
    for run in runs:
        assert (await runtime.service.verify(run)).problem == ""
        assert (await runtime.service.replay(run)) is not None


def log(runtime: RuntimeHarness) -> list[str]:
    return (runtime.work / "log").read_text().split()


async def test_a_waiting_pipeline_continues_with_a_corrected_step(runtime: RuntimeHarness) -> None:
    opened(runtime)
    old = await begun(runtime, PIPELINE, "log.yml")
    (wait,) = await runtime.service.inbox()
    text = PIPELINE.replace("echo four", "echo vier")
    assert await verdicts(runtime, old.id, text, "log.yml") == {
        "one": "kept",
        "two": "kept",
        "three": "redone",
        "four": "changed",
    }
    row = await continued(runtime, old.id, text, "log.yml")
    assert row.parent == old.id
    with pytest.raises(WaitClosed):
        await runtime.service.decide(wait.id, "approve")
    with pytest.raises(Refused, match=f"is continued by run {row.id}"):
        await runtime.service.continue_with(old.id, Playbook.from_text(text.replace("vier", "quatre"), "log.yml"))
    before = await runtime.service.row(old.id)
    assert (before.status, before.reason) == ("cancelled", "superseded_run")
    assert await runtime.service.superseded_by(before) == row.id
    row = await approved(runtime, row)
    assert row.status == "completed", row.error
    assert log(runtime) == ["one", "two", "three", "vier"]
    assert [step.label for step in await runtime.service.steps(row.id)] == ["one", "two", "three", "four"]
    await sound(runtime, old.id, row.id)


async def test_a_failed_run_continues_with_the_step_that_was_wrong(runtime: RuntimeHarness) -> None:
    opened(runtime)
    text = PIPELINE.replace("echo two >> log", "exit 1").replace("    approval: required\n", "")
    old = await begun(runtime, text, "log.yml")
    assert old.status == "failed"
    plan = await runtime.service.edit_plan(old.id, Playbook.from_text(PIPELINE, "log.yml"))
    assert {one.step: (one.verdict, one.because) for one in plan.verdicts}["two"] == (
        "changed",
        "its text differs; what it did is done again",
    )
    row = await approved(runtime, await continued(runtime, old.id, PIPELINE, "log.yml"))
    assert row.status == "completed", row.error
    assert log(runtime) == ["one", "two", "three", "four"]
    await sound(runtime, old.id, row.id)


@pytest.mark.parametrize(
    ("change", "expected", "lines"),
    [
        (
            "reorder",
            {"two": "redone", "one": "redone", "three": "redone", "four": "pending"},
            ["one", "two", "two", "one", "three", "four"],
        ),
        (
            "delete",
            {"one": "kept", "two": "removed", "three": "redone", "four": "pending"},
            ["one", "two", "three", "four"],
        ),
        (
            "rename",
            {"one": "kept", "zwei": "new", "two": "removed", "three": "redone", "four": "pending"},
            ["one", "two", "two", "three", "four"],
        ),
    ],
)
async def test_reordered_deleted_and_renamed_steps(
    runtime: RuntimeHarness, change: str, expected: dict[str, str], lines: list[str]
) -> None:
    opened(runtime)
    old = await begun(runtime, PIPELINE, "log.yml")
    head, one, two, rest = PIPELINE.partition("  - id: one")[0], *_parts()
    text = {
        "reorder": head + two + one + rest,
        "delete": head + one + rest,
        "rename": PIPELINE.replace("- id: two", "- id: zwei"),
    }[change]
    assert await verdicts(runtime, old.id, text, "log.yml") == expected
    row = await approved(runtime, await continued(runtime, old.id, text, "log.yml"))
    assert row.status == "completed", row.error
    assert log(runtime) == lines
    assert {step.label for step in await runtime.service.steps(row.id)} == {
        k for k, v in expected.items() if v != "removed"
    }
    await sound(runtime, old.id, row.id)


def _parts() -> tuple[str, str, str]:
    one = PIPELINE[PIPELINE.index("  - id: one") : PIPELINE.index("  - id: two")]
    two = PIPELINE[PIPELINE.index("  - id: two") : PIPELINE.index("  - id: three")]
    return one, two, PIPELINE[PIPELINE.index("  - id: three") :]


async def test_of_edits_at_the_same_time_one_continues_a_failed_run(runtime: RuntimeHarness) -> None:
    opened(runtime)
    text = "name: A\nsteps:\n  - {id: one, command: cli false, effect: read}\n"
    first = await begun(runtime, text, "a.yml")
    books = [Playbook.from_text(text.replace("false", f"echo {n}"), "a.yml") for n in range(4)]
    tried = await asyncio.gather(
        *(runtime.service.continue_with(first.id, book) for book in books), return_exceptions=True
    )
    (won,) = [one for one in tried if isinstance(one, RunRow)]
    assert all(isinstance(one, Refused) and won.id in str(one) for one in tried if one is not won)
    assert [row.parent for row in await runtime.service.runs()] == [first.id, ""]


async def test_refused_texts_change_nothing(runtime: RuntimeHarness) -> None:
    opened(runtime)
    old = await begun(runtime, PIPELINE, "log.yml")
    service = runtime.service

    async def refused(text: str, name: str = "log.yml", error: type[CuebookError] = Refused, **more: Any) -> None:
        with pytest.raises(error):
            await service.continue_with(old.id, Playbook.from_text(text, name), **more)

    await refused(PIPELINE)
    await refused(MARKDOWN, "letter.md")
    await refused(PIPELINE.replace("cli sh", "csh sh"), error=InvalidPlaybook)
    await refused(PIPELINE.replace("four >>", "4 >>"), error=Conflict, plan="another")
    await refused(
        PIPELINE.replace("steps:", "args: {must: {type: string, required: true}}\nsteps:"), error=CuebookError
    )
    await refused(PIPELINE + "  - id: kid\n    playbook: nowhere.yml\n", error=InvalidPlaybook)
    assert [one.id for one in await service.runs()] == [old.id]
    assert (await service.row(old.id)).status == "awaiting_approval"
    (wait,) = await service.inbox()
    await service.decide(wait.id, "approve")
    done = await service.drive(old.id)
    assert done.status == "completed"
    with pytest.raises(Refused, match="completed"):
        await service.edit_plan(old.id, Playbook.from_text(PIPELINE.replace("four >>", "4 >>"), "log.yml"))


async def test_a_run_that_is_being_driven_is_not_edited(runtime: RuntimeHarness) -> None:
    opened(runtime)
    old = await begun(runtime, PIPELINE, "log.yml")
    store, engine = runtime.service._store, runtime.service._engine
    await engine._beat()
    await store.claim(old.id, engine.driver, engine.clock())
    with pytest.raises(Busy):
        await runtime.service.continue_with(old.id, Playbook.from_text(PIPELINE.replace("four >>", "4 >>"), "log.yml"))


async def test_a_paused_run_continues_after_its_breakpoint(runtime: RuntimeHarness) -> None:
    opened(runtime)
    old = await begun(runtime, PIPELINE, "log.yml", breakpoints=("two",))
    assert old.status == "paused"
    text = PIPELINE.replace("echo three", "echo drei")
    assert await verdicts(runtime, old.id, text, "log.yml") == {
        "one": "kept",
        "two": "kept",
        "three": "changed",
        "four": "pending",
    }
    row = await approved(runtime, await continued(runtime, old.id, text, "log.yml"))
    assert row.status == "completed", row.error
    assert log(runtime) == ["one", "two", "drei", "four"]
    await sound(runtime, old.id, row.id)


async def test_markdown_keeps_the_steps_before_the_first_difference(runtime: RuntimeHarness) -> None:
    opened(runtime, "a draft", "it was sent")
    old = await begun(runtime, MARKDOWN, "letter.md")
    assert old.status == "awaiting_input"
    text = MARKDOWN.replace("Send it?", "Really send it?").replace("## STEP 3: Send", "## STEP 3: Report")
    assert await verdicts(runtime, old.id, text, "letter.md") == {"1": "kept", "2": "changed", "3": "changed"}
    row = await continued(runtime, old.id, text, "letter.md")
    (wait,) = await runtime.service.waits(row.id)
    assert wait.prompt == "Really send it?"
    row = await approved(runtime, row)
    assert row.status == "completed", row.error
    assert str((await runtime.service.view(row.id)).outputs["1"]) == "a draft"
    await sound(runtime, old.id, row.id)


async def test_a_graph_continues_at_the_node_that_changed(runtime: RuntimeHarness) -> None:
    opened(runtime, "a draft", "it is fine", "it is fine now", "sent")
    old = await begun(runtime, GRAPH, "letter.yml", breakpoints=("check",))
    assert old.status == "paused"
    text = GRAPH.replace("Check it.", "Check it twice.")
    assert await verdicts(runtime, old.id, text, "letter.yml") == {
        "draft": "kept",
        "check": "changed",
        "send": "pending",
    }
    row = await continued(runtime, old.id, text, "letter.yml")
    row = await runtime.service.drive((await runtime.service.resume(row.id)).id) if row.status == "paused" else row
    assert row.status == "completed", row.error
    await sound(runtime, old.id, row.id)


@pytest.mark.parametrize(
    ("change", "point", "shown", "result"),
    [
        (("$i + 1", "$i + 5"), "Count:01", {"Main:01": "kept", "Count:01": "changed", "Last:01": "pending"}, 115),
        (("RET 100", "RET 200"), "Count:01", {"Main:01": "kept", "Count:01": "redone", "Last:01": "changed"}, 211),
        (("$m + $k", "$m * $k"), "Main:01", {"Main:01": "changed", "Count:01": "redone", "Last:01": "pending"}, 1100),
    ],
)
async def test_a_program_continues_at_the_entry_of_a_frame(
    runtime: RuntimeHarness, change: tuple[str, str], point: str, shown: dict[str, str], result: int
) -> None:
    opened(runtime, "unused")
    old = await begun(runtime, PROGRAM, "desk.pbasm", breakpoints=("Count:02",))
    assert old.status == "paused", old.error
    text = PROGRAM.replace(*change)
    plan = await runtime.service.edit_plan(old.id, Playbook.from_text(text, "desk.pbasm"))
    found = {one.step: one.verdict for one in plan.verdicts}
    assert plan.point.label == point
    assert {label: found[label] for label in shown} == shown
    row = await continued(runtime, old.id, text, "desk.pbasm")
    assert row.status == "paused", "the breakpoint is still there, and its line was done again"
    row = await runtime.service.drive((await runtime.service.resume(row.id)).id)
    assert row.status == "completed", row.error
    assert (await runtime.service.view(row.id)).result["value"] == result
    await sound(runtime, old.id, row.id)
