"""Feeds: what happens in the runs that somebody watches, kept once for all who watch.

What runs in this process is heard from the engine, texts included. What another process drives is read from the store, now
and then. Readers are woken; whatever they missed they read from the store.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import ModelAsked, Performed, RunFinished, Suspended, TextChunk, TextReset
from cuebook.kernel.journal import Entry, Place
from cuebook.service import Service

TEXT_EVERY = 0.09
"""Seconds between two wakings for text: a page need not be changed more often."""
_KEPT = 200
"""Entries of a run that are kept for readers who are nearly there."""
_SOONEST, _LATEST = 0.4, 2.0
"""Seconds between two looks into the store, while there is news and when there is none."""


class Flow:
    """A text under way: what a model has said so far in one call."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.tries = 1
        """How often it has begun."""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def begin_again(self) -> None:
        self._pieces = []
        self.tries += 1

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class Feed:
    """One run that somebody watches."""

    def __init__(self, run: str, feeds: Feeds) -> None:
        self.run = run
        self.readers = 0
        self.bell = asyncio.Event()
        """Set, and replaced by a new one, when there is something to read."""
        self._feeds = feeds
        self._recent: deque[Entry] = deque(maxlen=_KEPT)
        self._rung = 0.0
        self._ringing: asyncio.TimerHandle | None = None
        self._pause, self._look_at = _SOONEST, 0.0

    def flow(self, seq: int) -> Flow | None:
        """The text of the call that this record began, if it is under way here."""
        return self._feeds.flows.get(self.run, {}).get(seq)

    async def after(self, seq: int) -> AsyncIterator[Entry]:
        """The entries after this one, from memory where they are there."""
        if self._recent and self._recent[0].seq <= seq + 1:
            for entry in [entry for entry in self._recent if entry.seq > seq]:
                yield entry
            return
        async for entry in self._feeds.service.engine.entries(self.run, seq):
            yield entry

    def hear(self, event: Entry | TextChunk | TextReset) -> None:
        if isinstance(event, Entry):
            if self._recent and event.seq != self._recent[-1].seq + 1:
                self._recent.clear()  # there is a gap, or an old one again: whoever reads goes to the store
            self._recent.append(event)
            self.ring()
        else:
            self._ring_for_text()

    async def look(self, now: float) -> None:
        """Reads what another process has written."""
        if now < self._look_at:
            return
        last = self._recent[-1].seq if self._recent else None
        if last is None:
            self.ring()
            self._look_at = now + _SOONEST
            return
        news = [entry async for entry in self._feeds.service.engine.entries(self.run, last)]
        for entry in news:
            if entry.seq > self._recent[-1].seq:
                self.hear(entry)
        self._pause = _SOONEST if news else min(_LATEST, self._pause * 1.5)
        self._look_at = now + self._pause

    def remember(self, entry: Entry) -> None:
        """An entry that a reader had to fetch: the next look begins after it."""
        if not self._recent:
            self._recent.append(entry)

    def ring(self) -> None:
        self._rung = time.monotonic()
        if self._ringing is not None:
            self._ringing.cancel()
            self._ringing = None
        self.bell.set()
        self.bell = asyncio.Event()

    def _ring_for_text(self) -> None:
        if self._ringing is not None:
            return
        left = self._rung + TEXT_EVERY - time.monotonic()
        if left <= 0:
            self.ring()
        else:
            self._ringing = asyncio.get_running_loop().call_later(left, self.ring)


class Feeds:
    """The feeds of one service. Close them before it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flows: dict[str, dict[int, Flow]] = {}
        """The texts under way of every run that is driven here, by the record of their call."""
        self._feeds: dict[str, Feed] = {}
        self._asked: dict[str, dict[Place, int]] = {}
        """The record of each model call that is under way here."""
        self._stop = service.observe(self._hear)
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, run: str) -> Iterator[Feed]:
        """The run's feed, for as long as somebody reads it."""
        feed = self._feeds.setdefault(run, Feed(run, self))
        feed.readers += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                self._feeds.pop(run, None)

    @property
    def readers(self) -> int:
        return sum(feed.readers for feed in self._feeds.values())

    async def close(self) -> None:
        self._stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _hear(self, event: Entry | TextChunk | TextReset) -> None:
        if isinstance(event, TextChunk):
            self.flows.setdefault(event.run, {}).setdefault(event.seq, Flow()).add(event.text)
        elif isinstance(event, TextReset):
            self.flows.setdefault(event.run, {}).setdefault(event.seq, Flow()).begin_again()
        else:
            self._forget(event)
        feed = self._feeds.get(event.run)
        if feed is not None:
            feed.hear(event)

    def _forget(self, entry: Entry) -> None:
        """From its outcome on, a text is in the journal."""
        match entry.event:
            case ModelAsked():
                self._asked.setdefault(entry.run, {})[entry.place] = entry.seq
            case Performed():
                seq = self._asked.get(entry.run, {}).pop(entry.place, 0)
                self.flows.get(entry.run, {}).pop(seq, None)
            case Suspended() | RunFinished():
                self.flows.pop(entry.run, None)
                self._asked.pop(entry.run, None)
            case _:
                pass

    async def _look(self) -> None:
        while self._feeds:
            await asyncio.sleep(0.2)
            now = time.monotonic()
            for feed in list(self._feeds.values()):
                if not self.service.engine.drives(feed.run):
                    with suppress(CuebookError):
                        await feed.look(now)
