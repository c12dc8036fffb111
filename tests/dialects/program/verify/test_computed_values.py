"""The runtime enforces whatever it can compute: a reply that deviates changes nothing, on the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.program import verify_reply
from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

PAID = """```python
@playbook
async def Pay(amount: int, to: str = "nobody") -> str:
    return f"paid {amount} to {to}"
```
"""
PAY = program(
    '- 01:EXE Read $amount:int\n- 02:QUE $r:str = Pay(amount=$amount, to="bob")\n- 03:YLD for call\n- 04:RET $r', PAID
)
READ = ('`Step["Main:01:EXE"]` `Var[$amount, 9]`', "trig? no")
CHOSEN = ('`Step["Main:01:EXE"]` `Var[$n, 3]`', "trig? no")


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, answers, **options)


def returned(line: str, value: str) -> str:
    return f'`Step["Main:{line}:RET"]` `Return[{value}]` `Var[$__, "s"]`'


@pytest.mark.parametrize("how", ["If $n > 10", "When $n > 10", "If $n * 2 > 10 and $n > 0"])
async def test_a_branch_is_the_one_that_was_computed(how: str) -> None:
    steps = f'- 01:EXE Choose $n:int\n- 02:CND {how}\n  - 02.01:RET "big"\n- 03:CND Otherwise\n  - 03.01:RET "small"'
    says = [reply(*CHOSEN, returned("02.01", '"big"')), reply(returned("03.01", '"small"'))]
    run = await played(program(steps), says)
    assert run.result["value"] == "small"
    assert run.seen.verdicts == ["C8:R"]
    assert "was computed" in run.seen.refused[0].problem
    assert "Main:02.01" not in run.model.requests[1].messages[-1].text.partition("legal next lines:")[2]


async def test_a_loop_repeats_as_often_as_its_condition_holds() -> None:
    steps = (
        "- 01:EXE Choose $n:int\n- 02:EXE $limit:int = 5\n- 03:CND While $n < $limit\n  - 03.01:EXE $n = $n + 1\n"
        "  - 03.02:JMP 03\n- 04:RET $n"
    )
    limit = ('`Step["Main:02:EXE"]` `Var[$limit, 3]`', "trig? no")
    run = await played(program(steps), [reply(*CHOSEN, *limit, returned("04", "$n")), reply("yld call")])
    assert run.result["value"] == 5
    assert run.variables()["limit"] == 5
    assert run.seen.verdicts == ["V6:F", "C8:R"]


async def test_computed_values_and_returns_are_used_in_the_same_reply() -> None:
    steps = "- 01:EXE Choose $n:int\n- 02:EXE $sum:int = $n + 1\n- 03:EXE $twice:int = $sum * 2\n- 04:RET $twice"
    lines = ('`Step["Main:02:EXE"]` `Var[$sum, 999]`', "trig? no", '`Step["Main:03:EXE"]`', "trig? no")
    run = await played(program(steps), [reply(*CHOSEN, *lines, returned("04", "12345"))])
    assert run.result["value"] == 8
    assert run.variables() == {"n": 3, "sum": 4, "twice": 8}
    assert run.seen.verdicts == ["V6:F", "V6:F", "V6:F"]


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ('`$r = Pay(amount=900, to="mallory")`', ""),
        ('`$r = Pay(900, "mallory")`', ""),
        ('`$r = Pay(amount=$amount, to="bob")`', '`$r = Pay(amount=$amount, to="eve")`'),
        ('`$amount = Pay(amount=$amount, to="bob")`', ""),
        ('`Pay(amount=$amount, to="bob")`', ""),
        ('`Var[$amount, 900]` `$r = Pay(amount=$amount, to="bob")`', ""),
    ],
    ids=["keywords", "by place", "twice", "another target", "no target", "a variable changed there"],
)
async def test_a_call_is_the_one_that_the_line_spells_out(call: str, more: str) -> None:
    says = reply(*READ, f'`Step["Main:02:QUE"]` {call} {more}', "trig? no", '`Step["Main:03:YLD"]` yld call')
    run = await played(PAY, [says])
    assert (run.result["value"], run.variables()["amount"]) == ("paid 9 to bob", 9)
    assert run.seen.calls == ["Main", "Pay"]
    assert run.seen.verdicts == ["V6:F"]


@pytest.mark.parametrize(
    "early",
    [
        reply(READ[0] + ' `Pay(amount=1, to="eve")`', "trig? no", "yld call"),
        reply(*READ, '`Step["Main:02:QUE"]` `Refund()`', "trig? no", "yld call"),
    ],
    ids=["at the line before", "another call"],
)
async def test_a_call_is_made_at_its_own_line_and_no_other_is_made_there(early: str) -> None:
    text = PAY + '\n## Refund() -> str\n### Steps\n- 01:RET "refunded"\n'
    run = await played(text, [early, reply("yld call")])
    assert run.result["value"] == "paid 9 to bob"
    assert run.seen.calls == ["Main", "Pay"]
    assert run.seen.verdicts == ["C12:R"]


async def test_no_variable_is_changed_to_lead_a_condition_elsewhere() -> None:
    steps = '- 01:EXE Choose $n:int\n- 02:CND If $n > 10\n  - 02.01:RET "big"\n- 03:RET "small"'
    says = [
        reply(*CHOSEN, '`Step["Main:02:CND"]` `Var[$n, 30]`', "trig? no", returned("02.01", '"big"')),
        reply("yld call"),
    ]
    run = await played(program(steps), says)
    assert (run.result["value"], run.variables()["n"]) == ("small", 3)
    assert run.seen.verdicts == ["V6:F", "C8:R"]


async def test_a_trigger_cannot_be_used_to_make_another_call() -> None:
    more = "## OnOrder() -> None\n### Triggers\n- T1:EVT When something is ordered\n### Steps\n- 01:RET\n"
    fired = reply(*READ, 'trig? `Trigger["OnOrder:T1:EVT"]`', '`Pay(amount=900, to="eve")`', "yld call")
    run = await played(f"{PAY}\n{more}", [fired, reply("yld call")], call="Desk.Main")
    assert run.result["value"] == "paid 9 to bob"
    assert run.seen.calls.count("Pay") == 1


async def test_a_loop_over_a_list_has_one_iteration_per_item() -> None:
    steps = (
        '- 01:EXE $xs:list = ["a", "b", "c"]\n- 02:CND For each $x in $xs\n  - 02.01:QUE Say(user, Tell them about $x)\n'
        "  - 02.02:JMP 02\n- 03:RET $x"
    )
    said = [(f'`Step["Main:02.01:QUE"]` `Say("user", "{x}")`', "trig? no") for x in "abc"]
    skipped = reply(*said[0], returned("03", '"z"'))
    run = await played(program(steps), [skipped, reply(*said[1], *said[2], "yld call")])
    assert run.messages == ["a", "b", "c"]
    assert run.result["value"] == "c"
    assert run.seen.verdicts == ["C8:R"]


async def test_a_call_without_a_step_is_not_made_in_addition_to_that_of_its_line() -> None:
    text = program(
        "- 01:QUE Say(user, Ask for $n:int)\n- 02:YLD for user\n- 03:QUE $r:str = Pay($n)\n- 04:YLD for call\n- 05:RET $r",
        PAID,
    )
    says = [
        reply('`Step["Main:01:QUE"]` `Say("user", "How many?")`', "trig? no", '`Step["Main:02:YLD"]` yld user'),
        reply("`Var[$n, 2]`", "trig? no", "`$r = Pay($n)`", "trig? no", "yld call"),
        reply("yld call"),
    ]
    run = await played(text, says, ("two",))
    assert run.seen.calls == ["Main", "Pay"]
    assert run.result["value"] == "paid 2 to nobody"


# --- a reply that was cut, or refused ---


async def test_a_call_that_is_queued_is_executed_and_is_not_offered_again() -> None:
    cut = reply(*READ, '`Step["Main:02:QUE"]` `$r = Pay(amount=$amount, to="bob")`', "trig? no")
    again = reply(
        '`Step["Main:02:QUE"]` `$r = Pay(amount=$amount, to="bob")`', "trig? no", '`Step["Main:03:YLD"]` yld call'
    )
    run = await played(PAY, [cut, again, reply('`Step["Main:03:YLD"]` yld call')])
    assert run.seen.calls == ["Main", "Pay"]
    assert run.result["value"] == "paid 9 to bob"
    legal = run.model.requests[1].messages[-1].text.partition("legal next lines:")[2].partition("already applied")[0]
    assert legal.split() == ["-", "Main:03:YLD", "for", "call"]


async def test_nothing_is_said_twice_after_a_truncated_reply() -> None:
    text = program("- 01:QUE Say(user, Ask)\n- 02:YLD for user\n- 03:RET 1")
    said = '`Step["Main:01:QUE"]` `Say("user", "How many?")`'
    says = [
        reply(said),
        reply(said, "trig? no", '`Step["Main:02:YLD"]` yld user'),
        reply("yld user"),
        reply("yld call"),
    ]
    run = await played(text, says, ("two",))
    assert run.messages == ["How many?"]
    assert run.result["value"] == 1


# --- the public function ---


def test_verify_reply_judges_as_the_runtime_does() -> None:
    listing = ["01:EXE Choose $n:int", "02:CND If $n > 10", '02.01:RET "big"', '03:RET "small"']
    big = reply(returned("02.01", '"big"'))
    found = verify_reply(listing, "02", {"n": 3}, big)
    assert (found.ok, found.rules) == (False, ("C8:R",))
    assert verify_reply(listing, "02", {"n": 30}, big).ok
    assert verify_reply(listing, "02", None, big).ok  # nothing is known of $n
