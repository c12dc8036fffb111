"""Every page on a small screen, in light and dark, without a mouse, and without JavaScript."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from cuebook.gate.roles import Principal
from cuebook.performers.models.model import ModelError, Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from cuebook.surfaces.web.app import ENDPOINTS
from tests.support.doubling_program import ASK, DESK
from tests.surfaces.web.browser.appearance import faint, sticks_out
from tests.surfaces.web.browser.profile import BrowserProfile, OpenProfile, expect_status, text
from tests.surfaces.web.comparisons import compared
from tests.surfaces.web.live.test_reconnect import PLAYBOOKS, attend
from tests.surfaces.web.served_app import TOKEN, ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "An-unbroken-word-" * 12
REPLY = f"""\
# A heading

Some *words* with `code` and a [link](https://example.org/{LONG}).

| one | two | three | four | five | six |
|---|---|---|---|---|---|
| {LONG} | b | c | d | e | f |

```python
def long_line(): return "{LONG}"
```

> A quotation

1. {LONG}
"""
ASKS = f"""\
# {LONG}

{LONG}

## INPUTS

- `name` (string: Ada): {LONG}
- `size` (enum: small, large): Which size
- `count` (number: 2): How many
- `sure` (boolean: true): Whether
- `words` (text): Some words

## STEP 1: {LONG}

Say {{{{name}}}}.

@output(said)

## STEP 2: Ask

@elicit(input, "{LONG}?")

## STEP 3: Pick

@elicit(select, "Which?", "{LONG}", "b")
"""
TEA = """\
# Tea

## INPUTS

- `guest` (string): Who drinks it

## STEP 1: Choose

Choose a tea for {{guest}}.

@output(chosen)

## STEP 2: Ask

@elicit(input, "How strong?")
@output(strength)

## STEP 3: Sure

@elicit(confirm, "Shall it be served?")

## ARTIFACTS

type: markdown
"""


CHANNELS = f"""
[notifications]
send_to = ["down"]
[notifications.channels.mail]
kind = "email"
host = "127.0.0.1"
port = 1
security = "none"
sender = "cuebook@example.com"
domains = ["{"a-domain-with-a-long-name." * 3}example.com"]
[notifications.channels.down]
kind = "command"
command = ["{"no-such-program-" * 12}"]
[notifications.channels.slack]
kind = "slack"
token = "env:SLACK"
signing_secret = "env:SLACK"
"""


async def furnish(web: ServedApp) -> dict[str, str]:
    """Fills every page: runs that completed, failed and wait. Returns their addresses."""

    def says(request: Request) -> Line:
        if "Main:02" in str(request):
            return ASK.replace("Which number?", REPLY.replace("\n", "\\n").replace('"', "'"))
        return ModelError("bad_request", LONG) if "Fail" in request.messages[-1].text else REPLY

    for name, playbook, _ in PLAYBOOKS.values():
        web.book(name, playbook)
    web.book("desk.pbasm", DESK)
    web.book("asks.md", ASKS)
    web.book("fails.md", "# Fails\n\n## STEP 1: Fail\n\nFail.\n\n## STEP 2: Not\n\nDo it.\n")
    web.book("broken.yml", f"name: {LONG}\nsteps: {LONG}\n")
    web.book("a-note-whose-file-has-a-long-name.md", "# Note\n\n## STEP 1: Write\n\nWrite it.\n")
    (web.config / "cuebook.toml").write_text(CHANNELS)
    await web.model(ScriptedModel(says)).serve()
    runs: dict[str, str] = {}
    for dialect, (name, _, fields) in PLAYBOOKS.items():
        runs[dialect] = await web.begin(playbook=name.partition(".")[0], **fields)
        if dialect != "pipeline":
            await attend(web, runs[dialect])
    runs["pauses"] = await web.begin(playbook="asks", inputs={"words": LONG, "size": "small"}, breakpoints="1")
    runs["asks"] = await web.begin(playbook="asks", inputs={"words": LONG, "size": "large"})
    runs["talks"] = await web.begin(playbook="desk")
    runs["fails"] = await web.begin(playbook="fails")
    runs["is called at length"] = await web.begin(playbook="a-note-whose-file-has-a-long-name")
    waits = {name: await web.waiting(runs[name]) for name in ("pipeline", "pauses", "asks", "talks")}
    await web.service.add_override("command", f"echo {LONG}", None)
    for name, cron in (
        ("a-schedule-with-a-name-as-long-as-it-may-be-for-a-playbook-here", "*/5 6-18 * * 1-5"),
        ("tea", "@daily"),
    ):
        await web.post("/api/schedules", 201, playbook="views", cron=cron, name=name, inputs={"decision": LONG})
    await web.post("/api/triggers/schedule/tea/run", 202)
    await web.post("/api/triggers/schedule/tea/pause", 200)
    await web.service.nodes.add("laptop")
    people = web.site.notifier.people
    await people.link(await people.new_code("T0123.U0456", "slack", LONG, web.service.clock()), Principal())
    await web.site.notifier.send_now(30)
    await web.service.add_user("a.person.with.a.long.name@a-department.of-a-company.example", ["runner", "approver"])
    await web.service.join("a.person.with.a.long.name@a-department.of-a-company.example", ["sales", "support"])
    await web.until(runs["fails"], "failed")
    await web.until(runs["is called at length"], "completed")
    cases = f'- {{name: "{LONG}", expect: {{outputs: {{"1": "{LONG}x"}}}}}}\n- name: short\n'
    comparison = await compared(web, cases, name=f"{LONG[:60]}.md")
    await web.service.budgets.set("person:a.person.with.a.long.name@a-department.of-a-company.example", {"month": 5.0})
    await web.service.budgets.set("all", {"day_tokens": 1, "month": 50.0})
    runs["waits for a budget"] = await web.begin(playbook="a-note-whose-file-has-a-long-name")
    await web.until(runs["waits for a budget"], "paused")
    return {
        "/": "/",
        "/playbooks": "/playbooks",
        "/playbooks/{id}": "/playbooks/views",
        "a playbook with long words": "/playbooks/asks",
        "/playbooks/{id}/run": "/playbooks/asks/run",
        "/runs": "/runs",
        **{f"/runs/{{id}} that {name}": f"/runs/{run}" for name, run in runs.items()},
        "/runs/{id}": f"/runs/{runs['markdown']}",
        "/runs/{id}/sent/{record}": await sent(web, runs["markdown"]),
        "/runs/{id}/diff/{other}": f"/runs/{runs['pauses']}/diff/{runs['asks']}",
        "/compare": "/compare",
        "/compare/{id}": f"/compare/{comparison}",
        "a comparison of runs": f"/compare?runs={runs['fails']},{runs['asks']},{runs['markdown']}",
        "/inbox": "/inbox",
        "/waits/{id}": f"/waits/{waits['pipeline']['wait']}",
        "/schedules": "/schedules",
        "/schedules/{kind}/{name}": "/schedules/schedule/tea",
        "/usage": "/usage?since=7d",
        "/settings/connections": "/settings/connections",
        "/settings/nodes": "/settings/nodes",
        "/settings/notifications": "/settings/notifications",
        "/settings/overrides": "/settings/overrides",
        "/settings/users": "/settings/users",
        "/settings/audit": "/settings/audit",
        "/sign-in/oidc": "/sign-in/oidc",
        "/sign-in/oidc/callback": "/sign-in/oidc/callback",
        "/sign-in": "/sign-in",
        "a page that is not there": "/nowhere",
    }


async def sent(web: ServedApp, run: str) -> str:
    """The page of what a model was sent, as the page of its run links to it."""
    shown = await web.client.get(f"/runs/{run}")
    found = re.search(rf"/runs/{run}/sent/\d+", shown.text)
    assert found is not None
    return found[0]


async def test_nothing_sticks_out_of_a_small_screen_and_words_can_be_read(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    pages = await furnish(web)
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.kind == "page"} <= set(pages)
    profile = await open_profile(viewport={"width": 360, "height": 740})
    page = await profile.page()
    wrong: dict[str, list[str]] = {}
    for name, path in pages.items():
        await profile.go(page, path)
        await open_all(page)
        found = await sticks_out(page)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found += [f"{scheme} {one}" for one in await faint(page)]
        if found:
            wrong[name] = found
    assert wrong == {}


async def open_all(page: Page) -> None:
    """Opens everything that can be opened."""
    await page.evaluate("""() => {
      for (const one of document.querySelectorAll('details')) one.open = true;
      for (const one of document.querySelectorAll('.show-raw, .show-meta')) one.checked = true;
    }""")


async def test_reading_needs_no_javascript(web: ServedApp, open_profile: OpenProfile) -> None:
    pages = await furnish(web)
    profile = await open_profile(java_script_enabled=False)
    page = await profile.page()
    for path in pages.values():
        await profile.go(page, path)
        await expect(page.get_by_role("heading").first).to_be_visible()
        await expect(page.locator(".needs-js:visible")).to_have_count(0)
    await profile.go(page, "/")
    await page.get_by_role("searchbox").fill("views")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("#playbooks > li")).to_have_count(1)
    await profile.go(page, pages["/runs/{id} that markdown"])
    await expect(text(page, "1").locator("table")).to_be_visible()
    await expect(page.locator("#summary")).to_contain_text("Duration")
    await page.locator(".show-meta").first.check()
    await expect(page.locator(".meta").first).to_be_visible()
    await profile.go(page, pages["/runs/{id} that pauses"])
    await page.get_by_role("button", name="Resume").click()
    await expect(page).to_have_url(f"{profile.address}{pages['/runs/{id} that pauses']}")
    await web.until(page.url.rpartition("/")[2], "awaiting_input")


async def tab_to(page: Page, selector: str) -> None:
    """Presses the Tab key until it comes to such an element; each on the way shows that it has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        reached, shown = await page.evaluate(
            """(selector) => {
              const one = document.activeElement;
              const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
              const shown = (outlineStyle !== 'none' && outlineWidth !== '0px') || boxShadow !== 'none';
              return [one.matches(selector), shown || one === document.body];
            }""",
            selector,
        )
        assert shown, await page.evaluate("document.activeElement.outerHTML")
        if reached:
            return
    raise AssertionError(f"The Tab key does not come to {selector}.")


async def test_the_keyboard_alone_is_enough(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel(["Sencha."])).serve()
    page = await (await open_profile()).page("/")
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await tab_to(page, 'a[href="/playbooks/tea/run"]')
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/run")
    await tab_to(page, '[data-name="guest"]')
    await page.keyboard.type("Ada")
    await tab_to(page, 'input[data-list="breakpoints"][value="1"]')
    await page.keyboard.press("Space")
    await tab_to(page, "button.main")
    await page.keyboard.press("Enter")
    await expect_status(page, "paused")
    await tab_to(page, "form.pause button")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("How strong?")).to_be_visible()
    await tab_to(page, "form.wait input")
    await page.keyboard.type("strong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("group", name="Shall it be served?")).to_be_visible()
    await tab_to(page, 'form.wait button[value="yes"]')
    await page.keyboard.press("Enter")
    await expect_status(page, "completed")
    await expect(page.locator("#var-strength pre")).to_have_text("strong")
    await tab_to(page, 'a[href$="/artifact"]')
    async with page.expect_download() as coming:
        await page.keyboard.press("Enter")
    assert (await coming.value).suggested_filename.endswith(".md")


async def test_typing_is_not_disturbed_by_updates(web: ServedApp, open_profile: OpenProfile) -> None:
    """A user changes a variable while parts of the page are replaced."""
    never = asyncio.Event()
    views = web.book("views.yml", PLAYBOOKS["graph"][1])

    def says(request: Request) -> Says:
        words = request.messages[-1].text
        return Says("Said.", wait_for=never) if "can go wrong" in words else Says("Said.")

    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=views, inputs={"decision": "move"}, breakpoints="frame")
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect_status(page, "paused")
    await page.get_by_text("Change variables before it continues").click()
    field = page.locator('textarea[data-name="decision"]')
    await field.fill("stay")
    await page.get_by_label("Raw").first.check()
    await page.get_by_role("button", name="Resume").click()
    await expect_status(page, "running")
    await expect(page.locator("#var-decision pre")).to_have_text("stay")
    await expect(page.get_by_label("Raw").first).to_be_checked()


