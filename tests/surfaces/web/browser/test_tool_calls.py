"""The tool calls of a model and its plan on the page of a run: while it runs, and afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from cuebook.kernel.context import ToolCall
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

GRAPH = """\
id: fix
name: Fix the test
entry: work
nodes:
  work: {name: Work, instruction: Fix the failing test.}
edges: []
"""
POLICY = 'from_outside = "allow"\n[commands]\nallow = ["*"]\n[files]\nallow = ["*"]\n[tools]\nallow = ["*"]\nask = ["Edit"]\n'
PLAN = [
    {"content": "Read the failing test", "status": "completed"},
    {"content": "Fix the bug", "status": "in_progress"},
    {"content": "Run the tests again", "status": "pending"},
]


def script(go_on: asyncio.Event) -> list[Line]:
    calls = (
        ToolCall("call-a", "Read", {"file_path": "app.py"}),
        ToolCall("call-b", "Read", {"file_path": "missing.py"}),
        ToolCall("call-c", "Bash", {"command": "for i in $(seq 3000); do echo line $i of the log; done"}),
        ToolCall("call-d", "Grep", malformed='{"pattern": "x'),
    )
    edit = {"path": "app.py", "old": "return a - b", "new": "return a + b"}
    return [
        Says("I look at it.", calls=(ToolCall("call-p", "TodoWrite", {"todos": PLAN}),)),
        Says("", calls=calls),
        Says("", calls=(ToolCall("call-e", "Edit", edit),)),
        Says('{"fixed": true}', wait_for=go_on, pause_at=4, chunk=4),
    ]


async def test_calls_appear_with_arguments_results_and_times(web: ServedApp, open_profile: OpenProfile) -> None:
    web.rule(POLICY)
    go_on = asyncio.Event()
    (web.work / "app.py").write_text("def add(a, b):\n    return a - b  # <script>alert(1)</script>\n")
    await web.model(ScriptedModel(script(go_on))).serve()
    run = await web.begin(playbook=web.book("fix.yml", GRAPH))
    page: Page = await (await open_profile()).page(f"/runs/{run}")
    rows = page.locator("#step-work > .tool-calls > li")
    await expect(rows).to_have_count(6)
    await expect(rows.nth(5)).to_have_attribute("data-status", "waiting")
    await expect(page.locator("#plan-work li[data-status=in_progress]")).to_contain_text("Fix the bug")
    await expect(page.locator("#plan-work h4")).to_contain_text("1 of 3 done")

    await expect(rows.nth(1)).to_have_attribute("data-status", "completed")
    await rows.nth(1).locator("summary").click()
    await expect(rows.nth(1)).to_contain_text("call-a")
    await expect(rows.nth(1).locator("pre").first).to_contain_text('"file_path": "app.py"')
    await expect(rows.nth(1).locator("pre").last).to_contain_text("<script>alert(1)</script>")
    await expect(rows.nth(2)).to_have_attribute("data-status", "failed")
    await expect(rows.nth(3).locator(".spent")).to_contain_text("s")
    await rows.nth(3).locator("summary").click()
    await expect(rows.nth(3).locator("pre").last).to_contain_text("line 3000 of the log")
    await expect(rows.nth(3).locator("pre").last).to_contain_text("are left out here")
    await rows.nth(4).locator("summary").click()
    await expect(rows.nth(4)).to_contain_text("as received")
    await expect(rows.nth(4).locator("pre").first).to_have_text('{"pattern": "x')

    await page.get_by_role("button", name="Approve").first.click()
    await expect(rows.nth(5)).to_have_attribute("data-status", "completed")
    # What a person opened stays open while the page changes.
    await expect(rows.nth(1).locator("pre").first).to_be_visible()
    go_on.set()
    await expect_status(page, "completed")
    for number in (1, 3, 4):
        await rows.nth(number).locator("summary").click()
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live
    await expect(rows).to_have_count(6)


async def test_a_step_without_tool_calls_shows_none(web: ServedApp, open_profile: OpenProfile, tmp_path: Path) -> None:
    await web.model(ScriptedModel(['{"fixed": true}'])).serve()
    run = await web.begin(playbook=web.book("fix.yml", GRAPH))
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect_status(page, "completed")
    await expect(page.locator("#calls-work")).to_be_hidden()
