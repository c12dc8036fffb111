"""Each command of the browser against a real page."""

from __future__ import annotations

import base64
import json

import pytest

from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import Failed
from tests.dialects.pipeline.harness import ANYTHING
from tests.performers.browser import site as sites
from tests.performers.browser.harness import BrowserHarness
from tests.performers.browser.site import LOGIN, Site

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="session"),
]


@pytest.mark.needs("landlock")
async def test_signs_in_and_reads_what_is_there_under_landlock(harness: BrowserHarness, site: Site) -> None:
    harness.confine("landlock")
    harness.allow({**ANYTHING, "files": {"allow": ["write:**"]}})
    row = await harness.browse(
        f"web navigate {site.url('/login')}",
        "web fill '#user' Ada",
        "web fill '#password' secret:env:PASSWORD",
        "web select '#role' b",
        "web click '#go'",
        "web wait '.order'",
        "web extract '#orders b'",
        "id: all\n    command: web extract .order\n    with: {fields: {id: b, total: i, none: u}}",
        f"id: report\n    command: web download {site.url('/orders.csv')} out/orders.csv\n    with: {{download: report}}",
        f"id: sent\n    command: http POST {site.url('/upload')}\n    with: {{body: {{file: $report.files.report}}}}",
        "id: used\n    command: cli cat in.csv\n    takes: {in.csv: $report.files.report}",
        "web snapshot",
    )
    assert row.status == "completed", row.error
    assert site.posted[0] == {"user": "Ada", "password": "open-sesame-4711", "role": "b"}
    outputs = await harness.outputs(row.id)
    assert outputs["s6"] == "1"
    assert json.loads(outputs["all"]) == [
        {"id": "1", "total": "ten", "none": None},
        {"id": "2", "total": "twenty", "none": None},
    ]
    assert (harness.workspace / "out/orders.csv").read_text() == "id,total\n1,10\n"
    (file,) = await harness.service.files(row.id)
    told = json.loads(outputs["report"])
    assert told == {"filename": "o.csv", "file": "out/orders.csv", "bytes": 14, "sha256": file.digest}
    assert (file.step, file.name, file.filename, file.size) == ("report", "report", "o.csv", 14)
    _, pieces = await harness.service.file(row.id, file.digest)
    assert b"".join([piece async for piece in pieces]) == b"id,total\n1,10\n"
    assert site.bodies[1] == "id,total\n1,10\n"
    assert outputs["used"] == "id,total\n1,10\n"


async def test_a_download_with_a_secret_is_not_kept_and_one_that_nothing_asked_for_is_cancelled(
    harness: BrowserHarness, site: Site
) -> None:
    site.pages["/leak"] = "<a id=x href='data:text/plain,open-sesame-4711' download=leak.txt>x</a>" + LOGIN
    row = await harness.browse(
        f"web navigate {site.url('/leak')}",
        "web fill '#password' secret:env:PASSWORD",
        "web click '#x'",
        "id: leak\n    command: web download\n    with: {selector: '#x', to: leak.txt}",
    )
    assert (row.status, row.error and row.error.code) == ("failed", "secret_in_file")
    assert await harness.service.files(row.id) == []
    assert not (harness.workspace / "leak.txt").exists()
    assert "leak.txt" in (await harness.warnings(row.id))["download_cancelled"]


async def test_keeps_the_elements_and_a_picture_as_evidence(harness: BrowserHarness, site: Site) -> None:
    checked = (
        "postcondition: [{type: dom_contains, selector: '.order i', text: twenty}, {type: http_status, equals: 200}]"
    )
    missing = checked.replace(".order i", ".missing")
    row = await harness.browse(
        f"id: open\n    command: web navigate {site.url('/orders')}\n    {checked}",
        "web snapshot",
        f"id: missing\n    command: web navigate {site.url('/orders')}\n    {missing}",
    )
    assert (row.status, row.error and row.error.code) == ("failed", "postcondition_failed")
    assert row.error is not None
    assert row.error.details["step"] == "missing"
    opened, snapshot, _ = await harness.pages(row.id)
    assert (opened.title, opened.status, snapshot.status) == ("Orders", 200, None)
    for page in (opened, snapshot):
        assert 'class="order"' in str(page.html)
        assert page.picture is not None
        assert base64.b64decode(str(page.picture.data)).startswith(b"\xff\xd8")  # JPEG


