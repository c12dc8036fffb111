"""Events as they are sent: in pieces that a slow reader's buffer can hold, and rendered once for all readers."""

from __future__ import annotations

import gc
import json

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.live import sse
from cuebook.surfaces.web.live.sse import written
from cuebook.surfaces.web.live.stream import Event, Position, SentEvent
from cuebook.surfaces.web.live.watch import opened, page_events
from cuebook.surfaces.web.pages import render
from cuebook.surfaces.web.pages.render import Html
from tests.surfaces.web.served_app import ServedApp

PIECE = sse._PIECE


@pytest.mark.parametrize("length", [0, 1, PIECE - 30, PIECE, PIECE + 1, 3 * PIECE])
def test_an_event_is_sent_in_pieces_that_make_up_one(length: int) -> None:
    message = SentEvent(Event("step-content", {"step": "1", "content": "a" * length}), "17.1")
    pieces = list(written(message))
    assert max(map(len, pieces)) < PIECE + 100
    lines = b"".join(pieces).decode().split("\n")
    assert lines[:2] == ["id: 17.1", "event: step-content"]
    assert json.loads(lines[2].removeprefix("data: ")) == message.event.data
    assert lines[3:] == ["", ""]


async def test_readers_of_one_output_share_its_html(web: ServedApp) -> None:
    await web.model(ScriptedModel(["Some *words*. " * 20_000])).serve()
    run = await web.begin(text="# T\n\n## STEP 1: A\n\nDo A.\n", name="t.md")
    await web.until(run, "completed")
    row = await web.service.get(run)
    seen: list[SentEvent] = []
    for _ in range(3):
        read = page_events(web.site, row, Position())
        seen += [one async for one in read if one is not None and one.event.name == "step-rendered"]
    htmls = [one.event.data["html"] for one in seen]
    assert isinstance(htmls[0], Html)
    assert htmls[1] is htmls[0]
    assert htmls[2] is htmls[0]
    assert sse._data(seen[1]) is sse._data(seen[0])
    sent = b"".join(written(seen[0])).split(b"\ndata: ", 1)[1]
    assert json.loads(sent) == {"step": "1", "html": str(htmls[0])}
    card = (await opened(web.site, row)).run.order[0]
    assert render.part("text", card, (await opened(web.site, row)).run) is htmls[0]
    del seen, htmls
    gc.collect()
    assert len(render._outputs) == 0, "it is kept no longer than it is read"
    assert len(sse._encoded) == 0
