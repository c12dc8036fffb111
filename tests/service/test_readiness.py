"""Readiness: a store that responds, fails, hangs and comes back, and a process that is shutting down."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from cuebook.kernel.errors import StoreError
from cuebook.service.readiness import DRAINING, NO_STORE, STARTING, Readiness
from cuebook.service.service import Service


class Storage:
    """The only part of a service that readiness uses."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False
        self.reads = 0

    async def kept(self, tenant: str, kind: str) -> dict[str, Any]:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return {}


def readiness_of(storage: Storage, within: float = 2.0, every: float = 1.0) -> Readiness:
    return Readiness(cast(Service, storage), within=within, every=every)


async def test_a_store_that_fails_or_hangs_makes_a_process_unavailable_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Storage()
    readiness = readiness_of(storage, within=0.05, every=0)
    assert await readiness.reason() == ""
    with caplog.at_level(logging.WARNING):
        storage.error = StoreError("Postgres at db.example.com cannot be reached.")
        assert [await readiness.reason() for _ in range(3)] == [NO_STORE] * 3
        assert [record.message for record in caplog.records] == [f"Not ready: {storage.error}"]
    storage.error, storage.hangs = None, True
    assert await readiness.reason() == NO_STORE
    storage.hangs = False
    assert await readiness.reason() == ""


async def test_many_probes_make_one_read() -> None:
    storage = Storage()
    readiness = readiness_of(storage, every=60)
    assert await asyncio.gather(*(readiness.reason() for _ in range(50))) == [""] * 50
    assert await readiness.reason() == ""
    assert storage.reads == 1


async def test_a_probe_that_gives_up_does_not_end_the_read_of_the_others() -> None:
    storage = Storage()
    storage.hangs = True
    readiness = readiness_of(storage, within=0.2)
    impatient, patient = (asyncio.create_task(readiness.reason()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == NO_STORE


async def test_a_process_that_starts_or_shuts_down_is_not_ready() -> None:
    readiness = Readiness(cast(Service, Storage()), started=False)
    assert await readiness.reason() == STARTING
    readiness.start()
    assert await readiness.reason() == ""
    readiness.drain()
    assert await readiness.reason() == DRAINING
