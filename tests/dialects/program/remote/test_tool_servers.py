"""Remote agents: a real tool server whose tools are called as playbooks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dialects.program.harness import ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply
from tests.performers.mcp.harness import GOOD, McpHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[McpHarness]:
    made = McpHarness(tmp_path)
    yield made
    await made.close()


def elsewhere(steps: str) -> str:
    remote = f"remote:\n  type: mcp\n  transport: stdio\n  command: {sys.executable}\n  args: [{GOOD}]"
    return program(steps, f"# good:MCP\nmetadata:\n{remote}\n---\nComputes elsewhere.\n")


async def test_its_tools_are_called_by_name_and_by_place_without_a_model(harness: McpHarness) -> None:
    text = elsewhere(
        "- 01:QUE $a:dict = good.add(a=1, b=2)\n- 02:QUE $b:dict = good.add(3, 4)\n- 03:YLD for call\n- 04:RET [$a, $b]"
    )
    played = await ProgramHarness(harness.workspace, box=harness.good(trusted=True)).play(text)
    assert played.result["value"] == [{"result": 3}, {"result": 7}]
    assert played.result["model_calls"] == 0


async def test_a_model_sees_them_and_must_match_their_parameters(harness: McpHarness) -> None:
    text = elsewhere("- 01:EXE Add one and two, as $sum:dict\n- 02:YLD for call\n- 03:RET $sum")
    says = [
        reply('`Step["Main:01:EXE"]` `$sum = good.add(x=1)`', "trig? no", '`Step["Main:02:YLD"]` yld call'),
        reply('`Step["Main:01:EXE"]` `$sum = good.add(a=1, b=2)`', "trig? no", '`Step["Main:02:YLD"]` yld call'),
    ]
    played = await ProgramHarness(harness.workspace, box=harness.good(trusted=True)).play(text, says)
    assert played.result["value"] == {"result": 3}
    assert played.seen.verdicts == ["V4:R"]
    assert "good.add($a, $b): Adds two numbers." in played.prompt(0)


async def test_a_tool_that_fails_is_an_error(harness: McpHarness) -> None:
    text = elsewhere('- 01:QUE $a:str = good.fail(why="rain")\n- 02:YLD for call\n- 03:RET $a')
    says = [reply('`Step["Main:03:RET"]` `Return[$a.message]` `Var[$__, "It failed"]`')]
    played = await ProgramHarness(harness.workspace, box=harness.good(trusted=True)).play(text, says)
    assert played.result["value"] == "Error executing tool fail"
    assert played.variables()["a"]["error"] == "tool_error"


async def test_an_unreachable_agent_is_warned_about_and_its_calls_are_errors(tmp_path: Path) -> None:
    text = elsewhere("- 01:QUE $a:dict = good.add(1, 2)\n- 02:YLD for call\n- 03:RET $a")
    says = [reply('`Step["Main:03:RET"]` `Return[$a.error]` `Var[$__, "It failed"]`')]
    played = await ProgramHarness(tmp_path).play(text, says)
    assert played.result["value"] == "unknown_playbook"
    assert any("good cannot be reached" in one for one in played.seen.warnings)


async def test_results_of_two_concurrent_tools_are_used_unchanged(harness: McpHarness) -> None:
    text = elsewhere(
        '- 01:QUE $a = good.add(1, 2)\n- 02:QUE $b:str = good.fail(why="rain")\n- 03:YLD for call\n- 04:RET [$a, $b]'
    )
    says = [reply('`Step["Main:04:RET"]` `Return[[$a, $b.error]]` `Var[$__, "One of them failed"]`')]
    played = await ProgramHarness(harness.workspace, box=harness.good(trusted=True)).play(text, says)
    assert played.result["value"] == [{"result": 3}, "tool_error"]


async def test_an_agent_with_an_unsupported_transport_is_not_contacted(tmp_path: Path) -> None:
    remote = "remote:\n  type: mcp\n  transport: memory\n  url: memory://./server.py"
    text = program("- 01:RET 1", f"# far:MCP\nmetadata:\n{remote}\n---\nComputes elsewhere.\n")
    played = await ProgramHarness(tmp_path).play(text)
    assert played.result["value"] == 1
    warning = "The agent far cannot be reached: The transport 'memory' is not supported."
    assert warning in played.seen.warnings
