"""The evidence of a run: folded from any journal, whatever the program; branches, purged records and crashes included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.exports import audited, export_of, read_export
from cuebook.kernel.effects import All, AskModel, Branch, Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Noted, StepFinished, StepStarted
from cuebook.kernel.journal import purged
from cuebook.kernel.ports import Store
from cuebook.service import Service
from tests.support import PROGRAMS, begin, performers, program_of


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(store, performers(tmp_path), programs=program_of, key_file=tmp_path / "key", listen_every=0.02)
    yield made
    await made.engine.close()


def _two_at_once(state: Any) -> Program[Any]:
    def part(name: str) -> Program[Any]:
        yield StepStarted(name, name.title())
        reply = yield AskModel(f"say {name}")
        yield Noted("contract", {"problems": [name]})
        yield StepFinished(name, output=reply.content)
        return None

    def bare(state: Any) -> Program[Any]:
        yield AskModel("say nothing of a step")
        return None

    yield StepStarted("both", "Both")
    yield All((Branch(lambda state: part("left")), Branch(lambda state: part("right")), Branch(bare)))
    yield StepFinished("both")
    return 1


async def _ran(service: Service) -> str:
    PROGRAMS["at once"] = lambda inputs: _two_at_once
    await begin(service.engine, "at once", "run")
    row = await service.engine.drive("run")
    assert row.status == "completed"
    return row.id


async def test_what_happens_in_a_branch_belongs_to_the_step_around_it(service: Service) -> None:
    evidence = (await service.audit(await _ran(service))).evidence
    steps = {step.step: step for step in evidence.steps}
    assert [len(steps[name].acts) for name in ("left", "right", "both")] == [1, 1, 1]
    assert steps["left"].notes == {"contract": [{"problems": ["left"]}]}
    assert all(step.status == "completed" for step in evidence.steps)
    assert evidence.totals.calls == 3


async def test_purged_records_leave_the_chain_whole_and_are_counted(service: Service) -> None:
    run = await _ran(service)
    records = [record async for record in service.store.records(run)]
    emptied = [purged(one) if one.kind == "ModelAsked" else one for one in records]
    found = audited(
        export_of(
            "at once",
            "me",
            emptied,
            service.store.text,
            await service.store.playbook((await service.get(run)).playbook),
        )
    )
    assert found.verdict.broken_at is None
    assert found.verdict.head == (await service.verify(run)).head
    assert found.purged == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"format": "other"}',
        b'{"format":"cuebook-run-9","run":"","name":"","owner":"",'
        b'"head":"","how":"","playbooks":{},"texts":{},"records":[]}',
    ],
)
def test_what_is_no_export_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        read_export(text, "x.json")
