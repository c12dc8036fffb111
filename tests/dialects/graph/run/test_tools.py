"""The tools that a node gets from its skills."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects.graph.parse import parse
from cuebook.dialects.graph.run.sources import Material
from cuebook.dialects.graph.run.tools import Toolset, toolset, unset
from cuebook.kernel.context import Text
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, skill


def tools_of(text: str, found: dict[str, Any]) -> Toolset:
    """The tools of the node `a`; `found` are skills as the performers return them."""
    workflow = parse(text, "flow.json")
    texts = {f"skill:{id}": Text(msgspec.json.encode(one).decode()) for id, one in found.items()}
    program = toolset(Material(workflow, {}, texts), workflow.nodes["a"])
    try:
        next(program)
    except StopIteration as stop:
        made: Toolset = stop.value
        return made
    raise AssertionError("a toolset without servers asks for nothing")


def test_an_inline_skill_keeps_its_instruction_next_to_an_unconfigured_one_of_the_same_name() -> None:
    text = flow("a", nodes={"a": {"skills": ["slack"]}}, skills={"slack": {"instruction": "Be brief in channels."}})
    missing = {"slack": skill("slack", configured=False, missing=["SLACK_WEBHOOK_URL"], instruction="")}
    tools = tools_of(text, missing)
    assert tools.instructions == [("Slack", "Be brief in channels.")]
    assert [warned.code for warned in tools.warnings] == ["skill_not_configured"]
    assert "SLACK_WEBHOOK_URL" in tools.warnings[0].message


def test_a_skill_in_a_file_comes_before_the_words_of_the_workflow() -> None:
    text = flow("a", nodes={"a": {"skills": ["tone"]}}, skills={"tone": {"instruction": "Be brief."}})
    assert tools_of(text, {"tone": skill("tone", instruction="Be kind.")}).instructions == [("Tone", "Be kind.")]


def test_what_a_tool_says_of_itself_reaches_its_call() -> None:
    found = skill("s")
    found["tools"] = [
        {"name": "look", "description": "", "parameters": {}, "reads_only": True, "idempotent": True},
        {"name": "put", "description": "", "parameters": {}, "reads_only": False, "idempotent": True},
        {"name": "add", "description": "", "parameters": {}},
    ]
    calls = tools_of(flow("a", nodes={"a": {"skills": ["s"]}}), {"s": found}).calls
    assert {name: (call.reads_only, call.idempotent) for name, call in calls.items()} == {
        "look": (True, True),
        "put": (False, True),
        "add": (False, False),
    }


def test_a_partly_configured_skill_gives_a_warning() -> None:
    found = skill("s", "t", missing=["S_TOKEN"])
    tools = tools_of(flow("a", nodes={"a": {"skills": ["s"]}}), {"s": found})
    assert unset(["A"]) == "A is not set"
    assert unset(["A", "B"]) == "A and B are not set"
    assert [(one.code, "S_TOKEN is not set" in one.message) for one in tools.warnings] == [
        ("skill_not_configured", True)
    ]
    assert list(tools.calls) == ["t"]


def test_a_tool_hidden_by_another_one_gives_a_warning() -> None:
    found = {"s": skill("s", "look.up", "put"), "t": skill("t", "look_up", "put")}
    tools = tools_of(flow("a", nodes={"a": {"skills": ["s", "t"]}}), found)
    assert [spec.name for spec in tools.specs] == ["look_up", "put"]
    assert [(warned.code, "look_up" in warned.message) for warned in tools.warnings] == [("tool_name", True)]


async def warned(store: Store, node: dict[str, Any], **texts: Any) -> list[tuple[str, str]]:
    harness = GraphHarness(store, texts={name.replace("_", ":", 1): one for name, one in texts.items()})
    row = await harness.run(flow("a", nodes={"a": node}))
    assert row.status == "completed", row.error
    return [(one["code"], one["reason"]) for one in await harness.events(row.id) if one["type"] == "node:warning"]


async def test_a_filter_gives_no_warning_for_tools_of_an_unconfigured_skill(store: Store) -> None:
    absent = skill("github", "github_create_pr", configured=False, missing=["GITHUB_TOKEN"])
    node = {"skills": ["s", "github"], "tools": {"deny": ["github_create_pr", "look"]}}
    found = await warned(store, node, skill_s=skill("s", "look", "poke"), skill_github=absent)
    assert [code for code, _ in found] == ["skill_not_configured"]
    node["tools"] = {"deny": ["github_creat_pr"]}
    found = await warned(store, node, skill_s=skill("s", "look"), skill_github=absent)
    assert [code for code, _ in found] == ["skill_not_configured", "tool_filter"], "what is misspelt is"
    found = await warned(store, {**node, "skills": ["s", "gone"]}, skill_s=skill("s", "look"))
    assert [code for code, _ in found] == ["unknown_skill"], "nobody knows the tools of a skill that is not there"


async def test_a_node_that_can_use_none_of_its_skills_is_warned_of(store: Store) -> None:
    absent = skill("slack", "slack_send", configured=False, missing=["SLACK_TOKEN"])
    found = await warned(store, {"skills": ["slack"]}, skill_slack=absent)
    assert [code for code, _ in found] == ["skill_not_configured", "no_skills"]
    assert "none of its skills are configured" in found[-1][1]
    found = await warned(store, {"skills": ["slack", "s"]}, skill_slack=absent, skill_s=skill("s", "look"))
    assert "no_skills" not in [code for code, _ in found]
