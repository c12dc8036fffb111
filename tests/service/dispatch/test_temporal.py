"""Runs under Temporal: workers drive them, wake-ups are not lost, deadlines are kept, and nothing leaks into the history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cuebook.config import load
from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.run import RunRow
from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.queues import queue_of
from cuebook.service.service import Service
from cuebook.wiring.wiring import Wiring
from tests.dialects.graph.samples import MINIMAL
from tests.examples.test_bill import EXAMPLE, reply_to
from tests.service.dispatch.team import Team
from tests.support.command_line import TEA
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]

ASKING = """
name: Asking
steps:
  - {id: a, command: cli sh -c 'echo a >> log', approval: required}
  - {id: b, command: cli sh -c 'echo b >> log'}
"""
HELD = """
name: Held
steps:
  - {id: a, command: cli sh -c 'echo a >> log; until test -e go; do sleep 0.02; done'}
  - {id: b, command: cli sh -c 'echo b >> log'}
"""


@pytest.fixture
def model(tmp_path: Path, server: ModelServer) -> ModelServer:
    """A model server that the configuration names before the team reads it."""
    config = tmp_path / "home" / "config" / "cuebook"
    config.mkdir(parents=True)
    (config / "cuebook.toml").write_text(f'model = "test/one"\n\n[providers.test]\nbase_url = "{server.url}"\n')
    return server


@pytest.mark.parametrize("dialect", ["markdown", "graph", "pipeline", "program"])
async def test_a_worker_drives_runs_of_every_dialect_to_their_end(dialect: str, model: ModelServer, team: Team) -> None:
    texts = {"markdown": TEA, "graph": MINIMAL, "pipeline": ASKING, "program": (EXAMPLE / "bill.pbasm").read_text()}
    if dialect == "program":
        model.script = reply_to
    if dialect == "graph":
        model.replies = ["Tea."]
    await team.worker()
    run = await team.start(texts[dialect])
    answers = iter(["90", "3", "n", "none"])
    row = await team.service.drive(run)
    while row.status in WAITING:
        (wait,) = await team.service.waits(run)
        if wait.kind == "approval":
            await team.service.decide(wait.id, "approve")
        else:
            await team.service.answer(wait.id, next(answers))
        row = await team.service.drive(run)
    assert row.status == "completed", row.error
    assert row.dialect == dialect
    assert (await team.service.verify(run)).broken_at is None
    assert await team.workflow_ends(run) == "COMPLETED"


async def test_an_expired_wait_ends_its_run_by_the_timer(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 600.0)
    (team.config / "policy.toml").write_text('[commands]\nallow = ["*"]\n[approvals]\nexpires_after = 0.6\n')
    await team.worker()
    run = await team.start(ASKING)
    assert await team.ended(run) == "expired"
    assert team.lines() == []
    assert await team.workflow_ends(run) == "COMPLETED"


async def test_a_decision_that_races_the_suspend_is_not_lost(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sweep that would repair it, each decision comes as soon as its wait can be seen."""
    monkeypatch.setattr(sweep, "EVERY", 600.0)
    steps = "".join(f"  - {{id: s{n}, command: cli true, approval: required}}\n" for n in range(6))
    await team.worker()
    runs = [await team.start(f"name: Race\nsteps:\n{steps}") for _ in range(3)]

    async def decide(run: str) -> None:
        while (await team.service.row(run)).status not in ENDED:
            for wait in await team.service.waits(run):
                await team.service.decide(wait.id, "approve")

    async with asyncio.timeout(60):
        await asyncio.gather(*(decide(run) for run in runs))
    assert [await team.ended(run) for run in runs] == ["completed"] * 3


async def test_a_run_whose_starter_died_before_the_wake_up_is_found(team: Team) -> None:
    plain = Wiring(load({"store": team.url}, folder=team.work)).service()
    try:
        run = await team.start(ASKING, plain)
        await team.worker()
        (wait,) = await team.waits(run)
        await plain.decide(wait.id, "approve")
    finally:
        await plain.close()
    assert await team.ended(run) == "completed"
    assert team.lines() == ["a", "b"]


