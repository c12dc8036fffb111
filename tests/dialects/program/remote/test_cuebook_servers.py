"""Agents on another Cuebook server: a real one in a separate process, whose playbooks are called over MCP."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import StoreError
from cuebook.kernel.events import Performed, WaitOpened
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.run import Settings
from cuebook.performers.mcp import McpServer
from cuebook.performers.tools.toolbox import Toolbox
from cuebook.service.service import Service
from cuebook.service.waits.decisions import Decision
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import ScriptedModel
from tests.dialects.program.crashes.test_resume import stop_at
from tests.dialects.program.harness import ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply
from tests.performers.mcp.harness import McpHarness
from tests.support.records import killed

SERVER = str(Path(__file__).parent / "cuebook_server.py")
ROOT = Path(__file__).parents[4]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


@contextmanager
def on_the_network(folder: Path) -> Iterator[str]:
    """The server's URL while it listens."""
    process = subprocess.Popen(
        [sys.executable, SERVER, str(folder), "http"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment()},
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


class There:
    """The other server: how to reach it, and the requests it received."""

    def __init__(self, folder: Path, box: Toolbox, remote: str) -> None:
        self.folder, self.box, self._remote = folder, box, remote

    def program(self, steps: str) -> str:
        return program(steps, f"# There\nmetadata:\nremote:\n  type: cuebook\n{self._remote}\n---\nAnother server.\n")

    def asked(self) -> list[list[str]]:
        """The playbook, the run and the key of each request."""
        return [line.split() for line in (self.folder / "asked").read_text().splitlines()]

    async def answers(self) -> list[str]:
        """The answers to the questions of its first run."""
        entries = [one.event async for one in self.service().entries(self.asked()[0][1])]
        return [one.outcome.value for one in entries if isinstance(one, Performed) and isinstance(one.outcome, Answer)]

    def service(self) -> Service:
        """Its runs, for the people there."""
        return Service(SqliteStore(self.folder / "runs.db"), {}, key_file=self.folder / "key")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[McpHarness]:
    made = McpHarness(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def there(harness: McpHarness, tmp_path: Path) -> AsyncIterator[There]:
    folder = tmp_path / "there"
    folder.mkdir()
    with on_the_network(folder) as url:
        box = harness.serve(McpServer("There", url=url))
        yield There(folder, box, f"  url: {url}")


async def test_a_playbook_runs_there_and_returns_its_result_over_stdio(harness: McpHarness, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    command = (sys.executable, SERVER, str(folder))
    box = harness.serve(McpServer("There", command=command, env=environment(), readable=(str(ROOT),)))
    there = There(folder, box, f"  command: {' '.join(command)}")
    steps = "- 01:QUE $a:int = There.Double(n=4)\n- 02:YLD for call\n- 03:RET $a"
    played = await ProgramHarness(tmp_path, box=box).play(there.program(steps))
    assert played.result["value"] == 8, (played.error, played.seen.warnings)
    assert played.result["model_calls"] == 0


async def test_two_run_there_at_once_and_each_is_asked_for_once_under_its_own_key(there: There, tmp_path: Path) -> None:
    text = there.program(
        "- 01:QUE $a:int = There.Double(4)\n- 02:QUE $b:int = Double(500)\n- 03:YLD for call\n- 04:RET [$a, $b]"
    )
    played = await ProgramHarness(tmp_path, box=there.box).play(text)
    assert played.result["value"] == [8, 200]
    asked = there.asked()
    assert [one[0] for one in asked] == ["numbers/double.pbasm"] * 2
    assert len({one[1] for one in asked}) == len({one[2] for one in asked}) == 2
    assert all(len(one[2]) == 64 for one in asked)


async def test_its_question_is_asked_here_and_the_answer_is_sent_back(there: There, tmp_path: Path) -> None:
    text = there.program('- 01:QUE $a:str = There.GreetSomebody(name="Ada")\n- 02:YLD for call\n- 03:RET $a')
    harness = ProgramHarness(tmp_path, box=there.box)
    played = await harness.play(text, answers=["WARMLY"])
    assert played.result["value"] == "Hello, Ada."
    [wait] = [one.event for one in played.entries if isinstance(one.event, WaitOpened)]
    assert (wait.prompt, wait.type, wait.options) == ("How is Ada greeted?", "select", ("warmly", "briefly"))
    assert await there.answers() == ["warmly"]


async def test_an_answer_given_on_the_server_in_the_meantime_counts(there: There, tmp_path: Path) -> None:
    text = there.program('- 01:QUE $a:str = There.GreetSomebody(name="Ada")\n- 02:YLD for call\n- 03:RET $a')
    harness = ProgramHarness(tmp_path, box=there.box)
    waiting = await harness.play(text)
    assert waiting.status == "awaiting_input"
    service = there.service()
    [wait] = await service.waits(there.asked()[0][1])
    await service.answer(wait.id, "briefly")
    played = await harness.drive(harness.service(waiting.model), waiting.row.id, waiting.model, ["warmly"])
    assert played.result["value"] == "Hello, Ada."
    assert await there.answers() == ["briefly"]
    assert len(there.asked()) == 1


@pytest.mark.parametrize(("answer", "value"), [("yes", "Hello, Ada."), ("no", "paused")])
async def test_a_pause_there_is_ended_from_here(there: There, tmp_path: Path, answer: str, value: str) -> None:
    text = there.program('- 01:QUE $a:str = There.Paused(name="Ada")\n- 02:YLD for call\n- 03:RET $a')
    says = [reply('`Step["Main:03:RET"]` `Return[$a.error]` `Var[$__, "It stays paused"]`')]
    played = await ProgramHarness(tmp_path, box=there.box).play(text, says, [answer])
    assert played.result["value"] == value
    [wait] = [one.event for one in played.entries if isinstance(one.event, WaitOpened)]
    assert wait.prompt.startswith("There.Paused is paused (execution ")


@pytest.mark.parametrize(("decision", "value"), [("approve", "shipped 1.2\n"), ("deny", "remote_cancelled")])
async def test_an_approval_is_decided_there_and_waited_for_here(
    there: There, tmp_path: Path, decision: Decision, value: str
) -> None:
    text = there.program('- 01:QUE $a:str = There.Deploy(version="1.2")\n- 02:YLD for call\n- 03:RET $a')
    says = [reply('`Step["Main:03:RET"]` `Return[$a.error]` `Var[$__, "Nobody wanted it"]`')]
    playing = asyncio.create_task(ProgramHarness(tmp_path, box=there.box).play(text, says))
    service = there.service()
    while not (waits := await service.inbox()):
        await asyncio.sleep(0.05)
    await service.decide(waits[0].id, decision)
    played = await playing
    assert played.result["value"] == value
    [link] = [one for one in played.seen.warnings if "is waiting for approval on that server" in one]
    assert f"/runs/{there.asked()[0][1]}" in link


async def test_what_cannot_be_called_is_an_error(there: There, tmp_path: Path) -> None:
    text = there.program(
        "- 01:QUE $a:int = There.Dubble(4)\n- 02:QUE $b:int = There.Double()\n- 03:YLD for call\n- 04:RET [$a, $b]"
    )
    says = [reply('`Step["Main:04:RET"]` `Return[[$a.message, $b.message]]` `Var[$__, "It failed"]`')]
    played = await ProgramHarness(tmp_path, box=there.box).play(text, says)
    assert played.result["value"][0].startswith("There is no playbook 'There.Dubble'. Did you mean")
    assert played.result["value"][1] == "Double needs n."
    assert not (there.folder / "asked").exists()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_stopped_at_every_write_it_starts_nothing_twice(
    when: str, there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = there.program("- 01:QUE $a:int = There.Double(n=4)\n- 02:YLD for call\n- 03:RET $a")
    repeated = number = 0
    stopped = True
    while stopped:
        number, stopped = number + 1, False
        harness = ProgramHarness(tmp_path, SqliteStore(tmp_path / f"at{number}.db"), there.box)
        service = harness.service(ScriptedModel([]))
        run = (await service.start(Playbook.from_text(text, "program.pbasm"), {}, Settings(model="test/none"))).id
        before = len(there.asked()) if number > 1 else 0
        with monkeypatch.context() as patched:
            stop_at(patched, when, number)
            try:
                await service.drive(run)
            except StoreError:
                stopped = True
        store = SqliteStore(tmp_path / f"at{number}.db")
        await killed(store, service._engine.driver)
        harness = ProgramHarness(tmp_path, store, there.box)
        service = harness.service(ScriptedModel([]))
        played = await harness.drive(service, run, ScriptedModel([]))
        assert played.result["value"] == 8, f"stopped {when} write {number}"
        asked = there.asked()[before:]
        assert len({tuple(one) for one in asked}) == 1, asked
        repeated += len(asked) > 1
    assert bool(repeated) == (when == "before")


async def test_a_tool_server_is_not_a_cuebook_server(harness: McpHarness, tmp_path: Path) -> None:
    box = harness.good()
    text = program(
        "- 01:RET 1", "# good\nmetadata:\nremote:\n  type: cuebook\n  command: good\n---\nNo Cuebook server.\n"
    )
    played = await ProgramHarness(tmp_path, box=box).play(text)
    assert played.seen.warnings == [
        "The agent good cannot be reached: It is not a Cuebook server: it has no tool execute_playbook."
    ]
