"""In a real browser: an approval shows what it would allow, and what it allowed can be revoked."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.surfaces.web.browser.profile import OpenProfile, expect_status
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIPELINE = """\
id: tidy
name: Tidy up
steps:
  - {id: one, command: cli touch made}
  - {id: two, command: cli touch other}
  - {id: three, command: cli touch made}
  - {id: four, command: cli touch made, approval: required}
"""


async def test_an_approval_for_the_run_on_its_page(web: ServedApp, open_profile: OpenProfile) -> None:
    web.rule("")
    web.book("tidy.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook="tidy")
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    form = page.locator("form.approval")
    await expect(form.locator(".offer").first).to_contain_text("command touch made")
    await expect(form.get_by_label("once", exact=False).first).to_be_checked()
    await form.get_by_label("for this run", exact=False).check()
    await form.get_by_role("button", name="Approve").click()
    await expect(page.locator("#run-allowed")).to_contain_text("command touch made")
    await expect(form).to_contain_text("touch other")
    await page.get_by_role("button", name="Revoke command touch made").click()
    await expect(page.locator("#run-allowed .ended")).to_contain_text("revoked")
    await form.get_by_role("button", name="Approve").click()
    await expect(form.locator(".asked")).to_have_text("Run touch made")
    await form.get_by_label("always", exact=False).check()
    await form.get_by_role("button", name="Approve").click()
    await expect(form.locator(".once-only")).to_contain_text("It can only be approved once: the step asks for approval")
    await form.get_by_label("Reason").fill("enough")
    await form.get_by_role("button", name="Deny").click()
    await expect_status(page, "cancelled")
    await profile.go(page, "/settings/overrides")
    await page.get_by_role("button", name="Revoke command touch made").click()
    await expect(page.locator(".allowed .ended")).to_contain_text("revoked")
    profile.check()
