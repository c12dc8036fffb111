"""Opens a run for a reader: as its current page, or as a stream from a position."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from cuebook.dialects.playbook import Playbook
from cuebook.gate.gate import revoked_in
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.kernel.votes import rule_of
from cuebook.service.stream import Calls
from cuebook.surfaces import display
from cuebook.surfaces.web.api import artifacts
from cuebook.surfaces.web.live.blocks import blocks_of
from cuebook.surfaces.web.live.events import JsonEvents, PageEvents
from cuebook.surfaces.web.live.interrupted import is_interrupted
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.live.stream import NOTHING, Event, Position, Reader, SentEvent
from cuebook.surfaces.web.panels import RunPanels
from cuebook.surfaces.web.site import Site


class Opened(NamedTuple):
    """A run's page at one moment."""

    run: Picture
    panels: RunPanels
    tails: dict[str, str]
    """The text that is still streaming, by the key of its step."""
    after: str
    """The position at which its stream continues."""


async def opened(site: Site, row: RunRow) -> Opened:
    """The run's page as it is now."""
    encoder = await _encoder(site, row)
    encoder.picture.interrupted = await is_interrupted(site, row)
    encoder.picture.waits_for = await _held_up(site, row.id)
    calls = Calls()
    with site.service.stream.watch(row.id) as feed:
        async for entry in feed.after(0):
            encoder.skip(entry)
            calls.see(entry)
        picture = encoder.picture
        await _add_votes(site, picture)
        tails: dict[str, str] = {}
        position = Position(picture.seq + 1, 0, {})
        texts = dict(position.texts)
        for seq, asked in calls.open.items():
            flow, card = feed.flow(seq), picture.card_at(asked.place)
            if card is None:
                continue
            before = tails.setdefault(card.key, "\n\n" if card.tail else "")
            if flow is None or not flow.text:
                continue
            encoder.panels.stream(asked, flow.text, 0)
            tails[card.key] = before + flow.text
            blocks = len(blocks_of(card.before_text + flow.text)[0]) if picture.streams(card) == 1 else 0
            texts[seq] = NOTHING.plus(flow.text)._replace(blocks=blocks)
    return Opened(picture, encoder.panels, tails, str(position._replace(texts=texts)))


async def _add_votes(site: Site, picture: Picture) -> None:
    """Votes that have not decided anything yet are not part of the journal."""
    for wait in picture.waits.values():
        if wait.kind == "approval" and rule_of(wait.details).counts:
            wait.answer = (await site.service.wait_row(wait.id)).answer


async def _held_up(site: Site, run: str) -> str:
    """What a run waits for although it has work to do. Its journal, and so its page, may still show the question."""
    held_up = await site.worker.waits_for(run)
    if held_up and display.is_decided(await site.service.row(run), await site.service.waits(run), held_up):
        return f"{held_up}; what was answered or decided is stored"
    return held_up


async def _encoder(site: Site, row: RunRow) -> PageEvents:
    playbook = await _playbook(site, row)
    panels = RunPanels(playbook)
    picture = Picture(
        row,
        playbook.title if playbook is not None else row.name,
        order=panels.projection.order,
        talks=panels.projection.conversation is not None,
        makes=artifacts.declared(playbook.document) if playbook is not None else "",
        is_markdown=playbook is not None and playbook.dialect.writes_markdown,
        branches=panels.projection.branches,
        declared=playbook.inputs if playbook is not None else (),
    )
    picture.revoked = await site.service.kept(row.tenant, revoked_in(row.id))
    return PageEvents(picture, panels)


async def page_events(
    site: Site, row: RunRow, after: Position, *, follow: bool = True, continued: bool = False
) -> AsyncIterator[SentEvent | None]:
    """The events of a run's page after a position. With `continued`, an end in the journal is not the end of the stream."""
    encoder = await _encoder(site, row)

    async def notice() -> Event | None:
        driven = site.service.drives(row.id)
        left = not driven and await is_interrupted(site, await site.service.row(row.id))
        held_up = "" if driven else await _held_up(site, row.id)
        return encoder.interrupt(interrupted=left, waits_for=held_up)

    with site.service.stream.watch(row.id) as feed:
        async for event in Reader(feed, encoder, after, continued=continued, notice=notice).events(follow=follow):
            yield event


async def json_events(
    site: Site, row: RunRow, after: Position, *, follow: bool = True, continued: bool = False
) -> AsyncIterator[SentEvent | None]:
    """The same events as plain JSON."""
    with site.service.stream.watch(row.id) as feed:
        async for event in Reader(feed, JsonEvents(), after, continued=continued).events(follow=follow):
            yield event


async def _playbook(site: Site, row: RunRow) -> Playbook | None:
    """The playbook of a run; None for a Python program, and for one that this version cannot parse."""
    try:
        return await site.service.playbook_of(row)
    except CuebookError:
        return None
