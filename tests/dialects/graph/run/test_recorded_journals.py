"""Journals recorded by earlier interpreters replay, and their waiting runs continue as they would have then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.dialects.graph import Graph
from cuebook.dialects.graph.parse import parse
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from tests.dialects.graph.harness import GraphHarness
from tests.dialects.graph.run.journals import HERE, READ, harness_on
from tests.kernel.journals import Kept, put_into

JOURNALS = sorted(HERE.glob("*/*.json"))
EARLIER = [f"interpreter-{number}" for number in range(1, Graph.interpreter)]


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def recorded(name: str) -> list[Path]:
    return [file for file in JOURNALS if file.stem == name]


def read(file: Path) -> Kept:
    return msgspec.json.decode(file.read_bytes(), type=Kept)


async def with_run(store: Store, file: Path, **run: object) -> tuple[GraphHarness, str]:
    kept = read(file)
    harness = harness_on(store, **run)
    harness.workflow = parse(kept.text, "flow.yml")
    await put_into(store, harness.service._engine, kept)
    return harness, kept.row.id


async def approved(harness: GraphHarness, run: str) -> RunRow:
    (wait,) = await harness.store.waits(run=run)
    await harness.service.decide(wait.id, "approve")
    return await harness.service.drive(run)


def test_there_are_journals_of_every_earlier_interpreter() -> None:
    assert sorted({file.parent.name for file in JOURNALS}) == EARLIER


@pytest.mark.parametrize("file", JOURNALS, ids=name_of)
async def test_a_journal_replays(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    shown = await harness.service.replay(run)
    row = await store.run(run)
    assert f"interpreter-{row.interpreter}" == file.parent.name
    assert (shown.complete, shown.failed is not None) == (row.status in ("completed", "failed"), row.status == "failed")
    assert (await harness.service.verify(run)).broken_at is None
    assert (harness.calls, harness.tools.called) == ([], [])


@pytest.mark.parametrize("file", recorded("waiting"), ids=name_of)
async def test_a_waiting_run_continues(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    row = await approved(harness, run)
    assert (row.status, harness.calls) == ("completed", ["run fix", "run note"])
    assert (await harness.service.replay(run)).complete
    assert (await harness.service.verify(run)).broken_at is None


async def test_a_run_of_the_first_interpreter_gets_no_sub_agents_and_no_closing_turn(store: Store) -> None:
    file = HERE / "interpreter-1" / "waiting.json"
    harness, run = await with_run(store, file, fix=[{**READ, "then": READ}])
    row = await approved(harness, run)
    assert row.status == "failed"
    assert [one.tools for one in harness.asked("run", "fix")] == [["Read"], ["Read"]]
    assert (await harness.results(run))["fix"]["data"]["error"] == "The model did not finish within 2 turns."
    assert (await harness.service.replay(run)).complete


@pytest.mark.parametrize("file", recorded("paused"), ids=name_of)
async def test_a_paused_run_continues(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    await harness.service.resume(run)
    row = await harness.service.drive(run)
    assert (row.status, harness.calls) == ("awaiting_approval", ["route look"])
    assert (await approved(harness, run)).status == "completed"


@pytest.mark.parametrize("file", recorded("failed"), ids=name_of)
async def test_a_failed_run_is_retried_where_it_failed(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    await harness.service.retry(run)
    row = await harness.service.drive(run)
    if row.status == "awaiting_approval":
        row = await approved(harness, run)
    assert (row.status, harness.calls) == ("completed", ["run fix", "run note"])


@pytest.mark.parametrize("file", recorded("completed"), ids=name_of)
async def test_a_restart_of_an_old_run_stays_with_its_interpreter(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    fork = await harness.service.restart(run, "note")
    row = await harness.service.drive(fork.id)
    assert (row.status, f"interpreter-{row.interpreter}") == ("completed", file.parent.name)
    assert harness.calls == ["run note"]


@pytest.mark.parametrize("file", recorded("branches-waiting"), ids=name_of)
async def test_a_run_with_a_waiting_branch_continues(file: Path, store: Store) -> None:
    harness, run = await with_run(store, file)
    row = await approved(harness, run)
    assert (row.status, harness.calls) == ("completed", ["run tests", "run report"])


@pytest.mark.parametrize("file", recorded("tasks-waiting"), ids=name_of)
async def test_a_run_whose_sub_agents_have_finished_continues(file: Path, store: Store) -> None:
    """At that time, each sub-agent could use the whole budget of its node, so that node has failed."""
    harness, run = await with_run(store, file)
    row = await approved(harness, run)
    assert (row.status, harness.calls) == ("failed", ["run end"])
    assert "has used up its budget of 3000 tokens" in (await harness.results(run))["lead"]["data"]["error"]
    assert (await harness.service.replay(run)).complete
