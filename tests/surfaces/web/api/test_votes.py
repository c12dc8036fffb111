"""Votes, requests for changes and forms, over REST and on the pages."""

from __future__ import annotations

import asyncio

from cuebook.gate.roles import Principal
from tests.surfaces.web.served_app import ServedApp

PIPELINE = """\
name: P
steps:
  - id: window
    input:
      text: How long?
      schema: {type: object, properties: {minutes: {type: integer, minimum: 1, title: Minutes}}, required: [minutes]}
  - id: act
    command: cli tee made
    stdin: ${window.json.minutes} ${changes.feedback}
    approval: {text: Really?, votes: 2, changes: window}
"""


async def asked(web: ServedApp, run: str, kind: str) -> str:
    async with asyncio.timeout(60):
        while True:
            for wait in (await web.get(f"/api/runs/{run}"))["waits"]:
                if wait["kind"] == kind:
                    return str(wait["wait"])
            await asyncio.sleep(0.02)


async def test_a_form_votes_and_changes_over_rest_and_on_the_page(web: ServedApp) -> None:
    web.rule("")
    web.book("p.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook="p")
    wait = await asked(web, run, "question")
    shown = (await web.client.get(f"/runs/{run}")).text
    assert 'data-answer="number" data-name="minutes"' in shown
    assert "Minutes" in (await web.client.get("/inbox")).text
    refused = await web.client.post(f"/api/waits/{wait}/answer", json={"value": {"minutes": 0}})
    assert refused.status_code == 422
    assert "minutes" in refused.text
    await web.post(f"/api/waits/{wait}/answer", 200, value={"minutes": 5})

    gate = await asked(web, run, "approval")
    first = await web.post(f"/api/waits/{gate}/decide", 200, decision="approve")
    assert first["approval"]["votes_words"] == "1 of 2 approved: local"
    for page in (f"/runs/{run}", "/inbox"):
        assert "1 of 2 approved: local" in (await web.client.get(page)).text
    assert "Request changes" in (await web.client.get(f"/runs/{run}")).text
    again = await web.client.post(f"/api/waits/{gate}/decide", json={"decision": "approve"})
    assert (again.status_code, again.json()["code"]) == (409, "already_voted")

    await web.service.decide(gate, "changes", Principal("bob"), reason="Longer")
    await web.site.worker.take(run)
    wait = await asked(web, run, "question")
    await web.post(f"/api/waits/{wait}/answer", 200, value={"minutes": 9})
    gate = await asked(web, run, "approval")
    await web.post(f"/api/waits/{gate}/decide", 200, decision="approve")
    await web.service.decide(gate, "approve", Principal("bob"))
    await web.site.worker.take(run)
    async with asyncio.timeout(60):
        while (found := await web.get(f"/api/runs/{run}"))["status"] != "completed":
            await asyncio.sleep(0.02)
    assert found["outputs"]["act"] == "9 Longer"
