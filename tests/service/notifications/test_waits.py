"""Waits that stay open are mentioned again, and then elsewhere; each person gets what they want and may see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.config.notifications import Rules
from cuebook.gate.roles import NotAllowed, Principal, Role
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Signal
from tests.service.notifications.notified import URL, Kept, Notified, moment
from tests.support.programs import begin

HOUR = 3600.0
MAIL: dict[str, Any] = {"kind": "email", "domains": ("example.com",)}


async def test_a_wait_has_a_short_id_and_a_link_and_nothing_that_decides(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel)
    wait = await notified.waits()
    await notified.look()
    (message,) = channel.got
    assert (message.title, message.text) == ("undoing asks a question", "Keep?")
    assert (message.short_id, message.link) == (wait[:8], f"{URL}/runs/run#wait-{wait}")
    assert message.command == f"cuebook answer {wait[:8]} VALUE"
    assert notified.service.tokens._key_file is None  # there is not even a key for tokens


async def test_an_open_wait_is_mentioned_again_and_then_escalated(store: Store, tmp_path: Path) -> None:
    team, pager = Kept("team"), Kept("pager")
    rules = Rules(
        send_to=("team",), remind_after=4 * HOUR, reminders=2, escalate_after=10 * HOUR, escalate_to=("pager",)
    )
    notified = Notified(store, tmp_path, team, pager, usual=rules)
    start = notified.now
    await notified.waits()
    await notified.until_nothing_is_due(start + 100 * HOUR)
    assert team.tries == [start, start + 4 * HOUR, start + 8 * HOUR]
    assert pager.tries == [start + 10 * HOUR]
    assert team.titles[1] == "Reminder: undoing asks a question"
    assert pager.titles == ["Escalated: undoing asks a question"]
    assert await notified.notices() == []


async def test_a_wait_that_ends_is_not_mentioned_again(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    rules = Rules(remind_after=HOUR, escalate_after=2 * HOUR, escalate_to=("kept",))
    notified = Notified(store, tmp_path, channel, usual=rules)
    start = notified.now
    wait = await notified.waits()
    await notified.until_nothing_is_due(start + 1.5 * HOUR)
    assert len(channel.got) == 2
    await notified.service.answer(wait, "yes")
    await notified.until_nothing_is_due(start + 50 * HOUR)
    assert len(channel.got) == 2


async def test_a_machine_that_slept_over_five_reminders_sends_one(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel, usual=Rules(remind_after=HOUR, reminders=8))
    start = notified.now
    await notified.waits()
    await notified.look()
    await notified.look(start + 5.5 * HOUR)
    assert [one.reminder for one in channel.got] == [0, 5]
    await notified.until_nothing_is_due(start + 100 * HOUR)
    assert [one.reminder for one in channel.got] == [0, 5, 6, 7, 8]


async def test_a_clock_that_is_set_back_repeats_no_message(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel, usual=Rules(remind_after=HOUR, reminders=2))
    start = notified.now
    await notified.waits()
    await notified.look(start + 1.5 * HOUR)
    await notified.look(start)
    await notified.look(start + 1.5 * HOUR)
    assert len(channel.got) == 1  # the first message came after the first reminder was due
    await notified.look(start + 2 * HOUR)
    assert [one.reminder for one in channel.got] == [0, 2]


async def test_each_person_gets_their_own_runs_and_with_all_what_they_may_end(store: Store, tmp_path: Path) -> None:
    mail = Kept("mail", **MAIL)
    notified = Notified(store, tmp_path, mail, usual=Rules(events=()))
    roles: dict[str, Role] = {"me": "runner", "rita": "runner", "vera": "viewer", "mine": "runner"}
    for name, role in roles.items():
        who = await notified.user(name, role)
        runs = "mine" if name == "mine" else "all"
        wanted = {"events": ("waiting",), "channels": ("mail",), "address": f"{name}@example.com", "runs": runs}
        await notified.notifier.people.change(who, wanted)
    await notified.waits()  # a run of `me`
    await notified.look()
    assert {one.to for one in mail.got} == {"me", "rita"}
    assert {one.address for one in mail.recipients if one is not None} == {"me@example.com", "rita@example.com"}


async def test_a_budget_concerns_the_person_whom_it_limits_and_admins(store: Store, tmp_path: Path) -> None:
    mail = Kept("mail", **MAIL)
    notified = Notified(store, tmp_path, mail, usual=Rules(events=()))
    roles: dict[str, Role] = {"ana": "runner", "bob": "approver", "root": "admin"}
    for name, role in roles.items():
        wanted = {"events": ("budget",), "channels": ("mail",), "address": f"{name}@example.com", "runs": "all"}
        await notified.notifier.people.change(await notified.user(name, role), wanted)
    await notified.say("budget", playbook="", owner="ana", text="ana used $4 of $5 on 2026-03-10.")
    await notified.look()
    assert {one.to for one in mail.got} == {"ana", "root"}
    assert {one.title for one in mail.got} == {"A budget has passed a mark"}


async def test_a_person_who_was_removed_gets_nothing(store: Store, tmp_path: Path) -> None:
    mail = Kept("mail", **MAIL)
    notified = Notified(store, tmp_path, mail, usual=Rules(events=()))
    ana = await notified.user("ana", "admin")
    await notified.notifier.people.change(
        ana, {"events": ("failed",), "channels": ("mail",), "runs": "all", "address": "ana@example.com"}
    )
    await notified.say("failed", "one")
    await notified.look()
    assert len(mail.got) == 1
    await notified.service.remove_user("ana")
    await notified.say("failed", "two")
    await notified.look()
    assert len(mail.got) == 1


async def test_a_person_chooses_playbooks_and_quiet_hours_of_their_own(store: Store, tmp_path: Path) -> None:
    mail = Kept("mail", **MAIL)
    rules = Rules(events=(), quiet_hours="00:00-23:59")
    notified = Notified(store, tmp_path, mail, usual=rules, now=moment("2026-06-01 12:00"))
    people, ana = notified.notifier.people, await notified.user("ana", "admin")
    wanted = {"events": ("failed",), "channels": ("mail",), "address": "ana@example.com", "runs": "all"}
    await people.change(
        ana, {**wanted, "playbooks": ("deploy*",), "quiet_hours": "20:00-08:00", "time_zone": "Asia/Tokyo"}
    )
    await notified.say("failed", "one", playbook="deploy.md")  # at 21:00 in Tokyo
    await notified.say("failed", "two", playbook="tea.md")
    await notified.look()
    assert mail.got == []
    await notified.look(moment("2026-06-01 23:00"))  # at 08:00 in Tokyo
    assert mail.titles == ["deploy.md failed"]
    await people.change(ana, {"quiet_hours": "none"})
    await notified.say("failed", "three", playbook="deploy.md")
    await notified.look()
    assert len(mail.got) == 2


async def test_addresses_of_people_are_in_the_configured_domains(store: Store, tmp_path: Path) -> None:
    mail, hook = Kept("mail", **MAIL), Kept("hook")
    notified = Notified(store, tmp_path, mail, hook)
    people, ana = notified.notifier.people, await notified.user("ana")
    for address in ("ana@evil.com", "ana@example.com.evil.com", "a b@example.com", "ana@example.com\nBcc: x@y.z", "x"):
        with pytest.raises(BadInput):
            await people.change(ana, {"address": address})
    with pytest.raises(BadInput, match="'hook' is not a channel for messages to one person"):
        await people.change(ana, {"channels": ("hook",)})
    for wrong in (
        {"events": ("wating",)},
        {"quiet_hours": "late"},
        {"time_zone": "Mars"},
        {"runs": "some"},
        {"colour": 1},
    ):
        with pytest.raises(BadInput):
            await people.change(ana, wrong)
    assert await people.preferences(ana) == type(await people.preferences(ana))()
    await people.change(ana, {"address": "ana@EXAMPLE.com"})
    acts = [act for act in await notified.service.admin_audit.acts(Principal()) if act.act.what == "notify.preferences"]
    assert [(one.act.by, one.act.details) for one in acts] == [("ana", {"changed": ["address"]})]


async def test_people_see_their_own_messages_and_admins_all(store: Store, tmp_path: Path) -> None:
    mail, hook = Kept("mail", down=True, **MAIL), Kept("hook", down=True)
    notified = Notified(store, tmp_path, mail, hook)
    ana = await notified.user("ana", "runner")
    wanted = {"events": ("failed",), "channels": ("mail",), "address": "ana@example.com"}
    await notified.notifier.people.change(ana, wanted)
    await notified.say("failed", owner="ana")
    await notified.look()
    mine, all = await notified.notifier.status(ana), await notified.notifier.status(Principal())
    assert [(one.channel, one.to) for one in mine.messages] == [("mail", "ana")]
    assert sorted((one.channel, one.to) for one in all.messages) == [("hook", ""), ("mail", "ana")]
    with pytest.raises(NotAllowed):
        await notified.notifier.status(Principal("nobody", roles=frozenset()))


async def test_a_run_that_ends_says_how(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel, usual=Rules(events=("ended",)))
    service = notified.service
    await service.drive(await begin(service._engine, "counting", "done"))
    await service.drive(await begin(service._engine, "undoing", "left"))
    await store.signal(Signal("left", "cancel", {}, "me"))
    await service.drive("left")
    await notified.look()
    assert sorted(channel.titles) == ["counting is completed", "undoing was cancelled"]


async def test_messages_go_with_their_run_and_their_person(store: Store, tmp_path: Path) -> None:
    mail, hook = Kept("mail", down=True, **MAIL), Kept("hook", down=True)
    notified = Notified(store, tmp_path, mail, hook, usual=Rules(events=("ended", "waiting"), remind_after=HOUR))
    service = notified.service
    me = await notified.user("me", "runner")
    wanted = {"events": ("ended",), "channels": ("mail",), "address": "me@example.com"}
    await notified.notifier.people.change(me, wanted)
    await service.drive(await begin(service._engine, "counting", "done"))
    await notified.waits()
    await notified.look()
    assert len(await notified.messages()) == 3
    await service.retention.delete("run", Principal(), force=True, reason="test")
    assert await notified.notices() == []
    assert {str(job.body["run"]) for job in await notified.messages()} == {"done"}
    await notified.say("failed", owner="me", text="Something about me.")
    await service.retention.erase(Principal(), owner="me")
    assert (await notified.messages(), await notified.notices()) == ([], [])
    assert await notified.notifier.people.all_preferences("local") == {}


async def test_a_message_that_was_sent_keeps_no_text_of_the_run(store: Store, tmp_path: Path) -> None:
    notified = Notified(store, tmp_path, Kept())
    await notified.say(text="Something private.")
    await notified.look()
    (job,) = await notified.messages()
    assert "Something private." not in str(job.body)


async def test_a_message_about_a_run_that_is_gone_is_not_sent(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel)
    await notified.say(run="gone")  # as after a process that died while it deleted the run
    await notified.look()
    assert (channel.got, await notified.messages()) == ([], [])
