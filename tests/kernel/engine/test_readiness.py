"""A run waits for missing preparations, such as secrets, before it does anything, and continues once they are available."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import Performed, WaitOpened
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings, Signal
from cuebook.service.waits.expiry import settle
from tests.support.programs import PROGRAMS, begin, performers


class Shelf:
    """The missing part, which tests change; counts how often it was requested."""

    def __init__(self) -> None:
        self.lacks = ""
        self.looks = 0
        self.now = 1000.0

    async def look(self, row: RunRow) -> Failed | None:
        self.looks += 1
        return Failed("secret_missing", f"The secret {self.lacks} has no value.", "Set it.") if self.lacks else None


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def engine_of(store: Store, folder: Path, shelf: Shelf) -> Engine:
    made = lambda row, text, inputs, options: PROGRAMS[row.name](inputs)  # noqa: E731
    return Engine(store, made, performers(folder), prepare=shelf.look, clock=lambda: shelf.now)


async def resumed(store: Store, engine: Engine) -> RunRow:
    (wait,) = [one for one in await store.waits(run="run") if one.kind == "secret"]
    await store.complete_wait(wait.id, {}, "ann", engine.clock())
    return await engine.drive("run")


async def test_nothing_is_done_until_the_missing_part_is_available(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    shelf.lacks = "a"
    engine = engine_of(store, tmp_path, shelf)
    row = await engine.drive(await begin(engine, "counting", n=3))
    assert (row.status, row.reason) == ("paused", "secret")
    (wait,) = await store.waits(run="run")
    assert (wait.kind, wait.prompt) == ("secret", "The secret a has no value. Set it.")
    row = await resumed(store, engine)
    assert (row.status, row.reason) == ("paused", "secret")
    assert [entry async for entry in engine.entries("run") if isinstance(entry.event, Performed)] == []
    shelf.lacks = ""
    row = await resumed(store, engine)
    assert row.status == "completed"
    assert await store.waits(run="run") == []
    assert (await engine.replay("run")).complete
    assert (await engine.verify("run")).broken_at is None
    await engine.close()


async def test_preparation_happens_once_per_drive(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    engine = engine_of(store, tmp_path, shelf)
    await engine.drive(await begin(engine, "counting", n=20))
    assert shelf.looks == 1
    await engine.close()


async def test_an_answer_in_the_meantime_ends_the_wait_if_nothing_is_missing(
    store: Store, tmp_path: Path, shelf: Shelf
) -> None:
    engine = engine_of(store, tmp_path, shelf)
    row = await engine.drive(await begin(engine, "everything"))
    assert row.status == "awaiting_input"
    shelf.lacks = "a"
    (question,) = await store.waits(run="run")
    await store.complete_wait(question.id, {"value": "yes"}, "ann", engine.clock())
    row = await engine.drive("run")
    assert (row.status, row.reason) == ("paused", "secret")
    shelf.lacks = "b"
    row = await engine.drive("run")
    assert [wait.prompt for wait in await store.waits(run="run")] == ["The secret b has no value. Set it."]
    shelf.lacks = ""
    row = await engine.drive("run")
    assert row.status != "paused" or row.reason != "secret"
    assert [wait.kind for wait in await store.waits(run="run") if wait.kind == "secret"] == []
    opened = [entry async for entry in engine.entries("run") if isinstance(entry.event, WaitOpened)]
    assert [entry.event.kind for entry in opened].count("secret") == 2  # type: ignore[union-attr]
    assert (await engine.verify("run")).broken_at is None
    await engine.close()


async def test_a_run_that_is_cancelled_in_the_meantime_ends(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    shelf.lacks = "a"
    engine = engine_of(store, tmp_path, shelf)
    await engine.drive(await begin(engine, "counting", n=3))
    await store.signal(Signal("run", "cancel", {"reason": "enough"}, "ann"))
    row = await engine.drive("run")
    assert row.status == "cancelled"
    assert [entry async for entry in engine.entries("run") if isinstance(entry.event, Performed)] == []
    shelf.lacks = ""
    await store.signal(Signal("run", "retry", {}, "ann"))
    row = await engine.drive("run")
    assert row.status == "completed"
    await engine.close()


async def test_a_run_that_was_already_cancelled_waits_for_nothing(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    engine = engine_of(store, tmp_path, shelf)
    row = await engine.drive(await begin(engine, "everything"))
    assert row.status == "awaiting_input"
    shelf.lacks = "a"
    await store.signal(Signal("run", "cancel", {"reason": "enough"}, "ann"))
    row = await engine.drive("run")
    assert row.status == "cancelled"
    assert await store.waits(run="run") == []
    assert (await engine.verify("run")).broken_at is None
    await engine.close()


async def test_a_fork_has_its_own_wait(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    engine = engine_of(store, tmp_path, shelf)
    await engine.drive(await begin(engine, "everything", settings=Settings()))
    shelf.lacks = "a"
    begun = next(step for step in await store.steps("run") if step.seq)
    parent = await store.run("run")
    child = RunRow(
        id="child", tenant=parent.tenant, owner="ann", dialect=parent.dialect, interpreter=1, playbook=parent.playbook,
        name=parent.name, created=1.0, updated=1.0, parent="run",
    )  # fmt: skip
    await engine.fork(child, begun, {}, {})
    row = await engine.drive("child")
    assert (row.status, row.reason) == ("paused", "secret")
    assert (await store.run("run")).status == "awaiting_input"
    await engine.close()


async def test_an_expired_run_ends_without_the_missing_part(store: Store, tmp_path: Path, shelf: Shelf) -> None:
    engine = engine_of(store, tmp_path, shelf)
    await engine.drive(await begin(engine, "everything", settings=Settings(pause_expiry=60)))
    shelf.lacks, shelf.now = "a", 1060.0
    await settle(engine)
    assert (await store.run("run")).status == "expired"
    await engine.close()
