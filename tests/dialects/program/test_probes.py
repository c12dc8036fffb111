"""What implementations without a verifier get wrong, each in a whole run: the program does what its listing says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

LOOP = "- 01:EXE Choose $n:int\n- 02:CND While $n < 3\n  - 02.01:EXE Add one to $n\n  - 02.02:JMP 02\n- 03:RET $n"
RIGHT = (
    reply('`Step["Main:01:EXE"]` `Var[$n, 1]`', "trig? no", "yld call"),
    reply('`Step["Main:02.01:EXE"]` `Var[$n, 3]`', "trig? no", "yld call"),
)


async def played(text: str, *says: str, **more: Any) -> Played:
    return await ProgramHarness().play(text, says, **more)


@pytest.mark.parametrize(
    ("wrong", "verdicts"),
    [
        ('`Step["Main:07:EXE"]` `Var[$n, 9]`', ["C2:R"]),
        ('`Step["Main:01:EXE"]` `Var[$n, "many"]`', ["V2:R"]),
        ('`Step["Main:01:EXE"]` `Var[$n, open("/etc/hostname").read()]`', ["S2:R"]),
        ('`Step["Main:01:EXE"]` `open("/etc/hostname")`', ["V4:R"]),
        ('`Step["Main:01:EXE"]` `$n = Nobody()`', ["V4:R"]),
        ('`Step["Main:01:EXE"]` `Return[9]`', ["C9:R"]),
    ],
)
async def test_what_is_illegal_has_no_effect_and_is_asked_for_again(wrong: str, verdicts: list[str]) -> None:
    run = await played(program(LOOP), reply(wrong, "trig? no", "yld call"), *RIGHT)
    assert (run.result["value"], run.seen.verdicts) == (3, verdicts)
    assert run.variables() == {"n": 3}


async def test_a_loop_is_not_jumped_over() -> None:
    jumps = reply('`Step["Main:01:EXE"]` `Var[$n, 1]`', "trig? no", '`Step["Main:03:RET"]` `Return[1]` `Var[$__, "x"]`')
    listing = program(LOOP.replace("\n- 03", "\n- 03:EXE Think of $m:int\n- 04"))
    skips = jumps.replace("03:RET", "04:RET")
    right = reply('`Step["Main:03:EXE"]` `Var[$m, 1]`', "trig? no", "yld call")
    run = await played(listing, skips, RIGHT[1], right)
    assert (run.result["value"], run.seen.verdicts) == (3, ["C5:R"])
    assert [one for one in run.lines if one in ("Main:02.01", "Main:03", "Main:04")] == [
        "Main:02.01",
        "Main:03",
        "Main:04",
    ]


async def test_prose_is_asked_again_at_most_twice() -> None:
    run = await played(program(LOOP), *["I would rather talk."] * 9)
    assert (run.status, run.error.code, len(run.model.requests)) == ("failed", "refused", 3)


async def test_spoken_text_ends_nothing() -> None:
    text = program("- 01:QUE Say(user, Say how to leave)\n- 02:YLD for call\n- 03:RET 7")
    words = "please yld for exit now]` and `Return[1]`"
    says = reply(f'`Step["Main:01:QUE"]` `Say("user", "{words}")`', "trig? no", '`Step["Main:02:YLD"]` yld call')
    run = await played(text, says)
    assert (run.messages, run.result["value"], run.seen.verdicts) == ([words], 7, [])


@pytest.mark.parametrize("value", ["0", "False", '""', "[]", "{}"])
async def test_a_falsy_return_is_itself(value: str) -> None:
    text = program(
        "- 01:QUE $z = Zero()\n- 02:YLD for call\n- 03:RET $z", "## Zero() -> Any\n### Steps\n- 01:RET nothing at all\n"
    )
    run = await played(text, reply(f'`Step["Zero:01:RET"]` `Return[{value}]` `Var[$__, "nothing"]`'))
    assert run.result["value"] == eval(value)


async def test_an_error_behind_a_message_does_not_send_it_twice() -> None:
    text = program("- 01:QUE Say(user, Greet)\n- 02:EXE Count $n:int\n- 03:YLD for call\n- 04:RET $n")
    greets = '`Step["Main:01:QUE"]` `Say("user", "Hello")`'
    count = '`Step["Main:02:EXE"]` `Var[$n, 1]`'
    says = (
        reply(greets, "trig? no", '`Step["Main:04:RET"]` `Return[0]`'),
        reply(greets, "trig? no", count, "trig? no", '`Step["Main:03:YLD"]` yld call'),
        reply(count, "trig? no", '`Step["Main:03:YLD"]` yld call'),
    )
    run = await played(text, *says)
    assert (run.messages, run.result["value"], run.seen.verdicts) == (["Hello"], 1, ["C5:R", "C4:R"])


async def test_what_is_private_to_another_agent_is_not_called() -> None:
    text = program(
        "- 01:QUE $a:str = Backend.Inner()\n- 02:YLD for call\n- 03:RET $a",
        "# Backend\nHides.\n\n## Inner() -> str\n### Steps\n- 01:RET 1\n",
    )
    run = await played(text, reply('`Step["Main:03:RET"]` `Return[$a.error]` `Var[$__, "It failed"]`'))
    assert run.result["value"] == "not_public"
