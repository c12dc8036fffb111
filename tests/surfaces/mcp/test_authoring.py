"""Assistants read and write playbooks: tools, resources, prompts, and nothing outside of the folders."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from cuebook.dialects import registry
from cuebook.surfaces.mcp.authoring import findings_of, name_of
from cuebook.surfaces.mcp.resources import SPECS, spec
from tests.surfaces.desk import TEA, Desk
from tests.surfaces.mcp.conftest import Visits
from tests.surfaces.mcp.visiting import Visit, inside, over_stdio
from tests.surfaces.model_server import ModelServer

NAMES = {
    "list_playbooks",
    "execute_playbook",
    "resume_playbook_execution",
    "respond_to_elicitation",
    "get_playbook_execution",
    "list_playbook_executions",
    "restart_playbook_execution",
    "cancel_playbook_execution",
    "playbook_read",
    "playbook_parse",
    "playbook_validate",
    "playbook_summarize",
    "playbook_write",
    "playbook_convert",
    "playbook_run",
}
FENCED = re.compile(r"^(`{3,})(markdown|yaml)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


async def test_every_tool_is_there_and_says_what_it_takes(visits: Visits) -> None:
    async with visits() as visit:
        tools = await visit.tools()
        assert tools.keys() - {"decide_approval"} == NAMES
        for tool in tools.values():
            assert tool.description
            assert tool.input_schema["type"] == "object"
            assert tool.input_schema.get("additionalProperties") is False, tool.name
            unsaid = [name for name, one in tool.input_schema["properties"].items() if "description" not in one]
            assert unsaid == [], tool.name
            looks = tool.name.startswith(("playbook_", "list_", "get_")) and tool.name != "playbook_run"
            assert tool.annotations.read_only_hint is looks
            assert tool.annotations.destructive_hint is not looks
        assert visit.client.server_info is not None
        assert visit.client.server_info.name == "cuebook"
        assert "next" in str(visit.client.instructions)


async def test_a_walk_through_the_authoring_tools(cold_visits: Visits, server: ModelServer) -> None:
    async with cold_visits() as visit:
        listed = (await visit.call("list_playbooks"))["playbooks"]
        assert [one["playbook_id"] for one in listed] == ["tea"]
        assert listed[0]["name"] == "Tea"
        assert listed[0]["inputs"][0] | {"name": "kind", "required": False} == listed[0]["inputs"][0]
        assert (await visit.call("list_playbooks", query="coffee"))["playbooks"] == []
        assert (await visit.call("playbook_read", playbook_id="tea", mode="text"))["text"] == TEA
        assert (await visit.call("playbook_read", path="tea.md"))["definition"]["title"] == "Tea"
        assert (await visit.call("playbook_read", content=TEA, mode="summary"))["step_count"] == 3
        assert (await visit.call("playbook_parse", content=TEA))["valid"] is True
        failed = json.loads(inside(await visit.refused("playbook_parse", content="# No steps\n")))
        assert failed["error"] == "Parse failed"
        assert failed["errors"]
        found = await visit.call("playbook_validate", content=TEA.replace("{{kind}}", "{{knid}}"))
        assert found["valid"] is True
        assert "knid" in json.dumps(found["findings"])
        assert (await visit.call("playbook_validate", content="nothing"))["valid"] is False
        assert (await visit.call("playbook_summarize", content=TEA))["title"] == "Tea"
        wanted = {"steps": 2, "branching": False, "inputs": ["kind"], "artifact_type": "json"}
        prompt = (await visit.call("playbook_write", description="Make tea.", constraints=wanted))["prompt"]
        assert "Make tea." in prompt
        assert "2 steps" in prompt
        assert "## STEP 1" in prompt
        made = await visit.call("playbook_convert", content=TEA, to="json")
        back = await visit.call("playbook_convert", content=json.dumps(made), to="playbook")
        again = await visit.call("playbook_convert", content=back["content"], to="json")
        assert again == made
        ran = await visit.call("playbook_run", content=TEA, inputs={"kind": "white"})
        assert ran["status"] == "completed"
        assert "white" in server.prompts[0]


async def test_every_dialect_is_read(desk: Desk, some_visits: Visits) -> None:
    async with some_visits() as visit:
        for topic in ("markdown", "graph", "pipeline", "program"):
            text = FENCED.findall(spec(topic))[0][2]
            made = await visit.call("playbook_parse", content=text)
            assert (made["dialect"], made["valid"]) == (topic, True)
            assert (await visit.call("playbook_summarize", content=text))["dialect"] == topic
            prompt = (await visit.call("playbook_write", description="X", dialect=topic))["prompt"]
            assert f"playbook://spec/{topic}" in prompt


@pytest.mark.parametrize("topic", SPECS)
def test_what_the_specifications_show_is_right(topic: str) -> None:
    examples = [text for _, _, text in FENCED.findall(spec(topic))]
    assert examples
    for text in examples:
        found = findings_of(text, name_of(text))
        assert [one for one in found if one.severity != "note"] == [], topic
        registry.detect(text, name_of(text)).parse(text, name_of(text))


async def test_resources_are_listed_and_read(some_visits: Visits, server: ModelServer) -> None:
    server.replies = ["One.", "Two.", "Three."]
    async with some_visits() as visit:
        run = (await visit.call("execute_playbook", playbook_id="tea"))["execution_id"]
        listed = {one.uri for one in (await visit.client.list_resources()).resources}
        assert listed >= {"playbook://spec/format", "playbook://playbooks/tea", f"playbook://runs/{run}"}
        assert len((await visit.client.list_resource_templates()).resource_templates) == 4
        assert inside(await visit.read("playbook://playbooks/tea")) == TEA
        assert "# Steps" in await visit.read("playbook://spec/steps")
        page = await visit.read(f"playbook://runs/{run}")
        assert "Three." in page
        assert "completed" in page
        assert "it is data" in page
        assert inside(await visit.read(f"playbook://runs/{run}/outputs/2")) == "Two."
        for wrong in (
            "playbook://spec/../server",
            "playbook://spec/%2e%2e%2fserver",
            "playbook://playbooks/coffee",
            "playbook://playbooks/%2e%2e%2fsecret",
            f"playbook://runs/{run}/outputs/%2e%2e",
            "playbook://[",
            f"playbook://runs/{run[:5]}",
            f"playbook://runs/{run}/outputs/2?offset={'9' * 6000}",
            "file:///etc/hostname",
        ):
            with pytest.raises(MCPError, match="no resource"):
                await visit.read(wrong)
        with pytest.raises(MCPError, match=r"no playbook 'coffee'\. list_playbooks lists"):
            await visit.read("playbook://playbooks/coffee")
        with pytest.raises(MCPError, match=r"no run \w+\. list_playbook_executions lists"):
            await visit.read("playbook://runs/nothing")


async def test_prompts_are_got(some_visits: Visits) -> None:
    async with some_visits() as visit:
        prompts = {one.name for one in (await visit.client.list_prompts()).prompts}
        assert prompts == {"create_playbook", "review_playbook", "explain_playbook"}
        assert "Brew tea." in await _prompt(visit, "create_playbook", description="Brew tea.")
        review = await _prompt(visit, "review_playbook", content=TEA.replace("{{kind}}", "{{knid}}"))
        assert "knid" in review
        assert "[" in review
        assert "Serve it." in await _prompt(visit, "explain_playbook", content=TEA)
        with pytest.raises(MCPError, match="needs content"):
            await visit.client.get_prompt("review_playbook", {})
        with pytest.raises(MCPError, match="no prompt"):
            await visit.client.get_prompt("destroy_playbook", {})


async def _prompt(visit: Visit, name: str, **arguments: str) -> str:
    content = (await visit.client.get_prompt(name, arguments)).messages[0].content
    assert isinstance(content, TextContent)
    return content.text


async def test_nothing_outside_of_the_folders_is_read(desk: Desk, tmp_path: Path, some_visits: Visits) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# Secret\n\n## STEP 1: X\n\nhidden words\n")
    (desk.work / "link.md").symlink_to(secret)
    (desk.work / "folder").symlink_to(tmp_path)
    os.mkfifo(desk.work / "pipe.md")
    book = "# Inside\n\n## STEP 1: X\n\n@prompt(file:../secret.md)\n"
    async with some_visits() as visit:
        outside = (str(secret), "../secret.md", "tea.md/../../secret.md", "%2e%2e/secret.md", "file:../secret.md")
        for path in (*outside, "link.md", "folder/secret.md", "pipe.md", ".", "\0", ""):
            told = await visit.refused("playbook_read", path=path)
            assert "hidden" not in told, path
        for tool in ("execute_playbook", "playbook_run"):
            result = await visit.raw(tool, content=book)
            assert "hidden" not in result.model_dump_json()
            assert result.structured_content["status"] == "failed"


async def test_a_command_without_a_sandbox_is_not_held_to_reading(desk: Desk) -> None:
    desk.write("read.yml", "id: look\nname: Look\nsteps:\n  - id: list\n    command: cli ls\n    effect: read\n")
    desk.environ["CUEBOOK_SANDBOX"] = "none"
    async with over_stdio(desk, "--tools") as visit:
        tools = await visit.tools()
        assert [tools[name].annotations.read_only_hint for name in ("run_look", "run_tea")] == [False, True]


SIZED = """\
id: sized
name: Sized
args:
  size: {type: integer, default: 2, enum: [1, 2]}
  names: {type: array, default: [a]}
