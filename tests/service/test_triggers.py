"""What started a run: it is in the journal and the row, and arrives with the run in another installation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.kernel.triggers import trigger_of
from cuebook.service.runs.objects import row_object
from cuebook.stores.memory import MemoryStore
from tests.support.command_line import CommandLine
from tests.support.programs import service_on

TEA = Playbook.from_text("# Tea\n\n## STEP 1: Brew\n\nBrew a pot.\n", "tea.md")


async def test_a_run_records_what_started_it(store: Store, tmp_path: Path) -> None:
    here, there = service_on(store, tmp_path), service_on(MemoryStore(), tmp_path)
    run = (await here.start(TEA, {}, Settings(), trigger=trigger_of("schedule", "nightly"))).id
    assert row_object(await here.row(run))["trigger"] == "schedule:nightly"
    async for record in store.records(run):
        assert msgspec.json.decode(record.body)["trigger"] == "schedule:nightly"
        break
    await here.export_runs([run], tmp_path / "file")
    await there.import_runs(tmp_path / "file", Principal(), lambda one: None)
    assert (await there.row(run)).trigger == "schedule:nightly"
    assert (await there.verify(run)).broken_at is None


@pytest.mark.parametrize("trigger", ["nightly", "schedule", "schedule:", "mcp:x", "schedules:x"])
async def test_an_unknown_trigger_creates_nothing(tmp_path: Path, trigger: str) -> None:
    service = service_on(MemoryStore(), tmp_path)
    with pytest.raises(BadInput, match=r"schedule:NAME, .*trigger or mcp"):
        await service.start(TEA, {}, Settings(), trigger=trigger)
    assert await service.runs(limit=None) == []


def test_a_run_that_a_person_started_has_none(cli: CommandLine) -> None:
    run = cli.call("run", cli.tea, "--json").object["run"]
    assert "trigger" not in cli.call("show", run, "--json").object
