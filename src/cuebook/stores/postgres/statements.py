"""The statements that write batches. Each takes effect only if the batch has the run's current epoch, so a driver that was
replaced changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.kernel.ports import Batch
from cuebook.stores.postgres.jobs import job_values
from cuebook.stores.postgres.spending import OF_RUNS, columns, values_of
from cuebook.stores.rows import shown_values, step_values

_json = msgspec.json.encode

LOCK = "SELECT id, key, epoch FROM runs WHERE key = ANY(%s) ORDER BY key FOR UPDATE"
"""Always the first statement, with locks in one order, so that processes cannot deadlock."""
_RECORDS = """
    INSERT INTO records (run, seq, tenant, path, kind, head, body, chain)
    SELECT v.run, v.seq, r.tenant, v.path, v.kind, v.head, v.body, v.chain
    FROM unnest(%b::bigint[], %b::int[], %b::bigint[], %b::text[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[])
        AS v(run, epoch, seq, path, kind, head, body, chain)
    JOIN runs r ON r.key = v.run AND r.epoch = v.epoch"""
_ROWS = """
    UPDATE runs SET updated = v.updated, reason = v.reason, step = v.step, model = v.model, totals = v.totals,
        error = nullif(v.error, ''), workspace = v.workspace, needs = v.needs, status = v.status
    FROM unnest(%b::bigint[], %b::int[], %b::float8[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
        %b::text[], %b::text[]) AS v(key, epoch, updated, reason, step, model, totals, error, workspace, needs, status)
    WHERE runs.key = v.key AND runs.epoch = v.epoch"""
_STEPS = """
    INSERT INTO steps (run, path, label, visit, seq, status, tenant, body)
    SELECT v.run, v.path, v.label, v.visit, v.seq, v.status, r.tenant, v.body
    FROM unnest(%b::bigint[], %b::int[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text[], %b::text[])
        AS v(run, epoch, path, label, visit, seq, status, body)
    JOIN runs r ON r.key = v.run AND r.epoch = v.epoch
    ON CONFLICT (run, path, label, visit) DO UPDATE SET seq = excluded.seq, status = excluded.status, body = excluded.body"""
_TEXTS = """
    INSERT INTO texts (digest, tenant, body) SELECT v.digest, r.tenant, v.body
    FROM unnest(%b::bigint[], %b::int[], %b::text[], %b::bytea[]) AS v(run, epoch, digest, body)
    JOIN runs r ON r.key = v.run AND r.epoch = v.epoch
    ORDER BY v.digest, r.tenant ON CONFLICT DO NOTHING"""
"""In a fixed order, because two processes that add the same texts could otherwise deadlock."""
_REFERRED = """
    INSERT INTO run_texts (run, digest, tenant) SELECT v.run, v.digest, r.tenant
    FROM unnest(%b::bigint[], %b::int[], %b::text[]) AS v(run, epoch, digest)
    JOIN runs r ON r.key = v.run AND r.epoch = v.epoch ON CONFLICT DO NOTHING"""
SHARE = "SELECT pg_advisory_xact_lock_shared(1668637029, hashtext(current_schema()))"
FREE = SHARE.replace("_shared", "")
"""Who adds references to texts or playbooks shares a lock; who frees those without references has it alone. Otherwise a text
could be freed while another transaction relies on its being there.
"""
_HELD = "EXISTS (SELECT 1 FROM runs r WHERE r.key = %s AND r.epoch = %s)"
_OPEN = """
    INSERT INTO waits (id, run, tenant, owner, state, expires, opened, kind, body)
    SELECT %s, r.key, %s, %s, 'open', %s::float8, %s, %s, %s FROM runs r WHERE r.key = %s AND r.epoch = %s"""
_CLOSE = f"UPDATE waits SET state = 'closed' WHERE id = ANY(%s) AND {_HELD}"
_TAKE = f"UPDATE signals SET taken = true WHERE id = ANY(%s) AND {_HELD}"
_CHECKPOINT = """
    INSERT INTO checkpoints (run, path, seq, tenant)
    SELECT r.key, %s, %s, r.tenant FROM runs r WHERE r.key = %s AND r.epoch = %s"""
_FILES = """
    INSERT INTO run_files (run, digest, tenant)
    SELECT r.key, f.digest, r.tenant FROM runs r, unnest(%s::text[]) AS f(digest) WHERE r.key = %s AND r.epoch = %s
    ON CONFLICT DO NOTHING"""
_JOB = f"""
    INSERT INTO jobs (tenant, kind, name, due, body, version)
    SELECT %s, %s, %s, %s::float8, %s, 1 WHERE {_HELD} ON CONFLICT DO NOTHING"""
_DROP = """
    DELETE FROM {} WHERE run = %s AND seq >= %s AND (starts_with(path, %s) OR starts_with(%s, path))
        AND EXISTS (SELECT 1 FROM runs r WHERE r.key = %s AND r.epoch = %s)"""

Statement = tuple[str, tuple[Any, ...]]


class Statements:
    """Collects the writes of batches into a few statements with many rows each."""

    def __init__(self) -> None:
        self._done: list[Statement] = []
        self._records: list[tuple[Any, ...]] = []
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._steps: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._texts: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._referred: set[tuple[int, int, str]] = set()
        self._spent: list[tuple[Any, ...]] = []

    def __iter__(self) -> Iterator[Statement]:
        self._flush()
        if self._spent:  # last, because others wait for these rows
            self._done.append((OF_RUNS, columns(self._spent)))
            self._spent = []
        return iter(self._done)

    def put(self, key: int, batch: Batch, epoch: int | None = None) -> None:
        """Adds a batch. `epoch` replaces the batch's epoch for a run that the same transaction creates."""
        epoch = batch.epoch if epoch is None else epoch
        for r in batch.records:
            self._records.append((key, epoch, r.seq, r.path, r.kind, r.head, r.body, r.chain))
        if batch.plain:
            return
        if batch.row is not None:
            self._rows[key] = (key, epoch, *shown_values(batch.row))
        for seq, path in batch.dropped:
            self._flush()
            for table in ("steps", "checkpoints"):
                self._done.append((_DROP.format(table), (key, seq, path, path, key, epoch)))
        for step in batch.steps:
            run, path, label, visit, *rest = step_values(key, step)
            self._steps[run, path, label, visit] = (run, epoch, path, label, visit, *rest)
        for digest, text in (batch.texts or {}).items():
            self._texts[key, digest] = (key, epoch, digest, text.encode())
        for digest in (*(batch.texts or ()), *batch.stored):
            self._referred.add((key, epoch, digest))
        for wait in batch.opened:
            values = (wait.id, wait.tenant, wait.owner, wait.expires, wait.opened, wait.kind, _json(wait).decode())
            self._done.append((_OPEN, (*values, key, epoch)))
        if batch.closed:
            self._done.append((_CLOSE, (list(batch.closed), key, epoch)))
        if batch.taken:
            self._done.append((_TAKE, (list(batch.taken), key, epoch)))
        if batch.files:
            self._done.append((_FILES, (list(batch.files), key, epoch)))
        for job in batch.jobs:
            self._done.append((_JOB, (*job_values(job), key, epoch)))
        for one in batch.spent:
            self._spent.append((key, epoch, *values_of(one)))
        for path, seq in batch.checkpoints:
            self._done.append((_CHECKPOINT, (path, seq, key, epoch)))

    def _flush(self) -> None:
        if self._records:
            self._done.append((_RECORDS, _columns(self._records)))
            self._records = []
        if self._rows:
            self._done.append((_ROWS, _columns(list(self._rows.values()))))
            self._rows = {}
        if self._steps:
            self._done.append((_STEPS, _columns(list(self._steps.values()))))
            self._steps = {}
        if self._referred:
            self._done.append((SHARE, ()))
            self._done.append((_REFERRED, _columns(sorted(self._referred))))
            self._referred = set()
        if self._texts:
            self._done.append((_TEXTS, _columns(list(self._texts.values()))))
            self._texts = {}


def _columns(rows: list[Any]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*rows, strict=True))
