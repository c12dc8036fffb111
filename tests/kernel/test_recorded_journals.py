"""Journals of every release replay with the current code, and waiting runs in them resume to their end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.kernel.journal import verify
from cuebook.kernel.ports import Store
from tests.kernel.journals import HERE, Kept, put_into
from tests.support.programs import engine_on, lines

FILES = sorted(HERE.glob("*/*.json"))


def read(file: Path) -> Kept:
    return msgspec.json.decode(file.read_bytes(), type=Kept)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
async def test_it_verifies_and_replays(file: Path, store: Store, tmp_path: Path) -> None:
    kept = read(file)
    assert verify(kept.journal()).broken_at is None
    engine = engine_on(store, tmp_path)
    await put_into(store, engine, kept)
    rehearsal = await engine.replay(kept.row.id)
    assert rehearsal.complete == (kept.row.status == "completed")
    assert rehearsal.result == kept.result
    assert lines(tmp_path) == []
    await engine.close()


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.stem.endswith("-waiting")], ids=lambda file: f"{file.parent.name}/{file.stem}"
)
async def test_a_waiting_run_resumes(file: Path, store: Store, tmp_path: Path) -> None:
    kept = read(file)
    engine = engine_on(store, tmp_path)
    await put_into(store, engine, kept)
    row = await store.run(kept.row.id)
    assert row.status == "awaiting_input"
    while row.status == "awaiting_input":
        for wait in await store.waits(run=row.id):
            await store.complete_wait(wait.id, {"value": "yes"}, "me", engine.clock())
        row = await engine.drive(row.id)
    assert row.status == "completed"
    assert (await engine.verify(row.id)).broken_at is None
    await engine.close()


def test_there_is_something_to_replay() -> None:
    assert len(FILES) >= 9
