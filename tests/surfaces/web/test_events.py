"""Events as they are sent: in pieces that a slow reader's buffer can hold, and drawn once for all who read them."""

from __future__ import annotations

import gc
import json

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web import events, rendering
from cuebook.surfaces.web.events import written
from cuebook.surfaces.web.positions import Position
from cuebook.surfaces.web.rendering import Html
from cuebook.surfaces.web.telling import Event, Told
from cuebook.surfaces.web.watching import opened, page_events
from tests.surfaces.web.house import House

PIECE = events._PIECE


@pytest.mark.parametrize("length", [0, 1, PIECE - 30, PIECE, PIECE + 1, 3 * PIECE])
def test_an_event_is_sent_in_pieces_that_make_up_one(length: int) -> None:
    told = Told(Event("step-content", {"step": "1", "content": "a" * length}), "17.1")
    pieces = list(written(told))
    assert max(map(len, pieces)) < PIECE + 100
    lines = b"".join(pieces).decode().split("\n")
    assert lines[:2] == ["id: 17.1", "event: step-content"]
    assert json.loads(lines[2].removeprefix("data: ")) == told.event.data
    assert lines[3:] == ["", ""]


async def test_readers_of_one_output_share_what_is_drawn_of_it(house: House) -> None:
    await house.model(ScriptedModel(["Some *words*. " * 20_000])).serve()
    run = await house.begin(text="# T\n\n## STEP 1: A\n\nDo A.\n", name="t.md")
    await house.until(run, "completed")
    row = await house.service.get(run)
    seen: list[Told] = []
    for _ in range(3):
        read = page_events(house.site, row, Position())
        seen += [one async for one in read if one is not None and one.event.name == "step-rendered"]
    htmls = [one.event.data["html"] for one in seen]
    assert isinstance(htmls[0], Html)
    assert htmls[1] is htmls[0]
    assert htmls[2] is htmls[0]
    assert events._data(seen[1]) is events._data(seen[0])
    sent = b"".join(written(seen[0])).split(b"\ndata: ", 1)[1]
    assert json.loads(sent) == {"step": "1", "html": str(htmls[0])}
    card = (await opened(house.site, row)).run.order[0]
    assert rendering.part("text", card, (await opened(house.site, row)).run) is htmls[0]
    del seen, htmls
    gc.collect()
    assert len(rendering._outputs) == 0, "it is kept no longer than it is read"
    assert len(events._encoded) == 0
