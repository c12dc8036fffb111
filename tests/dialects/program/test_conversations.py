"""Whole conversations as plain files: a program, the replies of a model and a user, and the expected outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.formats.yaml import read_yaml
from cuebook.testing import ScriptedModel
from tests.dialects.program.harness import ProgramHarness

FOLDER = Path(__file__).parents[2] / "vectors" / "program" / "conversations"
CASES: dict[str, Any] = {path.stem: read_yaml(path.read_text()).plain for path in sorted(FOLDER.glob("*.yaml"))}


def model_of(case: dict[str, Any]) -> ScriptedModel:
    """Replies in order, or by playbook if calls run concurrently."""
    if "by_playbook" not in case:
        return ScriptedModel(case["says"])
    left = {name: list(replies) for name, replies in case["by_playbook"].items()}

    def reply(request: Any) -> str:
        shown = "\n".join(turn.text for turn in request.messages)
        called = [name for name in left if f"Executing {name}(" in shown]
        raw = [name for name in left if not called and len(left[name]) == 1]
        found: str = left[(called or raw)[-1]].pop(0)
        return found

    return ScriptedModel(reply)


@pytest.mark.parametrize("name", CASES)
async def test_a_conversation_ends_as_its_file_says(name: str) -> None:
    case = CASES[name]
    expect = case["expect"]
    played = await ProgramHarness().play(
        case["program"], model_of(case), case.get("answers", ()), **case.get("options", {})
    )
    assert played.status == expect.get("status", "completed"), played.seen.warnings
    shown = {
        "messages": played.messages,
        "lines": played.lines,
        "calls": played.seen.calls,
        "triggers": played.seen.triggers,
        "verdicts": played.seen.verdicts,
        "variables": played.seen.variables,
        "asked": len(played.model.requests),
    }
    for name in shown:
        if name in expect:
            assert shown[name] == expect[name], name
    if "error" in expect:
        assert played.error.code == expect["error"]
    for name, value in expect.get("result", {}).items():
        assert played.result[name] == value, name
    for number, texts in expect.get("prompts", {}).items():
        for text in texts:
            assert text in played.prompt(int(number))


def test_the_conversation_files_exist() -> None:
    assert len(CASES) >= 12
