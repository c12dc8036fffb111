"""Approvals for a run and for all runs, over REST and on the pages."""

from __future__ import annotations

import asyncio

from cuebook.gate.roles import Principal
from tests.surfaces.web.served_app import ServedApp

PIPELINE = """\
name: P
steps:
  - {id: one, command: cli touch made}
  - {id: two, command: cli touch other}
  - {id: three, command: cli touch made}
"""


async def begun(web: ServedApp) -> tuple[str, str]:
    """A run that waits for its first approval, and the wait."""
    web.rule("")
    web.book("p.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook="p")
    return run, str((await web.waiting(run))["wait"])


async def asked(web: ServedApp, run: str, prompt: str) -> str:
    """The open wait of a run, once it asks this."""
    async with asyncio.timeout(60):
        while True:
            for wait in (await web.get(f"/api/runs/{run}"))["waits"]:
                if wait["prompt"] == prompt:
                    return str(wait["wait"])
            await asyncio.sleep(0.02)


async def revoked(web: ServedApp, name: str) -> int:
    return int((await web.client.request("DELETE", f"/api/overrides/{name}", json={})).status_code)


async def test_an_approval_for_the_run_is_listed_with_it_and_revocable(web: ServedApp) -> None:
    run, wait = await begun(web)
    offers = (await web.get(f"/api/waits/{wait}"))["approval"]["offers"]
    assert offers == [[["command", "touch made"]], [["command", "touch made*"]]]
    await web.post(f"/api/waits/{wait}/decide", 200, decision="approve", lasts="run")
    second = await asked(web, run, "Run touch other")
    (override,) = (await web.get(f"/api/runs/{run}"))["overrides"]
    assert (override["pattern"], override["by"], override["state"]) == ("touch made", "local", "holds")
    assert (await web.get("/api/overrides")) == {"overrides": []}
    shown = (await web.client.get(f"/runs/{run}")).text
    assert "Allowed for this run" in shown
    assert f'data-api="/api/overrides/{override["id"]}"' in shown
    assert await revoked(web, override["id"]) == 204
    await web.post(f"/api/waits/{second}/decide", 200, decision="approve")
    await asked(web, run, "Run touch made")
    assert (await web.get(f"/api/runs/{run}"))["overrides"][0]["state"] == "revoked"


async def test_an_approval_for_all_runs_has_a_page(web: ServedApp) -> None:
    _, wait = await begun(web)
    assert "Nothing is allowed in advance" in (await web.client.get("/settings/overrides")).text
    await web.post(f"/api/waits/{wait}/decide", 200, decision="approve", lasts="always", offer=2)
    (override,) = (await web.get("/api/overrides"))["overrides"]
    assert (override["pattern"], override["run"]) == ("touch made*", None)
    shown = (await web.client.get("/settings/overrides")).text
    assert "touch made*" in shown
    assert await revoked(web, override["id"]) == 204
    assert "revoked" in (await web.client.get("/settings/overrides")).text
    assert await revoked(web, "o0") == 404


async def test_the_page_before_a_run_shows_what_would_be_asked(web: ServedApp) -> None:
    web.rule('[commands]\nallow = ["touch other"]\n')
    web.book("p.yml", PIPELINE)
    await web.serve()
    shown = (await web.client.get("/playbooks/p/run")).text
    assert "An unattended run may wait for approval in: one, three." in shown
    assert shown.count('data-decision="ask"') == 2
    assert shown.count('data-decision="allow"') == 1


async def test_the_role_approver_is_required(web: ServedApp) -> None:
    _, wait = await begun(web)
    _, token = await web.service.add_user("ben", ["runner"], Principal())
    headers = {"Authorization": f"Bearer {token}"}
    asked = {"decision": "approve", "lasts": "always"}
    assert (await web.guest.post(f"/api/waits/{wait}/decide", json=asked, headers=headers)).status_code == 403
    ended = await web.guest.request("DELETE", "/api/overrides/o0", json={}, headers=headers)
    assert ended.status_code == 403
    assert await web.get("/api/overrides") == {"overrides": []}


async def test_only_what_was_offered_can_be_allowed(web: ServedApp) -> None:
    run, wait = await begun(web)
    for body in ({"lasts": "ever"}, {"offer": 0, "lasts": "run"}, {"offer": 9, "lasts": "run"}, {"pattern": "*"}):
        response = await web.client.post(f"/api/waits/{wait}/decide", json={"decision": "approve", **body})
        assert response.status_code in (400, 422), response.text
    assert (await web.waiting(run))["wait"] == wait
