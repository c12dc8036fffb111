"""The page of a run: approvals are bound to what it shows, a restart opens it again, and no click is repeated."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from cuebook.dialects.pipeline.parse import parse
from tests.gate.harness import bytes_below
from tests.performers.browser.harness import LOOPBACK, BrowserHarness
from tests.performers.browser.site import Site
from tests.support.sampling import THOROUGH

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="session"),
]

SECRET = "open-sesame-4711"
ASKING = {**LOOPBACK, "tools": {"ask": ["browser:click"], "allow": ["browser:*"]}}


async def test_an_approval_is_for_the_page_that_was_shown(harness: BrowserHarness, site: Site, tmp_path: Path) -> None:
    harness.allow(ASKING)
    row = await harness.browse(
        f"web navigate {site.url('/login')}",
        "web fill '#user' Ada",
        "web fill '#password' secret:env:PASSWORD",
        "web click '#go'",
        "web extract .order",
    )
    wait = await harness.wait(row.id)
    preview = wait.details["preview"]
    assert (row.status, site.posted) == ("awaiting_approval", [])
    assert preview["element"].startswith('button "Sign in" in the form post')
    assert "[input text user = Ada]" in preview["the page now"]
    assert preview["filled in"] == "#user: Ada\n#password: [secret env:PASSWORD]"
    # Another process goes on after the approval. It opens the page again, which has changed meanwhile.
    await harness.restart()
    site.pages["/login"] = site.pages["/login"].replace("<h1>Sign in</h1>", "<h1>Transfer everything</h1>")
    row = await harness.decide(row.id, "approve")
    assert (row.status, site.posted) == ("awaiting_approval", [])
    wait = await harness.wait(row.id)
    assert "Transfer everything" in wait.details["preview"]["the page now"]
    await harness.restart()  # and once more, without a change
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert site.posted == [{"user": "Ada", "password": SECRET, "role": "a"}]
    assert (await harness.outputs(row.id))["s4"] == "1ten"


async def test_a_secret_is_in_no_record_and_on_no_picture(harness: BrowserHarness, site: Site) -> None:
    site.echoes = True
    site.pages["/login"] = site.pages["/login"].replace('type="password"', "")  # a careless page, that shows it
    row = await harness.browse(
        f"web navigate {site.url('/login')}",
        "web fill '#password' secret:env:PASSWORD",
        "web snapshot",
        "web click '#go'",
        "web extract '#echo'",
    )
    assert row.status == "completed", row.error
    assert site.posted[0]["password"] == SECRET
    assert SECRET.encode() not in bytes_below(harness.folder)
    assert SECRET not in (await harness.outputs(row.id))["s4"]
    snapshot, clicked = [page for page in await harness.pages(row.id) if page.picture is not None][1:]
    assert SECRET not in clicked.title
    for page, box in ((snapshot, "#password"), (clicked, "b"), (clicked, "u"), (clicked, "input")):
        assert page.picture is not None
        assert await _is_black(harness, row.id, str(page.picture.data), box, site), (page.url, box)


async def _is_black(harness: BrowserHarness, run: str, picture: str, selector: str, site: Site) -> bool:
    """Whether the middle of an element is black on a picture, according to the browser itself."""
    page = harness.browser._sessions[run].page
    if selector == "#password":
        await page.goto(site.url("/login"))
    else:
        await page.evaluate(
            f"fetch('/login', {{method: 'POST', body: 'password={SECRET}'}}).then(a => a.text()).then(t => document.documentElement.innerHTML = t)"
        )
    box = await page.locator(selector).bounding_box()
    assert box is not None
    at = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    code = """async ([data, x, y]) => {
      const image = new Image(); image.src = 'data:image/jpeg;base64,' + data; await image.decode();
      const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height;
      const drawn = canvas.getContext('2d'); drawn.drawImage(image, 0, 0);
      return Math.max(...drawn.getImageData(x, y, 1, 1).data.slice(0, 3));
    }"""
    return int(await page.evaluate(code, [picture, *at])) < 40


CRASHING = """\
name: Crash
steps:
  - {{id: open, command: web navigate {login}}}
  - {{id: user, command: web fill '#user' Ada}}
  - {{id: password, command: 'web fill "#password" secret:env:PASSWORD'}}
  - {{id: send, command: web click '#go', timeout_ms: 60000}}
  - {{id: read, command: web extract '#orders b'}}
