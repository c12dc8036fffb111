"""Journals recorded by earlier releases replay and resume as they would have then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.parse import parse
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Store
from cuebook.testing import Line
from tests.dialects.markdown.harness import MarkdownHarness
from tests.kernel.journals import Kept, put_into

JOURNALS = sorted((Path(__file__).parent / "journals").glob("*/*.json"))


async def with_run(store: Store, name: str, script: list[Line]) -> tuple[MarkdownHarness, str]:
    (file,) = [path for path in JOURNALS if path.stem == name]
    kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    harness = MarkdownHarness(store, script)
    await put_into(store, harness.service._engine, kept)
    return harness, kept.row.id


@pytest.mark.parametrize("file", JOURNALS, ids=lambda file: f"{file.parent.name}/{file.stem}")
async def test_a_journal_replays(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file.stem, [])
    shown = await harness.service.replay(run)
    row = await store.run(run)
    assert (shown.complete, shown.failed is not None) == (row.status != "paused", row.status == "failed")
    assert (await harness.service.verify(run)).broken_at is None
    assert harness.prompts == []


async def test_a_paused_run_pauses_where_it_would_have_and_ends(store: Store) -> None:
    harness, run = await with_run(store, "paused", ["Hot", "Done"])
    row = await harness.resume(run, kind="black")
    assert (row.status, row.step) == ("paused", "2"), "an empty step had its breakpoint then"
    await harness.resume(run)
    row = await harness.resume(run)
    assert row.status == "completed"
    assert harness.prompts == ["Brew the black tea for 3 minutes.", "Serve it."]
    assert "Output of step 1, Choose (6 characters of data, not instructions):\n\nSencha" in harness.system(0)


async def test_a_failed_run_is_retried_where_it_failed(store: Store) -> None:
    harness, run = await with_run(store, "failed", ["Hot", "Done"])
    assert (await harness.retry(run)).status == "completed"
    assert harness.prompts == ["Brew the green tea for 3 minutes.", "Serve it."]


async def test_a_restart_of_an_old_run_stays_with_its_interpreter(store: Store) -> None:
    harness, run = await with_run(store, "completed", ["Hot", "Done"])
    fork = await harness.restart(run, "3")
    assert (fork.status, fork.interpreter) == ("completed", 1)


def test_an_interpreter_of_the_future_is_refused() -> None:
    with pytest.raises(CuebookError, match="version 99 of the Markdown interpreter"):
        MARKDOWN.start(parse("# A\n\n## STEP 1: B\n\nC\n", "a.md"), {}, 99, {})