async def test_names_what_it_does_not_find(harness: BrowserHarness, site: Site) -> None:
    site.pages["/two"] = "<button>a</button><button>b</button><button disabled id=no>c</button>"
    failures = {
        "web click '#missing'": "no_such_element",
        "web click button": "ambiguous_element",
        "web click '#no'": "no_such_element",
        "web fill '#no' x": "no_such_element",
        "web wait '.never'": "no_such_element",
        "web click 'b[['": "bad_element",
        f"web download {site.url('/missing')}": "http_status",
    }
    steps = [
        f"id: e{n}\n    command: {one}\n    timeout_ms: 700\n    on_error: continue" for n, one in enumerate(failures)
    ]
    with sites.site() as gone:
        nowhere = gone.url()
    row = await harness.browse(
        f"web navigate {site.url('/two')}",
        *steps,
        "id: back\n    command: web extract '#no'",
        f"id: lost\n    command: web navigate {site.url('/missing')}\n    on_error: continue",
        f"web navigate {nowhere}",
        head=f'allowed_domains: ["127.0.0.1:{gone.port}", "127.0.0.1:{site.port}"]\n',
    )
    assert (await harness.outputs(row.id))["back"] == "c"  # where it was before the download failed
    assert [page.status for page in await harness.pages(row.id)][-2:] == [404, 502]  # 502 is the proxy's
    assert row.error is not None
    assert (row.error.code, "status 502" in row.error.message) == ("http_status", True)
    failed = [one.outcome for one in await harness.events(row.id, Performed) if isinstance(one.outcome, Failed)]
    assert dict(zip(failures, [one.code for one in failed], strict=True)) == failures
    assert failed[-1].message == f"{site.url('/missing')} answered with status 404."


async def test_a_page_that_hangs_fails_and_the_next_step_opens_it_again(harness: BrowserHarness, site: Site) -> None:
    site.slow["/slow"] = 30.0
    site.pages["/loop"] = "<h1>Loop</h1><input id=a oninput='while (true) {}'>"
    row = await harness.browse(
        f"id: slow\n    command: web navigate {site.url('/slow')}\n    timeout_ms: 700\n    on_error: continue",
        f"web navigate {site.url('/loop')}",
        "id: hangs\n    command: web fill '#a' x\n    timeout_ms: 700\n    on_error: continue",
        "id: read\n    command: web extract h1",
    )
    assert row.status == "completed", row.error
    found = [one.outcome.code for one in await harness.events(row.id, Performed) if isinstance(one.outcome, Failed)]
    assert found == ["timeout", "timeout"]
    assert (await harness.outputs(row.id))["read"] == "Loop"
    assert site.hits.count("GET /loop") == 2


async def test_dialogs_and_other_pages_are_closed_and_reported(harness: BrowserHarness, site: Site) -> None:
    site.pages["/noisy"] = (
        "<button onclick=\"alert('Sure?'); window.open('/other'); document.title = confirm('Yes?') ? 'yes' : 'no'\">x</button>"
    )
    site.pages["/endless"] = (
        "<button onclick=\"for (let i = 0; i < 60; i++) { const f = document.createElement('a'); f.target = '_blank';"
        " f.href = '/other?' + i; f.click(); }\">x</button>"
    )
    row = await harness.browse(
        f"web navigate {site.url('/noisy')}",
        "web click button",
        "web extract title",
        f"id: endless\n    command: web navigate {site.url('/endless')}",
        "web click button",
        "web snapshot",
    )
    assert row.status in ("completed", "awaiting_approval"), row.error  # the browser may block them itself
    found = await harness.warnings(row.id)
    assert "dialog_closed" in found
    assert "page_closed" in found
    assert (await harness.pages(row.id))[-1].url == site.url("/endless")
