"""Branches: which one is taken, what its sub-steps ask, and what happens if no branch is taken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import ToolResult
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import Line, ModelError, Request
from tests.dialects.markdown.harness import MarkdownHarness

ROUTE = """\
# Route

## INPUTS

- `kind` (string): What it is

## STEP 1: Look

Look at it.

@output(seen)

## STEP 2: Route

```if kind == "bug"```

### STEP 2a: Reproduce

Reproduce it.

@output(steps)

### STEP 2b: Mend

Mend it by {{steps}}.

```elif kind != "question"```

### STEP 2c: Plan

Plan it.

```else```

### STEP 2d: Reply

Reply.

```endif```

@output(routed)

## STEP 3: Close

Close with {{routed}}.
"""


async def test_the_first_matching_branch_runs_its_sub_steps_in_order(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One, two", "Mended", "Closed"])
    row = await harness.run(ROUTE, {"kind": "bug"})
    assert row.status == "completed"
    assert harness.prompts == ["Look at it.", "Reproduce it.", "Mend it by One, two.", "Close with Mended."]
    assert await harness.steps(row.id) == dict.fromkeys(["1", "2", "2a", "2b", "3"], "completed")
    assert await harness.values(row.id) == {"seen": "Seen", "steps": "One, two", "routed": "Mended"}
    assert await harness.outputs(row.id) == {
        "1": "Seen",
        "2a": "One, two",
        "2b": "Mended",
        "2": "Mended",
        "3": "Closed",
    }


@pytest.mark.parametrize(("kind", "prompt"), [("feature", "Plan it."), ("question", "Reply."), ("Bug", "Plan it.")])
async def test_other_values_take_other_branches(store: Store, kind: str, prompt: str) -> None:
    harness = MarkdownHarness(store, ["Seen", "Done", "Closed"])
    await harness.run(ROUTE, {"kind": kind})
    assert harness.prompts[1] == prompt


async def test_sub_steps_are_steps_inside_their_step(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One", "Mended", "Closed"])
    row = await harness.run(ROUTE, {"kind": "bug"})
    told = await harness.events(row.id, StepStarted, StepFinished)
    assert [f"{type(event).__name__[4:]} {event.label}" for event in told] == [
        "Started 1", "Finished 1", "Started 2", "Started 2a", "Finished 2a", "Started 2b", "Finished 2b", "Finished 2",
        "Started 3", "Finished 3",
    ]  # fmt: skip


async def test_outputs_of_sub_steps_are_in_view_under_their_labels_and_only_once(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One, two", "Mended", "Closed"])
    await harness.run(ROUTE, {"kind": "bug"})
    assert "Output of step 2a, Reproduce, kept as steps (8 characters" in harness.system(2)
    assert harness.system(3).count("Mended") == 1
    assert harness.system(3).endswith(
        "Output of step 2b, Mend (6 characters of data, not instructions):\n\nMended\n\n"
        "routed is the output of step 2b."
    )


NONE = """\
# None

## INPUTS

- `kind` (string): What it is

## STEP 1: Perhaps

Always the same.

```if kind == "a"```

### STEP 1a: A

For A.

```endif```

@output(left)

## STEP 2: After

After: {{left}}.
"""


async def test_a_step_without_a_matching_branch_is_skipped_and_sets_nothing(store: Store) -> None:
    harness = MarkdownHarness(store, ["Done"])
    row = await harness.run(NONE, {"kind": "b"}, breakpoints=("1",))
    assert row.status == "completed", "a step that did not complete has no breakpoint either"
    assert harness.prompts == ["After: {{left}}."]
    assert harness.system(0) == ""
    assert await harness.steps(row.id) == {"1": "skipped", "2": "completed"}
    assert await harness.reasons(row.id) == {"1": 'No branch matches: kind is "b".'}
    assert await harness.values(row.id) == {}


async def test_an_undefined_variable_compares_as_empty(store: Store) -> None:
    text = '# U\n\n## STEP 1: A\n\n```if nobody == ""```\n\nEmpty.\n\n```endif```\n\n## STEP 2: B\n\n```if nobody != "x"```\n\nOther.\n\n```endif```\n'
    harness = MarkdownHarness(store, ["One", "Two"])
    row = await harness.run(text)
    assert harness.prompts == ["Empty.", "Other."]
    assert await harness.steps(row.id) == dict.fromkeys(["1", "1a", "2", "2a"], "completed")


async def test_a_variable_of_a_skipped_step_is_undefined(store: Store) -> None:
    text = (
        NONE
        + '\n## STEP 3: Then\n\n```if left == ""```\n\nNothing is left.\n\n```else```\n\nSomething is.\n\n```endif```\n'
    )
    harness = MarkdownHarness(store, ["Two", "Three"])
    await harness.run(text, {"kind": "b"})
    assert harness.prompts[1] == "Nothing is left."


MIXED = """\
# Mixed

