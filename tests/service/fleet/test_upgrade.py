"""A rolling upgrade: workers of two releases share a store while runs are in progress."""

from __future__ import annotations

import asyncio

import pytest

from cuebook.dialects.markdown import Markdown
from cuebook.kernel.events import ValueSet
from tests.service.fleet.fleet import Fleet
from tests.service.fleet.machine_process import NEXT
from tests.support.model_server import ModelServer
from tests.support.programs import eventually

pytestmark = pytest.mark.needs("postgres")

BOOK = '# Book\n\n## STEP 1: A\n\n@elicit(input, "Which?")\n\nSay one.\n\n## STEP 2: B\n\nSay two.\n'


async def answered(fleet: Fleet, runs: list[str]) -> None:
    for run in runs:
        await fleet.until(run, "awaiting_input")
        (wait,) = await fleet.service.waits(run)
        await fleet.service.answer(wait.id, "this")


async def sets_next(fleet: Fleet, run: str) -> bool:
    entries = [entry.event async for entry in fleet.service.entries(run)]
    return any(isinstance(event, ValueSet) and event.name == NEXT for event in entries)


async def test_runs_of_two_releases_are_driven_side_by_side(fleet: Fleet, server: ModelServer) -> None:
    await fleet.use_model(server.url)
    (fleet.work / "book.playbook.md").write_text(BOOK)
    old = fleet.hire_elsewhere()
    begun = [fleet.begin("run", "book.playbook.md", upgraded=True) for _ in range(2)]
    of_old = [await fleet.start(BOOK) for _ in range(3)]
    assert [one.code() for one in begun] == [3, 3], begun[0].said
    of_new = [row.id for row in await fleet.rows() if row.interpreter == Markdown.interpreter + 1]
    assert len(of_new) == 2
    for run in of_new:
        await fleet.offer(run)
    await answered(fleet, [*of_new, of_old[0]])
    await fleet.finish(of_old[:1])
    await asyncio.sleep(1.0)  # the old worker has looked at all of them several times
    before = [await fleet.service.row(run) for run in of_new]
    assert {row.status for row in before} == {"awaiting_input"}
    assert {row.epoch for row in before} == {2}, (
        "claimed and released by the command that started it, and by no one else"
    )
    for run in of_old[1:]:
        await fleet.until(run, "awaiting_input")
    new = fleet.hire_elsewhere(upgraded=True).until_up()
    await fleet.finish(of_new)
    assert old.stop() == 0
    await answered(fleet, of_old[1:])
    await fleet.finish(of_old)
    drivers = {driver for run in of_new for driver in (await fleet.drivers(run))[1:]}
    assert len(drivers) == 1
    assert drivers == {(await fleet.drivers(run))[-1] for run in of_old[1:]}
    assert [await sets_next(fleet, run) for run in of_new] == [True, True]
    assert [await sets_next(fleet, run) for run in of_old] == [False] * 3
    await fleet.check(of_old)
    assert new.stop() == 0


async def test_a_run_of_a_newer_release_says_why_it_waits(fleet: Fleet, server: ModelServer) -> None:
    await fleet.use_model(server.url)
    (fleet.work / "book.playbook.md").write_text(BOOK)
    assert fleet.begin("run", "book.playbook.md", upgraded=True).code() == 3
    (row,) = await fleet.rows()
    (wait,) = await fleet.service.waits(row.id)
    answering = fleet.begin("answer", wait.id, "this")
    assert answering.code() == 2, answering.said
    assert "was started by a newer Cuebook" in answering.said
    resuming = fleet.begin("resume", row.id)
    assert resuming.code() == 2, resuming.said
    assert "Continue it with the newer version" in resuming.said

    async def still_there() -> bool:
        return (await fleet.service.row(row.id)).epoch == 2

    assert await eventually(still_there)
