"""Tells one reader everything that happens in a run after a position: each event once, each character once.

What is told of an entry is a teller's business: the events of the page, or the plain ones. Here is only the order, and
where the reader is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple, Protocol

from cuebook.kernel.events import Performed, RunFinished
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply
from cuebook.surfaces.web.calls import Calls
from cuebook.surfaces.web.feeds import Feed
from cuebook.surfaces.web.positions import NOTHING, Position, Sent

HEARTBEAT = 15.0
"""Seconds after which a silent stream says that it is still there."""


class Event(NamedTuple):
    """What a reader is told."""

    name: str
    data: dict[str, Any]


class Told(NamedTuple):
    event: Event
    id: str
    """Where the reader is, once they have it."""


class Teller(Protocol):
    """Puts what happens into events. It sees every entry, in order, once."""

    def skip(self, entry: Entry) -> None:
        """Of this one the reader knows."""

    def tell(self, entry: Entry) -> list[Event]:
        """The same for the same entries, always."""

    def text(self, asked: Entry, text: str, sent: int) -> tuple[Event | None, Event]:
        """More of the text that this call gives: what it shows besides, if anything, and what comes after so many
        characters.
        """

    def again(self, asked: Entry) -> Event:
        """What was told of this call's text is void: it begins again."""


Aside = Callable[[], Awaitable[Event | None]]
"""What is to be told besides what any entry says, if there is such news."""


async def _no_aside() -> Event | None:
    return None


class Reading:
    """One reader of one run."""

    def __init__(
        self, feed: Feed, teller: Teller, after: Position, *, goes_on: bool = False, aside: Aside = _no_aside
    ) -> None:
        """With `goes_on`, an end that the reader knows of is none: the run is taken up again. What is told `aside` changes
        nothing about where the reader is.
        """
        self._goes_on = goes_on
        self._aside = aside
        self._feed = feed
        self._teller = teller
        self._calls = Calls()
        self._seq = 0
        """The last record that was read."""
        self._after = after
        self._texts: dict[int, Sent] = dict(after.texts)
        self._tries: dict[int, int] = {}
        self._next, self._index = after.record, after.number
        self.ended = False
        """Whether everything was told, and nothing more comes."""

    @property
    def position(self) -> Position:
        return Position(self._next, self._index, dict(self._texts))

    async def told(self, *, follow: bool = True) -> AsyncIterator[Told | None]:
        """None now and then, when there is nothing to tell."""
        while True:
            bell = self._feed.bell
            last: Entry | None = None
            async for entry in self._feed.after(self._seq):
                last = entry
                for told in self._entry(entry):
                    yield told
            if last is not None:
                self._feed.remember(last)
            for told in self._under_way():
                yield told
            if not follow or self.ended:
                return
            aside = await self._aside()
            if aside is not None:
                yield self._at(aside)
            if bell.is_set():
                continue
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await bell.wait()
            except TimeoutError:
                yield None

    # --- inside ---

    def _entry(self, entry: Entry) -> Iterator[Told]:
        self._seq = entry.seq
        self.ended = isinstance(entry.event, RunFinished) and not self._goes_on
        if entry.seq < self._after.record:
            self._teller.skip(entry)
            self._calls.see(entry)
            return
        begun = self._after.number if entry.seq == self._after.record else 0
        if not begun:
            self._next, self._index = entry.seq, 0
            yield from self._rest_before(entry)
        self._calls.see(entry)
        self._texts = {seq: sent for seq, sent in self._texts.items() if seq in self._calls.open}
        for number, event in enumerate(self._teller.tell(entry), start=1):
            if number > begun:
                self._next, self._index = entry.seq, number
                self.ended = isinstance(entry.event, RunFinished)
                yield self._at(event)
        self._next, self._index = entry.seq + 1, 0

    def _rest_before(self, entry: Entry) -> Iterator[Told]:
        """The end of a text comes before its outcome, however slow the reader."""
        seq = self._calls.ended_by(entry)
        if seq is None or not isinstance(entry.event, Performed) or not isinstance(entry.event.outcome, Reply):
            return
        reply = entry.event.outcome
        yield from self._text(seq, reply.text[: reply.released], known=False)

    def _under_way(self) -> Iterator[Told]:
        for seq in list(self._calls.open):
            flow = self._feed.flow(seq)
            if flow is None:
                continue
            known = seq in self._tries
            if self._tries.setdefault(seq, flow.tries) != flow.tries:
                self._tries[seq] = flow.tries
                yield from self._begin_again(seq)
            yield from self._text(seq, flow.text, known=known)

    def _text(self, seq: int, text: str, *, known: bool) -> Iterator[Told]:
        """What the reader lacks of a text; unless it is known to be the same, it may have begun again."""
        if not known and not self._texts.get(seq, NOTHING).begins(text):
            yield from self._begin_again(seq)
        sent = self._texts.get(seq, NOTHING)
        piece = text[sent.length :]
        if piece:
            besides, content = self._teller.text(self._calls.open[seq], text, sent.length)
            after = sent.plus(piece)
            if besides is not None and sent.drawn != after.check:
                self._texts[seq] = sent._replace(drawn=after.check)
                yield self._at(besides)
            self._texts[seq] = after
            yield self._at(content)

    def _begin_again(self, seq: int) -> Iterator[Told]:
        if self._texts.pop(seq, NOTHING) != NOTHING:
            yield self._at(self._teller.again(self._calls.open[seq]))

    def _at(self, event: Event) -> Told:
        return Told(event, str(self.position))
