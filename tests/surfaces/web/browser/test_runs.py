"""A run in a real browser: started, paused, answered, cancelled, and run again in other ways."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from cuebook.performers.models.model import ModelError, Tokens
from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.support.programs import eventually
from tests.surfaces.web.browser.profile import BrowserProfile, OpenProfile, dom, expect_status, head, text
from tests.surfaces.web.pages.test_pages import asked
from tests.surfaces.web.served_app import Dripping, ServedApp
from tests.surfaces.web.test_run_list import fired

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEA = """\
# Tea

Makes tea.

## INPUTS

- `kind` (string: green): Which tea
- `guest` (string): Who drinks it

## STEP 1: Choose

Choose a {{kind}} tea for {{guest}}.

@output(chosen)

## STEP 2: Brew

Brew {{chosen}} for {{guest}}.

## ARTIFACTS

type: markdown
"""
ASKS = """\
# Asks

## STEP 1: Name

@elicit(input, "Which name?")
@output(name)

## STEP 2: Size

@elicit(select, "Which size?", "small", "large")
@output(size)

## STEP 3: Sure

@elicit(confirm, "Really?")
@output(sure)

## STEP 4: Say

Say {{name}}, {{size}}, {{sure}}.
"""


async def test_a_breakpoint_shows_the_metadata_and_accepts_changed_values(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    model = ScriptedModel([Says("Some *sencha*.", tokens=Tokens(30, 5, cached=10), cost=0.0123), "Brewed."])
    web.book("tea.md", TEA)
    await web.model(model).serve()
    page = await (await open_profile()).page("/playbooks/tea/run")
    run = page.get_by_role("button", name="Run Playbook")
    await run.click()  # the required input is missing: nothing is sent
    assert page.url.endswith("/run")
    await page.get_by_label("guest").fill("Ada")
    await page.get_by_label("1 Choose").check()
    await run.click()
    await page.wait_for_url(re.compile("/runs/"))
    await expect_status(page, "paused")
    await expect(text(page, "1").locator("em")).to_have_text("sencha")
    meta = head(page, "1").locator(".meta")
    await expect(meta).to_be_hidden()
    await head(page, "1").get_by_label("Meta").check()
    await expect(meta).to_be_visible()
    await expect(meta).to_contain_text("30 / 5")
    await expect(meta).to_contain_text("$0.0123")
    await meta.get_by_text("Input preview").click()
    await expect(meta.get_by_text("Choose a green tea for Ada.").first).to_be_visible()
    await expect(meta.locator(".sent h2")).to_have_text([re.compile("User message")])
    await head(page, "1").get_by_label("Raw").check()
    await expect(text(page, "1").locator(".raw")).to_be_visible()
    await expect(text(page, "1").locator(".raw")).to_have_text("Some *sencha*.")
    await page.get_by_text("Change variables before it continues").click()
    await page.locator('textarea[data-name="chosen"]').fill("Darjeeling")
    await page.get_by_role("button", name="Resume").click()
    await expect_status(page, "completed")
    assert "Brew Darjeeling for Ada." in model.requests[1].messages[-1].text
    await expect(page.locator("#var-chosen pre")).to_have_text("Darjeeling")
    await expect(head(page, "1").get_by_label("Meta")).to_be_checked()  # what was opened stays open
    await expect(page.locator("#summary")).to_contain_text("2 of 2")


async def test_each_kind_of_question_is_answered_on_the_page(web: ServedApp, open_profile: OpenProfile) -> None:
    model = ScriptedModel(["Said."])
    await web.model(model).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    page = await (await open_profile()).page(f"/runs/{run}")
    field = page.get_by_label("Which name?")
    await expect(field).to_be_visible()
    await only_looked_at(await open_profile(), web, run)
    await page.get_by_role("link", name="Answer").click()  # the banner leads to the field
    await expect(field).to_be_focused()
    await page.keyboard.press("Enter")  # an empty answer is not sent
    assert await field.evaluate("(one) => one.validity.valueMissing")
    for name in ("Copy", "Raw", "Meta"):  # there is nothing to show yet
        await expect(head(page, "1").get_by_text(name).locator("visible=true")).to_have_count(0)
    await field.fill("Ada")
    await page.get_by_role("button", name="Answer").click()
    await page.get_by_label("Which size?").select_option("large")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("group", name="Really?")).to_be_visible()
    await page.get_by_role("button", name="Yes").click()
    await expect_status(page, "completed")
    assert "Say Ada, large, yes." in model.requests[0].messages[-1].text
    await expect(page.locator("form.wait")).to_have_count(0)
    for name, value in (("name", "Ada"), ("size", "large"), ("sure", "yes")):
        await expect(page.locator(f"#var-{name} pre")).to_have_text(value)


async def only_looked_at(profile: BrowserProfile, web: ServedApp, run: str) -> None:
    """A viewer is offered no action that would be refused, and sees which role the run waits for."""
    _, token = await web.service.add_user("eve", ["viewer"])
    page = await profile.page("/sign-in")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/")
    await profile.go(page, f"/runs/{run}")
    await expect(page.locator("form.wait")).to_contain_text("Which name?")
    await expect(page.get_by_text("Waiting for someone with the role runner.")).to_be_visible()
    await expect(page.get_by_role("link", name="View")).to_be_visible()
    await expect(page.locator("main").get_by_role("button")).to_have_count(0)
    await expect(page.get_by_role("link", name="Answer")).to_have_count(0)


async def test_the_inbox_lists_waits_and_accepts_answers(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel(["Said."])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    await web.waiting(run)
    page = await (await open_profile()).page("/")
    await page.get_by_role("navigation", name="Pages").get_by_role("link", name="Inbox").click()
    await page.get_by_label("Which name?").fill("Grace")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_label("Which size?")).to_be_visible()
    await page.get_by_role("link", name="Asks").click()
    await expect(page.locator("#var-name pre")).to_have_text("Grace")


async def test_a_run_is_cancelled_in_the_middle_of_its_text(web: ServedApp, open_profile: OpenProfile) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Says("Half of it, and more.", chunk=4, wait_for=never, pause_at=8)])
    web.book("tea.md", TEA)
    await web.model(model).serve()
    run = await web.begin(playbook="tea", inputs={"guest": "Ada"})
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect(text(page, "1").locator(".tail")).to_have_text("Half of ")
    await expect_status(page, "running")
    copy = head(page, "1").get_by_role("button", name="Copy")
    await expect(copy).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await expect_status(page, "cancelled")
    await expect(page.locator("#summary")).to_contain_text("cancelled")
    await expect(text(page, "1").locator(".tail")).to_have_text("Half of ")
    await expect(copy).to_be_visible()
    await head(page, "1").get_by_label("Meta").check()
    await expect(head(page, "1").locator(".meta")).to_contain_text(
        re.compile("Tokens.*unknown.*Cost estimate.*unknown", re.DOTALL)
    )
    await expect(page.locator("#summary .figures")).to_contain_text(
        re.compile("Tokens.*unknown.*Cost.*unknown", re.DOTALL)
    )
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live
    assert model.stopped == 1
    message = await web.get(f"/api/runs/{run}")
    assert (message["status"], message["partial"]) == ("cancelled", {"1": "Half of "})
    assert (message["steps"][0]["status"], message["steps"][0]["stopped"]) == ("failed", "cancelled")


async def test_a_failed_run_is_retried_where_it_stopped(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel(["Sencha.", ModelError("bad_request", "No water."), "Brewed."])).serve()
    run = await web.begin(playbook="tea", inputs={"guest": "Ada"})
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect_status(page, "failed")
    await expect(page.locator("#run-outcome")).to_contain_text("No water.")
    await page.get_by_role("button", name="Retry where it stopped").click()
    await expect_status(page, "completed")
    await expect(text(page, "2")).to_contain_text("Brewed.")
    assert page.url.endswith(run)


async def test_a_run_is_restarted_forked_and_compared(web: ServedApp, open_profile: OpenProfile) -> None:
    says = ["Sencha.", "Brewed.", "Brewed again.", "Gyokuro.", "Brewed for Grace."]
    web.book("tea.md", TEA)
    model = ScriptedModel(says)
    await web.model(model).serve()
    run = await web.begin(playbook="tea", inputs={"guest": "Ada"})
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect_status(page, "completed")
    await head(page, "2").get_by_role("button", name="Restart from here").click()
    await page.wait_for_url(lambda url: not url.endswith(run))
    await expect_status(page, "completed")
    await expect(text(page, "1")).to_contain_text("Sencha.")
    await expect(text(page, "2")).to_contain_text("Brewed again.")
    assert len(model.requests) == 3
    restarted = page.url
    await page.locator("#fork > summary").click()
    await page.locator('#fork textarea[data-name="guest"]').fill("Grace")
    await page.get_by_role("button", name="Fork").click()
    await page.wait_for_url(lambda url: url != restarted)
    await expect_status(page, "completed")
    await expect(page.locator("#var-guest pre")).to_have_text("Grace")
    await expect(text(page, "2")).to_contain_text("Brewed for Grace.")
    await page.get_by_role("link", name="what differs").click()
    await expect(page.get_by_role("heading", name="Two runs, side by side")).to_be_visible()
    guest = page.get_by_role("row").filter(has_text="guest")
    await expect(guest.locator("pre")).to_have_text(["Ada", "Grace"])
    await expect(page.locator(".card").filter(has_text="Choose")).to_contain_text("Gyokuro.")


async def test_of_two_tabs_that_answer_at_once_one_is_refused(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(Dripping(ScriptedModel(["Said."]))).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    await web.waiting(run)
    profile = await open_profile()
    pages = [await profile.page("/inbox"), await profile.page("/inbox")]
    for page, name in zip(pages, ("Ada", "Grace"), strict=True):
        await page.get_by_label("Which name?").fill(name)
    # Both send before either sees the result.
    sends = "document.querySelector('form.wait').requestSubmit()"
    await asyncio.gather(*(page.evaluate(sends) for page in pages))
    for page in pages:  # both are shown what is asked next
        await expect(page.get_by_label("Which size?")).to_be_visible()

    async def refused_pages() -> list[Page]:
        return [page for page in pages if await page.locator("#notice").is_visible()]

    refused = await eventually(refused_pages)  # the script that shows it runs after the page is there
    assert len(refused) == 1
    won = "Grace" if refused[0] is pages[0] else "Ada"
    await expect(refused[0].locator("#notice")).to_contain_text("Already answered by")
    await expect(refused[0].locator("#notice")).to_contain_text(f": {won}.")
    message = await web.get(f"/api/runs/{run}")
    assert message["waits"][0]["prompt"] == "Which size?"
    live = await profile.page(f"/runs/{run}")
    await expect(live.locator("#var-name pre")).to_have_text(won)


async def test_a_late_answer_on_the_live_page_shows_who_was_first(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel(["Said."])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    page = await (await open_profile()).page(f"/runs/{run}")
    field = page.get_by_label("Which name?")
    await field.fill("Grace")
    # The form's request is held until another user has answered and the page has received that.
    sent = asyncio.Event()

    async def held(route: Route) -> None:
        await web.post(f"/api/waits/{wait}/answer", 200, value="Ada")
        await expect(field).to_have_count(0)
        sent.set()
        await route.continue_()

    await page.route("**/answer", held)
    await page.get_by_role("button", name="Answer").click()
    await expect(page.locator("#notice")).to_contain_text("Already answered by")
    await expect(page.locator("#notice")).to_contain_text(": Ada.")
    assert sent.is_set()
    await expect(page.get_by_label("Which size?")).to_be_visible()
    await expect(page.locator(".badge")).to_have_text("1")
    for type_, value in (("select", "small"), ("confirm", "yes")):
        await web.post(f"/api/waits/{(await asked(web, run, type_))['wait']}/answer", 200, value=value)
    await expect_status(page, "completed")
    await expect(page.locator(".badge")).to_have_count(0, timeout=10_000)  # before the next periodic count


async def test_the_list_of_runs_fits_a_small_window_without_javascript(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    web.book("a-note-with-a-long-name.md", "# A note with a long name\n\n## STEP 1: Write\n\nWrite it.\n")
    await web.model(ScriptedModel(["Done."], cycle=True)).serve()
    run = await web.begin(playbook="a-note-with-a-long-name", model="test/a-model-of-2026-11-19")
    await web.until(run, "completed")
    await web.post("/api/schedules", 201, playbook="a-note-with-a-long-name", cron="@daily", name="minute", inputs={})
    await web.post("/api/triggers/schedule/minute/run", 202)
    async with web.wiring.background(web.service):
        await eventually(lambda: fired(web))
    profile = await open_profile(java_script_enabled=False, viewport={"width": 1100, "height": 800})
    page = await profile.page("/runs?since=7d")
    await expect(page.get_by_text("by schedule:minute")).to_be_visible()
    await expect(page.get_by_role("link", name="Remove the filter since 7d")).to_be_visible()
    table = await page.locator(".wide").bounding_box()
    cost = await page.locator("[data-of=cost]").first.bounding_box()
    assert table is not None
    assert cost is not None
    assert cost["x"] + cost["width"] <= table["x"] + table["width"]
    await profile.go(page, f"/runs/{run}")
    nothing = "getComputedStyle(document.getElementById('variables'), '::before').content"
    none = await (await open_profile()).page(f"/runs/{run}")
    assert await none.evaluate(nothing) == '"None."'
