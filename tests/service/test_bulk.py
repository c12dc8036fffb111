"""Acting on many runs: each with its own permission and its own record, in bounded batches."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.effects import AskHuman
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import CancelRequested
from cuebook.kernel.ports import RunFilter
from cuebook.kernel.run import RunRow, Settings
from tests.gate.harness import GateHarness, doing
from tests.support.records import claim

SAM = Principal("sam", roles=frozenset({"runner"}))
ADA = Principal("ada", roles=frozenset({"runner"}))
ADMIN = Principal("root", roles=frozenset({"admin"}))
VIEWER = Principal("vic", roles=frozenset({"viewer"}))
OPEN = RunFilter(status=["pending", "awaiting_input"])


async def begun(harness: GateHarness, who: Principal) -> RunRow:
    return await harness.service.start_program("asks", "asks.md", {}, Settings(), who)


@pytest.fixture
async def harness(tmp_path: Path) -> GateHarness:
    return GateHarness(tmp_path, {"runs": {"cancel": "owner"}}, make=doing(AskHuman("Go on?")))


async def test_each_run_is_cancelled_only_by_who_may_cancel_it(harness: GateHarness) -> None:
    mine, hers = await begun(harness, SAM), await begun(harness, ADA)
    acted = await harness.service.bulk.act("cancel", OPEN, SAM, reason="spring")
    assert acted.done == [mine.id]
    (refused,) = acted.refused
    assert (refused.run, refused.code) == (hers.id, "not_allowed")
    assert "ada started it" in refused.reason
    assert refused.fix == "Ask ada, or an admin."
    (act,) = await harness.service.admin_audit.acts(ADMIN)
    assert (act.act.what, act.act.by, act.act.details) == (
        "runs.cancel",
        "sam",
        {"reason": "spring", "done": 1, "refused": 1},
    )
    await harness.service.drive(mine.id)
    asked = [
        entry.event async for entry in harness.service.entries(mine.id) if isinstance(entry.event, CancelRequested)
    ]
    assert [(one.by, one.reason) for one in asked] == [("sam", "spring")]
    await harness.close()


async def test_a_dry_run_says_what_would_be_refused_and_changes_nothing(harness: GateHarness) -> None:
    mine, hers = await begun(harness, SAM), await begun(harness, ADA)
    shown = await harness.service.bulk.act("cancel", OPEN, SAM, dry_run=True)
    assert (shown.done, [one.run for one in shown.refused]) == ([mine.id], [hers.id])
    assert [row.status for row in await harness.service.runs()] == ["pending", "pending"]
    assert await harness.service.admin_audit.acts(ADMIN) == []
    nobody = await harness.service.bulk.act("cancel", OPEN, VIEWER)
    assert (nobody.done, {one.code for one in nobody.refused}) == ([], {"not_allowed"})
    with pytest.raises(NotAllowed):
        await harness.service.bulk.act("cancel", OPEN, Principal("x", roles=frozenset()))
    await harness.close()


async def test_many_runs_are_acted_on_a_batch_at_a_time(harness: GateHarness) -> None:
    runs = [(await begun(harness, SAM)).id for _ in range(7)]
    sizes, done, cursor = [], [], ""
    while True:
        acted = await harness.service.bulk.act("cancel", OPEN, SAM, limit=3, cursor=cursor)
        sizes.append(len(acted.done))
        done += acted.done
        cursor = acted.next
        if not cursor:
            break
    assert (sizes, done) == ([3, 3, 1], runs[::-1])
    await harness.close()


async def test_a_run_that_is_being_cancelled_is_not_stopped_at_once(harness: GateHarness) -> None:
    row = await begun(harness, SAM)
    writer = await claim(harness.store, row.id)
    undoing = msgspec.structs.replace(row, status="awaiting_approval")
    await harness.store.release(writer.batch(CancelRequested("", "sam"), row=undoing), unless_news=False)
    acted = await harness.service.bulk.act("cancel", RunFilter(among=[row.id]), SAM)
    assert acted.done == []
    assert "is already being cancelled" in acted.refused[0].reason
    await harness.close()


async def test_runs_that_are_named_are_all_accounted_for(harness: GateHarness) -> None:
    row = await begun(harness, SAM)
    acted = await harness.service.bulk.act("cancel", RunFilter(among=[row.id, "unknown"]), SAM)
    assert acted.done == [row.id]
    assert [(one.run, one.code) for one in acted.refused] == [("unknown", "not_found")]
    await harness.service.drive(row.id)
    again = await harness.service.bulk.act("cancel", RunFilter(among=[row.id]), SAM)
    assert "already cancelled" in again.refused[0].reason
    assert (await harness.service.bulk.act("retry", RunFilter(among=[row.id]), SAM)).done == [row.id]
    await harness.close()


async def test_without_a_status_only_fitting_runs_are_considered(harness: GateHarness) -> None:
    waiting, over = await begun(harness, SAM), await begun(harness, SAM)
    await harness.service.drive(waiting.id)
    await harness.service.cancel(over.id, "", SAM)
    await harness.service.drive(over.id)
    which = RunFilter(name="asks.md")
    assert (await harness.service.bulk.act("cancel", which, SAM, dry_run=True)).done == [waiting.id]
    assert (await harness.service.bulk.act("retry", which, SAM, dry_run=True)).done == [over.id]
    resumed = await harness.service.bulk.act("resume", which, SAM, dry_run=True)
    assert (resumed.done, resumed.refused) == ([], [])
    for nothing in (RunFilter(), RunFilter(status=[], name=None)):
        with pytest.raises(BadInput, match="Nothing says which runs are meant"):
            await harness.service.bulk.act("cancel", nothing, SAM)
    await harness.close()
