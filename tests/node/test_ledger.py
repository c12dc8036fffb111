"""The ledger: what is in it survives the process, and nothing else changes what is known of a request."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.node import ledger as module
from cuebook.node.ledger import Known, Ledger, LedgerFull
from cuebook.performers.nodes.protocol import Finished, Refused

DAY = 86400.0


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    made = Ledger(tmp_path / "requests")
    yield made
    made.close()


async def test_a_request_is_known_with_its_outcome_or_as_interrupted(ledger: Ledger, tmp_path: Path) -> None:
    done = Finished(id="one", value={"a": [1]}, text="x", exit_code=0)
    refused = Refused(id="../two", code="timeout", message="Late.", began=True, text="half")
    for outcome in (done, refused):
        await ledger.begin(outcome.id, {"what": "command run"})
        assert await ledger.look(outcome.id) == Known(None)
        await ledger.finish(outcome)
    await ledger.begin("three", {})
    later = Ledger(tmp_path / "requests")
    assert await later.look("one") == Known(done)
    assert await later.look("../two") == Known(refused)
    assert await later.look("three") == Known(None)
    assert await later.look("four") is None
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "requests").iterdir()} == {0o600}
    with pytest.raises(FileExistsError):
        await later.begin("three", {})
    later.close()


async def test_only_a_request_with_an_outcome_is_forgotten(ledger: Ledger, tmp_path: Path) -> None:
    for id in ("one", "two"):
        await ledger.begin(id, {})
    await ledger.finish(Finished(id="one"))
    await ledger.forget(["one", "two", "three"])
    assert await ledger.look("one") is None
    assert await ledger.look("two") == Known(None)
    assert len(os.listdir(tmp_path / "requests")) == 1


async def test_a_damaged_outcome_counts_as_interrupted_and_a_half_written_one_as_none(
    ledger: Ledger, tmp_path: Path
) -> None:
    await ledger.begin("one", {})
    await ledger.finish(Finished(id="one"))
    (outcome,) = (tmp_path / "requests").glob("*.outcome")
    outcome.write_bytes(b'{"is": "Fin')
    (tmp_path / "requests/.0123.tmp").write_bytes(b"half")
    later = Ledger(tmp_path / "requests")
    assert await later.look("one") == Known(None)
    assert len(os.listdir(tmp_path / "requests")) == 2
    later.close()


async def test_old_requests_are_dropped_and_a_full_ledger_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    days = 0.0
    ledger = Ledger(tmp_path / "requests", now=lambda: os.stat(tmp_path).st_mtime + days * DAY)
    for id in ("one", "two"):
        await ledger.begin(id, {})
    await ledger.finish(Finished(id="one"))
    with pytest.raises(LedgerFull):
        await ledger.begin("three", {})
    days = 6.9
    with pytest.raises(LedgerFull):
        await ledger.begin("three", {})
    days = 7.1
    await ledger.begin("three", {})
    assert await ledger.look("one") is None
    assert await ledger.look("two") is None
    await ledger.forget(["three"])
    ledger.close()
