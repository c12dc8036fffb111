"""A live page whose connection is lost: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect

from cuebook.performers.models.model import Request
from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.support.doubling_program import AGAIN, ASK, DESK, JUMP, TAKE, THANK
from tests.support.sampling import many, some
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status, text
from tests.surfaces.web.browser.proxy import CuttingProxy
from tests.surfaces.web.live.test_reconnect import PLAYBOOKS, attend
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = "# Two\n\n## STEP 1: A\n\nDo A.\n\n@output(a)\n\n## STEP 2: B\n\nDo B.\n"
HELD = """\
steps:
  - {id: hold, command: "cli sh -c 'until test -e go; do sleep 0.05; done'", effect: read}
"""
"""The start of a pipeline without a model: it waits until the test lets it continue."""


ALL: dict[str, tuple[str, str, dict[str, Any]]] = {**PLAYBOOKS, "program": ("desk.pbasm", DESK, {})}


@pytest.mark.parametrize("dialect", some(sorted(ALL), 2))
async def test_a_page_cut_off_at_every_event_ends_like_an_uninterrupted_one(
    web: ServedApp, open_profile: OpenProfile, dialect: str
) -> None:
    name, playbook, fields = ALL[dialect]
    begin = asyncio.Event()
    talk = iter((ASK, AGAIN, JUMP, TAKE, THANK))

    async def says(request: Request) -> Says:
        await begin.wait()
        if dialect == "program":
            return Says(next(talk), chunk=9)
        return Says(f"You asked for *{len(request.messages[-1].text)}* characters. " * 6, chunk=40)

    await web.model(ScriptedModel(says)).serve()
    port = web.client.base_url.port
    assert port is not None
    run = await web.begin(playbook=web.book(name, playbook.replace("steps:\n", HELD)), **fields)
    profile = await open_profile()
    whole = await profile.page(f"/runs/{run}")
    often, within = CuttingProxy(port, every=many(3, 1)), CuttingProxy(port, every=many(4, 2), within=True)
    cutters = [await often.open(), await within.open()]
    try:
        cut = []
        for proxy in cutters:
            profile.move(f"http://127.0.0.1:{proxy.port}")
            cut.append(await profile.page(f"/runs/{run}"))
        begin.set()
        (web.work / "go").touch()
        await attend(web, run)
        for page in (whole, *cut):
            await expect_status(page, "completed")
            await expect(page.locator("#summary")).to_contain_text("Duration")
        assert all(proxy.cuts >= many(3, 6) for proxy in cutters)
        expected = await dom(whole)
        for page in cut:
            assert await dom(page) == expected
            await expect(page.locator("#connection")).to_be_hidden()
        await whole.reload()
        assert await dom(whole) == expected
    finally:
        profile.foreign.clear()  # the proxies have their own addresses
        for proxy in cutters:
            await proxy.close()


async def test_a_reload_in_the_middle_of_a_text_loses_nothing(web: ServedApp, open_profile: OpenProfile) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    words = "".join(f"Word {number}. " for number in range(40))
    says = [Says(words, chunk=5, wait_for=first, pause_at=100), Says("Done.", chunk=2, wait_for=second, pause_at=2)]
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("two.md", TWO))
    page = await (await open_profile()).page(f"/runs/{run}")
    tail = text(page, "1").locator(".tail")
    await expect(tail).to_have_text(words[:100].rstrip())
    await page.reload()
    await expect(tail).to_have_text(words[:100].rstrip())
    first.set()
    await expect(text(page, "1").locator(".raw")).to_have_text(words.rstrip())
    await expect(text(page, "2").locator(".tail")).to_have_text("Do")
    await page.reload()
    second.set()
    await expect_status(page, "completed")
    await expect(text(page, "2").locator(".raw")).to_have_text("Done.")
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live


async def test_a_page_stays_open_while_the_server_restarts(web: ServedApp, open_profile: OpenProfile) -> None:
    hold = asyncio.Event()
    says = [Says("Half a text.", chunk=4, wait_for=hold, pause_at=8)]
    await web.model(ScriptedModel(says)).serve()
    port = web.client.base_url.port
    assert port is not None
    run = await web.begin(playbook=web.book("two.md", TWO))
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    await expect(text(page, "1").locator(".tail")).to_have_text("Half a t")
    await web.stop()
    await expect(page.locator("#connection")).to_be_visible()
    await web.model(ScriptedModel(["The whole text.", "And more."])).serve(port=port)
    await expect_status(page, "completed")
    await expect(page.locator("#connection")).to_be_hidden()
    await expect(text(page, "1").locator(".raw")).to_have_text("The whole text.")
    await expect(text(page, "2").locator(".raw")).to_have_text("And more.")
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live
