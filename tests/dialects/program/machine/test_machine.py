"""The machine: what runs next, what runs without a model, how calls wait for each other, and how a run ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.events import Noted
from cuebook.kernel.run import Settings
from cuebook.testing import ScriptedModel
from tests.dialects.program.harness import Played, ProgramHarness

HEAD = "recap – so\nplan – so\n"


def program(steps: str, more: str = "", returns: str = "Any") -> str:
    return f"# Desk\nWorks.\n\n## Main() -> {returns}\n### Triggers\n- T1:BGN At the beginning\n### Steps\n{steps}\n\n{more}"


def reply(*lines: str) -> str:
    return HEAD + "\n".join(lines)


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, answers, **options)


# --- without a model ---


async def test_arithmetic_conditions_jumps_and_returns_need_no_model() -> None:
    run = await played(
        program(
            '- 01:EXE $n:int = "3"\n- 02:EXE $words:list = ["a"]\n- 03:CND While $n > 0\n  - 03.01:EXE $words = $words + ["b"]\n'
            "  - 03.02:EXE $n = $n - 1\n  - 03.03:JMP 03\n- 04:CND If $n == 1\n  - 04.01:RET 1\n- 05:CND Otherwise\n"
            "  - 05.01:EXE $done:bool = true\n- 06:CND Until $n >= 2\n  - 06.01:EXE $n = $n + 1\n  - 06.02:JMP 06\n"
            "- 07:RET [$n, len($words), $done]"
        )
    )
    assert run.result["value"] == [2, 4, True]
    assert run.result["model_calls"] == 0
    assert run.result["without_model"] == len(run.lines) == 26


@pytest.mark.parametrize(
    "line",
    [
        "EXE $tip:float = 18% of $bill",
        "EXE $tip = the usual",
        "EXE Choose $tip:int",
        "TNK Think",
        "CHK N1",
        "CND If it rains",
    ],
)
async def test_lines_in_words_are_left_to_a_model(line: str) -> None:
    more = "  - 01.01:EXE $tip:int = 1\n" if line.startswith("CND") else ""
    text = program(f"- 01:{line}\n{more}- 02:RET $tip")
    run = await played(text, [reply("I cannot")] * 3)
    assert len(run.model.requests) == 3
    assert run.status == "failed"


async def test_after_the_user_has_spoken_a_model_is_asked_even_where_the_next_line_could_be_computed() -> None:
    text = program(
        "- 01:EXE $n:int = 1\n- 02:YLD for user\n- 03:QUE $m:int = Twice(n=$n)\n- 04:YLD for call\n- 05:RET $m",
        "## Twice($n:int) -> int\n### Steps\n- 01:RET $n * 2\n",
    )
    says = [reply("`Var[$n, 21]`", "trig? no", '`Step["Main:03:QUE"]` `$m = Twice(n=$n)`', "trig? no", "yld call")]
    run = await played(text, says, ("twenty-one",))
    assert run.result["value"] == 42
    assert "The user says: twenty-one" in run.prompt(0)


async def test_always_ask_asks_for_every_line() -> None:
    says = [
        reply('`Step["Main:01:EXE"]` `Var[$n, 2]`', "trig? no", '`Step["Main:02:RET"]` `Return[$n]` `Var[$__, "ok"]`')
    ]
    run = await played(program("- 01:EXE Choose $n:int\n- 02:RET $n"), says, always_ask=True)
    assert run.result == {**run.result, "value": 2, "model_calls": 1, "without_model": 0}


# --- calls ---

PAIR = """## One() -> int
### Steps
- 01:EXE Find $one:int
- 02:RET $one

