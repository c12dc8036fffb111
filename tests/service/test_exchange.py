"""Runs as files: another installation imports, verifies and replays them, and refuses what was changed."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.service.audit.keys import SigningKey
from cuebook.service.audit.signature import Signer
from cuebook.service.copies.transfer import Copied
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.support.command_line import CommandLine
from tests.support.programs import begin, engine_on, service_on

ME = Principal()


def ignored(one: Copied) -> None:
    """For results that the list at the end has too."""


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Service]:
    """Another installation."""
    made = service_on(SqliteStore(tmp_path / "there.db"), tmp_path)
    yield made
    await made.close()


async def test_a_run_arrives_with_its_children_and_forks_and_is_replayed(
    store: Store, there: Service, tmp_path: Path
) -> None:
    engine = engine_on(store, tmp_path)
    await engine.drive(await begin(engine, "calling", run="caller", child="counting"))
    await engine.close()
    here, path = service_on(store, tmp_path), tmp_path / "file"
    fork = (await here.restart("caller", "after")).id
    await engine.drive(fork)
    (child,) = await here.children("caller")
    assert await here.export_runs([fork], path) == ["caller", child.id, fork]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    results = await there.import_runs(path, ME, ignored)
    assert {one.result for one in results} == {"copied"}
    for run in ("caller", child.id, fork):
        copy, original = await there._store.whole(run), await store.whole(run)
        assert copy.records == original.records
        assert {step.key: step for step in copy.steps} == {step.key: step for step in original.steps}
        assert (await there.verify(run)).broken_at is None
        assert (await there.replay(run)).complete
    assert {one.result for one in await there.import_runs(path, ME, ignored)} == {"present"}
    with pytest.raises(BadInput, match="exists"):
        await here.export_runs([fork], path)
    with pytest.raises(NotAllowed):
        await there.import_runs(path, Principal("bob", roles=frozenset({"runner"})), ignored)


async def test_a_changed_byte_is_refused_and_nothing_is_imported(tmp_path: Path, there: Service) -> None:
    here = service_on(MemoryStore(), tmp_path)
    await here._engine.drive(await begin(here._engine, "counting"))
    path, changed = tmp_path / "file", tmp_path / "changed"
    await here.export_runs(["run"], path)
    data = path.read_bytes()
    for at in range(0, len(data), len(data) // 60):
        changed.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BadInput):
            await there.import_runs(changed, ME, ignored)
    for cut in (data[:-1], data[: len(data) // 2], b"", b"{}\n"):
        changed.write_bytes(cut)
        with pytest.raises(BadInput):
            await there.import_runs(changed, ME, ignored)
    assert await there.runs(limit=None) == []


async def test_a_damaged_or_missing_signature_is_refused_without_its_key(tmp_path: Path, there: Service) -> None:
    here = service_on(MemoryStore(), tmp_path)
    await here._engine.drive(await begin(here._engine, "counting"))
    plain, path, changed = tmp_path / "plain", tmp_path / "file", tmp_path / "changed"
    await here.export_runs(["run"], plain)
    await here.export_runs(["run"], path, signer=Signer(SigningKey.new()))
    data = path.read_bytes()
    *lines, signature = data.splitlines(keepends=True)
    start = len(data) - len(signature)
    damaged = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(start, len(data), 7)]
    damaged += [data[:start], data[:-1], data + signature, data + b"{}\n", data[: start + 100]]
    damaged += [plain.read_bytes() + signature, b"".join(lines[:-1]) + signature]
    for one in (*damaged, data[:-1] + b" \n"):
        changed.write_bytes(one)
        with pytest.raises(BadInput):
            await there.import_runs(changed, ME, ignored)
    assert await there.runs(limit=None) == []
    assert [one.result for one in await there.import_runs(path, ME, ignored)] == ["copied"]


def test_the_commands_bring_a_run_to_another_store(cli: CommandLine) -> None:
    run = cli.call("run", cli.tea, "--json").object["run"]
    assert cli.call("export", run, "tea.cuebook").out == "1 run in tea.cuebook.\n"
    other = ["--store", "other.db"]
    assert cli.call("import", "tea.cuebook", *other).out == "1 run imported, 0 already there, 0 not imported.\n"
    assert cli.call("audit", run, "--verify", *other).code == 0
    assert cli.call("replay", run, *other).code == 0
    assert cli.call("delete", run, "--contents", *other).out.startswith("0 runs deleted, the contents of 1 run purged")
    assert "by local" in cli.call("audit", run, "--verify", *other).out
    assert cli.call("show", run, *other).code == 0
    assert cli.call("audit", run, *other).code == 0
