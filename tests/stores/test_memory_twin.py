"""The SQLite and in-memory stores return the same results for any sequence of operations."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import Checkpointed, Driven, RunFinished
from cuebook.kernel.journal import verify
from cuebook.kernel.ports import Batch, Store
from cuebook.kernel.run import RunRow, Signal, StepRow
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import new_row
from tests.support.records import RecordWriter, create, fork, long, wait_row

RUNS = ("a", "a", "b", "c")
DRIVERS = ("d1", "d2")
BRANCH = "#0.0[0]/"
KINDS = ("plain", "open", "open", "close", "take", "checkpoint", "rewind")
BEGINNING: tuple[tuple[Any, ...], ...] = (
    ("create", "a"),
    ("heartbeat", "d1"),
    ("claim", "a", "d1"),
    ("append", "a", "d1", "open"),
    ("append", "a", "d1", "open"),
)
"""A run with two questions, so that every sequence has something to act on."""

run, driver = st.sampled_from(RUNS), st.sampled_from(("d1", *DRIVERS))
operation = st.one_of(
    st.tuples(st.just("create"), run),
    st.tuples(st.just("fork"), run, run, st.integers(2, 6)),
    st.tuples(st.just("claim"), run, driver),
    st.tuples(st.just("append"), run, driver, st.sampled_from(KINDS)),
    st.tuples(st.just("release"), run, driver, st.booleans(), st.sampled_from(["paused", "failed", "completed"])),
    st.tuples(st.just("news"), run),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("signal"), run, st.sampled_from(["cancel", "retry", "message", "late"])),
    st.tuples(st.just("expire")),
    st.tuples(st.just("heartbeat"), driver),
    st.tuples(st.just("retire"), driver),
    st.tuples(st.just("later"), st.integers(1, 8)),
)


class Script:
    """Plays operations on one store and notes every answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 100.0
        self.writers: dict[tuple[str, str], RecordWriter] = {}
        self.rows: dict[str, RunRow] = {}
        self.signals: dict[str, list[int]] = {}
        self.waits = 0
        self.opened: list[str] = []

    async def play(self, said: tuple[Any, ...]) -> Any:
        try:
            answer = await getattr(self, f"_{said[0]}")(*said[1:])
        except CuebookError as error:
            answer = type(error).__name__
        return msgspec.to_builtins(answer), await self._everything()

    async def _everything(self) -> Any:
        store = self.store
        runs = sorted(row.id for row in await store.runs())
        seen: dict[str, Any] = {
            "ready": [sorted(await store.ready(self.now, name)) for name in DRIVERS],
            "called": [sorted(await store.called(name)) for name in DRIVERS],
            "expiry": await store.next_expiry(),
            "waits": sorted(wait.id for wait in await store.waits()),
        }
        for name in runs:
            row = await store.run(name)
            records = [record async for record in store.records(name)]
            assert verify(records).broken_at is None
            seen[name] = [
                (row.status, row.epoch, row.driver, row.parent, row.parent_seq),
                [(record.run, record.seq, record.kind) for record in records],
                await store.steps(name),
                await store.alive(name),
            ]
        return msgspec.to_builtins(seen)

    async def _create(self, name: str) -> None:
        row = new_row("hand", name)
        row.created = row.updated = self.now
        await create(self.store, name, row)

    async def _fork(self, parent: str, name: str, seq: int) -> None:
        if len([r async for r in self.store.records(parent)]) >= seq - 1:
            await fork(self.store, parent, name, seq)

    async def _claim(self, name: str, driver: str) -> Any:
        claim = await self.store.claim(name, driver, self.now)
        self.writers[name, driver] = RecordWriter.after(claim)
        self.rows[name] = claim.row
        self.signals[name] = [signal.id for signal in claim.signals]
        return (
            claim.row.epoch, claim.text, claim.inherited, claim.head[0], claim.steps,
            sorted((w.id, w.state, w.by) for w in claim.waits), [(s.kind, s.payload) for s in claim.signals],
        )  # fmt: skip

    def _batch(self, name: str, driver: str, what: str) -> Batch | None:
        writer = self.writers.get((name, driver))
        if writer is None:
            return None
        seq = writer.seq + 1
        match what:
            case "open":
                self.waits += 1
                expires = None if self.waits % 2 else self.now + 5
                kind = "in_doubt" if self.waits % 3 == 0 else "question"
                return writer.batch(
                    Driven("x"), opened=[wait_row(f"w{self.waits - 1}", name, expires, opened=self.now, kind=kind)]
                )
            case "close":
                return writer.batch(Driven("x"), closed=self.opened[-1:])
            case "take":
                return writer.batch(Driven("x"), taken=self.signals.pop(name, []))
            case "checkpoint":
                return writer.batch(Checkpointed(1, {}), checkpoints=[("", seq)])
            case "rewind":
                return writer.batch(Driven("x"), dropped=[(3, BRANCH)])
            case _:
                step = StepRow(BRANCH if seq % 2 else "", f"s{seq}", 1, status="running", seq=seq)
                return writer.batch(Driven(str(long())[:10]), steps=[step], row=self._row(name, "running"))

    def _row(self, name: str, status: Any) -> RunRow:
        return msgspec.structs.replace(self.rows[name], status=status)

    async def _append(self, name: str, driver: str, what: str) -> Any:
        batch = self._batch(name, driver, what)
        if batch is not None:
            await self.store.append(batch)
            self.opened += [wait.id for wait in batch.opened]

    async def _release(self, name: str, driver: str, unless_news: bool, status: Any) -> Any:
        writer = self.writers.get((name, driver))
        if writer is None:
            return None
        again = RecordWriter(name, writer.epoch, (writer.seq, writer.chain))
        batch = again.batch(RunFinished(status), row=self._row(name, status))
        done = await self.store.release(batch, unless_news=unless_news)
        if done:
            del self.writers[name, driver]
        return done

    async def _news(self, name: str) -> Any:
        if not any((name, driver) in self.writers for driver in DRIVERS):
            return None  # only who holds a run asks for its news
        news = await self.store.news(name)
        self.signals[name] = [signal.id for signal in news.signals]
        return sorted((w.id, w.state, w.by) for w in news.waits), [(s.kind, s.payload) for s in news.signals]

    async def _answer(self, number: int) -> Any:
        wait = f"w{self.waits - number}"
        done = await self.store.complete_wait(wait, {"value": "yes"}, "me", self.now)
        return done.id, done.state, done.answer, done.by

    async def _signal(self, name: str, kind: Any) -> None:
        payload = {"key": ["", "1", 1, 0], "outcome": {"is": "Done"}} if kind == "late" else {"value": 1}
        await self.store.signal(Signal(name, kind, payload, "me"))

    async def _expire(self) -> Any:
        return sorted(await self.store.expire(self.now))

    async def _heartbeat(self, driver: str) -> None:
        await self.store.heartbeat(driver, self.now)

    async def _retire(self, driver: str) -> None:
        await self.store.retire(driver)

    async def _later(self, seconds: int) -> None:
        self.now += seconds


async def play_on_both(path: Path, operations: list[tuple[Any, ...]]) -> None:
    file, memory = Script(SqliteStore(path, synchronous="NORMAL")), Script(MemoryStore())
    try:
        for number, said in enumerate([*BEGINNING, *operations]):
            assert await file.play(said) == await memory.play(said), f"{number}: {said}"
    finally:
        await file.store.close()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(operation, max_size=40))
def test_the_file_and_its_twin_agree(operations: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play_on_both(Path(folder) / "store.db", operations))
