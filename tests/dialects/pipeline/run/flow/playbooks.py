"""Runs pipelines that are written out, for the tests of loops, branches, waits and sections."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.run.interpret import interpret
from cuebook.kernel.fold.dry_replay import rehearse
from cuebook.kernel.run import RunRow
from tests.dialects.pipeline.harness import PipelineHarness


async def play(harness: PipelineHarness, text: str, **inputs: Any) -> RunRow:
    """Starts a run of a pipeline and drives it until it waits or ends."""
    harness.pipeline = parse("name: Test\n" + dedent(text).lstrip("\n"), "test.yml")
    return await harness.service.take_up(await harness.start(inputs=inputs))


async def later(harness: PipelineHarness, seconds: float, run: str) -> RunRow:
    """Lets time pass, and drives the run until it waits again or ends."""
    harness.now += seconds
    await harness.store.expire(harness.now)
    return await harness.service.take_up(run)


async def same_on_replay(harness: PipelineHarness, run: str) -> None:
    """Replays the run on its journal; raises `NonDeterminism` if it takes another way."""
    row = await harness.store.run(run)
    rehearse(
        lambda row, text, inputs, options: lambda state: interpret(harness.pipeline, inputs, options, state),
        row,
        "",
        await harness.entries(run),
    )
