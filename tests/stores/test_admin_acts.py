"""The audit of administrative acts: append-only, chained for each tenant, and recorded together with what it is about."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.errors import Conflict, StoreError
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import ActRecord, AdminAct, ChainCheck, KeptChange
from cuebook.stores.sqlite import SqliteStore


def act(what: str = "user.add", at: float = 1.0, tenant: str = "local", **details: Any) -> AdminAct:
    return AdminAct(tenant=tenant, at=at, what=what, by="ada", subject="bob", details=details)


async def checked(store: Store, tenant: str = "local") -> ChainCheck:
    check = ChainCheck()
    check.see(await store.acts(tenant, limit=None))
    check.end(*await store.act_head(tenant))
    return check


async def test_acts_are_numbered_and_chained_for_each_tenant(store: Store) -> None:
    for number in range(3):
        await store.record_act(act(at=float(number), roles=["viewer"]))
    await store.record_act(act(tenant="other"))
    acts = await store.acts("local")
    assert [one.seq for one in acts] == [1, 2, 3]
    assert acts[0].act == AdminAct(
        tenant="local", at=0.0, what="user.add", by="ada", subject="bob", details={"roles": ["viewer"]}, seq=1
    )
    assert [one.seq for one in await store.acts("local", after=1, limit=1)] == [2]
    assert [one.seq for one in await store.acts("local", newest=True, limit=2)] == [2, 3]
    assert [one.seq for one in await store.acts("local", since=1.0)] == [2, 3]
    assert await store.act_tenants() == ["local", "other"]
    check = await checked(store)
    assert (check.count, check.head, check.broken) == (3, acts[-1].chain, None)


async def test_acts_recorded_at_the_same_time_get_different_numbers(store: Store) -> None:
    await asyncio.gather(*(store.record_act(act(at=float(number))) for number in range(20)))
    assert sorted(one.seq for one in await store.acts("local")) == list(range(1, 21))
    assert (await checked(store)).broken is None


async def test_an_act_and_its_changes_happen_together_or_not_at_all(store: Store) -> None:
    made = KeptChange("local", "user", "bob", None, {"roles": ["viewer"]})
    await store.record_act(act(), [made])
    assert await store.kept("local", "user") == {"bob": {"roles": ["viewer"]}}
    first = KeptChange("local", "user", "eve", None, {"roles": ["admin"]})
    with pytest.raises(Conflict, match="was changed in the meantime"):
        await store.record_act(act(), [first, made])
    assert list(await store.kept("local", "user")) == ["bob"]
    assert len(await store.acts("local")) == 1
    await store.record_act(act("user.remove"), [KeptChange("local", "user", "bob", {"roles": ["viewer"]}, None)])
    assert await store.kept("local", "user") == {}


async def test_of_two_changes_of_the_same_thing_the_second_is_refused(store: Store) -> None:
    await store.keep("local", "user", "bob", {"n": 0})
    changes = [[KeptChange("local", "user", "bob", {"n": 0}, {"n": number})] for number in (1, 2)]
    results = await asyncio.gather(*(store.record_act(act(), one) for one in changes), return_exceptions=True)
    assert [type(result) for result in results].count(Conflict) == 1
    assert len(await store.acts("local")) == 1


async def test_acts_of_another_store_are_taken_over_as_they_are(store: Store, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other.db")
    for number in range(3):
        await other.record_act(act(at=float(number)))
    acts = await other.acts("local")
    await store.bring_in_acts("local", acts)
    assert await store.acts("local") == acts
    assert (await checked(store)).broken is None
    with pytest.raises(Conflict, match="has other acts here"):
        await store.bring_in_acts("local", acts)
    await other.close()


async def test_the_database_refuses_to_change_or_delete_acts(file_store: SqliteStore) -> None:
    await file_store.record_act(act())
    with sqlite3.connect(file_store.path) as connection:
        for statement in ("DELETE FROM admin_acts", "UPDATE admin_acts SET body = '{}'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


@pytest.mark.needs("postgres")
async def test_a_postgres_database_refuses_to_change_or_delete_acts() -> None:
    from cuebook.stores.postgres import PostgresStore
    from tests.support.postgres import server

    with server().schema() as url:
        shared = PostgresStore(url)
        await shared.record_act(act())
        for statement in ("DELETE FROM admin_acts", "UPDATE admin_acts SET body = '{}'", "TRUNCATE admin_acts"):
            with pytest.raises(StoreError, match="append-only"):
                await shared._write(lambda db, said: db.all(said), statement)
        assert len(await shared.acts("local")) == 1
        await shared.close()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM admin_acts WHERE seq = 2", "act 2 is missing"),
        ("DELETE FROM admin_acts WHERE seq = 1", "act 1 is missing"),
        ("DELETE FROM admin_acts WHERE seq = 3", "3 acts were recorded, but 2 are there"),
        ("UPDATE admin_acts SET body = replace(body, 'bob', 'eve') WHERE seq = 2", "it was changed"),
        ("UPDATE admin_acts SET body = 'x' WHERE seq = 1", "it was changed"),
    ],
)
async def test_what_was_deleted_or_changed_is_noticed(file_store: SqliteStore, damage: str, problem: str) -> None:
    for number in range(3):
        await file_store.record_act(act(at=float(number)))
    with sqlite3.connect(file_store.path) as connection:
        for name in ("admin_acts_stay", "admin_acts_are_fixed"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(damage)
    broken = (await checked(file_store)).broken
    assert broken is not None
    assert problem in broken.problem


def test_a_record_that_is_not_an_act_is_broken() -> None:
    from cuebook.kernel.ports.admin_acts import GENESIS, chain_value

    check = ChainCheck()
    check.see([ActRecord(1, "{", chain_value(GENESIS, "{"))])
    assert check.broken is not None
    assert check.broken.problem == "it is not readable"