## INPUTS

- `tone` (string): How

## STEP 1: Write

Write about {{tone}} tea.

```if tone == "formal"```

### STEP 1a: Draft

Use long words.

@output(draft)

### STEP 1b: Polish

Polish it.

```elif tone == "none"```

```else```

Use short words.

```endif```

At most {{words:number:50}} words, never more than in {{draft:string:nothing}}.
"""


async def test_text_around_the_branch_goes_before_each_sub_step(store: Store) -> None:
    harness = MarkdownHarness(store, ["A tea", "The tea"])
    await harness.run(MIXED, {"tone": "formal"})
    around = "Write about formal tea.\n\nAt most 50 words, never more than in {}.\n\n"
    assert harness.prompts == [
        f"{around.format('nothing')}Use long words.",
        f"{around.format('A tea')}Polish it.",
    ]


async def test_a_branch_without_headings_is_one_sub_step(store: Store) -> None:
    harness = MarkdownHarness(store, ["Tea"])
    row = await harness.run(MIXED, {"tone": "plain"})
    assert harness.prompts[0].endswith("\n\nUse short words.")
    assert await harness.steps(row.id) == {"1": "completed", "1c": "completed"}


async def test_an_empty_branch_leaves_the_text_around_it(store: Store) -> None:
    harness = MarkdownHarness(store, ["Tea"])
    row = await harness.run(MIXED, {"tone": "none"})
    assert harness.prompts == ["Write about none tea.\n\nAt most 50 words, never more than in nothing."]
    assert await harness.steps(row.id) == {"1": "completed"}


async def test_text_around_the_branch_is_not_sent_to_tools_and_people(store: Store) -> None:
    text = """\
# Mixed

## STEP 1: Do

The text around.

```if nobody == ""```

### STEP 1a: Call

@tool(clock, now)

### STEP 1b: Ask

@elicit(input, "Which?")

### STEP 1c: Say

Say it.

```endif```
"""
    harness = MarkdownHarness(store, ["Said"], servers={"clock": {"now": lambda arguments: "noon"}})
    row = await harness.run(text, answers={"1b": "this"})
    assert row.status == "completed"
    assert harness.prompts == ["The text around.\n\nSay it."]
    assert await harness.outputs(row.id) == {"1a": "noon", "1b": "this", "1c": "Said", "1": "Said"}


OWN = """\
# Own

## STEP 1: Assess

How bad is it?

@output(severity: enum, "low", "high", extract:"severity")

```if severity == "high"```

### STEP 1a: Escalate

Escalate.

```elif severity == "low"```

### STEP 1b: File

File it.

```endif```

## STEP 2: End

It was {{severity}}.
"""


@pytest.mark.parametrize(("severity", "label", "prompt"), [("High", "1a", "Escalate."), ("low", "1b", "File it.")])
async def test_a_step_that_branches_on_its_own_output_has_that_first(
    store: Store, severity: str, label: str, prompt: str
) -> None:
    reply = f'So: {{"severity": "{severity}"}}'
    harness = MarkdownHarness(store, [reply, "Did it", "End"])
    row = await harness.run(OWN)
    assert harness.prompts == ["How bad is it?", prompt, f"It was {severity.lower()}."]
    assert f"Output of step 1, Assess ({len(reply)} characters" in harness.system(1)
    assert f"severity, taken from the output of step 1 ({len(severity)} characters" in harness.system(1)
    assert await harness.outputs(row.id) == {label: "Did it", "1": reply, "2": "End"}
    assert await harness.warnings(row.id) == []


async def test_its_own_output_stays_if_no_branch_matches(store: Store) -> None:
    harness = MarkdownHarness(store, ["medium", "End"])
    row = await harness.run(OWN)
    assert await harness.steps(row.id) == {"1": "completed", "2": "completed"}
    assert harness.prompts[1] == "It was medium."
    assert await harness.outputs(row.id) == {"1": "medium", "2": "End"}


async def test_a_tool_and_an_answer_can_be_branched_on_as_well(store: Store) -> None:
    text = """\
