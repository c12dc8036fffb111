"""The live stream: the format's events in the format's order."""

from __future__ import annotations

import asyncio
import re

import pytest

from cuebook.performers.models.model import ModelError
from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.surfaces.web.dom import LivePage
from tests.surfaces.web.served_app import Dripping, ServedApp, Sse

TEA = """\
# Tea

## INPUTS

- `kind` (string: green): Which tea

## STEP 1: Choose

Choose a {{kind}} tea.

@output(chosen)

## STEP 2: Brew

Brew the {{chosen}} tea.
"""


def names(events: list[Sse]) -> list[str]:
    """Each event in a few words; `step-update` with the status that it shows."""
    return [_named(event) for event in events]


def _named(event: Sse) -> str:
    words = f"{event.event} {event.data.get('step', '')}".strip()
    if event.event != "step-update":
        return words
    status = re.search(r'id="head-[^"]*"[^>]*data-status="(\w+)"', event.data["html"])
    return f"{words} {status[1]}" if status else words


async def test_the_events_of_a_run_have_the_order_of_the_format(web: ServedApp) -> None:
    go_on = asyncio.Event()
    says = [Says("Some sencha.", chunk=4, wait_for=go_on), Says("Brewed.")]
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    async with web.stream(run) as stream:
        go_on.set()
        events = [event async for event in stream]
    assert names([event for event in events if event.event != "step-content"]) == [
        "step-update 1 running",
        "step-rendered 1",
        "step-update 1 completed",
        "variable-update 1",
        "step-update 2 running",
        "step-rendered 2",
        "step-update 2 completed",
        "status",
    ]
    kinds = [event.event for event in events]
    assert kinds.index("step-content") < kinds.index("step-rendered")
    assert (
        "".join(e.data["content"] for e in events if e.data.get("step") == "1" and e.event == "step-content")
        == "Some sencha."
    )
    by_name = {event.event: event.data for event in events}
    assert by_name["variable-update"] == {"name": "chosen", "value": "Some sencha.", "step": "1"}
    assert set(by_name["step-content"]) == {"step", "content"}
    assert set(by_name["step-update"]) == set(by_name["step-rendered"]) == {"step", "html"}
    assert set(by_name["status"]) == {"html"}


async def test_only_a_step_that_changed_has_a_step_update(web: ServedApp) -> None:
    await web.model(ScriptedModel(["Some sencha."])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA), breakpoints="1")
    await web.waiting(run)
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    events = await web.all_events(run)
    updates = [name.split() for name in names(events) if name.startswith("step-update")]
    assert all(len(words) == 3 for words in updates)
    assert "pending" not in {words[2] for words in updates}
    first = events[0].data["html"]
    assert 'id="step-1"' in first
    assert 'id="step-2"' in first


async def test_an_interrupted_text_is_the_same_for_every_reader(web: ServedApp) -> None:
    """A reader of a run that is cancelled in the middle of a text ends up with what later readers see."""
    await web.model(Dripping(ScriptedModel([Says("Some sencha. " * 500, chunk=4)]))).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    await web.until(run, "running")
    first = LivePage((await web.client.get(f"/runs/{run}")).text)
    live: list[Sse] = []
    async with web.stream(run, first.after) as stream:
        async for event in stream:
            live.append(event)
            if event.event == "step-content" and "sencha" in LivePage(first.html, live)["text-1"].words:
                await web.client.post(f"/api/runs/{run}/cancel", json={})
    assert live[-1].event == "status"
    last = LivePage((await web.client.get(f"/runs/{run}")).text)
    assert LivePage(first.html, live).main == last.main
    assert "sencha" in last["text-1"].words


async def test_a_stream_continues_as_soon_as_a_retry_is_accepted(web: ServedApp) -> None:
    await web.model(ScriptedModel([ModelError("bad_request", "No."), "Some sencha.", "Brewed."])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    before = await web.all_events(run)
    web.site.worker._at_once = 0  # it is accepted but not driven yet
    await web.post(f"/api/runs/{run}/retry", 202)
    for kind in ("stream", "events"):
        async with web.stream(run, before[-1].id, kind) as stream:
            web.site.worker._at_once = 20
            names_of = [event.event async for event in stream]
        assert names_of[-1] == ("status" if kind == "stream" else "RunFinished")


@pytest.mark.parametrize("kind", ["stream", "events"])
async def test_a_reader_beyond_the_end_starts_from_the_beginning(web: ServedApp, kind: str) -> None:
    await web.model(ScriptedModel(["Some sencha.", "Brewed."])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    await web.until(run, "completed")
    assert await web.all_events(run, "99999.0", kind) == await web.all_events(run, "", kind)
    assert await web.all_events(run, (await web.all_events(run, "", kind))[-1].id, kind) == []
