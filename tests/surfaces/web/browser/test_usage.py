"""The page of what runs used: its numbers and the names below its plots are whole, on every screen."""

from __future__ import annotations

import pytest

from cuebook.kernel.spending import Spending
from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.browser.profile import OpenProfile
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROKEN = """() => [...document.querySelectorAll("td.number")].flatMap(cell => {
  const text = cell.firstChild, words = [...text.data.matchAll(/\\S+/g)];
  return words.filter(word => {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    return range.getClientRects().length > 1;
  }).map(word => word[0]);
})"""
"""The words and numbers of cells that are broken over two lines."""
CUT_OFF = """() => [...document.querySelectorAll("svg.plot")].flatMap(plot => {
  const frame = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("text")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1;
  }).map(one => one.textContent);
})"""
"""The names and numbers of plots that are not in their frame."""


@pytest.mark.parametrize("width", [390, 1440])
async def test_numbers_are_whole(web: ServedApp, open_profile: OpenProfile, width: int) -> None:
    await web.model(ScriptedModel([])).serve()
    people = ("ann", "a-very-long-name@department.example.com")
    books = ("tea.md", "a-quarterly-report-of-everything.playbook.md")
    days = [f"2026-03-{day:02}" for day in range(4, 11)]
    rows = [
        Spending(
            "local",
            day,
            who,
            book,
            "lab/a-long-name-of-a-model-2026-03",
            0,
            1301,
            1_425_274,
            743_054,
            0,
            0,
            92.1672,
            48,
        )
        for day in days
        for who in people
        for book in books
    ]
    await web.service._store.add_spending(rows)
    profile = await open_profile(viewport={"width": width, "height": 900})
    page = await profile.page("/usage?since=2026-03-04&until=2026-03-10")
    await page.evaluate('document.querySelectorAll("details").forEach(one => one.open = true)')
    assert await page.locator("td.number").count() > 20
    assert await page.evaluate(BROKEN) == []
    assert await page.evaluate(CUT_OFF) == []
