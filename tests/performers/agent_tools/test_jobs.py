"""Background jobs of a tool loop: real processes in a real sandbox, whose output outlives them."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate.sandbox import choose, clear
from cuebook.kernel.effects import CallTool
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Call, Limits
from cuebook.performers.agent_tools import Jobs, agent_tools
from cuebook.performers.agent_tools.jobs import MOST_JOBS, OUTPUT
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.tools.calls import ToolCaller, described

HOLDS = "exec 9>lock; flock 9; echo begun; while :; do sleep 0.05; done"
"""A job that holds a lock for as long as any of its processes lives."""


def is_held(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Loop:
    """A tool loop of one run: it makes calls, each with its own key."""

    def __init__(self, workspace: Path, spool: Path) -> None:
        commands = CommandPerformer(choose(), workspace)
        self.jobs = Jobs(commands, spool, clear)
        self.box = Toolbox(agent_tools(workspace, commands=commands, http=None, jobs=self.jobs))
        self._count = 0

    async def perform(self, tool: str, masked: Any = None, **arguments: Any) -> ToolResult | Failed:
        self._count += 1
        caller = ToolCaller(limits=Limits(seconds=20)) if masked is None else ToolCaller(masked=masked)
        call: Call = msgspec.structs.replace(caller.call(), key=f"k{self._count}")
        return await self.box.perform(CallTool(tool, arguments), call)

    async def start(self, command: str, **more: Any) -> str:
        said = await self.perform("Bash", command=command, run_in_background=True, **more)
        assert isinstance(said, ToolResult), said
        return str(said.value).split()[3].rstrip(".")

    async def output(self, job: str, **more: Any) -> str:
        said = await self.perform("BashOutput", bash_id=job, **more)
        assert isinstance(said, ToolResult), said
        return str(said.value)

    async def until(self, job: str, words: str) -> str:
        """Everything that was read of the job until it said this."""
        read = ""
        async with asyncio.timeout(60):
            while words not in read:
                read += await self.output(job, wait=5)
        return read


@pytest.fixture
async def loop(tmp_path: Path) -> AsyncIterator[Loop]:
    (tmp_path / "work").mkdir()
    made = Loop(tmp_path / "work", tmp_path / "spool")
    yield made
    await made.jobs.close()


async def test_a_job_runs_on_while_other_calls_are_made(loop: Loop, tmp_path: Path):
    job = await loop.start("echo begun; until test -e go; do sleep 0.05; done; echo went; echo wrong >&2; exit 3")
    assert "begun" in await loop.until(job, "begun")
    again = await loop.output(job)
    assert again.startswith(f"[{job}: running for")
    assert "[no new output]" in again
    await loop.perform("Bash", command="touch go")
    ended = await loop.until(job, "exited")
    assert "exited with code 3" in ended
    assert "went" in ended
    assert "wrong" in ended
    assert "begun" not in ended


async def test_a_job_is_killed_with_everything_that_it_started(loop: Loop, tmp_path: Path):
    job = await loop.start(f"({HOLDS}) & wait")
    await loop.until(job, "begun")
    assert is_held(tmp_path / "work/lock")
    killed = await loop.perform("KillBash", shell_id=job)
    assert isinstance(killed, ToolResult)
    assert "killed after" in killed.value
    assert not is_held(tmp_path / "work/lock")
    assert "killed after" in await loop.output(job)
    again = await loop.perform("KillBash", bash_id=job)
    assert isinstance(again, ToolResult)
    assert "killed after" in again.value


async def test_jobs_end_when_the_run_is_left_and_their_output_stays(loop: Loop, tmp_path: Path):
    job = await loop.start(HOLDS)
    await loop.until(job, "begun")
    await loop.jobs.leave("another run")
    assert is_held(tmp_path / "work/lock")
    await loop.jobs.leave("r1")
    assert not is_held(tmp_path / "work/lock")
    said = await Loop(tmp_path / "work", tmp_path / "spool").output(job)
    assert said.startswith(f"[{job}: ended: The run waited, ended or was continued")
    assert "begun" in said


async def test_a_job_of_a_lost_process_is_reported_as_ended(loop: Loop, tmp_path: Path):
    job = await loop.start("echo begun; sleep 600")
    await loop.until(job, "begun")
    # Another process finds the files as a killed one leaves them: the job is still marked as running.
    said = await Loop(tmp_path / "work", tmp_path / "spool").output(job)
    assert "ended:" in said
    assert "begun" in said


async def test_secrets_in_the_output_are_not_stored(loop: Loop, tmp_path: Path):
    def masked(value: Any) -> Any:
        return value.replace("s3cret-value", "[secret]") if isinstance(value, str) else value

    said = await loop.perform("Bash", masked, command="printf 's3cret-'; echo value", run_in_background=True)
    assert isinstance(said, ToolResult)
    job = str(said.value).split()[3].rstrip(".")
    assert "[secret]" in await loop.until(job, "exited")
    assert all(b"s3cret-value" not in path.read_bytes() for path in (tmp_path / "spool").rglob("*") if path.is_file())


async def test_only_the_last_part_of_endless_output_is_kept(loop: Loop, tmp_path: Path):
    line = "x" * 1000
    job = await loop.start(f"i=0; while test $i -lt 3000; do echo $i {line}; i=$((i+1)); done; echo the end")
    said = ""
    async with asyncio.timeout(60):
        while "exited" not in said:
            said += await loop.output(job, filter="^(the end|0 x)", wait=5)
    assert "the end" in said
    kept = next((tmp_path / "spool").rglob("*.out")).stat().st_size
    assert OUTPUT // 2 < kept <= 2 * OUTPUT
    first = await Loop(tmp_path / "work", tmp_path / "spool").output(job)
    assert "bytes of older output were not kept" in first


async def test_there_is_a_limit_to_the_jobs_of_a_run(loop: Loop):
    for _ in range(MOST_JOBS):
        await loop.start("sleep 600")
    failed = await loop.perform("Bash", command="sleep 600", run_in_background=True)
    assert isinstance(failed, Failed)
    assert failed.code == "too_many_jobs"
    assert "KillBash" in failed.fix


async def test_a_job_with_a_time_limit_is_stopped_at_it(loop: Loop):
    job = await loop.start("echo begun; sleep 600", timeout=0.5)
    assert "was still running after 0.5 s" in await loop.until(job, "ended:")


async def test_an_unknown_job_is_named_with_those_that_there_are(loop: Loop):
    job = await loop.start("sleep 600")
    for tool in ("BashOutput", "KillBash"):
        failed = await loop.perform(tool, bash_id="bash_none")
        assert isinstance(failed, Failed)
        assert failed.code == "not_found"
        assert job in failed.fix


async def test_an_id_does_not_lead_to_the_jobs_of_another_run(loop: Loop, tmp_path: Path):
    job = await loop.start("echo private; sleep 600")
    await loop.until(job, "private")
    folder = next((tmp_path / "spool").iterdir()).name
    other = Loop(tmp_path / "work", tmp_path / "spool")
    for given in (job, f"../{folder}/{job}"):
        call = msgspec.structs.replace(ToolCaller().call(), run="r2")
        failed = await other.box.perform(CallTool("BashOutput", {"bash_id": given}), call)
        assert isinstance(failed, Failed)
        assert failed.code == "not_found"


async def test_a_program_that_cannot_start_is_a_failed_job(loop: Loop):
    job = await loop.start("exec /no/such/program")
    assert "exited with code 127" in await loop.until(job, "exited")


async def test_an_approver_sees_that_it_runs_in_the_background(loop: Loop):
    command = {"command": "make serve"}
    shown = await described(loop.box, "Bash", {**command, "run_in_background": True})
    assert shown.summary.endswith("in the background")
    assert "until the run waits" in shown.preview["background"]
    assert shown.bound != (await described(loop.box, "Bash", command)).bound
    assert (await described(loop.box, "BashOutput", {"bash_id": "x"})).harmless


async def test_milliseconds_are_understood_as_a_time_limit(loop: Loop):
    assert (await described(loop.box, "Bash", {"command": "make", "timeout": 120_000})).seconds == 120
    assert (await described(loop.box, "Bash", {"command": "make", "timeout": 200})).seconds == 200
