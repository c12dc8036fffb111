"""Opens a run for who looks at it: as a page at this moment, or as a stream from a position on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from cuebook.dialects import registry
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.surfaces.web import artifacts
from cuebook.surfaces.web.calls import Calls
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.plain import Plain
from cuebook.surfaces.web.positions import NOTHING, Position
from cuebook.surfaces.web.projection import Projection
from cuebook.surfaces.web.site import Site
from cuebook.surfaces.web.standing import is_interrupted
from cuebook.surfaces.web.telling import Event, Reading, Told
from cuebook.surfaces.web.views import DialectView, view_of


class Opened(NamedTuple):
    """A run's page at one moment."""

    run: Picture
    view: DialectView
    tails: dict[str, str]
    """The texts under way, by the key of their step."""
    after: str
    """Where its stream goes on."""


async def opened(site: Site, row: RunRow) -> Opened:
    """Everything that there is to see of a run now."""
    projection = await projection_of(site, row)
    projection.picture.interrupted = await is_interrupted(site, row)
    calls = Calls()
    with site.feeds.watch(row.id) as feed:
        async for entry in feed.after(0):
            projection.skip(entry)
            calls.see(entry)
        picture = projection.picture
        tails: dict[str, str] = {}
        position = Position(picture.seq + 1, 0, {})
        texts = dict(position.texts)
        for seq, asked in calls.open.items():
            flow, card = feed.flow(seq), picture.card_at(asked.place)
            if flow is None or card is None or not flow.text:
                continue
            begun = "\n\n" if card.tail and card.key not in tails else ""
            projection.view.hear(asked, flow.text, 0)
            tails[card.key] = tails.get(card.key, begun) + flow.text
            texts[seq] = NOTHING.plus(flow.text)
    return Opened(picture, projection.view, tails, str(position._replace(texts=texts)))


async def projection_of(site: Site, row: RunRow) -> Projection:
    text = await site.service.store.playbook(row.playbook)
    view = view_of(row.dialect, text, row.name)
    title, makes = _declared(row, text)
    return Projection(Picture(row, title, order=view.order, talks=view.talks, makes=makes), view)


async def page_events(
    site: Site, row: RunRow, after: Position, *, follow: bool = True, goes_on: bool = False
) -> AsyncIterator[Told | None]:
    """The events of a run's page after a position; one that goes on has not ended, whatever its journal says by now."""
    projection = await projection_of(site, row)

    async def aside() -> Event | None:
        driven = site.service.engine.drives(row.id)
        left = not driven and await is_interrupted(site, await site.service.store.run(row.id))
        return projection.stand(interrupted=left)

    with site.feeds.watch(row.id) as feed:
        async for told in Reading(feed, projection, after, goes_on=goes_on, aside=aside).told(follow=follow):
            yield told


async def plain_events(
    site: Site, row: RunRow, after: Position, *, follow: bool = True, goes_on: bool = False
) -> AsyncIterator[Told | None]:
    """The same as plain ones."""
    with site.feeds.watch(row.id) as feed:
        async for told in Reading(feed, Plain(), after, goes_on=goes_on).told(follow=follow):
            yield told


def _declared(row: RunRow, text: str) -> tuple[str, str]:
    """What a run's playbook calls itself, and the type of artifact that it says it makes."""
    try:
        document = registry.named(row.dialect).parse(text, row.name)
    except CuebookError:
        return row.name, ""
    return str(document.title), artifacts.declared(document)
