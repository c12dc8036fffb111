"""The scripts of a run's page are small."""

from __future__ import annotations

import gzip
import re

from tests.surfaces.web.served_app import ServedApp

MOST = 60 * 1024
_IMPORT = re.compile(r'^import [^"]*"\./([\w-]+\.js)";$', re.MULTILINE)


async def test_the_scripts_of_a_run_page_are_under_60_kb_compressed(web: ServedApp) -> None:
    await web.serve()
    run = await web.begin(text='# T\n\n## STEP 1: A\n\n@elicit(input, "Which?")\n', name="t.md")
    await web.waiting(run)
    page = (await web.client.get(f"/runs/{run}")).text
    names = dict.fromkeys(re.findall(r'<script [^>]*src="/static/([\w-]+\.js)"', page))
    sizes: dict[str, int] = {}
    while names:
        name = names.popitem()[0]
        script = (await web.client.get(f"/static/{name}")).text
        sizes[name] = len(gzip.compress(script.encode()))
        names |= dict.fromkeys(one for one in _IMPORT.findall(script) if one not in sizes)
    assert {"app.js", "live.js", "follow.js", "dom.js"} <= set(sizes)
    assert sum(sizes.values()) < MOST, sizes
