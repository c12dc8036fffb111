"""A playbook's history: all runs of it, wherever they were started from, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service import Principal
from cuebook.surfaces.loading import Playbook, load
from cuebook.surfaces.starting import Wanted, start_run
from tests.surfaces.web.house import House
from tests.surfaces.web.markup import Markup
from tests.surfaces.web.test_driving import another

NOTE = "# Note\n\n## STEP 1: A\n\nDo A.\n"
OTHER = "# Other\n\n## STEP 1: B\n\nDo B.\n"


async def served(house: House) -> House:
    return await house.model(ScriptedModel(["A."], cycle=True)).serve()


async def run_file(house: House, path: Path) -> str:
    """A run of a file, as a terminal starts it: it is called by the file's name alone."""
    other, book = another(house), await asyncio.to_thread(load, path)
    settings = house.wiring.settings(folder=path.parent, document=book.document)
    row = await other.start(book.text, book.name, {}, settings)
    await other.drive(row.id)
    await other.close()
    return row.id


async def history(house: House, playbook: str) -> list[str]:
    listed = [one["run"] for one in (await house.get(f"/api/runs?playbook={playbook}"))["runs"]]
    for path in (f"/playbooks/{playbook}", f"/runs?playbook={playbook}"):
        page = Markup((await house.client.get(path, headers={"Accept": "text/html"})).text)
        links = [a["href"] for tag, a in page.elements if tag == "a" and (a.get("href") or "").startswith("/runs/")]
        assert links == [f"/runs/{run}" for run in listed], path
    return listed


async def last_runs(house: House) -> list[str]:
    page = Markup((await house.client.get("/", headers={"Accept": "text/html"})).text)
    return [str(a["href"]) for tag, a in page.elements if tag == "a" and a.get("class") == "last"]


async def crumbs(house: House, run: str) -> bool:
    page = Markup((await house.client.get(f"/runs/{run}", headers={"Accept": "text/html"})).text)
    return "/playbooks/note" in [a.get("href") for _, a in page.elements]


async def test_runs_from_a_terminal_are_in_it(house: House) -> None:
    house.book("deeper/note.md", NOTE)
    await served(house)
    from_terminal = await run_file(house, house.books / "deeper" / "note.md")
    assert await history(house, "note") == [from_terminal]
    assert await last_runs(house) == [f"/runs/{from_terminal}"]
    assert await crumbs(house, from_terminal)
    from_page = await house.begin(playbook="note")
    await house.until(from_page, "completed")
    assert await history(house, "note") == [from_page, from_terminal]
    assert [one["run"] for one in (await house.get("/api/runs?playbook=note&limit=1"))["runs"]] == [from_page]


async def test_runs_of_an_earlier_text_and_their_forks_stay_in_it(house: House) -> None:
    house.book("deeper/note.md", NOTE)
    await served(house)
    first = await house.begin(playbook="note")
    await house.until(first, "completed")
    fork = (await house.post(f"/api/runs/{first}/restart", 201, step="1"))["run"]
    await house.until(fork, "completed")
    house.book("deeper/note.md", NOTE + "\nAnd more.\n")
    terminal = await run_file(house, house.books / "deeper" / "note.md")
    house.book("deeper/note.md", NOTE + "\nAnd still more.\n")
    assert await history(house, "note") == [terminal, fork, first]
    assert await crumbs(house, first)


async def test_other_texts_of_its_name_are_not_in_it(house: House, tmp_path: Path) -> None:
    house.book("note.md", NOTE)
    await served(house)
    text = await house.begin(text=OTHER, name="note.md")
    await house.until(text, "completed")
    (tmp_path / "note.md").write_text(OTHER)
    elsewhere = await run_file(house, tmp_path / "note.md")
    assert await history(house, "note") == []
    assert await last_runs(house) == []
    assert not await crumbs(house, text)
    assert not await crumbs(house, elsewhere)
    same = await house.begin(text=NOTE, name="note.md")
    await house.until(same, "completed")
    assert await history(house, "note") == [same], "a playbook is its text"


async def test_of_two_with_one_text_each_has_its_own(house: House) -> None:
    for folder in ("one", "two"):
        house.book(f"{folder}/playbook.md", NOTE)
    await served(house)
    first = await house.begin(playbook="one")
    await house.until(first, "completed")
    second = await run_file(house, house.books / "two" / "playbook.md")
    assert await history(house, "one") == [first]
    assert await history(house, "two") == [second]


async def test_a_text_whose_files_are_beside_it_is_not_of_its_file(house: House) -> None:
    """As an assistant gives one: its files are looked for where the playbooks are."""
    house.book("note.md", NOTE)
    await served(house)
    given, wanted = Playbook.from_text(OTHER, "note.md"), Wanted(folder=house.books)
    row = await start_run(house.wiring, house.service, given, wanted, Principal())
    assert await history(house, "note") == []
    refused = await house.post(f"/api/runs/{row.id}/resume", 422, settings={"from_text": False})
    assert "cannot be changed" in refused["detail"]
