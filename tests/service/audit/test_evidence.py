"""The evidence of a run, folded from the journal of any program, including branches, purged records and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import All, AskModel, Branch, CallTool, Program, RunCommand, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import AnyEvent, Noted, Performed, Performing, StepFinished, StepStarted
from cuebook.kernel.journal import Entry, Place, purged
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Signal
from cuebook.service.audit.evidence import evidence_of
from cuebook.service.audit.export import audited, export_of, read_export
from cuebook.service.service import Service
from tests.support.programs import PROGRAMS, Held, begin, performers, program_of


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(store, performers(tmp_path), programs=program_of, key_file=tmp_path / "key", listen_every=0.02)
    yield made
    await made._engine.close()


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
    await begin(service._engine, "at once", "run")
    row = await service.take_up("run")
    assert row.status == "completed"
    return row.id


async def test_events_in_a_branch_belong_to_the_enclosing_step(service: Service) -> None:
    evidence = (await service.audit(await _ran(service))).evidence
    steps = {step.step: step for step in evidence.steps}
    assert [len(steps[name].acts) for name in ("left", "right", "both")] == [1, 1, 1]
    assert steps["left"].notes == {"contract": [{"problems": ["left"]}]}
    assert all(step.status == "completed" for step in evidence.steps)
    assert evidence.totals.calls == 3


@pytest.mark.parametrize("end", ["cancel", "stop"])
async def test_an_effect_in_doubt_is_not_reported_as_failed(end: str, store: Store, tmp_path: Path) -> None:
    held = Held()
    made = performers(tmp_path, hold=held)
    service = Service(store, made, programs=program_of, key_file=tmp_path / "key", listen_every=0.02)
    driving = asyncio.create_task(service.take_up(await begin(service._engine, "undoing", hold=True)))
    await held.entered.wait()
    if end == "cancel":
        await store.signal(Signal("run", "cancel", {}, "me"))
        await driving
    else:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        await service.take_up("run")
        (wait,) = await store.waits(run="run")
        await store.complete_wait(wait.id, {"decision": "stop"}, "me", service.clock())
        await service.take_up("run")
    (row,) = await store.steps("run")
    (step,) = (await service.audit("run")).evidence.steps
    assert (row.status, step.status) == ("in_doubt", "in_doubt")
    doubted = next(act for act in step.acts if act.action.get("tool") == "hold")
    assert (list(doubted.outcome), doubted.begun) == (["in_doubt"], True)
    await service._engine.close()


async def test_a_step_that_ends_with_a_completed_run_is_completed(service: Service) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("open", "Open")
        return (yield AskModel("say it")).text

    PROGRAMS["open"] = lambda inputs: start
    await begin(service._engine, "open", "run")
    assert (await service.take_up("run")).status == "completed"
    (row,) = await service.steps("run")
    (step,) = (await service.audit("run")).evidence.steps
    assert (row.status, step.status) == ("completed", "completed")


@pytest.mark.parametrize(
    ("effect", "failed", "begun"),
    [
        (SendHttp("POST", "https://x/y"), Failed("unreachable", "Nobody listens."), False),
        (SendHttp("POST", "https://x/y"), Failed("dropped", "It broke off.", details={"sent": True}), True),
        (SendHttp("POST", "https://x/y"), Failed("cancelled", "Cancelled."), True),
        (SendHttp("POST", "https://x/y"), Failed("not_storable", "What it gave cannot be stored."), True),
        (SendHttp("POST", "https://x/y"), Failed("in_doubt", "Stopped.", details={"in_doubt": True}), True),
        (RunCommand(("make",)), Failed("secret_unreadable", "It cannot be read."), False),
        (RunCommand(("make",)), Failed("timeout", "It took too long."), True),
        (CallTool("s.t"), Failed("server_failed", "It did not start.", details={"sent": False}), False),
        (CallTool("s.t"), Failed("dropped", "It was lost."), True),
    ],
)
def test_an_outcome_shows_whether_anything_was_begun(effect: Any, failed: Failed, begun: bool) -> None:
    place = Place(step="1", visit=1, index=0)
    events: list[AnyEvent] = [Performing(effect, effect.fingerprint), Performed(failed, effect.fingerprint)]
    (step,) = evidence_of(Entry("run", seq, 1.0, place, event) for seq, event in enumerate(events, start=1)).steps
    assert [act.begun for act in step.acts] == [begun]


async def test_purged_records_keep_the_chain_intact_and_are_counted(service: Service) -> None:
    run = await _ran(service)
    records = [record async for record in service._store.records(run)]
    emptied = [purged(one) if one.kind == "ModelAsked" else one for one in records]
    found = audited(
        export_of(
            "at once",
            "me",
            emptied,
            service._store.text,
            await service._store.playbook((await service.get(run)).playbook),
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
def test_a_file_that_is_not_an_export_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        read_export(text, "x.json")
