"""A playbook's history: all runs of it, wherever they were started from, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cuebook.dialects.playbook import Playbook
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service.service import Principal
from cuebook.surfaces.python.api import load
from cuebook.wiring.run_request import RunRequest, start_run
from tests.surfaces.web.markup import Markup
from tests.surfaces.web.served_app import ServedApp
from tests.surfaces.web.test_worker import another

NOTE = "# Note\n\n## STEP 1: A\n\nDo A.\n"
OTHER = "# Other\n\n## STEP 1: B\n\nDo B.\n"


async def served(web: ServedApp) -> ServedApp:
    return await web.model(ScriptedModel(["A."], cycle=True)).serve()


async def run_file(web: ServedApp, path: Path) -> str:
    """A run of a file, as started from a terminal: its name is the file's name alone."""
    other, book = another(web), await asyncio.to_thread(load, path)
    settings = web.wiring.settings(folder=path.parent, document=book.document)
    row = await other.start(book, {}, settings)
    await other.drive(row.id)
    await other.close()
    return row.id


async def history(web: ServedApp, playbook: str) -> list[str]:
    listed = [one["run"] for one in (await web.get(f"/api/runs?playbook={playbook}"))["runs"]]
    for path in (f"/playbooks/{playbook}", f"/runs?playbook={playbook}"):
        page = Markup((await web.client.get(path, headers={"Accept": "text/html"})).text)
        links = [a["href"] for tag, a in page.elements if tag == "a" and (a.get("href") or "").startswith("/runs/")]
        assert links == [f"/runs/{run}" for run in listed], path
    return listed


async def last_runs(web: ServedApp) -> list[str]:
    page = Markup((await web.client.get("/", headers={"Accept": "text/html"})).text)
    return [str(a["href"]) for tag, a in page.elements if tag == "a" and a.get("class") == "last"]


async def crumbs(web: ServedApp, run: str) -> bool:
    page = Markup((await web.client.get(f"/runs/{run}", headers={"Accept": "text/html"})).text)
    return "/playbooks/note" in [a.get("href") for _, a in page.elements]


async def test_runs_from_a_terminal_are_in_it(web: ServedApp) -> None:
    web.book("deeper/note.md", NOTE)
    await served(web)
    from_terminal = await run_file(web, web.books / "deeper" / "note.md")
    assert await history(web, "note") == [from_terminal]
    assert await last_runs(web) == [f"/runs/{from_terminal}"]
    assert await crumbs(web, from_terminal)
    from_page = await web.begin(playbook="note")
    await web.until(from_page, "completed")
    assert await history(web, "note") == [from_page, from_terminal]
    assert [one["run"] for one in (await web.get("/api/runs?playbook=note&limit=1"))["runs"]] == [from_page]


async def test_runs_of_an_earlier_text_and_their_forks_stay_in_it(web: ServedApp) -> None:
    web.book("deeper/note.md", NOTE)
    await served(web)
    first = await web.begin(playbook="note")
    await web.until(first, "completed")
    fork = (await web.post(f"/api/runs/{first}/restart", 201, step="1"))["run"]
    await web.until(fork, "completed")
    web.book("deeper/note.md", NOTE + "\nAnd more.\n")
    terminal = await run_file(web, web.books / "deeper" / "note.md")
    web.book("deeper/note.md", NOTE + "\nAnd still more.\n")
    assert await history(web, "note") == [terminal, fork, first]
    assert await crumbs(web, first)


async def test_other_texts_of_the_same_name_are_not_in_it(web: ServedApp, tmp_path: Path) -> None:
    web.book("note.md", NOTE)
    await served(web)
    text = await web.begin(text=OTHER, name="note.md")
    await web.until(text, "completed")
    (tmp_path / "note.md").write_text(OTHER)
    elsewhere = await run_file(web, tmp_path / "note.md")
    assert await history(web, "note") == []
    assert await last_runs(web) == []
    assert not await crumbs(web, text)
    assert not await crumbs(web, elsewhere)
    same = await web.begin(text=NOTE, name="note.md")
    await web.until(same, "completed")
    assert await history(web, "note") == [same], "a playbook is its text"


async def test_playbooks_with_the_same_text_have_separate_histories(web: ServedApp) -> None:
    for folder in ("one", "two"):
        web.book(f"{folder}/playbook.md", NOTE)
    await served(web)
    first = await web.begin(playbook="one")
    await web.until(first, "completed")
    second = await run_file(web, web.books / "two" / "playbook.md")
    assert await history(web, "one") == [first]
    assert await history(web, "two") == [second]


async def test_a_text_with_another_folder_does_not_belong_to_the_file(web: ServedApp) -> None:
    """As sent by an assistant: its files are searched for in the playbook folder."""
    web.book("note.md", NOTE)
    await served(web)
    given, wanted = Playbook.from_text(OTHER, "note.md"), RunRequest(folder=web.books)
    row = await start_run(web.wiring, web.service, given, wanted, Principal())
    assert await history(web, "note") == []
    refused = await web.post(f"/api/runs/{row.id}/resume", 422, settings={"from_text": False})
    assert "cannot be changed" in refused["detail"]
