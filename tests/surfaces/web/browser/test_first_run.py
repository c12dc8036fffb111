"""The first steps after `make serve`: from the library to a downloaded file, with the embedded model."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from cuebook.performers.models.weights import find_weights
from tests.support.command_line import CommandLine, finished
from tests.surfaces.web.browser.profile import BrowserProfile, expect_status, head, text

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
WEIGHTS = find_weights()

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.embedded,
    pytest.mark.skipif(WEIGHTS is None, reason="the weights of the embedded model are not installed"),
]


async def test_from_the_library_to_a_download(bare_cli: CommandLine, browser: Browser) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    process = bare_cli.begin("serve", "--port", "0", "--folder", EXAMPLES)
    try:
        assert process.stdout is not None
        link = re.search(r"http://\S+", await asyncio.to_thread(process.stdout.readline))
        assert link is not None
        profile = await BrowserProfile.opened(browser, link[0])
        try:
            await first_run(profile)
        finally:
            await profile.context.close()
        profile.check()
        process.send_signal(signal.SIGINT)
        ran = await asyncio.to_thread(finished, process)
        assert (ran.code, "Traceback" in ran.err) == (130, False)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


async def first_run(profile: BrowserProfile) -> None:
    page = await profile.page("/")
    for dialect in ("markdown", "graph", "pipeline"):
        await expect(page.locator(".tag.kind").filter(has_text=dialect)).not_to_have_count(0)
    await page.get_by_role("searchbox").fill("slogan person")
    await expect(page.locator("#playbooks > li:visible")).to_have_count(1)
    await page.get_by_role("link", name="Approved slogan", exact=True).click()
    await expect(page.get_by_text("It has not been run yet.")).to_be_visible()
    await expect(page.get_by_role("heading", name="Graph")).to_be_visible()
    await page.get_by_role("link", name="Run", exact=True).click()
    await expect(page.get_by_label("Model")).to_have_value("local/smollm2-135m")
    await page.get_by_label("product").fill("tea")
    await page.get_by_role("button", name="Run Playbook").click()
    await expect(page.get_by_role("group", name="Is the slogan good enough to be printed?")).to_be_visible(
        timeout=60_000
    )
    await expect(text(page, "1").locator(".rendered")).not_to_be_empty()
    await expect(page.locator("#var-draft pre")).not_to_be_empty()
    await page.get_by_role("button", name="Yes").click()
    await expect(page.locator("#run-status")).to_have_attribute("data-status", "completed", timeout=60_000)
    await expect_status(page, "completed")
    await expect(head(page, "3a")).to_have_attribute("data-status", "completed")
    await expect(page.locator("#var-approved pre")).to_have_text("yes")
    shown = (await text(page, "3a").locator(".raw").text_content() or "").strip()
    assert shown
    async with page.expect_download() as coming:
        await page.locator("#run-outcome").get_by_role("link", name="Download").click()
    download = await coming.value
    assert download.suggested_filename.endswith(".md")
    kept = await asyncio.to_thread(Path(await download.path()).read_text, "utf-8")
    assert shown in kept
    run = page.url.rpartition("/")[2]
    await page.get_by_role("link", name="Approved slogan").click()
    await expect(page.locator("table.runs")).to_contain_text(run)
    await expect(page.locator("table.runs")).to_contain_text("completed")
