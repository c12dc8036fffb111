"""Deleting runs and purging their contents: what goes, what stays, what verifies, and who is refused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import Busy, CuebookError, NotFound, Refused
from cuebook.kernel.events import ArtifactMade, RunFinished, RunStarted, RunStatus
from cuebook.kernel.journal import purged, verify
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.service.audit.admin import act_of
from cuebook.service.copies.transfer import full_check
from cuebook.service.retention import Criteria, Outcome, Retention
from cuebook.service.retention.automatic import SLOT, automatic
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin, engine_on, eventually, new_row, service_on
from tests.support.records import RecordWriter, claim, driven, fork, long, wait_row
from tests.support.shared_stores import SharedStore, open_shared

ADMIN = Principal("ann")


async def ended(
    store: Store, run: str, *events: Any, status: RunStatus = "completed", playbook: str = "", **fields: Any
) -> None:
    """A run that has ended, with these events."""
    row = new_row("hand", run)
    for name, value in fields.items():
        setattr(row, name, value)
    row.created = min(row.created, row.updated)
    text = playbook or f"playbook of {run}"
    row.playbook = digest_of(text)
    writer = RecordWriter(run)
    identity: dict[str, Any] = {
        "run": run,
        "tenant": row.tenant,
        "owner": row.owner,
        "name": row.name,
        "caller": row.caller,
    }
    inputs = {"email": f"{run}@example.com"}
    begun = RunStarted(inputs, {}, row.playbook, row.dialect, row.interpreter, **identity)
    await store.create(row, text, writer.batch(begun))
    writer = await claim(store, run)
    row.status = status
    await store.release(writer.batch(*driven(), *events, RunFinished(status), row=row), unless_news=False)


async def retention_of(store: Store, folder: Path) -> Retention:
    async def record(what: str, subject: str, who: Principal, details: dict[str, Any]) -> None:
        await store.record_act(act_of(what, subject, who, details, 1.0, False))

    return Retention(engine_on(store, folder), record)


async def names(store: Store) -> list[str]:
    return sorted(row.id for row in await store.runs(limit=None))


def has_text(store: Store, text: str) -> bool:
    try:
        return store.text(digest_of(text)) == text
    except NotFound:
        return False


async def test_a_deleted_run_leaves_nothing_that_no_other_run_needs(store: Store, tmp_path: Path) -> None:
    shared, own = long("s"), long("o")
    await ended(store, "one", ArtifactMade(shared), ArtifactMade(own), playbook="the playbook")
    await ended(store, "two", ArtifactMade(shared), playbook="the playbook")
    retention = await retention_of(store, tmp_path)
    outcome = await retention.delete("one", ADMIN, reason="asked for")
    assert (outcome.deleted, outcome.purged) == (["one"], [])
    assert await names(store) == ["two"]
    assert (has_text(store, str(shared)), has_text(store, str(own))) == (True, False)
    assert await store.playbook(digest_of("the playbook")) == "the playbook"
    assert (await engine_on(store, tmp_path).verify("two")).missing == ()
    (removal,) = await retention.removals(ADMIN)
    assert (removal.run, removal.what, removal.by, removal.reason) == ("one", "deleted", "ann", "asked for")
    assert removal.records == 5
    assert len(removal.head) == 64
    with pytest.raises(NotFound, match=r"deleted by ann .*asked for"):
        await service_on(store, tmp_path).get("one")
    await ended(store, "three")
    assert len([one async for one in store.records("three")]) == 3, "no record of a deleted run is taken for its own"
    await retention.delete("two", ADMIN)
    assert not has_text(store, str(shared))
    with pytest.raises(CuebookError):
        await store.playbook(digest_of("the playbook"))


async def test_purged_contents_are_gone_and_the_chain_says_by_whom(store: Store, tmp_path: Path) -> None:
    service = service_on(store, tmp_path)
    row = await service._engine.drive(await begin(service._engine, "counting"))
    assert row.status == "completed"
    heads = [record.chain async for record in store.records(row.id)]
    outcome = await service.retention.delete(row.id, ADMIN, contents=True, reason="request 7")
    assert (outcome.deleted, outcome.purged) == ([], [row.id])
    verdict = await service.verify(row.id)
    assert verdict.broken_at is None
    (purge,) = verdict.purges
    assert (purge.first, purge.last, purge.by, purge.reason) == (1, len(heads), "ann", "request 7")
    records = [record async for record in store.records(row.id)]
    assert [record.chain for record in records][: len(heads)] == heads, "an anchor that was kept elsewhere still fits"
    assert all(record.body == purged(record).body or record.body.startswith(b"purged:") for record in records[:-1])
    assert (await service.view(row.id)).run.reason == "purged"
    assert (await service.audit(row.id)).purged == len(heads)
    for act in (service.retry(row.id), service.replay(row.id), service.restart(row.id, "1")):
        with pytest.raises(Refused, match="purged"):
            await act
    again = await service.retention.prune(Criteria(status=("completed",)), ADMIN, contents=True)
    assert again.purged == [], "it is purged once"
    assert (await full_check(store)(row.id)).broken_at is None
    await service.close()


async def test_contents_that_were_removed_without_a_record_break_the_journal(
    file_store: SqliteStore, tmp_path: Path
) -> None:
    service = service_on(file_store, tmp_path)
    await service._engine.drive(await begin(service._engine, "counting"))
    (second,) = [record async for record in file_store.records("run") if record.seq == 2]
    file_store._connection.execute("UPDATE records SET body = ? WHERE seq = 2", (purged(second).body,))
    verdict = await service.verify("run")
    assert (verdict.broken_at, verdict.problem) == (2, "its contents were removed, and no record says by whom")
    await service.close()


async def test_what_others_need_is_refused_unless_forced(store: Store, tmp_path: Path) -> None:
    retention = await retention_of(store, tmp_path)
    await ended(store, "parent", ArtifactMade(long("p")))
    await fork(store, "parent", "fork", 3)
    await ended(store, "caller")
    await ended(store, "child", caller="caller")
    await ended(store, "other")
    await store.create(new_row("hand", "waits"), "t", RecordWriter("waits").batch(*driven()))
    writer = await claim(store, "waits")
    row = new_row("hand", "waits")
    row.status = "awaiting_input"
    await store.release(writer.batch(*driven(), opened=[wait_row("w", "waits")], row=row), unless_news=False)
    for run, why in (("parent", "fork was forked"), ("child", "is a child of run caller"), ("waits", "awaiting input")):
        with pytest.raises(Refused, match=why):
            await retention.delete(run, ADMIN)
    await claim(store, "waits")
    with pytest.raises((Busy, Refused), match="driven"):
        await retention.delete("waits", ADMIN)
    with pytest.raises(NotAllowed, match="admin"):
        await retention.delete("other", Principal("bob", roles=frozenset({"runner"})))
    assert await names(store) == ["caller", "child", "fork", "other", "parent", "waits"]

    assert (await retention.delete("parent", ADMIN, force=True)).purged == ["parent"]
    inherited = [record async for record in store.records("fork") if record.run == "parent"]
    assert len(inherited) == 2
    assert all(record.body.startswith(b"purged:") for record in inherited)
    assert verify([record async for record in store.records("fork")]).broken_at is None
    assert (await retention.delete("waits", ADMIN, force=True)).deleted == ["waits"]
    with pytest.raises(CuebookError):
        await store.append(writer.batch(*driven()))
    assert await store.waits() == []
    assert (await retention.delete("child", ADMIN, force=True)).deleted == ["child"]
    forced = {one.run: one.reason for one in await retention.removals(ADMIN) if one.forced}
    assert set(forced) == {"parent", "waits", "child"}
    assert "fork was forked from run parent" in forced["parent"]
    assert (await retention.delete("caller", ADMIN)).deleted == ["caller"]
    assert await names(store) == ["fork", "other", "parent"]


async def test_prune_takes_what_fits_and_says_what_it_kept(store: Store, tmp_path: Path) -> None:
    retention = await retention_of(store, tmp_path)
    now = retention._engine.clock()
    for number in range(6):
        age: dict[str, Any] = {"created": now - 100 * (6 - number), "updated": now - 100 * (6 - number)}
        size = [ArtifactMade(long("x"))] * number
        await ended(store, f"run{number}", *size, name="even" if number % 2 == 0 else "odd", **age)
    await ended(store, "failed", status="failed", created=now - 900, updated=now - 900)
    await fork(store, "run1", "fork", 2)

    async def would(**criteria: Any) -> list[str]:
        return sorted((await retention.prune(Criteria(**criteria), ADMIN, dry_run=True)).deleted)

    assert await would(older_than=350.0) == ["failed", "run0", "run2"]
    assert await would(older_than=350.0, status=("completed",)) == ["run0", "run2"]
    assert await would(playbook="even", keep=1) == ["run0", "run2"]
    assert await would(larger_than=1) == ["failed", "run0", "run2", "run3", "run4", "run5"]
    assert await would(status=("expired",)) == []
    with pytest.raises(CuebookError, match="which runs"):
        await retention.prune(Criteria(), ADMIN)
    outcome = await retention.prune(Criteria(older_than=250.0), ADMIN, reason="prune")
    assert sorted(outcome.deleted) == ["failed", "run0", "run2", "run3"]
    assert [(one.run, one.reason) for one in outcome.blocked] == [("run1", "Run fork was forked from run run1.")]
    assert await names(store) == ["fork", "run1", "run4", "run5"]
    assert {one.reason for one in await retention.removals(ADMIN)} == {"prune"}
    spaces = {(one.name, one.kind): one for one in await retention.usage(ADMIN)}
    assert spaces["even", "records"].runs == 1
    assert spaces["odd", "texts"].count == 1


async def test_runs_that_wait_are_pruned_only_if_that_is_forced_and_recorded(store: Store, tmp_path: Path) -> None:
    service = service_on(store, tmp_path)
    for run in ("one", "two"):
        await service._engine.drive(await begin(service._engine, "undoing", run=run))
    assert {row.status for row in await store.runs()} == {"awaiting_input"}
    criteria = Criteria(status=("awaiting_input",))
    kept = await service.retention.prune(criteria, ADMIN)
    assert (kept.deleted, len(kept.blocked)) == ([], 2)
    assert all("awaiting input" in one.reason for one in kept.blocked)
    assert await service.retention.prune(Criteria(older_than=-1.0), ADMIN) == Outcome()
    assert sorted((await service.retention.prune(criteria, ADMIN, force=True)).deleted) == ["one", "two"]
    assert await store.waits() == []
    assert {one.forced for one in await service.retention.removals(ADMIN)} == {True}
    act = (await service.admin_audit.acts(ADMIN))[-1].act
    assert (act.what, act.details["forced"], act.details["deleted"]) == ("runs.prune", True, 2)
    await service.close()


async def test_the_data_of_one_person_is_erased_with_what_was_made_of_it(store: Store, tmp_path: Path) -> None:
    retention = await retention_of(store, tmp_path)
    await ended(store, "mine", owner="bea")
    await ended(store, "below", caller="mine", owner="bea")
    await ended(store, "other", owner="carl")
    await ended(store, "named", owner="carl")
    await fork(store, "mine", "fork", 3)
    row = new_row("hand", "fork")
    row.status, row.parent, row.parent_seq = "failed", "mine", 3
    writer = await claim(store, "fork")
    await store.release(writer.batch(RunFinished("failed"), row=row), unless_news=False)
    outcome = await retention.erase(ADMIN, owner="bea")
    assert sorted(outcome.deleted) == ["fork", "mine"]
    assert await names(store) == ["named", "other"]
    assert (await retention.erase(ADMIN, inputs={"email": "named@example.com"})).deleted == ["named"]
    assert (await retention.erase(ADMIN, inputs={"email": "nobody"})).deleted == []
    said = str(await retention.removals(ADMIN))
    assert "bea" not in said
    assert "named@example.com" not in said


async def test_files_go_with_the_last_run_that_names_them(store: Store, tmp_path: Path) -> None:
    retention = await retention_of(store, tmp_path)
    for digest in ("shared", "own"):
        await store.put_piece("local", digest, 0, b"x" * 1000)
        await store.put_piece("local", digest, 1, b"y")
        await store.put_file("local", digest, 1001)
    for run, files in (("one", ["shared", "own"]), ("two", ["shared"])):
        row = new_row("hand", run)
        await store.create(row, "t", RecordWriter(run).batch(*driven(), files=files))
    await retention.delete("one", ADMIN, force=True)
    assert await store.has_file("local", "own"), "a file that was just produced may be about to be named"
    later = store.now() + 700
    while (await store.sweep(later)).more:
        pass
    assert not await store.has_file("local", "own")
    assert await store.piece("local", "own", 0) is None
    assert await store.has_file("local", "shared")
    await store.put_piece("local", "own", 0, b"z")
    await store.put_file("local", "own", 1)
    assert await store.piece("local", "own", 0) == b"z"
    assert await store.piece("local", "own", 1) is None
    await retention.delete("two", ADMIN, force=True)
    await store.sweep(later)
    assert not await store.has_file("local", "shared")


async def test_runs_go_on_while_others_are_pruned(store: Store, tmp_path: Path) -> None:
    for number in range(60):
        await ended(store, f"old{number}", ArtifactMade(long("a")), ArtifactMade(long(chr(33 + number))), updated=1.0)
    service = service_on(store, tmp_path)

    async def work(name: str) -> RunRow:
        return await service._engine.drive(await begin(service._engine, "counting", run=name))

    pruning = asyncio.create_task(service.retention.prune(Criteria(older_than=60.0), ADMIN))
    rows = [await work(f"new{number}") for number in range(3)]
    assert len((await pruning).deleted) == 60
    assert [row.status for row in rows] == ["completed"] * 3
    for row in rows:
        verdict = await service.verify(row.id)
        assert (verdict.broken_at, verdict.missing) == (None, ())
    assert not any(has_text(store, str(long(chr(33 + number)))) for number in range(60))
    await service.close()


async def test_one_of_several_processes_prunes_by_itself(shared_store: SharedStore, tmp_path: Path) -> None:
    await ended(shared_store, "old", updated=1.0)
    await ended(shared_store, "new")
    other = open_shared(tmp_path)
    services = [service_on(shared_store, tmp_path), service_on(other, tmp_path)]
    criteria = Criteria(older_than=3600.0)

    async def gone() -> bool:
        return await names(shared_store) == ["new"]

    async with automatic(services[0], criteria, first=0.0), automatic(services[1], criteria, first=0.0):
        await eventually(gone)
    (removal,) = await services[0].retention.removals()
    assert (removal.by, removal.reason) == ("retention", "[retention]")
    assert not await services[1].is_first(SLOT, 3600.0), "for an hour, no process begins again"
    await other.close()


async def test_a_clock_that_jumps_ahead_removes_nothing_for_a_day(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_on(store, tmp_path)
    now = store.now()

    async def steady_after(days: float) -> bool:
        monkeypatch.setattr(store, "now", lambda: now + days * 86400)
        return await service.retention.clock_is_steady()

    looks = (0.0, 1.0, 400.0, 400.9, 401.1, 1.5, 2.0, 5.0, 6.1)
    assert [await steady_after(days) for days in looks] == [True, True, False, False, True, True, True, False, True]
    await ended(store, "old", updated=now)
    monkeypatch.setattr(store, "now", lambda: time.time() + 500 * 86400)

    looked, steady = asyncio.Semaphore(0), service.retention.clock_is_steady

    async def look() -> bool:
        looked.release()
        return await steady()

    monkeypatch.setattr(service.retention, "clock_is_steady", look)
    async with automatic(service, Criteria(older_than=3600.0), every=0.01, first=0.0):
        for _ in range(3):  # at the third look, the first two have ended
            await looked.acquire()
    assert await names(store) == ["old"]
