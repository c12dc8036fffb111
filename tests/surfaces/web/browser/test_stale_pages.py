"""Stale pages: the run was continued or interrupted elsewhere."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.surfaces.web.live import stream
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status, head, text
from tests.surfaces.web.live.test_interrupted import begun_elsewhere, held, let_go
from tests.surfaces.web.served_app import TOKEN, ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAIN = "# Plain\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n"


async def cancelled(web: ServedApp, *replies: str | Says) -> str:
    """A run that was cancelled in its second step."""
    model = ScriptedModel(["One.", Says("Two.", wait_for=asyncio.Event()), *replies])
    await web.model(model).serve()
    run = await web.begin(playbook=web.book("plain.md", PLAIN))
    async with asyncio.timeout(30):
        while len(model.requests) < 2:
            await asyncio.sleep(0.02)
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    return run


async def test_a_second_tab_sees_that_a_run_is_retried(web: ServedApp, open_profile: OpenProfile) -> None:
    run = await cancelled(web, "Two.")
    profile = await open_profile()
    first, second = await profile.page(f"/runs/{run}"), await profile.page(f"/runs/{run}")
    await expect_status(second, "cancelled")
    await first.get_by_role("button", name="Retry where it stopped").click()
    for page in (first, second):
        await expect_status(page, "completed")
        await expect(text(page, "2").locator(".rendered")).to_have_text("Two.")
    await expect(second.get_by_role("button", name="Retry where it stopped")).to_have_count(0)
    fresh = await profile.page(f"/runs/{run}")
    assert await dom(second) == await dom(fresh)


async def test_a_refused_retry_shows_that_the_run_already_continues(web: ServedApp, open_profile: OpenProfile) -> None:
    run = await cancelled(web, Says("Two.", wait_for=asyncio.Event()))
    profile = await open_profile()
    page = await profile.page()
    await page.add_init_script("window.setInterval = () => 0")  # it does not poll by itself
    await profile.go(page, f"/runs/{run}")
    await web.post(f"/api/runs/{run}/retry", 202)
    await web.until(run, "running")
    await expect_status(page, "cancelled")
    await page.get_by_role("button", name="Retry where it stopped").click()
    await expect_status(page, "running")


async def test_a_page_shows_that_its_run_was_interrupted_and_resumes_it(
    web: ServedApp, open_profile: OpenProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.3)
    await held(web, "One.", "Two.")
    other, row, driven = await begun_elsewhere(web)
    page = await (await open_profile()).page(f"/runs/{row.id}")
    await expect_status(page, "running")
    await expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    await let_go(other, driven)
    await expect_status(page, "interrupted")
    await expect(head(page, "1")).to_have_attribute("data-status", "interrupted")
    pulsing = "() => document.getAnimations().filter((one) => one.effect.getTiming().iterations === Infinity).length"
    assert await page.evaluate(pulsing) == 0
    await page.get_by_role("button", name="Resume").click()
    await expect_status(page, "completed")


async def test_sign_in_leads_to_the_target_of_the_link(web: ServedApp, open_profile: OpenProfile) -> None:
    run = await cancelled(web)
    profile = await open_profile()
    await profile.context.clear_cookies()
    page = await profile.page()
    assert await profile.go(page, f"/runs/{run}#step-2") == 401
    await page.get_by_label("Or use a token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{profile.address}/runs/{run}#step-2")
    await expect_status(page, "cancelled")
