"""Text that tries to run a script or fetch from another server, in every place that shows untrusted text."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page, expect

from cuebook.performers.models.model import Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from tests.support.doubling_program import ASK, DESK, JUMP, TAKE, THANK
from tests.surfaces.web.browser.profile import BrowserProfile, OpenProfile, expect_status, text
from tests.surfaces.web.markup import TRICKS
from tests.surfaces.web.served_app import Dripping, ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = "\n\n".join(TRICKS)
SHORT = "<img src=x onerror=alert(1)><script>alert(2)</script>"

# Content that a page must never have.
DANGERS = """() => [...document.querySelectorAll('*')].flatMap((one) => {
  const found = [];
  const never = ['img', 'iframe', 'object', 'embed', 'video', 'audio', 'base', 'foreignObject', 'math'];
  if (never.includes(one.localName)) found.push(one.outerHTML);
  if (one.localName === 'script' && !one.src.startsWith(location.origin + '/static/')) found.push(one.outerHTML);
  if (one.localName === 'meta' && one.httpEquiv) found.push(one.outerHTML);
  for (const { name, value } of one.attributes) {
    if (name.startsWith('on') || name === 'style') found.push(`${one.localName} ${name}`);
    if (['href', 'xlink:href', 'src', 'action', 'formaction'].includes(name)) {
      const there = new URL(value, location.href);
      const leaves = there.origin !== location.origin;
      const may = one.localName === 'a' && ['http:', 'https:', 'mailto:'].includes(there.protocol);
      if (leaves && !may) found.push(`${one.localName} ${name}=${value}`);
    }
  }
  return found;
})"""


async def calm(profile: BrowserProfile, page: Page) -> None:
    """Check that nothing in the page runs or fetches, not even when a person hovers over it."""
    assert await page.evaluate(DANGERS) == []
    await page.mouse.move(400, 300)
    profile.check()


def sly_playbook() -> str:
    options = json.dumps(SHORT)
    return (
        f"# {SHORT}\n\n{ALL}\n\n## SYSTEM\n\n{SHORT}\n\n## INPUTS\n\n- `x` (text): {SHORT}\n\n"
        f"## STEP 1: {SHORT}\n\nSay {{{{x}}}}.\n\n@output(said)\n\n"
        f'## STEP 2: Ask\n\n@elicit(select, {options}, {options}, "b")\n\n## ARTIFACTS\n\ntype: html_css\n'
    )


async def test_a_document_full_of_tricks_runs_nothing(web: ServedApp, open_profile: OpenProfile) -> None:
    def says(request: Request) -> Says:
        return Says(ALL, chunk=60)

    web.book("sly.md", sly_playbook())
    await web.model(Dripping(ScriptedModel(says), 0.001)).serve()
    profile = await open_profile()
    page = await profile.page("/playbooks/sly/run")
    await calm(profile, page)
    await page.get_by_label("x").first.fill(ALL)
    await page.locator('input[data-list="breakpoints"]').first.check()
    await page.get_by_role("button", name="Run Playbook").click()
    await expect_status(page, "paused")
    await expect(text(page, "1").locator(".rendered")).to_be_visible()
    await calm(profile, page)
    links = text(page, "1").locator(".rendered a[href]")
    await expect(links).not_to_have_count(0)
    await expect(text(page, "1").locator(".rendered a[href] + .host")).to_have_count(await links.count())
    await page.get_by_text("Change variables before it continues").click()
    await page.locator('textarea[data-name="x"]').fill(SHORT)
    await page.get_by_role("button", name="Resume").click()
    await expect_status(page, "awaiting_input")
    await calm(profile, page)
    run = page.url.rpartition("/")[2]
    other = await web.begin(playbook="sly", inputs={"x": SHORT})
    await web.until(other, "awaiting_input")
    for path in ("/", "/playbooks/sly", "/runs", "/inbox", f"/runs/{run}/diff/{other}"):
        assert await profile.go(page, path) == 200
        await calm(profile, page)
    await profile.go(page, f"/runs/{run}")
    await page.locator("form.wait select").select_option("b")
    await page.get_by_role("button", name="Answer").click()
    await expect_status(page, "completed")
    await calm(profile, page)
    await page.reload()
    await calm(profile, page)
    # An artifact is a download, not a page of this server.
    async with page.expect_download() as coming:
        await page.locator('a[href$="/artifact"]').first.click()
    assert (await coming.value).suggested_filename.endswith(".html")
    # Opened without the link, it is also a download, and the browser shows nothing.
    response = await profile.context.request.get(f"{profile.address}/api/runs/{run}/artifact")
    assert response.headers["content-disposition"].startswith("attachment")
    await calm(profile, page)


async def test_a_graph_and_a_pipeline_full_of_tricks_run_nothing(web: ServedApp, open_profile: OpenProfile) -> None:
    graph = {
        "id": "sly-graph",
        "name": SHORT,
        "description": ALL,
        "entry": "a",
        "nodes": {name: {"name": SHORT, "instruction": ALL} for name in ("a", "b")},
        "edges": [{"from": "a", "to": "b", "max_iterations": 2}],
    }
    pipeline = {
        "name": SHORT,
        "description": ALL,
        "steps": [
            {"id": "say", "name": SHORT, "command": "cli cat sly.txt", "effect": "read"},
            {
                "id": "write",
                "name": SHORT,
                "command": "cli tee made.txt",
                "stdin": "$say.stdout",
                "approval": "required",
            },
        ],
    }
    (web.work / "sly.txt").write_text(ALL)
    web.book("sly-graph.json", json.dumps(graph))
    web.book("sly-pipeline.json", json.dumps(pipeline))
    web.book(f"{SHORT.replace('/', '')}.yml", f"name: {json.dumps(SHORT)}\nsteps: {json.dumps(SHORT)}\n")
    await web.model(ScriptedModel(lambda request: Says(ALL, chunk=200))).serve()
    listed = {one["dialect"]: one["id"] for one in (await web.get("/api/playbooks"))["playbooks"]}
    profile = await open_profile()
    page = await profile.page("/")
    await expect(page.get_by_text("1 file cannot be run as written")).to_be_visible()
    await calm(profile, page)
    for dialect, states in (("graph", ["completed"]), ("pipeline", ["awaiting_approval", "completed"])):
        assert await profile.go(page, f"/playbooks/{listed[dialect]}") == 200
        await calm(profile, page)
        run = await web.begin(playbook=listed[dialect])
        await profile.go(page, f"/runs/{run}")
        for state in states:
            await expect_status(page, state)
            await calm(profile, page)
            if state == "awaiting_approval":
                await page.get_by_role("button", name="Approve").click()


async def test_a_program_full_of_tricks_runs_nothing(web: ServedApp, open_profile: OpenProfile) -> None:
    says: list[Line] = [
        Says(ASK.replace("Which number?", SHORT), chunk=9),
        JUMP.replace("Nobody may see this", SHORT),
        TAKE,
        THANK,
    ]
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("desk.pbasm", DESK.replace("Doubles numbers.", SHORT)))
    profile = await open_profile()
    page = await profile.page(f"/runs/{run}")
    await page.get_by_placeholder("Your answer").fill(SHORT)
    await calm(profile, page)
    await page.keyboard.press("Enter")
    await expect_status(page, "completed")
    await expect(page.locator("#said .bubble")).not_to_have_count(0)
    await calm(profile, page)


async def test_an_address_full_of_tricks_runs_nothing(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel([])).serve()
    profile = await open_profile()
    page = await profile.page()
    for path in (
        "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/%3Cscript%3Ealert(1)%3C/script%3E",
        "/playbooks/%3Cimg%20src=x%20onerror=alert(1)%3E",
        "/runs/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/runs?status=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "/sign-in?start=%3Cscript%3Ealert(1)%3C/script%3E",
    ):
        await profile.go(page, path)
        await expect(page.locator("main")).not_to_be_empty()
        await calm(profile, page)


EVIL = """<!doctype html><title>Evil</title><iframe src="{address}/runs" width=500 height=300></iframe>
<form method=post enctype=text/plain action="{address}/api/runs" target=_blank>
<input name='{{"playbook": "two", "x": "' value='"}}'><button>Win</button></form>"""


async def test_a_page_of_another_site_cannot_frame_or_use_the_app(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("two.md", "# Two\n\n## STEP 1: A\n\nDo A.\n")
    await web.model(ScriptedModel(["Done."])).serve()
    profile = await open_profile()
    evil = "http://evil.example"
    await profile.context.route(
        f"{evil}/**", lambda route: route.fulfill(content_type="text/html", body=EVIL.format(address=profile.address))
    )
    page = await profile.page()
    await page.goto(f"{evil}/")
    framed = page.frames[1]
    assert framed.url != f"{profile.address}/runs"
    assert await framed.get_by_role("heading", name="Runs").count() == 0
    async with profile.context.expect_page() as opening:
        await page.get_by_role("button", name="Win").click()
    answer = await opening.value
    await answer.wait_for_load_state()
    await expect(answer.locator("body")).to_contain_text(re.compile("40[13]|not allowed|refused", re.IGNORECASE))
    assert (await web.get("/api/runs"))["runs"] == []
    assert all(address.startswith(evil) for address in profile.foreign)
    profile.foreign.clear()
    profile.errors.clear()  # the browser says that the frame was refused
