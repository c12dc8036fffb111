"""Which runs the server drives: those that an authorized user asked for, and no damaged or foreign ones."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.run import Settings
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service import worker
from tests.support.runtime import SLOW
from tests.surfaces.web.served_app import ServedApp
from tests.surfaces.web.test_worker import ASKS, PLAIN, another

ELSEWHERE = "/somewhere/else"


async def let_go(web: ServedApp) -> str:
    """A run that a person interrupted, as with Ctrl-C in a terminal."""
    other = another(web)
    row = await other.start(Playbook.from_text(PLAIN, "plain.md"), {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    await asyncio.sleep(0.3)
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)
    await other.close()
    return row.id


async def foreign(web: ServedApp, text: str = ASKS) -> str:
    """A run of another folder that waits for an answer."""
    other = another(web)
    row = await other.start(Playbook.from_text(text, "asks.md"), {}, Settings(model="test/one", workspace=ELSEWHERE))
    await other.drive(row.id)
    await other.close()
    return row.id


async def served(web: ServedApp) -> set[str]:
    return set(await web.service.kept("", worker.SERVED))


@pytest.mark.parametrize("action", ["status", "cancel"])
async def test_a_viewer_cannot_continue_a_run(web: ServedApp, action: str) -> None:
    model = ScriptedModel([Says("One.", wait_for=asyncio.Event()), "One.", "Two."])
    await web.model(model).serve()
    _, token = await web.service.add_user("vera", ["viewer"])
    run = await let_go(web)
    headers = {"Authorization": f"Bearer {token}"}
    await web.guest.post("/playbooks/runtime", json={"action": action, "runId": run}, headers=headers)
    await asyncio.sleep(0.8)
    assert len(model.requests) == 1
    assert await served(web) == set()


@pytest.mark.parametrize("query", ["", "?strict=1"])
async def test_a_run_of_the_runtime_continues_with_the_next_server(web: ServedApp, query: str) -> None:
    await web.model(ScriptedModel([])).serve()
    web.book("slow.yml", SLOW)
    asked = asyncio.create_task(
        web.client.post(f"/playbooks/runtime{query}", json={"action": "run", "pipeline": "slow"})
    )
    while not (rows := await web.service.runs()) or rows[0].status != "running":
        await asyncio.sleep(0.02)
    web.server.stop()
    message = await asked
    assert (message.status_code, message.json()["code"]) == (503, "ending")
    await web.stop()
    (web.work / "go").touch()
    await web.serve()
    assert (await web.until(rows[0].id, "completed"))["status"] == "completed"


async def test_a_damaged_run_does_not_block_others(web: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    held = Says("One.", wait_for=asyncio.Event())
    await web.model(ScriptedModel([held, "One.", "Two."])).serve()
    book = web.book("plain.md", PLAIN)
    bad = await web.begin(playbook=book)
    await web.until(bad, "running")
    await web.stop()
    damage(web.store, bad)
    await web.serve()
    with caplog.at_level(logging.WARNING):
        good = await web.begin(playbook=book)
        await web.until(good, "completed")
        await asyncio.sleep(1.0)
    assert len([one for one in caplog.records if bad in f"{one.getMessage()} {getattr(one, 'fields', '')}"]) <= 1
    for path in (f"/api/runs/{bad}", f"/api/runs/{bad}/stream", f"/api/runs/{bad}/events"):
        response = await web.client.get(path, headers={"Accept": "text/event-stream"})
        assert (response.status_code, response.json()["code"]) == (500, "store_damaged")


def damage(store: Path, run: str) -> None:
    with sqlite3.connect(store) as database:
        (key,) = database.execute("SELECT key FROM runs WHERE id = ?", (run,)).fetchone()
        assert database.execute("UPDATE records SET body = ? WHERE run = ? AND seq = 1", (b"garbage", key)).rowcount
    database.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/runs/{run}/restart", {"step": "1"}),
        ("/api/runs/{run}/fork", {"step": "1"}),
        ("/api/runs/{run}/resume", {}),
        ("/api/waits/{wait}/answer", {"value": "well"}),
    ],
)
async def test_a_run_that_cannot_continue_here_is_refused(web: ServedApp, path: str, body: dict[str, Any]) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await foreign(web)
    wait = (await web.waiting(run))["wait"]
    refused = await web.client.post(path.format(run=run, wait=wait), json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert ELSEWHERE in refused.json()["detail"]
    assert (await web.until(run, "awaiting_input"))["waits"][0]["wait"] == wait
    assert len((await web.get("/api/runs"))["runs"]) == 1


async def test_an_undriven_run_can_be_cancelled_from_any_folder(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await foreign(web)
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    await asyncio.sleep(0.1)
    assert await served(web) == set()


async def test_an_ended_run_is_not_driven_again(web: ServedApp) -> None:
    await web.model(ScriptedModel(["a", "b"])).serve()
    book = web.book("plain.md", PLAIN)
    run = await web.begin(playbook=book, key="k")
    await web.until(run, "completed")
    await asyncio.sleep(0.1)
    assert await web.begin(playbook=book, key="k") == run
    await web.post("/playbooks/runtime", 200, action="status", runId=run)
    assert await served(web) == set()


async def test_a_run_that_ended_elsewhere_is_forgotten_at_startup(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    await web.stop()
    web.open()
    await web.service.answer(wait, "well")
    await web.service.drive(run)
    assert await served(web) == {run}
    await web.close()
    await web.serve()
    assert await served(web) == set()


async def test_a_wait_in_another_folder_shows_where_to_decide(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await foreign(web)
    for path in ("/inbox", f"/runs/{run}"):
        page = (await web.client.get(path)).text
        assert "data-elsewhere" in page
        assert f"This run works in <code>{ELSEWHERE}</code>" in page
    own = await web.begin(playbook=web.book("asks.md", ASKS))
    await web.until(own, "awaiting_input")
    assert (await web.client.get("/inbox")).text.count("data-elsewhere") == 1
    assert "data-elsewhere" not in (await web.client.get(f"/runs/{own}")).text
