"""Writes one run's journal: numbers, chains and folds records, and publishes them once they are durable.

It does not depend on programs: a driver passes it the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from cuebook.kernel.context import EMPTY, Block, Context, digest_of
from cuebook.kernel.errors import CuebookError, StoreError
from cuebook.kernel.events import KINDS, AnyEvent, TextChunk, TextReset
from cuebook.kernel.fold.state import RunState
from cuebook.kernel.journal import Codec, Entry, Place, added_to_known, seal, spill_context
from cuebook.kernel.ports import Batch, Claim, Outbox, Redactor, Store
from cuebook.kernel.run import RunRow
from cuebook.kernel.spending import Spending, Spent, utc_day

T = TypeVar("T")


class Audience(Protocol):
    """The receiver of written entries."""

    @property
    def observed(self) -> bool: ...

    def publish(self, event: Entry | TextChunk | TextReset) -> None: ...


class JournalWriter:
    """Collects records and writes them in batches, in order."""

    def __init__(
        self,
        store: Store,
        codec: Codec,
        claim: Claim,
        clock: Callable[[], float],
        audience: Audience,
        redactor: Redactor,
        outboxes: Sequence[Outbox] = (),
        *,
        charged: RunRow | None = None,
        day: Callable[[float], str] = utc_day,
    ) -> None:
        """`charged` is the run that a person started, if this one is a child of it; `day` is the day of a moment."""
        self._store = store
        self._codec = codec
        self._clock = clock
        self._audience = audience
        self._redactor = redactor
        self._outboxes = outboxes
        self.run = claim.row.id
        self.epoch = claim.row.epoch
        self.state = RunState(claim.row, claim.steps)
        self.state.on_spent = self._spend
        self._charged = charged or claim.row
        self._day = day
        self._spent: dict[tuple[str, ...], Spending] = {}
        self.seq, self._chain = claim.head
        self.broken: BaseException | None = None
        """The error after which nothing more can be written."""
        self.on_broken: Callable[[], None] = lambda: None
        self._known_contexts: set[str] = set()
        self._scheduled = False
        self._under_way: asyncio.Future[None] | None = None
        """The last append."""
        self._batch = Batch(self.run, self.epoch, [], True)
        self._texts: dict[str, str] = {}
        self._stored: set[str] = set()
        """Stored texts that the new records refer to."""
        self._entries: list[Entry] = []

    def note(self, event: AnyEvent, place: Place, **also: Any) -> int:
        """Adds a record without waiting for it; it is written soon, together with the next ones. Returns its number."""
        seq = self._add(event, place, also)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_scheduled)
        return seq

    async def commit(self, event: AnyEvent, place: Place, outcome: T, **also: Any) -> tuple[int, T]:
        """Adds a record and writes everything up to it; returns its number, and the outcome in it, when it is durable."""
        seq = self._add(event, place, also)
        try:
            await self.flush(awaited=True)
        except CuebookError as error:
            self._break(error)
            raise
        return seq, outcome

    def begin(self, event: AnyEvent, place: Place) -> asyncio.Future[None]:
        """Adds a record and begins to write everything up to it; the returned future is done once that is durable.

        The caller shields it: the record stays valid even if the waiting task is cancelled.
        """
        self._add(event, place, {})
        return self.flush()

    def keep_context(self, context: Context) -> tuple[str, tuple[Block, ...]]:
        """Stores a model's context, each block once. Returns the blocks that belong in the call's own record, and the digest
        of the context before them."""
        known = self._known_contexts
        added = added_to_known(context, known)
        if added is not None:
            blocks = tuple([node.block for node in added if node.block is not None])
            if self._redactor.value(blocks) is blocks:  # a masked block would not match its digest
                known.update([node.digest for node in added])
                return (added[0].parent or EMPTY).digest if added else "", blocks
        spill_context(context, known, self._texts)
        return "", ()

    def keep_text(self, text: str) -> dict[str, Any]:
        """Stores a text with the next record; returns a reference to it."""
        digest = digest_of(text)
        self._texts[digest] = text
        return {"digest": digest, "length": len(text)}

    async def settle(self) -> None:
        """Writes everything that was added so far."""
        if self._entries:
            await self.flush()
        elif self._under_way is not None and not self._under_way.done():
            await asyncio.shield(self._under_way)

    def flush(self, awaited: bool = False) -> asyncio.Future[None]:
        batch, entries = self._take()
        if self.broken is not None:
            raise self.broken
        done = self._under_way = self._store.append(batch)
        if not awaited or self._audience.observed:
            done.add_done_callback(lambda future: self._written(future, entries))
        return done

    async def release(self, event: AnyEvent, place: Place, *, unless_news: bool) -> bool:
        """Writes a last record and gives up the run; if there is news, does neither."""
        if self._entries and unless_news:
            await self.flush()
        elif self._under_way is not None and not self._under_way.done():
            await asyncio.shield(self._under_way)  # what is left is written with the last record
        before, restore = (self.seq, self._chain), self.state.saved() if unless_news else None
        self._add(event, place, {})
        batch, entries = self._take()
        if not await self._store.release(batch, unless_news=unless_news):
            self.seq, self._chain = before
            if restore is not None:
                restore()
            return False
        self._let_go()
        self.broken = StoreError(f"Run {self.run} was given up: nothing more can be written from here.")
        for entry in entries:
            self._audience.publish(entry)
        return True

    async def end_with(self, event: AnyEvent, write: Callable[[Batch], Awaitable[None]]) -> None:
        """Writes a last record and gives up the run, in the transaction of another write."""
        self._add(event, Place(), {})
        batch, entries = self._take()
        await write(batch)
        self._let_go()
        self.broken = StoreError(f"Run {self.run} was given up: nothing more can be written from here.")
        for entry in entries:
            self._audience.publish(entry)

    async def hand_over(self) -> None:
        """Writes what is left and gives up the run in the middle: another process continues it."""
        if self._entries:
            await self.flush()
        await self.give_up()

    async def give_up(self) -> None:
        """Gives up the run without writing anything."""
        await self._store.release(Batch(self.run, self.epoch, []), unless_news=False)
        self._let_go()

    # --- inside ---

    def _let_go(self) -> None:
        self.state.row.driver = ""
        self.state.row.epoch = self.epoch + 1

    def _add(self, event: AnyEvent, place: Place, also: dict[str, Any]) -> int:
        event = self._redactor.value(event)
        body = self._codec.encode(event, self._texts)
        self._stored.update(self._codec.take_stored())
        seq, at = self.seq + 1, self._clock()
        record = seal(self.run, seq, at, self.epoch, place, KINDS[type(event)], body, self._chain)
        self.seq, self._chain = seq, record.chain
        self._batch.records.append(record)
        entry = Entry(self.run, seq, at, place, event)
        self._entries.append(entry)
        self.state.apply(entry)
        if also:
            self._batch.plain = False
            for name, values in also.items():
                setattr(self._batch, name, [*getattr(self._batch, name), *values])
        return seq

    def _take(self) -> tuple[Batch, list[Entry]]:
        batch, entries = self._batch, self._entries
        if self.state.changed:
            batch.plain = False
            batch.row, batch.steps, batch.dropped = self.state.take_changes()
        if self._texts:
            batch.plain = False
            batch.texts, self._texts = self._texts, {}
        if self._stored:
            batch.plain = False
            batch.stored, self._stored = sorted(self._stored), set()
        if self._spent:
            batch.plain = False
            batch.spent, self._spent = [*batch.spent, *self._spent.values()], {}
        if self._outboxes and not batch.plain:
            batch.jobs = [job for of in self._outboxes for job in of(self.state.row, entries, batch.opened)]
        self._batch, self._entries = Batch(self.run, self.epoch, [], True), []
        return batch, entries

    def _spend(self, spent: Spent) -> None:
        row, usage = self._charged, spent.usage
        one = Spending(row.tenant, self._day(spent.at), row.owner, row.name, spent.model, unknown_costs=spent.begun)
        if usage is not None:
            one.calls, one.input, one.output = 1, usage.input, usage.output
            one.cached, one.reasoning = usage.cached, usage.reasoning
            one.cost, one.unknown_costs = usage.cost or 0.0, one.unknown_costs + (usage.cost is None)
        known = self._spent.setdefault(one.key, one)
        if known is not one:
            known.add(one)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        if self._entries and self.broken is None:
            self.flush()

    def _written(self, future: asyncio.Future[None], entries: list[Entry]) -> None:
        if future.cancelled():  # the run is being dropped: its followers read the store
            return
        error = future.exception()
        if error is not None:
            self._break(error)
            return
        for entry in entries:
            self._audience.publish(entry)

    def _break(self, error: BaseException) -> None:
        if self.broken is None:
            self.broken = error
            self.on_broken()