"""


@pytest.mark.parametrize("decision", ["done", "repeat"] if THOROUGH else ["done"])
async def test_a_click_under_way_at_a_crash_is_asked_about(
    harness: BrowserHarness, site: Site, tmp_path: Path, decision: str
) -> None:
    site.slow["POST /login"] = 60.0
    text = CRASHING.format(login=site.url("/login"))
    (tmp_path / "web.yml").write_text(text)
    harness.pipeline = parse(text, "web.yml")
    run = await harness.start()
    argv = [
        sys.executable,
        "-m",
        "tests.performers.browser.crash_process",
        str(tmp_path),
        run,
        str(tmp_path / "web.yml"),
    ]
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        for _ in range(600):
            if site.posted:
                break
            await asyncio.sleep(0.05)
        assert site.posted
    finally:
        process.kill()
        await process.wait()
    site.slow.clear()
    harness.now += 3600.0
    row = await harness.service.drive(run)
    wait = await harness.wait(run)
    assert (row.status, wait.kind, len(site.posted)) == ("awaiting_approval", "in_doubt", 1)
    if decision == "done":
        row = await harness.decide(run, "done", outcome={"url": site.url("/orders")})
    else:
        row = await harness.decide(run, "repeat")
    assert row.status == "completed", row.error
    assert (await harness.outputs(run))["read"] == "1"
    assert len(site.posted) == (1 if decision == "done" else 2)
    if decision == "repeat":  # with its fields filled in again
        assert site.posted[0] == site.posted[1] == {"user": "Ada", "password": SECRET, "role": "a"}


async def test_a_restart_stays_signed_in(harness: BrowserHarness, site: Site) -> None:
    site.pages["/orders"] += "<p id=who>{who}</p>"
    row = await harness.browse(
        f"web navigate {site.url('/login')}",
        "web click '#go'",
        "id: wait\n    command: web snapshot\n    approval: required",
        "web extract '#who'",
    )
    assert row.status == "awaiting_approval"
    await harness.restart()
    states = harness.folder / "browsers"
    other = states / "other.json"
    other.write_text("{}")
    for path, days in ((states / f"{row.id}.json", 6), (other, 8)):
        os.utime(path, (time.time() - days * 24 * 3600,) * 2)
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert not other.exists()
    assert (await harness.outputs(row.id))["s3"] == "Ada"
    assert len(site.posted) == 1


async def test_without_a_sandbox_it_is_refused(harness: BrowserHarness, site: Site) -> None:
    harness.confine("none")
    row = await harness.browse(f"web navigate {site.url()}")
    assert (row.status, row.error and row.error.code, site.hits) == ("failed", "no_browser", [])
    assert "bubblewrap" in str(row.error)


FLOW = """\
name: One page
allowed_domains: ["127.0.0.1:{port}"]
steps:
  - id: first
    command: web navigate {site}/a
  - id: both
    parallel: all
    branches:
      look:
        - {{id: there, command: web navigate {site}/b}}
      other:
        - {{id: aside, command: cli echo done}}
  - {{id: after, command: web extract h1}}
  - id: each
    for_each: [c, d]
    steps:
      - {{id: before, command: web extract h1}}
      - {{id: go, command: 'web navigate {site}/${{item}}'}}
  - {{id: last, command: web extract h1}}
"""


async def test_the_page_stays_where_branches_and_items_left_it(harness: BrowserHarness, site: Site) -> None:
    site.pages |= {f"/{name}": f"<h1>{name}</h1>" for name in "abcd"}
    harness.allow({**LOOPBACK, "tools": {"allow": ["*"]}, "commands": {"allow": ["*"]}})
    harness.pipeline = parse(FLOW.format(site=site.url("").rstrip("/"), port=site.port), "web.yml")
    row = await harness.do()
    assert row.status == "completed", row.error
    outputs = await harness.outputs(row.id)
    assert [outputs[step] for step in ("after", "before[0]", "before[1]", "last")] == ["b", "b", "c", "d"]
    assert [site.hits.count(f"GET /{name}") for name in "abcd"] == [1, 1, 1, 1]  # it was never opened again
