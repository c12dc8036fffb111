"""The live stream: the format's events in the format's order."""

from __future__ import annotations

import asyncio
import re

from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.surfaces.web.house import House, Sse

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


async def test_the_events_of_a_run_come_in_the_order_of_the_format(house: House) -> None:
    go_on = asyncio.Event()
    says = [Says("Some sencha.", chunk=4, wait_for=go_on), Says("Brewed.")]
    await house.model(ScriptedModel(says)).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA))
    async with house.stream(run) as stream:
        go_on.set()
        events = [event async for event in stream]
    assert names([event for event in events if event.event != "step-content"]) == [
        "step-update 1 pending",
        "step-update 2 pending",
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
