"""Rewrites the rows of runs from their journals, for stores whose rows were folded differently by an older version."""

from __future__ import annotations

import sqlite3

import msgspec

from cuebook.kernel.errors import NotFound, StoreDamaged
from cuebook.kernel.fold.verify import projected, texts_behind
from cuebook.kernel.journal import PURGED, Codec, Record
from cuebook.kernel.run import RunRow
from cuebook.stores.rows import RECORD, RUN, run_row, step_values


def refold(connection: sqlite3.Connection) -> None:
    """Rewrites all rows. A run whose journal cannot be read keeps its rows; `verify` reports the problem."""

    def text(digest: str) -> str:
        found = connection.execute("SELECT body FROM texts WHERE digest = ?", (digest,)).fetchone()
        return str(found[0]) if found else ""

    codec = Codec(text)
    rows = connection.execute(f"SELECT {RUN}, key FROM runs").fetchall()
    runs = {row.id: (row, key) for row, key in ((run_row(values[:-1]), values[-1]) for values in rows)}
    for row, key in runs.values():
        records = _journal(connection, runs, row)
        if any(record.body.startswith(PURGED) for record in records):
            continue
        try:
            folded, steps = projected(row, [codec.entry(record) for record in records])
        except StoreDamaged:
            continue
        totals = msgspec.json.encode(folded.totals).decode()
        connection.execute("UPDATE runs SET totals = ?, workspace = ? WHERE key = ?", (totals, folded.workspace, key))
        connection.execute("DELETE FROM steps WHERE run = ?", (key,))
        connection.executemany(
            "INSERT INTO steps VALUES (?,?,?,?,?,?,?)", [step_values(key, step) for step in steps.values()]
        )


def _journal(connection: sqlite3.Connection, runs: dict[str, tuple[RunRow, int]], row: RunRow) -> list[Record]:
    """A run's records, inherited records first."""
    records: list[Record] = []
    before = 1 << 32
    while True:
        first = row.parent_seq if row.parent else 1
        own = connection.execute(
            f"SELECT {RECORD} FROM records WHERE run = ? AND seq >= ? AND seq < ? ORDER BY seq",
            (runs[row.id][1], first, before),
        )
        records = [Record(row.id, *values) for values in own] + records
        if not row.parent:
            return records
        before, row = min(before, first), runs[row.parent][0]


def refer(connection: sqlite3.Connection) -> None:
    """Records which texts each run refers to."""

    def load(digest: str) -> str:
        found = connection.execute("SELECT body FROM texts WHERE digest = ?", (digest,)).fetchone()
        if found is None:
            raise NotFound(f"The text {digest} was purged.")
        return str(found[0])

    for key, run in connection.execute("SELECT key, id FROM runs").fetchall():
        rows = connection.execute(f"SELECT {RECORD} FROM records WHERE run = ? ORDER BY seq", (key,))
        found = texts_behind((Record(run, *values) for values in rows.fetchall()), load)
        kept = [(key, one.digest) for one in found if one.text is not None]
        connection.executemany("INSERT OR IGNORE INTO run_texts VALUES (?,?)", kept)
