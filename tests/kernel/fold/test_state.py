"""A run's row and steps are a fold of its journal: the same entries produce the same rows."""

from __future__ import annotations

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallTool
from cuebook.kernel.events import (
    STATUS_OF_WAIT,
    AnyEvent,
    Driven,
    Forked,
    ModelAsked,
    Performed,
    Performing,
    Planned,
    PlannedStep,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
    Suspended,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.fold.state import RunState
from cuebook.kernel.journal import Entry, Place, branch_path
from cuebook.kernel.outcomes import Done, Failed, Reply, Usage
from cuebook.kernel.run import StepRow
from tests.support.programs import new_row

ONE = Place("", "1", 1)
PLAN = Planned((PlannedStep("1", "First"), PlannedStep("2", "Second")))


class Fold:
    """A state that receives events one after another."""

    def __init__(self) -> None:
        self.state, self.seq = RunState(new_row("hand")), 0
        self.steps: dict[tuple[str, str, int], StepRow] = {}

    def tell(self, *events: AnyEvent, place: Place = ONE) -> Fold:
        for event in events:
            self.seq += 1
            self.state.apply(Entry("run", self.seq, float(self.seq), place, event))
        for step in self.state.take_changes()[1]:
            self.steps[step.key] = step
        return self

    def status_of(self, label: str = "1") -> str:
        return self.steps["", label, 1].status


def reply(cost: float | None = 0.5) -> Performed:
    return Performed(Reply(Text("hi"), model="test/one", usage=Usage(3, 4, cost=cost)), "AskModel")


ASKED = ModelAsked("test/one", "", Text("?"), "AskModel")


def test_a_step_goes_from_planned_to_completed() -> None:
    fold = Fold().tell(PLAN)
    assert (fold.status_of("1"), fold.status_of("2"), fold.state.row.totals.steps) == ("pending", "pending", 2)
    fold.tell(Driven("d"), StepStarted("1"))
    assert (fold.status_of("1"), fold.state.row.step, fold.state.row.status) == ("running", "1", "running")
    fold.tell(Performing(CallTool("t"), "CallTool t"))
    assert fold.status_of() == "tool_call"
    fold.tell(Performed(Done(), "CallTool t"))
    assert fold.status_of() == "running"
    fold.tell(StepFinished("1"))
    assert (fold.status_of(), fold.state.row.totals.steps_done) == ("completed", 1)
    assert fold.steps["", "1", 1].title == "First"


def test_what_a_failed_run_did_not_reach_is_skipped() -> None:
    fold = Fold().tell(PLAN, StepStarted("1"), RunFinished("failed", error=Failed("x", "It broke.")))
    assert (fold.status_of("1"), fold.steps["", "1", 1].reason, fold.status_of("2")) == (
        "failed",
        "It broke.",
        "skipped",
    )
    assert (fold.state.row.status, fold.state.row.reason) == ("failed", "x")


def test_a_rewind_reopens_steps_that_were_only_cut_off() -> None:
    fold = Fold().tell(PLAN, StepStarted("1"), RunFinished("failed", error=Failed("x", "It broke.")))
    fold.tell(Rewound(3, ""), Driven("d"))
    assert (fold.status_of("1"), fold.status_of("2")) == ("running", "pending")
    assert (fold.state.row.status, fold.state.row.error) == ("running", None)


@pytest.mark.parametrize("kind", list(STATUS_OF_WAIT))
def test_a_step_shows_what_it_waits_for(kind: str) -> None:
    fold = Fold().tell(StepStarted("1"), WaitOpened("w", kind, "?", kind))  # type: ignore[arg-type]
    assert fold.status_of() == STATUS_OF_WAIT[kind][1]
    fold.tell(WaitClosed("w", "answered", kind))  # type: ignore[arg-type]
    assert fold.status_of() == "running"


def test_money_is_counted_on_the_step_and_on_the_run() -> None:
    fold = Fold().tell(StepStarted("1"), ASKED, reply(0.5), ASKED, reply(0.25))
    for totals in (fold.state.row.totals, fold.steps["", "1", 1].totals):
        assert (totals.calls, totals.tokens, totals.cost, totals.unknown_costs) == (2, 14, 0.75, 0)
    assert fold.steps["", "1", 1].model == "test/one"


def test_the_cost_of_a_call_without_outcome_or_price_is_unknown() -> None:
    assert Fold().tell(StepStarted("1"), ASKED).state.row.totals.unknown_costs == 1
    assert Fold().tell(ASKED, ASKED, reply()).state.row.totals.unknown_costs == 1, "the first attempt was lost"
    assert Fold().tell(ASKED, reply(None)).state.row.totals.unknown_costs == 1
    again = Fold().tell(StepStarted("1"), ASKED).tell(ASKED, reply(), place=Place("", "1", 1, attempt=2))
    assert again.state.row.totals.unknown_costs == 1
    refused = Performed(Failed("bad_key", "No."), "AskModel")
    assert Fold().tell(ASKED, refused).state.row.totals.unknown_costs == 0, "it never began"


def test_the_lost_attempts_of_a_free_call_were_free_too() -> None:
    third = Place("", "1", 1, attempt=3)
    began = Fold().tell(StepStarted("1"), ASKED).tell(ASKED, place=Place("", "1", 1, attempt=2))
    # Another process takes it up from the rows.
    later = Fold()
    later.state = RunState(began.state.row, list(began.steps.values()))
    later.tell(ASKED, reply(0.0), place=third)
    for totals in (later.state.row.totals, later.steps["", "1", 1].totals):
        assert (totals.calls, totals.cost, totals.unknown_costs) == (1, 0.0, 0)
    paid = Fold().tell(StepStarted("1"), ModelAsked("test/paid", "", Text("?"), "AskModel"))
    paid.tell(ASKED, reply(0.0), place=Place("", "1", 1, attempt=2))
    assert paid.state.row.totals.unknown_costs == 1, "another model was asked then"


def test_a_call_known_to_be_free_never_has_an_unknown_cost() -> None:
    free = ModelAsked("test/free", "", Text("?"), "AskModel", free=True)
    cancelled = Performed(Failed("cancelled", "Cancelled."), "AskModel")
    fold = Fold().tell(StepStarted("1"), free, cancelled, free, reply(0.0))
    for totals in (fold.state.row.totals, fold.steps["", "1", 1].totals):
        assert (totals.calls, totals.cost, totals.unknown_costs) == (1, 0.0, 0)
    mixed = Fold().tell(StepStarted("1"), ASKED, cancelled, free, reply(0.0))
    assert mixed.state.row.totals.unknown_costs == 1, "the other model was not free"


def test_a_step_in_doubt_stays_in_doubt_when_the_run_ends() -> None:
    doubt = Performed(Failed("cancelled", "Cancelled.", details={"in_doubt": True}), "CallTool t")
    fold = Fold().tell(StepStarted("1"), doubt, RunFinished("cancelled", error=Failed("cancelled", "Cancelled.")))
    assert fold.status_of() == "in_doubt"


def test_what_happens_in_a_branch_is_counted_on_the_step_around_it() -> None:
    fold = Fold().tell(StepStarted("1"))
    fold.tell(ASKED, reply(0.5), place=Place(branch_path("", "1", 1, 0, 0)))
    assert fold.steps["", "1", 1].totals.cost == 0.5


def test_waiting_is_free_and_driving_is_counted() -> None:
    fold = Fold().tell(
        Driven("d"), Suspended("paused", "budget", 1.5), Driven("d"), RunFinished("completed", seconds=2.0)
    )
    assert fold.state.row.totals.seconds == 3.5
    assert (fold.state.row.status, fold.state.row.reason) == ("completed", "")


def test_a_drive_that_was_cut_off_counts_up_to_its_last_record() -> None:
    fold = Fold().tell(Driven("d"), StepStarted("1"), StepFinished("1"), StepStarted("2"))
    assert fold.state.row.totals.seconds == 3.0
    # What lies between that record and the next drive was no driving, as far as anybody knows.
    fold.tell(Driven("e"), StepFinished("2"), Suspended("paused", "budget", 1.5))
    assert fold.state.row.totals.seconds == 4.5
    fold.tell(Rewound(4, ""), Driven("f"), StepStarted("2"))
    assert fold.state.row.totals.seconds == 5.5
    fold.tell(Forked("parent", "", "", "1", 1))
    assert fold.state.row.totals.seconds == 0.0


def test_a_step_is_charged_for_the_time_in_which_its_run_was_driven() -> None:
    fold = Fold().tell(Driven("d"), StepStarted("1"), Suspended("paused", "breakpoint"))
    fold.seq += 1000
    fold.tell(Driven("d"), ASKED, RunFinished("cancelled", error=Failed("cancelled", "Cancelled.")))
    assert fold.steps["", "1", 1].totals.seconds == 3.0
    fold.seq += 1000
    fold.tell(Rewound(5, ""), Driven("e"), ASKED, StepFinished("1"))
    step = fold.steps["", "1", 1]
    assert (step.totals.seconds, step.since) == (5.0, None)


def test_time_after_which_a_driver_died_is_not_charged() -> None:
    fold = Fold().tell(Driven("d"), StepStarted("1"))
    fold.seq += 1000
    fold.tell(Driven("e"), StepFinished("1"))
    assert fold.steps["", "1", 1].totals.seconds == 1.0


def test_a_skipped_step_says_why() -> None:
    fold = Fold().tell(PLAN, StepSkipped("1", reason="not needed"))
    assert (fold.status_of(), fold.steps["", "1", 1].reason, fold.state.row.totals.steps_done) == (
        "skipped", "not needed", 0,
    )  # fmt: skip


def test_the_runs_model_is_the_one_it_was_started_with_until_it_is_changed() -> None:
    fold = Fold().tell(RunStarted({}, {"model": "test/one"}))
    assert fold.state.row.model == "test/one"
    fold.tell(WaitClosed("w", "answered", "breakpoint", {"settings": {"model": "test/two"}}))
    assert fold.state.row.model == "test/two"


def test_changes_that_were_taken_are_not_affected_by_later_entries() -> None:
    state = RunState(new_row("any"))
    state.apply(Entry("run", 2, 1.0, Place("", "1", 1), StepStarted("1", "One")))
    row, steps, _ = state.take_changes()
    assert row is not None
    state.apply(Entry("run", 3, 2.0, Place("", "1", 1), StepFinished("1")))
    state.apply(Entry("run", 4, 3.0, Place(), RunFinished("completed")))
    assert (row.status, row.totals.steps_done, steps[0].status) == ("pending", 0, "running")


def test_an_entry_that_is_not_written_leaves_nothing_behind() -> None:
    fold = Fold().tell(Driven("d"), StepStarted("1"))
    restore = fold.state.saved()
    fold.tell(Suspended("paused", "timer", 1.5))
    restore()
    assert (fold.state.row.status, fold.state.open["", "1", 1].since) == ("running", 2.0)
    fold.tell(StepFinished("1"), RunFinished("completed", seconds=4.0))
    assert fold.state.row.totals.seconds == 4.0
    assert fold.steps["", "1", 1].totals.seconds == 2.0


def test_steps_are_counted_once_regardless_of_what_happens_in_them() -> None:
    plan = Planned((PlannedStep("1"), PlannedStep("2"), PlannedStep("3")))
    fold = Fold().tell(plan, StepStarted("1"))
    row = fold.state.row
    for sub in ("1a", "1b"):
        fold.tell(StepStarted(sub)).tell(StepFinished(sub))
    assert row.count.words() == "0 of 3"
    fold.tell(StepFinished("1"), StepStarted("2"), StepFinished("2", status="skipped", reason="No branch fits."))
    assert row.count.words("steps") == "1 of 3 steps, 1 skipped"
    fold.tell(StepStarted("3"), StepFinished("3"))
    fold.tell(StepStarted("3"), StepFinished("3"), place=Place("", "3", 2)).tell(RunFinished("completed"))
    assert (row.count.done, row.count.total, row.count.skipped, row.totals.steps_done) == (2, 3, 1, 5)


def test_a_retry_counts_the_steps_that_it_resumes() -> None:
    fold = Fold().tell(PLAN, StepStarted("1"), StepFinished("1"))
    begun = fold.seq + 1
    fold.tell(StepStarted("2"), RunFinished("failed", error=Failed("x", "It broke.")))
    assert fold.state.row.count.words() == "1 of 2, 1 failed"
    fold.tell(Rewound(begun, "", "owner"), Driven("d"))
    assert fold.state.row.count.words() == "1 of 2"
    fold.tell(StepStarted("2"), StepFinished("2"), RunFinished("completed"))
    assert fold.state.row.count.words() == "2 of 2"
