"""Interrupted runs: their driver has stopped, and they are shown as interrupted until a user resumes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import Checkpoint, Program
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service.service import Service
from cuebook.surfaces.python.programs import Programs
from cuebook.surfaces.web.live import stream
from cuebook.surfaces.web.live.events import PageEvents
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.panels import RunPanels
from tests.support.programs import new_row
from tests.support.records import claim, create, killed, wait_row
from tests.surfaces.web.markup import Markup
from tests.surfaces.web.served_app import ServedApp, Sse
from tests.surfaces.web.stream_reader import Reader
from tests.surfaces.web.test_worker import ASKS, PLAIN, another, impatient

__all__ = ["impatient"]


async def begun_elsewhere(web: ServedApp, workspace: str = "") -> tuple[Service, RunRow, asyncio.Task[RunRow]]:
    """A run that another process drives; its first step does not end."""
    other = another(web)
    row = await other.start(Playbook.from_text(PLAIN, "plain.md"), {}, Settings(model="test/one", workspace=workspace))
    driven = asyncio.create_task(other.drive(row.id))
    async with asyncio.timeout(30):
        while (await other.row(row.id)).step != "1":
            await asyncio.sleep(0.02)
    return other, row, driven


async def let_go(other: Service, driven: asyncio.Task[RunRow]) -> None:
    """Interrupts a run, as Ctrl-C in a terminal does."""
    driven.cancel()
    await asyncio.gather(driven, return_exceptions=True)
    await other.close()


async def held(web: ServedApp, *replies: str) -> ServedApp:
    return await web.model(ScriptedModel([Says("One.", wait_for=asyncio.Event()), *replies])).serve()


async def shown(web: ServedApp, path: str) -> Markup:
    response = await web.client.get(path, headers={"Accept": "text/html"})
    assert response.status_code == 200
    return Markup(response.text)


async def test_an_interrupted_run_is_shown_as_such_until_it_is_resumed(web: ServedApp) -> None:
    web.book("plain.md", PLAIN)
    await held(web, "One.", "Two.")
    other, row, driven = await begun_elsewhere(web)
    message = await web.get(f"/api/runs/{row.id}")
    assert (message["status"], message["interrupted"]) == ("running", False)
    assert (await shown(web, f"/runs/{row.id}")).by_id("run-status")["data-status"] == "running"
    await let_go(other, driven)

    message = await web.get(f"/api/runs/{row.id}")
    assert (message["status"], message["interrupted"]) == ("running", True)
    assert [one["interrupted"] for one in (await web.get("/api/runs"))["runs"]] == [True]
    page = await shown(web, f"/runs/{row.id}")
    assert page.by_id("run-status")["data-status"] == "interrupted"
    assert {page.by_id(id)["data-status"] for id in ("head-1", "rail-1")} == {"interrupted"}
    assert "running" not in page.words
    forms = [attributes.get("data-api") for tag, attributes in page.elements if tag == "form"]
    assert {f"/api/runs/{row.id}/{one}" for one in ("resume", "cancel")} <= set(forms)
    for path in ("/", "/runs", "/runs?status=running", "/playbooks/plain"):
        circles = [
            a.get("data-status") for tag, a in (await shown(web, path)).elements if tag == "svg" and "data-status" in a
        ]
        assert circles == ["interrupted"], path

    resumed = await web.client.post(  # as a page without a script does it
        f"/api/runs/{row.id}/resume",
        data={},
        headers={"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"},
    )
    assert (resumed.status_code, resumed.headers["location"]) == (303, f"/runs/{row.id}")
    assert not (await web.get(f"/api/runs/{row.id}"))["interrupted"]
    message = await web.until(row.id, "completed")
    assert (message["interrupted"], message["outputs"]) == (False, {"1": "One.", "2": "Two."})


async def test_an_open_page_shows_that_its_run_was_interrupted(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.2)
    await held(web, "One.", "Two.")
    other, row, driven = await begun_elsewhere(web)
    seen: list[Sse] = []
    left = ""
    async with asyncio.timeout(30), web.stream(row.id) as events:
        async for event in events:
            seen.append(event)
            status = _status(event)
            if status == "running" and not driven.done():
                await let_go(other, driven)
            elif status == "interrupted":
                assert Markup(event.data["html"]).by_id("head-1")["data-status"] == "interrupted"
                left = event.id
                await web.post(f"/api/runs/{row.id}/resume", 202)
    statuses = [status for status in map(_status, seen) if status]
    assert statuses.count("interrupted") == 1
    assert statuses[statuses.index("interrupted") + 1] == "running"
    assert (seen[-1].event, statuses[-1]) == ("status", "completed")
    after = next(number for number, event in enumerate(seen) if _status(event) == "interrupted")
    later = [event for event in seen[after:] if event.event != "step-update" or event.data["step"]]
    assert Reader(await web.all_events(row.id, left)).seen == Reader(later).seen, (
        "a reader who reconnects there misses nothing"
    )


def _status(event: Sse) -> str:
    made = Markup(event.data.get("html", ""))
    return str(made.by_id("run-status")["data-status"]) if made.has("run-status") else ""


async def test_a_run_interrupted_in_another_folder_is_not_resumed_here(web: ServedApp) -> None:
    await held(web)
    other, row, driven = await begun_elsewhere(web, workspace="/somewhere/else")
    assert not (await web.get(f"/api/runs/{row.id}"))["interrupted"]
    await let_go(other, driven)
    assert (await web.get(f"/api/runs/{row.id}"))["interrupted"]
    refused = await web.post(f"/api/runs/{row.id}/resume", 409)
    assert "/somewhere/else" in refused["detail"]


def own(inputs: dict[str, Any]) -> Program[str]:
    yield Checkpoint({})
    return "done"


async def test_a_python_program_is_resumed_only_by_its_own_process(web: ServedApp) -> None:
    await held(web)
    async with Programs(own, store=web.store) as programs:
        row = await programs.start("own")
    assert (await web.get(f"/api/runs/{row.id}"))["interrupted"]
    refused = await web.post(f"/api/runs/{row.id}/resume", 409)
    assert "a Python program" in refused["detail"]


async def test_a_run_of_the_server_itself_is_not_interrupted(web: ServedApp) -> None:
    gate = asyncio.Event()
    await web.model(ScriptedModel(lambda request: Says("A.", wait_for=gate))).serve()
    web.site.worker._at_once = 1
    book = web.book("one.md", "# One\n\n## STEP 1: A\n\nDo A.\n")
    runs = [await web.begin(playbook=book) for _ in range(3)]
    listed = (await web.get("/api/runs"))["runs"]
    assert [one["interrupted"] for one in listed] == [False] * 3
    gate.set()
    for run in runs:
        await web.until(run, "completed")


async def answered_elsewhere(web: ServedApp, workspace: str = "") -> str:
    """A waiting run that was answered by a process that then ended."""
    other = another(web)
    row = await other.start(Playbook.from_text(ASKS, "asks.md"), {}, Settings(model="test/one", workspace=workspace))
    await other.drive(row.id)
    (wait,) = await other.waits(row.id)
    await other.answer(wait.id, "well")
    await other.close()
    return row.id


async def test_a_run_of_a_killed_process_continues_in_any_server(web: ServedApp, impatient: None) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    web.site.worker._at_once = 0
    run = await answered_elsewhere(web)
    await claim(web.service._store, run, "gone")
    await killed(web.service._store, "gone")
    message = await web.get(f"/api/runs/{run}")
    assert (message["status"], message["interrupted"]) == ("awaiting_input", False), "this server will take it up"
    web.site.worker._at_once = 20
    await web.until(run, "completed")


async def test_a_run_of_a_killed_process_can_be_resumed(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await answered_elsewhere(web)
    await claim(web.service._store, run, "gone")
    await killed(web.service._store, "gone")
    await web.post(f"/api/runs/{run}/resume", 202)
    await web.until(run, "completed")


async def test_a_run_of_another_folder_that_was_answered_is_in_the_inbox(web: ServedApp, impatient: None) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await answered_elsewhere(web, "/somewhere/else")
    message = await web.get(f"/api/runs/{run}")
    assert (message["status"], message["interrupted"]) == ("awaiting_input", True)
    assert [one["run"] for one in (await web.get("/api/runs?status=interrupted"))["runs"]] == [run]
    inbox = await web.get("/api/inbox")
    assert (inbox["waits"], [one["run"] for one in inbox["interrupted"]], inbox["total"]) == ([], [run], 1)
    page = await shown(web, "/inbox")
    assert f"cuebook resume {run}" in page.words
    assert (await shown(web, f"/runs/{run}")).by_id("run-status")["data-status"] == "interrupted"
    assert "1 item waiting" in str((await web.client.get("/runs", headers={"Accept": "text/html"})).text)


async def test_an_interrupted_run_is_resumed_from_the_inbox(web: ServedApp) -> None:
    await held(web, "One.", "Two.")
    other, row, driven = await begun_elsewhere(web)
    await let_go(other, driven)
    forms = [a.get("data-api") for tag, a in (await shown(web, "/inbox")).elements if tag == "form"]
    assert f"/api/runs/{row.id}/resume" in forms
    assert run_ids(await web.get("/api/runs?status=interrupted")) == [row.id]
    await web.post(f"/api/runs/{row.id}/resume", 202)
    await web.until(row.id, "completed")
    assert (await web.get("/api/inbox"))["total"] == 0


def run_ids(listed: Any) -> list[str]:
    return [one["run"] for one in listed["runs"]]


async def test_the_inbox_is_returned_whole_or_in_pages(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    store = web.service._store
    await create(store, "waits", new_row("hand", "waits"))
    opened = [wait_row(f"w{n:05}", "waits", tenant="local", opened=float(n)) for n in range(1100)]
    await store.append((await claim(store, "waits")).batch(opened=opened))
    names = [f"w{n:05}" for n in range(1100)]
    whole = await web.get("/api/inbox")
    assert [one["wait"] for one in whole["waits"]] == names
    assert (whole["total"], whole["next_offset"]) == (1100, None)
    part = await web.get("/api/inbox?limit=500&offset=500")
    assert [one["wait"] for one in part["waits"]] == names[500:1000]
    assert (part["total"], part["next_offset"]) == (1100, 1000)
    counted = await web.get("/api/inbox?limit=0")
    assert (counted["waits"], counted["total"], counted["mark"]) == ([], 1100, whole["mark"])
    await store.complete_wait("w01099", {"value": "x"}, "me", 0.0)
    assert (await web.get("/api/inbox?limit=0"))["mark"] != whole["mark"]
    assert (await web.client.get("/api/inbox?offset=x")).status_code == 422
    seen: list[str] = []
    path = "/inbox"
    while path:
        page = await shown(web, path)
        seen += [
            str(a["id"]).removeprefix("wait-") for _, a in page.elements if str(a.get("id", "")).startswith("wait-w")
        ]
        path = next((str(a["href"]) for tag, a in page.elements if "?offset=" in str(a.get("href", ""))), "")
    assert seen == names[:-1]


def test_a_page_hears_once_that_its_run_waits_for_a_worker_and_once_that_it_continues() -> None:
    encoder = PageEvents(Picture(new_row("x")), RunPanels(None))
    assert encoder.interrupt(interrupted=False) is None
    event = encoder.interrupt(interrupted=False, waits_for="a worker that offers <gpu>")
    assert event is not None
    assert "This run waits for a worker that offers &lt;gpu&gt;." in event.data["html"]
    assert encoder.interrupt(interrupted=False, waits_for="a worker that offers <gpu>") is None
    event = encoder.interrupt(interrupted=False)
    assert event is not None
    assert "waits for" not in event.data["html"]
