"""The library is read in the background, once for each change, and lists only playbooks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.service.playbooks import library
from cuebook.service.playbooks.library import Library
from cuebook.surfaces.web.pages import tiles
from tests.surfaces.web.served_app import ServedApp

BOOK = "# {}\n\n## STEP 1: A\n\nDo A.\n"
FENCED = "# Guide\n\nWrite this:\n\n```markdown\n# Example\n\n## STEP 1: A\n\nDo A.\n```\n\nAnd run it.\n"


class Counted:
    """Records a function's arguments, and can block its calls."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.calls: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, first: Any, *rest: Any) -> Any:
        self.open.wait(30)
        self.calls.append(Path(getattr(first, "path", first)).name)
        return self._function(first, *rest)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(library._playbook)
    monkeypatch.setattr(library, "_playbook", counted)
    return counted


@pytest.fixture
def facing(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(tiles._face)
    monkeypatch.setattr(tiles, "_face", counted)
    return counted


async def test_unchanged_files_are_not_read_again(web: ServedApp, reading: Counted, facing: Counted) -> None:
    web.book("a.md", BOOK.format("Aaa"))
    web.book("b.md", BOOK.format("Bbb"))
    await web.serve()
    for _ in range(3):
        page = (await web.client.get("/")).text
        assert "Aaa" in page
        assert "Bbb" in page
        await web.get("/api/playbooks")
    assert sorted(reading.calls) == sorted(facing.calls) == ["a.md", "b.md"]
    web.book("b.md", BOOK.format("Another"))
    assert "Another" in (await web.client.get("/")).text
    assert sorted(reading.calls) == sorted(facing.calls) == ["a.md", "b.md", "b.md"]


@pytest.mark.parametrize("slow", ["reading", "facing"])
async def test_other_requests_are_served_while_the_library_is_read(
    web: ServedApp, slow: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counted = request.getfixturevalue(slow)
    monkeypatch.setattr(tiles.Faces.of, "__defaults__", (0.1,))
    monkeypatch.setattr(Library.read, "__defaults__", (0.1,))
    web.book("a.md", BOOK.format("Aaa"))
    counted.open.clear()
    await web.serve()
    try:
        for _ in range(3):
            assert (await web.client.get("/healthz")).status_code == 200
            page = (await web.client.get("/")).text
            assert "still being read" in page
            assert "Aaa" not in page
            assert "There are no playbooks" not in page
    finally:
        counted.open.set()
    async with asyncio.timeout(20):
        while "still being read" in (page := (await web.client.get("/")).text):
            await asyncio.sleep(0.05)
    assert "Aaa" in page


async def test_a_request_by_id_waits_until_everything_is_read(web: ServedApp, reading: Counted) -> None:
    id = web.book("a.md", BOOK.format("Aaa"))
    reading.open.clear()
    await web.serve()
    asked = asyncio.create_task(web.get(f"/api/playbooks/{id}"))
    await asyncio.sleep(0.1)
    assert not asked.done()
    reading.open.set()
    assert (await asked)["title"] == "Aaa"


async def test_a_change_while_it_is_being_read_is_seen(tmp_path: Path, reading: Counted) -> None:
    (tmp_path / "a.md").write_text(BOOK.format("Aaa"))
    library = Library([tmp_path])
    reading.open.clear()
    first = asyncio.create_task(library.read(None))
    await asyncio.sleep(0.1)
    (tmp_path / "b.md").write_text(BOOK.format("Bbb"))
    second = asyncio.create_task(library.read(None))
    await asyncio.sleep(0)
    reading.open.set()
    await first
    assert [one.title for one in (await second).listed] == ["Aaa", "Bbb"]
    assert await library.read(None) is await library.read(None)


def test_pages_about_playbooks_are_not_listed_and_can_be_run_by_name(tmp_path: Path) -> None:
    files = {
        "README.md": BOOK.format("Read me"),
        "docs/guide.md": FENCED,
        "docs/tildes.md": FENCED.replace("```", "~~~~"),
        "docs/broken.md": FENCED.replace("Do A.", "@elicit(nothing)"),
        "real.md": BOOK.format("Real"),
        "both.md": BOOK.format("Both") + "\n```\n## STEP 9: Shown\n```\n",
        "fenced.playbook.md": FENCED,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    listed, broken = Library([tmp_path]).found()
    assert sorted(one.path.name for one in listed) == ["both.md", "fenced.playbook.md", "real.md"]
    assert broken == []
    assert cuebook.load(tmp_path / "docs" / "guide.md").steps
    assert cuebook.load(tmp_path / "README.md").steps
