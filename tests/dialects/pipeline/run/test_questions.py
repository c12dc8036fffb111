"""Input steps: a question with a schema, answered by people and checked the same way everywhere."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.parse import parse, read
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from cuebook.service.service import Principal
from tests.dialects.pipeline.harness import PipelineHarness

WINDOW = """\
name: Restart
steps:
  - id: window
    input:
      text: For how long may web be down?
      schema:
        type: object
        properties:
          minutes: {type: integer, minimum: 1}
          why: {type: string}
        required: [minutes]
      by: [bob]
  - id: say
    command: cli echo ${window.json.minutes} minutes
"""


async def asked(harness: PipelineHarness, text: str) -> tuple[str, str]:
    harness.pipeline = parse(text, "a.yml")
    row = await harness.do()
    assert row.status == "awaiting_input", row.error
    return row.id, (await harness.wait(row.id)).id


async def test_an_answer_is_checked_and_becomes_the_output_of_its_step(harness: PipelineHarness) -> None:
    run, wait = await asked(harness, WINDOW)
    bob = Principal("bob")
    with pytest.raises(NotAllowed, match="it is for bob"):
        await harness.service.answer(wait, {"minutes": 5}, Principal("cleo"))
    with pytest.raises(BadInput, match="minutes"):
        await harness.service.answer(wait, '{"minutes": 0}', bob)
    await harness.service.answer(wait, {"minutes": 5}, bob)
    row = await harness.service.drive(run)
    assert row.status == "completed", row.error
    assert await harness.outputs(run) == {"window": '{"minutes":5}', "say": "5 minutes\n"}


async def test_a_plain_question_takes_any_text(harness: PipelineHarness) -> None:
    run, wait = await asked(
        harness, "name: A\nsteps:\n  - {id: q, input: Who are you?}\n  - {id: a, command: 'cli echo ${q.stdout}'}\n"
    )
    await harness.service.answer(wait, "5")
    await harness.service.drive(run)
    assert (await harness.outputs(run))["a"] == "5\n"


async def test_answers_in_advance_and_defaults_are_checked_in_the_same_way(harness: PipelineHarness) -> None:
    harness.pipeline = parse(WINDOW, "a.yml")
    row = await harness.do(answers={"window": '{"minutes": 7}'})
    assert (await harness.outputs(row.id))["say"] == "7 minutes\n"
    row = await harness.do(answers={"window": "{}"})
    assert row.error is not None
    assert "'minutes' is a required property" in row.error.message
    row = await harness.do(unattended=True)
    assert row.error is not None
    assert "unattended" in row.error.message
    harness.pipeline = parse(WINDOW.replace("      by: [bob]\n", "      default: {minutes: 3}\n"), "a.yml")
    row = await harness.do(unattended=True)
    assert (await harness.outputs(row.id))["say"] == "3 minutes\n"
    assert Settings().unattended is False


@pytest.mark.parametrize(
    ("text", "code", "line", "says"),
    [
        ("    input: {text: Hi, schma: {}}", "SCHEMA", 4, "Unknown key 'schma'"),
        ("    input: {schema: {}}", "SCHEMA", 4, "'text' is missing"),
        ("    input: {text: Hi, schema: {type: integer}, default: x}", "BAD_INPUT_STEP", 4, "default"),
        ("    input: {text: Hi, schema: {type: nothing}}", "INVALID_OUTPUT_SCHEMA", 4, "cannot be used"),
        ("    input: {text: Hi, by: [role:boss]}", "SCHEMA", 4, "no role 'boss'"),
        ("    input: Hi\n    command: cli true", "NOT_OF_THIS_STEP", 4, "'input'"),
        ("    input: Hi\n    stdin: x", "NOT_OF_THIS_STEP", 5, "'stdin'"),
        ("    input: Hi\n    approval: required", "NOT_OF_THIS_STEP", 5, "'approval'"),
    ],
)
def test_a_wrong_question_is_found_with_its_line(text: str, code: str, line: int, says: str) -> None:
    found = read(f"name: A\nsteps:\n  - id: q\n{text}\n", "a.yml").errors
    assert [(one.code, one.line) for one in found] == [(code, line)], found
    assert says in found[0].message
