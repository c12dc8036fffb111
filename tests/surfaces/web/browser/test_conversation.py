"""A program in a real browser: a chat, and the same page when it is opened again."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.support.doubling_program import AGAIN, ASK, DESK, JUMP, TAKE, THANK
from tests.support.sampling import some
from tests.surfaces.web.browser.appearance import faint, sticks_out
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status
from tests.surfaces.web.served_app import Dripping, ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_program_is_talked_with_by_the_keyboard_alone(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("desk.pbasm", DESK.replace("$count:int = 0", "$count:float = 29.0"))
    script = [Says(one, chunk=9) for one in (ASK, AGAIN, JUMP, TAKE, THANK)]
    await web.model(Dripping(ScriptedModel(script))).serve()
    profile = await open_profile()
    page = await profile.page("/playbooks/desk/run")
    await page.get_by_role("button", name="Run Playbook").click()
    answer = page.locator("#asks input")
    await answer.focus()
    for number, words in enumerate(("many", "21"), start=1):
        await expect(answer).to_be_focused()
        other = await profile.page(page.url.removeprefix(profile.address))
        assert await dom(other) == await dom(page)
        await other.close()
        await page.bring_to_front()
        await page.keyboard.type(words)
        await page.keyboard.press("Enter")
        await expect(page.locator('.bubble[data-by="user"]')).to_have_count(number)
    await expect_status(page, "completed")
    await expect(page.locator('.bubble[data-by="program"]').last).to_have_text("DeskIt is 42. Thanks!")
    await expect(page.locator("#outcome")).to_contain_text("Returned42")
    await expect(page.locator("#refused")).to_contain_text("C4")
    await expect(page.locator("#var-count pre")).to_have_text("30.0")  # the number as it was written
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live


@pytest.mark.parametrize(("wide", "scheme"), some([(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")], 2))
async def test_a_program_fits_the_screen_and_can_be_read(
    web: ServedApp, open_profile: OpenProfile, wide: int, scheme: str
) -> None:
    web.book("desk.pbasm", DESK)
    await web.model(ScriptedModel([JUMP, ASK])).serve()
    run = await web.begin(playbook="desk")
    await web.waiting(run)
    profile = await open_profile(viewport={"width": wide, "height": 800}, color_scheme=scheme)
    for path in (f"/runs/{run}", "/playbooks/desk", "/playbooks/desk/run"):
        page = await profile.page(path)
        assert (await sticks_out(page), await faint(page)) == ([], []), path
