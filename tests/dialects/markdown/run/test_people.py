"""What steps ask of people beyond the format: forms, approvals with rules, and requests for changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.check import check
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.effects import AskModel, Breakpoint
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import StepStarted, Warned
from cuebook.kernel.outcomes import Resumed
from cuebook.kernel.ports import Store
from cuebook.service.service import Principal
from tests.dialects.markdown.harness import MarkdownHarness

BOOK = """\
# Outage

## STEP 1: Window

@elicit(form, "How long?", {"type": "object", "properties": {"minutes": {"type": "integer", "minimum": 1}, "kind": {"enum": ["short", "long"], "type": "string"}, "note": {"type": "string"}}, "required": ["minutes", "kind"]}, default:{"minutes": 5, "kind": "short"}, by:"bob, role:admin")
@output(window)

## STEP 2: Draft

Announce {{minutes}} minutes.

@output(draft)

## STEP 3: Shorten

```if kind == "long"```

### STEP 3a: Cut

Cut it.

@output(cut)

### STEP 3b: Agree

@approve("Is this short enough?", show:"cut", changes:"3a")

Say yes.

```endif```

## STEP 4: Release

@approve("Send it?", show:"draft, cut", by:"bob, cleo", votes:2, changes:"2, 1", at_most:2)

## STEP 5: Thank

