"""Triggers fire once and only by the agent's own variables; messages can fire those of any agent."""

from __future__ import annotations

from typing import Any

from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

ALARM = (
    "## Alarm() -> None\n### Triggers\n- T1:CND When $x > 15\n### Steps\n- 01:EXE $alarm:int = $alarm + 1\n- 02:RET\n"
)


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, answers, **options)


async def test_a_trigger_that_the_runtime_fired_is_not_fired_again_by_a_model() -> None:
    text = program("- 01:EXE $alarm:int = 0\n- 02:EXE $x:int = 20\n- 03:EXE Look at $y:int\n- 04:RET $alarm", ALARM)
    says = [
        reply('`Step["Main:03:EXE"]` `Var[$y, 1]`', 'trig? `Trigger["Alarm:T1:CND"]` `Alarm()`', "yld call"),
    ]
    run = await played(text, says)
    assert run.seen.triggers == ["Alarm:T1"]
    assert run.seen.verdicts == ["T4:F"]
    assert run.result["value"] == 1


async def test_a_trigger_that_a_model_fired_is_not_fired_again() -> None:
    text = program("- 01:EXE $alarm:int = 0\n- 02:EXE Choose $x:int\n- 03:EXE Look at $y:int\n- 04:RET $alarm", ALARM)
    fired = 'trig? `Trigger["Alarm:T1:CND"]` `Alarm()`'
    says = [
        reply('`Step["Main:02:EXE"]` `Var[$x, 20]`', fired, "yld call"),
        reply('`Step["Main:03:EXE"]` `Var[$y, 1]`', fired, "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == 1
    assert run.seen.triggers == ["Alarm:T1"]


async def test_a_parameter_neither_fires_nor_blocks_a_trigger() -> None:
    text = program(
        "- 01:EXE $alarm:int = 0\n- 02:EXE $x:int = 1\n- 03:QUE F(20)\n- 04:YLD for call\n- 05:EXE $before:int = $alarm\n"
        "- 06:EXE $x = 20\n- 07:EXE $after:int = $alarm\n- 08:RET [$before, $after]",
        f"## F($x:int) -> None\n### Steps\n- 01:EXE $x = $x + 1\n- 02:RET\n\n{ALARM}",
    )
    run = await played(text)
    assert run.result["value"] == [0, 1]


async def test_setting_a_parameter_does_not_fire_a_trigger() -> None:
    text = program(
        "- 01:EXE $alarm:int = 0\n- 02:QUE F(1)\n- 03:YLD for call\n- 04:RET $alarm",
        f"## F($x:int) -> None\n### Steps\n- 01:EXE Choose $x\n- 02:RET\n\n{ALARM}",
    )
    run = await played(text, [reply('`Step["F:01:EXE"]` `Var[$x, 20]`', "trig? no", "yld call")])
    assert run.result["value"] == 0
    assert run.seen.verdicts == []


async def test_a_trigger_gets_the_variables_of_the_agent_and_not_a_parameter() -> None:
    text = program(
        '- 01:EXE $who:str = "agent"\n- 02:QUE F("parameter")\n- 03:YLD for call\n- 04:RET $told',
        "## F($who:str) -> None\n### Steps\n- 01:EXE $x:int = 20\n- 02:EXE $z:int = 1\n- 03:RET\n\n"
        "## Tell($who:str) -> None\n### Triggers\n- T1:CND When $x > 15\n### Steps\n- 01:EXE $told:str = $who\n- 02:RET\n",
    )
    assert (await played(text)).result["value"] == "agent"


async def test_an_error_does_not_fire_a_trigger() -> None:
    text = program(
        "- 01:EXE $alarm:int = 0\n- 02:QUE $x = Nobody()\n- 03:YLD for call\n- 04:RET $alarm",
        ALARM.replace("$x > 15", "$x != 3"),
    )
    run = await played(text, [reply('`Step["Main:04:RET"]` `Return[$alarm]` `Var[$__, "s"]`')])
    assert run.result["value"] == 0
    assert run.seen.triggers == []


# --- messages ---

TWO = (
    "# Desk\nWorks.\n\n## Main() -> None\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:RET\n\n"
    "## Help() -> None\n### Triggers\n- T1:EVT When the user asks for help\n### Steps\n- 01:RET\n\n"
    "# Shop\nSells.\n\n## Order($what:str) -> None\n### Triggers\n- T1:EVT When the user orders something\n### Steps\n"
    "- 01:EXE $ordered:str = $what\n- 02:YLD for exit\n"
)


async def test_a_user_message_can_fire_triggers_of_any_agent() -> None:
    says = [reply('trig? `Trigger["Shop.Order:T1:EVT"]` `Shop.Order(what="tea")`', "yld call")]
    run = await played(TWO, says, ("a tea, please",))
    assert run.status == "completed"
    assert run.variables("Shop")["ordered"] == "tea"
    assert "When the user orders something" in run.prompt(0)
    assert 'Trigger["Shop.Order:T1:EVT"]' in run.prompt(0)


async def test_an_unhandled_message_does_not_end_the_run() -> None:
    odd = reply('trig? `Trigger["Nobody:T9:EVT"]` `Nobody()`', "yld call")
    good = reply('trig? `Trigger["Shop.Order:T1:EVT"]` `Shop.Order(what="cake")`', "yld call")
    run = await played(TWO, [odd, odd, odd, good], ("hm", "a cake"))
    assert run.status == "completed"
    assert run.variables("Shop")["ordered"] == "cake"
    assert any("had no effect" in one for one in run.seen.warnings)


async def test_a_playbook_may_be_called_messages() -> None:
    text = TWO.replace(
        "## Help() -> None", "## Messages() -> None\n### Steps\n- 01:EXE $mine:int = 1\n- 02:RET\n\n## Help() -> None"
    )
    says = [reply('trig? `Trigger["Shop.Order:T1:EVT"]` `Shop.Order(what="tea")`', "yld call")]
    run = await played(text, says, ("a tea, please",))
    assert run.variables("Shop")["ordered"] == "tea"
    assert "mine" not in run.variables()
    assert (await played(text, call="Messages()")).variables()["mine"] == 1
