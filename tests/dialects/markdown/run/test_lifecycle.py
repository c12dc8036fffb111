"""The order of a step's actions, and every state that a run and its steps go through."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuebook.dialects.markdown.parse import read
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import (
    ModelAsked,
    StepFinished,
    StepStarted,
    Suspended,
    ValueSet,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.stores.memory import MemoryStore
from cuebook.testing import ScriptedModel, model_performer
from tests.dialects.markdown.harness import MarkdownHarness
from tests.dialects.markdown.strategies import TEXTS
from tests.support.sampling import many

ORDER = """\
# Order

## STEP 1: Everything

@output(said)
@prompt(file:{{__elicit_step_1}}.md)
@elicit(select, "Which?", "short", "long")

Begin.

```if __elicit_step_1 == "short"```

### STEP 1a: Short

Write {{__elicit_step_1}} words.

```else```

### STEP 1b: Long

Write on.

```endif```
"""


async def test_a_step_asks_chooses_looks_up_renders_asks_keeps_pauses_and_records(store: Store, tmp_path: Path) -> None:
    (tmp_path / "short.md").write_text("Be {{__elicit_step_1}}.")
    harness = MarkdownHarness(store, ["Done"], folder=tmp_path)
    row = await harness.run(ORDER, breakpoints=("1",))
    row = await harness.answer(row.id, "short")
    assert (row.status, await harness.steps(row.id)) == ("paused", {"1": "paused", "1a": "completed"})
    assert harness.prompts == ["Be short.\n\nBegin.\n\nWrite short words."]
    kinds = (StepStarted, WaitOpened, WaitClosed, ModelAsked, ValueSet, StepFinished, Suspended)
    told = [told_of(event) for event in await harness.events(row.id, *kinds)]
    assert told == [
        "StepStarted 1",
        "WaitOpened question", "Suspended", "WaitClosed question",
        "ValueSet __elicit_step_1",
        "StepStarted 1a", "ModelAsked", "StepFinished 1a",
        "ValueSet said",
        "StepFinished 1",
        "WaitOpened breakpoint", "Suspended",
    ]  # fmt: skip


def told_of(event: Any) -> str:
    what = next((getattr(event, name) for name in ("label", "name", "kind") if hasattr(event, name)), "")
    return f"{type(event).__name__} {what}".strip()


STATES = """\
# States

## STEP 1: Call

@tool(python, hold)

## STEP 2: Ask

@elicit(confirm, "Go on?")

## STEP 3: Pause

Pause.

## STEP 4: Perhaps

```if nobody == "x"```

Never.

```endif```

## STEP 5: Fail

Fail.

## STEP 6: Rest

Rest.
"""


async def test_a_run_and_its_steps_go_through_all_states(store: Store) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        entered.set()
        await go_on.wait()
        return "held"

    harness = MarkdownHarness(store, ["Paused"], functions=[hold])
    row = await harness.service.start(
        Playbook.from_text(STATES, "states.md"), {}, Settings(model="test/x", breakpoints=("3",))
    )
    assert row.status == "pending"

    driving = asyncio.create_task(harness.service.drive(row.id))
    await entered.wait()
    assert (await store.run(row.id)).status == "running"
    assert await harness.steps(row.id) == {"1": "tool_call", **dict.fromkeys("23456", "pending")}
    go_on.set()

    assert (await driving).status == "awaiting_input"
    assert await harness.steps(row.id) == {"1": "completed", "2": "awaiting_input", **dict.fromkeys("3456", "pending")}

    assert (await harness.answer(row.id, "yes")).status == "paused"
    assert await harness.steps(row.id) == {"1": "completed", "2": "completed", "3": "paused"} | dict.fromkeys(
        "456", "pending"
    )

    assert (await harness.resume(row.id)).status == "failed"
    assert await harness.steps(row.id) == {
        "1": "completed", "2": "completed", "3": "completed", "4": "skipped", "5": "failed", "6": "skipped",
    }  # fmt: skip


REPLIES = st.one_of(st.text(max_size=30), st.sampled_from(["yes", "a", "{{a}}", '{"f": [1]}', 'So: {"f": {"a": "b"}}']))


ENDS = ("bad_arguments", "outside_root", "no_such_tool", "reply_empty")
"""The only ways to fail with a model that always answers."""


@settings(max_examples=many(37, 150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.lists(REPLIES, min_size=1, max_size=4))
def test_whatever_can_be_read_runs_to_an_end_and_replays(text: str, replies: list[str]) -> None:
    book = read(text).definition
    if book is not None and "\udc80" not in text:  # which a file cannot contain
        needed = {one.name: (*one.options, "1")[0] for one in book.inputs if one.required}
        asyncio.run(run_to_its_end(text, needed, replies))


async def run_to_its_end(text: str, inputs: dict[str, str], replies: list[str]) -> None:
    harness = MarkdownHarness(MemoryStore(), model=model_performer(ScriptedModel(replies, cycle=True)))
    try:
        row = await harness.run(text, inputs, unattended=True)
    except BadInput:
        return  # an enum without options, or an invalid default
    if row.status != "completed":
        assert row.error is not None
        assert (row.status, row.error.code) in [("failed", code) for code in ENDS]
    assert (await harness.service.replay(row.id)).complete
    assert (await harness.state(row.id))["status"] == row.status
