"""Steps at the gate: what is refused before anything is done, what a person is asked, and what ends with a step."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from cuebook.dialects.pipeline.model import Mcp, Output, Secret, Step
from cuebook.kernel.effects import CommandResult
from cuebook.kernel.events import Performed, WaitOpened
from cuebook.kernel.run import Settings
from tests.dialects.pipeline.bench import ANYTHING, Bench, cli, pipeline, python, shell
from tests.gate.yard import settled
from tests.support import new_row


class Watched(dict[str, str]):
    """An environment that notes what is looked up in it."""

    def __init__(self, **values: str) -> None:
        super().__init__(values)
        self.seen: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.seen.append(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.append(name)
        return super().get(name, default)


async def test_a_run_without_a_policy_of_its_own_does_nothing(bench: Bench) -> None:
    await bench.service.engine.start(new_row("pipeline.yml"), "text", {}, Settings(), None)
    bench.pipeline = pipeline(cli("a", "touch", "made"))
    row = await bench.service.engine.drive("run")
    assert row.error is not None
    assert row.error.code == "no_policy"
    assert not (bench.workspace / "made").exists()


async def test_a_denied_secret_is_never_looked_up(tmp_path: Path) -> None:
    environ = Watched(TOKEN="s3cret-of-the-test")
    bench = Bench(tmp_path, {**ANYTHING, "secrets": {"deny": ["env:TOKEN"]}}, environ=environ)
    row = await bench.do(cli("a", "touch", "made", env={"T": Secret("env:TOKEN")}))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert "TOKEN" not in environ.seen
    assert not (bench.workspace / "made").exists()
    await bench.close()


async def test_a_secret_that_may_be_asked_for_does_not_undo_a_denial(tmp_path: Path) -> None:
    policy = {"secrets": {"ask": ["*"]}, "commands": {"deny": ["touch *"]}}
    bench = Bench(tmp_path, policy, environ={"TOKEN": "s3cret-of-the-test"})
    row = await bench.do(cli("a", "touch", "made", env={"T": Secret("env:TOKEN")}))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert await bench.events(row.id, WaitOpened) == []
    await bench.close()


async def test_what_the_policy_asks_is_asked_once_with_what_could_be_allowed_for_good(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"commands": {"ask": ["*"]}})
    row = await bench.do(cli("a", "touch", "made"))
    wait = await bench.wait(row.id)
    assert wait.details["purpose"] == "policy"
    assert ["command", "touch made"] in wait.details["suggestions"]
    row = await bench.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert len(await bench.events(row.id, WaitOpened)) == 1
    await bench.close()


async def test_an_approval_by_the_step_and_one_by_the_policy_are_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"commands": {"ask": ["*"]}})
    row = await bench.do(cli("a", "touch", "made", approval=True), cli("b", "true", approval=True))
    row = await bench.decide(row.id, "approve")
    assert row.status == "awaiting_approval"
    row = await bench.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert len(await bench.events(row.id, WaitOpened)) == 2
    await bench.close()


async def test_what_was_approved_is_what_runs(bench: Bench) -> None:
    """The script is changed after it was shown: the person is asked again, about the new one."""
    script = bench.workspace / "deploy.sh"
    script.write_text("echo harmless >> made\n")
    row = await bench.do(cli("a", "sh", "deploy.sh", approval=True))
    wait = await bench.wait(row.id)
    script.write_text("echo harmful >> made\n")
    await bench.service.decide(wait.id, "approve")
    row = await bench.service.drive(row.id)
    assert row.status == "awaiting_approval"
    assert bench.made("made") == []
    assert [name for name in (await bench.wait(row.id)).details["changed"] if "deploy.sh" in name]


async def test_a_large_output_comes_through(bench: Bench) -> None:
    row = await bench.do(
        python("a", "print('x' * 500_000)", output=Output("text", max_bytes=512_000)), cli("b", "true")
    )
    (performed, _) = await bench.events(row.id, Performed)
    assert isinstance(performed.outcome, CommandResult)
    assert len(performed.outcome.stdout) == 500_001
    assert not performed.outcome.truncated


async def test_a_command_that_takes_too_long_is_ended_with_everything_it_started(bench: Bench) -> None:
    """Within the sandbox its processes have numbers of their own, so it is told apart by what it goes on writing."""
    script = "(trap '' TERM; while :; do date +%s%N > beat; sleep 0.05; done) & setsid sleep 60 & sleep 60"
    row = await bench.do(shell("a", script, timeout=1.0))
    assert row.error is not None
    assert row.error.code == "timeout"
    beat = bench.workspace / "beat"
    before = beat.read_text()
    await asyncio.sleep(0.5)
    assert beat.read_text() == before


async def test_a_cancelled_run_ends_its_command_with_everything_it_started(bench: Bench) -> None:
    script = "(trap '' TERM; while :; do date +%s%N > beat; sleep 0.05; done) & sleep 60"
    run = await bench.start(shell("a", script), cli("b", "touch", "made"))
    driving = asyncio.create_task(bench.service.drive(run))
    beat = bench.workspace / "beat"
    await settled(lambda: os.path.exists(beat) and bool(beat.read_text()))
    await bench.service.cancel(run, "enough")
    row = await driving
    assert row.status == "cancelled"
    before = beat.read_text()
    await asyncio.sleep(0.5)
    assert beat.read_text() == before
    assert not (bench.workspace / "made").exists()


async def test_a_tool_of_no_server_is_refused(bench: Bench) -> None:
    row = await bench.do(Step("a", Mcp("nobody.home", {})))
    assert row.error is not None
    assert row.error.code == "no_such_tool"
