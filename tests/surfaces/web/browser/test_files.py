"""The files of a run on its page: listed, and downloaded byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.surfaces.web.browser.profile import OpenProfile
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

BINARY = bytes(range(256)) * 100
MAKES = """\
name: Makes
steps:
  - id: make
    command: cli cat made.bin
    effect: read
    output: {type: text, truncated: accept}
    files: {archive: made.bin}
"""


async def test_a_file_is_listed_and_downloaded(web: ServedApp, open_profile: OpenProfile, tmp_path: Path) -> None:
    (web.work / "made.bin").write_bytes(BINARY)
    await web.serve()
    run = await web.begin(playbook=web.book("makes.yml", MAKES))
    await web.until(run, "completed")
    page: Page = await (await open_profile()).page(f"/runs/{run}")
    link = page.locator('a[download][href*="/files/"]')
    summary = page.locator("details.evidence summary")
    await expect(summary).to_contain_text("file: archive (25.6 kB)")
    await summary.click()
    async with page.expect_download() as begun:
        await link.click()
    download = await begun.value
    assert download.suggested_filename == "made.bin"
    await download.save_as(tmp_path / "saved.bin")
    assert (tmp_path / "saved.bin").read_bytes() == BINARY