## Two() -> int
### Steps
- 01:EXE Find $two:int
- 02:RET $two
"""


async def test_independent_calls_run_concurrently_and_are_applied_in_order() -> None:
    both = asyncio.Barrier(2)
    order: list[str] = []

    async def said(request: Any) -> str:
        name = "One" if "Executing One(" in request.messages[-2].text else "Two"
        await both.wait()
        if name == "One":
            await asyncio.sleep(0.05)
        order.append(name)
        return reply(f'`Step["{name}:01:EXE"]` `Var[${name.lower()}, {len(order)}]`', "trig? no",
                     f'`Step["{name}:02:RET"]` `Return[${name.lower()}]` `Var[$__, "ok"]`')  # fmt: skip

    text = program("- 01:QUE $a:int = One()\n- 02:QUE $b:int = Two()\n- 03:YLD for call\n- 04:RET [$a, $b, $_]", PAIR)
    async with asyncio.timeout(20):
        run = await played(text, said)
    assert order == ["Two", "One"]
    assert run.result["value"] == [2, 1, 1]
    assert [one for one in run.seen.variables["Desk"] if one in "ab"] == ["a", "b"]
    assert run.result["variables"]["Desk"] == {"one": 2, "two": 1, "a": 2, "b": 1}


async def test_a_call_that_reads_what_another_sets_waits_for_it() -> None:
    text = program(
        "- 01:EXE $a:int = 5\n- 02:QUE $a = Next($a)\n- 03:QUE $b:int = Next($a)\n- 04:YLD for call\n- 05:RET [$a, $b]",
        "## Next($n:int) -> int\n### Steps\n- 01:RET $n + 1\n",
    )
    assert (await played(text)).result["value"] == [6, 7]


async def test_calls_stay_queued_until_they_are_yielded_for_and_messages_do_not() -> None:
    text = program(
        "- 01:EXE Begin $x:int\n- 02:YLD for user\n- 03:YLD for call\n- 04:RET $x",
        "## Five() -> int\n### Steps\n- 01:QUE Say(user, $hello)\n- 02:RET 5\n",
    )
    says = [
        reply(
            '`Step["Main:01:EXE"]` `$x = Five()` `Say("user", "first")`', "trig? no", '`Step["Main:02:YLD"]` yld user'
        ),
        reply('`Step["Main:03:YLD"]` yld call'),
        reply(
            '`Step["Five:01:QUE"]` `Say("user", "second")`',
            "trig? no",
            '`Step["Five:02:RET"]` `Return[5]` `Var[$__, "s"]`',
        ),
    ]
    run = await played(text, says, ("go",))
    assert [one.text for one in run.seen.said] == ["first", "go", "second"]
    assert run.result["value"] == 5


async def test_a_return_lets_queued_calls_run_first() -> None:
    text = program(
        "- 01:QUE $x:int = Five()\n- 02:RET $x", "## Five() -> int\n### Steps\n- 01:EXE $five:int = 5\n- 02:RET $five\n"
    )
    assert (await played(text)).result["value"] == 5


async def test_parameters_belong_to_the_frame_and_variables_to_the_agent() -> None:
    text = program(
        "- 01:EXE $n:int = 5\n- 02:QUE $f:int = Fac($n)\n- 03:YLD for call\n- 04:RET [$n, $f, $deepest]",
        "## Fac($n:int) -> int\n### Steps\n- 01:CND If $n <= 1\n  - 01.01:EXE $deepest:bool = true\n  - 01.02:RET 1\n"
        "- 02:QUE $rest:int = Fac($n - 1)\n- 03:YLD for call\n- 04:RET $n * $rest\n",
    )
    run = await played(text)
    assert run.result["value"] == [5, 120, True]
    assert run.seen.calls == ["Main", *["Fac"] * 5]


async def test_a_playbook_that_calls_itself_forever_is_an_error() -> None:
    text = program(
        "- 01:QUE Again()\n- 02:YLD for call\n- 03:RET",
        "## Again() -> None\n### Steps\n- 01:QUE Again()\n- 02:YLD for call\n- 03:RET\n",
    )
    run = await played(text, [reply("yld call")] * 3)
    assert "Again() failed: Again is called more than 64 levels deep." in run.prompt(0)
    assert run.seen.calls.count("Again") == 63


async def test_a_call_that_was_refused_three_times_is_an_error_of_its_frame() -> None:
    text = program("- 01:QUE $x:int = One()\n- 02:YLD for call\n- 03:EXE Look at $x and set $y:str\n- 04:RET $y", PAIR)
    says = [
        *[reply('`Step["One:02:RET"]` `Return[1]`')] * 3,
        reply('`Step["Main:03:EXE"]` `Var[$y, "it failed"]`', "trig? no", "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == "it failed"
    assert run.variables()["x"]["error"] == "refused"
    assert run.seen.verdicts == ["C4:R"] * 3


# --- ends ---


async def test_a_return_of_zero_is_zero() -> None:
    text = program(
        "- 01:QUE $z:int = Zero()\n- 02:YLD for call\n- 03:RET $z",
        "## Zero() -> int\n### Steps\n- 01:RET nothing at all\n",
    )
    run = await played(text, [reply('`Step["Zero:01:RET"]` `Return[0]` `Var[$__, "zero"]`')])
    assert run.result["value"] == 0


async def test_an_exit_deep_down_ends_the_program() -> None:
    text = program(
        "- 01:QUE Deep()\n- 02:YLD for call\n- 03:RET 1",
        "## Deep() -> None\n### Steps\n- 01:EXE $x:int = 1\n- 02:YLD for exit\n",
    )
    run = await played(text)
    assert run.status == "completed"
    assert run.result["exited"]
    assert run.result["value"] is None
    assert run.lines == ["Main:01", "Main:02", "Deep:01", "Deep:02"]


async def test_a_loop_that_changes_nothing_is_stopped() -> None:
    run = await played(
        program("- 01:EXE $n:int = 1\n- 02:CND While $n > 0\n  - 02.01:EXE $n = 1\n  - 02.02:JMP 02\n- 03:RET")
    )
    assert run.error.code == "livelock"
    assert "Main:02.02" in run.error.message


async def test_a_loop_without_an_end_is_stopped() -> None:
    steps = "- 01:EXE $n:int = 1\n- 02:CND While $n > 0\n  - 02.01:EXE $n = $n + 1\n  - 02.02:JMP 02\n- 03:RET"
    run = await played(program(steps), max_lines=50)
    assert run.error.code == "livelock"
    assert "50 lines" in run.error.message


async def test_a_model_that_never_gets_anywhere_is_stopped() -> None:
    steps = "- 01:CND While it goes on\n  - 01.01:EXE Count $n:int\n  - 01.02:JMP 01\n- 02:RET"
    count = iter(range(1000))

    def said(request: Any) -> str:
        return reply(f'`Step["Main:01.01:EXE"]` `Var[$n, {next(count)}]`', "trig? no", "yld call")

    run = await played(program(steps), said, max_turns=5)
    assert run.error.code == "livelock"
    assert len(run.model.requests) == 5


async def test_the_same_reply_over_and_over_is_refused() -> None:
    steps = "- 01:CND While it goes on\n  - 01.01:EXE Wait\n  - 01.02:JMP 01\n- 02:RET"
    run = await played(program(steps), lambda request: reply('`Step["Main:01.01:EXE"]` waited', "trig? no", "yld call"))
    assert run.error.code == "refused"
    assert run.seen.verdicts[-3:] == ["C13:R"] * 3


async def test_a_retry_after_too_many_lines_starts_counting_from_zero() -> None:
    harness, model = ProgramHarness(), ScriptedModel([])
    service = harness.service(model)
    steps = "- 01:EXE $n:int = 0\n- 02:CND While $n < 30\n  - 02.01:EXE $n = $n + 1\n  - 02.02:JMP 02\n- 03:RET $n"
    settings = Settings(model="scripted/model", options={"max_lines": 50})
    row = await service.start(Playbook.from_text(program(steps), "p.pbasm"), {}, settings)
    run = await harness.drive(service, row.id, model)
    assert (run.error.code, run.seen.without_model, run.seen.at_least) == ("livelock", 50, False)
    await service.retry(row.id)
    run = await harness.drive(service, row.id, model)
    assert (run.status, run.result["value"], run.result["without_model"]) == ("completed", 30, 93)
    assert (await service.replay(row.id)).complete


NAG = """- 01:EXE $more:bool = true
- 02:CND While $more
  - 02.01:QUE Say(user, Ask whether there is more); YLD for user
  - 02.02:JMP 02
