"""Everything that happens in a run, in order and to the character: what is in its journal, and texts as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from cuebook.kernel.engine import Engine
from cuebook.kernel.events import (
    ENDED,
    WAITING,
    ModelAsked,
    Performed,
    RunFinished,
    Suspended,
    TextChunk,
    TextReset,
)
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import Reply
from cuebook.views import Shown


class Listening:
    """Hears what an engine does, and remembers the texts under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._live: dict[str, dict[int, tuple[str, list[str]]]] = {}
        """The texts under way of each run, by the attempt's record: the step, and what has come so far."""
        self._asked: dict[tuple[str, Place], int] = {}
        engine.observe(self._remember_text)

    async def events(self, run: str, after: str, *, follow: bool) -> AsyncIterator[Entry | TextChunk | TextReset]:
        """Everything after an event id, then what happens, until the run waits or ends."""
        number, _, offset = after.partition(".")
        seq = int(number)
        texts = Shown()
        live: asyncio.Queue[Entry | TextChunk | TextReset] = asyncio.Queue()
        stop = self._engine.observe(lambda event: live.put_nowait(event) if event.run == run else None)
        try:
            rest = await self._rest_of_text(run, seq, int(offset)) if offset else None
            if rest is not None:
                yield texts.showing(rest)
            while True:
                async for entry in self._engine.entries(run, seq):
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
                # A chunk whose call is not read from the journal yet comes with it, in the next round.
                if isinstance(event, TextReset) or (
                    isinstance(event, TextChunk) and event.seq <= seq and texts.lacks(event)
                ):
                    yield texts.showing(event)
        finally:
            stop()

    # --- inside ---

    async def _at_rest(self, run: str, seq: int) -> bool:
        row = await self._store.run(run)
        if row.status not in ENDED and row.status not in WAITING:
            return False
        return not [1 async for _ in self._store.records(run, seq)]

    async def _rest_of_text(self, run: str, seq: int, offset: int, *, live: bool = False) -> TextChunk | None:
        if seq in self._live.get(run, {}):
            step, pieces = self._live[run][seq]
            text = "".join(pieces)
            return TextChunk(run, seq, step, offset, text[offset:]) if text[offset:] else None
        if live:
            return None
        asked: Entry | None = None
        async for entry in self._engine.entries(run, seq - 1):
            if asked is None:
                asked = entry
            elif isinstance(entry.event, Performed) and entry.place == asked.place:
                outcome = entry.event.outcome
                shown = outcome.text[: outcome.released] if isinstance(outcome, Reply) else ""
                return TextChunk(run, seq, entry.place.step, offset, shown[offset:]) if shown[offset:] else None
        return None

    def _remember_text(self, event: Entry | TextChunk | TextReset) -> None:
        if isinstance(event, TextChunk):
            texts = self._live.setdefault(event.run, {})
            texts.setdefault(event.seq, (event.step, []))[1].append(event.text)
        elif isinstance(event, TextReset):
            self._live.get(event.run, {}).pop(event.seq, None)
        elif isinstance(event.event, ModelAsked):
            self._asked[event.run, event.place] = event.seq
        elif isinstance(event.event, Performed):  # from now on its text is in the journal
            seq = self._asked.pop((event.run, event.place), 0)
            self._live.get(event.run, {}).pop(seq, None)
        elif isinstance(event.event, Suspended | RunFinished):
            self._live.pop(event.run, None)
