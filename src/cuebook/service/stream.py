"""Follows runs: their journals in order, and streaming text character by character.

Runs in this process are followed through the engine, including streaming text; runs in other processes through the
store, at intervals, and through the notices of a shared store, including streaming text from its beginning. Streaming
text is buffered once for all readers. A bell wakes a reader, which reads what it missed from the store.
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
from cuebook.service.shared_text import Flow, SharedText

Event: TypeAlias = Entry | TextChunk | TextReset
"""An event for the readers of a run: a record, or a piece of streaming text."""
T = TypeVar("T")

TEXT_EVERY = 0.025
"""Seconds between two bells for text; a person does not see more frequent updates."""
_PER_READER = 0.0005
"""The same for each reader of the process, so that hundreds of open pages leave time for other work."""
_MOST_BETWEEN = 0.2
TENANT_SLOTS = "tenant:"
"""How the names of the limits on the runs of a tenant begin."""
_KEPT = 200
"""The number of recent entries of a run to keep for readers."""
_BETWEEN_READS = 0.1
"""Seconds between two reads of a run that rests."""
_SOONEST, _LATEST = 0.4, 2.0
"""Seconds between two reads of the store, with and without news."""


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

    def begin(self, entry: Entry, offset: str) -> None:
        """Starts after an entry; if it is a model call, after so many characters of its text."""
        if isinstance(entry.event, ModelAsked):
            self._asked[entry.place] = entry.seq
            if offset:
                self._until.setdefault(entry.seq, int(offset))

    def unseen(self, chunk: TextChunk) -> TextChunk | None:
        """The part of a chunk that the reader has not seen."""
        seen = self._until.get(chunk.seq, 0) - chunk.offset
        if seen <= 0:
            return chunk
        text = chunk.text[seen:]
        return TextChunk(chunk.run, chunk.seq, chunk.step, chunk.offset + seen, text) if text else None

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
        """When text rang the bell last."""
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
        if self._ringing is not None:
            self._ringing.cancel()
            self._ringing = None
        self.bell.set()
        self.bell = asyncio.Event()

    def _ring_for_text(self) -> None:
        """Rings at once for the first piece after a pause; the pieces that soon follow share a bell."""
        if self._ringing is not None:
            return
        now = time.monotonic()
        left = self._rung + self._stream.text_every - now
        self._rung = now + max(0.0, left)
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
        self._reading = False
        """Whether it reads the events from the stream, which include those of this process."""

    def listen(self) -> None:
        """Passes on everything that this process does in the run, until `stop`."""
        self._stop = self._stream.observe(self._hear)

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
        over = asyncio.Event()
        self._reading = True
        reading = asyncio.create_task(self._read(over))
        try:
            result = await released
            over.set()
            await asyncio.wait([reading], timeout=1.0)
            return result
        finally:
            self._reading = False
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, over: asyncio.Event) -> None:
        """Reads until the run rests and the caller knows it. Before, it may rest only because no process took it yet."""
        while True:
            last = over.is_set()
            async for event in self._stream.events(self.run, str(self.seq), follow=True):
                self._pass_on(event)
            if last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_BETWEEN_READS):
                    await over.wait()

    def _hear(self, event: Event) -> None:
        if event.run == self.run and not self._reading:
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
        """The streaming text of runs that this process drives or follows, by the record of its call."""
        self._feeds: dict[str, Feed] = {}
        self._asked: dict[str, dict[Place, int]] = {}
        """The record of each open model call in this process."""
        self._looking: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._followed: Counter[str] = Counter()
        """How many readers of `events` follow each run."""
        self._on_ready: list[Callable[[], None]] = []
        self._texts = SharedText(engine, self.flows, self._follows)
        engine.observe(self._hear)
        engine.observe(self._share)

    async def listen(self, on_ready: Callable[[], None] | None = None) -> None:
        """Listens to the other processes that share the store; `on_ready` is called when a run may be ready."""
        if on_ready is not None:
            self._on_ready.append(on_ready)
        await asyncio.shield(self._listen())

    async def events(self, run: str, after: str, *, follow: bool) -> AsyncIterator[Event]:
        """Yields the events after an event id, and then new events until the run waits or ends."""
        number, _, offset = after.partition(".")
        seq = int(number)
        texts = Shown()
        live: asyncio.Queue[Event] = asyncio.Queue()
        stop = self.observe(lambda event: live.put_nowait(event) if event.run == run else None)
        first = not self._follows(run)
        self._followed[run] += follow
        try:
            if follow:
                await self.listen()
                if first:
                    self._texts.catch_up(run)
            rest = await self._rest_of_text(run, seq, int(offset or 0), live=not offset)
            if rest is not None:
                yield texts.showing(rest)
            before = max(0, seq - 1)
            while True:
                async for entry in self.entries(run, before):
                    if entry.seq <= seq:
                        texts.begin(entry, offset)
                        continue
                    seq = entry.seq
                    rest = texts.rest_before(entry)
                    if rest is not None:
                        yield rest
                    yield entry
                    if isinstance(entry.event, ModelAsked):
                        rest = await self._rest_of_text(run, seq, 0, live=True)
                        if rest is not None:
                            yield texts.showing(rest)
                before = seq
                if not follow or await self._at_rest(run, seq):
                    return
                try:
                    async with asyncio.timeout(0.2):
                        event = await live.get()
                except TimeoutError:
                    continue
                # A chunk of a call that has not been read from the journal yet follows with the call in the next round.
                if isinstance(event, TextReset):
                    yield texts.showing(event)
                elif isinstance(event, TextChunk) and event.seq <= seq:
                    rest = texts.unseen(event)
                    if rest is not None:
                        yield texts.showing(rest)
        finally:
            stop()
            self._followed[run] -= follow
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
        if not self._follows(run):
            self._listen().add_done_callback(lambda _: self._texts.catch_up(run))
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

    @property
    def text_every(self) -> float:
        """Seconds between two bells for text: the more readers, the longer."""
        return min(_MOST_BETWEEN, max(TEXT_EVERY, _PER_READER * self.readers))

    async def close(self) -> None:
        """Stops reading what other processes write."""
        await self._texts.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None

    # --- inside ---

    def _listen(self) -> asyncio.Task[None]:
        """The task that begins to listen."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._store.listen(self._noticed))
        return self._listening

    def _follows(self, run: str) -> bool:
        return run in self._feeds or bool(self._followed[run])

    def _unfollow(self, run: str) -> None:
        """Drops the texts of another process's run when its last reader has left."""
        if not self._followed[run]:
            del self._followed[run]
            if run not in self._feeds and not self._engine.drives(run):
                self.flows.pop(run, None)
                self._asked.pop(run, None)
                self._texts.forget(run)

    def _share(self, event: Event) -> None:
        """Sends text of runs that this process drives to the others, and listens for their requests."""
        if not isinstance(event, Entry) and self._store.shared and self._engine.drives(event.run):
            self._listen()
            self._store.share(event)

    def _noticed(self, notice: Notice) -> None:
        if notice.kind == "text":
            self._texts.hear(notice)
            return
        if notice.kind == "resend":
            self._texts.asked(notice.run)
            return
        if notice.kind == "slot":
            self._engine.slots.heard(notice.slot)
            if notice.slot.startswith(TENANT_SLOTS) or not notice.slot:
                self._ready()
            return
        self._ready()
        if not notice.sender:
            self._connected()
        for feed in list(self._feeds.values()):
            if notice.run in ("", feed.run) and not self._engine.drives(feed.run):
                feed.look_soon()

    def _connected(self) -> None:
        """Makes up for notices of text, and requests for it, that were missed before."""
        for run in list(self.flows):
            self._texts.asked(run)
        if self._listen().done():  # otherwise readers wait until this process listens, and then ask
            for run in {*self._feeds, *self._followed}:
                self._texts.catch_up(run)

    def _ready(self) -> None:
        for ready in self._on_ready:
            ready()

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
