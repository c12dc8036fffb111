"""The index of a journal for replay: records are found by place, never by the order of calls."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.effects import AskModel, CallTool, Effect, Now
from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import (
    AnyEvent,
    CancelRequested,
    Checkpointed,
    Forked,
    Performed,
    Performing,
    RunStarted,
    StepStarted,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.fold.replay import Cursor, Recorded
from cuebook.kernel.journal import Entry, Place, branch_path
from cuebook.kernel.outcomes import Done, ToolResult

BRANCH = branch_path("", "", 0, 0, 0)


def journal(*said: tuple[Place, AnyEvent]) -> list[Entry]:
    return [Entry("run", seq, 1.0, place, event) for seq, (place, event) in enumerate(said, 1)]


def performed(effect: Effect, outcome: Any = None) -> Performed:
    return Performed(outcome or Done(), effect.fingerprint)


def test_a_cursor_counts_effects_by_step_and_visit() -> None:
    cursor = Cursor()
    assert cursor.next_effect() == ("", "", 0, 0)
    cursor.enter("a")
    assert [cursor.next_effect(), cursor.next_effect()] == [("", "a", 1, 0), ("", "a", 1, 1)]
    cursor.enter("inner")
    assert cursor.next_effect() == ("", "inner", 1, 0)
    cursor.leave()
    assert cursor.next_effect() == ("", "a", 1, 2), "back in the step around it"
    cursor.leave()
    assert cursor.next_effect() == ("", "a", 1, 3), "what follows a step belongs to it"
    cursor.enter("a")
    assert cursor.next_effect() == ("", "a", 2, 0)


def test_an_outcome_is_found_by_its_place_alone() -> None:
    tool = CallTool("t")
    entries = journal(
        (Place("", "2", 1, 0), performed(tool, Done(2))), (Place("", "1", 1, 0), performed(tool, Done(1)))
    )
    recorded = Recorded(entries, 0)
    for step in ("1", "2"):
        found = recorded.take(("", step, 1, 0), tool.fingerprint)
        assert found is not None
        assert found.event == performed(tool, Done(int(step)))
    assert recorded.take(("", "1", 1, 1), tool.fingerprint) is None


def test_a_different_effect_at_the_same_place_is_reported() -> None:
    recorded = Recorded(journal((Place("", "1", 1, 0), performed(CallTool("t")))), 0)
    with pytest.raises(NonDeterminism, match=r"step 1.*'CallTool t'.*'CallTool u'"):
        recorded.take(("", "1", 1, 0), "CallTool u")


def test_a_fork_may_use_another_model_but_not_another_kind() -> None:
    place = Place("", "1", 1, 0)
    entries = journal((place, performed(AskModel(model="test/one"))))
    assert Recorded(entries, inherited=2).take(("", "1", 1, 0), "AskModel test/two") is not None
    with pytest.raises(NonDeterminism):
        Recorded(entries, inherited=2).take(("", "1", 1, 0), "Now")
    with pytest.raises(NonDeterminism):
        Recorded(entries, inherited=0).take(("", "1", 1, 0), "AskModel test/two")


def test_a_new_effect_while_outcomes_are_left_over_is_a_deviation() -> None:
    tool = CallTool("t")
    recorded = Recorded(journal((Place("", "1", 1, 0), performed(tool))), 0)
    with pytest.raises(NonDeterminism, match="'CallTool t' at step 1, but the program now ends"):
        recorded.require_spent("", "ends")
    recorded.take(("", "1", 1, 0), tool.fingerprint)
    recorded.require_spent("", "ends")


def test_an_intent_without_an_outcome_is_known_except_a_parents() -> None:
    entries = journal((Place("", "1", 1, 0, 2), Performing(CallTool("t"), "CallTool t")))
    assert Recorded(entries, 0).intents == {("", "1", 1, 0): 2}
    assert Recorded(entries, inherited=2).intents == {}, "a fork redoes what its parent had only begun"


def test_a_branch_begins_at_its_last_checkpoint() -> None:
    cursor = {"path": BRANCH, "frames": [{"label": "x", "visit": 3, "effects": 5}], "visits": {"x": 3}}
    entries = journal(
        (Place(BRANCH, "x", 1, 0), performed(Now())),
        (Place(BRANCH), Checkpointed({"round": 1}, cursor)),
        (Place(BRANCH, "x", 3, 5), performed(Now())),
    )
    recorded = Recorded(entries, 0)
    assert recorded.state(BRANCH) == {"round": 1}
    assert recorded.cursor(BRANCH).next_effect() == (BRANCH, "x", 3, 5)
    assert recorded.state("") is None
    assert recorded.cursor("") == Cursor("")
    assert Recorded(entries, 0, checkpoints=False).state(BRANCH) is None


def test_settings_are_those_of_the_start_with_later_edits() -> None:
    recorded = Recorded(
        journal(
            (Place(), RunStarted({"a": 1}, {"model": "test/one", "max_tokens": 5})),
            (Place(), WaitClosed("w", "answered", "breakpoint", {"settings": {"model": "test/two"}})),
            (Place(), Forked("run", "", "", "2", 1, {"v": 1}, {"temperature": 0.5})),
        ),
        0,
    )
    assert (recorded.settings.model, recorded.settings.max_tokens, recorded.settings.temperature) == (
        "test/two",
        5,
        0.5,
    )
    assert recorded.inputs == {"a": 1}
    assert recorded.edits == {("", "2", 1): {"v": 1}}


def test_a_fork_is_not_cancelled_because_its_parent_was() -> None:
    cancelled = (Place(), CancelRequested("me"))
    assert Recorded(journal(cancelled), 0).cancel is not None
    assert Recorded(journal(cancelled, (Place(), Forked("run", "", "", "1", 1))), 2).cancel is None


def test_waits_are_known_by_place_and_purpose() -> None:
    opened = WaitOpened("w", "budget", "More?", "budget:1")
    recorded = Recorded(journal((Place("", "1", 1, 0), opened)), 0)
    assert recorded.opened == {(("", "1", 1, 0), "budget:1"): opened}


def test_a_performers_warning_is_not_an_event_of_the_program() -> None:
    recorded = Recorded(
        journal((Place("", "1", 1), StepStarted("1")), (Place("", "1", 1, 0), Warned("slow", "It took long."))), 0
    )
    assert recorded.was_recorded(("", "1", 1), 0)
    assert not recorded.was_recorded(("", "1", 1), 1)
    assert not recorded.past("")


def test_a_tools_result_keeps_its_value() -> None:
    entry = journal((Place("", "1", 1, 0), performed(CallTool("t"), ToolResult({"a": 1}))))
    found = Recorded(entry, 0).take(("", "1", 1, 0), "CallTool t")
    assert found is not None
    assert found.event.outcome.value == {"a": 1}  # type: ignore[union-attr]
