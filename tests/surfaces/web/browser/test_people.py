"""In a real browser: a form is filled in, and an approver sends the run back, in a Markdown playbook and in a graph."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from cuebook.testing import ScriptedModel
from tests.surfaces.web.browser.profile import OpenProfile, expect_status
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKDOWN = """\
# Outage

## STEP 1: Window

@elicit(form, "How long?", {"type": "object", "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 60, "title": "Minutes"}, "urgent": {"type": "boolean", "title": "Urgent"}}, "required": ["minutes"]})

## STEP 2: Draft

Announce {{minutes}} minutes.

@output(draft)

## STEP 3: Send

@approve("Send it?", show:"draft", changes:"2")

Repeat it.
"""
GRAPH = """\
id: outage
name: Outage
entry: window
nodes:
  window:
    name: Window
    instruction: How long?
    output:
      type: object
      properties: {minutes: {type: integer, minimum: 1, maximum: 60, title: Minutes}, urgent: {type: boolean, title: Urgent}}
      required: [minutes]
  draft: {name: Draft, instruction: Announce it.}
  send: {name: Send, instruction: Repeat it.}
edges: [{from: window, to: draft}, {from: draft, to: send}]
x_cuebook: {nodes: {window: {input: true}, send: {approval: {text: Send it?, show: draft, changes: draft}}}}
"""


@pytest.mark.parametrize(("name", "text"), [("outage.md", MARKDOWN), ("outage.yml", GRAPH)])
async def test_a_form_and_a_request_for_changes_on_the_page(
    web: ServedApp, open_profile: OpenProfile, name: str, text: str
) -> None:
    model = ScriptedModel(["first draft", "second draft", "sent"])
    await web.model(model).serve()
    run = await web.begin(playbook=web.book(name, text))
    page = await (await open_profile()).page(f"/runs/{run}")
    minutes = page.get_by_label("Minutes")
    await minutes.fill("90")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.locator("form.wait .problem")).to_contain_text("90 is greater than the maximum of 60")
    await minutes.fill("9")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_text("Send it?").first).to_be_visible()
    await expect(page.locator("form.wait")).to_contain_text("first draft")
    await page.get_by_label("Reason").fill("Kinder, please")
    await page.get_by_role("button", name="Request changes").click()
    await expect(page.locator("form.wait")).to_contain_text("second draft")
    await page.get_by_role("button", name="Approve").click()
    await expect_status(page, "completed")
    assert any("Kinder, please" in message.text for message in model.requests[1].messages)
