"""Schedules fire once at their moments, whatever clocks, processes and files do in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.gate.standing_permissions import Allowed
from cuebook.kernel.errors import BadInput, Conflict, NotFound
from cuebook.kernel.ports import Store
from cuebook.service.copies.transfer import copy_decisions
from cuebook.service.job_runner import JobRunner
from cuebook.service.triggers.permissions import Asking, Permissions
from cuebook.service.triggers.schedules import Schedule, Schedules, check_times
from cuebook.service.triggers.target import playbook_of
from cuebook.stores.memory import MemoryStore
from tests.service.triggers.scheduled import TEA, Clocked, at

LOCAL = Principal()


@pytest.fixture
def clocked(store: Store, tmp_path: Path) -> Clocked:
    return Clocked(store, tmp_path, "2026-03-02 05:30")


async def test_a_schedule_fires_at_its_moment(clocked: Clocked) -> None:
    await clocked.add("0 6 * * *", inputs={"CUP": "bowl"})
    await clocked.look("2026-03-02 05:59")
    assert await clocked.runs() == []
    await clocked.look("2026-03-02 06:00")
    (run,) = await clocked.runs()
    assert (run.trigger, run.owner, run.name) == ("schedule:tea", "local", "tea.md")
    await clocked.look("2026-03-02 06:01")
    assert len(await clocked.runs()) == 1
    assert await clocked.history() == [("2026-03-02T06:00:00Z", "started")]
    assert await clocked.store.next_due(["schedule"]) == clocked.store.now() + 24 * 3600 - 60


async def test_what_becomes_of_a_firing_is_logged(clocked: Clocked, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cuebook.triggers")
    await clocked.add("0 6 * * *", inputs={"CUP": "bowl"})
    clocked.book.write_text("# No steps\n")
    await clocked.look("2026-03-02 06:00")
    clocked.book.write_text(TEA)
    await clocked.look("2026-03-03 06:00")
    await clocked.look("2026-03-04 06:00")
    await clocked.look("2026-03-09 12:00")
    (run,) = await clocked.runs()
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [
        ("WARNING", "trigger.failed"),
        ("INFO", "trigger.started"),
        ("INFO", "trigger.skipped"),
        ("WARNING", "trigger.missed"),
    ]
    fields = [record.__dict__["fields"] for record in caplog.records]
    assert fields[1] == {"trigger": "schedule:tea", "run": run.id, "by": "local"}
    assert all(one["trigger"] == "schedule:tea" for one in fields)


async def test_two_processes_fire_once(clocked: Clocked, tmp_path: Path) -> None:
    other = Clocked(clocked.store, tmp_path, "2026-03-02 05:30")
    await clocked.add()
    clocked.set("2026-03-02 06:00")
    await asyncio.gather(clocked.look(), other.look())
    assert len(await clocked.runs()) == 1


async def test_a_firing_whose_process_died_is_found_again(clocked: Clocked) -> None:
    await clocked.add()
    clocked.set("2026-03-02 06:00")
    (job,) = await clocked.store.take_jobs(["schedule"], clocked.store.now(), clocked.store.now() + 30)
    await clocked.schedules.handle(job)  # the process dies before it stores the result
    await clocked.look("2026-03-02 06:01")
    (run,) = await clocked.runs()
    (firing,) = (await clocked.schedule()).history
    assert (firing.state, firing.run) == ("started", run.id)


async def test_of_five_firings_that_a_machine_slept_through_the_latest_runs(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.look("2026-03-02 10:40")
    assert len(await clocked.runs()) == 1
    keys = [f"2026-03-02T{hour:02}:00:00Z" for hour in range(6, 11)]
    assert await clocked.history() == [*((key, "missed") for key in keys[:4]), (keys[4], "started")]
    await clocked.look("2026-03-02 11:00")
    assert len(await clocked.runs()) == 1
    assert (await clocked.history())[-1] == ("2026-03-02T11:00:00Z", "skipped")  # the run before is unfinished


async def test_a_firing_that_is_later_than_its_catch_up_is_missed_and_notified(clocked: Clocked) -> None:
    await clocked.add("0 6 * * *", catch_up=1800.0)
    await clocked.look("2026-03-02 06:31")
    assert await clocked.runs() == []
    assert await clocked.history() == [("2026-03-02T06:00:00Z", "missed")]
    (text,) = await clocked.notices()
    assert text == "Schedule 'tea' missed a firing of tea.md. No server or worker was running in time."
    await clocked.look("2026-03-03 06:29")
    assert len(await clocked.runs()) == 1


async def test_a_long_absence_is_bounded(clocked: Clocked) -> None:
    await clocked.add("* * * * *")
    await clocked.look("2028-03-02 06:00")
    assert len(await clocked.runs()) == 1
    assert len((await clocked.schedule()).history) == 30


async def test_a_clock_that_is_set_back_does_not_fire_again(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.look("2026-03-02 06:00")
    await clocked.end((await clocked.runs())[0].id)
    clocked.set("2026-03-02 05:50")
    assert await clocked.schedules.refit() == 1
    await clocked.look("2026-03-02 06:00")
    assert len(await clocked.runs()) == 1
    await clocked.look("2026-03-02 07:00")
    assert len(await clocked.runs()) == 2


async def test_what_a_clock_that_was_ahead_jumped_over_still_fires(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.look("2027-03-02 06:00")
    await clocked.end((await clocked.runs())[0].id)
    clocked.set("2026-03-02 05:40")
    assert await clocked.schedules.refit() == 1
    await clocked.look("2026-03-02 06:00")
    assert len(await clocked.runs()) == 2
    assert await clocked.schedules.refit() == 0


async def test_a_file_that_is_gone_or_broken_is_recorded_and_notified_and_the_schedule_goes_on(
    clocked: Clocked,
) -> None:
    await clocked.add()
    clocked.book.unlink()
    await clocked.look("2026-03-02 06:00")
    clocked.book.write_text("# Tea\n\nNo steps.\n")
    await clocked.look("2026-03-02 07:00")
    clocked.book.write_text(TEA)
    await clocked.look("2026-03-02 08:00")
    assert [state for _, state in await clocked.history()] == ["failed", "failed", "started"]
    gone, broken = sorted(await clocked.notices(), key=lambda text: "is gone" not in text)
    assert f"could not start tea.md: The playbook {clocked.book} is gone." in gone
    assert "could not start tea.md: tea.md" in broken or "STEP" in broken


async def test_an_owner_who_is_gone_suspends_the_schedule(clocked: Clocked) -> None:
    await clocked.service.add_user("ada", ["runner"])
    await clocked.add(owner="ada")
    await clocked.look("2026-03-02 06:00")
    (run,) = await clocked.runs()
    assert run.owner == "ada"
    assert (await clocked.service.remove_user("ada")).suspended == ("schedule:tea",)
    await clocked.look("2026-03-02 07:00")
    await clocked.look("2026-03-02 08:00")
    schedule = await clocked.schedule()
    assert schedule.suspended == "Its owner, ada, was removed."
    assert [state for _, state in await clocked.history()] == ["started"]
    assert await clocked.store.next_due(["schedule"]) is None
    (text,) = await clocked.notices()
    assert "`cuebook schedule resume tea`" in text


async def test_an_owner_who_lost_their_roles_suspends_the_schedule(clocked: Clocked) -> None:
    await clocked.service.add_user("ada", ["runner", "viewer"])
    await clocked.add(owner="ada")
    await clocked.service.revoke("ada", ["runner"])
    await clocked.look("2026-03-02 06:00")
    assert (await clocked.schedule()).suspended.startswith("Its owner may no longer start runs: ")
    assert [state for _, state in await clocked.history()] == ["skipped"]


async def test_an_owner_who_lost_the_role_suspends_the_schedule(clocked: Clocked) -> None:
    await clocked.service.add_user("ada", ["runner", "viewer"])
    await clocked.add(owner="ada")
    await clocked.service.revoke("ada", ["runner"])
    await clocked.look("2026-03-02 06:00")
    assert await clocked.runs() == []
    assert "requires the role runner" in (await clocked.schedule()).suspended


async def test_a_paused_schedule_does_not_fire_and_does_not_make_up_for_it(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.schedules.pause("tea")
    await clocked.look("2026-03-02 06:00")
    clocked.set("2026-03-02 06:10")
    await clocked.schedules.resume("tea")
    await clocked.look("2026-03-02 06:20")
    assert await clocked.runs() == []
    await clocked.look("2026-03-02 07:00")
    assert len(await clocked.runs()) == 1


async def test_a_pause_during_a_firing_wins_and_loses_nothing(clocked: Clocked) -> None:
    await clocked.add()
    clocked.set("2026-03-02 06:00")
    (job,) = await clocked.store.take_jobs(["schedule"], clocked.store.now(), clocked.store.now() + 30)
    await clocked.schedules.pause("tea")
    assert await clocked.store.put_job(await clocked.schedules.handle(job)) is None
    assert (await clocked.schedule()).paused
    assert len(await clocked.runs()) == 1


async def test_a_firing_on_demand_does_not_move_the_planned_one(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.triggers.request(Schedule, "tea", "local", "now-1", by="local")
    await clocked.triggers.request(Schedule, "tea", "local", "now-1", by="local")
    await clocked.look()
    assert len(await clocked.runs()) == 1
    await clocked.end((await clocked.runs())[0].id)
    await clocked.look("2026-03-02 06:00")
    assert await clocked.history() == [("now-1", "started"), ("2026-03-02T06:00:00Z", "started")]


async def test_jitter_delays_a_firing_by_the_same_amount_in_every_process(clocked: Clocked) -> None:
    schedule = await clocked.add(jitter=600.0)
    delay = schedule.delay(schedule.next)
    assert 0 < delay < 600
    await clocked.look("2026-03-02 06:00")
    assert await clocked.runs() == []
    await clocked.look("2026-03-02 06:10")
    assert await clocked.history() == [("2026-03-02T06:00:00Z", "started")]


async def test_a_process_in_another_workspace_leaves_the_firing_to_others(clocked: Clocked) -> None:
    schedule = await clocked.add()
    elsewhere = msgspec.structs.replace(schedule.target, workspace="/elsewhere")
    await clocked.triggers.change(Schedule, "tea", LOCAL, lambda one: msgspec.structs.replace(one, target=elsewhere))
    clocked.runner = JobRunner(clocked.store, {"schedule": Schedules(clocked.triggers, frozenset({"/here"})).handle})
    await clocked.look("2026-03-02 06:00")
    assert await clocked.runs() == []
    assert await clocked.store.next_due(["schedule"]) == at("2026-03-02 06:00") + 1
    await clocked.look("2026-03-02 07:30")
    assert [state for _, state in await clocked.history()] == ["missed", "missed"]
    assert "No process offered its workspace, /elsewhere." in (await clocked.notices())[0]


# --- runs that overlap ---


async def test_a_firing_is_skipped_while_the_run_before_is_unfinished(clocked: Clocked) -> None:
    await clocked.add()
    await clocked.look("2026-03-02 06:00")
    await clocked.look("2026-03-02 07:00")
    (run,) = await clocked.runs()
    assert (await clocked.schedule()).history[0].reason == f"Run {run.id} is unfinished."
    await clocked.end(run.id)
    await clocked.look("2026-03-02 08:00")
    assert len(await clocked.runs()) == 2


async def test_at_most_one_firing_is_queued(clocked: Clocked) -> None:
    await clocked.add(overlap="queue")
    for hour in (6, 7, 8):
        await clocked.look(f"2026-03-02 0{hour}:00")
    schedule = await clocked.schedule()
    assert schedule.queued is not None
    assert [one.state for one in schedule.history] == ["skipped", "started"]
    await clocked.end((await clocked.runs())[0].id)
    await clocked.look("2026-03-02 08:10")
    assert await clocked.history() == [
        ("2026-03-02T06:00:00Z", "started"),
        ("2026-03-02T08:00:00Z", "skipped"),
        ("2026-03-02T07:00:00Z", "started"),
    ]
    assert len(await clocked.runs()) == 2


async def test_the_older_run_is_cancelled_and_the_new_one_starts_after_it(clocked: Clocked) -> None:
    await clocked.add(overlap="cancel")
    await clocked.look("2026-03-02 06:00")
    (older,) = await clocked.runs()
    await clocked.look("2026-03-02 07:00")
    assert len(await clocked.runs()) == 1
    await clocked.service.take_up(older.id)  # its driver ends it
    await clocked.look("2026-03-02 07:01")
    assert (await clocked.service.row(older.id)).status == "cancelled"
    assert len(await clocked.runs()) == 2
    assert [state for _, state in await clocked.history()] == ["started", "started"]


# --- what people type ---


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"cron": "0 6 * *"}, "expected 5 fields, got 4"),
        ({"cron": "61 6 * * *"}, "invalid minute"),
        ({"cron": "0 0 31 2 *"}, "invalid day-of-month|never fires"),
        ({"zone": "Europe/Berln"}, "Unknown time zone 'Europe/Berln'"),
        ({"cron": "*/5 * * * *", "jitter": 300.0}, "not shorter than the 300 s"),
        ({"jitter": -1.0}, "cannot be negative"),
    ],
)
async def test_times_that_cannot_work_are_refused(tmp_path: Path, given: dict[str, Any], error: str) -> None:
    clocked = Clocked(MemoryStore(), tmp_path, "2026-03-02 05:30")
    with pytest.raises(BadInput, match=error):
        check_times(**{"cron": "0 6 * * *", "zone": "UTC", "jitter": 0.0, "catch_up": 0.0, "now": 0.0, **given})
    assert await clocked.triggers.page(Schedule) == []


async def test_a_name_is_taken_once_and_free_again_after_removal(clocked: Clocked) -> None:
    await clocked.add()
    with pytest.raises(Conflict, match="already a schedule named 'tea'"):
        await clocked.add()
    await clocked.look("2026-03-02 06:00")
    await clocked.triggers.remove(Schedule, "tea")
    with pytest.raises(NotFound, match="no schedule named 'tea'"):
        await clocked.schedule()
    await clocked.add()  # another schedule, whose firings are its own
    await clocked.look("2026-03-02 07:00")
    assert len(await clocked.runs()) == 2


async def test_only_the_owner_or_an_admin_changes_a_schedule(clocked: Clocked) -> None:
    ada, bob = (Principal(name, roles=frozenset({"runner"})) for name in ("ada", "bob"))
    await clocked.add(owner="ada")
    with pytest.raises(NotAllowed, match="belongs to ada"):
        await clocked.schedules.pause("tea", bob)
    assert (await clocked.schedules.pause("tea", ada)).paused
    await clocked.triggers.remove(Schedule, "tea", Principal("root", roles=frozenset({"admin"})))


async def test_schedules_move_with_a_store(clocked: Clocked) -> None:
    made = await clocked.add("0 6 * * *")
    await clocked.store.keep("local", "standing", made.trigger, {"trigger": made.trigger})
    target = MemoryStore()
    assert await copy_decisions(clocked.store, target) == 2
    assert await copy_decisions(clocked.store, target) == 0
    (job,) = await target.jobs("schedule")
    assert Schedule.of(job) == made
    assert await target.next_due(["schedule"]) == await clocked.store.next_due(["schedule"])
    assert list(await target.kept("local", "standing")) == [made.trigger]


async def test_a_change_of_what_a_permission_is_for_suspends_the_schedule(clocked: Clocked) -> None:
    made = await clocked.add("0 6 * * *")
    permissions = Permissions(clocked.service, clocked.triggers)
    asks = [Asking("1", "command touch made", (Allowed("command", "touch made", "1"),))]
    book = playbook_of(made.target)
    standing = await permissions.give(made, book.digest, "policy", asks, LOCAL, 3600.0)
    assert standing.allowed == (Allowed("command", "touch made", "1"),)
    assert await permissions.check(made, book, "policy") == ""
    assert "The policy has changed since." in await permissions.check(made, book, "another policy")
    clocked.book.write_text(f"{TEA}\nMore.\n")
    clocked.triggers._check = lambda one, read, inputs, who: permissions.check(one, read, "policy")
    await clocked.triggers.request(Schedule, made.name, "local", "now", by="ada")
    job = await clocked.store.job("local", "schedule", made.name)
    assert job is not None
    fired = Schedule.of(await Schedules(clocked.triggers).handle(job))
    assert fired.suspended.startswith("What it was allowed in advance no longer holds. The playbook has changed since.")
    assert [one.state for one in fired.history] == ["skipped"]
    (notice,) = await clocked.notices()
    assert "Schedule 'tea' is suspended. " in notice
    assert "`cuebook schedule allow tea`" in notice
    assert "`cuebook schedule resume tea`" in notice
    await permissions.withdraw(made, LOCAL)
    assert await permissions.check(made, playbook_of(made.target), "policy") == "", "its runs wait for approval"


async def test_the_end_of_a_permission_is_notified_once_and_the_run_starts(clocked: Clocked) -> None:
    made = await clocked.add("0 6 * * *")
    permissions = Permissions(clocked.service, clocked.triggers)
    asks = [Asking("1", "command touch made", (Allowed("command", "touch made", "1"),))]
    book = playbook_of(made.target)
    await permissions.give(made, book.digest, "policy", asks, LOCAL, 3600.0)
    clocked.set("2026-03-02 12:00")
    for _ in range(2):
        assert await permissions.check(made, book, "policy") == ""  # it fires, and its run waits
    (notice,) = await clocked.notices()
    assert "It has expired. Its runs wait for approval." in notice
    with pytest.raises(BadInput, match="nothing that 'tea' could be allowed"):
        await permissions.give(made, book.digest, "policy", [Asking("1", "x", why="it asks")], LOCAL)
    with pytest.raises(NotAllowed, match="requires the role approver"):
        await permissions.give(made, book.digest, "policy", asks, Principal("bob", roles=frozenset({"runner"})))
