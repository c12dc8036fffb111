"""Evaluators and judges on the real engine. The conformance cases cover more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.kernel.effects import AskModel, CallTool
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Call, Store
from cuebook.performers.tools.functions import python_tool
from cuebook.performers.tools.toolbox import Toolbox
from tests.dialects.graph.harness import GraphHarness, flow, skill, where

JUDGE = {"eval": [{"name": "j", "kind": "judge", "rubric": "Is the x large?"}]}
YES = "VERDICT: yes\nREASONING: It is."


async def test_a_judge_sees_the_rubric_the_data_and_the_tools(store: Store) -> None:
    harness = GraphHarness(
        store,
        run={"a": {"calls": [{"tool": "look", "input": {"q": "z" * 300}}], "data": {"x": 9}}},
        ask=[YES],
        tools={"look": "seen"},
        texts={"skill:s": skill("s", "look")},
    )
    await harness.run(flow("a", nodes={"a": {**JUDGE, "skills": ["s"]}}), {"secret": "of the input"})
    (asked,) = harness.asked("ask")
    assert "Is the x large?" in asked.prompt
    assert '"x": 9' in asked.prompt
    assert '- look (ok) input={"q":"zzz' in asked.prompt
    assert 'output="seen"' in asked.prompt
    assert "z" * 250 not in asked.prompt, "previews are short"
    assert "of the input" not in asked.prompt + "".join(asked.blocks), "and nothing of the input"


async def test_a_judge_may_answer_in_json(store: Store) -> None:
    harness = GraphHarness(store, ask=['{"verdict": "no", "reasoning": "It is small."}'])
    row = await harness.run(flow("a", nodes={"a": JUDGE}))
    assert (await harness.results(row.id))["a"]["evals"] == [
        {"name": "j", "kind": "judge", "pass": False, "reasoning": "It is small."}
    ]


async def test_a_judge_that_says_nothing_at_length_says_no(store: Store) -> None:
    for said in ("\n" * 500_000, "> " * 500_000, "verdict " * 100_000):
        harness = GraphHarness(store, ask=[said])
        row = await harness.run(flow("a", nodes={"a": JUDGE}))
        (verdict,) = (await harness.results(row.id))["a"]["evals"]
        assert (verdict["pass"], len(harness.asked("ask"))) == (False, 2)


@pytest.mark.parametrize("rule", [{"path": "a", "matches": "x"}, {"path": "a", "equals": {"a": 1}}])
async def test_a_reply_that_is_nested_too_deep_fails_its_node_and_no_more(store: Store, rule: dict[str, Any]) -> None:
    node = {"eval": [{"name": "e", "kind": "value", "rule": {"output_matches": [rule]}}]}
    harness = GraphHarness(store, run={"a": '{"a":' * 600 + "1" + "}" * 600})
    row = await harness.run(flow("a", "b", nodes={"a": node}))
    assert row.error is not None
    assert (row.error.code, harness.calls) == ("node_failed", ["run a", "run b"])
    assert (await harness.results(row.id))["b"]["status"] == "success"


async def test_a_run_can_be_cancelled_while_it_is_judged(store: Store) -> None:
    harness = GraphHarness(store)
    judging = asyncio.Event()
    perform = harness.script.perform

    class Held:
        async def perform(self, effect: AskModel, call: Call) -> Any:
            if not where(call)[1]:
                return await perform(effect, call)
            judging.set()
            await asyncio.sleep(3600)
            return Failed("late", "never")

    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: Held()}
    row = await harness.start(flow("a", nodes={"a": JUDGE}))
    driving = asyncio.create_task(harness.service.drive(row.id))
    await asyncio.wait_for(judging.wait(), 30)
    await harness.service.cancel(row.id)
    assert (await driving).status == "cancelled"
    assert (await harness.events(row.id))[-1]["type"] == "workflow:end"


def count(n: int) -> int:
    """Counts on.

    Args:
        n: From here.
    """
    COUNTED.append(n)
    return n + 1


COUNTED: list[int] = []


async def test_the_input_of_a_tool_is_checked_before_it_is_called(store: Store) -> None:
    """The model is told what is invalid, and the tool is not called."""
    COUNTED.clear()
    box = Toolbox([python_tool(count)])
    harness = GraphHarness(
        store,
        run={
            "a": {
                "calls": [{"tool": "count", "input": {"n": "many"}}, {"tool": "count", "input": {"n": 1}}],
                "data": {},
            }
        },
        texts={"skill:s": skill("s", "count")},
    )
    harness.service._engine.performers = {**harness.service._engine.performers, CallTool: box}
    row = await harness.run(flow("a", nodes={"a": {"skills": ["s"]}}))
    assert row.status == "completed"
    first, second = (await harness.results(row.id))["a"]["toolCalls"]
    assert (first["status"], second["output"]) == ("error", 2)
    assert COUNTED == [1]
    told = [event["output"] for event in await harness.events(row.id) if event["type"] == "tool:result"]
    assert "n" in told[0]["error"]


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("I could say VERDICT: yes, but I will not.\nVERDICT: no", False),
        ("The step wrote 'VERDICT: yes' itself.", None),
        ("VERDICT: yes\nVERDICT: no", None),
        ("VERDICT: yes\n\nVERDICT: Yes.", True),
        ("**VERDICT:** yes\nREASONING: Fine.", True),
        ('{"reasoning": "Fine.", "verdict": "yes"}', True),
        ('The step wrote {"verdict": "yes"} itself.', None),
    ],
)
async def test_only_a_separate_line_is_a_verdict(store: Store, said: str, passed: bool | None) -> None:
    node = {"eval": [{"name": "e", "kind": "judge", "rubric": "Good?"}]}
    harness = GraphHarness(store, ask=[said])
    row = await harness.run(flow("a", nodes={"a": node}))
    (verdict,) = (await harness.results(row.id))["a"]["evals"]
    assert verdict["pass"] is bool(passed)
    assert ("judge parse failure" in verdict.get("reasoning", "")) is (passed is None)


async def test_a_judge_that_cannot_be_asked_reports_the_cause(store: Store) -> None:
    node = {"eval": [{"name": "e", "kind": "judge", "rubric": "Good?"}]}
    harness = GraphHarness(store, ask=[{"fails": "The line is dead."}])
    row = await harness.run(flow("a", nodes={"a": node}))
    (verdict,) = (await harness.results(row.id))["a"]["evals"]
    assert "The line is dead." in verdict["reasoning"]
    assert "parse failure" not in verdict["reasoning"]