# Own

## STEP 1: Call

@tool(lamp, state)
@output(state)

```if state == "on"```

It is on.

```endif```

## STEP 2: Ask

@elicit(select, "Which?", "left", "right")
@output(way)

```if way == "right"```

Go right.

```endif```
"""
    harness = MarkdownHarness(store, ["So", "Going"], servers={"lamp": {"state": lambda arguments: "on"}})
    row = await harness.run(text)
    row = await harness.answer(row.id, "right")
    assert row.status == "completed"
    assert harness.prompts == ["It is on.", "Go right."]


async def test_a_condition_on_an_input_is_known_before_whatever_the_step_stores(store: Store) -> None:
    text = '# I\n\n## INPUTS\n\n- `kind` (string): x\n\n## STEP 1: A\n\nAround.\n\n@output(kind)\n\n```if kind == "a"```\n\nInside.\n\n```endif```\n\n## STEP 2: B\n\n{{kind}}\n'
    harness = MarkdownHarness(store, ["b", "End"])
    row = await harness.run(text, {"kind": "a"})
    assert harness.prompts == ["Around.\n\nInside.", "a"], "an input stands before an output of its name"
    assert (await harness.state(row.id))["named_outputs"] == {"kind": "b"}


async def test_a_step_that_only_branches_means_what_an_earlier_one_has_set(store: Store) -> None:
    text = '# O\n\n## STEP 1: A\n\nA\n\n@output(kind)\n\n## STEP 2: B\n\n```if kind == "bug"```\n\nMend.\n\n```endif```\n\n@output(kind)\n\n## STEP 3: C\n\n{{kind}}\n'
    harness = MarkdownHarness(store, ["bug", "mended", "End"])
    await harness.run(text)
    assert harness.prompts == ["A", "Mend.", "mended"], "and keeps what its branch comes to"


async def test_a_condition_may_ask_for_an_answer(store: Store) -> None:
    text = '# A\n\n## STEP 1: Ask\n\n@elicit(confirm, "Really?")\n\n```if __elicit_step_1 == "yes"```\n\nDo it.\n\n```else```\n\nLeave it.\n\n```endif```\n'
    harness = MarkdownHarness(store, ["Left"])
    row = await harness.run(text)
    row = await harness.answer(row.id, "no")
    assert harness.prompts == ["Leave it."]
    assert "Question in step 1, Ask (7 characters of data, not instructions):\n\nReally?" in harness.system(0)
    assert "Answer of a person to it (2 characters" in harness.system(0)


async def test_a_tool_hides_branches_and_says_so(store: Store) -> None:
    text = '# T\n\n## STEP 1: Call\n\n@tool(clock, now)\n\n```if nobody == ""```\n\nNever.\n\n```endif```\n'
    harness = MarkdownHarness(store, servers={"clock": {"now": lambda arguments: "noon"}})
    row = await harness.run(text)
    assert await harness.outputs(row.id) == {"1": "noon"}
    assert "Step 1 calls a tool, so its branches are not reached." in await harness.warnings(row.id)


async def test_a_failed_sub_step_is_retried_alone(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One", ModelError("auth", "The key is wrong."), "Mended", "Closed"])
    row = await harness.run(ROUTE, {"kind": "bug"})
    assert (row.status, row.step) == ("failed", "2b")
    assert await harness.steps(row.id) == {
        "1": "completed", "2": "failed", "2a": "completed", "2b": "failed", "3": "skipped",
    }  # fmt: skip
    assert (await harness.retry(row.id)).status == "completed"
    assert harness.prompts == ["Look at it.", "Reproduce it.", *["Mend it by One."] * 2, "Close with Mended."]


async def test_a_restart_takes_another_branch_and_knows_only_what_was_before(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One", "Mended", "Closed", "Planned", "Closed too"])
    row = await harness.run(ROUTE, {"kind": "bug"})
    fork = await harness.restart(row.id, "2", values={"kind": "feature"})
    assert fork.status == "completed"
    assert harness.prompts[4:] == ["Plan it.", "Close with Planned."]
    assert "Mended" not in harness.system(5)
    assert "steps" not in (await harness.state(fork.id))["named_outputs"]
    assert await harness.steps(fork.id) == dict.fromkeys(["1", "2", "2c", "3"], "completed")


async def test_a_restart_from_a_sub_step_stays_in_its_branch(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One", "Mended", "Closed", "Mended better", "Closed too"])
    row = await harness.run(ROUTE, {"kind": "bug"})
    fork = await harness.restart(row.id, "2b", values={"steps": "three"})
    assert fork.status == "completed"
    assert harness.prompts[4:] == ["Mend it by three.", "Close with Mended better."]
    assert "steps, set by a person (5 characters" in harness.system(4)
    assert (await harness.service.replay(fork.id)).complete


async def test_a_breakpoint_may_be_at_a_sub_step(store: Store) -> None:
    harness = MarkdownHarness(store, ["Seen", "One", "Mended", "Closed"])
    row = await harness.run(ROUTE, {"kind": "bug"}, breakpoints=("2a", "2"))
    assert (row.status, row.step) == ("paused", "2a")
    assert (await harness.state(row.id))["branch"] == {"step": "2", "index": 0, "sub_step": "2a", "finished": ["2a"]}
    row = await harness.resume(row.id, steps="changed")
    assert harness.prompts[2] == "Mend it by changed."
    assert (row.status, len(harness.prompts)) == ("paused", 3)
    assert (await harness.resume(row.id)).status == "completed"


async def test_another_process_continues_inside_a_branch(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    harness = MarkdownHarness(SqliteStore(path), ["Seen", "One"])
    row = await harness.run(ROUTE, {"kind": "bug"}, breakpoints=("2a",))
    await harness.service.close()
    harness = MarkdownHarness(SqliteStore(path), [ModelError("auth", "The key is wrong.")])
    row = await harness.resume(row.id, kind="question", steps="two")
    assert (row.status, row.step) == ("failed", "2b"), "the branch was chosen before"
    await harness.service.close()
    harness = MarkdownHarness(SqliteStore(path), ["Mended", "Closed"])
    assert (await harness.retry(row.id)).status == "completed"
    assert harness.prompts == ["Mend it by two.", "Close with Mended."]
    assert (await harness.service.replay(row.id)).complete
    assert (await harness.service.verify(row.id)).broken_at is None
    await harness.service.close()


async def test_a_run_is_cancelled_in_the_middle_of_a_sub_step(store: Store) -> None:
    asked = asyncio.Event()

    async def script(request: Request) -> Line:
        if "Mend" not in request.messages[-1].text:
            return "Seen"
        asked.set()
        await asyncio.Event().wait()
        return ""

    harness = MarkdownHarness(store, script)
    row = await harness.service.start(Playbook.from_text(ROUTE, "book.md"), {"kind": "bug"}, Settings(model="test/x"))
    driving = asyncio.create_task(harness.service.drive(row.id))
    await asked.wait()
    await harness.service.cancel(row.id)
    assert (await driving).status == "cancelled"
    assert await harness.steps(row.id) == {
        "1": "completed", "2": "failed", "2a": "completed", "2b": "failed", "3": "skipped",
    }  # fmt: skip
    assert (await harness.state(row.id))["outputs_by_label"] == {"1": "Seen", "2a": "Seen"}


async def test_a_tool_in_a_sub_step_that_reports_an_error_is_retried_alone(store: Store) -> None:
    text = """\
# T

## STEP 1: Do

```if nobody == ""```

### STEP 1a: Say

Say it.

### STEP 1b: Send

@tool(mail, send, {"text": "{{__nothing:string:x}}"})

```endif```
"""
    results = iter([ToolResult("full", is_error=True), "sent"])
    harness = MarkdownHarness(store, ["Said"], servers={"mail": {"send": lambda arguments: next(results)}})
    row = await harness.run(text)
    assert (row.status, row.step) == ("failed", "1b")
    assert (await harness.retry(row.id)).status == "completed"
    assert harness.prompts == ["Say it."]
    assert await harness.outputs(row.id) == {"1a": "Said", "1b": "sent", "1": "sent"}


def test_a_branch_without_headings_gets_a_label_that_no_heading_has() -> None:
    text = '# L\n\n## STEP 1: A\n\n```if x == "1"```\n\n### STEP 1a: One\n\nOne.\n\n### STEP 1b: Two\n\nTwo.\n\n```else```\n\nOther.\n\n```endif```\n'
    (step,) = parse(text, "l.md").steps
    assert [[sub.label for sub in branch.steps] for branch in step.branches] == [["1a", "1b"], ["1c"]]
