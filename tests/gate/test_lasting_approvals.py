"""Approvals that last: for the rest of a run, or for all runs. They are narrow, recorded, revocable, and weaker than a deny."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.effects import CallTool, RunCommand
from cuebook.kernel.errors import AlreadyAnswered, BadInput, NotFound
from cuebook.kernel.events import Performing, WaitClosed
from tests.gate.harness import GateHarness

TOUCH = RunCommand(("touch", "made"))
ANN = Principal("ann", roles=frozenset({"approver"}))
BEN = Principal("ben", roles=frozenset({"runner"}))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


async def rulings(harness: GateHarness, run: str) -> list[dict[str, Any]]:
    return [entry.event.ruling async for entry in harness.service.entries(run) if isinstance(entry.event, Performing)]


async def test_an_approval_for_the_run_covers_the_same_action_in_it_and_in_no_other_run(harness: GateHarness) -> None:
    run = await harness.run(TOUCH, TOUCH, TOUCH)
    assert (await harness.wait(run.id)).details["offers"][0] == [["command", "touch made"]]
    assert (await harness.decide(run.id, "approve", ANN, lasts="run")).status == "completed"
    first, second, third = await rulings(harness, run.id)
    (override,) = (await harness.service.view(run.id)).overrides
    assert "approved" in first
    assert second == third
    assert second["overrides"] == [override.id]
    assert second["rules"] == [f"allowed for this run: 'touch made' by ann (override {override.id})"]
    assert (await harness.run(TOUCH)).status == "awaiting_approval"


async def test_the_journal_says_who_allowed_what_and_when(harness: GateHarness) -> None:
    run = await harness.run(TOUCH, TOUCH)
    harness.now += 60
    await harness.decide(run.id, "approve", ANN, lasts="run")
    (closed,) = [entry async for entry in harness.service.entries(run.id) if isinstance(entry.event, WaitClosed)]
    assert isinstance(closed.event, WaitClosed)
    assert (closed.event.by, closed.at, closed.event.answer["lasts"]) == ("ann", harness.now, "run")
    (override,) = (await harness.service.view(run.id)).overrides
    assert closed.event.answer["for_run"] == [{"id": override.id, "domain": "command", "pattern": "touch made"}]


async def test_another_process_that_drives_the_run_knows_what_was_allowed(tmp_path: Path) -> None:
    first = GateHarness(tmp_path)
    run = await first.run(TOUCH, RunCommand(("rmdir", "x")), TOUCH)
    assert (await first.decide(run.id, "approve", lasts="run")).status == "awaiting_approval"
    await first.close()
    second = GateHarness(tmp_path, make=first.make)
    assert (await second.wait(run.id)).prompt == "Run rmdir x"
    assert (await second.decide(run.id, "approve")).status == "completed", "the third command was asked about again"
    await second.close()


async def test_what_is_revoked_is_asked_about_again_in_the_same_run(harness: GateHarness) -> None:
    run = await harness.run(TOUCH, RunCommand(("rmdir", "x")), TOUCH)
    await harness.decide(run.id, "approve", lasts="run")
    (override,) = await harness.service.run_overrides(run.id)
    with pytest.raises(NotAllowed):
        await harness.service.revoke_override(override.id, BEN)
    with pytest.raises(NotFound):
        await harness.service.revoke_override(f"{run.id}.0", ANN)
    await harness.service.revoke_override(override.id, ANN)
    assert (await harness.decide(run.id, "approve")).status == "awaiting_approval"
    assert (await harness.wait(run.id)).prompt == "Run touch made"
    (override,) = await harness.service.run_overrides(run.id)
    assert (override.revoked, override.revoked_by) == (True, "ann")


async def test_an_approval_for_all_runs_is_a_stored_override(harness: GateHarness) -> None:
    run = await harness.run(TOUCH, TOUCH)
    assert (await harness.decide(run.id, "approve", ANN, lasts="always")).status == "completed"
    (override,) = await harness.service.overrides()
    assert (override.domain, override.pattern, override.by, override.expires) == ("command", "touch made", "ann", None)
    other = await harness.run(TOUCH)
    assert other.status == "completed"
    assert (await rulings(harness, other.id))[0]["overrides"] == [override.id]
    await harness.service.revoke_override(override.id, ANN)
    assert (await harness.run(TOUCH)).status == "awaiting_approval"


@pytest.mark.parametrize("lasts", ["run", "always"])
async def test_a_deny_wins_over_what_was_allowed_in_advance(harness: GateHarness, lasts: str) -> None:
    run = await harness.run(TOUCH, RunCommand(("rmdir", "x")), TOUCH)
    await harness.decide(run.id, "approve", lasts=lasts)
    harness.allow({"commands": {"deny": ["touch *"]}})
    ended = await harness.decide(run.id, "approve")
    assert ended.status == "failed"
    assert ended.error is not None
    assert "touch made: the policy denies it" in ended.error.message


async def test_only_what_was_offered_can_be_allowed(harness: GateHarness) -> None:
    run = await harness.run(RunCommand(("touch", "a b")))
    wait = await harness.wait(run.id)
    assert wait.details["offers"] == [[["command", "touch 'a b'"]], [["command", "touch 'a b'*"]]]
    for more in ({"offer": 0}, {"offer": 3}, {"lasts": "ever"}):
        with pytest.raises(BadInput):
            await harness.service.decide(wait.id, "approve", ANN, **{"lasts": "run", **more})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="Only an approval can last"):
        await harness.service.decide(wait.id, "deny", ANN, lasts="run")
    assert (await harness.wait(run.id)).state == "open"
    await harness.decide(run.id, "approve", ANN, lasts="run", offer=2)
    assert [one.pattern for one in await harness.service.run_overrides(run.id)] == ["touch 'a b'*"]


async def test_neither_a_token_nor_a_user_without_the_role_can_allow_more(harness: GateHarness) -> None:
    run = await harness.run(TOUCH)
    wait = await harness.wait(run.id)
    with pytest.raises(NotAllowed):
        await harness.service.decide(wait.id, "approve", BEN, lasts="run")
    with pytest.raises(NotAllowed, match="A token decides once"):
        await harness.service.decide(wait.id, "approve", lasts="always", token=harness.service.token(wait.id))
    assert await harness.service.overrides() == []


async def test_of_two_decisions_only_the_one_that_counts_stores_an_override(harness: GateHarness) -> None:
    run = await harness.run(TOUCH)
    wait = await harness.wait(run.id)
    await harness.service.decide(wait.id, "deny", ANN)
    with pytest.raises(AlreadyAnswered):
        await harness.service.decide(wait.id, "approve", ANN, lasts="always")
    assert await harness.service.overrides() == []


@pytest.mark.parametrize(
    ("effect", "policy", "why"),
    [
        (RunCommand(("touch", "made"), approval="Really?"), {}, "the step asks for approval"),
        (RunCommand(("touch", "x"), from_outside=True), {}, "it depends on the output of a model"),
        (CallTool("Bash", {"command": "touch a*"}), {}, "must not contain a ?, or a * anywhere but at the end"),
        (CallTool("Bash", {"command": "touch a\ntouch $b"}), {}, "must not contain line breaks"),
        (RunCommand(("cat", "x"), reads_only=True), {"files": {"deny": [".env"]}}, "it could read files"),
    ],
)
async def test_what_has_no_safe_pattern_is_approved_once_and_says_why(
    harness: GateHarness, effect: Any, policy: dict[str, Any], why: str
) -> None:
    harness.allow(policy)
    run = await harness.run(effect)
    wait = await harness.wait(run.id)
    assert wait.details["offers"] == []
    assert why in wait.details["once_only"]
    with pytest.raises(BadInput, match="can only be approved once"):
        await harness.service.decide(wait.id, "approve", ANN, lasts="run")


async def test_someone_else_may_allow_it_for_the_run_where_the_owner_may_not_decide(harness: GateHarness) -> None:
    harness.allow({"approvals": {"different_person": True}})
    run = await harness.run(TOUCH, TOUCH)
    with pytest.raises(NotAllowed):
        await harness.decide(run.id, "approve", lasts="run")
    assert (await harness.decide(run.id, "approve", ANN, lasts="run")).status == "completed"


async def test_a_retry_keeps_what_was_allowed_for_the_run(harness: GateHarness) -> None:
    run = await harness.run(TOUCH, RunCommand(("rmdir", "x")), TOUCH)
    await harness.decide(run.id, "approve", lasts="run")
    assert (await harness.decide(run.id, "deny")).status == "cancelled"
    await harness.service.retry(run.id, whole_step=True)
    assert (await harness.service.drive(run.id)).status == "awaiting_approval"
    assert (await harness.decide(run.id, "approve")).status == "completed"
    assert len(await harness.service.run_overrides(run.id)) == 1
