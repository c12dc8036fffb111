"""What nodes ask of people: who approves and how many, requests for changes, and answers instead of replies."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings, WaitRow
from cuebook.service.service import Principal
from tests.dialects.graph.harness import GraphHarness, flow, way

ANN, BOB, CLEO = Principal("ann"), Principal("bob"), Principal("cleo")
ASKED = {
    "text": "Send it?\nIt goes to everyone.",
    "show": ["draft", "check.ready"],
    "by": ["bob", "cleo"],
    "votes": 2,
    "changes": {"to": ["draft", "plan"], "at_most": 2},
}


async def decided(harness: GraphHarness, run: str, decision: Any, who: Principal = BOB, **more: Any) -> WaitRow:
    (wait,) = [one for one in await harness.store.waits(run=run) if one.state == "open"]
    await harness.service.decide(wait.id, decision, who, **more)
    await harness.service.drive(run)
    return wait


async def test_changes_are_requested_twice_then_two_people_approve(store: Store) -> None:
    text = flow(
        "plan",
        "draft",
        "check",
        "send",
        edges=way("plan draft", "draft check", "check draft when not ready x1", "check send"),
        x_cuebook={
            "nodes": {"send": {"approval": ASKED}},
            "guards": [
                {"from": "check", "to": "draft", "output_matches": [{"path": "check.ready", "equals": False}]},
                {"from": "check", "to": "send", "output_matches": [{"path": "check.ready", "equals": True}]},
            ],
        },
    )
    ready = [{"ready": False}, {"ready": True}, {"ready": False}, {"ready": True}, {"ready": True}]
    harness = GraphHarness(store, run={"draft": ["one", "two", "three", "four", "five"], "check": ready})
    run = (await harness.run(text)).id
    (wait,) = await store.waits(run=run)
    with pytest.raises(NotAllowed):
        await harness.service.decide(wait.id, "approve", ANN)
    with pytest.raises(BadInput, match="needs feedback"):
        await harness.service.decide(wait.id, "changes", BOB)
    first = await decided(harness, run, "changes", reason="Shorter", to="draft")
    assert first.prompt == "Send it? (continued below)"
    assert first.details["preview"] == {"request": ASKED["text"], "draft": "two", "check.ready": "true"}
    assert harness.asked("run", "draft")[-2].prompt.endswith("Do draft.\n\n---\n\n## Requested changes\n\nShorter")
    assert harness.asked("run", "draft")[-1].prompt == "Do draft.", "the loop of its own is not part of the request"
    assert harness.asked("run", "draft")[-2].context["draft"] == {"summary": "two"}, "it sees what it wrote before"
    assert await harness.way(run) == ["plan", "draft", "check", "draft", "check", "send", *["draft", "check"] * 2]
    second = await decided(harness, run, "changes", CLEO, reason="Another plan", to="plan")
    assert second.details["preview"]["draft"] == "four"
    assert harness.asked("run", "plan")[-1].prompt.endswith("## Requested changes\n\nAnother plan")
    (third,) = [one for one in await store.waits(run=run) if one.state == "open"]
    assert third.options == ("approve", "deny"), "changes were requested as often as they may be"
    await decided(harness, run, "approve", BOB)
    assert (await harness.service.get(run)).status == "awaiting_approval"
    await decided(harness, run, "approve", CLEO)
    row = await harness.service.get(run)
    assert row.status == "completed", row.error
    visits = [(step.name, step.status) for step in await harness.service.steps(run) if step.label == "send"]
    assert visits == [("send", "failed"), ("send#2", "failed"), ("send#3", "completed")]
    assert (await harness.service.verify(run)).broken_at is None
    assert (await harness.service.replay(run)) is not None


async def test_changes_stay_within_a_parallel_branch(store: Store) -> None:
    edges = way("read tone", "read facts", "tone say", "say end", "facts end")
    nodes = {"say": {"approval": {"changes": "tone"}}}
    text = flow("read", "tone", "facts", "say", "end", edges=edges, x_cuebook={"parallel": True, "nodes": nodes})
    harness = GraphHarness(store)
    run = (await harness.run(text)).id
    await decided(harness, run, "changes", reason="Warmer")
    await decided(harness, run, "approve")
    assert (await harness.service.get(run)).status == "completed"
    assert [one.split()[1] for one in harness.calls].count("facts") == 1, "the other branch is not done again"
    assert harness.asked("run", "tone")[-1].prompt.endswith("Warmer")
    for to in ("facts", "read"):
        wrong = text.replace('"changes": "tone"', f'"changes": "{to}"')
        with pytest.raises(InvalidPlaybook, match=r"does not come before|not in the same parallel branch"):
            parse(wrong, "flow.yml")
    after = text.replace('"say": {"approval": {"changes": "tone"}}', '"end": {"approval": {"changes": "tone"}}')
    with pytest.raises(InvalidPlaybook, match="Name a node of the same branch, or 'read'"):
        parse(after, "flow.yml")


FORM = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": ["small", "large"]}, "many": {"type": "integer", "minimum": 1}},
    "required": ["kind"],
}


async def test_a_person_answers_instead_of_a_model(store: Store) -> None:
    text = flow(
        "ask",
        "name",
        "tell",
        "skip",
        nodes={"ask": {"instruction": "Which size?", "output": FORM}},
        edges=way("ask name when it is large", "ask skip", "name tell"),
        x_cuebook={
            "nodes": {
                "ask": {"input": {"by": ["bob"], "default": {"kind": "small"}}},
                "name": {"input": "Whose?"},
                "tell": {"approval": {"show": "name", "changes": "name"}},
            },
            "guards": [{"from": "ask", "to": "name", "output_matches": [{"path": "ask.kind", "equals": "large"}]}],
        },
    )
    harness = GraphHarness(store)
    run = (await harness.run(text)).id
    (wait,) = await store.waits(run=run)
    assert (wait.prompt, wait.type, wait.details["schema"]) == ("Which size?", "form", FORM)
    with pytest.raises(BadInput, match="does not fit"):
        await harness.service.answer(wait.id, {"kind": "large", "many": 0}, BOB)
    with pytest.raises(NotAllowed):
        await harness.service.answer(wait.id, {"kind": "large"}, ANN)
    await harness.service.answer(wait.id, '{"kind": "large"}', BOB)
    await harness.service.drive(run)
    (wait,) = [one for one in await store.waits(run=run) if one.state == "open"]
    await harness.service.answer(wait.id, "Ida", BOB)
    await harness.service.drive(run)
    shown = await decided(harness, run, "changes", reason="All of them")
    assert shown.details["preview"] == {"name": "Ida"}
    (wait,) = [one for one in await store.waits(run=run) if one.state == "open"]
    assert wait.prompt == "Whose?\n\nRequested changes: All of them"
    await harness.service.answer(wait.id, "Ida and Ole", BOB)
    await harness.service.drive(run)
    await decided(harness, run, "approve")
    assert (await harness.results(run))["ask"]["data"] == {"kind": "large"}
    assert (await harness.results(run))["name"]["data"] == {"summary": "Ida and Ole"}
    assert harness.calls == ["run tell"], "neither the questions nor the proved edge called a model"
    settings = Settings(model="test/scripted", unattended=True, answers={"ask": '{"kind": "large"}', "name": "Ida"})
    row = await harness.service.start(Playbook.from_text(text, "flow.yml"), {}, settings)
    assert (await harness.service.drive(row.id)).status == "awaiting_approval"


@pytest.mark.parametrize(
    ("extras", "says"),
    [
        ({"approval": {}}, "approval is empty."),
        ({"approval": {"votes": 3, "by": ["a", "b"]}}, "3 votes are needed, and 2 people are listed."),
        ({"approval": {"by": "role:boss"}}, "there is no role 'boss'."),
        ({"approval": {"changes": "c"}}, "'c' does not come before 'b'."),
        ({"approval": {"changes": "b"}}, "'b' does not come before 'b'."),
        ({"approval": {"changes": {"to": "x"}}}, "unknown node 'x'."),
        ({"approval": {"show": ["x.y"]}}, "unknown node 'x'."),
        ({"input": {"words": "x"}}, "Unknown key 'words' in x_cuebook.nodes.b.input."),
        ({"input": {"default": {"n": "x"}}}, "input.default: The answer does not fit"),
        ({"input": True, "approval": True}, "x_cuebook.nodes.b.approval has no effect"),
        ({"input": True, "budget": {"tokens": 5}}, "x_cuebook.nodes.b.budget has no effect"),
    ],
)
def test_what_is_asked_of_people_is_checked(extras: dict[str, Any], says: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    text = flow("a", "b", "c", nodes={"b": {"output": schema}}, x_cuebook={"nodes": {"b": extras}})
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "flow.yml")
    assert any(says in one.message and one.line for one in caught.value.problems), caught.value.problems
