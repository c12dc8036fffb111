"""An output that was cut or had bytes replaced fails every step that uses it, and is marked wherever it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.dialects.pipeline.model import Mcp, Output, Step
from cuebook.kernel.context import Text
from tests.dialects.pipeline.harness import PipelineHarness, cli, good_server, http, ref, words
from tests.dialects.pipeline.samples import pipeline as written
from tests.support.http_servers import Server, answer

USES = {
    "argument": "command: 'cli echo \"${big.stdout}\"'",
    "stdin": "{command: cli wc -l, stdin: $big.stdout}",
    "environment": "{command: cli env, env: {ALL: $big.stdout}}",
    "url": "command: 'http http://127.0.0.1:9/${big.stdout}'",
    "header": "{command: http http://127.0.0.1:9/, with: {headers: {X: '${big.stdout}'}}}",
    "body": "{command: http POST http://127.0.0.1:9/, with: {body: $big.stdout}}",
    "json": "{command: http POST http://127.0.0.1:9/, with: {json: {all: $big.stdout}}}",
    "condition": "{command: cli true, condition: '$big.stdout != \"\"'}",
    "path": "{command: cli cat, stdin: $big.json.a}",
    "tool": "{command: mcp good.echo, with: {arguments: {text: $big.stdout}}}",
    "prompt": "{command: llm, llm: {model: default, prompt: 'Sum ${big.stdout}'}, output: json}",
    "input": "{command: llm, stdin: $big.stdout, llm: {model: default, prompt: Sum}, output: json}",
}


def use_of(field: str) -> Step:
    inner = USES[field].removeprefix("{").removesuffix("}") if USES[field].startswith("{") else USES[field]
    return written(f"name: Use\nsteps:\n  - {{id: big, command: cli true}}\n  - {{id: use, {inner}}}\n").steps[1]


@pytest.mark.parametrize("field", USES)
async def test_every_use_of_a_truncated_output_fails(harness: PipelineHarness, field: str) -> None:
    row = await harness.do(cli("big", "seq", "1", "20000"), use_of(field))
    assert row.error is not None
    assert (row.status, row.error.details["step"]) == ("failed", "use")
    assert "the output of step big, which was cut: the first 32,768 of 108,894 bytes were kept" in row.error.message
    assert "output.max_bytes" in row.error.fix


async def test_every_use_of_an_output_with_replaced_bytes_fails(harness: PipelineHarness) -> None:
    row = await harness.do(cli("big", "printf", "a\\377b"), use_of("stdin"))
    assert row.error is not None
    assert "the output of step big, in which invalid UTF-8 bytes were replaced" in row.error.message


async def test_a_larger_limit_keeps_the_whole_output(harness: PipelineHarness) -> None:
    big = cli("big", "seq", "1", "20000", output=Output("text", max_bytes=200_000))
    row = await harness.do(big, use_of("stdin"))
    assert row.status == "completed", row.error
    assert (await harness.service.view(row.id)).outputs["use"] == Text("20000\n")


async def test_an_unused_truncated_output_is_marked_and_the_run_completes(harness: PipelineHarness) -> None:
    row = await harness.do(cli("big", "seq", "1", "20000"), cli("other", "true"))
    view = await harness.service.view(row.id)
    assert row.status == "completed"
    assert view.incomplete == {"big"}
    assert view.notes["big"] == ["warning: Step big: Its output has 108,894 bytes; the first 32,768 are kept."]


async def test_responses_and_tool_results_follow_the_same_rules(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    async with Server(answer(b"x" * 50_000)) as server:
        row = await harness.do(http("big", server.url()), use_of("stdin"))
    assert row.error is not None
    assert "the first 32,768 of 50,000 bytes were kept" in row.error.message
    row = await harness.do(Step("big", Mcp("good.long", {"size": 40_000})), use_of("stdin"))
    row = await harness.decide(row.id, "approve")
    assert row.error is not None
    assert "the first 32,768 of 40,013 bytes were kept" in row.error.message
    await harness.close()


# --- the line end of an output ---


async def test_an_output_is_inserted_into_text_without_its_trailing_newline(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("day", "echo", "2026-11-17"),
        cli("keep", "tee", words("report-", ref("day", "stdout"), ".csv"), stdin=words("It is ", ref("day", "stdout"))),
        cli("alone", "od", "-An", "-c", stdin=words(ref("day", "stdout"))),
        cli("set", "printenv", "DAY", env={"DAY": words(ref("day", "stdout"))}),
    )
    assert row.status == "completed", row.error
    assert (harness.workspace / "report-2026-11-17.csv").read_text() == "It is 2026-11-17"
    outputs = await harness.outputs(row.id)
    assert outputs["alone"].split()[-1] == r"\n"  # what is handed on as it is
    assert outputs["set"] == "2026-11-17\n"


@pytest.mark.parametrize(("printed", "runs"), [("5\n", True), ("5\r\n", True), ("5\n\n", True), ("5 \n", False)])
async def test_a_condition_compares_an_output_without_its_trailing_newline(
    harness: PipelineHarness, printed: str, runs: bool
) -> None:
    compared = written("""
name: C
steps:
  - {id: a, command: cli true}
  - {id: b, command: cli true, condition: '$a.stdout == "5"'}
""").steps[1]
    row = await harness.do(cli("a", "printf", "%s", printed), compared)
    assert (await harness.statuses(row.id))["b"] == ("completed" if runs else "skipped")


async def test_urls_headers_bodies_and_arguments_omit_the_trailing_newline(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    day = words(ref("day", "stdout"))
    async with Server() as server:
        more = {"query": {"day": day}, "headers": {"X-Day": day}, "json": {"day": day}, "has_json": True}
        row = await harness.do(
            cli("day", "echo", "today"),
            http("send", words(server.url("/on/"), ref("day", "stdout")), "POST", more=more),
            http("whole", server.url(), "POST", more={"body": day}),
            Step("say", Mcp("good.say", {"text": day})),
        )
        row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    sent, whole = server.requests
    assert (sent.target, sent.headers["x-day"], sent.body) == ("/on/today?day=today", "today", b'{"day":"today"}')
    assert whole.body == b"today\n"
    assert (await harness.outputs(row.id))["say"] == "today\ntoday"
    await harness.close()
