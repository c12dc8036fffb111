"""Follows runs: their journals in order, and streaming text character by character.

Runs in this process are followed through the engine, including streaming text; runs in other processes through the
store, at intervals. Streaming text is buffered once for all readers. A bell wakes a reader, which reads what it missed
from the store.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import (
    ENDED,
    WAITING,
    ModelAsked,
    Performed,
    Rewound,
    RunFinished,
    Suspended,
    TextChunk,
    TextReset,
)
from cuebook.kernel.journal import Entry, Place, same_line
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Notice

Event: TypeAlias = Entry | TextChunk | TextReset
"""An event for the readers of a run: a record, or a piece of streaming text."""
T = TypeVar("T")

TEXT_EVERY = 0.09
"""Seconds between two bells for text; a page does not need more frequent updates."""
_KEPT = 200
"""The number of recent entries of a run to keep for readers."""
_SOONEST, _LATEST = 0.4, 2.0
"""Seconds between two reads of the store, with and without news."""


class Flow:
    """Streaming text: one model call's reply so far."""

    def __init__(self, step: str) -> None:
        self.step = step
        self._pieces: list[str] = []
        self.tries = 1
        """The number of attempts."""

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


class Calls:
    """The open model calls, by the number of their record, in order."""

    def __init__(self) -> None:
        self.open: dict[int, Entry] = {}

    def see(self, entry: Entry) -> int | None:
        """Adds the next entry. Returns the record of the call that it ends."""
        match entry.event:
            case ModelAsked():
                self._leave(lambda asked: asked.place.key == entry.place.key)  # the earlier call was lost
                self.open[entry.seq] = entry
            case Performed():
                return self.ended_by(entry, forget=True)
            case Rewound(seq=seq, path=path):
                self._leave(lambda asked: asked.seq >= seq and same_line(asked.place.path, path))
            case RunFinished() | Suspended():
                self.open.clear()
            case _:
                pass
        return None

    def ended_by(self, entry: Entry, *, forget: bool = False) -> int | None:
        """The record of the call with this outcome."""
        if not isinstance(entry.event, Performed):
            return None
        seq = next((seq for seq, asked in self.open.items() if asked.place == entry.place), None)
        if seq is not None and forget:
            del self.open[seq]
        return seq

    def _leave(self, lost: Callable[[Entry], bool]) -> None:
        for seq in [seq for seq, asked in self.open.items() if lost(asked)]:
            del self.open[seq]


