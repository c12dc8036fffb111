"""Calls that run concurrently, and calls that must not: shared variables, results and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    async with asyncio.timeout(60):
        return await ProgramHarness().play(text, says, answers, **options)


AGAIN = "## Again() -> None\n### Steps\n- 01:QUE Again()\n- 02:QUE Again()\n- 03:YLD for call\n- 04:RET\n"
"""A playbook that shares no variable with itself: both its calls may run at once."""


async def test_a_playbook_that_calls_itself_twice_forever_is_stopped() -> None:
    run = await played(program("- 01:QUE Again()\n- 02:YLD for call\n- 03:RET 1", AGAIN), max_lines=200)
    assert run.error.code == "livelock"
    assert "200 lines" in run.error.message
    assert len(run.seen.calls) <= 200


async def test_concurrent_calls_count_the_depth_of_their_callers() -> None:
    said = [reply('`Return[]` `Var[$__, "s"]`')]
    more = (
        "## Down($n:int) -> None\n### Steps\n- 01:QUE Down($n + 1)\n- 02:QUE Leaf()\n- 03:YLD for call\n- 04:RET\n\n"
        "## Leaf() -> None\n### Steps\n- 01:RET\n"
    )
    run = await played(program("- 01:QUE Down(0)\n- 02:YLD for call\n- 03:RET 1", more), said)
    assert "64 levels deep" in run.prompt(0)


MAIL = (
    "# Kitchen\nCooks.\n\n## Cook() -> None\n### Triggers\n- T1:EVT When an order comes\n### Steps\n"
    "- 01:EXE $cooked:bool = true\n- 02:RET\n"
)


async def test_messages_of_concurrent_calls_arrive() -> None:
    text = program(
        '- 01:QUE Order("tea")\n- 02:QUE Order("cake")\n- 03:YLD for call\n- 04:YLD for agent Kitchen\n- 05:RET 1',
        f"## Order($m:str) -> None\n### Steps\n- 01:QUE Say(Kitchen, $m)\n- 02:YLD for call\n- 03:RET\n\n{MAIL}",
    )

    def said(request: Any) -> str:
        if "A message came in" in request.messages[-2].text:
            return reply('`Return[]` `Var[$__, "seen"]`')
        return reply('`Step["Main:04:YLD"]` yld for agent Kitchen') if "05:RET" not in request.messages[-1].text else reply(
            '`Step["Main:05:RET"]` `Return[1]` `Var[$__, "s"]`'
        )  # fmt: skip

    run = await played(text, said, call="Main()")
    shown = "\n".join(run.prompt(number) for number in range(len(run.model.requests)))
    assert "Desk: tea" in shown
    assert "Desk: cake" in shown
    assert shown.index("Desk: tea") < shown.index("Desk: cake")


async def test_types_declared_by_concurrent_calls_are_kept() -> None:
    text = program(
        '- 01:QUE One()\n- 02:QUE Two()\n- 03:YLD for call\n- 04:EXE $one = "5"\n- 05:RET $one',
        "## One() -> None\n### Steps\n- 01:EXE $one:int = 1\n- 02:RET\n\n## Two() -> None\n### Steps\n- 01:EXE $two:int = 2\n- 02:RET\n",
    )
    assert (await played(text)).result["value"] == 5


ALARM = "## Alarm() -> None\n### Triggers\n- T1:CND When $x > 15\n### Steps\n- 01:EXE $alarm:int = 1\n- 02:RET\n"


async def test_a_trigger_set_off_by_a_concurrent_call_fires_once() -> None:
    text = program(
        "- 01:QUE One()\n- 02:QUE Two()\n- 03:YLD for call\n- 04:RET $alarm",
        "## One() -> None\n### Steps\n- 01:QUE $x:int = Get()\n- 02:RET\n\n## Two() -> None\n### Steps\n- 01:RET\n\n"
        f"## Get() -> int\n### Steps\n- 01:RET 20\n\n{ALARM}",
    )
    run = await played(text)
    assert run.result["value"] == 1
    assert run.seen.triggers == ["Alarm:T1"]


async def test_a_trigger_on_two_variables_set_by_two_calls_fires() -> None:
    text = program(
        "- 01:QUE One()\n- 02:QUE Two()\n- 03:YLD for call\n- 04:EXE $z:int = 1\n- 05:RET $alarm",
        "## One() -> None\n### Steps\n- 01:EXE $x:int = 20\n- 02:RET\n\n## Two() -> None\n### Steps\n- 01:EXE $y:int = 20\n"
        f"- 02:RET\n\n{ALARM.replace('$x > 15', '$x > 15 and $y > 15')}",
    )
    run = await played(text)
    assert run.result["value"] == 1
    assert run.seen.triggers == ["Alarm:T1"]


# --- what they share ---


async def test_calls_that_increment_the_same_variable_run_one_after_another() -> None:
    text = program(
        "- 01:EXE $n:int = 0\n- 02:QUE Inc()\n- 03:QUE Inc()\n- 04:QUE Inc()\n- 05:YLD for call\n- 06:RET $n",
        "## Inc() -> None\n### Steps\n- 01:EXE $n = $n + 1\n- 02:RET\n",
    )
    run = await played(text)
    assert run.result["value"] == 3
    assert run.variables()["n"] == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('- 01:EXE $s = $s + ["a"]', '- 01:EXE $s = $s + ["b"]'),
        ("- 01:QUE Deep()\n- 02:YLD for call", '- 01:EXE $s = $s + ["b"]'),
    ],
)
async def test_calls_that_set_the_same_variable_keep_their_order(first: str, second: str) -> None:
    text = program(
        "- 01:EXE $s:list = []\n- 02:QUE A()\n- 03:QUE B()\n- 04:YLD for call\n- 05:RET $s",
        f"## A() -> None\n### Steps\n{first}\n- 03:RET\n\n## B() -> None\n### Steps\n{second}\n- 03:RET\n\n"
        '## Deep() -> None\n### Steps\n- 01:EXE $s = $s + ["a"]\n- 02:RET\n',
    )
    run = await played(text)
    assert run.result["value"] == run.variables()["s"] == ["a", "b"]


async def test_the_value_before_is_a_value_that_was_set() -> None:
    text = program(
        '- 01:EXE $s:str = "old"\n- 02:QUE A()\n- 03:QUE B()\n- 04:YLD for call\n- 05:RET $s',
        '## A() -> None\n### Steps\n- 01:EXE $s = "fromA"\n- 02:RET\n\n## B() -> None\n### Steps\n- 01:EXE $s = "old"\n- 02:RET\n',
    )
    run = await played(text)
    assert run.result["value"] == run.variables()["s"] == "old"


async def test_a_call_that_reads_part_of_another_result_waits() -> None:
    text = program(
        "- 01:EXE $a:int = 1\n- 02:QUE $a = Five()\n- 03:QUE $b:int = Twice()\n- 04:YLD for call\n- 05:RET $b",
        "## Five() -> int\n### Steps\n- 01:RET 5\n\n## Twice() -> int\n### Steps\n- 01:RET $a * 2\n",
    )
    assert (await played(text)).result["value"] == 10


async def test_the_result_of_a_call_is_passed_to_the_next_one() -> None:
    text = program(
        '- 01:EXE $hello:str = "hi"\n- 02:QUE F()\n- 03:QUE Say(user, $hello)\n- 04:QUE $b:int = G($_)\n- 05:YLD for call\n'
        "- 06:RET $b",
        "## F() -> int\n### Steps\n- 01:RET 20\n\n## G($n:int) -> int\n### Steps\n- 01:RET $n + 1\n",
    )
    run = await played(text)
    assert run.result["value"] == 21
    assert run.messages == ["hi"]


async def test_variables_that_models_set_concurrently_are_warned_about_and_shown_consistently() -> None:
    """No line declares that both calls set it, so they run concurrently."""
    both = asyncio.Barrier(2)

    async def said(request: Any) -> str:
        name = "One" if "Executing One(" in request.messages[-2].text else "Two"
        await both.wait()
        if name == "One":
            await asyncio.sleep(0.05)
        return reply(f'`Step["{name}:01:TNK"]` `Var[$z, "{name}"]`', "trig? no",
                     f'`Step["{name}:02:RET"]` `Return[]` `Var[$__, "ok"]`')  # fmt: skip

    more = "## One() -> None\n### Steps\n- 01:TNK Think\n- 02:RET\n\n## Two() -> None\n### Steps\n- 01:TNK Think\n- 02:RET\n"
    text = program('- 01:EXE $z:str = "old"\n- 02:QUE One()\n- 03:QUE Two()\n- 04:YLD for call\n- 05:RET $z', more)
    run = await played(text, said)
    assert run.result["value"] == run.variables()["z"] == "Two"
    assert any("concurrent calls have set $z" in one for one in run.seen.warnings)


async def test_python_playbooks_whose_calls_share_a_variable_run_one_after_another() -> None:
    source = (
        "@playbook\nasync def A() -> int:\n    return await Count()\n\n"
        "@playbook\nasync def B() -> int:\n    return await Count()\n"
    )
    text = (
        f"# Desk\n```python\n{source}```\n\n## Main() -> Any\n### Triggers\n- T1:BGN x\n### Steps\n- 01:EXE $n:int = 0\n"
        "- 02:QUE $a:int = A()\n- 03:QUE $b:int = B()\n- 04:YLD for call\n- 05:RET [$a, $b, $n]\n\n"
        "## Count() -> int\n### Steps\n- 01:EXE $n = $n + 1\n- 02:RET $n\n"
    )
    assert (await played(text)).result["value"] == [1, 2, 2]
