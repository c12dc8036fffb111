"""The page with the list of runs shows a page of it, and leads to older runs."""

from __future__ import annotations

import html
import re
from unittest.mock import patch

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.pages import pages
from tests.support.programs import eventually
from tests.surfaces.web.api.test_runs import TEA
from tests.surfaces.web.served_app import ServedApp


async def test_the_list_is_searched_and_followed_page_by_page(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"], cycle=True)).serve()
    runs = [await web.begin(text=TEA, name=name) for name in ("tea.md", "other.md", "tea.md", "tea.md")]
    for run in runs:
        await web.until(run, "completed")
    seen: list[list[str]] = []
    with patch.object(pages, "HISTORY", 2):
        addresses = ["/runs?search=TEA&status=completed"]
        for address in addresses:
            page = await web.client.get(address)
            assert page.status_code == 200
            assert 'name="search" value="TEA"' in page.text
            seen.append([run for run in reversed(runs) if f'href="/runs/{run}"' in page.text])
            older = re.search(r'href="(/runs\?[^"]+)" rel="next"', page.text)
            addresses += [html.unescape(older[1])] if older else []
    assert seen == [[runs[3], runs[2]], [runs[0]]]
    assert addresses[1].startswith("/runs?search=TEA&status=completed&cursor=")
    nothing = await web.client.get("/runs?search=coffee")
    assert "No matching runs." in nothing.text
    refused = await web.client.get("/runs?since=soon", headers={"Accept": "text/html"})
    assert refused.status_code == 422
    assert "cannot read &#39;soon&#39;" in refused.text


async def fired(web: ServedApp) -> list[object]:
    """The runs that a schedule started."""
    return list((await web.get("/api/runs?trigger=schedule"))["runs"])


async def test_each_filter_without_a_field_is_a_word_that_removes_it(web: ServedApp) -> None:
    web.book("note.md", "# Note\n\n## STEP 1: Write\n\nWrite it.\n")
    await web.model(ScriptedModel(["Done."], cycle=True)).serve()
    mine = await web.begin(playbook="note")
    await web.post("/api/schedules", 201, playbook="note", cron="@daily", name="nightly", inputs={})
    await web.post("/api/triggers/schedule/nightly/run", 202)
    async with web.wiring.background(web.service):
        await eventually(lambda: fired(web))
    page = html.unescape((await web.client.get("/runs?search=note&trigger=schedule&since=7d&owner=local")).text)
    assert f'href="/runs/{mine}"' not in page
    assert "by schedule:nightly" in page
    removing = dict(
        re.findall(r'class="tag" href="([^"]+)" title="[^"]*" aria-label="Remove the filter ([^"]+)"', page)
    )
    assert removing == {
        "/runs?search=note&trigger=schedule&since=7d": "started by local",
        "/runs?search=note&owner=local&since=7d": "triggered by schedule",
        "/runs?search=note&owner=local&trigger=schedule": "since 7d",
    }
    everyone = (await web.client.get("/runs?search=note&owner=local&since=7d")).text
    assert f'href="/runs/{mine}"' in everyone
    assert "Remove the filter" not in (await web.client.get("/runs?search=note")).text
