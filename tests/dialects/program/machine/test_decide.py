"""Matters of interpretation go to a model, explicit values do not: dates, strings next to numbers, switches, types."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply


async def played(text: str, says: Any = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, **options)


@pytest.mark.parametrize(
    ("line", "returns"),
    [("- 01:EXE $d:str = 2024-11-12\n- 02:RET $d", "Any"), ("- 01:EXE $d:str = 555-1234\n- 02:RET $d", "Any")],
)
async def test_numbers_with_operators_are_not_computed_if_a_string_is_expected(line: str, returns: str) -> None:
    run = await played(
        program(line, returns=returns), [reply('`Step["Main:01:EXE"]` `Var[$d, "as written"]`', "trig? no", "yld call")]
    )
    assert run.result["value"] == "as written"


async def test_they_are_not_computed_if_a_string_is_returned_or_passed() -> None:
    text = program(
        "- 01:QUE $d:str = Dial(555-1234)\n- 02:YLD for call\n- 03:RET $d",
        "## Dial($n:str) -> str\n### Steps\n- 01:RET $n\n",
    )
    run = await played(
        text, [reply('`Step["Main:01:QUE"]` `$d = Dial("555-1234")`', "trig? no", '`Step["Main:02:YLD"]` yld call')]
    )
    assert run.result["value"] == "555-1234"
    back = [reply('`Step["Main:01:RET"]` `Return["2024-11-12"]` `Var[$__, "s"]`')]
    assert (await played(program("- 01:RET 2024-11-12", returns="str"), back)).result["value"] == "2024-11-12"


async def test_a_reply_without_the_quotes_is_corrected() -> None:
    says = [
        reply('`Step["Main:01:EXE"]` `Var[$phone, 555-1234]`', "trig? no", "yld call"),
        reply('`Step["Main:01:EXE"]` `Var[$phone, "555-1234"]`', "trig? no", "yld call"),
    ]
    run = await played(program("- 01:EXE Find $phone:str\n- 02:RET $phone"), says)
    assert run.seen.verdicts == ["V2:R"]
    assert "quotes" in run.seen.refused[0].problem
    assert run.result["value"] == "555-1234"


async def test_real_arithmetic_is_still_computed() -> None:
    text = program("- 01:EXE $n:int = 7 - 2\n- 02:EXE $s:str = -5\n- 03:EXE $t:str = $n - 1\n- 04:RET [$n, $s, $t]")
    run = await played(text)
    assert run.result["value"] == [5, "-5", "4"]
    assert run.result["model_calls"] == 0


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        ('"5"', "If $x == 5"),
        ('"3"', "If $x != 3"),
        ('"10"', 'If $x > "9"'),
        ('"10"', "If $x > 9"),
        ('"no"', "If $x"),
        ('"false"', "If not $x"),
        ('"5"', "If $x in [4, 5]"),
        ('"true"', "If $x == true"),
        ('"no"', "If $x and 1 == 1"),
    ],
)
async def test_comparing_strings_with_numbers_and_judging_strings_is_left_to_a_model(
    value: str, condition: str
) -> None:
    text = program(f"- 01:EXE $x = {value}\n- 02:CND {condition}\n  - 02.01:RET 1\n- 03:RET the number")
    run = await played(text, [reply('`Step["Main:03:RET"]` `Return[7]` `Var[$__, "s"]`')])
    assert run.result["value"] == 7
    assert run.result["model_calls"] == 1


@pytest.mark.parametrize(
    ("line", "condition", "value"),
    [
        ('$x:int = "5"', "If $x == 5", 1),
        ('$x:bool = "no"', "If $x", 2),
        ('$x = ""', "If $x", 2),
        ("$x = null", 'If $x == "a"', 2),
        ('$x = "a"', 'If $x == "a"', 1),
        ('$x = "a"', 'If $x in ["b", "c"]', 2),
        ("$x = [0]", "If $x", 1),
        ("$x = 3.0", "If $x == 3", 1),
    ],
)
async def test_types_and_values_of_one_kind_decide(line: str, condition: str, value: int) -> None:
    run = await played(program(f"- 01:EXE {line}\n- 02:CND {condition}\n  - 02.01:RET 1\n- 03:RET 2"))
    assert run.result["value"] == value
    assert run.result["model_calls"] == 0


@pytest.mark.parametrize(
    ("x", "words", "value"),
    [(1, "if $x > 3", "on"), (4, "if $x > 3", "jumped"), (1, "unless $x > 3", "jumped"), (4, "", "jumped")],
)
async def test_a_conditional_jump_is_made_if_its_condition_holds(x: int, words: str, value: str) -> None:
    text = program(f'- 01:EXE $x:int = {x}\n- 02:JMP 04 {words}\n- 03:RET "on"\n- 04:RET "jumped"')
    assert (await played(text)).result["value"] == value


async def test_a_value_or_another_is_a_value() -> None:
    text = program('- 01:EXE $name = "Ada"\n- 02:EXE $nick = ""\n- 03:RET [$name or "you", $nick or "you"]')
    run = await played(text)
    assert run.result["value"] == ["Ada", "you"]
    assert run.result["model_calls"] == 0


async def test_the_order_of_two_strings_is_left_to_a_model() -> None:
    text = program('- 01:EXE $a = max("10", "9")\n- 02:EXE $b = max(10, 9)\n- 03:RET [$a, $b]')
    run = await played(text, [reply('`Step["Main:01:EXE"]` `Var[$a, "10"]`', "trig? no", "yld call")])
    assert run.result["value"] == ["10", 10]


async def test_a_jump_with_a_condition_in_words_is_left_to_a_model() -> None:
    text = program('- 01:EXE $x:int = 1\n- 02:JMP 04 if it rains\n- 03:RET "on"\n- 04:RET "jumped"')
    run = await played(text, [reply('`Step["Main:03:RET"]` `Return["on"]` `Var[$__, "s"]`')])
    assert run.result["value"] == "on"


async def test_of_several_when_the_first_that_holds_is_taken() -> None:
    steps = (
        '- 01:EXE $x:int = 12\n- 02:CND When $x > 10\n  - 02.01:EXE $size:str = "large"\n- 03:CND When $x > 5\n'
        '  - 03.01:EXE $size:str = "middle"\n- 04:CND Otherwise\n  - 04.01:EXE $size:str = "small"\n- 05:RET $size'
    )
    assert (await played(program(steps))).result["value"] == "large"
    assert (await played(program(steps.replace("= 12", "= 7")))).result["value"] == "middle"
    assert (await played(program(steps.replace("= 12", "= 1")))).result["value"] == "small"


async def test_a_parameter_has_the_type_of_its_signature() -> None:
    text = program(
        '- 01:EXE $n:str = "a"\n- 02:QUE $m = Twice(21)\n- 03:YLD for call\n- 04:RET [$m, $n]',
        "## Twice($n:int) -> Any\n### Steps\n- 01:EXE $n = $n * 2\n- 02:RET $n\n",
    )
    assert (await played(text)).result["value"] == [42, "a"]


async def test_a_playbook_that_declares_a_type_has_it() -> None:
    text = program(
        "- 01:EXE $r:int = 1\n- 02:QUE Other()\n- 03:YLD for call\n- 04:RET $r",
        "## Other() -> Any\n### Steps\n- 01:EXE Choose $r:str\n- 02:RET $r\n",
    )
    run = await played(text, [reply('`Step["Other:01:EXE"]` `Var[$r, "abc"]`', "trig? no", "yld call")])
    assert run.seen.verdicts == []
    assert run.result["value"] == "abc"


async def test_the_clock_shows_the_time_to_a_helper_in_another_block() -> None:
    text = (
        "# Desk\n```python\nimport datetime\ndef year():\n    return datetime.date.today().year\n```\n\n"
        "```python\n@playbook\ndef Year() -> int:\n    return year()\n```\n\n"
        "## Main() -> Any\n### Triggers\n- T1:BGN x\n### Steps\n- 01:QUE $x:int = Year()\n- 02:YLD for call\n- 03:RET $x\n"
    )
    assert (await played(text)).result["value"] > 2000


async def test_a_table_of_the_program_is_not_mistaken_for_an_error() -> None:
    text = program(
        '- 01:QUE $f:dict = F()\n- 02:YLD for call\n- 03:CND If $f.error == "E1"\n  - 03.01:RET "handled"\n- 04:RET 1',
        '## F() -> dict\n### Steps\n- 01:RET {"error": "E1", "message": "m"}\n',
    )
    run = await played(text)
    assert run.result["value"] == "handled"
    assert run.result["model_calls"] == 0
