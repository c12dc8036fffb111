"""The default preview of a dialect: its steps, and what its program does with stand-ins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect, Document
from cuebook.dialects.presentation.preview import played
from cuebook.kernel.effects import AskHuman, AskModel, Program
from cuebook.kernel.events import PlannedStep, StepFinished, StepStarted
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli import call


class List(msgspec.Struct, Document, frozen=True):
    """A step on each line. A question mark at its end asks a person, and `loop` never ends."""

    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.lines[0]

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(str(number), line) for number, line in enumerate(self.lines[1:], start=1))


class Lists(Dialect):
    name: ClassVar[str] = "list"
    suffixes: ClassVar[tuple[str, ...]] = (".list",)

    def recognises(self, text: str, name: str) -> bool:
        return name.endswith(".list")

    def parse(self, text: str, name: str) -> List:
        return List(tuple(text.splitlines()))

    def start(
        self, document: List, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        return lambda state: _run(document)


def _run(document: List) -> Program[None]:
    said = ""
    for step in document.plan:
        yield StepStarted(step.label, step.title)
        while step.title == "loop":
            yield AskModel("Again.")
        if step.title == "count":
            said = str(int(said))
        elif step.title.endswith("?"):
            said = (yield AskHuman(step.title)).value
        else:
            said = str((yield AskModel(f"{step.title} {said}".strip())).text)
        yield StepFinished(step.label)


@pytest.fixture
def lists() -> Iterator[Lists]:
    dialect = Lists()
    registry.register(dialect)
    yield dialect
    registry.unregister(dialect.name)


def words(dialect: Lists, *lines: str) -> list[str]:
    acts = played(dialect.preview(List(("T", *lines)), {}, Settings())).every_act()
    return [
        act.effect.prompt if isinstance(act.effect, AskModel) else (act.report or ("question", ""))[1] for act in acts
    ]


def test_a_program_is_followed_with_stand_ins(lists: Lists) -> None:
    assert words(lists, "Sort.", "Who?", "Write.") == ["Sort.", "", "Write. <answer in step 2>"]


def test_a_program_that_cannot_be_followed_is_reported(lists: Lists) -> None:
    assert words(lists, "Sort.", "count") == ["Sort.", "only a run can show what follows"]
    shown = words(lists, "loop")
    assert (len(shown), shown[-1]) == (1_001, "only the first 1,000 acts are shown")


def test_all_three_views_work(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("a.list").write_text("My list\nSort.\nWho?\n")

    def said(*args: str) -> str:
        assert call(list(args)) == 0
        return capsys.readouterr().out

    explained = said("explain", "a.list")
    assert "what runs, in this order:\n  1 Sort.\n  2 Who?\n" in explained
    assert "the number of model calls is known only during the run" in explained
    assert json.loads(said("explain", "a.list", "--json"))["steps"][0] == {"label": "1", "title": "Sort."}
    assert "  is:          allowed: a model is allowed (default)\n" in said("plan", "a.list")
    assert "=== Step 2: Who?\n--- question (input)\nWho?\n" in said("run", "a.list", "--dry-run")
