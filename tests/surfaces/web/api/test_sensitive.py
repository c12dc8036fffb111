"""Sensitive inputs over the API: no page, stream or answer of the server has them."""

from __future__ import annotations

import asyncio

from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.served_app import Dripping, ServedApp

EMAIL = "ann@example.com"
MAIL = """\
# Mail

## INPUTS

- `email` (string, sensitive): Whom to write to
- `topic` (string): About what

## STEP 1: Write

Write to {{email}} about {{topic}}.

## STEP 2: Ask

@elicit(input, "What else for {{email}}?")
"""


async def test_a_value_is_on_no_page_and_in_no_stream(web: ServedApp) -> None:
    model = ScriptedModel([f"Dear {EMAIL}, this is for {EMAIL}."], chunk=3)
    await web.model(Dripping(model)).serve()
    book = web.book("mail.md", MAIL)
    (email, topic) = (await web.get(f"/api/playbooks/{book}"))["inputs"]
    assert (email["sensitive"], topic["sensitive"]) == (True, False)
    assert "sensitive: nothing shows it" in (await web.client.get(f"/playbooks/{book}/run")).text
    run = await web.begin(playbook=book, inputs={"email": EMAIL, "topic": "a long topic"}, sensitive=["topic"])
    live = asyncio.create_task(web.all_events(run))
    wait = await web.waiting(run)
    assert f"Write to {EMAIL} about a long topic." in str(model.requests[0].messages)
    paths = (
        f"/api/runs/{run}",
        f"/runs/{run}",
        "/api/runs",
        "/runs",
        "/api/inbox",
        "/inbox",
        f"/api/waits/{wait['wait']}",
        f"/waits/{wait['wait']}",
        f"/playbooks/{book}/run",
        f"/api/runs/{run}/evidence",
        "/api/acts",
    )
    for path in paths:
        got = await web.client.get(path)
        assert got.status_code == 200, path
        assert EMAIL not in got.text, path
        assert "a long topic" not in got.text, path
    shown = await web.get(f"/api/runs/{run}")
    assert shown["inputs"]["email"].startswith("[sensitive email ")
    # Who answers may type the value again; it is masked there, too.
    await web.post(f"/api/waits/{wait['wait']}/answer", None, value=f"nothing for {EMAIL}")
    message = await web.until(run, "completed")
    assert EMAIL not in str(message)
    for seen in (await live, await web.all_events(run), await web.all_events(run, kind="events")):
        assert seen
        assert all(EMAIL not in str(event) for event in seen)
    await web.stop()
    stored = b"".join(path.read_bytes() for path in web.store.parent.iterdir() if path.name.startswith("runs.db"))
    assert EMAIL.encode() not in stored


async def test_a_name_that_is_no_input_is_refused(web: ServedApp) -> None:
    await web.model(ScriptedModel(["x"])).serve()
    book = web.book("mail.md", MAIL)
    problem = await web.post(
        "/api/runs", 422, playbook=book, inputs={"email": EMAIL, "topic": "tea"}, sensitive=["mail"]
    )
    assert "There is no input 'mail'" in str(problem)
    assert EMAIL not in str(problem)
