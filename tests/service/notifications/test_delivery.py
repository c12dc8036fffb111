"""Messages reach receivers that are down, once and late rather than never; quiet hours hold them back."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from cuebook.config.notifications import Rules
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.notices import NOTICE
from cuebook.kernel.ports import Store
from cuebook.service.job_runner import JobRunner
from tests.service.notifications.notified import KEY, URL, Kept, Notified, moment, webhook
from tests.support.programs import begin
from tests.support.web_service import Received, web_service


async def test_a_notice_becomes_a_message_in_each_channel(store: Store, tmp_path: Path) -> None:
    one, other = Kept("one"), Kept("other")
    notified = Notified(store, tmp_path, one, other)
    await begin(notified.service._engine, "counting", "abc")
    await notified.say("failed", run="abc")
    await notified.look()
    for channel in (one, other):
        (message,) = channel.got
        assert (message.title, message.text) == ("tea.md failed", "It broke.")
        assert (message.short_id, message.link) == ("abc", f"{URL}/runs/abc")
    assert await notified.notices() == []
    assert await notified.states() == ["sent", "sent"]


async def test_a_receiver_that_is_down_for_an_hour_gets_the_message_once(store: Store, tmp_path: Path) -> None:
    up: list[bool] = []

    def answer(received: Received) -> tuple[int, object]:
        return (204 if up else 503), None

    with web_service(answer) as receiver:
        notified = Notified(store, tmp_path, webhook(f"http://{receiver.place}/hook"))
        start = notified.now
        await notified.say()
        await notified.until_nothing_is_due(start + 3600)
        tries = len(receiver.requests)
        assert 8 <= tries <= 14
        (waiting,) = (await notified.notifier.status(Principal())).messages
        assert (waiting.state, waiting.attempts, waiting.error) == (
            "pending",
            tries,
            f"{receiver.place} answered with HTTP 503.",
        )
        up.append(True)
        await notified.until_nothing_is_due(start + 2 * 3600)
        assert len(receiver.requests) == tries + 1
        assert len({one.headers["webhook-id"] for one in receiver.requests}) == 1
        assert await notified.states() == ["sent"]
        moments = [int(one.headers["webhook-timestamp"]) for one in receiver.requests]
        pauses = [later - before for before, later in pairwise(moments)]
        assert pauses[0] < 10
        assert max(pauses) <= 900 * 1.2 + 1


async def test_a_message_survives_a_process_that_died_while_sending_it(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel)
    await notified.say()
    await notified.store.take_jobs([NOTICE], notified.now, notified.now + 30)  # and dies
    await notified.look(notified.now + 31)
    assert len(channel.got) == 1
    assert await notified.notices() == []


async def test_a_plan_that_is_repeated_after_a_crash_puts_no_message_twice(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel)
    await notified.say()
    (job,) = await notified.notices()
    await notified.notifier.planner.handle(job)  # and dies before the notice is dropped
    await notified.look()
    await notified.look(notified.now + 60)
    assert len(channel.got) == 1


async def test_two_processes_send_a_message_once(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel)
    other = JobRunner(store, notified.notifier.handlers)
    for number in range(10):
        await notified.say(key=str(number))

    async def look(runner: JobRunner) -> None:
        for _ in range(5):
            await runner.once()
            await runner.settled()

    await asyncio.gather(look(notified.runner), look(other))
    assert len(channel.got) == 10


async def test_a_message_is_given_up_after_a_day_and_the_status_says_why(store: Store, tmp_path: Path) -> None:
    channel = Kept(down=True)
    notified = Notified(store, tmp_path, channel)
    start = notified.now
    await notified.say()
    await notified.until_nothing_is_due(start + 24 * 3600 + 1)
    assert await notified.states() == ["failed"]
    status = await notified.notifier.status(Principal())
    assert status.channels[0].counts["failed"] == 1
    assert status.channels[0].error == "It is down."
    tries = len(channel.tries)
    await notified.until_nothing_is_due(start + 30 * 24 * 3600)
    assert len(channel.tries) == tries
    assert await notified.messages() == []


async def test_a_machine_that_slept_does_not_give_a_message_up_when_it_wakes(store: Store, tmp_path: Path) -> None:
    channel = Kept(down=True)
    notified = Notified(store, tmp_path, channel)
    await notified.say()
    await notified.look()
    woken = notified.now + 3 * 24 * 3600
    await notified.look(woken)  # there is no network yet
    assert (len(channel.tries), await notified.states()) == (2, ["pending"])
    channel.down = False
    await notified.until_nothing_is_due(woken + 60)
    assert [one.text for one in channel.got] == ["It broke."]


async def test_a_message_that_a_clock_ahead_postponed_is_sent_when_it_is_set_back(store: Store, tmp_path: Path) -> None:
    channel = Kept(down=True)
    notified = Notified(store, tmp_path, channel)
    await notified.say()
    start = notified.now
    await notified.look(start + 30 * 24 * 3600)
    notified.set(start + 60)
    channel.down = False
    await notified.look()
    assert channel.got == []
    assert await notified.notifier.delivery.refit() == 1
    await notified.until_nothing_is_due(start + 120)
    assert [one.text for one in channel.got] == ["It broke."]
    assert await notified.notifier.delivery.refit() == 0


async def test_a_message_that_was_given_up_can_be_sent_again(store: Store, tmp_path: Path) -> None:
    channel, other = Kept("one", down=True), Kept("other", down=True)
    channel.final = other.final = True
    notified = Notified(store, tmp_path, channel, other)
    await notified.say()
    await notified.look()
    assert await notified.states() == ["failed", "failed"]
    channel.down = other.down = False
    assert await notified.notifier.retry("one", Principal()) == 1
    await notified.look()
    assert ([one.text for one in channel.got], other.got) == (["It broke."], [])
    assert await notified.notifier.retry("", Principal()) == 1
    assert await notified.notifier.retry("", Principal()) == 0
    acts = [one.act for one in await notified.service.admin_audit.acts(Principal())]
    assert [(act.subject, act.details) for act in acts if act.what == "notify.retry"] == [
        ("one", {"messages": 1}),
        ("", {"messages": 1}),
    ]
    with pytest.raises(NotAllowed):
        await notified.notifier.retry("", await notified.user("ana", "approver"))


async def test_a_receiver_says_when_it_wants_to_be_asked_again_or_never(store: Store, tmp_path: Path) -> None:
    busy, gone = Kept("busy", down=True), Kept("gone", down=True)
    busy.after, gone.final = 600.0, True
    notified = Notified(store, tmp_path, busy, gone)
    await notified.say()
    await notified.until_nothing_is_due(notified.now + 590)
    assert (len(busy.tries), len(gone.tries)) == (1, 1)
    await notified.look(notified.now + 600)
    assert (len(busy.tries), len(gone.tries)) == (2, 1)


async def test_a_channel_that_is_down_delays_no_other(store: Store, tmp_path: Path) -> None:
    down, up = Kept("down", down=True), Kept("up")
    notified = Notified(store, tmp_path, down, up)
    for number in range(20):
        await notified.say(key=str(number))
    await notified.look()
    assert len(up.got) == 20


async def test_a_receiver_that_cannot_be_reached_is_tried_by_one_message_at_a_time(
    store: Store, tmp_path: Path
) -> None:
    channel = Kept(down=True)
    channel.unreachable = True
    notified = Notified(store, tmp_path, channel)
    start = notified.now
    for number in range(30):
        await notified.say(key=str(number))
    await notified.look()
    assert len(channel.tries) <= 16  # those that were on the way when it was noticed
    await notified.until_nothing_is_due(start + 600)
    assert len(channel.tries) < 100
    channel.down = False
    await notified.until_nothing_is_due(start + 3600)
    assert len(channel.got) == 30


async def test_a_signature_covers_the_id_the_time_and_the_body(store: Store, tmp_path: Path) -> None:
    with web_service(lambda received: (200, {})) as receiver:
        notified = Notified(store, tmp_path, webhook(f"http://{receiver.place}/hook"))
        await notified.say("waiting")
        await notified.look()
        (got,) = receiver.requests
    id, at = got.headers["webhook-id"], got.headers["webhook-timestamp"]
    version, _, given = got.headers["webhook-signature"].partition(",")
    assert (version, int(at)) == ("v1", int(notified.now))
    assert hmac.digest(KEY.encode(), f"{id}.{at}.".encode() + got.body, sha256) == b64decode(given)
    assert got.json["id"] == id
    assert got.json["type"] == "waiting"


async def test_only_the_configured_address_is_reached_whatever_it_answers(store: Store, tmp_path: Path) -> None:
    with (
        web_service(lambda received: (200, {})) as inside,
        web_service(lambda received: (302, None)) as receiver,
    ):
        receiver.headers["Location"] = f"http://{inside.place}/admin"
        notified = Notified(store, tmp_path, webhook(f"http://{receiver.place}/hook"))
        await notified.say()
        await notified.look()
        assert (len(receiver.requests), inside.requests) == (1, [])
    (left,) = (await notified.notifier.status(Principal())).messages
    assert "HTTP 302" in left.error


async def test_quiet_hours_hold_messages_until_they_end(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    rules = Rules(quiet_hours="22:00-07:00", time_zone="Europe/Berlin")
    zone = "Europe/Berlin"
    notified = Notified(store, tmp_path, channel, usual=rules, now=moment("2026-06-01 23:00", zone))
    await notified.say()
    await notified.look()
    assert channel.got == []
    assert await notified.states() == ["held"]
    await notified.look(moment("2026-06-02 06:59", zone))
    assert channel.got == []
    await notified.look(moment("2026-06-02 07:00", zone))
    assert len(channel.got) == 1


@pytest.mark.parametrize(
    ("hours", "now", "fold", "until"),
    [
        ("22:00-07:00", "2026-03-28 23:00", 0, "2026-03-29 07:00"),  # the night has 8 hours
        ("22:00-07:00", "2026-10-24 23:00", 0, "2026-10-25 07:00"),  # the night has 10 hours
        ("22:00-02:30", "2026-03-28 23:00", 0, "2026-03-29 03:00"),  # 02:30 does not exist
        ("22:00-03:00", "2026-10-25 02:15", 1, "2026-10-25 03:00"),  # 02:15 exists twice
    ],
)
async def test_quiet_hours_follow_the_clock_across_daylight_saving(
    store: Store, tmp_path: Path, hours: str, now: str, fold: int, until: str
) -> None:
    zone, channel = "Europe/Berlin", Kept()
    rules = Rules(quiet_hours=hours, time_zone=zone)
    notified = Notified(store, tmp_path, channel, usual=rules, now=moment(now, zone, fold))
    await notified.say()
    await notified.look()
    await notified.look(moment(until, zone) - 1)
    assert channel.got == []
    await notified.look(moment(until, zone))
    assert len(channel.got) == 1


async def test_quiet_hours_do_not_begin_again_when_the_clock_is_put_back(store: Store, tmp_path: Path) -> None:
    zone, channel = "Europe/Berlin", Kept()
    rules = Rules(quiet_hours="22:00-02:30", time_zone=zone)
    notified = Notified(store, tmp_path, channel, usual=rules, now=moment("2026-10-25 02:15", zone, 1))
    await notified.say()
    await notified.look()
    assert len(channel.got) == 1


async def test_some_events_are_not_held_back(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    rules = Rules(quiet_hours="00:00-23:59", quiet_except=("failed",))
    notified = Notified(store, tmp_path, channel, usual=rules, now=moment("2026-06-01 12:00"))
    await notified.say("failed", "one")
    await notified.say("schedule", "two", text="It could not start.")
    await notified.look()
    assert channel.titles == ["tea.md failed"]


async def test_a_wait_that_was_answered_in_quiet_hours_is_not_mentioned(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    rules = Rules(quiet_hours="22:00-07:00")
    notified = Notified(store, tmp_path, channel, usual=rules, now=moment("2026-06-01 23:00"))
    wait = await notified.waits()
    await notified.look()
    await notified.service.answer(wait, "yes")
    await notified.look(moment("2026-06-02 08:00"))
    assert channel.got == []
    assert "moot" in await notified.states()


async def test_a_playbook_has_its_own_rules(store: Store, tmp_path: Path) -> None:
    team, pager = Kept("team"), Kept("pager")
    playbooks = {"deploy*": Rules(send_to=("pager",), events=("ended",)), "quiet.md": Rules(events=())}
    notified = Notified(store, tmp_path, team, pager, usual=Rules(send_to=("team",)), playbooks=playbooks)
    await notified.say("ended", "one", playbook="deploy-eu.md")
    await notified.say("failed", "two", playbook="deploy-eu.md")
    await notified.say("failed", "three", playbook="quiet.md")
    await notified.say("failed", "four", playbook="tea.md")
    await notified.look()
    assert (team.titles, pager.titles) == (["tea.md failed"], ["deploy-eu.md ended"])


async def test_notices_of_other_tenants_stay_out_of_the_channels(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel, tenant="elsewhere")
    await notified.say()
    await notified.look()
    assert channel.got == []


async def test_a_run_that_passes_a_spending_mark_is_notified_once(store: Store, tmp_path: Path) -> None:
    channel = Kept()
    notified = Notified(store, tmp_path, channel, run_marks=(0.0015, 5.0))
    await notified.service.drive(await begin(notified.service._engine, "everything"))
    for wait in await store.waits(run="run"):
        await notified.service.answer(wait.id, "yes")
    await notified.service.drive("run")
    await notified.look()
    spent = [one.text for one in channel.got if one.event == "budget"]
    assert (await store.run("run")).totals.cost >= 0.0015
    assert len(spent) == 1
    assert "more than $0.0015" in spent[0]


async def test_texts_can_be_left_out(store: Store, tmp_path: Path) -> None:
    channel = Kept(texts=False)
    notified = Notified(store, tmp_path, channel)
    await notified.say()
    await notified.look()
    (message,) = channel.got
    assert (message.title, message.text) == ("tea.md failed", "")


async def test_the_test_of_a_channel_says_why_it_fails(store: Store, tmp_path: Path) -> None:
    up, down = Kept("up"), Kept("down", down=True)
    notified = Notified(store, tmp_path, up, down)
    assert await notified.notifier.test("", Principal()) == {"up": "", "down": "It is down."}
    assert await notified.messages() == []
    ana = await notified.user("ana", "viewer")
    assert await notified.notifier.test("up", Principal(), "ana") == {"up": "This channel does not reach one person."}
    with pytest.raises(BadInput, match="no channel 'other'"):
        await notified.notifier.test("other", Principal())
    with pytest.raises(NotAllowed):
        await notified.notifier.test("up", ana)
