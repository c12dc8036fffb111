"""Where a run's time and money went: each second is counted once, and the total is that of the run."""

from __future__ import annotations

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.events import (
    AnyEvent,
    Driven,
    Forked,
    ModelAsked,
    Performed,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Suspended,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import Entry, Place, branch_path
from cuebook.kernel.outcomes import Failed, Reply, Usage
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.live.timing import shares, waits
from tests.support.programs import new_row

ASKED = ModelAsked("test/one", "", Text("?"), "AskModel")
REPLY = Performed(Reply(Text("hi"), model="test/one", usage=Usage(3, 4, cost=0.5)), "AskModel")
CANCELLED = RunFinished("cancelled", error=Failed("cancelled", "Cancelled."))


class Watch:
    """A picture of a run, fed with events and their times."""

    def __init__(self) -> None:
        self.picture, self.seq = Picture(new_row("hand")), 0
        self.tell(0, RunStarted({}), "").tell(0, Driven("d"), "")

    def tell(self, at: float, event: AnyEvent, step: str = "1", path: str = "") -> Watch:
        self.seq += 1
        place = Place(path, step, 1 if step else 0)
        self.picture.apply(Entry("run", self.seq, float(at), place, event))
        return self

    @property
    def times(self) -> dict[str, float]:
        return {one.card.key if one.card else "the rest": one.seconds for one in shares(self.picture)}

    @property
    def waited(self) -> dict[str, float]:
        return {card.key: seconds for card, seconds in waits(self.picture)}


def test_an_outer_step_has_the_remaining_time_and_the_rest_is_shown() -> None:
    watch = Watch().tell(1, StepStarted("1")).tell(3, StepStarted("1a"), "1a").tell(7, StepFinished("1a"), "1a")
    watch.tell(8, StepFinished("1")).tell(8, RunFinished("completed", seconds=8.5), "")
    assert watch.times == {"1": 3.0, "1a": 4.0, "the rest": 1.5}


def test_concurrent_steps_share_the_time() -> None:
    watch = Watch().tell(0, StepStarted("1"))
    paths = [branch_path("", "1", 1, 0, number) for number in range(2)]
    for path, label in zip(paths, "ab", strict=True):
        watch.tell(0, StepStarted(label), label, path)
    watch.tell(4, StepFinished("a"), "a", paths[0]).tell(6, StepFinished("b"), "b", paths[1])
    watch.tell(6, StepFinished("1")).tell(6, RunFinished("completed", seconds=6.0), "")
    assert {one.card.row.label: one.seconds for one in shares(watch.picture) if one.card} == {"a": 2, "b": 4}


def test_waiting_is_counted_separately() -> None:
    watch = Watch().tell(0, StepStarted("1")).tell(2, WaitOpened("w", "approval", "May it?", "p"))
    watch.tell(2, Suspended("awaiting_approval", seconds=2.0), "").tell(102, Driven("d"), "")
    watch.tell(102, WaitClosed("w", "answered", "approval")).tell(103, StepFinished("1"))
    watch.tell(103, RunFinished("completed", seconds=1.0), "")
    assert (watch.times, watch.waited) == ({"1": 3.0}, {"1": 100.0})
    assert watch.picture.cards["", "1", 1].seconds == 3.0


def test_the_time_after_the_end_of_a_run_does_not_count() -> None:
    watch = Watch().tell(0, StepStarted("1")).tell(0, ASKED).tell(5, CANCELLED, "")
    card = watch.picture.cards["", "1", 1]
    assert (card.status, card.seconds, watch.times) == ("cancelled", 0.0, {"1": 5.0})
    watch.tell(300, Rewound(4, "")).tell(300, Driven("d"), "").tell(300, ASKED).tell(304, REPLY)
    assert card.status == "running"
    watch.tell(304, StepFinished("1")).tell(304, RunFinished("completed", seconds=9.0), "")
    assert (card.seconds, watch.times, watch.waited) == (9.0, {"1": 9.0}, {})


def test_a_fork_counts_its_own_work_and_its_steps_keep_their_time() -> None:
    watch = Watch().tell(0, StepStarted("1")).tell(0, ASKED).tell(3, REPLY).tell(3, StepFinished("1"))
    watch.tell(4, StepStarted("2"), "2")
    watch.tell(700, Forked(parent="p", parent_chain="", path="", step="3", visit=1), "").tell(700, Driven("d"), "")
    watch.tell(702, StepFinished("2"), "2").tell(702, RunFinished("completed", seconds=2.0), "")
    first, second = (watch.picture.cards["", label, 1] for label in "12")
    assert (watch.times, watch.waited) == ({"2": 2.0}, {})
    assert (first.seconds, second.seconds) == (3.0, 2.0)
    assert (first.row.totals.cost, first.cost) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("failed", "status"),
    [
        (Failed("cancelled", "Cancelled."), "cancelled"),
        (Failed("denied", "Ada denied it."), "denied"),
        (Failed("expired", "Too late."), "expired"),
        (Failed("broken", "It broke."), "failed"),
    ],
)
def test_a_step_shows_how_it_ended(failed: Failed, status: str) -> None:
    run = status if status in ("expired", "failed") else "cancelled"
    watch = Watch().tell(0, StepStarted("1")).tell(1, RunFinished(run, error=failed), "")  # type: ignore[arg-type]
    assert watch.picture.cards["", "1", 1].status == status
