"""Which runs the server takes in hand: those that somebody who may asked for, and no damaged or foreign one for the rest."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.run import Settings
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.surfaces import driving
from tests.office import SLOW
from tests.surfaces.web.house import House
from tests.surfaces.web.test_driving import ASKS, PLAIN, another

ELSEWHERE = "/somewhere/else"


async def let_go(house: House) -> str:
    """A run that a person let go, as with Ctrl-C at a terminal."""
    other = another(house)
    row = await other.start(PLAIN, "plain.md", {}, Settings(model="test/one"))
    driven = asyncio.create_task(other.drive(row.id))
    await asyncio.sleep(0.3)
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)
    await other.close()
    return row.id


async def foreign(house: House, text: str = ASKS) -> str:
    """A run of another folder that waits for an answer."""
    other = another(house)
    row = await other.start(text, "asks.md", {}, Settings(model="test/one", workspace=ELSEWHERE))
    await other.drive(row.id)
    await other.close()
    return row.id


async def served(house: House) -> set[str]:
    return set(await house.service.store.kept("", driving.SERVED))


@pytest.mark.parametrize("action", ["status", "cancel"])
async def test_who_may_only_look_makes_no_run_go_on(house: House, action: str) -> None:
    model = ScriptedModel([Says("One.", wait_for=asyncio.Event()), "One.", "Two."])
    await house.model(model).serve()
    _, token = await house.service.add_user("vera", ["viewer"])
    run = await let_go(house)
    headers = {"Authorization": f"Bearer {token}"}
    await house.guest.post("/playbooks/runtime", json={"action": action, "runId": run}, headers=headers)
    await asyncio.sleep(0.8)
    assert len(model.requests) == 1
    assert await served(house) == set()


@pytest.mark.parametrize("query", ["", "?strict=1"])
async def test_what_the_runtime_began_goes_on_with_the_next_server(house: House, query: str) -> None:
    await house.model(ScriptedModel([])).serve()
    house.book("slow.yml", SLOW)
    asked = asyncio.create_task(
        house.client.post(f"/playbooks/runtime{query}", json={"action": "run", "pipeline": "slow"})
    )
    while not (rows := await house.service.runs()) or rows[0].status != "running":
        await asyncio.sleep(0.02)
    house.server.stop()
    told = await asked
    assert (told.status_code, told.json()["code"]) == (503, "ending")
    await house.stop()
    (house.work / "go").touch()
    await house.serve()
    assert (await house.until(rows[0].id, "completed"))["status"] == "completed"


async def test_a_damaged_run_holds_up_no_other(house: House, caplog: pytest.LogCaptureFixture) -> None:
    held = Says("One.", wait_for=asyncio.Event())
    await house.model(ScriptedModel([held, "One.", "Two."])).serve()
    book = house.book("plain.md", PLAIN)
    bad = await house.begin(playbook=book)
    await house.until(bad, "running")
    await house.stop()
    damage(house.store, bad)
    await house.serve()
    with caplog.at_level(logging.WARNING):
        good = await house.begin(playbook=book)
        await house.until(good, "completed")
        await asyncio.sleep(1.0)
    assert len([one for one in caplog.records if bad in one.getMessage()]) <= 1
    for path in (f"/api/runs/{bad}", f"/api/runs/{bad}/stream", f"/api/runs/{bad}/events"):
        response = await house.client.get(path, headers={"Accept": "text/event-stream"})
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
async def test_what_would_never_move_here_is_refused(house: House, path: str, body: dict[str, Any]) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    run = await foreign(house)
    wait = (await house.waiting(run))["wait"]
    refused = await house.client.post(path.format(run=run, wait=wait), json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert ELSEWHERE in refused.json()["detail"]
    assert (await house.until(run, "awaiting_input"))["waits"][0]["wait"] == wait
    assert len((await house.get("/api/runs"))["runs"]) == 1


async def test_a_run_that_nobody_drives_is_cancelled_wherever_it_works(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    run = await foreign(house)
    await house.post(f"/api/runs/{run}/cancel", 202)
    await house.until(run, "cancelled")
    await asyncio.sleep(0.1)
    assert await served(house) == set()


async def test_what_has_ended_is_not_taken_in_hand_again(house: House) -> None:
    await house.model(ScriptedModel(["a", "b"])).serve()
    book = house.book("plain.md", PLAIN)
    run = await house.begin(playbook=book, key="k")
    await house.until(run, "completed")
    await asyncio.sleep(0.1)
    assert await house.begin(playbook=book, key="k") == run
    await house.post("/playbooks/runtime", 200, action="status", runId=run)
    assert await served(house) == set()


async def test_what_ended_elsewhere_is_forgotten_when_the_server_starts(house: House) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    await house.stop()
    house.open()
    await house.service.answer(wait, "well")
    await house.service.drive(run)
    assert await served(house) == {run}
    await house.close()
    await house.serve()
    assert await served(house) == set()


async def test_what_waits_in_another_folder_says_where_instead_of_asking(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    run = await foreign(house)
    for path in ("/inbox", f"/runs/{run}"):
        page = (await house.client.get(path)).text
        assert "data-elsewhere" in page
        assert f"This run works in <code>{ELSEWHERE}</code>" in page
    own = await house.begin(playbook=house.book("asks.md", ASKS))
    await house.until(own, "awaiting_input")
    assert (await house.client.get("/inbox")).text.count("data-elsewhere") == 1
    assert "data-elsewhere" not in (await house.client.get(f"/runs/{own}")).text
