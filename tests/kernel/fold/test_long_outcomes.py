"""Long texts in outcomes are available to the program and to later readers of the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cuebook.kernel.context import INLINE_LIMIT
from cuebook.kernel.effects import All, Program, ReadSource, RunCommand
from cuebook.kernel.events import StepFinished, StepStarted
from tests.gate.harness import GateHarness

LONG = "a word after another\n" * 400


def reading(inputs: dict[str, Any]) -> Program[Any]:
    yield StepStarted("1")
    source = yield ReadSource("file:long.txt")
    several = yield All((ReadSource("file:long.txt"), RunCommand(("cat", "long.txt"), reads_only=True)))
    yield StepFinished("1", output=source.content)
    return [str(source.content), str(several[0].content), str(several[1].stdout)]


async def test_a_program_sees_a_long_text_and_the_store_keeps_it(tmp_path: Path) -> None:
    assert len(LONG) > INLINE_LIMIT
    harness = GateHarness(tmp_path, make=reading)
    (harness.workspace / "long.txt").write_text(LONG)
    row = await harness.run()
    assert row.status == "completed", row.error
    await harness.close()

    later = GateHarness(tmp_path, make=reading)
    (later.workspace / "long.txt").unlink()
    try:
        assert await later.result(row.id) == [LONG, LONG, LONG]
        assert (await later.service.replay(row.id)).result == [LONG, LONG, LONG]
    finally:
        await later.close()
