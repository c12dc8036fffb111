"""Approvals by named people, by roles, by several, and by someone else: the same on every path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.roles import NotAllowed
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import AlreadyVoted, BadInput, NotFound
from cuebook.kernel.events import WaitClosed
from cuebook.kernel.votes import Rule
from cuebook.service.service import Principal
from tests.gate.harness import GateHarness

ADA, BOB, CLEO, DAN = (Principal(name) for name in ("ada", "bob", "cleo", "dan"))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


def asking(**rule: Any) -> RunCommand:
    return RunCommand(("touch", "made.txt"), approval="Make it?", rule=Rule(**rule))


async def test_two_of_three_people_approve_and_the_journal_names_both(harness: GateHarness) -> None:
    row = await harness.run(asking(by=("ada", "bob", "cleo"), votes=2), who=ADA)
    wait = await harness.wait(row.id)
    assert wait.details["offers"] == []
    with pytest.raises(NotAllowed, match="dan may not decide this: it is for ada, bob, cleo"):
        await harness.service.decide(wait.id, "approve", DAN)
    open_still = await harness.service.decide(wait.id, "approve", BOB, reason="Looks right")
    assert open_still.state == "open"
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"
    assert not (harness.workspace / "made.txt").exists()
    with pytest.raises(AlreadyVoted):
        await harness.service.decide(wait.id, "approve", BOB)
    assert (await harness.service.decide(wait.id, "approve", CLEO)).state == "answered"
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "made.txt").exists()
    closed = [e.event async for e in harness.service.entries(row.id) if isinstance(e.event, WaitClosed)]
    assert [(one["by"], one["decision"]) for one in closed[0].answer["votes"]] == [
        ("bob", "approve"),
        ("cleo", "approve"),
    ]
    assert (await harness.service.verify(row.id)).broken_at is None


async def test_many_votes_at_the_same_moment_are_all_counted_and_one_decides(harness: GateHarness) -> None:
    row = await harness.run(asking(votes=3))
    wait = await harness.wait(row.id)
    people = [Principal(f"person{number}") for number in range(6)] * 2
    said = await asyncio.gather(
        *(harness.service.decide(wait.id, "approve", who) for who in people), return_exceptions=True
    )
    done = await harness.service.wait_row(wait.id)
    assert len(done.answer["votes"]) == len({one["by"] for one in done.answer["votes"]}) == 3
    assert sum(not isinstance(one, Exception) for one in said) == 3
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_a_denial_ends_it_with_the_votes_on_record(harness: GateHarness) -> None:
    row = await harness.run(asking(votes=2))
    wait = await harness.wait(row.id)
    await harness.service.decide(wait.id, "approve", BOB)
    await harness.service.decide(wait.id, "deny", CLEO, reason="Not today")
    row = await harness.service.drive(row.id)
    assert row.status == "cancelled"
    assert row.error is not None
    assert "cleo denied it: Not today" in row.error.message


async def test_votes_that_did_not_decide_are_kept_when_the_run_is_cancelled(harness: GateHarness) -> None:
    row = await harness.run(asking(votes=2))
    wait = await harness.wait(row.id)
    await harness.service.decide(wait.id, "approve", BOB)
    await harness.service.cancel(row.id)
    assert (await harness.service.drive(row.id)).status == "cancelled"
    assert (await harness.service.verify(row.id)).broken_at is None


async def test_roles_and_the_requester_are_checked_for_everyone(harness: GateHarness) -> None:
    row = await harness.run(asking(by=("role:admin",), different_person=True), who=ADA)
    wait = await harness.wait(row.id)
    approver = Principal("bob", roles=frozenset({"approver"}))
    with pytest.raises(NotAllowed, match="role:admin"):
        await harness.service.decide(wait.id, "approve", approver)
    with pytest.raises(NotAllowed, match="the playbook requires someone else"):
        await harness.service.decide(wait.id, "approve", ADA)
    with pytest.raises(NotAllowed, match="A token has no name"):
        await harness.service.decide(
            wait.id, "approve", Principal("guest", roles=frozenset()), token=harness.service.token(wait.id)
        )
    with pytest.raises(NotAllowed, match="requires the role approver"):
        await harness.service.decide(wait.id, "approve", Principal("eve", roles=frozenset({"runner"})))
    with pytest.raises(BadInput, match="only be approved once"):
        await harness.service.decide(wait.id, "approve", CLEO, lasts="always")
    await harness.service.decide(wait.id, "approve", CLEO)
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_what_no_one_can_approve_fails_at_once(harness: GateHarness) -> None:
    row = await harness.run(asking(by=("ada", "bob"), votes=2, different_person=True), who=ADA)
    assert row.status == "failed"
    assert row.error is not None
    assert "it can never be approved" in row.error.message


async def test_an_approval_is_found_by_its_short_id_and_a_mistyped_one_is_recognised(harness: GateHarness) -> None:
    row = await harness.run(asking())
    wait = await harness.wait(row.id)
    short = wait.id[:8]
    assert (await harness.service.waiting(f"`{short.upper()}`.")).id == wait.id
    wrong = short[:-1] + ("a" if short[-1] != "a" else "b")
    with pytest.raises(NotFound, match="mistyped"):
        await harness.service.waiting(wrong)