class Shown:
    """How much of a run's streaming text one reader has seen."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}
        self._asked: dict[Place, int] = {}

    def showing(self, event: TextChunk | TextReset) -> TextChunk | TextReset:
        self._until[event.seq] = event.offset + len(event.text) if isinstance(event, TextChunk) else 0
        return event

    def lacks(self, chunk: TextChunk) -> bool:
        return chunk.offset >= self._until.get(chunk.seq, 0)

    def rest_before(self, entry: Entry) -> TextChunk | None:
        """The rest of a text that the reader has partly seen. It comes before the outcome, even for a slow reader."""
        event = entry.event
        if isinstance(event, ModelAsked):
            self._asked[entry.place] = entry.seq
        if not isinstance(event, Performed):
            return None
        seq = self._asked.pop(entry.place, 0)
        until = self._until.pop(seq, None)
        self._until[seq] = 1 << 62  # the rest of it in the queue counts as seen
        if until is None or not isinstance(event.outcome, Reply):
            return None
        text = event.outcome.text[: event.outcome.released][until:]
        return TextChunk(entry.run, seq, entry.place.step, until, text) if text else None


class Feed:
    """A run with readers."""

    def __init__(self, run: str, stream: Stream) -> None:
        self.run = run
        self.readers = 0
        self.bell = asyncio.Event()
        """Set and replaced when there is something to read."""
        self._stream = stream
        self._recent: deque[Entry] = deque(maxlen=_KEPT)
        self._rung = 0.0
        self._ringing: asyncio.TimerHandle | None = None
        self._pause, self._look_at = _SOONEST, 0.0
        self._hurry: asyncio.Task[None] | None = None

    def flow(self, seq: int) -> Flow | None:
        """The text of the call with this record, if this process streams it."""
        return self._stream.flows.get(self.run, {}).get(seq)

    async def after(self, seq: int) -> AsyncIterator[Entry]:
        """The entries after this entry, from memory if possible."""
        if self._recent and self._recent[0].seq <= seq + 1:
            for entry in [entry for entry in self._recent if entry.seq > seq]:
                yield entry
            return
        async for entry in self._stream.entries(self.run, seq):
            yield entry

    def hear(self, event: Event) -> None:
        if isinstance(event, Entry):
            if self._recent and event.seq != self._recent[-1].seq + 1:
                self._recent.clear()  # a gap or a repeated entry: readers use the store
            self._recent.append(event)
            self.ring()
        else:
            self._ring_for_text()

    async def look(self, now: float) -> None:
        """Reads the entries that another process has written."""
        if now < self._look_at:
            return
        last = self._recent[-1].seq if self._recent else None
        if last is None:
            self.ring()
            self._look_at = now + _SOONEST
            return
        news = [entry async for entry in self._stream.entries(self.run, last)]
        for entry in news:
            if entry.seq > self._recent[-1].seq:
                self._stream.forget_text(entry)
                self.hear(entry)
        self._pause = _SOONEST if news else min(_LATEST, self._pause * 1.5)
        self._look_at = now + self._pause

    def look_soon(self) -> None:
        """Looks at once: another process said that there is something."""
        self._look_at = 0.0
        if self._hurry is None or self._hurry.done():
            self._hurry = asyncio.get_running_loop().create_task(self._look_now())

    async def _look_now(self) -> None:
        with suppress(CuebookError):  # the next regular look reports it
            await self.look(time.monotonic())

    def remember(self, entry: Entry) -> None:
        """Keeps an entry that a reader has read; the next read of the store starts after it."""
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


class Follower:
    """Passes on each record of a run once, and streaming text from this process, however often the run waits and
    continues."""

    def __init__(self, stream: Stream, run: str, see: Callable[[Event], None], seq: int | None = None) -> None:
        """`seq` is the last record that the reader has seen. If None, the reader starts with the next event."""
        self.run = run
        self.seq = seq
        self._see = see
        self._stream = stream
        self._stop: Callable[[], None] | None = None

    def listen(self) -> None:
        """Passes on everything that this process does in the run, until `stop`."""
        self._stop = self._stream.observe(lambda event: self._pass_on(event) if event.run == self.run else None)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    async def catch_up(self) -> None:
        """Passes on the records that the reader has missed. For a fork, they include the parent's records."""
        if self.seq is not None:
            async for entry in self._stream.entries(self.run, self.seq):
                self._pass_on(entry)

    async def follow(self, released: Awaitable[T]) -> T:
        """Passes on what another process writes until it releases the run. Returns the result of `released`."""
        if self.seq is None:
            self.seq = await self._stream.last_seq(self.run)
        reading = asyncio.create_task(self._read())
        try:
            result = await released
            await asyncio.wait([reading], timeout=1.0)
            return result
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        async for event in self._stream.events(self.run, str(self.seq), follow=True):
            self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Entry):
            if self.seq is not None and event.seq <= self.seq:
                return
            self.seq = event.seq
        self._see(event)


