"""Exactly what a person approves runs, once; everything else ends as the policy says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate import approvals
from cuebook.gate.policy import Policy
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.context import EMPTY
from cuebook.kernel.effects import AskModel, Program, RunCommand, SendHttp
from cuebook.kernel.errors import AlreadyAnswered, BadInput, Elsewhere, NotFound, Refused, WaitExpired
from cuebook.kernel.events import Performing, WaitClosed
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.ports import Action, Admitted, Description, Limits
from cuebook.kernel.run import Budget, Settings
from cuebook.service.service import Principal, Service
from tests.gate.harness import BOOK, GateHarness, doing
from tests.support.programs import EchoModel

HOUR = 3600.0


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


def touch(name: str = "made.txt", **more: Any) -> RunCommand:
    return RunCommand(("touch", name), **more)


# --- before the effect ------------------------------------------------------------------------------------


async def test_a_state_changing_command_waits_before_it_does_anything(harness: GateHarness) -> None:
    row = await harness.run(touch())
    assert row.status == "awaiting_approval"
    assert not (harness.workspace / "made.txt").exists()
    assert not [e async for e in harness.service.entries(row.id) if isinstance(e.event, Performing)]


async def test_the_record_says_what_would_run_who_asks_and_until_when(harness: GateHarness) -> None:
    row = await harness.run(touch(stdin="some text"), who=Principal("ada"))
    wait = await harness.wait(row.id)
    assert wait.kind == "approval"
    assert "touch made.txt" in wait.prompt
    assert "touch made.txt" in wait.details["preview"]["command"]
    assert "some text" in str(wait.details["preview"])
    assert wait.details["requester"] == "ada"
    assert len(wait.details["digest"]) == 64
    assert wait.details["rules"]
    assert wait.expires == harness.now + 24 * HOUR


async def test_a_command_that_only_reads_runs_without_asking(harness: GateHarness) -> None:
    (harness.workspace / "seen.txt").write_text("seen")
    row = await harness.run(RunCommand(("cat", "seen.txt"), reads_only=True))
    assert row.status == "completed"
    assert "seen" in (await harness.result(row.id))[0]


async def test_a_step_may_ask_for_approval_of_something_that_is_allowed(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["touch *"]}})
    row = await harness.run(touch(approval="Really make it?"))
    assert row.status == "awaiting_approval"
    assert (await harness.wait(row.id)).prompt.startswith("Really make it?")


async def test_a_question_that_is_no_longer_needed_is_withdrawn(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["*"]}})
    harness.make = doing(touch("first"), touch("second", approval="Really?"))
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo"))
    harness.allow({"commands": {"ask": ["*"]}})
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"
    asked = await harness.wait(row.id)
    harness.allow({"commands": {"allow": ["*"]}})
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"
    assert (harness.workspace / "first").exists()
    assert [wait.prompt for wait in await harness.service.inbox()] == ["Really? (Run touch second)"]
    with pytest.raises(Refused):
        await harness.service.decide(asked.id, "approve")


class Unlucky(GateHarness):
    """A harness whose policy can no longer be read once a run has started."""

    lost = False

    async def _today(self, tenant: str) -> Policy:
        if self.lost:
            raise OSError("the disk is gone")
        return await super()._today(tenant)


async def test_an_error_in_the_gate_is_a_refusal(tmp_path: Path) -> None:
    harness = Unlucky(tmp_path, {"commands": {"allow": ["*"]}}, make=doing(touch()))
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo"))
    harness.lost = True
    row = await harness.service.drive(row.id)
    assert row.error is not None
    assert row.error.code == "gate_error"
    assert not (harness.workspace / "made.txt").exists()
    await harness.close()


# --- decided ----------------------------------------------------------------------------------------------


async def test_an_approved_command_runs_once(harness: GateHarness) -> None:
    row = await harness.run(RunCommand(("sh", "-c", "echo x >> log")))
    row = await harness.decide(row.id, "approve", reason="looks right")
    assert row.status == "completed"
    assert (harness.workspace / "log").read_text() == "x\n"
    closed = [e.event async for e in harness.service.entries(row.id) if isinstance(e.event, WaitClosed)]
    assert closed[0].answer["reason"] == "looks right"
    assert closed[0].by == "local"


class Describing:
    """A performer of commands that counts how often it describes one."""

    def __init__(self, commands: Any) -> None:
        self._commands = commands
        self.described = 0

    async def describe(self, effect: RunCommand, settings: Settings) -> Any:
        self.described += 1
        return await self._commands.describe(effect, settings)

    async def outline(self, effect: RunCommand, settings: Settings) -> Any:
        self.described += 1
        return await self._commands.outline(effect, settings)

    async def perform(self, effect: RunCommand, call: Any) -> Any:
        return await self._commands.perform(effect, call)


class Counted(GateHarness):
    """A yard that counts how often its commands are described."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.counting = Describing(self.commands)
        self.service._engine.performers = {**self.service._engine.performers, RunCommand: self.counting}
        self.gate._describers[RunCommand] = self.counting
        self.gate._outliners[RunCommand] = self.counting


