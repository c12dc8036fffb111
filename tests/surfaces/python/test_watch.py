"""The events that a playbook's format defines, from Python: as they happen, and in the result."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.kernel.effects import Now
from cuebook.testing import MemoryStore, ModelError, ScriptedModel

FLOW = """\
id: mood
name: Mood
entry: guess
nodes:
  guess: {name: Guess, instruction: Guess the mood.}
  explain: {name: Explain, instruction: Say why.}
edges:
  - {from: guess, to: explain}
"""
WHOLE = [
    "workflow:start",
    "sources:resolved",
    "node:enter",
    "node:exit",
    "route",
    "node:enter",
    "node:exit",
    "workflow:end",
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder without configuration."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


class Seen:
    """Records the events it receives, except for streamed text."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.words: list[str] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "node:progress":
            self.words.append(event["message"])
        else:
            self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event["type"] for event in self.events]


def names(result: cuebook.Result) -> list[str]:
    return [event["type"] for event in result.events]


def test_a_workflow_publishes_its_events_as_they_happen_and_keeps_them() -> None:
    seen = Seen()
    model = ScriptedModel(["Glad.", "It rhymes."])
    result = cuebook.run(FLOW, model=model, store=MemoryStore(), on_published=seen)
    assert result.ok
    assert seen.names == WHOLE
    assert list(result.events) == seen.events
    assert "".join(seen.words) == "Glad.It rhymes."
    assert {event["run"] for event in result.events} == {result.run}
    assert result.events[-1]["results"]["explain"]["data"] == {"summary": "It rhymes."}


def test_the_events_of_a_waiting_run_continue_where_they_stopped() -> None:
    seen, store = Seen(), MemoryStore()
    model = ScriptedModel(["Glad.", "It rhymes."])
    waiting = cuebook.run(FLOW, model=model, store=store, breakpoints=["guess"], on_published=seen)
    assert seen.names == names(waiting) == WHOLE[:4]
    done = waiting.resume()
    assert seen.names == names(done) == WHOLE
    assert [event["sequence"] for event in seen.events] == list(range(1, 9))
    assert cuebook.find(done.run, store=store).events == done.events


def test_events_from_another_process_are_passed_on_as_well() -> None:
    seen, store = Seen(), MemoryStore()
    model = ScriptedModel(["Glad.", "It rhymes."])
    waiting = cuebook.run(FLOW, model=model, store=store, breakpoints=["guess", "explain"], on_published=seen)
    cuebook.find(waiting.run, model=model, store=store).resume()
    assert seen.names == WHOLE[:4]
    waiting.cancel("enough")
    assert seen.names == WHOLE
    assert seen.events[-1]["status"] == "cancelled"


def test_events_undone_by_a_retry_are_published_and_do_not_count() -> None:
    seen = Seen()
    model = ScriptedModel([ModelError("bad_request", "Down."), "Glad.", "It rhymes."])
    options = {"on_failure": "halt"}
    failed = cuebook.run(FLOW, model=model, store=MemoryStore(), options=options, on_published=seen)
    assert names(failed)[-2:] == ["node:exit", "workflow:end"]
    done = failed.retry()
    assert done.ok
    assert names(done) == WHOLE
    assert seen.names == [*names(failed), *WHOLE[3:]]


@pytest.mark.parametrize("debugging", [False, True])
@pytest.mark.parametrize("what", ["on_published", "on_event"])
def test_an_observer_that_raises_changes_nothing_and_says_nothing_unless_asked(
    caplog: pytest.LogCaptureFixture, what: str, debugging: bool
) -> None:
    caplog.set_level(logging.DEBUG if debugging else logging.WARNING)
    shown: list[Any] = []

    def fail(event: Any) -> None:
        shown.append(event)
        raise RuntimeError("I cannot watch.")

    model = ScriptedModel(["Glad.", "It rhymes."])
    result = cuebook.run(FLOW, model=model, store=MemoryStore(), **{what: fail})  # type: ignore[arg-type]
    assert result.ok
    assert len(shown) > 5
    if what == "on_published":
        assert [one["type"] for one in shown if one["type"] != "node:progress"] == WHOLE
    assert len([record for record in caplog.records if what in record.message]) == debugging
    assert debugging or not caplog.records


def test_a_markdown_playbook_has_the_events_of_its_format() -> None:
    seen = Seen()
    text = "# Tea\n\n## STEP 1: Brew\n\nBrew it.\n"
    result = cuebook.run(text, model=ScriptedModel(["Brewed."]), store=MemoryStore(), on_published=seen)
    assert names(result) == ["content", "done"]
    assert [seen.names[0], seen.names[-1]] == ["content", "done"]


async def test_a_program_of_ones_own_has_none() -> None:
    def wait(inputs: dict[str, Any]) -> Generator[Any, Any, None]:
        yield Now()

    async with cuebook.Programs(wait, store=MemoryStore()) as programs:
        row = await programs.start("wait")
        await programs.finish(row.id)
        result = await programs.result(row.id)
    assert (result.ok, result.events, result.trace) == (True, (), None)
