"""A run that is killed anywhere continues where it was: nothing is done twice without a person's decision."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.model import Arg, ArgRef, Operation
from cuebook.dialects.pipeline.run import state
from cuebook.kernel.events import Checkpointed
from tests.dialects.pipeline.harness import PipelineHarness, cli, ref, shell, words
from tests.dialects.pipeline.run.crash_process import harness_on
from tests.kernel.engine.test_crashes import die, writes
from tests.support.sampling import THOROUGH, some

ROOT = Path(__file__).parents[4]
CHILD = "tests.dialects.pipeline.run.crash_process"
LINES = ["draft", "odd", "again", "again", "tool", "tag", "end"]


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STRETCH", 2)


def child(folder: Path, run: str, *how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", CHILD, str(folder), run, *how]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)


async def settle(harness: PipelineHarness, run: str) -> int:
    """Drives to the end and resolves doubts by what the file shows. Returns how often it was asked."""
    doubts = 0
    row = await harness.service.drive(run)
    while row.status == "awaiting_approval":
        doubts += 1
        wait = await harness.wait(run)
        assert wait.kind == "in_doubt"
        effect = wait.details["effect"]
        attempt = wait.place.index + 1 if wait.place.step == "again" else 1
        if harness.made("made").count(word(effect)) >= attempt:
            await harness.service.decide(wait.id, "done", outcome=outcome_of(effect, harness.made("made")))
        else:
            await harness.service.decide(wait.id, "repeat")
        row = await harness.service.drive(run)
    assert row.status == "completed", row.error
    return doubts


def word(effect: dict[str, Any]) -> str:
    """The line that an effect writes."""
    script = effect["arguments"]["command"] if effect["is"] == "CallTool" else effect["argv"][2]
    return str(script).partition(" >> made")[0].rpartition("echo ")[2]


def outcome_of(effect: dict[str, Any], made: list[str]) -> dict[str, Any]:
    match word(effect):
        case "draft":
            return {"exit_code": 0, "stdout": '{"n": 3}\n'}
        case "odd":
            return {"exit_code": 3, "stdout": "so far\n"}
        case "again":
            return {"exit_code": 0 if made.count("again") >= 2 else 1}
        case "tool":
            return {"value": "[no output]"}
        case "tag":
            return {"exit_code": 0, "stdout": '{"said": 5}\n'}
        case _:
            return {"exit_code": 0, "stdout": "so far3\n"}


async def picture(harness: PipelineHarness, run: str) -> dict[str, Any]:
    """Everything about the end of a run that must not depend on where it was interrupted."""
    return {
        "statuses": await harness.statuses(run),
        "outputs": await harness.outputs(run),
        "result": await harness.result(run),
        "notes": [
            (note, await harness.notes(run, note)) for note in ("condition", "attempt", "repair", "postcondition")
        ],
    }


async def begun(folder: Path, name: str = "every") -> str:
    harness = harness_on(folder, name)
    run = await harness.start()
    await harness.close()
    return run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_write(when: str, tmp_path: Path) -> None:
    run = await begun(tmp_path / "whole")
    whole = harness_on(tmp_path / "whole")
    assert await settle(whole, run) == 0
    wanted = await picture(whole, run)
    assert whole.made("made") == LINES
    assert wanted["statuses"] == {
        "draft": "completed", "never": "skipped", "odd": "failed", "again": "completed", "ask": "completed",
        "look": "completed", "tag": "completed", "end": "completed",
    }  # fmt: skip
    assert len(await whole.events(run, Checkpointed)) >= 2
    await whole.close()
    every = writes(CHILD, tmp_path / "counted", await begun(tmp_path / "counted"))
    died, doubted = 0, 0
    for number in some(every, 8):
        folder = tmp_path / f"at{number}"
        run = await begun(folder)
        died += await asyncio.to_thread(die, CHILD, folder, run, when, number)
        harness = harness_on(folder)
        doubted += await settle(harness, run)
        assert await picture(harness, run) == wanted, f"killed {when} write {number}"
        assert harness.made("made") == LINES
        assert (await harness.service.verify(run)).broken_at is None
        await harness.close()
    assert died >= 6
    assert doubted > 0 or not THOROUGH, "some command must have been caught half done"


async def test_a_person_decides_about_a_killed_command(tmp_path: Path) -> None:
    """The process is killed while a step runs: its children are dead, and the step is never repeated by itself."""
    run = await begun(tmp_path / "slow", "slow")
    made = tmp_path / "slow" / "workspace" / "made"
    process = child(tmp_path / "slow", run, "never", "0", "slow")
    while not (made.exists() and "begun" in made.read_text()):
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate)
    harness = harness_on(tmp_path / "slow", "slow")
    row = await harness.service.drive(run)
    assert row.status == "awaiting_approval"
    assert (await harness.statuses(run))["slow"] == "in_doubt"
    assert harness.made("made") == ["first", "begun"]
    await harness.service.decide((await harness.wait(run)).id, "done", outcome={"exit_code": 0})
    row = await harness.service.drive(run)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["first", "begun", "last"]
    await harness.close()


async def test_a_command_that_only_reads_is_simply_run_again(tmp_path: Path) -> None:
    run = await begun(tmp_path / "looking", "looking")
    process = child(tmp_path / "looking", run, "never", "0", "looking")
    harness = harness_on(tmp_path / "looking", "looking")
    while (await harness.statuses(run)).get("look") != "running":
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate)
    (harness.workspace / "there").touch()
    row = await harness.service.drive(run)
    assert row.status == "completed", row.error
    assert harness.made("made") == ["last"]
    await harness.close()


# --- checkpoints ---


async def test_a_checkpoint_keeps_only_what_is_still_referred_to(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "echo", "needed"),
        cli("b", "echo", "not needed"),
        cli("c", "true"),
        shell("d", "false", on_error="continue"),
        cli("e", "echo", "last"),
        cli("f", "cat", stdin=words(ref("a", "stdout"))),
        cli("g", "true", condition=Operation("!", (ref("d", "error"),))),
    )
    assert row.status == "completed", row.error
    kept = [set(event.state["results"]) for event in await harness.events(row.id, Checkpointed)]
    assert kept == [{"a", "b"}, {"a", "d", "e"}, {"f"}]


async def test_a_checkpoint_keeps_what_a_person_changed_and_what_came_last(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "echo", "so far"),
        *(cli(name, "true") for name in "bcd"),
        cli("gate", "test", words(ArgRef("x")), "=", "2", approval=True),
        inputs={"x": "1"},
        args=[Arg("x")],
        breakpoints=("a",),
    )
    await harness.service.resume(row.id, overrides={"x": "2"})
    row = await harness.service.drive(row.id)
    assert row.status == "awaiting_approval"
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert (await harness.result(row.id))["step"] == "a"


async def test_a_resumed_run_starts_at_the_last_checkpoint(harness: PipelineHarness) -> None:
    steps = [shell(f"s{n}", f"echo {n} >> made; echo out {n}") for n in range(9)]
    row = await harness.do(
        *steps,
        cli("gate", "touch", "gate", approval=True),
        cli("end", "cat", stdin=words(ref("s0", "stdout"), " ", ref("s8", "stdout"))),
    )
    assert row.status == "awaiting_approval"
    claim = await harness.store.claim(row.id, "looking", harness.now)
    every = await harness.entries(row.id)
    assert len(claim.records) < len(every) / 2
    await harness.store.retire("looking")
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert harness.made("made") == [str(n) for n in range(9)]
    assert (await harness.outputs(row.id))["end"] == "out 0 out 8"


async def test_a_fork_before_a_checkpoint_works(harness: PipelineHarness) -> None:
    row = await harness.do(*(shell(f"s{n}", f"echo {n} >> made") for n in range(6)))
    fork = await harness.service.restart(row.id, "s1")
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert harness.made("made") == ["0", "1", "2", "3", "4", "5", "1", "2", "3", "4", "5"]


# --- tried again by a person ---


async def test_a_retry_repeats_only_the_step_that_ended_the_run(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("passed_over", "exit 3", on_error="continue"),
        shell("once", "echo once >> made"),
        shell("late", "test -e there", effect="read"),
        shell("last", "echo last >> made"),
    )
    assert (row.status, row.totals.steps_done) == ("failed", 1)
    (harness.workspace / "there").touch()
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert (row.status, row.totals.steps_done) == ("completed", 3)
    assert await harness.statuses(row.id) == {
        "passed_over": "failed", "once": "completed", "late": "completed", "last": "completed",
    }  # fmt: skip
    assert harness.made("made") == ["once", "last"]
