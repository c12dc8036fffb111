"""Valid answers, and questions that are answered without a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.answers import advance_answer, fitting
from cuebook.kernel.effects import AskHuman, Breakpoint, Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Performed, RunFinished, StepFinished, StepStarted, WaitOpened, Warned
from cuebook.kernel.outcomes import Answer, Failed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from tests.support.programs import PROGRAMS, begin, engine_on

COLOURS = ("Red", "red", "Green")


@pytest.mark.parametrize(
    ("type_", "said", "kept"),
    [
        ("input", " as it is ", " as it is "), ("input", "", ""), ("confirm", "Y", "yes"), ("confirm", " no ", "no"),
        ("confirm", "TRUE", "yes"), ("select", "red", "red"), ("select", "GREEN", "Green"), ("select", "RED", "Red"),
    ],
)  # fmt: skip
def test_an_answer_is_stored_as_the_question_spells_it(type_: str, said: str, kept: str) -> None:
    assert fitting(type_, COLOURS, said) == kept


@pytest.mark.parametrize(
    ("type_", "said", "fix"),
    [
        ("confirm", "maybe", "Answer yes or no."),
        ("confirm", "", "Answer yes or no."),
        ("select", "blue", "Choose one of: Red, red, Green."),
        ("select", "", "Choose one of: Red, red, Green."),
    ],
)
def test_an_invalid_answer_is_refused_with_the_valid_ones(type_: str, said: str, fix: str) -> None:
    with pytest.raises(BadInput) as refused:
        fitting(type_, COLOURS, said)
    assert refused.value.fix == fix


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (AskHuman("?", default="d"), "d"),
        (AskHuman("?", default=""), ""),
        (AskHuman("?"), ""),
        (AskHuman("?", "confirm"), "yes"),
        (AskHuman("?", "confirm", default="No"), "no"),
        (AskHuman("?", "select", COLOURS), "Red"),
        (AskHuman("?", "select", COLOURS, "green"), "Green"),
        (AskHuman("?", "select"), ""),
    ],
)
def test_an_unattended_run_uses_the_default_or_the_simplest_answer(question: AskHuman, answer: str) -> None:
    assert advance_answer(question, ("1",), Settings(unattended=True)) == Answer(
        answer, "unattended", "", question.question
    )
    assert advance_answer(question, ("1",), Settings()) is None


def test_an_unattended_run_says_which_answers_were_given_in_advance() -> None:
    settings = Settings(answers={"1": "a"}, unattended=True)
    asked = AskHuman("?", default="d")
    assert advance_answer(asked, ("1",), settings) == Answer("a", "beforehand", "1", "?")
    assert advance_answer(asked, ("2",), settings) == Answer("d", "unattended", "", "?")


def test_an_answer_given_in_advance_is_found_by_the_nearest_label() -> None:
    settings = Settings(answers={"2": "outer", "2a": "inner", "own": "own"})
    assert advance_answer(AskHuman("?"), ("own", "2a", "2", ""), settings) == Answer("own", "beforehand", "own", "?")
    assert advance_answer(AskHuman("?"), ("", "2a", "2", ""), settings) == Answer("inner", "beforehand", "2a", "?")
    assert advance_answer(AskHuman("?"), ("", "2b", "2", ""), settings) == Answer("outer", "beforehand", "2", "?")
    assert advance_answer(AskHuman("?"), ("", "3", ""), settings) is None


def test_an_invalid_advance_answer_fails_with_a_message() -> None:
    failed = advance_answer(AskHuman("?", "confirm"), ("4",), Settings(answers={"4": "maybe"}))
    assert isinstance(failed, Failed)
    assert str(failed) == (
        "The answer given in advance for step 4 is not valid: 'maybe' is neither yes nor no. Answer yes or no."
    )
    failed = advance_answer(AskHuman("Go?", "select", COLOURS, "blue"), ("4",), Settings(unattended=True))
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The default answer to the question 'Go?' is not valid")


# --- in a run ---------------------------------------------------------------------------------------------


def asking(inputs: dict[str, Any]) -> Any:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        first = yield AskHuman("First?")
        yield StepFinished("1")
        yield Breakpoint("1")
        yield StepStarted("2")
        yield StepStarted("2a")
        second = yield AskHuman("Second?", "confirm")
        yield StepFinished("2a")
        third = yield AskHuman("Third?", label="own")
        yield StepFinished("2")
        return [first.value, second.value, third.value]

    return start


async def test_several_answers_are_used_in_turn_and_then_a_person_is_asked(store: Store, tmp_path: Path) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        said = []
        for _ in range(4):
            answer = yield AskHuman("?")
            said.append(answer.value)
        return said

    PROGRAMS["asking often"] = lambda inputs: start
    engine = engine_on(store, tmp_path)
    run = await begin(engine, "asking often", settings=Settings(answers={"1": ("a", "b")}))
    for said in ("c", "d"):  # each time it is driven, what was given before is known
        assert (await engine.drive(run)).status == "awaiting_input"
        (wait,) = await store.waits(run=run)
        await store.complete_wait(wait.id, {"value": said}, "me", engine.clock())
    row = await engine.drive(run)
    assert row.status == "completed"
    finished = [entry.event async for entry in engine.entries(run) if isinstance(entry.event, RunFinished)]
    assert finished[0].result == ["a", "b", "c", "d"]
    await engine.close()


async def test_an_unattended_run_asks_no_one_and_never_waits(store: Store, tmp_path: Path) -> None:
    PROGRAMS["asking"] = asking
    engine = engine_on(store, tmp_path)
    settings = Settings(unattended=True, answers={"2": "no", "own": "mine"}, breakpoints=("1",))
    run = await begin(engine, "asking", settings=settings)
    row = await engine.drive(run)
    assert row.status == "completed"
    events = [entry.event async for entry in engine.entries(run)]
    assert events[-1].result == ["", "no", "mine"]  # type: ignore[union-attr]
    assert not [event for event in events if isinstance(event, WaitOpened)]
    assert [event.code for event in events if isinstance(event, Warned)] == ["breakpoint_passed"]
    assert {e.outcome.by for e in events if isinstance(e, Performed) and isinstance(e.outcome, Answer)} == {
        "beforehand", "unattended",
    }  # fmt: skip
    assert (await engine.replay(run)).complete
    await engine.close()


async def test_a_run_resumed_as_unattended_is_unattended_from_there_on(store: Store, tmp_path: Path) -> None:
    PROGRAMS["asking"] = asking
    engine = engine_on(store, tmp_path)
    run = await begin(engine, "asking", settings=Settings(answers={"2a": "no"}, breakpoints=("1",)))
    assert (await engine.drive(run)).status == "awaiting_input"
    (wait,) = await store.waits(run=run)
    await store.complete_wait(wait.id, {"value": "by hand"}, "me", engine.clock())
    assert (await engine.drive(run)).status == "paused"
    (wait,) = await store.waits(run=run)
    await store.complete_wait(wait.id, {"settings": {"unattended": True}}, "me", engine.clock())
    row = await engine.drive(run)
    assert row.status == "completed"
    events = [entry.event async for entry in engine.entries(run)]
    assert [e.outcome.by for e in events if isinstance(e, Performed) and isinstance(e.outcome, Answer)] == [
        "me", "beforehand", "unattended",
    ]  # fmt: skip
    await engine.close()
