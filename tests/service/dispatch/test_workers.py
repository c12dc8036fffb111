"""Several workers under Temporal: what each offers decides what it gets, and stopping one hands its runs over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.capabilities import Offer
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.follow import missing_worker
from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
from cuebook.service.dispatch.temporal.queues import queue_of, queues_of
from cuebook.wiring.wiring import Wiring
from tests.service.dispatch.team import Team
from tests.service.dispatch.test_temporal import HELD
from tests.support.programs import eventually, new_row

SERVERS = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]
READING = """
name: Reading
steps:
  - {id: a, command: cli sh -c 'until test -e go; do sleep 0.02; done', effect: read}
"""
LOGGING = "name: L\nsteps:\n  - {id: a, command: cli sh -c 'pwd > where'}\n"


def row(workspace: str = "", *needs: str) -> RunRow:
    made = new_row("x")
    made.workspace, made.needs = workspace, needs
    return made


def test_queues_have_readable_names_without_paths() -> None:
    assert queue_of("cuebook", row()) == "cuebook"
    assert queue_of("cuebook", row("team", "sandbox")) == "cuebook/sandbox+workspace.team"
    assert queue_of("cuebook", row("team", "sandbox"), ending=True) == "cuebook/workspace.team"
    assert queue_of("cuebook", row("", "model:local", "sandbox")) == "cuebook/model.local+sandbox"
    path = queue_of("cuebook", row("/srv/secret"))
    assert path.startswith("cuebook/workspace.")
    assert "secret" not in path
    assert path != queue_of("cuebook", row("/srv/other"))


def test_a_worker_polls_the_queue_of_every_run_that_it_can_drive() -> None:
    offer = Offer(("/srv/a", "team"), lambda: ("sandbox", "model:local", "browser", "node:x", "node:y"))
    queues = queues_of("q", offer)
    assert queues[0] == "q"
    assert len(queues) == len(set(queues)) <= 100
    for workspace in ("", "/srv/a", "team"):
        for needs in ((), ("sandbox",), ("model:local", "sandbox"), tuple(sorted(offer.capabilities))):
            assert queue_of("q", row(workspace, *needs)) in queues
    assert queue_of("q", row("/srv/b")) not in queues


async def labelled(team: Team, label: str, text: str) -> str:
    settings = Settings(workspace="/elsewhere", workspace_label=label)
    return (await team.service.start(Playbook.from_text(text, "inline"), {}, settings)).id


async def _yes(self: TemporalDispatcher, row: RunRow) -> bool:
    return True


class TestRouting:
    pytestmark = SERVERS

    async def test_runs_go_to_the_worker_that_offers_their_workspace(self, team: Team, tmp_path: Path) -> None:
        folders = {label: tmp_path / label for label in ("left", "right")}
        for label, folder in folders.items():
            folder.mkdir()
            await team.worker(folder, workspace_label=label)
        runs = [await labelled(team, label, LOGGING) for label in ("right", "left", "right")]
        assert [await team.ended(run) for run in runs] == ["completed"] * 3
        for folder in folders.values():
            assert (folder / "where").read_text().strip() == str(folder)

    async def test_a_run_waits_for_a_worker_with_what_it_needs_and_says_so(
        self, team: Team, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = team.wiring.factory.workspace.path
        run = await team.start(LOGGING)
        following = asyncio.create_task(team.service.drive(run))

        async def missing() -> tuple[str, ...]:
            return await missing_worker(team.service, run)

        assert await eventually(missing) == (f"workspace:{path}",)
        with monkeypatch.context() as patched:
            patched.setattr(Wiring, "_capabilities", lambda self: iter(()))
            await team.worker()
            await team.until(run, lambda row: row.reason == "needs")
        assert await eventually(missing) == (f"workspace:{path}", "sandbox")
        assert not following.done()
        with monkeypatch.context() as patched:
            patched.setattr(TemporalDispatcher, "has_worker", _yes)
            assert await missing() == (f"workspace:{path}", "sandbox"), "one that polled a minute ago may be gone"
        await team.worker()
        assert (await following).status == "completed"
        assert await missing() == ()

    async def test_a_run_that_waits_for_a_worker_can_be_cancelled(
        self, team: Team, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Wiring, "_capabilities", lambda self: iter(()))
        await team.worker()
        run = await team.start(LOGGING)
        await team.until(run, lambda row: row.reason == "needs")
        await team.service.cancel(run)
        assert await team.ended(run) == "cancelled"
        assert await team.workflow_ends(run) == "COMPLETED"

    async def test_an_older_worker_gives_a_newer_run_back(self, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Offer, "interpreter", lambda self, dialect: 0)
            older = await team.worker()
            run = await team.start(LOGGING)
            await asyncio.sleep(1.0)
            assert (await team.service.row(run)).status == "pending"
            assert await team.drives(run) == 0
            await older.close()
        await team.worker()
        assert await team.ended(run) == "completed"

    async def test_all_queues_share_the_limit_of_a_worker(self, team: Team) -> None:
        await team.worker(worker__at_once=2)
        runs = [await team.start(HELD) for _ in range(5)]
        await team.logged(2)
        await asyncio.sleep(1.0)
        assert len(team.lines()) == 2
        (team.work / "go").touch()
        assert [await team.ended(run) for run in runs] == ["completed"] * 5


class TestStopping:
    pytestmark = SERVERS

    @pytest.fixture(autouse=True)
    def _patient(self, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither heartbeats nor sweeps help: only what a worker says when it stops makes another continue."""
        monkeypatch.setattr(workflow, "HEARTBEAT", 600.0)
        monkeypatch.setattr(sweep, "EVERY", 600.0)

    async def test_a_drained_worker_finishes_its_effect_and_hands_the_run_over(self, team: Team) -> None:
        worker = await team.worker(worker__drain=30)
        run = await team.start(HELD)
        await team.logged()
        draining = asyncio.create_task(worker.drain())
        later = await team.start(HELD)
        await asyncio.sleep(0.3)
        assert not draining.done()
        (team.work / "go").touch()
        await draining
        assert team.lines() == ["a"], "the next effect is for another worker"
        assert (await team.service.row(later)).status == "pending", "it takes nothing new"
        await team.worker()
        assert [await team.ended(one) for one in (run, later)] == ["completed"] * 2
        assert sorted(team.lines()) == ["a", "a", "b", "b"], "once for each run"
        assert await team.drives(run) == 2

    async def test_what_it_cannot_finish_continues_elsewhere_at_once(self, team: Team) -> None:
        first = await team.worker(worker__drain=0.2)
        run = await team.start(READING)
        await team.until(run, lambda row: row.status == "running" and row.step == "a")
        await team.worker()
        await first.drain()

        async def taken_over() -> bool:
            return await team.drives(run) == 2

        await eventually(taken_over)
        (team.work / "go").touch()
        assert await team.ended(run) == "completed"

    async def test_an_effect_that_it_cuts_off_is_in_doubt(self, team: Team) -> None:
        first = await team.worker(worker__drain=0.2)
        run = await team.start(HELD)
        await team.logged()
        await team.worker()
        await first.drain()
        (wait,) = await team.waits(run)
        assert wait.kind == "in_doubt"
        (team.work / "go").touch()
        await team.service.decide(wait.id, "repeat")
        assert await team.ended(run) == "completed"
        assert team.lines() == ["a", "a", "b"]
