"""Every event survives the journal: what is read back is what was written."""

from __future__ import annotations

from typing import get_args

import pytest

from cuebook.kernel import events
from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallTool
from cuebook.kernel.events import AnyEvent
from cuebook.kernel.journal import Codec
from cuebook.kernel.outcomes import Failed, Reply, Usage

EXAMPLES: list[AnyEvent] = [
    events.Planned((events.PlannedStep("1", "One"),)),
    events.StepStarted("1", "One"),
    events.StepFinished("1", output=Text("out"), usage=Usage(1, 2, cost=0.5, origin="reported"), seconds=1.5),
    events.StepSkipped("2", reason="not needed"),
    events.ValueSet("a", {"b": [1, None, "x"]}),
    events.Warned("code", "message"),
    events.ArtifactMade(Text("<p>"), "html"),
    events.Noted("route", {"from": "a", "to": "b"}),
    events.RunStarted({"a": 1}, {"model": "m"}),
    events.Forked("run", "00", "", "2", 1, {"v": 1}),
    events.Driven("d"),
    events.ContentsPurged("ann", "Old."),
    events.Moved("/new", "label", "/new/books", "ann"),
    events.Performing(CallTool("t", {"a": 1}, idempotent=True), "CallTool t"),
    events.ModelAsked("m", "digest", Text("prompt"), "AskModel"),
    events.ModelAsked("m", "digest", Text("prompt"), "AskModel", ruling={"decision": "allow", "rules": ["r"]}),
    events.Performed(Reply(Text("hi"), usage=Usage(1, 1)), "AskModel"),
    events.WaitOpened("w", "question", "Well?", "question", options=("a", "b"), expires=1.0),
    events.WaitClosed("w", "answered", "question", {"value": "a"}, "me"),
    events.BranchFinished(failed=Failed("x", "y"), failed_seq=3),
    events.Checkpointed({"round": 1}, {"path": ""}),
    events.CancelRequested("me", "why", hard=True),
    events.Rewound(3, "", "me"),
    events.Suspended("paused", "budget", 0.5),
    events.RunFinished("completed", {"a": 1}, seconds=2.0),
]


def no_text(digest: str) -> str:
    raise AssertionError("short texts are in their records")


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(event) for event in EXAMPLES} == set(get_args(AnyEvent))


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: AnyEvent) -> None:
    codec = Codec(no_text)
    spilled: dict[str, str] = {}
    assert codec.decode(codec.encode(event, spilled)) == event
    assert spilled == {}


def test_waiting_and_ended_are_distinct() -> None:
    statuses = set(get_args(events.RunStatus))
    assert events.ENDED | events.WAITING | {"pending", "running"} == statuses
    assert not events.ENDED & events.WAITING


def test_a_chunk_is_named_by_its_record_and_offset() -> None:
    assert events.TextChunk("run", 7, "1", 12, "text").id == "7.12"
