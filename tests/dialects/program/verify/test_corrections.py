"""A refused reply on the real engine: the accepted part stays, and the rest is requested again at most twice."""

from __future__ import annotations

import pytest

from tests.dialects.program.machine.test_machine import played, program, reply

BOTH = program("- 01:EXE Choose $a:int and $b:int\n- 02:EXE $c:int = $a + 1\n- 03:RET [$b, $c]")
BROKEN = reply('`Step["Main:01:EXE"]` `Var[$a, 1]` `Var[$b, "many"]`', "trig? no", "yld call")
FIVE = "## Five() -> int\n### Steps\n- 01:EXE $count:int = $count + 1\n- 02:RET 5\n"


@pytest.mark.parametrize(
    "line", ['`Step["Main:01:EXE"]` `Var[$b, 2]`', "`Var[$b, 2]`"], ids=["at the line again", "without naming it"]
)
async def test_a_line_that_was_refused_halfway_is_continued(line: str) -> None:
    run = await played(BOTH, [BROKEN, reply(line, "trig? no", "yld call")])
    assert run.result["value"] == [2, 2]
    assert run.seen.verdicts == ["V2:R"]
    assert run.lines == ["Main:01", "Main:02", "Main:03"]
    correction = run.model.requests[1].messages[-1].text
    for words in (
        "rule: V2",
        "position: Main:01, being executed",
        "- Main:01:EXE Choose",
        "- Main:02:EXE",
        "- $a was set",
    ):
        assert words in correction


async def test_a_line_that_is_refused_three_times_fails_its_frame_and_nothing_after_it_runs() -> None:
    run = await played(BOTH, [BROKEN] * 3)
    assert run.error.code == "refused"
    assert len(run.model.requests) == 3
    assert run.lines == ["Main:01"]


async def test_the_model_learns_why_a_value_cannot_be_computed_and_the_failure_names_it() -> None:
    text = program("- 01:EXE $n:int = 0\n- 02:EXE $x:float = 10 / $n\n- 03:RET $x")
    run = await played(text, [reply("Hm.")] * 3)
    assert "Main:02 cannot be computed: division by zero." in run.prompt(0)
    assert run.error.message.startswith("Main:02 cannot be computed: division by zero. Then 3 replies in a row")


async def test_a_failed_call_is_warned_about_and_named_as_the_cause() -> None:
    text = program(
        "- 01:QUE $x:int = Half(b=1)\n- 02:YLD for call\n- 03:RET $x", "## Half($n:int)\n### Steps\n- 01:RET 1"
    )
    run = await played(text, [reply("Hm.")] * 3)
    assert "Half failed: Half takes no argument 'b'." in run.seen.warnings
    assert run.error.message.startswith(
        "A call failed: Half takes no argument 'b'. Then 3 replies in a row were refused"
    )


@pytest.mark.parametrize(
    "line", ['`Step["Main:01:EXE"]` I am choosing now', '`Step["Main:01:EXE"]`', "I am choosing now"]
)
async def test_a_reply_without_a_yield_is_asked_for_again(line: str) -> None:
    text = program("- 01:EXE Choose something\n- 02:RET 1")
    run = await played(text, [reply(line)] * 3)
    assert run.error.code == "refused"
    assert run.seen.verdicts == ["S3:R"] * 3
    run = await played(text, [reply(line), reply('`Step["Main:01:EXE"]` Tea.', "trig? no", "yld call")])
    assert run.result["value"] == 1
    assert run.result["model_calls"] == 2


async def test_an_unknown_playbook_after_a_value_is_refused_until_it_is_omitted() -> None:
    text = program("- 01:EXE Choose $a:int\n- 02:RET $a")
    wrong = reply('`Step["Main:01:EXE"]` `Var[$a, 1]` `Nope(1)`', "trig? no", "yld call")
    run = await played(text, [wrong, reply('`Step["Main:01:EXE"]`', "trig? no", "yld call")])
    assert run.result["value"] == 1
    assert run.seen.verdicts == ["V4:R"]
    assert (await played(text, [wrong] * 3)).error.code == "refused"


@pytest.mark.parametrize("line", ['`Step["Main:02:RET"]` `Return[1]`', "`Return[1]`"])
async def test_a_return_can_be_corrected_without_losing_queued_calls(line: str) -> None:
    text = program("- 01:EXE Choose $a:int\n- 02:RET the sum", returns="int")
    wrong = reply(
        '`Step["Main:01:EXE"]` `Var[$a, 1]`',
        "trig? no",
        '`Step["Main:02:RET"]` `Say("user", "bye")` `Return["abc"]` `Var[$__, "x"]`',
    )
    run = await played(text, [wrong, reply(f'{line} `Var[$__, "x"]`', "yld return")])
    assert run.result["value"] == 1
    assert run.messages == ["bye"]
    assert run.seen.verdicts == ["Q2:R"]


