"""Counts what a SQLite store contains, on a connection and a thread of its own: the tables may be large."""

from __future__ import annotations

import sqlite3

from cuebook.kernel.ports import JobCount, Tally
from cuebook.stores.sqlite.database import Database


def tally(database: Database, now: float) -> Tally:
    connection = database.connect()
    try:
        runs = connection.execute(
            "SELECT status, count(*), sum(status IN ('pending', 'running') AND driver = '') FROM runs GROUP BY status"
        ).fetchall()
        waits = connection.execute("SELECT kind, count(*) FROM waits WHERE state = 'open' GROUP BY kind").fetchall()
        jobs = connection.execute(
            "SELECT kind, count(*), sum(due IS NOT NULL AND due <= :now), min(due) FROM jobs GROUP BY kind",
            {"now": now},
        ).fetchall()
    except sqlite3.Error as error:
        raise database.translate(error) from error
    finally:
        connection.close()
    return Tally(
        runs={status: count for status, count, _ in runs},
        queued=sum(queued for _, _, queued in runs),
        waits=dict(waits),
        jobs={
            kind: JobCount(count, due, 0.0 if first is None else max(0.0, now - first))
            for kind, count, due, first in jobs
        },
    )
