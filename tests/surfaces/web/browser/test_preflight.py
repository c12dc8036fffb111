"""The form before a run, with and without JavaScript, on a desk and on a phone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.browser.profile import OpenProfile
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPORT = """\
# Report

Writes a **report**.

## INPUTS

- `topic` (string): What it is about
- `notes` (text: none): What to begin with
- `charts` (boolean: true): Whether charts are drawn
- `draft` (boolean): Whether it is a draft
- `tone` (enum: warm, plain): How it sounds

## STEP 1: Outline

Outline {{topic}} from {{notes}}, {{thsi}}.

```if draft == "true"```

Mark it.

```else```

### STEP 1b: Polish

Polish it, with charts: {{charts}}.

```endif```

"""
LONG = REPORT + "".join(f"## STEP {n}: Part {n}\n\nWrite part {n}.\n\n" for n in range(2, 13))
UNCLOSED = (
    "# Unclosed\n\nIt does less than it says.\n\n## STEP 1: Say\n\nSay.\n\n```if guest```\n\nHello.\n\n```endif```\n"
)


async def ran(web: ServedApp, page: Page) -> dict[str, Any]:
    await page.get_by_role("button", name="Run Playbook").click()
    await page.wait_for_url(re.compile("/runs/"))
    run = page.url.rpartition("/")[2]
    await web.until(run, "completed", "paused", "failed")
    return dict(await web.get(f"/api/runs/{run}"))


async def is_seen(button: Locator) -> bool:
    """Whether a click in its middle would reach it where the page is scrolled to now."""
    return bool(
        await button.evaluate("""(one) => {
          const box = one.getBoundingClientRect();
          return one.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
        }""")
    )


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844), (320, 480)])
async def test_the_button_stays_in_view_and_many_steps_are_folded(
    web: ServedApp, open_profile: OpenProfile, width: int, height: int
) -> None:
    web.book("long.md", LONG)
    await web.model(ScriptedModel(["Done."], cycle=True)).serve()
    page = await (await open_profile(viewport={"width": width, "height": height})).page("/playbooks/long/run")
    button, estimate = page.get_by_role("button", name="Run Playbook"), page.locator("#estimate")
    pauses = page.get_by_text("Pause after any of 14 steps")
    await expect(page.get_by_label("2 Part 2")).to_be_hidden()
    await pauses.click()
    await page.get_by_text("What would be asked, step by step").click()
    for share in (0, 0.5, 1):
        await page.evaluate("(share) => scrollTo(0, share * document.documentElement.scrollHeight)", share)
        assert await is_seen(button), share
        await expect(estimate).to_be_in_viewport()
    form, aside = await page.locator(".filled-in").bounding_box(), await button.bounding_box()
    assert form is not None
    assert aside is not None
    assert (aside["x"] > form["x"] + form["width"]) == (width > 960)
    notes = page.get_by_label("notes")
    assert await notes.evaluate("(one) => one.clientHeight >= 3 * parseFloat(getComputedStyle(one).lineHeight)")
    outer, inner = (
        await page.get_by_label("1 Outline").bounding_box(),
        await page.get_by_label("1b Polish").bounding_box(),
    )
    assert outer is not None
    assert inner is not None
    assert inner["x"] > outer["x"] + 10
    await expect(page.locator(".pauses")).not_to_contain_text("Branch a")
    await expect(page.get_by_label("1a", exact=True)).to_be_visible()
    # What has the focus is never behind the bar.
    await page.evaluate("scrollTo(0, 0)")
    await page.get_by_label("topic").focus()
    for _ in range(20):
        await page.keyboard.press("Tab")
        assert await is_seen(page.locator(":focus"))
    # A folded choice counts, and the fold says that there is one.
    await page.get_by_label("2 Part 2").check()
    await pauses.click()
    await expect(page.get_by_text("some are chosen")).to_be_visible()
    await page.get_by_label("topic").fill("Tea")
    await page.get_by_label("tone").select_option("warm")
    run = await ran(web, page)
    assert (run["status"], run["waits"][0]["step"]) == ("paused", "2")


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
async def test_what_the_form_says_is_what_the_run_gets(
    web: ServedApp, open_profile: OpenProfile, scripts: bool
) -> None:
    web.book("report.md", REPORT)
    model = ScriptedModel(["Done."], cycle=True)
    await web.model(model).serve()
    page = await (await open_profile(java_script_enabled=scripts)).page("/playbooks/report/run")
    await expect(page.get_by_label("charts")).to_be_checked()
    await expect(page.get_by_label("draft")).not_to_be_checked()
    assert await page.get_by_label("draft").get_attribute("required") is None
    await page.get_by_label("topic").fill("Tea & <b>milk</b> + 1%\u20ac")
    await page.get_by_label("charts").uncheck()
    await page.get_by_label("tone").select_option("warm")
    await page.get_by_label("1 Outline").check()
    await page.get_by_text("Limits").click()
    await page.get_by_label("Tokens").fill("900000")
    run = await ran(web, page)
    given = {"topic": "Tea & <b>milk</b> + 1%\u20ac", "notes": "none", "charts": "false", "draft": "false"}
    assert {name: run["inputs"][name] for name in given} == given
    assert (run["model"], run["status"]) == ("test/one", "paused")
    assert (await web.service.settings(run["run"]))[1].budget.tokens == 900_000
    await page.go_back()
    await page.get_by_label("topic").fill("Tea")
    await page.get_by_label("tone").select_option("warm")
    await page.get_by_label("draft").check()
    await page.get_by_label("charts").check()
    await page.get_by_label("1 Outline").uncheck()
    again = await ran(web, page)
    assert (again["inputs"]["draft"], again["inputs"]["charts"]) == ("true", "true")
    assert again["run"] != run["run"]
    if scripts:
        # A fork has the same fields, and sends only what was changed.
        await page.locator("#fork > summary").click()
        fork = page.locator("#fork form")
        await expect(fork.get_by_label("draft")).to_be_checked()
        await fork.get_by_label("charts").uncheck()
        await fork.get_by_label("tone").select_option("plain")
        async with page.expect_request("**/fork") as sent:
            await fork.get_by_role("button", name="Fork").click()
        assert json.loads((await sent.value).post_data or "")["values"] == {"charts": "false", "tone": "plain"}
        await page.wait_for_url(lambda url: again["run"] not in url)
        await expect(page.locator("#var-charts pre")).to_have_text("false")
    else:
        await page.go_back()
        await page.get_by_label("topic").fill("Tea")
        await page.get_by_label("tone").select_option("warm")
        await page.get_by_label("Model").fill("nobody/knows")
        await page.get_by_role("button", name="Run Playbook").click()
        await expect(page.get_by_role("heading", level=1)).not_to_contain_text("Run")
        await expect(page.locator("main")).to_contain_text("There is no provider nobody")


async def test_findings_are_below_the_description_unless_they_are_errors(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    web.book("report.md", REPORT)
    web.book("unclosed.md", UNCLOSED)
    await web.model(ScriptedModel([])).serve()
    profile = await open_profile()
    page = await profile.page()
    for book, words, is_open in (("report", "1 warning", False), ("unclosed", "1 error", True)):
        for path in (f"/playbooks/{book}", f"/playbooks/{book}/run"):
            await profile.go(page, path)
            found = page.locator(".findings", has_text=words)
            await expect(found).to_have_count(1)
            assert (await found.get_attribute("open") is not None) == is_open
            box, lead = await found.bounding_box(), await page.locator(".lead").bounding_box()
            assert box is not None
            assert lead is not None
            assert (box["y"] < lead["y"]) == is_open
