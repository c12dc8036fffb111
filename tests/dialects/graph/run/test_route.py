"""Routing: how an answer is understood, and what a question shows. The conformance cases cover more."""

from __future__ import annotations

import json

import pytest

from cuebook.dialects.graph.model import Edge
from cuebook.dialects.graph.run.route import choices_of, understood
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, way

IDS = ["fix", "fix_all", "fix-it", "skip", "none"]


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("fix", "fix"),
        (" fix_all \n", "fix_all"),
        ('"skip"', "skip"),
        ("**skip**", "skip"),
        ("The answer is fix_all.", "fix_all"),
        ("I choose `fix-it`.", "fix-it"),
        ('{"choice": "skip", "reason": "It is known."}', "skip"),
        ('Well. ```json\n{"choice": "fix"}\n```', "fix"),
        ('{"choice": "none"}', "none"),
        ("none", "none"),
        ("fix or skip", ""),
        ("none of them, perhaps fix", ""),
        ("fixing", ""),
        ("prefix", ""),
        ('{"choice": "other"}', ""),
        ('{"choice": 3}', ""),
        ("", ""),
        ("FIX", "fix"),
        ("FIX_ALL", "fix_all"),
        ('{"choice": "Skip"}', "skip"),
        ("None", "none"),
        ("None of these.", "none"),
        ("I would not skip this.", ""),
        ("Don't skip it.", ""),
        ("Anything rather than fix", ""),
    ],
)
def test_what_an_answer_names(answer: str, choice: str) -> None:
    assert understood(answer, IDS).choice == choice


def test_the_reason_is_kept() -> None:
    assert understood('{"choice": "fix", "reason": "It broke."}', IDS).reason == "It broke."


def test_choices_are_distinguished() -> None:
    edges = [
        Edge("a", "b", "x", index=3),
        Edge("a", "b", "y", index=4),
        Edge("a", "none", "z", index=5),
        Edge("a", "c", index=6),
    ]
    assert [choice.id for choice in choices_of(edges)] == ["b#3", "b#4", "none#5", "c"]


FORK = flow("a", "b", "c", edges=way("a b when it is red", "a c when it is green"))


async def test_the_question_names_each_condition_and_none(store: Store) -> None:
    harness = GraphHarness(store, route={"a": "b"})
    await harness.run(FORK)
    (asked,) = harness.asked("route")
    assert "- b: it is red\n- c: it is green\n- none: no condition is true" in asked.prompt
    assert asked.choices == ["b", "c", "none"]
    assert asked.tools == []


async def test_the_choice_and_its_reason_are_in_the_trace(store: Store) -> None:
    answer = json.dumps({"choice": "c", "reason": "It is green."})
    harness = GraphHarness(store, route={"a": answer})
    row = await harness.run(FORK)
    (edge,) = (await harness.trace(row.id))["edges"]
    assert edge == {
        "from": "a", "to": "c", "reason": "it is green", "edge": 1, "asked": True, "answer": answer,
        "rationale": "It is green.",
    }  # fmt: skip


async def test_the_second_question_shows_what_was_answered(store: Store) -> None:
    harness = GraphHarness(store, route={"a": ["blue", "c"]})
    await harness.run(FORK)
    again = harness.asked("route")[1]
    assert "Answer with one of: b, c, none" in again.prompt
    assert [block.role for block in again.effect.context][-2:] == ["user", "assistant"]


async def test_a_run_that_stopped_at_a_routing_question_can_be_retried(store: Store) -> None:
    harness = GraphHarness(store, route={"a": [{"fails": "The key is wrong."}, "b"]})
    row = await harness.run(FORK)
    assert row.status == "failed"
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.calls == ["run a", "route a", "route a", "run b"], "what was done is not done again"
    assert await harness.way(row.id) == ["a", "b"]