class Stream:
    """Follows the runs of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self.entries = engine.entries
        self.observe = engine.observe
        self.flows: dict[str, dict[int, Flow]] = {}
        """The streaming text of runs in this process, by the record of its call."""
        self._feeds: dict[str, Feed] = {}
        self._asked: dict[str, dict[Place, int]] = {}
        """The record of each open model call in this process."""
        self._looking: asyncio.Task[None] | None = None
        self._listening = False
        self._followed: Counter[str] = Counter()
        """How many readers of `events` follow each run."""
        self._on_ready: list[Callable[[], None]] = []
        engine.observe(self._hear)
        engine.observe(self._share)

    async def listen(self, on_ready: Callable[[], None] | None = None) -> None:
        """Listens to the other processes that share the store; `on_ready` is called when a run may be ready."""
        if on_ready is not None:
            self._on_ready.append(on_ready)
        if not self._listening:
            self._listening = True
            await self._store.listen(self._noticed)

    async def events(self, run: str, after: str, *, follow: bool) -> AsyncIterator[Event]:
        """Yields the events after an event id, and then new events until the run waits or ends."""
        number, _, offset = after.partition(".")
        seq = int(number)
        texts = Shown()
        live: asyncio.Queue[Event] = asyncio.Queue()
        stop = self.observe(lambda event: live.put_nowait(event) if event.run == run else None)
        self._followed[run] += 1
        try:
            if follow:
                await self.listen()
            rest = await self._rest_of_text(run, seq, int(offset)) if offset else None
            if rest is not None:
                yield texts.showing(rest)
            while True:
                async for entry in self.entries(run, seq):
                    seq = entry.seq
                    rest = texts.rest_before(entry)
                    if rest is not None:
                        yield rest
                    yield entry
                    if isinstance(entry.event, ModelAsked):
                        rest = await self._rest_of_text(run, seq, 0, live=True)
                        if rest is not None:
                            yield texts.showing(rest)
                if not follow or await self._at_rest(run, seq):
                    return
                try:
                    async with asyncio.timeout(0.2):
                        event = await live.get()
                except TimeoutError:
                    continue
                # A chunk of a call that has not been read from the journal yet follows with the call in the next round.
                if isinstance(event, TextReset) or (
                    isinstance(event, TextChunk) and event.seq <= seq and texts.lacks(event)
                ):
                    yield texts.showing(event)
        finally:
            stop()
            self._followed[run] -= 1
            self._unfollow(run)

    async def last_seq(self, run: str) -> int:
        """The number of a run's last record."""
        last = 0
        async for record in self._store.records(run):
            last = record.seq
        return last

    @contextmanager
    def news(self, run: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set whenever this process writes a record of the run."""
        written = asyncio.Event()
        stop = self.observe(lambda event: written.set() if event.run == run and isinstance(event, Entry) else None)
        try:
            yield written
        finally:
            stop()

    @contextmanager
    def watch(self, run: str) -> Iterator[Feed]:
        """The feed of a run, which exists while it has readers."""
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
                self._unfollow(run)

    @property
    def readers(self) -> int:
        return sum(feed.readers for feed in self._feeds.values())

    async def close(self) -> None:
        """Stops reading what other processes write."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None

    # --- inside ---

    def _unfollow(self, run: str) -> None:
        """Drops the texts of another process's run when its last reader has left."""
        if not self._followed[run]:
            del self._followed[run]
            if run not in self._feeds and not self._engine.drives(run):
                self.flows.pop(run, None)
                self._asked.pop(run, None)

    def _share(self, event: Event) -> None:
        """Sends text of runs that this process drives to the others."""
        if not isinstance(event, Entry) and self._engine.drives(event.run):
            self._store.share(event)

    def _noticed(self, notice: Notice) -> None:
        if notice.kind == "text":
            self._hear_text(notice)
            return
        for ready in self._on_ready:
            ready()
        for feed in list(self._feeds.values()):
            if notice.run in ("", feed.run) and not self._engine.drives(feed.run):
                feed.look_soon()

    def _hear_text(self, notice: Notice) -> None:
        """Passes on text of another process, unless its beginning was missed: then it is shown when it is complete."""
        if self._engine.drives(notice.run) or not (notice.run in self._feeds or self._followed[notice.run]):
            return
        if notice.again:
            self._engine.publish(TextReset(notice.run, notice.seq, notice.step))
            return
        flow = self.flows.get(notice.run, {}).get(notice.seq)
        if notice.offset == (len(flow.text) if flow is not None else 0):
            self._engine.publish(TextChunk(notice.run, notice.seq, notice.step, notice.offset, notice.text))

    async def _at_rest(self, run: str, seq: int) -> bool:
        row = await self._store.run(run)
        if row.status not in ENDED and row.status not in WAITING:
            return False
        return not [1 async for _ in self._store.records(run, seq)]

    async def _rest_of_text(self, run: str, seq: int, offset: int, *, live: bool = False) -> TextChunk | None:
        flow = self.flows.get(run, {}).get(seq)
        if flow is not None and flow.text:
            text = flow.text[offset:]
            return TextChunk(run, seq, flow.step, offset, text) if text else None
        if live:
            return None
        asked: Entry | None = None
        async for entry in self.entries(run, seq - 1):
            if asked is None:
                asked = entry
            elif isinstance(entry.event, Performed) and entry.place == asked.place:
                outcome = entry.event.outcome
                shown = outcome.text[: outcome.released] if isinstance(outcome, Reply) else ""
                return TextChunk(run, seq, entry.place.step, offset, shown[offset:]) if shown[offset:] else None
        return None

    def _hear(self, event: Event) -> None:
        if isinstance(event, TextChunk):
            self.flows.setdefault(event.run, {}).setdefault(event.seq, Flow(event.step)).add(event.text)
        elif isinstance(event, TextReset):
            self.flows.setdefault(event.run, {}).setdefault(event.seq, Flow(event.step)).begin_again()
        else:
            self.forget_text(event)
        feed = self._feeds.get(event.run)
        if feed is not None:
            feed.hear(event)

    def forget_text(self, entry: Entry) -> None:
        """Drops the texts whose outcome is in the journal."""
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
        await self.listen()
        while self._feeds:
            await asyncio.sleep(0.2)
            now = time.monotonic()
            for feed in list(self._feeds.values()):
                if not self._engine.drives(feed.run):
                    with suppress(CuebookError):
                        await feed.look(now)
