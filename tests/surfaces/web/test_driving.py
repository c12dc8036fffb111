"""Runs go on in the server: those begun here, answered elsewhere, left behind; never those that somebody else has."""

from __future__ import annotations

import asyncio

import pytest

from cuebook.kernel.run import Settings
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service import Service
from cuebook.surfaces import driving
from cuebook.surfaces.wiring import Wiring
from tests.office import SLOW
from tests.surfaces.web.house import House
from tests.surfaces.web.reading import Reader

ASKS = '# Asks\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n\n@output(said)\n\n## STEP 2: Go\n\nGo {{said}}.\n'
PLAIN = "# Plain\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "_GRACE", 0.2)


def another(house: House) -> Service:
    """What another process would have: the same store, and a driver of its own."""
    return Wiring(house.wiring.config, models=house.models).service()


async def test_what_was_answered_elsewhere_goes_on_here(house: House, impatient: None) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    other = another(house)
    await other.answer(wait, "well")
    await other.close()
    assert (await house.until(run, "completed"))["values"]["said"] == "well"


async def test_a_run_that_nobody_served_goes_on_once_it_is_answered(house: House, impatient: None) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    other = another(house)
    row = await other.start(ASKS, "asks.md", {}, Settings(model="test/one"))
    await other.drive(row.id)
    await other.answer((await other.store.waits(run=row.id))[0].id, "well")
    await other.close()
    await house.until(row.id, "completed")


async def test_what_another_process_has_is_left_to_it_and_shown(house: House, impatient: None) -> None:
    gate = asyncio.Event()
    await house.model(ScriptedModel(["One.", Says("Two.", wait_for=gate)])).serve()
    other = another(house)
    row = await other.start(PLAIN, "plain.md", {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    seen = asyncio.create_task(house.all_events(row.id))
    await asyncio.sleep(1.0)
    assert not house.site.drivers.drives(row.id)
    gate.set()
    await driven
    reader = Reader(await seen)
    assert reader.streamed == [("1", "One."), ("2", "Two.")]
    assert (await house.get(f"/api/runs/{row.id}"))["status"] == "completed"
    await other.close()


async def test_a_run_that_a_person_let_go_waits_for_them(house: House, impatient: None) -> None:
    """As with Ctrl-C at a terminal: they go on with it when they like."""
    await house.model(ScriptedModel([Says("One.", wait_for=asyncio.Event()), "One.", "Two."])).serve()
    other = another(house)
    row = await other.start(PLAIN, "plain.md", {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    await asyncio.sleep(0.3)
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)
    await other.close()
    await asyncio.sleep(1.0)
    assert (await house.get(f"/api/runs/{row.id}"))["status"] == "running"
    await house.post(f"/api/runs/{row.id}/resume", 202)  # and here is one way to like it
    await house.until(row.id, "completed")


async def test_what_a_server_had_in_hand_goes_on_with_the_next(house: House) -> None:
    held = Says("One.", wait_for=asyncio.Event())
    await house.model(ScriptedModel([held, "One.", "Two."])).serve()
    run = await house.begin(playbook=house.book("plain.md", PLAIN))
    await house.until(run, "running")
    await house.stop()
    await house.serve()
    told = await house.until(run, "completed")
    assert told["outputs"] == {"1": "One.", "2": "Two."}
    async with asyncio.timeout(30):
        while await house.service.store.kept("", driving.SERVED):
            await asyncio.sleep(0.02)


async def test_a_run_of_another_folder_is_left_alone(house: House, impatient: None) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    other = another(house)
    row = await other.start(ASKS, "asks.md", {}, Settings(model="test/one", workspace="/somewhere/else"))
    await other.drive(row.id)
    await other.answer((await other.store.waits(run=row.id))[0].id, "well")
    await other.close()
    await asyncio.sleep(1.0)
    assert (await house.get(f"/api/runs/{row.id}"))["status"] == "awaiting_input"


async def test_a_question_expires_in_time(house: House) -> None:
    await house.model(ScriptedModel([])).serve(pause_expiry="1s")
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    await house.until(run, "expired")
    late = await house.client.post(f"/api/waits/{wait}/answer", json={"value": "x"})
    assert (late.status_code, late.json()["code"]) == (410, "wait_expired")


async def test_only_so_many_go_on_at_once(house: House) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(lambda request: Says("A.", wait_for=gate))
    await house.model(model).serve()
    house.site.drivers._at_once = 2
    book = house.book("one.md", "# One\n\n## STEP 1: A\n\nDo A.\n")
    runs = [await house.begin(playbook=book) for _ in range(5)]
    await asyncio.sleep(0.6)
    assert len(model.requests) == 2
    gate.set()
    for run in runs:
        await house.until(run, "completed")


async def test_a_command_is_cancelled_in_the_middle(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    run = await house.begin(playbook=house.book("slow.yml", SLOW))
    await house.until(run, "running")
    await asyncio.sleep(0.3)
    events = asyncio.create_task(house.all_events(run))
    await house.post(f"/api/runs/{run}/cancel", 202, reason="enough")
    assert (await house.until(run, "cancelled"))["status"] == "cancelled"
    assert (await events)[-1].event == "status"


async def test_a_stream_ends_with_the_server(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    await house.waiting(run)
    streams = [asyncio.create_task(house.all_events(run)) for _ in range(5)]
    await asyncio.sleep(0.5)
    assert house.site.feeds.readers == 5
    house.server.stop()
    for stream in streams:
        assert (await stream)[-1].event == "elicitation"


async def test_news_that_come_with_the_end_do_not_keep_the_drivers_from_ending(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    drivers = house.site.drivers
    await asyncio.sleep(0.05)  # until they wait for news
    drivers._news.set()
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await drivers.close()
