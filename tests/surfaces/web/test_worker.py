"""The server drives runs that were started here, answered elsewhere or interrupted, but never those of others."""

from __future__ import annotations

import asyncio

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.run import Settings
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service import worker
from cuebook.service.service import Service
from cuebook.wiring.wiring import Wiring
from tests.support.runtime import SLOW
from tests.surfaces.web.served_app import ServedApp
from tests.surfaces.web.stream_reader import Reader

ASKS = '# Asks\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n\n@output(said)\n\n## STEP 2: Go\n\nGo {{said}}.\n'
PLAIN = "# Plain\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_GRACE", 0.2)


def another(web: ServedApp) -> Service:
    """The service of another process: the same store, and its own driver."""
    return Wiring(web.wiring.config, models=web.models).service()


async def test_a_run_answered_elsewhere_continues_here(web: ServedApp, impatient: None) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    other = another(web)
    await other.answer(wait, "well")
    await other.close()
    assert (await web.until(run, "completed"))["values"]["said"] == "well"


async def test_an_unserved_run_continues_once_it_is_answered(web: ServedApp, impatient: None) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    other = another(web)
    row = await other.start(Playbook.from_text(ASKS, "asks.md"), {}, Settings(model="test/one"))
    await other.drive(row.id)
    await other.answer((await other.waits(row.id))[0].id, "well")
    await other.close()
    await web.until(row.id, "completed")


async def test_a_run_of_another_process_is_left_alone_and_shown(web: ServedApp, impatient: None) -> None:
    gate = asyncio.Event()
    await web.model(ScriptedModel(["One.", Says("Two.", wait_for=gate)])).serve()
    other = another(web)
    row = await other.start(Playbook.from_text(PLAIN, "plain.md"), {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    seen = asyncio.create_task(web.all_events(row.id))
    await asyncio.sleep(1.0)
    assert not web.site.worker.drives(row.id)
    gate.set()
    await driven
    reader = Reader(await seen)
    assert reader.streamed == [("1", "One."), ("2", "Two.")]
    assert (await web.get(f"/api/runs/{row.id}"))["status"] == "completed"
    await other.close()


async def test_a_run_interrupted_by_a_person_waits_for_them(web: ServedApp, impatient: None) -> None:
    """As with Ctrl-C at a terminal: its user decides when to continue it."""
    await web.model(ScriptedModel([Says("One.", wait_for=asyncio.Event()), "One.", "Two."])).serve()
    other = another(web)
    row = await other.start(Playbook.from_text(PLAIN, "plain.md"), {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    await web.until(row.id, "running")
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)
    await other.close()
    await asyncio.sleep(1.0)
    assert (await web.get(f"/api/runs/{row.id}"))["status"] == "running"
    await web.post(f"/api/runs/{row.id}/resume", 202)  # it continues when its user resumes it here
    await web.until(row.id, "completed")


async def test_a_run_continues_with_the_next_server(web: ServedApp) -> None:
    held = Says("One.", wait_for=asyncio.Event())
    await web.model(ScriptedModel([held, "One.", "Two."])).serve()
    run = await web.begin(playbook=web.book("plain.md", PLAIN))
    await web.until(run, "running")
    await web.stop()
    await web.serve()
    message = await web.until(run, "completed")
    assert message["outputs"] == {"1": "One.", "2": "Two."}
    async with asyncio.timeout(30):
        while await web.service.kept("", worker.SERVED):
            await asyncio.sleep(0.02)


async def test_a_run_of_another_folder_is_left_alone(web: ServedApp, impatient: None) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    other = another(web)
    row = await other.start(
        Playbook.from_text(ASKS, "asks.md"), {}, Settings(model="test/one", workspace="/somewhere/else")
    )
    await other.drive(row.id)
    await other.answer((await other.waits(row.id))[0].id, "well")
    await other.close()
    await asyncio.sleep(1.0)
    assert (await web.get(f"/api/runs/{row.id}"))["status"] == "awaiting_input"


async def test_a_question_expires_in_time(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve(pause_expiry="1s")
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    await web.until(run, "expired")
    late = await web.client.post(f"/api/waits/{wait}/answer", json={"value": "x"})
    assert (late.status_code, late.json()["code"]) == (410, "wait_expired")


async def test_the_number_of_concurrent_runs_is_limited(web: ServedApp) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(lambda request: Says("A.", wait_for=gate))
    await web.model(model).serve()
    web.site.worker._at_once = 2
    book = web.book("one.md", "# One\n\n## STEP 1: A\n\nDo A.\n")
    runs = [await web.begin(playbook=book) for _ in range(5)]
    await asyncio.sleep(0.6)
    assert len(model.requests) == 2
    gate.set()
    for run in runs:
        await web.until(run, "completed")


async def test_a_command_is_cancelled_in_the_middle(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("slow.yml", SLOW))
    await web.until(run, "running")
    await asyncio.sleep(0.3)
    events = asyncio.create_task(web.all_events(run))
    await web.post(f"/api/runs/{run}/cancel", 202, reason="enough")
    assert (await web.until(run, "cancelled"))["status"] == "cancelled"
    assert (await events)[-1].event == "status"


async def test_a_stream_ends_with_the_server(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    await web.waiting(run)
    streams = [asyncio.create_task(web.all_events(run)) for _ in range(5)]
    await asyncio.sleep(0.5)
    assert web.service.stream.readers == 5
    web.server.stop()
    for stream in streams:
        assert (await stream)[-1].event == "elicitation"


async def test_changes_during_the_shutdown_do_not_block_the_worker(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    serving = web.site.worker
    await asyncio.sleep(0.05)  # until they wait for changes
    serving._news.set()
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await serving.close()
