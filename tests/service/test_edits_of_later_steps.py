"""Edit and continue beyond the first difference: steps that cannot depend on it are kept, and the others say why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.dialects.playbook import Playbook, read
from cuebook.testing import ScriptedModel
from tests.service.test_edits import approved, begun, continued, log, sound
from tests.support.runtime import RuntimeHarness

STEPS = {
    "look": "command: cli sh -c 'echo look-$((1+1))'\n    effect: read",
    "ask": "input: Who?",
    "list": "command: cli sh -c 'ls . | wc -l'\n    effect: read",
    "greet": "command: cli sh -c 'echo greet-${ask.stdout} >> log'",
    "think": "command: cli sh -c 'echo ${look.stdout}'\n    effect: read",
    "end": "command: cli sh -c 'echo end >> log'\n    approval:\n      text: End?\n      show: [$ask]",
}


def pipeline(order: list[str], **changed: str) -> str:
    return "name: Log\nsteps:\n" + "".join(
        f"  - id: {one}\n    {changed.get(one, STEPS.get(one, ''))}\n" for one in order
    )


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch)
    yield made
    await made.close()


async def planned(runtime: RuntimeHarness, run: str, text: str, name: str = "log.yml") -> dict[str, tuple[str, str]]:
    plan = await runtime.service.edit_plan(run, Playbook.from_text(text, name))
    return {one.step: (one.verdict, one.because) for one in plan.verdicts}


_KEPT = ("kept", "it is unchanged, and does not depend on what differs")


@pytest.mark.parametrize(
    ("text", "expected", "lines"),
    [
        (
            pipeline(list(STEPS), look=STEPS["look"].replace("look", "peek")),
            {
                "look": ("changed", "its text differs"),
                "ask": _KEPT,
                "list": _KEPT,
                "greet": (
                    "redone",
                    "step look before it changed, and their order matters; what it did is done again",
                ),
                "think": ("redone", "it uses step look, which changed"),
            },
            ["greet-Ida", "greet-Ida", "end"],
        ),
        (
            pipeline(["ask", "list", "look", "greet", "think", "end"]),
            {
                "ask": _KEPT,
                "list": _KEPT,
                "look": _KEPT,
                "greet": _KEPT,
                "think": _KEPT,
                "end": ("redone", "it had not finished"),
            },
            ["greet-Ida", "end"],
        ),
        (
            pipeline(["look", "ask", "greet", "think", "end"]),
            {
                "look": ("kept", "it is unchanged"),
                "ask": ("kept", "it is unchanged"),
                "list": ("removed", "it is not in the new text"),
                "greet": _KEPT,
                "think": _KEPT,
            },
            ["greet-Ida", "end"],
        ),
        (
            pipeline(["look", "who", "list", "greet", "think", "end"], who="input: Who?")
            .replace("${ask.stdout}", "${who.stdout}")
            .replace("$ask", "$who"),
            {
                "ask": ("removed", "it is not in the new text"),
                "who": ("new", "it is not in the old text"),
                "list": _KEPT,
                "greet": ("changed", "its text differs; what it did is done again"),
                "think": ("redone", "step greet before it changed, and their order matters"),
            },
            ["greet-Ida", "greet-yes", "end"],
        ),
    ],
    ids=["changed", "reordered", "deleted", "renamed"],
)
async def test_independent_steps_are_kept(
    runtime: RuntimeHarness, text: str, expected: dict[str, tuple[str, str]], lines: list[str]
) -> None:
    runtime.open()
    old = await begun(runtime, pipeline(list(STEPS)), "log.yml", answers={"ask": "Ida"})
    assert old.status == "awaiting_approval", old.error
    found = await planned(runtime, old.id, text)
    assert {step: found[step] for step in expected} == expected
    row = await approved(runtime, await continued(runtime, old.id, text, "log.yml"))
    assert row.status == "completed", row.error
    assert log(runtime) == lines
    steps = await runtime.service.steps(row.id)
    assert {step.label for step in steps} == {step for step, (verdict, _) in found.items() if verdict != "removed"}
    await sound(runtime, old.id, row.id)
    restarted = await runtime.service.fork(row.id, "think")
    assert (await approved(runtime, await runtime.service.drive(restarted.id))).status == "completed"
    assert log(runtime) == [*lines, "end"], "a restart keeps what came before it, also what was taken over"


MARKDOWN = """# Letter

## STEP 1: Draft
Draft a letter.

## STEP 2: Tone
@elicit(select, "Which tone?", "warm", "plain")
@output(tone)

