"""The tool calls of a step on its card: the latest, however many there are."""

from __future__ import annotations

from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.events import Performed, Rewound, StepStarted
from cuebook.kernel.outcomes import Reply
from cuebook.surfaces.web.live.calls import MOST
from tests.surfaces.web.live.test_timing import ASKED, Watch


def test_a_card_shows_its_latest_calls_and_how_many_came_before() -> None:
    watch = Watch().tell(0, StepStarted("1"))
    for number in range(MOST + 5):
        call = ToolCall(f"call-{number}", "Read", {"path": f"{number}.txt"})
        watch.tell(1, ASKED).tell(1, Performed(Reply(Text(""), model="test/one", calls=(call,)), "AskModel"))
    card = watch.picture.cards["", "1", 1]
    assert (len(card.calls), card.hidden_calls) == (MOST, 5)
    assert [call.headline for call in card.calls.values()][:: MOST - 1] == ["5.txt", f"{MOST + 4}.txt"]
    last = watch.seq
    watch.tell(2, Rewound(last, ""))
    assert [call.headline for call in card.calls.values()][-1] == f"{MOST + 3}.txt"
