"""Acting on many runs over REST."""

from __future__ import annotations

from typing import Any

from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.api.test_runs import ASKS
from tests.surfaces.web.served_app import ServedApp


async def acted(web: ServedApp, code: int = 200, **asked: Any) -> Any:
    said = await web.client.post("/api/runs/bulk", json=asked)
    assert said.status_code == code, said.text
    return said.json()


async def test_many_runs_are_cancelled_and_retried(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"], cycle=True)).serve()
    runs = [await web.begin(text=ASKS, name="asks.md") for _ in range(3)]
    for run in runs:
        await web.until(run, "awaiting_input")
    where = {"name": "asks.md", "status": ["awaiting_input"]}
    shown = await acted(web, act="cancel", where=where, dry_run=True, limit=2)
    assert (shown["done"], shown["refused"]) == (runs[:0:-1], [])
    rest = await acted(web, act="cancel", where=where, dry_run=True, limit=2, cursor=shown["next"])
    assert (rest["done"], rest["next"]) == ([runs[0]], None)
    done = await acted(web, act="cancel", where=where, reason="enough")
    assert (done["done"], done["dry_run"], done["next"]) == (runs[::-1], False, None)
    for run in runs:
        await web.until(run, "cancelled")
    named = await acted(web, act="retry", where={"runs": [runs[0], "unknown"]}, limit=1)
    assert named["done"] == [runs[0]]
    assert [(one["run"], one["code"]) for one in named["refused"]] == [("unknown", "not_found")]
    await web.until(runs[0], "awaiting_input")


async def test_a_request_that_says_nothing_is_refused(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    assert (await acted(web, 422, act="cancel", where={}))["code"] == "bad_input"
    assert (await acted(web, 422, act="cancel", where={"status": ["bogus"]}))["code"] == "bad_status"
    both = {"runs": ["a"], "status": ["awaiting_input"]}
    assert "cannot be combined" in (await acted(web, 422, act="cancel", where=both))["detail"]
    await acted(web, 422, act="delete", where={"status": ["failed"]})
    await acted(web, 422, act="cancel", where={"playbook": "x"})
