"""The panels of each dialect, during a run and after it. For programs, see test_conversation.py."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect

from cuebook.performers.models.model import Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from tests.surfaces.web.browser.profile import OpenProfile, dom, expect_status, head, text
from tests.surfaces.web.live.test_reconnect import GRAPH as VIEWS
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.asyncio(loop_scope="session")

BRANCHES = """\
# Branches

## STEP 1: Ask

@elicit(select, "Stay or go?", "stay", "go")
@output(way)

## STEP 2: Choose

```if way == "stay"```

### STEP 2a: Stay

Find a bed.

```else```

### STEP 2b: Go

Find a train.

```endif```
"""
GRAPH = """\
id: sort
name: Sort
description: Sorts a message
entry: read
inputs:
  message: {type: string, description: What, default: It leaks}
nodes:
  read:
    name: Read
    instruction: Read it.
    output: {type: object, properties: {kind: {type: string}}, required: [kind]}
  apologise: {name: Apologise, instruction: Say sorry.}
  thank: {name: Thank, instruction: Say thanks.}
edges:
  - {from: read, to: apologise, when: kind is complaint}
  - {from: read, to: thank}
x_cuebook:
  guards:
    - {from: read, to: apologise, output_matches: [{path: read.kind, equals: complaint}]}
"""
PIPELINE = """\
name: Change
steps:
  - {id: old, command: "cli cat note.txt", effect: read, output: text}
  - {id: diff, command: "cli sh -c 'diff -u note.txt new.txt || true'", effect: read, output: text}
  - id: write
    name: Write the note
    command: cli cp new.txt note.txt
    stdin: $diff.stdout
    approval: required
    rollback_hint: Write the old one back.
  - id: look
    command: cli echo '{"lines":2}'
    effect: read
    output: json
    postcondition: {type: json_path, path: $.lines, equals: 2}
"""


async def test_the_branch_of_a_document_lights_up(web: ServedApp, open_profile: OpenProfile) -> None:
    await web.model(ScriptedModel(["A bed."])).serve()
    run = await web.begin(playbook=web.book("branches.md", BRANCHES))
    page = await (await open_profile()).page(f"/runs/{run}")
    boxes = page.locator("#panel-drawing [id^=box-]")
    await expect(boxes.filter(has_text="2a")).to_have_attribute("data-status", "pending")
    await page.get_by_label("Stay or go?").select_option("stay")
    await page.get_by_role("button", name="Answer").click()
    await expect_status(page, "completed")
    await expect(boxes.filter(has_text="2a")).to_have_attribute("data-status", "completed")
    await expect(boxes.filter(has_text="2b")).to_have_attribute("data-status", re.compile("pending|skipped"))
    await expect(page.locator("#rail li")).to_have_count(await page.locator("#cards article").count())
    await expect(text(page, "2a")).to_contain_text("A bed.")


async def test_a_graph_lights_up_with_the_reasons_for_its_path(web: ServedApp, open_profile: OpenProfile) -> None:
    go_on = asyncio.Event()
    says: list[Line] = [Says('{"kind": "complaint"}', chunk=4, wait_for=go_on, pause_at=8), "Sorry."]
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("sort.yml", GRAPH))
    page = await (await open_profile()).page(f"/runs/{run}")
    boxes, arrows = page.locator("#panel-drawing [id^=box-]"), page.locator('#panel-drawing [data-taken="yes"]')
    await expect(boxes.filter(has_text="Read")).to_have_attribute("data-status", "running")
    await expect(boxes.filter(has_text="Apologise")).to_have_attribute("data-status", "pending")
    await expect(arrows).to_have_count(0)
    go_on.set()
    await expect_status(page, "completed")
    await expect(boxes.filter(has_text="Read")).to_have_attribute("data-status", "completed")
    await expect(boxes.filter(has_text="Apologise")).to_have_attribute("data-status", "completed")
    await expect(boxes.filter(has_text="Thank")).not_to_have_attribute("data-status", "completed")
    await expect(arrows).to_have_count(1)
    await expect(page.locator("#routes li")).to_have_count(1)
    await expect(page.locator("#routes li")).to_contain_text("apologise")
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live


async def test_a_pipeline_asks_with_a_preview_and_shows_its_evidence(web: ServedApp, open_profile: OpenProfile) -> None:
    (web.work / "note.txt").write_text("one\ntwo\n")
    (web.work / "new.txt").write_text("one\nthree\n")
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("change.yml", PIPELINE))
    page = await (await open_profile()).page(f"/runs/{run}")
    await expect_status(page, "awaiting_approval")
    form = page.locator("form.approval")
    await expect(form).to_contain_text("cp new.txt note.txt")
    await expect(form.locator(".shown").filter(has_text="output of diff")).to_contain_text("+three")
    assert (web.work / "note.txt").read_text() == "one\ntwo\n"
    await expect(page.locator("#timeline .share")).not_to_have_count(0)
    await form.get_by_label("Reason").fill("looks right")
    await form.get_by_role("button", name="Approve").click()
    await expect_status(page, "completed")
    assert (web.work / "note.txt").read_text() == "one\nthree\n"
    await expect(page.locator("#timeline .share")).to_have_count(4)
    evidence = page.locator("details.evidence")
    await expect(evidence).to_have_count(4)
    await expect(evidence.nth(2)).to_contain_text("approved")
    await expect(evidence.nth(2)).to_contain_text("looks right")
    await evidence.nth(3).locator("summary").click()
    await expect(evidence.nth(3).locator('[data-good="true"]').first).to_be_visible()
    live = await dom(page)
    await page.reload()
    assert await dom(page) == live.replace('id="evidence-3" open=""', 'id="evidence-3"')


async def test_a_denied_action_is_not_performed(web: ServedApp, open_profile: OpenProfile) -> None:
    (web.work / "note.txt").write_text("one\n")
    (web.work / "new.txt").write_text("two\n")
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("change.yml", PIPELINE))
    profile = await open_profile()
    await web.waiting(run)
    page = await profile.page("/inbox")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("heading", name="Nothing is waiting for you")).to_be_visible()
    await web.until(run, "cancelled", "failed", "completed")
    assert (web.work / "note.txt").read_text() == "one\n"
    await profile.go(page, f"/runs/{run}")
    await expect(head(page, "look")).not_to_have_attribute("data-status", "completed")


async def test_texts_of_parallel_branches_stream_concurrently(web: ServedApp, open_profile: OpenProfile) -> None:
    gate = asyncio.Event()

    def held(request: Request) -> Says:
        first = "State the decision" in request.messages[-1].text
        words = "Both sides have their say. " * 4
        return Says("Framed.") if first else Says(words, chunk=5, wait_for=gate, pause_at=60)

    await web.model(ScriptedModel(held)).serve()
    run = await web.begin(playbook=web.book("views.yml", VIEWS), inputs={"decision": "move"})
    page = await (await open_profile()).page(f"/runs/{run}")
    tails = page.locator("#cards .tail")
    await expect(tails).to_have_count(2)
    for tail in await tails.all():
        await expect(tail).to_have_text(("Both sides have their say. " * 4)[:60].rstrip())
    gate.set()
    await expect_status(page, "awaiting_approval")
    await expect(tails).to_have_count(0)
    await page.get_by_role("button", name="Approve").click()
    await expect_status(page, "completed")


WIDE = """\
id: wide
name: Wide
entry: plan
nodes:
  plan: {name: Plan, instruction: Plan it.}
