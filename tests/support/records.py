"""Creates a run's records by hand, chained like real ones, for the store tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from cuebook.kernel.context import Text
from cuebook.kernel.events import AnyEvent, Driven, Forked, RunStarted
from cuebook.kernel.journal import GENESIS, ROOT, Codec, Place, Record, seal
from cuebook.kernel.ports import Batch, Claim, Store
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.stores import leases
from cuebook.stores.leases import Holder
from cuebook.system.process import birth_of, this_host
from tests.support.programs import new_row


def no_text(digest: str) -> str:
    raise AssertionError(f"nothing here loads {digest}")


class RecordWriter:
    """Creates the batches of one run, one after another."""

    def __init__(self, run: str = "run", epoch: int = 0, head: tuple[int, bytes] = (0, GENESIS)) -> None:
        self.run, self.epoch = run, epoch
        self.seq, self.chain = head
        self.codec = Codec(no_text)

    @classmethod
    def after(cls, claim: Claim) -> RecordWriter:
        return cls(claim.row.id, claim.row.epoch, claim.head)

    def batch(self, *events: AnyEvent, path: str = ROOT, **also: Any) -> Batch:
        texts: dict[str, str] = {}
        records: list[Record] = []
        for event in events:
            self.seq += 1
            body = self.codec.encode(event, texts)
            kind = type(event).__name__
            records.append(seal(self.run, self.seq, 1.0, self.epoch, Place(path), kind, body, self.chain))
            self.chain = records[-1].chain
        return Batch(self.run, self.epoch, records, texts=texts or None, **also)


async def create(store: Store, run: str = "run", row: RunRow | None = None) -> RecordWriter:
    """Creates a run with its first record; returns the writer for the next ones."""
    writer = RecordWriter(run)
    await store.create(row or new_row("hand", run), f"playbook of {run}", writer.batch(RunStarted({})))
    return writer


async def fork(store: Store, parent: str, run: str, seq: int) -> RecordWriter:
    """A run that begins after the records of `parent` before `seq`."""
    chain = [record.chain async for record in store.records(parent) if record.seq < seq][-1]
    row = new_row("hand", run)
    row.parent, row.parent_seq = parent, seq
    writer = RecordWriter(run, 0, (seq - 1, chain))
    await store.create(row, "text", writer.batch(Forked(parent, chain.hex(), ROOT, "", 0)))
    return writer


async def claim(store: Store, run: str = "run", driver: str = "d1", now: float = 0.0) -> RecordWriter:
    """Claims the run for a driver with its own lease; returns the writer for its records."""
    await store.heartbeat(driver, now)
    return RecordWriter.after(await store.claim(run, driver, now))


ELSEWHERE = ("another machine", 1, "1")
"""A process that cannot be inspected from here: host, id, start time."""


async def beat(store: Store, driver: str, process: tuple[str, int, str], now: float = 0.0) -> None:
    """A heartbeat of a driver in another process."""
    with patch.object(Holder, "here", lambda driver, now: Holder(driver, now + leases.LEASE, *process)):
        await store.heartbeat(driver, now)


def a_dead_process() -> tuple[str, int, str]:
    """A process of this machine that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = birth_of(process.pid)
    process.kill()
    process.communicate()
    return this_host(), process.pid, born


async def killed(store: Store, driver: str = "d1") -> None:
    """Makes the driver one whose process was killed."""
    await beat(store, driver, a_dead_process())


def driven(number: int = 1) -> list[Driven]:
    return [Driven(f"driver {n}") for n in range(number)]


def wait_row(wait: str = "w", run: str = "run", expires: float | None = None, **fields: Any) -> WaitRow:
    defaults: dict[str, Any] = {"tenant": "here", "owner": "me", "kind": "question", "opened": 1.0}
    return WaitRow(
        id=wait, run=run, place=Place("", "1", 1, 0), prompt="Well?", purpose="question", expires=expires,
        **{**defaults, **fields},
    )  # fmt: skip


async def kinds(store: Store, run: str = "run") -> list[str]:
    return [record.kind async for record in store.records(run)]


async def numbers(store: Store, run: str = "run", after: int = 0) -> list[int]:
    return [record.seq async for record in store.records(run, after)]


def long(letter: str = "x") -> Text:
    return Text(letter * 5000)


def ids(rows: Sequence[Any]) -> list[str]:
    return [row.id for row in rows]