## STEP 3: Find
@tool(builtin, Glob, {"pattern": "*.md"})

## STEP 4: Write
Write it in a {{tone}} tone.

## STEP 5: Send
@elicit(confirm, "Send it?")
"""
GRAPH = """
id: letter
name: Letter
entry: draft
nodes:
  draft: {name: Draft, instruction: Draft a letter.}
  tone: {name: Tone, instruction: Which tone?}
  write: {name: Write, instruction: Write it.}
  send: {name: Send, instruction: Send it.}
edges: [{from: draft, to: tone}, {from: tone, to: write}, {from: write, to: send}]
x_cuebook: {nodes: {tone: {input: true}, send: {approval: Send it?}}}
"""


@pytest.mark.parametrize(
    ("text", "name", "kept", "redone"),
    [(MARKDOWN, "letter.md", ["2", "3"], "4"), (GRAPH, "letter.yml", ["tone"], "write")],
)
async def test_an_answer_is_kept_although_a_model_before_it_is_called_again(
    runtime: RuntimeHarness, text: str, name: str, kept: list[str], redone: str
) -> None:
    runtime.models = {"test": ScriptedModel([f"reply {number}" for number in range(6)])}
    runtime.open()
    old = await begun(runtime, text, name)
    (wait,) = await runtime.service.waits(old.id)
    await runtime.service.answer(wait.id, "warm")
    old = await runtime.service.drive(old.id)
    changed = text.replace("Draft a letter.", "Draft a short letter.")
    found = await planned(runtime, old.id, changed, name)
    assert [found[step] for step in kept] == [_KEPT] * len(kept)
    assert found[redone][0] == "redone"
    row = await continued(runtime, old.id, changed, name)
    assert row.status == old.status, row.error
    (wait,) = await runtime.service.waits(row.id)
    assert "Send it" in wait.prompt, "the tone is not asked again"
    assert (await approved(runtime, row)).status == "completed"
    await sound(runtime, old.id, row.id)


async def test_steps_that_were_undone_are_not_kept(runtime: RuntimeHarness) -> None:
    runtime.open()
    text = """
name: Log
steps:
  - {id: one, command: "cli sh -c 'echo one >> log'", rollback: "cli rm log"}
  - {id: two, command: "cli false"}
"""
    old = await approved(runtime, await begun(runtime, text, "log.yml"))
    assert old.status == "failed"
    assert not (runtime.work / "log").exists()
    changed = text.replace("cli false", "cli true")
    assert (await planned(runtime, old.id, changed))["one"] == (
        "redone",
        "step one was undone; what it did is done again",
    )
    row = await continued(runtime, old.id, changed, "log.yml")
    assert (row.status, log(runtime)) == ("completed", ["one"])


async def test_a_child_that_waits_is_cancelled_and_begins_again(runtime: RuntimeHarness) -> None:
    runtime.open()
    child = "name: Child\nsteps:\n  - {id: go, command: \"cli sh -c 'echo go >> log'\", approval: required}\n"
    (runtime.work / "child.yml").write_text(child)
    text = "name: Parent\nsteps:\n  - {id: call, playbook: child.yml}\n  - {id: after, command: cli echo one, effect: read}\n"
    path = runtime.work / "parent.yml"

    def written(text: str) -> Playbook:
        path.write_text(text)
        return read(text, path.name, path=path)

    book = written(text)
    settings = runtime.wiring.settings(folder=path.parent, document=book.document)
    row = await runtime.service.start(book, {}, settings)
    old = await runtime.service.drive(row.id)
    assert old.status == "awaiting_approval", old.error
    (kid,) = await runtime.service._store.runs(caller=old.id, limit=None)
    changed = written(text.replace("echo one", "echo two"))
    plan = await runtime.service.edit_plan(old.id, changed)
    verdicts = {one.step: (one.verdict, one.because) for one in plan.verdicts}
    assert verdicts["call"][0] == "redone"
    assert f"its child run {kid.id} is cancelled" in verdicts["call"][1]
    assert plan.as_object()["cancels"] == [kid.id]
    new = await runtime.service.continue_with(old.id, changed, plan=plan.id)
    ended = await runtime.service.row(kid.id)
    assert (ended.status, ended.error and ended.error.code) == ("cancelled", "superseded_run")
    new = await approved(runtime, await runtime.service.drive(new.id))
    assert new.status == "completed", new.error
    assert log(runtime) == ["go"]
    await sound(runtime, old.id, new.id, kid.id)
