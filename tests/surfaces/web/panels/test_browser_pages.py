"""The pages that a run's browser has seen, as evidence on the run's page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.performers.browser.site import site
from tests.surfaces.web.served_app import ServedApp

POLICY = '[egress]\nallow = ["http://127.0.0.1:{port}/*"]\n'


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    with site() as served:
        made = ServedApp(tmp_path, monkeypatch, policy=POLICY.format(port=served.port))
        made.book("look.yml", f"name: Look\nsteps:\n  - {{id: open, command: web navigate {served.url('/orders')}}}\n")
        yield made
        await made.stop()


@pytest.mark.needs("chromium")
@pytest.mark.needs("bubblewrap")
async def test_a_picture_and_the_elements_are_shown_to_those_who_see_the_run(web: ServedApp) -> None:
    await web.serve()
    run = await web.begin(playbook="look")
    done = await web.until(run, "completed", "failed", "awaiting_approval")
    assert done["status"] == "completed", done
    shown = (await web.client.get(f"/runs/{run}")).text
    path = shown.partition('<img loading="lazy" alt="The page after this step" src="')[2].partition('"')[0]
    assert path.startswith(f"/api/runs/{run}/pages/")
    picture = await web.client.get(path)
    assert (picture.headers["content-type"], picture.content[:2]) == ("image/jpeg", b"\xff\xd8")
    elements = await web.client.get(path.replace("/picture", "/elements"))
    assert elements.headers["content-type"] == "text/plain; charset=utf-8"
    assert elements.headers["content-disposition"].startswith("attachment")
    assert 'class="order"' in elements.text
    assert (await web.guest.get(path)).status_code == 401
    assert (await web.client.get(f"/api/runs/{run}/pages/1/picture")).status_code == 404
