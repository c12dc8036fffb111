"""The audit of administrative acts in a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.ports.admin_acts import GENESIS, ActRecord, AdminAct, KeptChange, chained
from cuebook.stores.refusals import changed_meanwhile, does_not_follow

if TYPE_CHECKING:
    from cuebook.stores.sqlite.transaction import Transaction

HEAD = "SELECT seq, chain FROM admin_heads WHERE tenant = ?"
_KEPT = "SELECT body FROM kept WHERE tenant = ? AND kind = ? AND name = ?"


def record(transaction: Transaction, act: AdminAct, changes: Sequence[KeptChange]) -> ActRecord:
    db = transaction.connection
    for change in changes:  # all of them, before anything is written
        found = db.execute(_KEPT, (change.tenant, change.kind, change.name)).fetchone()
        if (None if found is None else msgspec.json.decode(found[0])) != change.before:
            raise changed_meanwhile(change.kind, change.name)
    for change in changes:
        if change.after is None:
            transaction.forget(change.tenant, change.kind, change.name)
        else:
            transaction.keep(change.tenant, change.kind, change.name, change.after)
    seq, chain = db.execute(HEAD, (act.tenant,)).fetchone() or (0, GENESIS)
    made = chained(act, seq + 1, chain)
    _append(db, act.tenant, made)
    return made


def bring_in(transaction: Transaction, tenant: str, records: Sequence[ActRecord]) -> None:
    db = transaction.connection
    if (db.execute(HEAD, (tenant,)).fetchone() or (0, GENESIS))[0] != records[0].seq - 1:
        raise does_not_follow(tenant)
    for one in records:
        _append(db, tenant, one)


def _append(db: sqlite3.Connection, tenant: str, made: ActRecord) -> None:
    db.execute(
        "INSERT INTO admin_acts (tenant, seq, at, body, chain) VALUES (?,?,?,?,?)",
        (tenant, made.seq, made.act.at, made.body, made.chain),
    )
    db.execute("INSERT OR REPLACE INTO admin_heads VALUES (?,?,?)", (tenant, made.seq, made.chain))
