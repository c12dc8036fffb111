"""One reader's event stream for a run: everything that happens after a position, each event and each character once.

An encoder turns entries into events: those of the page, or plain JSON. This module tracks the order and the reader's position.
A position is the id of an event. `17.1~15.240.9f3a21bc` means that the following was sent: all records before the 17th, one event
of the 17th, and the first 240 characters of the model call's text in record 15, whose checksum follows. The checksum
shows whether the text has started over since. A fourth part is the checksum of all the text that the panels showed before
its last piece was sent; one that begins with `n` is the number of rendered blocks that were sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from cuebook.kernel.events import Performed, RunFinished
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply
from cuebook.service.stream import Calls, Feed
from cuebook.surfaces.web.problems import Problem

HEARTBEAT = 15.0
"""Seconds after which an idle stream sends a heartbeat."""


_TEXT = r"~\d{1,9}\.\d{1,9}\.[0-9a-f]{8}(?:\.[0-9a-f]{8})?(?:\.n\d{1,6})?"
_ID = re.compile(rf"(\d{{1,9}})(?:\.(\d{{1,6}}))?((?:{_TEXT}){{0,200}})", re.ASCII)


# --- positions ---


class Sent(NamedTuple):
    """How much of a model call's text was sent: characters, and their checksum."""

    length: int = 0
    check: int = 0
    drawn: int = 0
    """The checksum of the text with its next piece, if the panels that this piece changes were sent already."""
    blocks: int = 0
    """How many rendered blocks of its step were sent."""

    def plus(self, piece: str) -> Sent:
        check = crc32(piece.encode("utf-8", "surrogatepass"), self.check)
        return Sent(self.length + len(piece), check, blocks=self.blocks)

    def begins(self, text: str) -> bool:
        """Whether this text starts with what was sent."""
        return len(text) >= self.length and Sent().plus(text[: self.length]).check == self.check

    def __str__(self) -> str:
        drawn, blocks = f".{self.drawn:08x}" if self.drawn else "", f".n{self.blocks}" if self.blocks else ""
        return f"{self.length}.{self.check:08x}{drawn}{blocks}"


NOTHING = Sent()


class Position(NamedTuple):
    """All records before `record` were sent, the first `number` events of `record`, and part of each streaming text."""

    record: int = 1
    number: int = 0
    texts: Mapping[int, Sent] = {}

    def __str__(self) -> str:
        texts = (f"~{seq}.{sent}" for seq, sent in sorted(self.texts.items()) if sent != NOTHING)
        return f"{self.record}.{self.number}{''.join(texts)}"

    @classmethod
    def read(cls, id: str) -> Position:
        """Parse an event's id; an empty id or 0 is the beginning."""
        if id in ("", "0"):
            return cls()
        found = _ID.fullmatch(id)
        if found is None:
            raise Problem(400, "bad_event_id", "Invalid event id.", fix="Pass an id that the stream sent, or none.")
        texts: dict[int, Sent] = {}
        for part in found[3].split("~")[1:]:
            seq, length, *more = part.split(".")
            blocks = more.pop().removeprefix("n") if more[-1].startswith("n") else "0"
            check, drawn = (*(int(one, 16) for one in more), 0)[:2]
            texts[int(seq)] = Sent(int(length), check, drawn, int(blocks))
        return cls(int(found[1]), int(found[2] or 0), texts)


# --- events ---


class Event(NamedTuple):
    name: str
    data: dict[str, Any]


class SentEvent(NamedTuple):
    event: Event
    id: str
    """The position of a reader who has received it."""


class Encoder(Protocol):
    """Turns journal entries into events. It sees every entry once, in order."""

    def skip(self, entry: Entry) -> None:
        """Apply an entry that the reader already has."""

    def encode(self, entry: Entry) -> list[Event]:
        """The events of an entry: always the same for the same entries."""

    def text(self, asked: Entry, text: str, sent: int) -> tuple[Event | None, Event]:
        """The text of a model call after its first `sent` characters, which were already sent: an event for other parts that
        it changes, if any, and the event with the rest of the text.
        """

    def blocks(self, asked: Entry, text: str, sent: int) -> tuple[Event, int] | None:
        """The event with the rendered blocks of a model call's text after its first `sent` blocks, and how many there are now;
        None if there are no more.
        """

    def restart(self, asked: Entry) -> Event:
        """The event for a model call whose text starts again: the part already sent is void."""


Notice = Callable[[], Awaitable[Event | None]]
"""Returns an event that has no journal entry, if there is one."""


