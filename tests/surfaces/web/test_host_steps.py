"""A run that waits for an assistant: what the page, the lists and the API say about it."""

from __future__ import annotations

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service.service import Principal
from tests.surfaces.web.served_app import ServedApp

BOOK = (
    "# Report\n\n## STEP 1: Colour\n\nName a colour.\n\n@output(colour)\n\n## STEP 2: Line\n\nWrite about {{colour}}.\n"
)


async def test_a_run_that_waits_for_an_assistant_says_so_everywhere(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("report.md", BOOK), model="host")
    wait = await web.waiting(run)
    assert (wait["kind"], wait["step"], wait["assistant"]) == ("model", "1", None)
    for page in (f"/runs/{run}", "/runs"):
        assert "waiting for the assistant" in (await web.client.get(page)).text
    assert wait["wait"] not in (await web.client.get("/inbox")).text
    steps, who = web.service.host_steps, Principal("ann")
    step = await steps.take(await web.service.row(run), who)
    taken = await web.waiting(run)
    assert taken["assistant"]["by"] == "ann"
    assert step.claim not in str(taken)
    refused = await web.client.post(f"/api/waits/{wait['wait']}/answer", json={"value": "x"})
    assert refused.status_code == 422
    await steps.complete(await web.service.row(run), step.claim, "green", who)
    seen = await web.until(run, "awaiting_input")
    while seen["step"] != "2":
        seen = await web.until(run, "awaiting_input")
    last = await steps.take(await web.service.row(run), who)
    await steps.complete(await web.service.row(run), last.claim, "Green.", who)
    done = await web.until(run, "completed")
    assert (done["values"]["colour"], done["totals"]["cost"], done["totals"]["unknown_costs"]) == ("green", None, 2)
