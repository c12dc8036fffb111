"""The guide to loops, branches and waits: its pipelines have no findings, and each runs as it is written."""

from __future__ import annotations

import json

import pytest

from cuebook.dialects.pipeline.check import check
from cuebook.dialects.pipeline.parse.flow import FLOW
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, blocks

GUIDE = DOCS / "guides" / "flow.md"
PIPELINES = [block for block in blocks(GUIDE) if block.language == "yaml"]
each = pytest.mark.parametrize("block", PIPELINES, ids=[f"line {one.line}" for one in PIPELINES])


@each
def test_nothing_is_wrong_with_a_pipeline_of_the_guide(block: Block) -> None:
    assert [one for one in check(block.text, "flow.yml") if one.severity != "note"] == []


def test_the_guide_covers_every_field() -> None:
    whole = "".join(block.text for block in PIPELINES)
    for field in (*FLOW, "on_failure", "finally", "until"):
        assert f"{field}:" in whole


@each
def test_a_pipeline_of_the_guide_runs_as_it_is_written(cli: CommandLine, block: Block) -> None:
    cli.write("flow.yml", block.text)
    ran = cli.call("run", "flow.yml", "--no-ask", "--json")
    shown = json.loads(ran.out)
    if shown["status"] == "awaiting_approval":
        cli.call("decide", shown["run"], "deny", "--reason", "it is too early")
        shown = cli.call("show", shown["run"], "--json").object
    assert shown["status"] == "completed", ran.out