async def _no_notice() -> Event | None:
    return None


class Reader:
    """One reader of one run."""

    def __init__(
        self, feed: Feed, encoder: Encoder, after: Position, *, continued: bool = False, notice: Notice = _no_notice
    ) -> None:
        """With `continued`, an end of the run that the reader already has does not count. A `notice` does not change the
        reader's position.
        """
        self._continued = continued
        self._notice = notice
        self._feed = feed
        self._encoder = encoder
        self._calls = Calls()
        self._seq = 0
        """The last record that was read."""
        self._after = after
        self._texts: dict[int, Sent] = dict(after.texts)
        self._tries: dict[int, int] = {}
        self._next, self._index = after.record, after.number
        self.ended = False
        """Whether everything was sent and no more will follow."""

    @property
    def position(self) -> Position:
        return Position(self._next, self._index, dict(self._texts))

    async def events(self, *, follow: bool = True) -> AsyncIterator[SentEvent | None]:
        """The events to send; None as a heartbeat while there is nothing to send."""
        while True:
            bell = self._feed.bell
            last: Entry | None = None
            async for entry in self._feed.after(self._seq):
                last = entry
                for event in self._entry(entry):
                    yield event
            if last is not None:
                self._feed.remember(last)
            for event in self._under_way():
                yield event
            if not follow or self.ended:
                return
            notice = await self._notice()
            if notice is not None:
                yield self._at(notice)
            if bell.is_set():
                continue
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await bell.wait()
            except TimeoutError:
                yield None

    # --- inside ---

    def _entry(self, entry: Entry) -> Iterator[SentEvent]:
        self._seq = entry.seq
        self.ended = isinstance(entry.event, RunFinished) and not self._continued
        if entry.seq < self._after.record:
            self._encoder.skip(entry)
            self._calls.see(entry)
            return
        begun = self._after.number if entry.seq == self._after.record else 0
        if not begun:
            self._next, self._index = entry.seq, 0
            yield from self._rest_of_text(entry)
        self._calls.see(entry)
        self._texts = {seq: sent for seq, sent in self._texts.items() if seq in self._calls.open}
        for number, event in enumerate(self._encoder.encode(entry), start=1):
            if number > begun:
                self._next, self._index = entry.seq, number
                self.ended = isinstance(entry.event, RunFinished)
                yield self._at(event)
        self._next, self._index = entry.seq + 1, 0

    def _rest_of_text(self, entry: Entry) -> Iterator[SentEvent]:
        """The rest of a call's text, which is always sent before its outcome."""
        seq = self._calls.ended_by(entry)
        if seq is None or not isinstance(entry.event, Performed) or not isinstance(entry.event.outcome, Reply):
            return
        reply = entry.event.outcome
        yield from self._text(seq, reply.text[: reply.released], known=False)

    def _under_way(self) -> Iterator[SentEvent]:
        for seq in list(self._calls.open):
            flow = self._feed.flow(seq)
            if flow is None:
                continue
            known = seq in self._tries
            if self._tries.setdefault(seq, flow.tries) != flow.tries:
                self._tries[seq] = flow.tries
                yield from self._restart(seq)
            yield from self._text(seq, flow.text, known=known)

    def _text(self, seq: int, text: str, *, known: bool) -> Iterator[SentEvent]:
        """The rest of a call's text. Unless it is `known` to be the same, the text may have started again."""
        if not known and not self._texts.get(seq, NOTHING).begins(text):
            yield from self._restart(seq)
        sent = self._texts.get(seq, NOTHING)
        piece = text[sent.length :]
        if piece:
            other, content = self._encoder.text(self._calls.open[seq], text, sent.length)
            after = sent.plus(piece)
            if other is not None and sent.drawn != after.check:
                self._texts[seq] = sent._replace(drawn=after.check)
                yield self._at(other)
            self._texts[seq] = after
            yield self._at(content)
        if piece or not known:
            sent = self._texts.get(seq, NOTHING)
            found = self._encoder.blocks(self._calls.open[seq], text, sent.blocks)
            if found is not None:
                event, blocks = found
                self._texts[seq] = sent._replace(blocks=blocks)
                yield self._at(event)

    def _restart(self, seq: int) -> Iterator[SentEvent]:
        if self._texts.pop(seq, NOTHING) != NOTHING:
            yield self._at(self._encoder.restart(self._calls.open[seq]))

    def _at(self, event: Event) -> SentEvent:
        return SentEvent(event, str(self.position))
