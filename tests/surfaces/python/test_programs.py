"""Programs from Python: messages and answers, results, and how a run continues, is retried, or moves elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.kernel.run import Budget
from cuebook.testing import MemoryStore, ModelError, Says, ScriptedModel
from tests.testing.test_program_cases import DESK

PROGRAM = (
    DESK
    + """\
## Main($least:int) -> str
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Ask for $word:str)
- 02:YLD for user
- 03:QUE $size:int = Size(word=$word)
- 04:YLD for call
- 05:CND If $size < $least
  - 05.01:JMP 01
- 06:EXE $total:int = $size + $least
- 07:RET $word

## Double($n:int) -> int
### Steps
- 01:RET $n * 2

## Round() -> None
### Steps
- 01:EXE $n:int = 1
- 02:CND While $n > 0
  - 02.01:EXE $n = $n + 1
  - 02.02:JMP 02
- 03:RET

## Stuck() -> None
### Steps
- 01:EXE $n:int = 1
- 02:CND While $n > 0
  - 02.01:JMP 02
- 03:RET
"""
)

HEAD = "recap – so it goes\nplan – on with it\n"
ASKS = f'{HEAD}`Step["Main:01:QUE"]` `Say("user", "A word?")`\ntrig? no\n`Step["Main:02:YLD"]` yld user'
WRONG = f'{HEAD}`Step["Main:07:RET"]` `Return["x"]` `Var[$__, "x"]`\nyld return'


def hears(word: str) -> str:
    return (
        f'{HEAD}`Var[$word, "{word}"]`\ntrig? no\n`Step["Main:03:QUE"]` `$size = Size(word=$word)`\ntrig? no\n'
        '`Step["Main:04:YLD"]` yld call'
    )


@pytest.fixture(autouse=True)
def work(bare_home: Path) -> Path:
    """A working folder with a program, in a home folder without configuration."""
    (bare_home / "desk.pbasm").write_text(PROGRAM)
    return bare_home


def test_a_program_says_what_is_in_it() -> None:
    book = cuebook.load("desk.pbasm")
    assert [(one.name, one.type, one.required) for one in book.inputs] == [("least", "number", True)]
    assert {"Main:01", "Size", "Round:02.01"} <= set(book.labels)
    assert book.steps[0].title.startswith("QUE Say")
    assert [finding.severity for finding in book.check() if finding.severity == "error"] == []


def test_a_conversation_is_held_by_a_function() -> None:
    asked: list[str] = []

    def answer(wait: cuebook.Wait) -> str:
        asked.append(wait.prompt)
        return "so be it: hello"

    model = ScriptedModel([WRONG, ASKS, hears("hi"), ASKS, hears("hello")])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, answer=answer)
    assert (result.status, result.error) == ("completed", None)
    assert asked == ["A word?", "A word?"]
    ran = result.program
    assert ran is not None
    assert [(one.by, one.text) for one in ran.said] == [
        ("program", "A word?"),
        ("user", "so be it: hello"),
        ("program", "A word?"),
        ("user", "so be it: hello"),
    ]
    assert ran.messages == ("A word?", "A word?")
    assert ran.lines[:7] == ("Main:01", "Main:02", "Main:03", "Main:04", "Size", "Main:05", "Main:05.01")
    assert ran.lines[-2:] == ("Main:06", "Main:07")
    assert ran.variables == {"Desk": {"word": "hello", "size": 5, "total": 8}}
    assert (ran.value, result.output, ran.exited) == ("hello", "hello", False)
    [refusal] = ran.refusals
    assert (refusal.playbook, refusal.rule) == ("Main", "C4")
    assert (ran.turns, ran.without_model) == (5, 5)
    assert ran.stack == ()


async def test_the_function_may_be_a_coroutine_and_may_leave_it_waiting() -> None:
    async def answer(wait: cuebook.Wait) -> str | None:
        await asyncio.sleep(0)
        return None

    model = ScriptedModel([ASKS, hears("hello")])
    result = await cuebook.arun("desk.pbasm", {"least": 3}, model=model, answer=answer)
    assert (result.status, [wait.prompt for wait in result.waits]) == ("awaiting_input", ["A word?"])
    assert result.program is not None
    assert [(frame.playbook, frame.line) for frame in result.program.stack] == [("Main", "02")]
    assert result.program.turns == 1
    result = await result.aanswer("hello")
    assert result.ok


def test_a_waiting_run_is_found_by_another_process_and_continues() -> None:
    waiting = cuebook.run("desk.pbasm", {"least": 3}, model=ScriptedModel([ASKS]))
    assert waiting.status == "awaiting_input"
    found = cuebook.find(waiting.run, model=ScriptedModel([hears("hello")]))
    assert found.program is not None
    assert found.program.messages == ("A word?",)
    result = found.answer("hello")
    assert (result.ok, result.result["value"]) == (True, "hello")


def test_a_playbook_is_called_instead_of_what_begins() -> None:
    result = cuebook.run("desk.pbasm", call="Double(n=21)", model=ScriptedModel([]))
    assert result.program is not None
    assert (result.program.value, result.program.turns, result.program.lines) == (42, 0, ("Double:01",))
    result = cuebook.run("desk.pbasm", call='Size(word="four")', model=ScriptedModel([]))
    assert result.result["value"] == 4


@pytest.mark.parametrize(
    ("call", "inputs", "words"),
    [
        ("Duble(n=1)", {}, "There is no playbook 'Duble' in desk. Did you mean 'Double'?"),
        ("Double(m=1)", {}, "Double takes no argument 'm'."),
        ("Double()", {}, "Double needs n."),
        ("Double(n=many)", {}, "Double"),
        ("Double(", {}, "is not a call"),
        ("Double(n=1)", {"least": 3}, "Unknown input 'least': Double(n=1) takes its arguments from the call."),
    ],
)
def test_a_call_that_cannot_be_made_is_refused_before_anything_begins(
    call: str, inputs: dict[str, Any], words: str
) -> None:
    with pytest.raises(cuebook.BadInput) as refusal:
        cuebook.run("desk.pbasm", inputs, call=call, model=ScriptedModel([]))
    assert words in str(refusal.value)


def test_inputs_are_held_to_their_types() -> None:
    with pytest.raises(cuebook.BadInput, match=r"Missing: least \(int\)"):
        cuebook.run("desk.pbasm", model=ScriptedModel([]))
    with pytest.raises(cuebook.BadInput, match="least must be of type int"):
        cuebook.run("desk.pbasm", {"least": "many"}, model=ScriptedModel([]))


async def test_messages_are_passed_on_once_verified_while_the_model_still_writes() -> None:
    go_on = asyncio.Event()
    said: list[str] = []
    says = Says(ASKS, wait_for=go_on, pause_at=ASKS.index("trig?"), chunk=5)
    model = ScriptedModel([says, hears("hello")])

    def hear(one: cuebook.Said) -> None:
        said.append(f"{one.agent}: {one.text}")
        go_on.set()  # without the words the model would wait for ever

    work = cuebook.arun("desk.pbasm", {"least": 3}, model=model, on_say=hear)
    result = await asyncio.wait_for(work, 60)
    assert (result.status, said) == ("awaiting_input", ["Desk: A word?"])
    await result.aanswer("hello")
    assert said == ["Desk: A word?"], "no message is passed on twice"


def test_refused_messages_are_never_passed_on() -> None:
    bad = f'{HEAD}`Step["Main:07:RET"]` `Say("user", "Nonsense")`\nyld user'
    said: list[str] = []
    cuebook.run("desk.pbasm", {"least": 3}, model=ScriptedModel([bad, ASKS]), on_say=lambda one: said.append(one.text))
    assert said == ["A word?"]


# --- again, and otherwise -----------------------------------------------------------------------------------


def test_a_model_that_fails_fails_the_run_and_a_retry_continues_there() -> None:
    model = ScriptedModel([ASKS, ModelError("server", "away", retryable=False), hears("hello")])
    failed = cuebook.run("desk.pbasm", {"least": 3}, model=model, answer=lambda wait: "hello")
    assert failed.status == "failed"
    assert "away" in (failed.error or "")
    assert failed.program is not None
    assert [(frame.playbook, frame.line) for frame in failed.program.stack] == [("Main", "02")]
    result = failed.retry()
    assert result.ok
    assert result.program is not None
    assert result.program.messages == ("A word?",)
    assert len(model.requests) == 3, "what was asked and answered before is not asked again"


def test_a_fork_with_another_input_goes_another_way() -> None:
    store = MemoryStore()
    model = ScriptedModel([ASKS, hears("hello"), ASKS])
    said: list[str] = []
    result = cuebook.run(
        "desk.pbasm", {"least": 3}, model=model, store=store, answer=lambda wait: "hello" if len(said) == 1 else None,
        on_say=lambda one: said.append(one.text),
    )  # fmt: skip
    assert result.ok
    fork = result.fork("Main:05", {"least": 9})
    assert fork.status == "awaiting_input", "the word is too short now"
    assert fork.run != result.run
    assert fork.program is not None
    assert fork.program.lines[:8] == (
        "Main:01",
        "Main:02",
        "Main:03",
        "Main:04",
        "Size",
        "Main:05",
        "Main:05.01",
        "Main:01",
    )
    assert said == ["A word?", "A word?"], "messages of the parent are not passed on again"
    with pytest.raises(cuebook.BadInput, match="least must be of type int"):
        result.fork("Main:05", {"least": "x"})
    with pytest.raises(cuebook.BadInput, match=r"has not reached step Main:05\.01"):
        result.fork("Main:05.01")


def test_a_restart_at_a_line_does_the_rest_again() -> None:
    model = ScriptedModel([ASKS, hears("hello"), hears("goodbye")])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, answer=lambda wait: "well")
    again = result.restart("Main:02")
    assert (result.output, again.output) == ("hello", "goodbye")
    assert again.program is not None
    assert again.program.variables["Desk"]["size"] == 7
    assert len(model.requests) == 3
    assert result.restart("Main:05").output == "hello"
    assert len(model.requests) == 3, "no model is asked where none is needed"


def test_a_line_is_a_breakpoint_and_a_variable_can_be_changed_there() -> None:
    model = ScriptedModel([ASKS, hears("hello")])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, answers={"Main:02": "hello"}, breakpoints=["Main:04"])
    assert (result.status, result.waits[0].kind) == ("paused", "breakpoint")
    result = result.resume({"size": 50})
    assert result.program is not None
    assert (result.ok, result.program.variables["Desk"]["total"]) == (True, 53)
    with pytest.raises(cuebook.BadInput, match="has no step Main:4"):
        cuebook.run("desk.pbasm", {"least": 3}, breakpoints=["Main:4"])


def test_a_run_that_waits_is_cancelled() -> None:
    result = cuebook.run("desk.pbasm", {"least": 3}, model=ScriptedModel([ASKS])).cancel("enough")
    assert result.status == "cancelled"
    assert result.waits == ()


# --- what does not end --------------------------------------------------------------------------------------


def test_a_spent_budget_pauses_until_it_is_raised() -> None:
    model = ScriptedModel([ASKS, hears("hello")])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, answer=lambda wait: "hello", budget=Budget(tokens=90))
    assert (result.status, result.reason) == ("paused", "budget")
    [wait] = result.waits
    assert (wait.kind, wait.step) == ("budget", "Main:01")
    assert "its budget is 90" in wait.prompt
    assert result.program is not None
    assert [(frame.playbook, frame.line) for frame in result.program.stack] == [("Main", "01")]
    assert result.resume(budget={"tokens": 900_000}).ok


def test_a_budget_of_steps_counts_lines() -> None:
    model = ScriptedModel([ASKS, hears("hi"), ASKS, hears("hello")])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, answer=lambda wait: "hello", budget=Budget(steps=5))
    assert (result.status, result.reason) == ("paused", "budget")
    assert "The budget of 5 steps is used up." in result.waits[0].prompt
    assert result.resume(budget={"steps": 50}).ok


@pytest.mark.parametrize(
    ("call", "options", "words"),
    [
        ("Stuck()", {}, ("Stuck:02.01 loops, but nothing has changed", "Change something in the loop")),
        ("Round()", {"max_lines": 50}, ("50 lines were executed", "The run is at Round:02", "raise max_lines")),
    ],
)
def test_a_loop_that_never_ends_fails_and_says_where(
    call: str, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    result = cuebook.run("desk.pbasm", call=call, options=options, model=ScriptedModel([]))
    assert result.status == "failed"
    for word in words:
        assert word in (result.error or "")


def test_a_model_that_never_comes_to_an_end_is_stopped_and_it_is_said_where() -> None:
    turn = f'{HEAD}`Step["Main:01:QUE"]` `Say("user", "Well")`\ntrig? no\nyld call'
    model = ScriptedModel([turn, turn])
    result = cuebook.run("desk.pbasm", {"least": 3}, model=model, options={"max_turns": 1, "always_ask": True})
    assert result.status == "failed"
    assert "The model was called 1 times without outside input. The run is at Main:01." in (result.error or "")
    assert "raise max_turns" in (result.error or "")


def test_repeatedly_refused_replies_fail_the_run_and_say_where() -> None:
    result = cuebook.run("desk.pbasm", {"least": 3}, model=ScriptedModel([WRONG] * 3))
    assert result.status == "failed"
    assert "3 replies in a row were refused at Main:01" in (result.error or "")
    assert result.program is not None
    assert [one.attempt for one in result.program.refusals] == [1, 2, 3]


def test_an_unknown_call_is_reported_before_anything_runs() -> None:
    with pytest.raises(cuebook.BadInput, match="answer must be a function, got 'hello'"):
        cuebook.run("desk.pbasm", {"least": 3}, model=ScriptedModel([]), answer="hello")  # type: ignore[arg-type]


def test_a_program_with_an_error_in_a_listing_is_not_run() -> None:
    text = "# A\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:{}\n- 02:RET\n"
    for line, words in (
        ("JMP 09", "01 jumps to 09"),
        ("FOO", "01 has the unknown code FOO"),
        ("RET\n- 01:RET", "2 times"),
    ):
        with pytest.raises(cuebook.BadInput, match=rf"program\.pbasm:[67]: Main: .*{words}"):
            cuebook.run(text.format(line), model=ScriptedModel([]))