- 03:RET"""
"""A model continues with it after each answer."""


@pytest.mark.parametrize(("answers", "times"), [({}, 5), ({"Main:02.01": "perhaps"}, 100)])
async def test_automatic_answers_are_limited(answers: dict[str, Any], times: int) -> None:
    def says(request: Any) -> str:
        jump = '`Step["Main:02.02:JMP"]`\ntrig? no\n' if len(model.requests) > 1 else ""
        return reply(jump, '`Step["Main:02.01:QUE"]` `Say("user", "More?")`', "trig? no", "yld user")

    harness, model = ProgramHarness(), ScriptedModel(says)
    service = harness.service(model)
    settings = Settings(model="scripted/model", answers=answers, unattended=True)
    row = await service.start(Playbook.from_text(program(NAG), "p.pbasm"), {}, settings)
    run = await harness.drive(service, row.id, model)
    assert run.error.code == "unanswered", run.error
    assert "'More?' was" in run.error.message
    assert f"{times} times in a row" in run.error.message
    assert "Provide an answer to Main:02.01" in run.error.fix
    assert run.messages == ["More?"] * times


@pytest.mark.parametrize("expiry", [None, 60.0])
async def test_a_question_to_the_user_expires_only_if_a_limit_is_set(expiry: float | None) -> None:
    harness = ProgramHarness()
    service = harness.service(ScriptedModel([]))
    settings = Settings(model="scripted/model", pause_expiry=expiry)
    row = await service.start(Playbook.from_text(program("- 01:YLD for user\n- 02:RET"), "p.pbasm"), {}, settings)
    assert (await service.drive(row.id)).status == "awaiting_input"
    [wait] = await harness.store.waits(run=row.id)
    assert wait.expires == (None if expiry is None else wait.opened + expiry)


# --- triggers and messages ---

REFUND = """## Refund($order:int) -> None
### Triggers
- T1:EVT When the user asks for money
### Steps
- 01:QUE Say(user, Confirm the refund of $order)
- 02:YLD for exit
"""


async def test_messages_fire_triggers_when_nothing_else_is_left() -> None:
    text = program("- 01:EXE $order:int = 7\n- 02:RET", REFUND)
    says = [
        reply("the user wants money", 'trig? `Trigger["Refund:T1:EVT"]` `Refund(order=$order)`', "yld call"),
        reply('`Step["Refund:01:QUE"]` `Say("user", "Done")`', "trig? no", '`Step["Refund:02:YLD"]` yld exit'),
    ]
    run = await played(text, says, ("I want my money back",))
    assert run.status == "completed"
    assert run.messages == ["Done"]
    assert "The user says: I want my money back" in run.prompt(0)
    assert run.seen.calls == ["Main", "Messages", "Refund"]


async def test_a_semantic_trigger_is_asked_about_if_a_reply_did_not_check_it() -> None:
    text = program(
        "- 01:EXE Find $mood:str\n- 02:EXE Find $more:str\n- 03:YLD for exit",
        "## Cheer() -> None\n### Triggers\n- T1:CND When the user is sad\n### Steps\n- 01:EXE $cheered:bool = true\n- 02:RET\n",
    )
    says = [
        reply('`Step["Main:01:EXE"]` `Var[$mood, "sad"]`', '`Step["Main:02:EXE"]` `Var[$more, "x"]`', "yld call"),
        'trig? `Trigger["Cheer:T1:CND"]` because the user is sad, `Cheer()`',
        reply(
            '`Step["Cheer:01:EXE"]` `Var[$cheered, true]`',
            "trig? no",
            '`Step["Cheer:02:RET"]` `Return[]` `Var[$__, "c"]`',
        ),
    ]
    run = await played(text, says)
    assert "When the user is sad" in run.model.requests[1].messages[-1].text
    assert run.variables()["cheered"] is True
    assert run.seen.triggers == ["Cheer:T1"]


async def test_agents_write_to_each_other() -> None:
    text = program(
        "- 01:QUE Say(Kitchen, Order tea)\n- 02:YLD for agent Kitchen\n- 03:EXE Note the $answer:str\n- 04:RET $answer",
        "# Kitchen\nCooks.\n\n## Cook() -> None\n### Triggers\n- T1:EVT When an order comes\n### Steps\n"
        "- 01:QUE Say(Desk, Tell that it is ready)\n- 02:RET\n",
    )
    says = [
        reply(
            '`Step["Main:01:QUE"]` `Say("Kitchen", "tea")`', "trig? no", '`Step["Main:02:YLD"]` yld for agent Kitchen'
        ),
        reply("an order", 'trig? `Trigger["Cook:T1:EVT"]` `Cook()`', "yld call"),
        reply(
            '`Step["Cook:01:QUE"]` `Say("Desk", "ready")`',
            "trig? no",
            '`Step["Cook:02:RET"]` `Return[]` `Var[$__, "c"]`',
        ),
        reply('`Return[]` `Var[$__, "ordered"]`'),
        reply('`Step["Main:03:EXE"]` `Var[$answer, "ready"]`', "trig? no", "yld call"),
    ]
    run = await played(text, says, call="Main()")
    assert run.result["value"] == "ready", run.seen.warnings
    assert "Desk: tea" in run.prompt(1)
    assert "Kitchen says: ready" in run.prompt(4)


async def test_what_is_recorded_of_a_turn() -> None:
    text = program("- 01:EXE Choose $a:int\n- 02:RET $a")
    says = [reply("what? nobody said how", '`Step["Main:01:EXE"]` `Var[$a, "3"]`', "trig? no", "yld call")]
    run = await played(text, says)
    assert run.result["value"] == 3
    assert any("nobody said how" in one for one in run.seen.warnings)
    noted = [one.event for one in run.entries if isinstance(one.event, Noted) and one.event.name == "verdicts"]
    assert [one["rule"] for one in noted[0].data["verdicts"]] == ["WHAT", "V2"]