Thank them.
"""
BOB, CLEO = Principal("bob"), Principal("cleo")
_RESUMED: dict[type, Any] = {Breakpoint: Resumed()}
RUNNER = Principal("cleo", roles=frozenset({"runner"}))


async def decided(harness: MarkdownHarness, run: str, decision: Any, who: Principal = BOB, **more: Any) -> Any:
    (wait,) = [one for one in await harness.store.waits(run=run) if one.state == "open"]
    await harness.service.decide(wait.id, decision, who, **more)
    await harness.service.drive(run)
    return wait


async def answered(harness: MarkdownHarness, run: str, answer: Any) -> None:
    (wait,) = [one for one in await harness.store.waits(run=run) if one.state == "open"]
    await harness.service.answer(wait.id, answer, BOB)
    await harness.service.drive(run)


def prompts(harness: MarkdownHarness) -> list[str]:
    return [one.messages[-1].text for one in harness.model.requests]


async def test_changes_are_requested_twice_then_two_people_approve(store: Store) -> None:
    harness = MarkdownHarness(store, ["one", "two", "again", "thanks"])
    run = (await harness.run(BOOK)).id
    (wait,) = await store.waits(run=run)
    assert (wait.type, wait.default) == ("form", '{"minutes":5,"kind":"short"}')
    for wrong in ({"minutes": 0, "kind": "short"}, "short", {"minutes": 1}):
        with pytest.raises(BadInput, match=r"The answer (does not fit|must be JSON)"):
            await harness.service.answer(wait.id, wrong, BOB)
    with pytest.raises(NotAllowed):
        await harness.service.answer(wait.id, {"minutes": 9, "kind": "short"}, RUNNER)
    await answered(harness, run, '{"minutes": 9, "kind": "short"}')
    values = await harness.values(run)
    assert (values["minutes"], values["kind"], values["note"]) == ("9", "short", "")
    assert json.loads(values["window"]) == {"minutes": 9, "kind": "short"}
    with pytest.raises(NotAllowed):
        await decided(harness, run, "approve", Principal("ann"))
    first = await decided(harness, run, "changes", reason="Warmer")
    assert first.details["preview"] == {"draft": "one", "cut": "(not available: nothing has set cut)"}
    assert any(message.text.endswith("Warmer") for message in harness.model.requests[-1].messages)
    second = await decided(harness, run, "changes", CLEO, reason="Longer", to="1")
    assert second.details["preview"]["draft"] == "two"
    await answered(harness, run, {"minutes": 20, "kind": "short"})
    assert prompts(harness)[-1] == "Announce 20 minutes."
    (third,) = [one for one in await store.waits(run=run) if one.state == "open"]
    assert third.options == ("approve", "deny")
    await decided(harness, run, "approve", BOB)
    await decided(harness, run, "approve", CLEO)
    row = await harness.service.get(run)
    assert row.status == "completed", row.error
    visits = [(step.name, step.status) for step in await store.steps(run) if step.label == "4"]
    assert visits == [("4", "failed"), ("4#2", "failed"), ("4#3", "completed")]
    assert (await harness.service.verify(run)).problem == ""
    assert await harness.service.replay(run) is not None


async def test_changes_within_a_branch_and_a_denial(store: Store) -> None:
    harness = MarkdownHarness(store, ["draft", "cut one", "cut two", "yes"])
    answers = {"1": '{"minutes": 9, "kind": "long"}'}
    run = (await harness.run(BOOK, answers=answers)).id
    shown = await decided(harness, run, "changes", reason="Less")
    assert shown.details["preview"] == {"cut": "cut one"}
    again = await decided(harness, run, "approve")
    assert again.details["preview"] == {"cut": "cut two"}
    assert prompts(harness) == ["Announce 9 minutes.", "Cut it.", "Cut it.", "Say yes."]
    await decided(harness, run, "deny", reason="No")
    row = await harness.service.get(run)
    assert (row.status, row.error and row.error.code) == ("cancelled", "denied")


def test_the_document_survives_conversion_and_old_runs_see_what_they_saw() -> None:
    book = parse(BOOK, "book.md")
    back = parse(MARKDOWN.from_json(MARKDOWN.to_json(book), "book.md"), "book.md")
    assert MARKDOWN.editable(back).digests == MARKDOWN.editable(book).digests
    program = MARKDOWN.start(book, {}, 3, {})(None)
    seen = [next(program)]
    while not isinstance(seen[-1], AskModel):
        seen.append(program.send({} if isinstance(seen[-1], StepStarted) else _RESUMED.get(seen[-1].__class__)))
    assert seen[-1].prompt.startswith("Announce"), "the form was an unknown question, and its step was empty"
    warned = [one.message for one in seen if isinstance(one, Warned)]
    assert any('Invalid elicit type: "form"' in message for message in warned)
    assert [one.question.type for one in Playbook.from_text(BOOK, "book.md").outline if one.question] == ["form"]


@pytest.mark.parametrize(
    ("line", "says", "code"),
    [
        ('@elicit(form, "?")', "a form needs a question and a JSON Schema", "elicit_form"),
        ('@elicit(form, "?", {"type": 5})', "its schema cannot be used", "elicit_form"),
        ('@elicit(form, "?", {"type": "object"}, default:5)', "its default does not fit", "elicit_form"),
        ('@elicit(form, "?", {}, by:"role:boss")', "there is no role 'boss'", "elicit_form"),
        ('@elicit(input, "?", by:"role:boss")', "there is no role 'boss'", "elicit_form"),
        ("@approve(Send it?)", "is unclear", "approve"),
        ('@approve("?", vote:2)', "unknown field 'vote'", "approve"),
        ('@approve("?", votes:0)', "votes must be a whole number from 1 to 50", "approve"),
        ('@approve("?", votes:3, by:"a, b")', "3 votes are needed, and 2 people are listed", "approve"),
        ('@approve("?", changes:"2")', "there is no step '2' before step 2", "approve"),
        ('@approve("?", different_person:maybe)', "different_person must be yes or no", "approve"),
    ],
)
def test_a_wrong_directive_is_found_with_its_line(line: str, says: str, code: str) -> None:
    text = f"# T\n\n## STEP 1: A\n\nDo it.\n\n## STEP 2: B\n\n{line}\n"
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "book.md")
    (problem,) = caught.value.problems
    assert says in problem.message
    (finding,) = [one for one in check(text, "book.md") if one.severity == "error"]
    assert (finding.code, finding.line) == (code, 9)


def test_a_step_that_only_asks_for_an_approval_has_no_output() -> None:
    found = check('# T\n\n## STEP 1: A\n\n@approve("?", show:"x")\n@output(y)\n', "book.md")
    assert {one.code for one in found} >= {"approve_output", "unknown_variable"}