async def test_signing_in_signing_out_and_being_refused(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel([])).serve()
    profile = await open_profile()
    page = await profile.page("/runs")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert await profile.go(page, "/runs") == 401
    await page.get_by_label("Token").fill("a-token-of-nobody-at-all")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Nothing has been run yet")).to_be_visible()
    assert page.url == f"{profile.address}/runs"
    await page.reload()
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()


async def test_a_start_link_works_once(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel([])).serve()
    link = web.link
    await open_profile(link=link)
    profile = await open_profile(link=link)
    page = await profile.page()
    assert await profile.go(page, "/") == 401


async def test_empty_pages_and_errors_say_what_to_do(
    web: ServedApp, open_profile: OpenProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await web.model(ScriptedModel([])).serve()
    profile = await open_profile()
    page = await profile.page()
    for path, words in (
        ("/", "There are no playbooks here yet"),
        ("/runs", "Nothing has been run yet"),
        ("/inbox", "Nothing is waiting for you"),
        ("/schedules", "There are no schedules"),
    ):
        assert await profile.go(page, path) == 200
        await expect(page.get_by_role("heading", name=words)).to_be_visible()
    for path in ("/nowhere", "/playbooks/none", "/playbooks/none/run", "/runs/none", "/runs/a/diff/b"):
        assert await profile.go(page, path) == 404
        await expect(page.get_by_role("link", name="Playbooks").last).to_be_visible()
    await broken_page(profile, page, web, monkeypatch)


async def broken_page(profile: BrowserProfile, page: Page, web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error: the page shows its id and no stack trace."""

    async def fails(*args: object, **more: object) -> None:
        raise RuntimeError("the inside of the program")

    with monkeypatch.context() as patch:
        patch.setattr(type(web.service), "runs", fails)
        assert await profile.go(page, "/runs") == 500
    await expect(page.get_by_role("heading").first).to_be_visible()
    shown = await page.locator("body").inner_text()
    assert "inside of the program" not in shown
    assert "Traceback" not in shown


async def test_an_unreachable_server_is_reported_next_to_the_form(web: ServedApp, open_profile: OpenProfile) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel(["Sencha."])).serve()
    page = await (await open_profile()).page("/playbooks/tea/run")
    await page.get_by_label("guest").fill("Ada")
    await web.stop()
    await page.get_by_role("button", name="Run Playbook").click()
    await expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
    await expect(page.get_by_label("guest")).to_have_value("Ada")
