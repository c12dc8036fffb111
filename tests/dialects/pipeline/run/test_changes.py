"""Requests for changes: an approver sends the run back with feedback, and everything after it is done and asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.dialects.pipeline.parse import parse, read
from cuebook.dialects.pipeline.run.results import Result
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.context import Text
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Noted, Performing
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import WaitRow
from cuebook.service.service import Principal
from tests.dialects.pipeline.harness import PipelineHarness

NOTES = """\
name: Notes
steps:
  - id: base
    command: cli echo base
  - id: draft
    command: cli echo "${base.stdout} draft ${changes.count} ${changes.feedback}"
  - id: check
    command: cli tee -a checked
    stdin: $draft.stdout
  - id: publish
    command: cli tee published
    stdin: $draft.stdout
    approval:
      text: Publish these notes?
      show: {The notes: $draft}
      by: [bob, cleo]
      changes: {to: draft, at_most: 2}
"""
BOB, CLEO = Principal("bob"), Principal("cleo")


async def started(harness: PipelineHarness, text: str = NOTES) -> str:
    harness.pipeline = parse(text, "notes.yml")
    row = await harness.do()
    assert row.status == "awaiting_approval", row.error
    return row.id


async def decided(harness: PipelineHarness, run: str, decision: Any, who: Principal = BOB, **more: Any) -> WaitRow:
    wait = await harness.wait(run)
    await harness.service.decide(wait.id, decision, who, **more)
    await harness.service.drive(run)
    return wait


async def test_changes_are_requested_twice_then_it_is_approved(harness: PipelineHarness) -> None:
    run = await started(harness)
    first = await decided(harness, run, "changes", reason="Shorter")
    assert first.prompt.startswith("Publish these notes?")
    assert first.details["preview"]["The notes"] == "base draft 0 \n"
    second = await decided(harness, run, "changes", CLEO, reason="Kinder", to="draft")
    assert second.id != first.id
    assert second.details["preview"]["The notes"] == "base draft 1 Shorter\n"
    assert not (harness.workspace / "published").exists()
    wait = await harness.wait(run)
    assert wait.options == ("approve", "deny")
    with pytest.raises(BadInput, match="not a valid decision"):
        await harness.service.decide(wait.id, "changes", BOB, reason="Again")
    await decided(harness, run, "approve")
    row = await harness.service.get(run)
    assert row.status == "completed", row.error
    assert (harness.workspace / "published").read_text() == "base draft 2 Kinder\n"
    assert (harness.workspace / "checked").read_text() == "base draft 0 \nbase draft 1 Shorter\nbase draft 2 Kinder\n"
    assert row.count.words() == "4 of 4"
    noted = [e.event.data async for e in harness.service.entries(run) if isinstance(e.event, Noted)]
    asked = [(one["by"], one["feedback"], one["step"], one["count"]) for one in noted if "feedback" in one]
    assert asked == [("bob", "Shorter", "draft", 1), ("cleo", "Kinder", "draft", 2)]
    visits = [(step.name, step.status) for step in await harness.service.steps(run) if step.label == "publish"]
    assert visits == [("publish", "failed"), ("publish#2", "failed"), ("publish#3", "completed")]
    assert (await harness.service.verify(run)).broken_at is None


async def test_everything_after_the_step_is_asked_again(harness: PipelineHarness) -> None:
    run = await started(
        harness,
        NOTES.replace(
            "    stdin: $draft.stdout\n  - id: publish",
            "    stdin: $draft.stdout\n    approval: required\n  - id: publish",
        ),
    )
    await decided(harness, run, "approve")
    await decided(harness, run, "changes", reason="Shorter")
    wait = await harness.wait(run)
    assert wait.place.step == "check"
    assert wait.place.visit == 2
    ran = [e.place.step async for e in harness.service.entries(run) if isinstance(e.event, Performing)]
    assert ran == ["base", "draft", "check", "draft"]


async def test_a_request_needs_feedback_a_listed_step_and_a_listed_person(harness: PipelineHarness) -> None:
    run = await started(harness)
    wait = await harness.wait(run)
    for reason, to, says in ((" ", "", "needs feedback"), ("x", "base", "cannot be sent back to step 'base'")):
        with pytest.raises(BadInput, match=says):
            await harness.service.decide(wait.id, "changes", BOB, reason=reason, to=to)
    with pytest.raises(NotAllowed):
        await harness.service.decide(wait.id, "changes", Principal("dan"), reason="x")
    assert (await harness.service.wait_row(wait.id)).state == "open"


async def test_a_run_that_was_sent_back_can_be_denied_and_retried(harness: PipelineHarness) -> None:
    run = await started(harness)
    await decided(harness, run, "changes", reason="Shorter")
    await decided(harness, run, "deny", reason="No")
    assert (await harness.service.get(run)).status == "cancelled"
    await harness.service.retry(run)
    assert (await harness.service.drive(run)).status == "awaiting_approval"
    assert (await harness.wait(run)).details["preview"]["The notes"] == "base draft 1 Shorter\n"


def test_a_checkpoint_keeps_the_requests_and_what_is_needed_again() -> None:
    pipeline = parse(NOTES, "notes.yml")
    progress = Progress.whole(pipeline, {})
    for step in pipeline.steps[:3]:
        progress.keep(step, Result(Text(step.id)))
    assert set(progress.scope.results) == {"base", "draft", "check"}
    asked = {"feedback": "Shorter", "by": "bob", "to": "draft"}
    progress.go_back(pipeline.steps[3], Failed("changes_requested", "", details={"changes": asked}))
    assert (progress.number, progress.last, set(progress.scope.results)) == (1, "base", {"base"})
    made = progress.checkpoint()
    again = Progress.whole(pipeline, {})
    again.restore((msgspec.json.decode(msgspec.json.encode(made.state)), made.texts))
    assert again.scope.changes == {"feedback": "Shorter", "by": "bob", "step": "draft", "count": 1}
    assert (again.requests.at(pipeline.steps[3]), again.requests.visit(pipeline.steps[1])) == (1, 2)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{txt: Hi}", "Unknown key 'txt'"),
        ("{votes: 3, by: [a, b]}", "3 votes are needed, and 2 people are listed"),
        ("{by: [a, a]}", "twice"),
        ("{votes: 0}", "at least 1"),
        ("{changes: publish}", "is not before this one"),
        ("{changes: nowhere}", "there is no step 'nowhere'"),
        ("{changes: {too: draft}}", "Unknown key 'too'"),
        ("{changes: {to: draft, at_most: 100}}", "above 20"),
        ("{show: [$later]}", "unknown step"),
        ("{}", "is empty"),
        ("maybe", "can only be 'required' or a table"),
    ],
)
def test_a_wrong_approval_is_found_with_its_line(written: str, says: str) -> None:
    text = f"name: A\nsteps:\n  - {{id: draft, command: cli true}}\n  - id: publish\n    command: cli true\n    approval: {written}\n"
    found = read(text, "a.yml").errors
    assert found, written
    assert says in found[0].message
    assert {one.line for one in found} == {6}


def test_a_reference_to_changes_is_checked() -> None:
    (found,) = read("name: A\nsteps:\n  - {id: a, command: 'cli echo ${changes.feedbak}'}\n", "a.yml").errors
    assert (found.code, found.line) == ("UNKNOWN_REFERENCE", 3)
    assert "feedback" in found.fix


async def test_a_model_gets_the_feedback_without_a_reference(harness: PipelineHarness, tmp_path: Path) -> None:
    pipeline = parse(
        "name: A\nsteps:\n  - {id: a, command: llm, output: json, llm: {model: default, prompt: Write it.}}\n", "a.yml"
    )
    from cuebook.dialects.pipeline.model import Llm
    from cuebook.dialects.pipeline.run.llm import prompt_of

    (step,) = pipeline.steps
    assert isinstance(step.action, Llm)
    scope = Progress.whole(pipeline, {}).scope
    assert "Requested changes" not in prompt_of(step, step.action, scope)
    scope.changes = {"feedback": "Shorter", "by": "bob", "step": "a", "count": 1}
    assert "## Requested changes\n\nShorter" in prompt_of(step, step.action, scope)
