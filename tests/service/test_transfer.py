"""Copying runs between stores: everything arrives, a waiting run continues, and a changed journal is not copied."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import RunExists
from cuebook.kernel.events import ArtifactMade, Checkpointed
from cuebook.kernel.ports import Removal, Store
from cuebook.kernel.run import Signal
from cuebook.service.copies.transfer import EARLIER, Copied, copy_decisions, copy_runs, full_check
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin, engine_on
from tests.support.records import claim, create, fork, long, wait_row


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "target.db")
    yield made
    await made.close()


async def copied(source: Store, target: Store) -> dict[str, Copied]:
    return {one.run: one for one in await copy_runs(source, target, lambda one: None)}


async def rows(store: Store, run: str) -> tuple[Any, ...]:
    """Everything that a store has of a run."""
    whole = await store.whole(run)
    whole.row.driver = ""
    text = await store.playbook(whole.row.playbook)
    signals = [(one.kind, one.payload, one.by) for one in (await store.take_out(run)).signals]
    return whole.row, whole.steps, whole.waits, whole.records, text, signals


async def test_everything_of_a_run_arrives_there_and_back(store: Store, target: SqliteStore) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(ArtifactMade(long()), opened=[wait_row("w1"), wait_row("w2", expires=9e9)]))
    await store.append(writer.batch(Checkpointed({"n": 1}, {}), checkpoints=[("", writer.seq + 1)]))
    await store.complete_wait("w1", {"value": "yes"}, "you", 0.0)
    await store.signal(Signal("run", "message", {"channel": "c"}, "you"))
    await fork(store, "run", "child", 2)
    await store.retire("d1")
    results = await copied(store, target)
    assert {run: one.result for run, one in results.items()} == {"run": "copied", "child": "copied"}
    back = MemoryStore()
    await copied(target, back)
    for there in (target, back):
        for run in ("run", "child"):
            assert await rows(there, run) == await rows(store, run)
        assert there.text(digest_of(str(long()))) == str(long())
        assert "run" in await there.ready(0.0, "d2"), "the answer and the message are still to be taken"
        taken = await there.claim("run", "d2", 0.0)
        assert [wait.state for wait in sorted(taken.waits, key=lambda wait: wait.id)] == ["answered", "open"]
        with pytest.raises(RunExists):
            await there.bring_in(await store.take_out("run"))


async def test_a_waiting_run_continues_where_it_was_copied_to(
    store: Store, target: SqliteStore, tmp_path: Path
) -> None:
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "everything"))
    await engine.close()
    assert row.status in ("awaiting_input", "awaiting_approval", "paused")
    (result,) = (await copied(store, target)).values()
    assert (result.result, result.unfinished) == ("copied", True)
    there = engine_on(target, tmp_path)
    for _ in range(20):
        waits = await target.waits(run="run")
        if not waits:
            break
        for wait in waits:
            await target.complete_wait(wait.id, {"value": "yes"}, "me", there.clock())
        row = await there.drive("run")
    assert row.status == "completed"
    assert (await there.verify("run")).broken_at is None
    await there.close()


async def test_a_second_copy_changes_nothing(store: Store, target: SqliteStore) -> None:
    await create(store)
    await copied(store, target)
    before = await rows(target, "run")
    (result,) = (await copied(store, target)).values()
    assert (result.result, result.detail) == ("present", "")
    assert await rows(target, "run") == before


async def test_a_run_that_is_being_driven_is_left_out(store: Store, target: SqliteStore) -> None:
    await create(store)
    await claim(store)
    (result,) = (await copied(store, target)).values()
    assert result.result == "driven"
    assert await target.runs() == []


async def test_a_changed_journal_is_not_copied(file_store: SqliteStore, target: SqliteStore) -> None:
    await create(file_store)
    with sqlite3.connect(file_store.path) as connection:
        connection.execute("UPDATE records SET body = CAST(replace(body, 'is', 'si') AS BLOB)")
    connection.close()
    (result,) = (await copied(file_store, target)).values()
    assert (result.result, result.detail) == ("broken", "record 1 of its journal was changed")
    assert await target.runs() == []


async def test_another_run_with_the_same_id_is_reported(store: Store, target: SqliteStore) -> None:
    await create(store)
    await create(target)
    await target.append((await claim(target)).batch(ArtifactMade(long())))
    writer = await claim(store)
    await store.append(writer.batch(ArtifactMade(long("y"))))
    await store.retire("d1")
    (result,) = (await copied(store, target)).values()
    assert (result.result, result.detail) == ("present", "another run with this id is there")


async def test_an_earlier_state_of_a_run_is_kept_and_the_report_says_what_to_do(
    store: Store, target: SqliteStore
) -> None:
    await create(store)
    await copied(store, target)
    before = await rows(target, "run")
    writer = await claim(store)
    await store.append(writer.batch(ArtifactMade(long("y"))))
    await store.retire("d1")
    (result,) = (await copied(store, target)).values()
    assert (result.result, result.detail) == ("present", EARLIER)
    assert "copy to a new file" in result.detail
    assert await rows(target, "run") == before


async def test_a_run_whose_row_was_changed_is_not_copied(
    file_store: SqliteStore, target: SqliteStore, tmp_path: Path
) -> None:
    engine = engine_on(file_store, tmp_path)
    await engine.drive(await begin(engine, "everything"))
    await engine.close()
    with sqlite3.connect(file_store.path) as connection:
        connection.execute("UPDATE runs SET model = 'another'")
    connection.close()
    (result,) = await copy_runs(file_store, target, lambda one: None, full_check(file_store))
    assert (result.result, "model" in result.detail) == ("broken", True), result.detail
    assert await target.runs() == []


async def test_decisions_of_operators_are_copied_unless_the_target_has_its_own(
    store: Store, target: SqliteStore
) -> None:
    await store.keep("local", "user", "ann", {"roles": ["admin"]})
    await store.keep("local", "user", "bob", {"roles": ["viewer"]})
    await target.keep("local", "user", "bob", {"roles": ["admin"]})
    assert await copy_decisions(store, target) == 1
    assert await target.kept("local", "user") == {"ann": {"roles": ["admin"]}, "bob": {"roles": ["admin"]}}


async def test_a_removed_user_stays_removed_in_a_copy(store: Store, target: SqliteStore) -> None:
    both = {"ann": {"roles": ["admin"]}, "zed": {"roles": ["viewer"]}}
    for name, body in both.items():
        await store.keep("local", "user", name, body)
        await store.keep("local", "notify_preferences", name, {})
        await store.keep("local", "slack_link", f"T1.{name}", {"person": name})
        await store.keep("local", "standing", f"schedule:{name}", {"by": name})
    await store.keep("local", "former_user", "eve", {"at": 1.0})
    await store.keep("local", "former_user", "yan", {"at": 1.0})
    await target.keep("local", "former_user", "zed", {"at": 2.0})
    await target.keep("local", "user", "yan", {"roles": ["viewer"]})
    await copy_decisions(store, target)
    assert list(await target.kept("local", "user")) == ["ann", "yan"]
    assert list(await target.kept("local", "former_user")) == ["eve", "zed"]
    assert list(await target.kept("local", "notify_preferences")) == ["ann"]
    assert list(await target.kept("local", "slack_link")) == ["T1.ann"]
    assert list(await target.kept("local", "standing")) == ["schedule:ann"]


async def test_what_is_known_of_removed_runs_is_copied(store: Store, target: SqliteStore) -> None:
    async def deleted(where: Store, run: str) -> Removal:
        await create(where, run)
        one = Removal(
            run=run, tenant="local", what="deleted", name="n", created=1.0, status="failed", by="ann", at=2.0, forced=True
        )  # fmt: skip
        await where.remove([one], force=True)
        return (await where.removals("local", run))[0]

    await create(store, "stays")
    await create(target, "stays too")
    one, another = await deleted(store, "one"), await deleted(target, "another")
    await copy_decisions(store, target)
    assert await target.removals("local", "one") == [one]
    await copy_decisions(target, store)
    assert sorted(found.run for found in await store.removals("local")) == ["another", "one"]
    assert await store.removals("local", "another") == [another]
    assert [row.id for row in await store.runs()] == ["stays"]
