"""In a real browser: a waiting run continues with a changed text, after the table of verdicts was shown."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.surfaces.web.browser.profile import OpenProfile, expect_status
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIPELINE = """\
id: log
name: Log
steps:
  - {id: one, command: cli sh -c 'echo one >> log'}
  - {id: two, command: cli sh -c 'echo two >> log', approval: required}
  - {id: three, command: cli sh -c 'echo three >> log'}
"""


async def test_edit_and_continue_on_the_page(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("log.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook="log")
    await web.waiting(run)
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    await page.get_by_text("Continue with a changed text").click()
    text = page.get_by_label("The text of the playbook")
    await expect(text).to_have_value(PIPELINE)
    await text.fill(PIPELINE.replace("echo three", "echo drei"))
    await page.get_by_role("button", name="Show what would happen").click()
    rows = page.locator(".verdicts tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(0).locator("td")).to_have_text(["one", "kept", "it is unchanged"])
    await expect(rows.nth(1)).to_contain_text("redone")
    await expect(rows.nth(2)).to_contain_text("changed")
    await page.get_by_role("button", name="Continue with this text").click()
    await page.wait_for_url(lambda url: not url.endswith(run) and "/runs/" in url)
    await page.locator("form.approval").get_by_role("button", name="Approve").click()
    await expect_status(page, "completed")
    assert (web.work / "log").read_text() == "one\ntwo\ndrei\n"
    await profile.go(page, f"/runs/{run}")
    await expect(page.locator(".superseded a")).to_be_visible()
    profile.check()
