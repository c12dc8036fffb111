"""Our execution vectors: the calls, events and result of each playbook's run. Their README explains the format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.markdown.observe import published
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, CallTool, ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ModelAsked, Performing, WaitOpened
from cuebook.kernel.outcomes import Failed, Source, ToolResult
from cuebook.kernel.ports import Call
from cuebook.kernel.run import RunRow
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.testing import Line, ModelError, Says, model_performer
from tests.dialects.markdown.harness import MarkdownHarness

VECTORS = Path(__file__).resolve().parents[3] / "vectors/markdown/execute"
FOUND = sorted(VECTORS.rglob("*.execution.json"))
GIVEN = {"about", "inputs", "breakpoints", "resume", "answers", "unattended", "replies", "tools", "prompts", "expect"}
EXPECTED = {"refused", "status", "error", "calls", "events", "steps", "state", "artifact", "warnings"}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.execution.json')}"


def case_of(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def book_of(path: Path) -> str:
    return path.with_name(path.name.replace(".execution.json", ".playbook.md")).read_text(encoding="utf-8")


class Tools:
    """Returns each tool's results in order."""

    def __init__(self, results: Mapping[str, list[Any]]) -> None:
        self._left = {name: list(values) for name, values in results.items()}

    async def perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        if not self._left.get(effect.tool):
            return Failed("no_such_tool", f"There is no tool named '{effect.tool}'.")
        result = self._left[effect.tool].pop(0)
        if isinstance(result, dict) and set(result) == {"error"}:
            return Failed("tool_failed", result["error"])
        return ToolResult(result)


class Prompts:
    """Returns the available prompts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {reference.replace("library:", "prompt:"): text for reference, text in texts.items()}

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        text = self._texts.get(effect.source)
        return Failed("not_found", f"There is no {effect.source}.") if text is None else Source(Text(text))


def line_of(reply: Any) -> Line:
    if isinstance(reply, str):
        return reply
    return (
        ModelError("bad_request", reply["error"]) if "error" in reply else Says(reply["text"], finish=reply["finish"])
    )


class Stage(MarkdownHarness):
    """A harness that runs one vector."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        super().__init__(MemoryStore(), [line_of(reply) for reply in case.get("replies", [])])
        self.service = Service(
            self.store,
            {
                AskModel: model_performer(self.model),
                CallTool: Tools(case.get("tools", {})),
                ReadSource: Prompts(case.get("prompts", {})),
            },
        )

    async def play(self, text: str, case: Mapping[str, Any]) -> RunRow:
        answers: dict[str, str] = case.get("answers", {})
        unattended = case.get("unattended", False)
        row = await self.run(
            text,
            case.get("inputs", {}),
            breakpoints=tuple(case.get("breakpoints", ())),
            unattended=unattended,
            answers=answers if unattended else {},
        )
        pauses = iter(case.get("resume", []))
        while True:
            changes: dict[str, Any] | None = next(pauses, None) if row.status == "paused" else None
            if changes is not None:
                row = await self.resume(row.id, **changes)
                continue
            label = (await self.wait(row.id)).place.step if row.status == "awaiting_input" else ""
            number = label.rstrip("abcdefghijklmnopqrstuvwxyz")
            answer = answers.get(label, answers.get(number)) if label else None
            if answer is None:
                return row
            row = await self.answer(row.id, answer)

    async def calls(self, run: str) -> list[dict[str, Any]]:
        """Every call in order, as vectors write them."""
        asked = iter(range(len(self.model.requests)))
        made: list[dict[str, Any]] = []
        async for entry in self.service.entries(run):
            match entry.event:
                case ModelAsked():
                    number = next(asked)
                    made.append({"prompt": self.prompts[number], "system": self.system(number)})
                case Performing(effect=CallTool() as effect):
                    made.append({"tool": effect.tool, "arguments": effect.arguments})
                case WaitOpened(kind="question") as wait:
                    options = list(wait.options)
                    question = {"question": wait.prompt, "type": wait.type, "options": options, "default": wait.default}
                    made.append(question)
                case _:
                    continue
            made[-1]["step"] = entry.place.step
        return made

    async def told(self, run: str) -> list[dict[str, Any]]:
        told = [one async for entry in self.service.entries(run) for one in published(entry)]
        return [{key: one[key] for key in ("type", "step", "status") if key in one} for one in told]


def agrees(call: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    system = call.get("system", "")
    plain = {key: value for key, value in wanted.items() if key not in ("system_has", "system_lacks")}
    return (
        all(call.get(key) == value for key, value in plain.items())
        and all(words in system for words in wanted.get("system_has", []))
        and not any(words in system for words in wanted.get("system_lacks", []))
    )


@pytest.mark.parametrize("path", FOUND, ids=name_of)
async def test_a_run_does_what_its_vector_says(path: Path) -> None:
    case, text = case_of(path), book_of(path)
    expect = case["expect"]
    stage = Stage(case)
    if "refused" in expect:
        with pytest.raises(BadInput) as refused:
            await stage.play(text, case)
        assert [words for words in expect["refused"] if words not in refused.value.message] == []
        return
    row = await stage.play(text, case)
    assert row.status == expect["status"], row.error
    await compare(stage, row, expect)
    assert (await stage.service.replay(row.id)).complete == (row.status in ("completed", "failed"))


async def compare(stage: Stage, row: RunRow, expect: Mapping[str, Any]) -> None:
    for words in expect.get("error", []):
        assert row.error is not None
        assert words in row.error.message
    if "calls" in expect:
        calls = await stage.calls(row.id)
        assert len(calls) == len(expect["calls"]), calls
        for call, wanted in zip(calls, expect["calls"], strict=True):
            assert agrees(call, wanted), (call, wanted)
    if "events" in expect:
        told = await stage.told(row.id)
        assert [{k: v for k, v in one.items() if k != "status" or one["type"] == "done"} for one in told] == expect[
            "events"
        ]
    if "steps" in expect:
        assert await stage.steps(row.id) == expect["steps"]
    if "artifact" in expect:
        made = (await stage.service.view(row.id)).artifact
        assert (made and {"content": str(made.content), "type": made.type}) == expect["artifact"]
    if "warnings" in expect:
        warned = await stage.warnings(row.id)
        assert [words for words in expect["warnings"] if not any(words in one for one in warned)] == []
        assert [one for one in warned if not any(words in one for words in expect["warnings"])] == []
    state = await stage.state(row.id)
    for key, wanted in expect.get("state", {}).items():
        found = state[key]
        if key == "elicitation" and isinstance(found, dict) and wanted is not None:
            found = {name: found[name] for name in wanted}
        assert found == wanted, key


@pytest.mark.parametrize("path", FOUND, ids=name_of)
def test_a_vector_has_only_documented_fields(path: Path) -> None:
    case = case_of(path)
    assert set(case) <= GIVEN
    assert set(case["expect"]) <= EXPECTED
    readme = (VECTORS / "README.md").read_text(encoding="utf-8")
    assert [key for key in GIVEN | EXPECTED if f"`{key}`" not in readme] == []


def test_there_are_vectors() -> None:
    assert len(FOUND) >= 40
