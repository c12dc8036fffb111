"""In a real browser: people choose their messages and link a Slack account."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from cuebook.gate.roles import Principal
from tests.surfaces.web.browser.profile import OpenProfile
from tests.surfaces.web.browser.test_appearance import CHANNELS
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_person_chooses_their_messages_and_links_an_account(web: ServedApp, open_profile: OpenProfile) -> None:
    (web.config / "cuebook.toml").write_text(CHANNELS)
    await web.serve()
    people = web.site.notifier.people
    profile = await open_profile()
    page = await profile.page("/settings/notifications")
    await page.get_by_label("a run failed").check()
    await page.get_by_label("slack (Slack)").check()
    await page.get_by_label("Playbooks").fill("deploy*, tea.md")
    await page.get_by_label("Quiet hours").fill("late")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".preferences .problem")).to_contain_text("Quiet hours must be hours")
    await page.get_by_label("Quiet hours").fill("22:00-07:00")
    async with page.expect_navigation():
        await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_label("a run failed")).to_be_checked()
    mine = await people.preferences(Principal())
    assert (mine.events, mine.channels, mine.playbooks) == (("failed",), ("slack",), ("deploy*", "tea.md"))
    async with page.expect_navigation():
        await page.get_by_label("a run failed").uncheck()
        await page.get_by_role("button", name="Save").click()
    assert (await people.preferences(Principal())).events == ()
    await page.get_by_label("Code").fill(await people.new_code("T0123.U0456", "slack", "ana", web.service.clock()))
    async with page.expect_navigation():
        await page.get_by_role("button", name="Link my account").click()
    await expect(page.locator("main")).to_contain_text("T0123.U0456")
    async with page.expect_navigation():
        await page.get_by_role("button", name="Remove the Slack account T0123.U0456").click()
    assert await people.links(Principal()) == []
    profile.check()


async def test_what_is_chosen_can_be_read_without_javascript(web: ServedApp, open_profile: OpenProfile) -> None:
    (web.config / "cuebook.toml").write_text(CHANNELS)
    await web.serve()
    chosen = {"events": ["failed"], "channels": ["slack"], "playbooks": "deploy*, tea.md", "quiet_hours": "22:00-07:00"}
    answer = await web.client.put("/api/notifications/preferences", json=chosen)
    assert answer.status_code == 200, answer.text
    page = await (await open_profile(java_script_enabled=False)).page("/settings/notifications")
    shown = page.locator(".facts.no-js-only")
    for words in ("a run failed", "slack", "deploy*, tea.md", "22:00-07:00", "my runs"):
        await expect(shown).to_contain_text(words)
    page = await (await open_profile()).page("/settings/notifications")
    await expect(page.locator(".facts.no-js-only")).to_be_hidden()
