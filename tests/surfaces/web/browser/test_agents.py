"""In a real browser: a coding agent's edit and command are asked about, denied, asked about again and approved."""

from __future__ import annotations

import json
import os
import sys

import pytest
from playwright.async_api import Locator, Page, expect

from tests.performers.agents.harness import AGENT
from tests.surfaces.web.browser.profile import OpenProfile, expect_status
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

POEM = "Roses are red.\nViolets are blue.\nSugar is sweet.\n"
BOOK = """\
# Mend a poem

## STEP 1: Edit

Add the last line.
do: append {file} And so are you.

## STEP 2: Count

Count the lines.
do: execute wc -l < poem.txt > lines.txt
"""


async def shot(page: Page, name: str) -> None:
    """Keeps a picture, if SHOTS names a folder for it."""
    folder = os.environ.get("SHOTS")
    if folder:
        await page.screenshot(path=f"{folder}/{name}.png", full_page=True)


async def deny(form: Locator) -> None:
    await form.get_by_label("Reason").fill("not yet")
    await form.get_by_role("button", name="Deny").click()


async def test_an_edit_and_a_command_are_denied_and_then_approved(web: ServedApp, open_profile: OpenProfile) -> None:
    poem = web.work / "poem.txt"
    poem.write_text(POEM)
    settings = {"command": [sys.executable, str(AGENT)], "readable": [str(AGENT.parent)], "seconds": 60}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (web.config / "cuebook.toml").write_text("\n".join(["[agents.test]", *lines, ""]))
    web.rule("")
    web.book("poem.playbook.md", BOOK.format(file=poem))
    await web.serve(model="acp/test")
    run = await web.begin(playbook="poem")
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    form = page.locator("form.approval")

    await expect(form).to_contain_text("+And so are you.")
    await expect(form).to_contain_text("Violets are blue.")
    await shot(page, "edit")
    assert poem.read_text() == POEM, "nothing changes before the decision"
    first = await form.get_attribute("id")
    await deny(form)
    await expect(form).not_to_have_attribute("id", str(first))
    await expect(form).to_contain_text("+And so are you.")
    assert poem.read_text() == POEM
    await form.get_by_role("button", name="Approve").click()

    await expect(form).to_contain_text("wc -l < poem.txt > lines.txt")
    assert poem.read_text() == f"{POEM}And so are you.\n"
    await shot(page, "command")
    second = await form.get_attribute("id")
    await deny(form)
    await expect(form).not_to_have_attribute("id", str(second))
    await expect(form).to_contain_text("wc -l < poem.txt > lines.txt")
    assert not (web.work / "lines.txt").exists()
    await form.get_by_role("button", name="Approve").click()
    await expect_status(page, "completed")
    assert (web.work / "lines.txt").read_text().strip() == "4"
    await shot(page, "done")
    profile.check()