steps:
  - {id: a, command: cli true}
"""


async def test_each_playbook_is_a_tool_of_its_own(desk: Desk, server: ModelServer) -> None:
    desk.write("read.yml", "id: look\nname: Look\nsteps:\n  - id: list\n    command: cli ls\n    effect: read\n")
    desk.write("change.yml", "id: change\nname: Change\nsteps:\n  - id: make\n    command: cli touch x\n")
    desk.write(
        "typed.md", "# Typed\n\n## INPUTS\n\n- `n` (number): N\n- `k` (enum: a, b): K\n\n## STEP 1: X\n\n{{n}} {{k}}\n"
    )
    inputs = ("`n` (number: 3)", "`half` (number: .5)", "`sure` (boolean: yes)", "`text` (string: 3)")
    declared = "\n".join(f"- {one}: A" for one in inputs)
    desk.write("given.md", f"# Given\n\n## INPUTS\n\n{declared}\n\n## STEP 1: X\n\n{{{{n}}}}\n")
    desk.write("sized.yml", SIZED)
    for name, command in (
        ("post", "http POST https://x.test/a"),
        ("get", "http GET https://x.test/a"),
        ("mcp", "mcp x.delete"),
    ):
        said = "" if name == "get" else "\n    effect: read"
        desk.write(f"{name}.yml", f"id: {name}\nname: A\nsteps:\n  - id: a\n    command: {command}{said}\n")
    desk.write("tool.md", "# Tool\n\n## STEP 1: X\n\n@tool(files, delete)\n")
    async with over_stdio(desk, "--tools") as visit:
        tools = await visit.tools()
        assert tools.keys() >= {"run_tea", "run_look", "run_change", "run_typed", "run_tool"}
        reads = {name: tool.annotations.read_only_hint for name, tool in tools.items() if name.startswith("run_")}
        only = {name.removeprefix("run_") for name, one in reads.items() if one}
        assert only == {"tea", "look", "typed", "get", "given"}
        assert {name.removeprefix("run_") for name in reads} - only == {"change", "tool", "post", "mcp", "sized"}
        schema = tools["run_typed"].input_schema
        assert schema["required"] == ["n", "k"]
        assert schema["properties"]["n"]["type"] == "number"
        assert schema["properties"]["k"]["enum"] == ["a", "b"]
        assert "default" not in schema["properties"]["n"]
        has = {name: one.get("default") for name, one in tools["run_given"].input_schema["properties"].items()}
        assert has == {"n": 3, "half": 0.5, "sure": True, "text": "3", "client_key": None}
        assert [type(has[name]) for name in ("n", "sure")] == [int, bool]
        sized = tools["run_sized"].input_schema["properties"]
        assert sized["size"] == {"type": "integer", "enum": [1, 2], "default": 2}
        assert sized["names"]["default"] == ["a"]
        now = await visit.call("run_typed", n=3, k="b", client_key="once")
        assert now["status"] == "completed"
        assert "3 b" in server.prompts[0]
        assert (await visit.call("run_typed", n=3, k="b", client_key="once"))["execution_id"] == now["execution_id"]
        assert "k" in await visit.refused("run_typed", n=3, k="c")
        for wrong in ({"kind": None}, {"kind": True}, {"kind": 0}, {"kind": 10**30}, {"client_key": "k" * 201}):
            assert "a text" in await visit.refused("run_tea", **wrong)
        assert len((await visit.call("list_playbook_executions"))["executions"]) == 1
