"""Repetition is stopped soon, failures do not count as success, and strings and numbers arrive unchanged, on the real engine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cuebook.dialects.program.machine.machine import MOST_IDLE
from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

BAD = """```python
@playbook
async def Bad() -> str:
    raise ValueError("no luck")

@playbook
async def Factorial(a: float) -> int:
    import math
    return math.factorial(a)

@playbook
async def Echo(t: str) -> str:
    return t
```
"""
CALLED = "- 01:QUE $x:str = Bad()\n- 02:YLD for call\n"


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, answers, **options)


def always(*lines: str) -> Any:
    return lambda _: reply(*lines)


# --- repetition ---

SHOP = """# Desk
Sells tea.

## OnOrder() -> None
### Triggers
- T1:EVT When the user orders something
### Steps
- 01:QUE Say(user, Confirm the order)
- 02:RET
"""


async def test_a_message_fires_a_trigger_once() -> None:
    fires = reply('trig? `Trigger["OnOrder:T1:EVT"]`', "`OnOrder()`", "yld call")
    confirms = reply('`Step["OnOrder:01:QUE"]` `Say("user", "Two teas, right")`', "trig? no", "yld call")

    def says(request: Any) -> str:
        return confirms if "Execute OnOrder" in request.messages[-1].text else fires

    run = await played(SHOP, says, ("two teas",))
    assert run.messages == ["Two teas, right"]
    assert run.seen.triggers == ["OnOrder:T1"]
    assert "T4:F" in run.seen.verdicts
    assert len(run.model.requests) <= 2 * MOST_IDLE


async def test_another_message_fires_it_again() -> None:
    fires = reply('trig? `Trigger["OnOrder:T1:EVT"]`', "`OnOrder()`", "yld call")
    confirms = reply('`Step["OnOrder:01:QUE"]` `Say("user", "Right")`', "trig? no", "yld call")
    over = reply('`Return[]` `Var[$__, "done"]`')
    run = await played(SHOP, [fires, confirms, over] * 2, ("two teas", "one more"))
    assert run.messages == ["Right", "Right"]


TASK = "# Desk\nWorks.\n\n## Main() -> str\n### Triggers\n- T1:BGN At the beginning\n\nFind something out.\n"


@pytest.mark.parametrize(
    "line",
    ['`Say("user", "still working")`', "`Bad()`", '`Echo(t="a")`'],
    ids=["says the same", "fails the same way", "gets the same"],
)
async def test_a_task_that_repeats_itself_is_stopped_soon(line: str) -> None:
    run = await played(f"{TASK}\n{BAD}", always(line, "yld call"))
    assert run.status == "failed"
    assert len(run.model.requests) <= MOST_IDLE + 3
    assert len(run.messages) <= MOST_IDLE


async def test_a_task_with_new_calls_each_time_continues() -> None:
    says = [reply(f'`Echo(t="{number}")`', "yld call") for number in range(2 * MOST_IDLE)]
    run = await played(f"{TASK}\n{BAD}", [*says, reply('`Return["ok"]` `Var[$__, "s"]`')])
    assert run.result["value"] == "ok"


async def test_a_long_listing_without_assignments_is_not_a_repetition() -> None:
    count = MOST_IDLE + 5
    steps = "\n".join(f"- {number:02}:QUE Say(user, Tell {number}); YLD for call" for number in range(1, count + 1))
    says = [
        reply(f'`Step["Main:{n:02}:QUE"]` `Say("user", "{n}")`', "trig? no", "yld call") for n in range(1, count + 1)
    ]
    run = await played(program(f"{steps}\n- {count + 1}:RET 1"), says)
    assert run.result["value"] == 1
    assert len(run.messages) == count


async def test_the_prompt_asks_a_task_to_continue_instead_of_starting_again() -> None:
    says = [reply('`Echo(t="a")`', "yld call"), reply('`Return["ok"]` `Var[$__, "s"]`')]
    run = await played(f"{TASK}\n{BAD}", says)
    assert run.model.requests[0].messages[-1].text.endswith("Execute Main.")
    assert "Execute Main." not in run.model.requests[1].messages[-1].text
    assert "Continue Main" in run.model.requests[1].messages[-1].text


# --- errors ---


async def test_an_error_that_is_returned_fails_the_call() -> None:
    text = program(f"{CALLED}- 03:RET $x", BAD, returns="str")
    run = await played(text, [reply('`Step["Main:03:RET"]` `Return[$x]` `Var[$__, "s"]`')])
    assert run.status == "failed"
    assert "no luck" in run.error.message


@pytest.mark.parametrize(
    "line",
    ["`Var[$y, $x]`", '`Say("user", $x)`', "`Var[$y, str($x)]`", '`Say("user", "It is {$x}")`', "`$y = Echo(t=$x)`"],
)
async def test_an_error_is_never_converted_to_a_string(line: str) -> None:
    text = program(f"{CALLED}- 03:EXE Find $y:str, and say it\n- 04:RET $y", BAD, returns="str")
    run = await played(text, [reply(f'`Step["Main:03:EXE"]` {line}', "trig? no", "yld call")] * 3)
    assert run.status == "failed"
    assert run.messages == []
    assert "y" not in run.variables()
    assert {one.rule for one in run.seen.refused} <= {"V3", "V2"}


async def test_the_message_of_an_error_can_be_sent() -> None:
    text = program(f"{CALLED}- 03:QUE Say(user, Tell them)\n- 04:RET 1", BAD)
    said = '`Step["Main:03:QUE"]` `Say("user", "Sorry: {$x.message}")`'
    run = await played(text, [reply(said, "trig? no", "yld call")])
    assert len(run.messages) == 1
    assert "no luck" in run.messages[0]


# --- texts and numbers ---


async def test_an_int_is_passed_to_python_unchanged() -> None:
    run = await played(program("- 01:QUE $f:int = Factorial(a=3)\n- 02:YLD for call\n- 03:RET $f", BAD))
    assert run.result["value"] == 6


async def test_placeholders_in_braces_are_filled_in() -> None:
    steps = (
        '- 01:EXE $name:str = "Ada"\n- 02:EXE $g:str = "Hello {$name}, {{so}} {$name}"\n'
        '- 03:QUE $e:str = Echo(t="<{$name}>")\n- 04:YLD for call\n- 05:RET "{$g} {$e} {other}"'
    )
    run = await played(program(steps, BAD))
    assert run.result["value"] == "Hello Ada, {{so}} Ada <Ada> {other}"
    assert run.result["model_calls"] == 0


async def test_a_message_is_filled_in_before_it_is_shown() -> None:
    text = program('- 01:EXE $name:str = "Ada"\n- 02:QUE Say(user, Greet $name)\n- 03:RET 1')
    said = '`Step["Main:02:QUE"]` `Say("user", "Hello {$name}, this is {not_a_variable}")`'
    run = await played(text, [reply(said, "trig? no", "yld call")])
    assert run.messages == ["Hello Ada, this is {not_a_variable}"]


@pytest.mark.parametrize("line", ['EXE $g:str = "Hello $name"', 'QUE $g:str = Echo(t="Hello $name")'])
async def test_text_that_mentions_a_variable_without_braces_is_left_to_a_model(line: str) -> None:
    text = program(f'- 01:EXE $name:str = "Ada"\n- 02:{line}\n- 03:YLD for call\n- 04:RET $g', BAD)
    does = '`Var[$g, "Hello Ada"]`' if line.startswith("EXE") else '`$g = Echo(t="Hello Ada")`'
    code = line[:3]
    run = await played(text, [reply(f'`Step["Main:02:{code}"]` {does}', "trig? no", "yld call")])
    assert run.result["value"] == "Hello Ada"
    assert run.result["model_calls"] == 1


async def test_the_result_behind_a_message_is_the_message() -> None:
    text = program("- 01:QUE Say(user, Tell a story)\n- 02:EXE Keep it as $k:str\n- 03:RET $k", returns="str")
    lines = (
        '`Step["Main:01:QUE"]` `Say("user", "A story")`',
        "trig? no",
        '`Step["Main:02:EXE"]` `Var[$k, $_]`',
        "trig? no",
    )
    run = await played(text, [reply(*lines, '`Step["Main:03:RET"]` `Return[$k]` `Var[$__, "s"]`')])
    assert run.result["value"] == "A story"


async def test_before_anything_was_called_there_is_no_result() -> None:
    text = program("- 01:EXE Keep it as $k:str\n- 02:RET $k")
    run = await played(text, [reply('`Step["Main:01:EXE"]` `Var[$k, $_]`', "trig? no", "yld call")] * 3)
    assert [one.rule for one in run.seen.refused] == ["V3"] * 3


# --- what was declared, and asked for ---


async def test_a_declared_type_is_not_changed_by_a_reply() -> None:
    text = program("- 01:EXE Choose $n:int\n- 02:RET $n")
    wrong = reply('`Step["Main:01:EXE"]` `Var[$n:str, "lots"]`', "trig? no", "yld call")
    run = await played(text, [wrong, reply('`Step["Main:01:EXE"]` `Var[$n:str, "7"]`', "trig? no", "yld call")])
    assert run.result["value"] == 7
    assert run.seen.verdicts == ["V2:R", "V2:F"]


ASKED = program("- 01:QUE Say(user, Ask for $n:int)\n- 02:YLD for user\n- 03:QUE Say(user, Thank them)\n- 04:RET 1")
ASK = reply('`Step["Main:01:QUE"]` `Say("user", "How many?")`', "trig? no", '`Step["Main:02:YLD"]` yld user')
THANK = ('`Step["Main:03:QUE"]` `Say("user", "Thanks")`', "trig? no", "yld call")


async def test_a_requested_value_is_set_or_asked_for_again() -> None:
    silent, none = reply(*THANK), reply("`Var[$n, None]`", "trig? no", *THANK)
    again = reply('`Say("user", "A number, please")`', "yld user")
    run = await played(ASKED, [ASK, silent, none, again, reply("`Var[$n, 2]`", "trig? no", *THANK)], ("dunno", "two"))
    assert run.messages == ["How many?", "A number, please", "Thanks"]
    assert [one.rule for one in run.seen.refused] == ["V3", "V2"]
    assert run.variables()["n"] == 2


@pytest.mark.parametrize("line", ["EXE Take $n down", "QUE Say(user, Repeat $n)"])
async def test_a_requested_value_may_be_set_at_the_next_line(line: str) -> None:
    text = program(f"- 01:QUE Say(user, Ask for $n:int)\n- 02:YLD for user\n- 03:{line}\n- 04:RET $n")
    said = '`Say("user", "2")`' if line.startswith("QUE") else ""
    run = await played(
        text, [ASK, reply(f'`Step["Main:03:{line[:3]}"]` `Var[$n, 2]` {said}', "trig? no", "yld call")], ("two",)
    )
    assert run.result["value"] == 2
    assert run.seen.refused == []


# --- messages for models and people ---


async def test_a_yield_that_names_no_line_is_that_of_the_line() -> None:
    text = program("- 01:QUE Say(user, Ask)\n- 02:YLD for user\n- 03:RET 1")
    run = await played(
        text, [reply('`Step["Main:01:QUE"]` `Say("user", "?")`', "trig? no", "yld user"), reply("yld call")], ("a",)
    )
    assert run.lines == ["Main:01", "Main:02", "Main:03"]


async def test_after_two_refusals_the_roles_alternate_and_all_that_was_applied_is_named() -> None:
    text = program("- 01:EXE Choose $a:int\n- 02:EXE Choose $b:int\n- 03:RET [$a, $b]")
    first = reply('`Step["Main:01:EXE"]` `Var[$a, 1]`', "trig? no", '`Step["Main:02:EXE"]` `Var[$b, "x"]`', "yld call")
    second = reply('`Step["Main:02:EXE"]` `Var[$b, "y"]`', "yld call")
    run = await played(text, [first, second, reply('`Step["Main:02:EXE"]` `Var[$b, 2]`', "trig? no", "yld call")])
    assert run.result["value"] == [1, 2]
    last = run.model.requests[2].messages
    assert "- $a was set" in last[-1].text
    roles = [message.role for message in last if message.role != "system"]
    assert not any(one == other == "assistant" for one, other in pairwise(roles))


OTHER = "# Kitchen\nCooks.\n\n## Secret() -> int\n### Steps\n- 01:RET 1\n"


@pytest.mark.parametrize(
    ("call", "words"), [("Kitchen.Secret()", "not public"), ('Say("Nobody", "x")', "no agent named 'Nobody'")]
)
async def test_private_and_missing_playbooks_are_reported(call: str, words: str) -> None:
    text = program("- 01:EXE Do something\n- 02:RET 1", OTHER)
    run = await played(text, [reply(f'`Step["Main:01:EXE"]` `{call}`', "trig? no", "yld call")] * 3, call="Desk.Main")
    assert [one.rule for one in run.seen.refused] == ["V4"] * 3
    assert words in run.seen.refused[0].problem


async def test_python_that_speaks_to_an_unknown_agent_gets_an_error() -> None:
    python = '```python\n@playbook\nasync def Shout() -> str:\n    await Say("Nobody", "x")\n    return "ok"\n```\n'
    run = await played(program("- 01:QUE $r:str = Shout()\n- 02:YLD for call\n- 03:RET $r", python), [reply("Hm.")] * 3)
    assert run.status == "failed"
    assert any("There is no agent named 'Nobody'" in one for one in run.seen.warnings)


async def test_a_program_that_only_waits_for_messages_begins() -> None:
    text = SHOP.replace("Sells tea.", "metadata:\nstartup_mode: standby\n---\nSells tea.")
    run = await played(text)
    assert run.status == "awaiting_input"