async def test_after_a_yes_a_command_is_described_once_and_checked_once_more(tmp_path: Path) -> None:
    harness = Counted(tmp_path)
    row = await harness.run(touch())
    harness.counting.described = 0
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "made.txt").exists()
    assert harness.counting.described == 2
    await harness.close()


async def test_a_yes_to_something_else_is_asked_about_again_however_it_is_described(tmp_path: Path) -> None:
    harness = Counted(tmp_path)
    script = harness.workspace / "make.sh"
    script.write_text("touch first.txt")
    row = await harness.run(RunCommand(("sh", "make.sh")))
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    script.write_text("touch second.txt")
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"
    assert not (harness.workspace / "second.txt").exists()
    harness.counting.described = 0
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "second.txt").exists()
    assert harness.counting.described == 2
    await harness.close()


async def test_the_ruling_is_recorded_with_the_intent(harness: GateHarness) -> None:
    row = await harness.run(touch())
    digest = (await harness.wait(row.id)).details["digest"]
    await harness.decide(row.id, "approve")
    intents = [e.event async for e in harness.service.entries(row.id) if isinstance(e.event, Performing)]
    assert [intent.ruling["approved"] for intent in intents] == [digest]
    assert intents[0].ruling["rules"]


async def test_a_denied_command_never_runs_and_cancels_the_run(harness: GateHarness) -> None:
    row = await harness.run(touch())
    row = await harness.decide(row.id, "deny", reason="not on a Friday")
    assert row.status == "cancelled"
    assert row.error is not None
    assert row.error.code == "denied"
    assert "not on a Friday" in row.error.message
    assert not (harness.workspace / "made.txt").exists()


async def test_a_program_may_go_another_way_when_it_is_denied(harness: GateHarness) -> None:
    def make(inputs: dict[str, Any]) -> Program[Any]:
        try:
            yield touch()
        except EffectFailed as error:
            return error.failed.code
        return "done"

    harness.make = make
    row = await harness.run()
    row = await harness.decide(row.id, "deny")
    assert row.status == "completed"
    assert await harness.result(row.id) == "denied"


