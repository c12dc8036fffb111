"""Journals recorded by each release and kept forever: every later version must be able to replay them.

`python -m tests.kernel.journals` records the journals of the current version into a folder named after it; a release
runs it once, and the files are never edited afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from cuebook import __version__
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import ENDED, WaitClosed, WaitOpened
from cuebook.kernel.fold.verify import projected
from cuebook.kernel.journal import Record
from cuebook.kernel.ports import Batch, Store
from cuebook.kernel.run import RunRow, Signal, WaitRow
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin, engine_on, new_row

HERE = Path(__file__).parent


class Kept(msgspec.Struct):
    """One recorded run: its row, its playbook, its long texts and its records."""

    row: RunRow
    text: str
    texts: dict[str, str]
    records: list[tuple[int, str, str, str, str, str]]
    """Number, path, kind, head and body as text, chain in base64."""
    result: Any = None

    def journal(self) -> list[Record]:
        return [
            Record(self.row.id, seq, path, kind, head.encode(), body.encode(), _bytes(chain))
            for seq, path, kind, head, body, chain in self.records
        ]


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _ascii(value: bytes) -> str:
    return base64.b64encode(value).decode()


async def put_into(store: Store, engine: Engine, kept: Kept) -> None:
    """Writes the recorded run to a store as if the store had written it itself."""
    records = kept.journal()
    entries = [engine.codec.entry(record) for record in records]
    row, steps = projected(msgspec.structs.replace(kept.row, driver=""), entries)
    opened = [
        WaitRow(
            id=event.wait, run=row.id, tenant=row.tenant, owner=row.owner, place=entry.place, kind=event.kind,
            prompt=event.prompt, purpose=event.purpose, type=event.type, options=event.options, default=event.default,
            expires=event.expires, details=event.details, opened=entry.at,
        )
        for entry in entries
        if isinstance(event := entry.event, WaitOpened)
    ]  # fmt: skip
    closed = [entry.event.wait for entry in entries if isinstance(entry.event, WaitClosed)]
    if row.status in ENDED:
        closed = [wait.id for wait in opened]
    batch = Batch(
        row.id, 0, records, row=row, steps=list(steps.values()), texts=kept.texts, opened=opened, closed=closed
    )
    await store.create(row, kept.text, batch)


async def record(folder: Path) -> None:
    for shape, waits in [
        ("counting", False), ("everything", False), ("everything", True), ("concurrent", False), ("concurrent", True),
        ("checkpointed", True), ("nested", False), ("failing", False), ("undoing", True),
    ]:  # fmt: skip
        with tempfile.TemporaryDirectory() as place:
            store = SqliteStore(Path(place, "store.db"))
            engine = engine_on(store, Path(place))
            run = await begin(engine, shape)
            row = await engine.drive(run)
            if shape == "failing":
                await store.signal(Signal(run, "retry", {}, "me"))
                row = await engine.drive(run)
            while not waits and row.status == "awaiting_input":
                for wait in await store.waits(run=run):
                    await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
                row = await engine.drive(run)
            kept = await keep(store, engine, run)
            name = f"{shape}-waiting" if waits else shape
            (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
            await engine.close()
            await store.close()


async def keep(store: Store, engine: Engine, run: str) -> Kept:
    records = [r async for r in store.records(run)]
    result = None
    async for entry in engine.entries(run):
        result = getattr(entry.event, "result", result)
    row = await store.run(run)
    row.created = row.updated = new_row("x").created
    return Kept(
        row=row,
        text=await store.playbook(row.playbook),
        texts={},
        records=[(r.seq, r.path, r.kind, r.head.decode(), r.body.decode(), _ascii(r.chain)) for r in records],
        result=result,
    )


def main() -> None:
    folder = HERE / __version__
    folder.mkdir(exist_ok=True)
    asyncio.run(record(folder))
