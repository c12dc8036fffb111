"""Runs and processes: interrupted, killed, and changed by another process while the first one drives."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, AskHuman, AskModel, Branch, Program
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.support.command_line import TEA, CommandLine, finished
from tests.support.model_server import ModelServer


def the_run(cli: CommandLine) -> str:
    with sqlite3.connect(cli.store) as connection:
        (run,) = connection.execute("SELECT id FROM runs").fetchone()
    connection.close()
    return str(run)


def test_an_interrupted_run_says_how_to_continue(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 2
    process = cli.begin("run", "tea.md", "--events")
    assert server.holding.wait(30)
    assert process.stdout is not None
    for line in process.stdout:
        if '"TextChunk"' in line and '"step":"2"' in line:
            break
    process.send_signal(signal.SIGINT)
    ran = finished(process)
    run = the_run(cli)
    assert ran.code == 130
    assert f"interrupted. `cuebook resume {run}` continues where it stopped." in ran.err
    assert "Traceback" not in ran.err
    assert "interrupted" in cli.call("runs").out
    server.release()
    resumed = cli.call("resume", run)
    assert (resumed.code, resumed.out) == (0, "Reply number 4.\n")
    assert server.prompts == ["Choose a green tea.", "Brew the green tea.", "Brew the green tea.", "Serve it."]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_says_how_to_continue_and_leaves_nothing(
    cli: CommandLine, number: signal.Signals, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    cli.environ["TMPDIR"] = str(temporary)
    cli.config.with_name("policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("slow.yml", "name: Slow\nsteps:\n  - id: a\n    command: cli sh -c 'touch $HOME/left began; sleep 600'\n")
    process = cli.begin("run", "slow.yml")
    while not (cli.work / "began").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    ran = finished(process)
    assert ran.code == 128 + number
    assert f"interrupted. `cuebook resume {the_run(cli)}` continues where it stopped." in ran.err
    assert "Traceback" not in ran.err
    assert list(temporary.iterdir()) == []


def test_a_killed_run_is_resumed_without_asking_finished_steps_again(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 3
    process = cli.begin("run", "tea.md")
    assert server.holding.wait(30)
    process.kill()
    finished(process)
    server.release()
    run = the_run(cli)
    ran = cli.call("resume", run, "--json")
    assert (ran.code, ran.object["status"]) == (0, "completed")
    assert server.prompts == ["Choose a green tea.", "Brew the green tea.", "Serve it.", "Serve it."]
    assert ran.object["outputs"] == {"1": "Reply number 1.", "2": "Reply number 2.", "3": "Reply number 4."}
    assert cli.call("verify", run).code == 0
    assert cli.call("replay", run).code == 0


def test_changes_to_a_run_that_was_interrupted_are_refused(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 1
    process = cli.begin("run", "tea.md")
    assert server.holding.wait(30)
    process.kill()
    finished(process)
    server.release()
    run = the_run(cli)
    ran = cli.call("resume", run, "--set", "kind=black")
    assert (ran.code, f"Run {run} is not paused" in ran.err) == (2, True)


def test_a_run_of_a_tenant_at_its_limit_says_that_it_waits_and_continues(cli: CommandLine, server: ModelServer) -> None:
    cli.environ["CUEBOOK_LIMITS_TENANT_RUNS"] = "1"
    server.hold_at = 1
    first = cli.begin("run", "tea.md")
    assert server.holding.wait(30)
    second = cli.begin("run", "tea.md")
    assert second.stderr is not None
    assert second.stderr.readline().startswith("Tea (run ")
    assert second.stderr.readline() == "cuebook: waits: 1 of 1 runs of tenant local are being driven.\n"
    assert len(server.requests) == 1
    server.release()
    ran = finished(second)
    assert (finished(first).code, ran.code) == (0, 0)
    assert "status: completed" in ran.err
    assert "waits" not in ran.err


def test_a_call_to_a_provider_at_its_limit_says_that_it_waits(cli: CommandLine, server: ModelServer) -> None:
    with cli.config.open("a") as file:
        file.write("at_once = 1\n")
    server.hold_at = 1
    first = cli.begin("run", "tea.md")
    assert server.holding.wait(30)
    second = cli.begin("run", "tea.md")
    assert second.stderr is not None
    lines = [second.stderr.readline() for _ in range(3)]
    assert lines[1:] == ["step 1: Choose\n", "  waits: 1 of 1 calls to test are under way\n"]
    assert len(server.requests) == 1
    server.release()
    assert (finished(first).code, finished(second).code) == (0, 0)
    assert len(server.requests) == 6
    assert server.most_under_way == 1


def test_another_process_cancels_a_run_that_is_driven(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 2
    first = cli.begin("run", "tea.md", "--json")
    assert server.holding.wait(30)
    second = cli.call("cancel", the_run(cli), "--reason", "enough", "--json")
    ran = finished(first)
    assert (second.code, second.object["status"]) == (5, "cancelled")
    assert (ran.code, ran.object["status"]) == (5, "cancelled")
    assert [step["status"] for step in ran.object["steps"]] == ["completed", "failed", "skipped"]


def test_another_process_follows_a_run_that_is_driven(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 2
    first = cli.begin("run", "tea.md")
    assert server.holding.wait(30)
    run = the_run(cli)
    follower = cli.begin("events", run, "--follow", "--json")
    second = cli.begin("resume", run)
    assert second.stderr is not None
    assert second.stderr.readline().startswith("Tea (run ")
    server.release()
    assert finished(first).out == "Reply number 3.\n"
    assert finished(second).out == "Reply number 3.\n"
    followed = finished(follower)
    assert followed.code == 0
    assert '"RunFinished"' in followed.out
    assert len(server.requests) == 3


async def test_another_process_answers_while_the_first_one_drives(bare_cli: CommandLine) -> None:
    go_on = asyncio.Event()

    class Slow:
        async def perform(self, effect: AskModel, call: Call) -> Reply:
            await go_on.wait()
            return Reply(Text("slow"), model="local/x")

    def asking(state: Any) -> Program[Any]:
        yield StepStarted("1", "Choose")
        answer = yield AskHuman("Which one?", "select", ("Green", "Black"))
        yield StepFinished("1", output=Text(answer.value))
        go_on.set()
        return answer.value

    def working(state: Any) -> Program[Any]:
        return (yield AskModel("work")).text

    def program(state: Any) -> Program[Any]:
        return (yield All((Branch(asking), Branch(working))))

    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(bare_cli.tea)  # any file: it is looked for, not opened
    store = SqliteStore(bare_cli.store, synchronous="NORMAL")
    service = Service(store, {AskModel: Slow()}, programs=lambda row, text, inputs, options: program)
    row = await service.start_program(TEA, "tea.md", {}, Settings(model="local"))
    driving = asyncio.create_task(service.drive(row.id))
    while not await service.inbox():
        await asyncio.sleep(0.02)

    wrong = await asyncio.to_thread(bare_cli.call, "answer", row.id, "red")
    assert (wrong.code, "Choose one of: Green, Black." in wrong.err) == (2, True)
    ran = await asyncio.to_thread(bare_cli.call, "answer", row.id, "green", "--json")
    done = await asyncio.wait_for(driving, 30)
    assert (ran.code, ran.object["status"]) == (0, "completed")
    assert done.status == "completed"
    assert (await service.view(row.id)).result == ["Green", "slow"]
    late = await asyncio.to_thread(bare_cli.call, "answer", row.id, "black")
    assert (late.code, "is not waiting for anything" in late.err) == (2, True)
    await service.close()
