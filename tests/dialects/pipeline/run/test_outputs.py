"""Output contracts and the cap on kept output, with real processes and a real server."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.pipeline.model import HttpStatus, Llm, Mcp, Output, Postcondition, Step
from cuebook.dialects.pipeline.run.outputs import broken, read, violations
from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import CommandResult, ToolResult
from cuebook.kernel.run import RunRow
from tests.dialects.pipeline.harness import PipelineHarness, cli, http, python, ref, shell, words
from tests.support.http_servers import Server, answer

OBJECT = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}


async def commanded(harness: PipelineHarness, run: str) -> CommandResult:
    (performed,) = await harness.events(run, Performed)
    assert isinstance(performed.outcome, CommandResult)
    return performed.outcome


def message(row: RunRow) -> str:
    assert row.error is not None
    return row.error.message


# --- the cap ---


async def test_output_beyond_the_cap_is_cut_and_marked(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "printf", "%s", "0123456789abcdef" * 4), options={"max_output": 16})
    outcome = await commanded(harness, row.id)
    assert row.status == "completed"
    assert (str(outcome.stdout), outcome.truncated) == ("0123456789abcdef", True)


@pytest.mark.parametrize(
    ("option", "of_step", "kept"),
    [
        (None, None, 32_768),
        (100, None, 100),
        (100_000, None, 100_000),
        (None, 200_000, 200_000),
        (100, 200_000, 100),
        (200_000, 100, 100),
        (9_000_000, None, 512_000),
    ],
)
async def test_the_cap_by_default_and_at_most(
    harness: PipelineHarness, option: int | None, of_step: int | None, kept: int
) -> None:
    """Far more than a pipe buffers, yet it is read to the end."""
    row = await harness.do(
        python("a", "import sys; sys.stdout.write('x' * 600_000); sys.stderr.write('y' * 600_000)",
               output=Output("text", max_bytes=of_step)),
        options={} if option is None else {"max_output": option},
    )  # fmt: skip
    outcome = await commanded(harness, row.id)
    assert (row.status, len(outcome.stdout), outcome.truncated) == ("completed", kept, True)
    assert (len(outcome.stderr), outcome.stderr_truncated) == (kept, True)


async def test_json_that_was_cut_breaks_its_contract(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "echo", '["' + "x" * 50 + '"]', output=Output("json")), options={"max_output": 16})
    assert message(row) == "Step a failed: Output contract violated: it is not JSON: its output was cut at the limit"


async def test_a_truncated_error_output_does_not_break_the_contract(harness: PipelineHarness) -> None:
    script = "echo '{\"ok\": true}'; head -c 5000 /dev/zero | tr '\\0' e >&2"
    row = await harness.do(shell("a", script, output=Output("json")), options={"max_output": 64})
    assert row.status == "completed", row.error
    assert (await commanded(harness, row.id)).stderr_truncated


# --- contracts ---


async def test_plain_words_are_not_json(harness: PipelineHarness) -> None:
    async with Server(answer("plain words")) as server:
        row = await harness.do(
            cli("a", "echo", "plain words", output=Output("json"), on_error="continue"),
            http("b", server.url(), output=Output("json")),
        )
    assert message(row).startswith("Step b failed: Output contract violated: it is not JSON")
    reasons = {step.label: step.reason for step in await harness.store.steps(row.id)}
    assert reasons["a"].startswith("Output contract violated: it is not JSON")


async def test_every_mismatch_is_reported_and_the_value_is_kept(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "echo", '{"id": "five", "name": 5}', output=Output("json", OBJECT)))
    assert message(row).startswith("Step a failed: Output contract violated: $.id: ")
    assert "$.name: 5 is not of type 'string'" in message(row)
    (noted,) = await harness.notes(row.id, "contract")
    assert noted["value"] == {"id": "five", "name": 5}
    assert len(noted["problems"]) == 2
    assert await harness.outputs(row.id) == {"a": '{"id": "five", "name": 5}\n'}


async def test_the_value_of_a_refused_request_is_kept_too(harness: PipelineHarness) -> None:
    """If a postcondition names the status, the contract is checked first."""
    async with Server(answer('{"error": "unprocessable"}', 422)) as server:
        row = await harness.do(
            http("a", server.url(), output=Output("json", OBJECT), on_error="continue"),
            http("b", server.url(), output=Output("json", OBJECT), postcondition=Postcondition((HttpStatus(422),))),
        )
    assert "Output contract violated: $: 'id' is a required property" in message(row)
    (noted,) = await harness.notes(row.id, "contract")
    assert noted["value"] == {"error": "unprocessable"}
    assert (await harness.outputs(row.id))["a"] == '{"error": "unprocessable"}'


@pytest.mark.parametrize("text", ["null", " null\n", "false", "0", '""', "[]"])
async def test_null_and_other_scalars_are_json(harness: PipelineHarness, text: str) -> None:
    row = await harness.do(
        cli("a", "printf", "%s", text, output=Output("json")),
        shell("b", 'echo "=$(cat)"', stdin=words(ref("a", "json"))),
    )
    assert row.status == "completed", row.error
    shown = text.strip() if text != '""' else ""
    assert (await harness.outputs(row.id))["b"] == f"={shown}\n"


async def test_schemas_are_independent_of_each_other(harness: PipelineHarness) -> None:
    same_id = {"$id": "https://example.com/one", "type": "object"}
    other = {"$id": "https://example.com/one", "type": "array"}
    row = await harness.do(
        cli("a", "echo", "{}", output=Output("json", same_id)),
        cli("b", "echo", "[]", output=Output("json", other)),
        cli("c", "echo", "[1]", output=Output("json", False)),
    )
    assert message(row).startswith("Step c failed: Output contract violated: $: False schema")


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"items": [{"type": "integer"}], "additionalItems": False}, "[1]", True),
        ({"items": [{"type": "integer"}], "additionalItems": False}, "[1, 2]", False),
        ({"dependentRequired": {"a": ["b"]}}, '{"a": 1}', False),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"const": 1}]}, "[2]", False),
        (True, "{}", True),
    ],
)
async def test_schemas_are_of_2019_09_unless_they_say_otherwise(
    harness: PipelineHarness, schema: Any, text: str, fits: bool
) -> None:
    row = await harness.do(cli("a", "echo", text, output=Output("json", schema)))
    assert row.status == ("completed" if fits else "failed")


async def test_a_text_contract_is_never_parsed_as_json(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "echo", "[1]", output=Output("text")),
        cli("b", "echo", words(ref("a", "json"))),
    )
    assert row.error is not None
    assert row.error.code == "no_json"


BROKEN = b'{"name": "a\xffb"}'


async def test_truncated_output_of_a_killed_command_is_not_json(harness: PipelineHarness) -> None:
    printing = "import time; print('12345', flush=True); time.sleep(60)"
    row = await harness.do(
        python("a", printing, timeout=1.0, effect="read", output=Output("json", max_bytes=2), on_error="continue"),
        cli("b", "echo", words(ref("a", "json"))),
    )
    assert row.error is not None
    assert row.error.code == "no_json"
    assert (await harness.outputs(row.id))["a"] == "12"


async def test_invalid_utf_8_is_not_json(harness: PipelineHarness) -> None:
    """Invalid bytes are replaced in the output, so a value with them would differ from what was sent."""
    printing = f"import sys; sys.stdout.buffer.write({BROKEN!r})"
    async with Server(answer(BROKEN)) as server:
        for step in (python("a", printing, output=Output("json")), http("a", server.url(), output=Output("json"))):
            row = await harness.do(step)
            assert message(row) == "Step a failed: Output contract violated: it is not JSON: its output is not UTF-8"
        for step in (python("a", printing), http("a", server.url())):
            row = await harness.do(step, cli("b", "echo", words(ref("a", "json", "name"))))
            assert row.error is not None
            assert row.error.code == "no_json"
            assert (await harness.outputs(row.id))["a"] == '{"name": "a\ufffdb"}'


async def test_json_in_another_charset_is_decoded(harness: PipelineHarness) -> None:
    named = answer('{"name": "ü"}'.encode("latin-1"), headers=[("Content-Type", "application/json; charset=latin-1")])
    async with Server(named) as server:
        row = await harness.do(
            http("a", server.url(), output=Output("json")), cli("b", "echo", words(ref("a", "json", "name")))
        )
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["b"] == "ü\n"


async def test_invalid_utf_8_from_a_killed_command_is_not_json(harness: PipelineHarness) -> None:
    printing = f"import sys, time; sys.stdout.buffer.write({BROKEN!r}); sys.stdout.flush(); time.sleep(60)"
    row = await harness.do(
        python("a", printing, timeout=5.0, effect="read", on_error="continue"),
        cli("b", "echo", words(ref("a", "json", "name"))),
    )
    assert row.error is not None
    assert row.error.code == "no_json"


async def test_a_result_of_a_tool_beyond_the_cap_is_cut_without_a_word_in_it() -> None:
    step = Step("a", Mcp("t.give", {}), output=Output("json"))
    cut = ToolResult('{"rows":[0,1\n[cut: the first 12 of 300 bytes of JSON are shown]', kept=12)
    result = read(step, cut)
    assert (str(result.text), result.facts.truncated) == ('{"rows":[0,1', True)
    assert violations(step.output, result) == ["it is not JSON: its output was cut at the limit"]


def test_a_tool_called_by_a_model_has_no_contract() -> None:
    step = Step("a", Llm("default", words("Guess.")), output=Output("json", {"type": "object"}))
    assert broken(step, ToolResult("written")) == ""
    assert "it is not JSON" in broken(Step("a", Mcp("t.give", {}), output=Output("json")), ToolResult("written"))
