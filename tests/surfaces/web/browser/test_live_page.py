"""The live page follows its run, and the page of a run that has ended begins with its outcome."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from cuebook.performers.models.model import ModelError, Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from tests.support.programs import eventually
from tests.surfaces.web.browser.appearance import sticks_out
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status, head, text
from tests.surfaces.web.browser.test_appearance import tab_to
from tests.surfaces.web.served_app import Dripping, ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "# A long run\n\n" + "\n".join(f"## STEP {n}: Part {n}\n\nDo part {n}.\n" for n in range(1, 101))
PARAGRAPH = "A paragraph with some *words* that fill a line or two of the page, so that it grows.\n\n"
REVIEW = """\
# Review

## INPUTS

- `kind` (string: risky): Which kind

## STEP 1: Look

Look at it.

## STEP 2: Decide

```if kind == "risky"```

### STEP 2a: List the risks

List them.

### STEP 2b: Ask the owner

Write to the owner.

```else```

### STEP 2c: Wave through

Say yes.

```endif```

## STEP 3: Report

Write the report.
"""

# Looks at each frame just before it is painted: is the end of the running step's text on the screen? An element that changes its
# size in every frame makes the browser call the observer then.
WATCH = """() => {
  window.seen = { frames: 0, missed: [] };
  const probe = document.body.appendChild(document.createElement('div'));
  probe.className = 'unseen';
  new ResizeObserver(() => {
    const head = [...document.querySelectorAll('.step-head[data-status="running"]')].at(-1);
    if (!head) return;
    const text = head.parentElement.querySelector(':scope > .text');
    const end = Math.max(...[head, text].map((one) => one.getBoundingClientRect().bottom));
    const there = end > document.querySelector('.strip').getBoundingClientRect().bottom && end <= innerHeight + 1;
    seen.frames += 1;
    if (!there) seen.missed.push([head.id, Math.round(end), innerHeight]);
  }).observe(probe);
  const next = () => {
    probe.style.height = probe.style.height === '1px' ? '2px' : '1px';
    requestAnimationFrame(next);
  };
  next();
}"""
IN_VIEW = """(key) => {
  const box = document.getElementById(`text-${key}`).getBoundingClientRect();
  return box.bottom <= innerHeight && box.bottom > document.querySelector('.strip').getBoundingClientRect().bottom;
}"""


async def in_view(page: Page, key: str) -> None:
    await page.wait_for_function(IN_VIEW, arg=key)


async def test_the_running_step_of_a_long_run_is_always_in_view(web: ServedApp, open_profile: OpenProfile) -> None:
    gate = asyncio.Event()

    def says(request: Request) -> Says:
        held = "Do part 1." in request.messages[-1].text
        return Says(PARAGRAPH * 9, chunk=120, **({"wait_for": gate, "pause_at": 200} if held else {}))  # type: ignore[arg-type]

    await web.model(Dripping(ScriptedModel(says), 0.001)).serve()
    run = await web.begin(playbook=web.book("long.md", LONG))
    page = await (await open_profile()).page(f"/runs/{run}")
    await in_view(page, "1")
    await expect(page.locator("#to-come")).to_have_text("99 more steps")
    await expect(page.locator("#cards > article:visible")).to_have_count(1)
    await expect(page.locator("#rail > li")).to_have_count(100)
    await page.evaluate(WATCH)
    gate.set()
    await expect_status(page, "completed")
    seen = await page.evaluate("seen")
    assert seen["missed"] == []
    assert seen["frames"] > 20
    await expect(page.locator("#to-come")).to_be_hidden()
    await expect(page.locator("#jump")).to_be_hidden()
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live


RUNNING = """() => [...document.querySelectorAll('.step-head[data-status="running"]')].map(one => one.id)"""


async def test_a_run_is_followed_after_every_reload(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(Dripping(ScriptedModel(lambda _: Says(PARAGRAPH * 6, chunk=60)), 0.03)).serve()
    run = await web.begin(playbook=web.book("long.md", LONG.partition("## STEP 21")[0]))
    page = await (await open_profile()).page(f"/runs/{run}")
    reloads = 0
    while (await web.get(f"/api/runs/{run}"))["status"] == "running":
        await page.reload()
        running = await page.evaluate(RUNNING)
        if running:
            key = running[-1].removeprefix("head-")
            try:
                await page.wait_for_function(
                    f"(key) => {{ const shown = ({IN_VIEW})(key); return shown || !document.querySelector(`[id='head-${{key}}'][data-status=running]`); }}",
                    arg=key,
                )
            except Exception:
                raise AssertionError(f"step {key} is not in view") from None
        reloads += 1
    assert reloads > 2
    await expect_status(page, "completed")
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live


async def test_a_reader_on_a_phone_who_scrolls_away_is_left_alone_and_jumps_back_with_the_keyboard(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    gates = {number: asyncio.Event() for number in (16, 17, 60)}

    def says(request: Request) -> Says:
        words = request.messages[-1].text
        held = next((gate for number, gate in gates.items() if f"part {number}." in words), None)
        return Says(PARAGRAPH * 8, chunk=50, **({"wait_for": held, "pause_at": 500} if held else {}))  # type: ignore[arg-type]

    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("long.md", LONG))
    profile = await open_profile(viewport={"width": 360, "height": 740})
    page = await profile.page(f"/runs/{run}")
    await in_view(page, "16")
    strip = page.locator(".strip")
    assert await strip.evaluate("one => one.getBoundingClientRect().y") == 0
    await expect(strip).to_contain_text("15 of 100 steps")
    await expect(strip.get_by_role("button", name="Cancel")).to_be_visible()
    await expect(page.locator("#jump")).to_be_hidden()
    assert await sticks_out(page) == []
    await page.keyboard.press("Home")
    jump = page.get_by_role("button", name="Jump to step 16")
    await expect(jump).to_be_visible()
    gates[16].set()
    await expect(page.get_by_role("button", name="Jump to step 17")).to_be_visible()
    assert await page.evaluate("scrollY") == 0
    await page.reload()  # it is remembered
    await expect(page.get_by_role("button", name="Jump to step 17")).to_be_visible()
    assert await sticks_out(page) == []
    await tab_to(page, "#jump")
    await page.keyboard.press("Enter")
    await in_view(page, "17")
    await expect(page.locator("#jump")).to_be_hidden()
    await expect(page.locator("#step-17")).to_be_focused()
    await page.get_by_label("All steps").check()
    await expect(page.locator("#rail-100")).to_be_visible()
    await page.get_by_label("All steps").uncheck()
    await page.locator("#jump").evaluate("one => one.click()")
    gates[17].set()
    await expect(page.locator("#step-40")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await page.wait_for_selector("#run-status[data-ended]")


async def test_sub_steps_stream_in_their_step_with_the_branch_that_was_taken(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    gate = asyncio.Event()
    lines: dict[str, list[Line]] = {
        "Look": ["Looked."],
        "List": ["A list."],
        "Write to": [Says("# Dear owner\n\nIt is *late*.\n\nAnd so", chunk=5, wait_for=gate, pause_at=33)],
        "Write the": [ModelError("bad_request", "No ink."), "The **report**."],
    }

    def says(request: Request) -> Line:
        return next(some.pop(0) for name, some in lines.items() if request.messages[-1].text.startswith(name))

    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("review.md", REVIEW))
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    inner = page.locator("#step-2 > .within > article")
    await expect(inner).to_have_count(2)
    await expect(head(page, "2")).to_contain_text('Branch taken kind == "risky"')
    await expect(text(page, "2b").locator(".block h1")).to_have_text("Dear owner")
    await expect(text(page, "2b").locator(".block em")).to_have_text("late")
    await expect(text(page, "2b").locator(".tail")).to_have_text("And", use_inner_text=True)
    await expect(page.locator("#panel-drawing .box[data-status=running]").last).to_be_in_viewport()
    await page.reload()
    await expect(text(page, "2b").locator(".tail")).to_have_text("And", use_inner_text=True)
    await head(page, "2b").get_by_label("Raw").check()
    await expect(text(page, "2b").locator(".tail")).to_have_text(
        "# Dear owner\n\nIt is *late*.\n\nAnd", use_inner_text=True
    )
    await head(page, "2b").get_by_label("Raw").uncheck()
    gate.set()
    await expect_status(page, "failed")
    outcome = page.locator("#run-outcome")
    await expect(outcome).to_contain_text("No ink.")
    await expect(outcome.get_by_role("link", name="3 Report")).to_be_visible()
    await expect(outcome.get_by_label("Restart from")).to_have_value("3 Report")
    await expect(outcome.get_by_role("link", name="Change the text")).to_be_visible()
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live
    await outcome.get_by_role("button", name="Retry where it stopped").click()
    await expect_status(page, "completed")
    await expect(outcome.locator(".result strong")).to_have_text("report")
    await expect(page.locator("#summary")).to_contain_text(re.compile(r"3 of 3\s*and 2 sub-steps"))
    await outcome.get_by_role("button", name="Restart", exact=True).click()
    await page.wait_for_url(lambda url: not url.endswith(run))
    await read_without_scripts(web, open_profile, run)


async def read_without_scripts(web: ServedApp, open_profile: OpenProfile, run: str) -> None:
    plain = await (await open_profile(java_script_enabled=False)).page(f"/runs/{run}")
    await expect(plain.locator("#run-outcome .result")).to_contain_text("The report.")
    await expect(plain.locator("#run-outcome button:visible")).to_have_count(0)
    await expect(plain.locator("#step-2b .rendered em")).to_have_text("late")
    long = await web.begin(playbook=web.book("fails.md", LONG.replace("Do part 1.", "Write the")))
    await web.until(long, "failed")
    await eventually(lambda: web.get(f"/api/runs/{long}"))
    await plain.goto(plain.url.replace(run, long))
    await expect(plain.locator("#cards > article:visible")).to_have_count(1)
    await plain.get_by_text("Show them").click()
    await expect(plain.locator("#cards > article:visible")).to_have_count(100)