async def test_an_approval_is_decided_once(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    await harness.service.decide(wait.id, "deny")
    with pytest.raises(AlreadyAnswered):
        await harness.service.decide(wait.id, "approve")
    assert (await harness.service.drive(row.id)).status == "cancelled"
    assert not (harness.workspace / "made.txt").exists()


async def test_only_approve_and_deny_decide_an_approval(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    with pytest.raises(BadInput):
        await harness.service.decide(wait.id, "repeat")
    with pytest.raises(BadInput):
        await harness.service.answer(wait.id, "yes")
    assert (await harness.wait(row.id)).state == "open"


async def test_an_approval_survives_a_crash_before_the_command(harness: GateHarness, tmp_path: Path) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    await harness.service.decide(wait.id, "approve")
    await harness.close()
    again = GateHarness(tmp_path, make=doing(touch()))
    try:
        row = await again.service.drive(row.id)
        assert row.status == "completed"
        assert (again.workspace / "made.txt").exists()
    finally:
        await again.close()


# --- who ---------------------------------------------------------------------------------------------------


async def test_only_an_approver_decides(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    for roles in ({"viewer"}, {"runner"}, {"viewer", "runner"}, set()):
        with pytest.raises(NotAllowed):
            await harness.service.decide(wait.id, "approve", Principal("eve", roles=frozenset(roles)))
    await harness.service.decide(wait.id, "approve", Principal("ann", roles=frozenset({"approver"})))
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_another_tenant_neither_sees_nor_decides(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    stranger = Principal("ann", tenant="elsewhere")
    assert await harness.service.inbox(stranger) == []
    assert await harness.service.runs(who=stranger) == []
    with pytest.raises(NotFound):
        await harness.service.get(row.id, stranger)
    with pytest.raises(NotFound):
        await harness.service.decide(wait.id, "approve", stranger)


async def test_the_policy_may_want_another_person(harness: GateHarness) -> None:
    harness.allow({"approvals": {"different_person": True}})
    row = await harness.run(touch(), who=Principal("ada"))
    wait = await harness.wait(row.id)
    with pytest.raises(NotAllowed):
        await harness.service.decide(wait.id, "approve", Principal("ada"))
    await harness.service.decide(wait.id, "approve", Principal("bob"))
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_a_token_decides_its_own_approval_only(harness: GateHarness) -> None:
    first, second = await harness.run(touch("a")), await harness.run(touch("b"))
    one, two = await harness.wait(first.id), await harness.wait(second.id)
    nobody = Principal("guest", roles=frozenset())
    with pytest.raises(Refused):
        await harness.service.decide(two.id, "approve", nobody, token=harness.service.token(one.id))
    await harness.service.decide(one.id, "approve", nobody, token=harness.service.token(one.id))
    with pytest.raises(AlreadyAnswered):
        await harness.service.decide(one.id, "deny", nobody, token=harness.service.token(one.id))


# --- expired, held, cancelled -------------------------------------------------------------------------------


async def test_an_approval_that_runs_out_ends_the_run(harness: GateHarness) -> None:
    harness.allow({"approvals": {"expires_after": "1h", "on_expiry": "cancel"}})
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    row = await harness.later(2 * HOUR, row.id)
    assert row.status == "expired"
    assert not (harness.workspace / "made.txt").exists()
    with pytest.raises((WaitExpired, Refused)):
        await harness.service.decide(wait.id, "approve")


async def test_an_approval_that_runs_out_may_be_held_until_someone_comes(harness: GateHarness) -> None:
    harness.allow({"approvals": {"expires_after": "1h", "on_expiry": "hold"}})
    row = await harness.run(touch())
    row = await harness.later(2 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    held = await harness.wait(row.id)
    assert held.expires is None
    assert held.details["held"]
    row = await harness.later(1000 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    assert (await harness.decide(row.id, "approve")).status == "completed"
    assert (harness.workspace / "made.txt").exists()


async def test_an_approval_that_runs_out_may_count_as_denied(harness: GateHarness) -> None:
    harness.allow({"approvals": {"expires_after": "1h", "on_expiry": "deny"}})
    row = await harness.run(touch())
    row = await harness.later(2 * HOUR, row.id)
    assert row.status == "cancelled"
    assert row.error is not None
    assert row.error.code == "denied"


async def test_an_approval_that_runs_out_ends_as_was_said_when_it_was_asked_for(harness: GateHarness) -> None:
    harness.allow({"approvals": {"expires_after": "1h", "on_expiry": "hold"}})
    row = await harness.run(touch())
    harness.allow({"approvals": {"expires_after": "1h", "on_expiry": "cancel"}})
    row = await harness.later(2 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    assert (await harness.wait(row.id)).details["held"]


async def test_a_cancelled_run_takes_its_approvals_with_it(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    await harness.service.cancel(row.id)
    with pytest.raises(Refused):
        await harness.service.decide(wait.id, "approve")
    assert (await harness.service.drive(row.id)).status == "cancelled"
    assert not (harness.workspace / "made.txt").exists()
    assert await harness.service.inbox() == []


# --- approve one thing, run another --------------------------------------------------------------------------


CHANGES: list[tuple[str, RunCommand, RunCommand]] = [
    ("an argument", RunCommand(("touch", "a")), RunCommand(("touch", "b"))),
    ("one more argument", RunCommand(("touch", "a")), RunCommand(("touch", "a", "b"))),
    ("the folder", RunCommand(("touch", "a")), RunCommand(("touch", "a"), cwd="below")),
    ("a variable", RunCommand(("touch", "a")), RunCommand(("touch", "a"), env={"X": "1"})),
    ("stdin", RunCommand(("touch", "a"), stdin="x"), RunCommand(("touch", "a"), stdin="y")),
    ("the time limit", RunCommand(("touch", "a")), RunCommand(("touch", "a"), timeout=7)),
    ("the output limit", RunCommand(("touch", "a")), RunCommand(("touch", "a"), max_output=7)),
    ("whether it may be repeated", RunCommand(("touch", "a")), RunCommand(("touch", "a"), idempotent=True)),
    ("what was asked", RunCommand(("touch", "a"), approval="A?"), RunCommand(("touch", "a"), approval="B?")),
]


@pytest.mark.parametrize(("what", "shown", "run"), CHANGES, ids=[what for what, _, _ in CHANGES])
async def test_a_change_after_the_approval_is_asked_about_again(
    harness: GateHarness, what: str, shown: RunCommand, run: RunCommand
) -> None:
    (harness.workspace / "below").mkdir()
    row = await harness.run(shown)
    before = await harness.wait(row.id)
    await harness.service.decide(before.id, "approve")
    harness.make = doing(run)
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    after = await harness.wait(row.id)
    assert after.id != before.id
    assert after.details["digest"] != before.details["digest"]
    assert sorted(path.name for path in harness.workspace.rglob("*")) == ["below"]
    assert (await harness.decide(row.id, "deny")).status == "cancelled"
    assert sorted(path.name for path in harness.workspace.rglob("*")) == ["below"]


async def test_a_script_that_was_changed_after_the_approval_is_asked_about_again(harness: GateHarness) -> None:
    script = harness.workspace / "deploy.sh"
    script.write_text("echo good > good\n")
    row = await harness.run(RunCommand(("sh", "deploy.sh")))
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    script.write_text("echo bad > bad\n")
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert not (harness.workspace / "bad").exists()
    script.write_text("echo good > good\n")
    row = await harness.service.drive(row.id)
    assert row.status == "completed"  # it is again what was approved, and the other question is closed
    assert (harness.workspace / "good").exists()
    assert await harness.service.inbox() == []


async def test_a_program_file_that_was_replaced_after_the_approval_is_asked_about_again(harness: GateHarness) -> None:
    tool = harness.workspace / "tool"
    tool.write_text("#!/bin/sh\necho good > good\n")
    tool.chmod(0o755)
    row = await harness.run(RunCommand(("./tool",)))
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    other = harness.workspace / "other"
    other.write_text("#!/bin/sh\necho bad > bad\n")
    other.chmod(0o755)
    other.rename(tool)
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert not (harness.workspace / "bad").exists()


async def test_an_approval_does_not_apply_to_another_run(harness: GateHarness) -> None:
    first = await harness.run(touch())
    await harness.service.decide((await harness.wait(first.id)).id, "approve")
    second = await harness.run(touch())
    assert second.status == "awaiting_approval"


async def test_a_second_visit_of_the_same_command_is_asked_about_again(harness: GateHarness) -> None:
    row = await harness.run(touch("a"), touch("a"))
    row = await harness.decide(row.id, "approve")
    assert row.status == "awaiting_approval"


async def test_a_retry_asks_again(harness: GateHarness) -> None:
    row = await harness.run(touch())
    row = await harness.decide(row.id, "deny")
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert (await harness.decide(row.id, "approve")).status == "completed"


# --- today's policy and that of the start --------------------------------------------------------------------


async def test_a_policy_that_was_tightened_after_the_approval_counts(harness: GateHarness) -> None:
    row = await harness.run(touch())
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    harness.allow({"commands": {"deny": ["touch *"]}})
    row = await harness.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert not (harness.workspace / "made.txt").exists()


async def test_a_policy_that_was_loosened_after_the_start_does_not(harness: GateHarness) -> None:
    def make(inputs: dict[str, Any]) -> Program[Any]:
        yield RunCommand(("true",))
        yield touch()

    harness.make = make
    row = await harness.run()
    harness.allow({"commands": {"allow": ["*"]}})
    row = await harness.decide(row.id, "approve")
    assert row.status == "awaiting_approval"
    assert not (harness.workspace / "made.txt").exists()


async def test_an_override_answers_beforehand_until_it_expires_or_is_revoked(harness: GateHarness) -> None:
    made = await harness.service.add_override("command", "touch made.txt", HOUR)
    assert (await harness.run(touch())).status == "completed"
    harness.now += 2 * HOUR
    assert (await harness.run(touch())).status == "awaiting_approval"
    other = await harness.service.add_override("command", "touch made.txt", None)
    assert (await harness.run(touch())).status == "completed"
    await harness.service.revoke_override(other.id)
    assert (await harness.run(touch())).status == "awaiting_approval"
    assert [one.id for one in await harness.service.overrides()] == [made.id, other.id]


async def test_an_override_never_beats_a_deny(harness: GateHarness) -> None:
    harness.allow({"commands": {"deny": ["touch *"]}})
    await harness.service.add_override("command", "touch made.txt", None)
    row = await harness.run(touch())
    assert row.status == "failed"
    assert not (harness.workspace / "made.txt").exists()


async def test_a_run_without_a_policy_of_its_own_may_do_nothing(harness: GateHarness) -> None:
    harness.make = doing(touch())
    gate, harness.service._engine.gate = harness.service.gate, None
    row = await harness.service.start_program("# T\n\n## STEP 1: A\n\nB\n", "t.md", {}, Settings(model="test/echo"))
    harness.service._engine.gate = gate
    row = await harness.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "no_policy"
    assert not (harness.workspace / "made.txt").exists()


# --- what is shown ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hidden",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\u00ad",
        "\ufeff",
        "\x1b[2K",
        "\x1b]8;;http://x\x07",
        "\x07",
        "\r",
        "\u2028",
        "\U000e0041",
    ],
)
def test_nothing_that_would_hide_or_reorder_is_shown_as_itself(hidden: str) -> None:
    shown = approvals.shown(f"rm {hidden}-rf /")
    assert not set(hidden) & set(shown) or hidden[0] not in shown
    assert "<U+" in shown


def test_a_long_part_shows_its_beginning_and_its_end() -> None:
    shown = approvals.shown("a" * 5_000 + "the end")
    assert shown.startswith("aaa")
    assert shown.endswith("the end")
    assert "more characters" in shown
    assert len(shown) < 2_200


def test_a_preview_is_bounded_in_parts() -> None:
    named = {f"part {n}": "y" * 10_000 for n in range(100)}
    assert len(str(approvals.preview(named))) < 60_000
    assert "left out" in approvals.preview(named)


def test_all_is_kept_of_what_a_preview_leaves_out() -> None:
    assert approvals.whole({"command": "y" * 2_000, "folder": "/"}) == {}
    assert approvals.whole({"command": "y" * 2_001, "folder": "/"}) == {"command": "y" * 2_001, "folder": "/"}
    many = {f"part {n}": "y" for n in range(100)}
    assert approvals.whole(many) == many
    (cut,) = approvals.whole({"stdin": "y" * (approvals.WHOLE + 7)}).values()
    assert "[... 7 more characters ...]" in cut


@pytest.fixture
def long() -> str:
    return "x" * 2_000 + "\u202eEVIL WORDS s3cret-of-the-test" + "y" * 4_000


async def test_everything_that_is_approved_can_be_looked_at(harness: GateHarness, long: str) -> None:
    harness.redactor.add("env:TOKEN", "s3cret-of-the-test")
    row = await harness.run(touch(stdin=long))
    wait = await harness.wait(row.id)
    assert "EVIL" not in str(wait.details), "what is listed and published stays short"
    whole = harness.service.in_full(wait).details["preview"]
    assert whole["stdin"] == "x" * 2_000 + "<U+202E>EVIL WORDS [secret env:TOKEN]" + "y" * 4_000
    assert list(whole) == list(wait.details["preview"])
    assert whole["command"] == "touch made.txt"
    assert (await harness.decide(row.id, "approve")).status == "completed"
    assert (await harness.service.verify(row.id)).broken_at is None


async def test_what_is_short_is_kept_once(harness: GateHarness) -> None:
    row = await harness.run(touch())
    wait = await harness.wait(row.id)
    assert "whole" not in wait.details
    assert harness.service.in_full(wait) is wait


async def test_the_preview_remains_after_the_full_text_was_purged(harness: GateHarness, long: str) -> None:
    row = await harness.run(touch(stdin=long))
    wait = await harness.wait(row.id)
    lost = msgspec.structs.replace(wait, details={**wait.details, "whole": {"digest": "0" * 64, "length": 1}})
    assert harness.service.in_full(lost).details["preview"] == wait.details["preview"]


async def test_a_change_to_the_text_that_a_person_approved_is_detected(harness: GateHarness, long: str) -> None:
    row = await harness.run(touch(stdin=long))
    await harness.service.close()
    with sqlite3.connect(harness.folder / "runs.db") as db:
        db.execute("UPDATE texts SET body = replace(body, 'EVIL', 'GOOD')")
    harness.service = GateHarness(harness.folder).service
    assert (await harness.service.verify(row.id)).problem == "a text that it refers to was changed"


async def test_markup_in_a_command_is_shown_as_it_is_written(harness: GateHarness) -> None:
    row = await harness.run(RunCommand(("echo", "![x](http://evil/) **safe** [bold]", "\u202egnp.exe")))
    preview = (await harness.wait(row.id)).details["preview"]["command"]
    assert "![x](http://evil/) **safe** [bold]" in preview
    assert "\u202e" not in preview


# --- what was found by looking for a way around -----------------------------------------------------------------


async def test_an_approval_is_closed_once(harness: GateHarness) -> None:
    row = await harness.run(touch())
    await harness.decide(row.id, "approve")
    closed = [e.event async for e in harness.service.entries(row.id) if isinstance(e.event, WaitClosed)]
    assert [event.how for event in closed] == ["answered"]


async def test_a_repeated_question_says_what_changed(harness: GateHarness) -> None:
    script = harness.workspace / "deploy.sh"
    script.write_text("true\n")
    row = await harness.run(RunCommand(("sh", "deploy.sh")))
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    script.write_text("false\n")
    row = await harness.service.drive(row.id)
    assert [name for name in (await harness.wait(row.id)).details["changed"] if "deploy.sh" in name]


async def test_a_script_that_changes_between_the_ruling_and_the_start_is_not_run(harness: GateHarness) -> None:
    script = harness.workspace / "deploy.sh"
    script.write_text("echo good > good\n")
    row = await harness.run(RunCommand(("sh", "deploy.sh")))
    await harness.service.decide((await harness.wait(row.id)).id, "approve")
    examine = harness.gate.examine

    async def then_changed(effect: Any, case: Any) -> Any:
        ruling = await examine(effect, case)
        if isinstance(ruling, Admitted):
            script.write_text("echo bad > bad\n")
        return ruling

    harness.gate.examine = then_changed  # type: ignore[method-assign]
    row = await harness.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "changed"
    assert not (harness.workspace / "bad").exists()


async def test_a_read_only_command_is_asked_about_where_files_are_kept_from_being_read(harness: GateHarness) -> None:
    harness.allow({"files": {"deny": ["read:.env"]}})
    (harness.workspace / ".env").write_text("KEY=tiger")
    row = await harness.run(RunCommand(("cat", ".env"), reads_only=True))
    assert row.status == "awaiting_approval"


async def test_the_network_is_denied_to_commands_where_all_of_it_is_denied(harness: GateHarness) -> None:
    for egress in ({"default": "deny"}, {"deny": ["*"]}):
        harness.allow({"egress": egress, "tools": {"allow": ["*"]}, "commands": {"allow": ["*"]}})
        row = await harness.run(RunCommand(("true",), network=("api.example.com",)))
        assert row.error is not None
        assert row.error.code == "forbidden"


async def test_the_owners_overrides_do_not_count_if_another_person_must_approve(harness: GateHarness) -> None:
    harness.allow({"approvals": {"different_person": True}})
    await harness.service.add_override("command", "touch made.txt", None, Principal("ada"))
    assert (await harness.run(touch(), who=Principal("ada"))).status == "awaiting_approval"
    assert (await harness.run(touch(), who=Principal("bob"))).status == "completed"


async def test_a_run_does_nothing_in_another_workspace(harness: GateHarness) -> None:
    harness.gate._workspaces = (str(harness.workspace),)
    harness.make = doing(touch())
    row = await harness.service.start_program(
        BOOK, "book.md", {}, Settings(model="test/echo", workspace="/somewhere/else")
    )
    with pytest.raises(Elsewhere, match=f"`cd /somewhere/else && cuebook resume {row.id}`"):
        await harness.service.drive(row.id)
    assert not (harness.workspace / "made.txt").exists()
    # Nothing was recorded about the effect, so the run continues in its own workspace.
    row = await harness.service.get(row.id)
    assert (row.status, row.driver, row.error) == ("running", "", None)
    harness.gate._workspaces = ("/somewhere/else",)
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"


async def test_what_was_decided_in_another_workspace_counts_in_the_runs_own(harness: GateHarness) -> None:
    harness.make = doing(touch())
    row = await harness.service.start_program(
        BOOK, "book.md", {}, Settings(model="test/echo", workspace=str(harness.workspace.resolve()))
    )
    row = await harness.service.drive(row.id)
    (wait,) = await harness.service.waits(row.id)
    await harness.service.decide(wait.id, "approve", Principal("ada"))
    harness.gate._workspaces = ("/somewhere/else",)
    with pytest.raises(Elsewhere):
        await harness.service.drive(row.id)
    harness.gate._workspaces = (str(harness.workspace.resolve()),)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "made.txt").exists()


async def test_a_run_is_cancelled_wherever_it_is_asked_for(harness: GateHarness) -> None:
    harness.gate._workspaces = (str(harness.workspace),)
    harness.make = doing(touch())
    row = await harness.service.start_program(
        BOOK, "book.md", {}, Settings(model="test/echo", workspace="/somewhere/else")
    )
    await harness.service.cancel(row.id)
    assert (await harness.service.drive(row.id)).status == "cancelled"


async def test_a_run_asks_models_wherever_it_continues(harness: GateHarness) -> None:
    harness.gate._workspaces = (str(harness.workspace),)
    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: EchoModel()}
    harness.make = doing(AskModel("hello"))
    row = await harness.service.start_program(
        BOOK, "book.md", {}, Settings(model="test/echo", workspace="/somewhere/else")
    )
    assert (await harness.service.drive(row.id)).status == "completed"


async def test_a_fork_with_a_secret_in_its_values_is_refused(harness: GateHarness) -> None:
    harness.redactor.add("env:CANARY", "canary-7f3a9c21")
    row = await harness.run(RunCommand(("true",), reads_only=True))
    with pytest.raises(BadInput):
        await harness.service.fork(row.id, "1", values={"topic": "canary-7f3a9c21"})


async def test_a_run_of_a_python_program_is_left_to_that_program(harness: GateHarness) -> None:
    row = await harness.run(touch())
    elsewhere = Service(harness.store, {}, clock=lambda: harness.now)
    await elsewhere.decide((await harness.wait(row.id)).id, "approve")
    with pytest.raises(Refused):
        await elsewhere.drive(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (harness.workspace / "made.txt").exists()


async def test_a_question_about_an_address_does_not_add_to_it(harness: GateHarness) -> None:
    row = await harness.run(SendHttp("POST", "https://example.com/hook"))
    assert (await harness.wait(row.id)).prompt == "POST https://example.com/hook"


async def closings(harness: GateHarness, run: str) -> list[tuple[str, str, str]]:
    """How each wait was closed, by whom, and why."""
    closed = [entry.event async for entry in harness.service.entries(run) if isinstance(entry.event, WaitClosed)]
    return [(one.how, one.by, one.answer["reason"]) for one in closed]


async def decided(harness: GateHarness, decision: Any) -> str:
    """A run that was not driven since ada decided its approval, with a reason."""
    harness.make = doing(touch())
    row = await harness.run(touch())
    (wait,) = await harness.service.waits(row.id)
    await harness.service.decide(wait.id, decision, Principal("ada"), reason="as I said")
    return row.id


@pytest.mark.parametrize("decision", ["deny", "approve"])
async def test_what_a_person_said_counts_although_the_gate_says_no_by_now(harness: GateHarness, decision: Any) -> None:
    run = await decided(harness, decision)
    harness.allow({"commands": {"deny": ["touch *"]}})
    row = await harness.service.drive(run)
    assert row.error is not None
    assert row.error.code == ("denied" if decision == "deny" else "forbidden")
    assert await closings(harness, row.id) == [("answered", "ada", "as I said")]


async def test_a_denial_counts_in_another_workspace(harness: GateHarness) -> None:
    here = str(harness.workspace.resolve())
    harness.make = doing(touch())
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo", workspace=here))
    row = await harness.service.drive(row.id)
    (wait,) = await harness.service.waits(row.id)
    await harness.service.decide(wait.id, "deny", Principal("ada"))
    harness.gate._workspaces = ("/somewhere/else",)
    row = await harness.service.drive(row.id)
    assert row.error is not None
    assert row.error.code == "denied"


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_what_a_person_said_is_on_record_although_the_run_is_cancelled(
    harness: GateHarness, decision: Any
) -> None:
    run = await decided(harness, decision)
    await harness.service.cancel(run)
    assert (await harness.service.drive(run)).status == "cancelled"
    assert await closings(harness, run) == [("answered", "ada", "as I said")]
    assert not (harness.workspace / "made.txt").exists()


async def test_a_withdrawn_question_is_asked_again_where_it_must_be(harness: GateHarness) -> None:
    harness.make = doing(RunCommand(("sh", "-c", "touch begun; sleep 60"), idempotent=True))
    harness.allow({"commands": {"allow": ["*"]}})
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo"))
    harness.allow({"commands": {"ask": ["*"]}})
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"
    harness.allow({"commands": {"allow": ["*"]}})
    driving = asyncio.create_task(harness.service.drive(row.id))
    while not (harness.workspace / "begun").exists():
        await asyncio.sleep(0.02)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    harness.allow({"commands": {"ask": ["*"]}})
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"


async def test_a_spent_budget_waits_however_often_it_is_looked_at(tmp_path: Path) -> None:
    harness = GateHarness(tmp_path, {"commands": {"allow": ["*"]}}, model=EchoModel())
    harness.make = doing(AskModel("hello there"))
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo", budget=Budget(tokens=0)))
    for _ in range(3):
        row = await harness.service.drive(row.id)
        assert (row.status, row.reason) == ("paused", "budget")
        assert [wait.state for wait in await harness.service.waits(row.id)] == ["open"]
    await harness.close()


def test_a_line_end_within_a_command_is_seen_in_its_line() -> None:
    assert approvals.one_line("Run git log 'v1\n..HEAD'\n") == r"Run git log 'v1\n..HEAD'"


def test_the_digest_of_a_model_call_is_the_same_in_every_process() -> None:
    """Its context is an object of this process, and only what it contains counts."""

    def digest(said: str) -> str:
        effect = AskModel("Go on.", EMPTY.add("system", "Be brief.").add("user", said))
        return approvals.digest(effect, Description((Action("model", "a/b"),), "Ask a/b"), Limits())

    assert digest("Hello.") == digest("Hello.")
    assert digest("Hello.") != digest("Goodbye.")