async def test_a_run_that_is_delivered_twice_is_driven_once(team: Team) -> None:
    await team.worker()
    await team.worker()
    run = await team.start(HELD)
    await team.logged()
    client = await team.dispatcher.connection.client()
    order = workflow.Order(run, queue_of(team.queue, await team.service.row(run)))
    others = [
        await client.start_workflow(workflow.NAME, order, id=f"{team.queue}-{n}", task_queue=team.queue)
        for n in range(3)
    ]
    for _ in range(5):
        await team.service.wake(run)
    (team.work / "go").touch()
    for other in others:
        await other.result()
    assert await team.ended(run) == "completed"
    assert team.lines() == ["a", "b"]
    assert await team.drives(run) == 1


@pytest.mark.parametrize("text", [HELD, ASKING], ids=["driven", "waiting"])
async def test_a_cancelled_workflow_cancels_its_run(text: str, team: Team) -> None:
    await team.worker()
    run = await team.start(text)
    await (team.logged() if text == HELD else team.waits(run))
    await (await team.workflow(run)).cancel()
    assert await team.ended(run) == "cancelled", "the command would run until the test ends"
    assert await team.workflow_ends(run) == "CANCELED"
    row = await team.service.row(run)
    assert row.error is not None
    assert "cancelled in Temporal" in row.error.message
    assert "b" not in team.lines()


async def test_a_cancel_reaches_the_worker_that_drives(team: Team) -> None:
    await team.worker()
    run = await team.start(HELD)
    await team.logged()
    await team.service.cancel(run)
    assert await team.ended(run) == "cancelled"
    assert await team.workflow_ends(run) == "COMPLETED"


async def test_a_run_that_ended_can_be_retried(team: Team) -> None:
    await team.worker()
    run = await team.start("name: R\nsteps:\n  - {id: a, command: cli test -e go}\n")
    assert await team.ended(run) == "failed"
    await team.workflow_ends(run)
    (team.work / "go").touch()
    await team.service.retry(run)
    assert (await team.until(run, lambda row: row.status == "completed")).status == "completed"
    assert (await team.service.drive(run)).status == "completed"


async def test_a_long_run_continues_as_new(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "AT_MOST", 2)
    steps = "".join(f"  - {{id: s{n}, command: cli true, approval: required}}\n" for n in range(5))
    await team.worker()
    run = await team.start(f"name: Long\nsteps:\n{steps}")
    row = await team.service.drive(run)
    while row.status in WAITING:
        (wait,) = await team.service.waits(run)
        await team.service.decide(wait.id, "approve")
        row = await team.service.drive(run)
    assert row.status == "completed"
    history = await (await team.workflow(run)).fetch_history()
    assert history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id


async def test_the_history_contains_only_ids_and_queues(model: ModelServer, team: Team) -> None:
    canary = "kanarie-4711"
    model.replies = [f"{canary} one", f"{canary} two", 400]
    await team.worker()
    runs = [
        await team.start(TEA, kind=canary),
        await team.start(
            f"name: {canary}\nsteps:\n  - {{id: {canary}, command: cli sh -c 'echo {canary} >&2; exit 3'}}\n"
        ),
        await team.start(ASKING.replace("Asking", canary)),
    ]
    (wait,) = await team.waits(runs[2])
    await team.service.decide(wait.id, "deny", reason=canary)
    for run in runs:
        await team.ended(run)
        await team.workflow_ends(run)
        history = (await (await team.workflow(run)).fetch_history()).to_json()
        assert run in history
        assert canary not in history
        assert str(team.work) not in history, "a path is content"


async def test_a_defect_is_retried_and_its_text_stays_here(
    team: Team, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    canary, failures = "kanarie-4711", iter(range(2))
    monkeypatch.setattr(sweep, "EVERY", 600.0)
    monkeypatch.setattr(workflow, "_AFTER_DEFECT", 0.1)
    take_up = Service.take_up

    async def broken(self: Service, run: str) -> RunRow:
        for _ in failures:
            raise RuntimeError(canary)
        return await take_up(self, run)

    monkeypatch.setattr(Service, "take_up", broken)
    await team.worker()
    run = await team.start("name: D\nsteps:\n  - {id: a, command: cli true}\n")
    assert await team.ended(run) == "completed"
    await team.workflow_ends(run)
    history = (await (await team.workflow(run)).fetch_history()).to_json()
    assert "RuntimeError" in history
    assert canary not in history
    assert canary in caplog.text