"""
for _number in range(10):
    WIDE += f"  check{_number}: {{name: Check number {_number}, instruction: Check it.}}\n"
WIDE += "  report: {name: Report, instruction: Report it.}\nedges:\n"
for _number in range(10):
    WIDE += f"  - {{from: plan, to: check{_number}}}\n  - {{from: check{_number}, to: report}}\n"


async def test_edges_taken_at_once_light_up_side_by_side_and_scroll_on_a_phone(
    web: ServedApp, open_profile: OpenProfile
) -> None:
    gate = asyncio.Event()

    def held(request: Request) -> Says:
        return (
            Says("Checked.", wait_for=gate, pause_at=3) if "Check it." in request.messages[-1].text else Says("Done.")
        )

    await web.model(ScriptedModel(held)).serve()
    refused = await web.post("/api/runs", 422, playbook=web.book("wide.yml", WIDE))
    assert "AMBIGUOUS_EDGES" in refused["detail"]
    page = await (await open_profile(viewport={"width": 390, "height": 740})).page("/playbooks/wide/run")
    await page.get_by_label("Take several edges without a condition that leave one node at once.").check()
    await page.get_by_role("button", name="Run Playbook").click()
    drawing = page.locator("#panel-drawing")
    await drawing.locator("summary").click()  # on a phone it is folded
    lit = drawing.locator('.box[data-status="running"]')
    await expect(lit).to_have_count(10)
    await expect(drawing.locator(".forkbar")).to_have_count(2)
    await expect(drawing.locator(".forkbar text").first).to_have_text("10 at once")
    await expect(drawing.locator('.arrow.fan[data-taken="yes"]')).to_have_count(10)
    tops = await lit.evaluate_all("all => all.map(one => Math.round(one.getBoundingClientRect().y))")
    assert len(set(tops)) == 1, "the branches are side by side"
    picture = drawing.locator(".picture")
    assert await picture.evaluate("one => one.scrollWidth > one.clientWidth")
    assert await page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    name = lit.last.locator("text.name")
    assert await name.evaluate("one => one.getBoundingClientRect().height") >= 9, "the words can be read"
    await lit.last.scroll_into_view_if_needed()
    seen = await lit.last.bounding_box()
    assert seen is not None
    assert seen["x"] + seen["width"] <= 390
    gate.set()
    await expect_status(page, "completed")
    await expect(drawing.locator('.arrow[data-taken="yes"]')).to_have_count(20)
