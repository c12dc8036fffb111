"""What a person approves is what runs, once, and everything else ends where the policy says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate import approvals
from cuebook.gate.people import NotAllowed
from cuebook.gate.policy import Policy
from cuebook.kernel.effects import AskModel, Program, RunCommand, SendHttp
from cuebook.kernel.errors import AlreadyAnswered, BadInput, Elsewhere, NotFound, Refused, WaitExpired
from cuebook.kernel.events import Performing, WaitClosed
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.ports import Admitted
from cuebook.kernel.run import Budget, Settings
from cuebook.service import Principal, Service
from tests.gate.yard import BOOK, Yard, doing
from tests.support import EchoModel

HOUR = 3600.0


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    made = Yard(tmp_path)
    yield made
    await made.close()


def touch(name: str = "made.txt", **more: Any) -> RunCommand:
    return RunCommand(("touch", name), **more)


# --- before the effect ------------------------------------------------------------------------------------


async def test_a_state_changing_command_waits_before_it_does_anything(yard: Yard) -> None:
    row = await yard.run(touch())
    assert row.status == "awaiting_approval"
    assert not (yard.workspace / "made.txt").exists()
    assert not [e async for e in yard.service.engine.entries(row.id) if isinstance(e.event, Performing)]


async def test_the_record_tells_what_would_run_who_asks_and_until_when(yard: Yard) -> None:
    row = await yard.run(touch(stdin="some text"), who=Principal("ada"))
    wait = await yard.wait(row.id)
    assert wait.kind == "approval"
    assert "touch made.txt" in wait.prompt
    assert "touch made.txt" in wait.details["preview"]["command"]
    assert "some text" in str(wait.details["preview"])
    assert wait.details["requester"] == "ada"
    assert len(wait.details["digest"]) == 64
    assert wait.details["rules"]
    assert wait.expires == yard.now + 24 * HOUR


async def test_a_command_that_only_reads_runs_without_asking(yard: Yard) -> None:
    (yard.workspace / "seen.txt").write_text("seen")
    row = await yard.run(RunCommand(("cat", "seen.txt"), reads_only=True))
    assert row.status == "completed"
    assert "seen" in (await yard.result(row.id))[0]


async def test_a_step_may_ask_for_approval_of_something_that_is_allowed(yard: Yard) -> None:
    yard.allow({"commands": {"allow": ["touch *"]}})
    row = await yard.run(touch(approval="Really make it?"))
    assert row.status == "awaiting_approval"
    assert (await yard.wait(row.id)).prompt.startswith("Really make it?")


async def test_a_question_that_is_none_any_more_is_taken_back(yard: Yard) -> None:
    yard.allow({"commands": {"allow": ["*"]}})
    yard.make = doing(touch("first"), touch("second", approval="Really?"))
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo"))
    yard.allow({"commands": {"ask": ["*"]}})
    assert (await yard.service.drive(row.id)).status == "awaiting_approval"
    asked = await yard.wait(row.id)
    yard.allow({"commands": {"allow": ["*"]}})
    assert (await yard.service.drive(row.id)).status == "awaiting_approval"
    assert (yard.workspace / "first").exists()
    assert [wait.prompt for wait in await yard.service.inbox()] == ["Really? (Run touch second)"]
    with pytest.raises(Refused):
        await yard.service.decide(asked.id, "approve")


class Unlucky(Yard):
    """A yard whose policy cannot be found out any more once a run has begun."""

    lost = False

    async def _today(self, tenant: str) -> Policy:
        if self.lost:
            raise OSError("the disk is gone")
        return await super()._today(tenant)


async def test_what_goes_wrong_in_the_gate_is_a_refusal(tmp_path: Path) -> None:
    yard = Unlucky(tmp_path, {"commands": {"allow": ["*"]}}, make=doing(touch()))
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo"))
    yard.lost = True
    row = await yard.service.drive(row.id)
    assert row.error is not None
    assert row.error.code == "gate_error"
    assert not (yard.workspace / "made.txt").exists()
    await yard.close()


# --- decided ----------------------------------------------------------------------------------------------


async def test_an_approved_command_runs_once(yard: Yard) -> None:
    row = await yard.run(RunCommand(("sh", "-c", "echo x >> log")))
    row = await yard.decide(row.id, "approve", reason="looks right")
    assert row.status == "completed"
    assert (yard.workspace / "log").read_text() == "x\n"
    closed = [e.event async for e in yard.service.engine.entries(row.id) if isinstance(e.event, WaitClosed)]
    assert closed[0].answer["reason"] == "looks right"
    assert closed[0].by == "local"


async def test_the_ruling_is_recorded_with_the_intent(yard: Yard) -> None:
    row = await yard.run(touch())
    digest = (await yard.wait(row.id)).details["digest"]
    await yard.decide(row.id, "approve")
    intents = [e.event async for e in yard.service.engine.entries(row.id) if isinstance(e.event, Performing)]
    assert [intent.ruling["approved"] for intent in intents] == [digest]
    assert intents[0].ruling["rules"]


async def test_a_denied_command_never_runs_and_cancels_the_run(yard: Yard) -> None:
    row = await yard.run(touch())
    row = await yard.decide(row.id, "deny", reason="not on a Friday")
    assert row.status == "cancelled"
    assert row.error is not None
    assert row.error.code == "denied"
    assert "not on a Friday" in row.error.message
    assert not (yard.workspace / "made.txt").exists()


async def test_a_program_may_go_another_way_when_it_is_denied(yard: Yard) -> None:
    def make(inputs: dict[str, Any]) -> Program[Any]:
        try:
            yield touch()
        except EffectFailed as error:
            return error.failed.code
        return "done"

    yard.make = make
    row = await yard.run()
    row = await yard.decide(row.id, "deny")
    assert row.status == "completed"
    assert await yard.result(row.id) == "denied"


async def test_an_approval_is_decided_once(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    await yard.service.decide(wait.id, "deny")
    with pytest.raises(AlreadyAnswered):
        await yard.service.decide(wait.id, "approve")
    assert (await yard.service.drive(row.id)).status == "cancelled"
    assert not (yard.workspace / "made.txt").exists()


async def test_only_approve_and_deny_decide_an_approval(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    with pytest.raises(BadInput):
        await yard.service.decide(wait.id, "repeat")
    with pytest.raises(BadInput):
        await yard.service.answer(wait.id, "yes")
    assert (await yard.wait(row.id)).state == "open"


async def test_an_approval_survives_a_crash_before_the_command(yard: Yard, tmp_path: Path) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    await yard.service.decide(wait.id, "approve")
    await yard.close()
    again = Yard(tmp_path, make=doing(touch()))
    try:
        row = await again.service.drive(row.id)
        assert row.status == "completed"
        assert (again.workspace / "made.txt").exists()
    finally:
        await again.close()


# --- who ---------------------------------------------------------------------------------------------------


async def test_only_an_approver_decides(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    for roles in ({"viewer"}, {"runner"}, {"viewer", "runner"}, set()):
        with pytest.raises(NotAllowed):
            await yard.service.decide(wait.id, "approve", Principal("eve", roles=frozenset(roles)))
    await yard.service.decide(wait.id, "approve", Principal("ann", roles=frozenset({"approver"})))
    assert (await yard.service.drive(row.id)).status == "completed"


async def test_another_tenant_neither_sees_nor_decides(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    stranger = Principal("ann", tenant="elsewhere")
    assert await yard.service.inbox(stranger) == []
    assert await yard.service.runs(who=stranger) == []
    with pytest.raises(NotFound):
        await yard.service.get(row.id, stranger)
    with pytest.raises(NotFound):
        await yard.service.decide(wait.id, "approve", stranger)


async def test_the_policy_may_want_another_person(yard: Yard) -> None:
    yard.allow({"approvals": {"different_person": True}})
    row = await yard.run(touch(), who=Principal("ada"))
    wait = await yard.wait(row.id)
    with pytest.raises(NotAllowed):
        await yard.service.decide(wait.id, "approve", Principal("ada"))
    await yard.service.decide(wait.id, "approve", Principal("bob"))
    assert (await yard.service.drive(row.id)).status == "completed"


async def test_a_token_decides_its_own_approval_only(yard: Yard) -> None:
    first, second = await yard.run(touch("a")), await yard.run(touch("b"))
    one, two = await yard.wait(first.id), await yard.wait(second.id)
    nobody = Principal("guest", roles=frozenset())
    with pytest.raises(Refused):
        await yard.service.decide(two.id, "approve", nobody, token=yard.service.token(one.id))
    await yard.service.decide(one.id, "approve", nobody, token=yard.service.token(one.id))
    with pytest.raises(AlreadyAnswered):
        await yard.service.decide(one.id, "deny", nobody, token=yard.service.token(one.id))


# --- expired, held, cancelled -------------------------------------------------------------------------------


async def test_an_approval_that_runs_out_ends_the_run(yard: Yard) -> None:
    yard.allow({"approvals": {"expires_after": "1h", "on_expiry": "cancel"}})
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    row = await yard.later(2 * HOUR, row.id)
    assert row.status == "expired"
    assert not (yard.workspace / "made.txt").exists()
    with pytest.raises((WaitExpired, Refused)):
        await yard.service.decide(wait.id, "approve")


async def test_an_approval_that_runs_out_may_be_held_until_someone_comes(yard: Yard) -> None:
    yard.allow({"approvals": {"expires_after": "1h", "on_expiry": "hold"}})
    row = await yard.run(touch())
    row = await yard.later(2 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    held = await yard.wait(row.id)
    assert held.expires is None
    assert held.details["held"]
    row = await yard.later(1000 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    assert (await yard.decide(row.id, "approve")).status == "completed"
    assert (yard.workspace / "made.txt").exists()


async def test_an_approval_that_runs_out_may_count_as_denied(yard: Yard) -> None:
    yard.allow({"approvals": {"expires_after": "1h", "on_expiry": "deny"}})
    row = await yard.run(touch())
    row = await yard.later(2 * HOUR, row.id)
    assert row.status == "cancelled"
    assert row.error is not None
    assert row.error.code == "denied"


async def test_an_approval_that_runs_out_ends_as_was_said_when_it_was_asked_for(yard: Yard) -> None:
    yard.allow({"approvals": {"expires_after": "1h", "on_expiry": "hold"}})
    row = await yard.run(touch())
    yard.allow({"approvals": {"expires_after": "1h", "on_expiry": "cancel"}})
    row = await yard.later(2 * HOUR, row.id)
    assert row.status == "awaiting_approval"
    assert (await yard.wait(row.id)).details["held"]


async def test_a_cancelled_run_takes_its_approvals_with_it(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    await yard.service.cancel(row.id)
    with pytest.raises(Refused):
        await yard.service.decide(wait.id, "approve")
    assert (await yard.service.drive(row.id)).status == "cancelled"
    assert not (yard.workspace / "made.txt").exists()
    assert await yard.service.inbox() == []


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
async def test_what_was_changed_after_the_approval_is_asked_about_again(
    yard: Yard, what: str, shown: RunCommand, run: RunCommand
) -> None:
    (yard.workspace / "below").mkdir()
    row = await yard.run(shown)
    before = await yard.wait(row.id)
    await yard.service.decide(before.id, "approve")
    yard.make = doing(run)
    row = await yard.service.drive(row.id)
    assert row.status == "awaiting_approval"
    after = await yard.wait(row.id)
    assert after.id != before.id
    assert after.details["digest"] != before.details["digest"]
    assert sorted(path.name for path in yard.workspace.rglob("*")) == ["below"]
    assert (await yard.decide(row.id, "deny")).status == "cancelled"
    assert sorted(path.name for path in yard.workspace.rglob("*")) == ["below"]


async def test_a_script_that_was_changed_after_the_approval_is_asked_about_again(yard: Yard) -> None:
    script = yard.workspace / "deploy.sh"
    script.write_text("echo good > good\n")
    row = await yard.run(RunCommand(("sh", "deploy.sh")))
    await yard.service.decide((await yard.wait(row.id)).id, "approve")
    script.write_text("echo bad > bad\n")
    row = await yard.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert not (yard.workspace / "bad").exists()
    script.write_text("echo good > good\n")
    row = await yard.service.drive(row.id)
    assert row.status == "completed"  # it is again what was approved, and the other question is closed
    assert (yard.workspace / "good").exists()
    assert await yard.service.inbox() == []


async def test_a_program_file_that_was_replaced_after_the_approval_is_asked_about_again(yard: Yard) -> None:
    tool = yard.workspace / "tool"
    tool.write_text("#!/bin/sh\necho good > good\n")
    tool.chmod(0o755)
    row = await yard.run(RunCommand(("./tool",)))
    await yard.service.decide((await yard.wait(row.id)).id, "approve")
    other = yard.workspace / "other"
    other.write_text("#!/bin/sh\necho bad > bad\n")
    other.chmod(0o755)
    other.rename(tool)
    row = await yard.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert not (yard.workspace / "bad").exists()


async def test_an_approval_of_one_run_is_none_of_another(yard: Yard) -> None:
    first = await yard.run(touch())
    await yard.service.decide((await yard.wait(first.id)).id, "approve")
    second = await yard.run(touch())
    assert second.status == "awaiting_approval"


async def test_a_second_visit_of_the_same_command_is_asked_about_again(yard: Yard) -> None:
    row = await yard.run(touch("a"), touch("a"))
    row = await yard.decide(row.id, "approve")
    assert row.status == "awaiting_approval"


async def test_a_retry_asks_again(yard: Yard) -> None:
    row = await yard.run(touch())
    row = await yard.decide(row.id, "deny")
    await yard.service.retry(row.id)
    row = await yard.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert (await yard.decide(row.id, "approve")).status == "completed"


# --- today's policy and that of the start --------------------------------------------------------------------


async def test_a_policy_that_was_tightened_after_the_approval_counts(yard: Yard) -> None:
    row = await yard.run(touch())
    await yard.service.decide((await yard.wait(row.id)).id, "approve")
    yard.allow({"commands": {"deny": ["touch *"]}})
    row = await yard.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert not (yard.workspace / "made.txt").exists()


async def test_a_policy_that_was_loosened_after_the_start_does_not(yard: Yard) -> None:
    def make(inputs: dict[str, Any]) -> Program[Any]:
        yield RunCommand(("true",))
        yield touch()

    yard.make = make
    row = await yard.run()
    yard.allow({"commands": {"allow": ["*"]}})
    row = await yard.decide(row.id, "approve")
    assert row.status == "awaiting_approval"
    assert not (yard.workspace / "made.txt").exists()


async def test_an_override_answers_beforehand_until_it_expires_or_is_revoked(yard: Yard) -> None:
    made = await yard.service.add_override("command", "touch made.txt", HOUR)
    assert (await yard.run(touch())).status == "completed"
    yard.now += 2 * HOUR
    assert (await yard.run(touch())).status == "awaiting_approval"
    other = await yard.service.add_override("command", "touch made.txt", None)
    assert (await yard.run(touch())).status == "completed"
    await yard.service.revoke_override(other.id)
    assert (await yard.run(touch())).status == "awaiting_approval"
    assert [one.id for one in await yard.service.overrides()] == [made.id, other.id]


async def test_an_override_never_beats_a_deny(yard: Yard) -> None:
    yard.allow({"commands": {"deny": ["touch *"]}})
    await yard.service.add_override("command", "touch made.txt", None)
    row = await yard.run(touch())
    assert row.status == "failed"
    assert not (yard.workspace / "made.txt").exists()


async def test_a_run_without_a_policy_of_its_own_may_do_nothing(yard: Yard) -> None:
    yard.make = doing(touch())
    gate, yard.service.engine.gate = yard.service.engine.gate, None
    row = await yard.service.start("# T\n\n## STEP 1: A\n\nB\n", "t.md", {}, Settings(model="test/echo"))
    yard.service.engine.gate = gate
    row = await yard.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "no_policy"
    assert not (yard.workspace / "made.txt").exists()


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


async def test_everything_that_is_approved_can_be_looked_at(yard: Yard, long: str) -> None:
    yard.redactor.add("env:TOKEN", "s3cret-of-the-test")
    row = await yard.run(touch(stdin=long))
    wait = await yard.wait(row.id)
    assert "EVIL" not in str(wait.details), "what is listed and published stays short"
    whole = yard.service.in_full(wait).details["preview"]
    assert whole["stdin"] == "x" * 2_000 + "<U+202E>EVIL WORDS [secret env:TOKEN]" + "y" * 4_000
    assert list(whole) == list(wait.details["preview"])
    assert whole["command"] == "touch made.txt"
    assert (await yard.decide(row.id, "approve")).status == "completed"
    assert (await yard.service.verify(row.id)).broken_at is None


async def test_what_is_short_is_kept_once(yard: Yard) -> None:
    row = await yard.run(touch())
    wait = await yard.wait(row.id)
    assert "whole" not in wait.details
    assert yard.service.in_full(wait) is wait


async def test_where_all_of_it_was_purged_the_preview_is_left(yard: Yard, long: str) -> None:
    row = await yard.run(touch(stdin=long))
    wait = await yard.wait(row.id)
    lost = msgspec.structs.replace(wait, details={**wait.details, "whole": {"digest": "0" * 64, "length": 1}})
    assert yard.service.in_full(lost).details["preview"] == wait.details["preview"]


async def test_who_changes_what_a_person_could_read_before_they_approved_it_is_found_out(yard: Yard, long: str) -> None:
    row = await yard.run(touch(stdin=long))
    await yard.service.close()
    with sqlite3.connect(yard.folder / "runs.db") as db:
        db.execute("UPDATE texts SET body = replace(body, 'EVIL', 'GOOD')")
    yard.service = Yard(yard.folder).service
    assert (await yard.service.verify(row.id)).problem == "a text that it refers to was changed"


async def test_markup_in_a_command_is_shown_as_it_is_written(yard: Yard) -> None:
    row = await yard.run(RunCommand(("echo", "![x](http://evil/) **safe** [bold]", "\u202egnp.exe")))
    preview = (await yard.wait(row.id)).details["preview"]["command"]
    assert "![x](http://evil/) **safe** [bold]" in preview
    assert "\u202e" not in preview


# --- what was found by looking for a way around -----------------------------------------------------------------


async def test_an_approval_is_closed_once(yard: Yard) -> None:
    row = await yard.run(touch())
    await yard.decide(row.id, "approve")
    closed = [e.event async for e in yard.service.engine.entries(row.id) if isinstance(e.event, WaitClosed)]
    assert [event.how for event in closed] == ["answered"]


async def test_who_is_asked_again_is_told_what_changed(yard: Yard) -> None:
    script = yard.workspace / "deploy.sh"
    script.write_text("true\n")
    row = await yard.run(RunCommand(("sh", "deploy.sh")))
    await yard.service.decide((await yard.wait(row.id)).id, "approve")
    script.write_text("false\n")
    row = await yard.service.drive(row.id)
    assert [name for name in (await yard.wait(row.id)).details["changed"] if "deploy.sh" in name]


async def test_a_script_that_changes_between_the_ruling_and_the_start_is_not_run(yard: Yard) -> None:
    script = yard.workspace / "deploy.sh"
    script.write_text("echo good > good\n")
    row = await yard.run(RunCommand(("sh", "deploy.sh")))
    await yard.service.decide((await yard.wait(row.id)).id, "approve")
    examine = yard.gate.examine

    async def then_changed(effect: Any, case: Any) -> Any:
        ruling = await examine(effect, case)
        if isinstance(ruling, Admitted):
            script.write_text("echo bad > bad\n")
        return ruling

    yard.gate.examine = then_changed  # type: ignore[method-assign]
    row = await yard.service.drive(row.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == "changed"
    assert not (yard.workspace / "bad").exists()


async def test_a_read_only_command_is_asked_about_where_files_are_kept_from_being_read(yard: Yard) -> None:
    yard.allow({"files": {"deny": ["read:.env"]}})
    (yard.workspace / ".env").write_text("KEY=tiger")
    row = await yard.run(RunCommand(("cat", ".env"), reads_only=True))
    assert row.status == "awaiting_approval"


async def test_the_network_is_denied_to_commands_where_all_of_it_is_denied(yard: Yard) -> None:
    for egress in ({"default": "deny"}, {"deny": ["*"]}):
        yard.allow({"egress": egress, "tools": {"allow": ["*"]}, "commands": {"allow": ["*"]}})
        row = await yard.run(RunCommand(("true",), network=True))
        assert row.error is not None
        assert row.error.code == "forbidden"


async def test_nobodys_own_override_counts_where_another_person_must_approve(yard: Yard) -> None:
    yard.allow({"approvals": {"different_person": True}})
    await yard.service.add_override("command", "touch made.txt", None, Principal("ada"))
    assert (await yard.run(touch(), who=Principal("ada"))).status == "awaiting_approval"
    assert (await yard.run(touch(), who=Principal("bob"))).status == "completed"


async def test_a_run_does_nothing_in_another_workspace(yard: Yard) -> None:
    yard.gate._workspace = str(yard.workspace)
    yard.make = doing(touch())
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo", workspace="/somewhere/else"))
    with pytest.raises(Elsewhere, match=f"`cd /somewhere/else && cuebook resume {row.id}`"):
        await yard.service.drive(row.id)
    assert not (yard.workspace / "made.txt").exists()
    # Nothing was said about the effect: where the run belongs, it goes on.
    row = await yard.service.get(row.id)
    assert (row.status, row.driver, row.error) == ("running", "", None)
    yard.gate._workspace = "/somewhere/else"
    assert (await yard.service.drive(row.id)).status == "awaiting_approval"


async def test_what_was_decided_in_another_workspace_counts_in_the_runs_own(yard: Yard) -> None:
    yard.make = doing(touch())
    row = await yard.service.start(
        BOOK, "yard.md", {}, Settings(model="test/echo", workspace=str(yard.workspace.resolve()))
    )
    row = await yard.service.drive(row.id)
    (wait,) = await yard.service.store.waits(run=row.id)
    await yard.service.decide(wait.id, "approve", Principal("ada"))
    yard.gate._workspace = "/somewhere/else"
    with pytest.raises(Elsewhere):
        await yard.service.drive(row.id)
    yard.gate._workspace = str(yard.workspace.resolve())
    assert (await yard.service.drive(row.id)).status == "completed"
    assert (yard.workspace / "made.txt").exists()


async def test_a_run_is_cancelled_wherever_it_is_asked_for(yard: Yard) -> None:
    yard.gate._workspace = str(yard.workspace)
    yard.make = doing(touch())
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo", workspace="/somewhere/else"))
    await yard.service.cancel(row.id)
    assert (await yard.service.drive(row.id)).status == "cancelled"


async def test_a_run_asks_models_wherever_it_goes_on(yard: Yard) -> None:
    yard.gate._workspace = str(yard.workspace)
    yard.service.engine.performers[AskModel] = EchoModel()
    yard.make = doing(AskModel("hello"))
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo", workspace="/somewhere/else"))
    assert (await yard.service.drive(row.id)).status == "completed"


async def test_a_fork_with_a_secret_in_its_values_is_refused(yard: Yard) -> None:
    yard.redactor.add("env:CANARY", "canary-7f3a9c21")
    row = await yard.run(RunCommand(("true",), reads_only=True))
    with pytest.raises(BadInput):
        await yard.service.fork(row.id, "1", values={"topic": "canary-7f3a9c21"})


async def test_a_run_of_a_python_program_is_left_to_that_program(yard: Yard) -> None:
    row = await yard.run(touch())
    elsewhere = Service(yard.store, {}, clock=lambda: yard.now)
    await elsewhere.decide((await yard.wait(row.id)).id, "approve")
    with pytest.raises(Refused):
        await elsewhere.drive(row.id)
    assert (await yard.service.drive(row.id)).status == "completed"
    assert (yard.workspace / "made.txt").exists()


async def test_a_question_about_an_address_does_not_add_to_it(yard: Yard) -> None:
    row = await yard.run(SendHttp("POST", "https://example.com/hook"))
    assert (await yard.wait(row.id)).prompt == "POST https://example.com/hook"


async def closings(yard: Yard, run: str) -> list[tuple[str, str, str]]:
    """How each wait was closed, by whom, and why."""
    closed = [entry.event async for entry in yard.service.engine.entries(run) if isinstance(entry.event, WaitClosed)]
    return [(one.how, one.by, one.answer["reason"]) for one in closed]


async def decided(yard: Yard, decision: Any) -> str:
    """A run whose approval ada has decided, with a reason, and that was not driven since."""
    yard.make = doing(touch())
    row = await yard.run(touch())
    (wait,) = await yard.service.store.waits(run=row.id)
    await yard.service.decide(wait.id, decision, Principal("ada"), reason="as I said")
    return row.id


@pytest.mark.parametrize("decision", ["deny", "approve"])
async def test_what_a_person_said_counts_although_the_gate_says_no_by_now(yard: Yard, decision: Any) -> None:
    run = await decided(yard, decision)
    yard.allow({"commands": {"deny": ["touch *"]}})
    row = await yard.service.drive(run)
    assert row.error is not None
    assert row.error.code == ("denied" if decision == "deny" else "forbidden")
    assert await closings(yard, row.id) == [("answered", "ada", "as I said")]


async def test_a_denial_counts_in_another_workspace(yard: Yard) -> None:
    here = str(yard.workspace.resolve())
    yard.make = doing(touch())
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo", workspace=here))
    row = await yard.service.drive(row.id)
    (wait,) = await yard.service.store.waits(run=row.id)
    await yard.service.decide(wait.id, "deny", Principal("ada"))
    yard.gate._workspace = "/somewhere/else"
    row = await yard.service.drive(row.id)
    assert row.error is not None
    assert row.error.code == "denied"


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_what_a_person_said_is_on_record_although_the_run_is_cancelled(yard: Yard, decision: Any) -> None:
    run = await decided(yard, decision)
    await yard.service.cancel(run)
    assert (await yard.service.drive(run)).status == "cancelled"
    assert await closings(yard, run) == [("answered", "ada", "as I said")]
    assert not (yard.workspace / "made.txt").exists()


async def test_a_question_that_was_taken_back_is_asked_anew_where_it_must_be(yard: Yard) -> None:
    yard.make = doing(RunCommand(("sh", "-c", "touch begun; sleep 60"), idempotent=True))
    yard.allow({"commands": {"allow": ["*"]}})
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo"))
    yard.allow({"commands": {"ask": ["*"]}})
    assert (await yard.service.drive(row.id)).status == "awaiting_approval"
    yard.allow({"commands": {"allow": ["*"]}})
    driving = asyncio.create_task(yard.service.drive(row.id))
    while not (yard.workspace / "begun").exists():
        await asyncio.sleep(0.02)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    yard.allow({"commands": {"ask": ["*"]}})
    assert (await yard.service.drive(row.id)).status == "awaiting_approval"


async def test_a_spent_budget_waits_however_often_it_is_looked_at(tmp_path: Path) -> None:
    yard = Yard(tmp_path, {"commands": {"allow": ["*"]}}, model=EchoModel())
    yard.make = doing(AskModel("hello there"))
    row = await yard.service.start(BOOK, "yard.md", {}, Settings(model="test/echo", budget=Budget(tokens=0)))
    for _ in range(3):
        row = await yard.service.drive(row.id)
        assert (row.status, row.reason) == ("paused", "budget")
        assert [wait.state for wait in await yard.service.store.waits(run=row.id)] == ["open"]
    await yard.close()


def test_a_line_end_within_a_command_is_seen_in_its_line() -> None:
    assert approvals.one_line("Run git log 'v1\n..HEAD'\n") == r"Run git log 'v1\n..HEAD'"