async def test_a_call_that_was_queued_before_the_refusal_is_not_asked_for_twice() -> None:
    text = program("- 01:EXE $count:int = 0\n- 02:QUE $x:int = Five() for whoever asks\n- 03:RET [$count, $x]", FIVE)
    wrong = reply('`Step["Main:02:QUE"]` `$x = Five()` `Var[$count, "many"]`', "trig? no", "yld call")
    run = await played(text, [wrong, reply("yld call")])
    assert run.seen.calls == ["Main", "Five"]
    assert run.result["value"] == [1, 5], run.seen.verdicts


async def test_the_otherwise_branch_is_not_executed_after_the_if_branch() -> None:
    steps = "- 01:CND If it rains\n  - 01.01:EXE Take $u:str\n- 02:CND Otherwise\n  - 02.01:EXE $hat:bool = true\n- 03:RET 1"
    took = ('`Step["Main:01.01:EXE"]` `Var[$u, "umbrella"]`', "trig? no")
    run = await played(program(steps), [reply(*took, '`Step["Main:02:CND"]` does not apply', "trig? no", "yld call")])
    assert run.lines == ["Main:01", "Main:01.01", "Main:02", "Main:03"]
    named = [
        reply(*took, '`Step["Main:02:CND"]`', "yld call"),
        reply('`Step["Main:02.01:EXE"]` `Var[$hat, true]`', "yld call"),
    ]
    run = await played(program(steps), named[:1])
    assert "hat" not in run.variables()
    run = await played(program(steps), named * 2, always_ask=True)
    assert "hat" not in run.variables()
    assert "C4:R" in run.seen.verdicts


async def test_something_unexpected_executes_no_line() -> None:
    odd = reply("what? nobody told me", "yld call")
    run = await played(program("- 01:EXE Choose $x:int\n- 02:RET 1"), [odd] * 4)
    assert run.error.code == "refused"
    assert run.lines == ["Main:01"]


async def test_a_program_does_not_end_before_its_message_was_sent() -> None:
    text = program("- 01:QUE Say(user, Greet)\n- 02:YLD for exit")
    says = [
        reply('`Step["Main:01:QUE"]`', "trig? no", "yld exit"),
        reply('`Step["Main:01:QUE"]` `Say("user", "Hello")`', "trig? no", "yld exit"),
    ]
    run = await played(text, says)
    assert run.messages == ["Hello"]
    assert run.seen.verdicts == ["C12:R"]


async def test_waiting_for_an_unknown_agent_is_refused() -> None:
    text = program("- 01:EXE Ask $x:str\n- 02:RET 1", "# Kitchen\nCooks.\n\n## Cook() -> None\n### Steps\n- 01:RET\n")
    asked = '`Step["Main:01:EXE"]` `Var[$x, "a"]`'
    says = [reply(asked, "trig? no", f"yld {who}") for who in ("usr", "Kitchn", "call")]
    run = await played(text, says)
    assert run.seen.verdicts == ["S2:R", "V4:R"]
    assert "Did you mean 'Kitchen'?" in run.model.requests[2].messages[-1].text
    assert run.result["value"] == 1


async def test_a_step_of_another_agents_playbook_is_refused() -> None:
    text = program(
        "- 01:EXE Choose $x:int\n- 02:RET $x", "# Kitchen\nCooks.\n\n## Main() -> None\n### Steps\n- 01:RET\n"
    )
    says = [
        reply(f'`Step["{name}:01:EXE"]` `Var[$x, 1]`', "trig? no", "yld call") for name in ("Kitchen.Main", "Desk.Main")
    ]
    run = await played(text, says, call="Desk.Main")
    assert run.seen.verdicts == ["C1:R"]
    assert run.result["value"] == 1


async def test_a_long_listing_is_executed() -> None:
    steps = "\n".join(f"- {number:04}:EXE Do thing {number}" for number in range(1, 401)) + "\n- 0401:RET 1"
    said = "\n".join(f'`Step["Main:{number:04}:EXE"]` done\ntrig? no' for number in range(1, 401))
    run = await played(program(steps), [reply(said, "yld call")])
    assert run.result["value"] == 1
    assert run.seen.verdicts == []


async def test_a_value_that_is_larger_than_it_looks_is_left_to_a_model() -> None:
    text = program("- 01:EXE $x:list = [[[[0] * 200] * 200] * 200] * 3\n- 02:RET len($x)")
    run = await played(text, [reply('`Step["Main:01:EXE"]` `Var[$x, [1, 2]]`', "trig? no", "yld call")])
    assert run.result["value"] == 2
