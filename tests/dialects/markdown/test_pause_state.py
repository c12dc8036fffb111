"""The pause state, with the ten keys of the format and our additions, at every point where a run can pause."""

from __future__ import annotations

import json
from typing import Any

from cuebook.kernel.context import digest_of
from cuebook.kernel.ports import Store
from cuebook.testing import ModelError
from tests.dialects.markdown.harness import MarkdownHarness

TEN = [
    "execution_id", "playbook_id", "model_id", "system_prompt", "input_values", "step_outputs", "named_outputs",
    "breakpoints", "status", "paused_at_step",
]  # fmt: skip
ADDED = [
    "schema_version", "source", "source_hash", "waiting_for", "elicitation", "expires_at", "branch", "outputs_by_label",
]  # fmt: skip

REVIEW = """\
# Review

## SYSTEM

Be kind.

## INPUTS

- `topic` (string): What
- `depth` (string: thorough): How

## STEP 1: Read

Read {{topic}}.

@output(analysis)

## STEP 2: Judge

```if depth == "thorough"```

### STEP 2a: Count

Count.

@output(count, extract:"n")

### STEP 2b: Ask

@elicit(select, "How bad is {{topic}}?", "bad", "worse", default:"worse")
@output(severity)

```else```

### STEP 2c: Glance

Glance.

```endif```

## STEP 3: Write

Write.
"""


async def at_breakpoint(store: Store, **settings: Any) -> tuple[MarkdownHarness, str]:
    harness = MarkdownHarness(store, ["Read.", 'It is {"n": 3}', "Written"], now=1_000.0)
    row = await harness.run(REVIEW, {"topic": "tea"}, breakpoints=("1", "3"), **settings)
    assert row.status == "paused"
    return harness, row.id


async def test_a_run_at_a_breakpoint(store: Store) -> None:
    harness, run = await at_breakpoint(store)
    state = await harness.state(run)
    assert list(state) == TEN + ADDED
    assert {key: state[key] for key in TEN} == {
        "execution_id": run,
        "playbook_id": "book.md",
        "model_id": "test/x",
        "system_prompt": "Be kind.",
        "input_values": {"topic": "tea", "depth": "thorough"},
        "step_outputs": {"1": "Read."},
        "named_outputs": {"analysis": "Read."},
        "breakpoints": {"1": True, "3": True},
        "status": "paused",
        "paused_at_step": 1,
    }
    assert {key: state[key] for key in ADDED} == {
        "schema_version": 1,
        "source": REVIEW,
        "source_hash": digest_of(REVIEW),
        "waiting_for": "breakpoint",
        "elicitation": None,
        "expires_at": None,
        "branch": None,
        "outputs_by_label": {"1": "Read."},
    }
    assert json.loads(json.dumps(state)) == state


async def test_a_run_that_waits_for_an_answer_in_a_branch(store: Store) -> None:
    harness, run = await at_breakpoint(store, pause_expiry=60.0)
    await harness.resume(run, topic="coffee", analysis="changed")
    state = await harness.state(run)
    assert (state["status"], state["paused_at_step"]) == ("awaiting_input", 2)
    assert state["input_values"] == {"topic": "coffee", "depth": "thorough"}
    assert state["named_outputs"] == {"analysis": "changed", "count": "3"}
    assert state["step_outputs"] == {"1": "Read."}
    assert state["outputs_by_label"] == {"1": "Read.", "2a": 'It is {"n": 3}'}
    assert state["branch"] == {"step": "2", "index": 0, "sub_step": "2b", "finished": ["2a"]}
    assert state["expires_at"] == "1970-01-01T00:17:40+00:00"
    assert state["elicitation"] == {
        "step": "2b",
        "type": "select",
        "prompt": "How bad is coffee?",
        "options": ["bad", "worse"],
        "default": "worse",
        "wait": (await harness.wait(run)).id,
    }


async def test_a_run_that_has_ended_is_not_paused(store: Store) -> None:
    harness, run = await at_breakpoint(store)
    await harness.resume(run)
    await harness.answer(run, "bad")
    row = await harness.resume(run)
    assert row.status == "completed"
    state = await harness.state(run)
    assert (state["status"], state["paused_at_step"], state["branch"]) == ("completed", None, None)
    assert state["step_outputs"] == {"1": "Read.", "2": "bad", "3": "Written"}
    assert list(state["outputs_by_label"]) == ["1", "2a", "2b", "2", "3"]
    assert state["named_outputs"] == {
        "analysis": "Read.", "count": "3", "__elicit_step_2": "bad", "__elicit_step_2b": "bad", "severity": "bad",
    }  # fmt: skip


async def test_values_that_a_retry_discards_are_not_in_it(store: Store) -> None:
    text = "# T\n\n## STEP 1: A\n\n@tool(t, get)\n@output(a)\n\n## STEP 2: B\n\nB\n\n@output(b)\n"
    results = iter(["first", "second"])
    harness = MarkdownHarness(
        store, [ModelError("auth", "no"), "B"], servers={"t": {"get": lambda arguments: next(results)}}
    )
    row = await harness.run(text)
    assert (await harness.state(row.id))["named_outputs"] == {"a": "first"}
    fork = await harness.restart(row.id, "1", values={"b": "edited"})
    assert (await harness.state(fork.id))["named_outputs"] == {"b": "B", "a": "second"}
    assert (await harness.retry(row.id, whole_step=True)).status == "failed"
    assert (await harness.state(row.id))["named_outputs"] == {"a": "first"}


async def test_steps_that_share_a_number_are_distinguished_by_their_visit(store: Store) -> None:
    harness = MarkdownHarness(store, ["One", "Two"])
    row = await harness.run("# T\n\n## STEP 1: A\n\nA\n\n## STEP 1: B\n\nB\n")
    state = await harness.state(row.id)
    assert (state["step_outputs"], state["outputs_by_label"]) == ({"1": "Two"}, {"1": "One", "1#2": "Two"})


async def test_a_changed_input_is_distinguished_from_an_output_of_the_same_name(store: Store) -> None:
    text = "# T\n\n## INPUTS\n\n- `x` (string: a): x\n\n## STEP 1: A\n\nA\n\n@output(x)\n\n## STEP 2: B\n\n{{x}}\n\n@output(x)\n"
    harness = MarkdownHarness(store, ["one", "two"])
    row = await harness.run(text, breakpoints=("1",))
    row = await harness.resume(row.id, x="b")
    state = await harness.state(row.id)
    assert harness.prompts == ["A", "b"]
    assert (state["input_values"], state["named_outputs"]) == ({"x": "b"}, {"x": "two"})
