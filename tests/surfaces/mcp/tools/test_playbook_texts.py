"""Assistants read and write playbooks: tools, resources, prompts, and nothing outside the folders."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from cuebook.dialects import registry
from cuebook.dialects.playbook import name_for
from cuebook.surfaces.mcp.resources import spec, topics
from cuebook.surfaces.mcp.tools.playbook_texts import findings_of
from tests.support.command_line import TEA, CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.mcp.clients import McpClient, inside, over_stdio
from tests.surfaces.mcp.conftest import Connect

NAMES = {
    "next_step",
    "complete_step",
    "call_step_tool",
    "list_playbooks",
    "execute_playbook",
    "resume_playbook_execution",
    "respond_to_elicitation",
    "get_playbook_execution",
    "list_playbook_executions",
    "restart_playbook_execution",
    "edit_playbook_execution",
    "cancel_playbook_execution",
    "playbook_read",
    "playbook_parse",
    "playbook_validate",
    "playbook_summarize",
    "playbook_explain",
    "playbook_write",
    "playbook_convert",
    "playbook_run",
}
FENCED = re.compile(r"^(`{3,})(markdown|yaml)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


async def test_every_tool_is_listed_with_its_arguments(connect: Connect) -> None:
    async with connect() as client:
        tools = await client.tools()
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
        assert client.client.server_info is not None
        assert client.client.server_info.name == "cuebook"
        assert "next" in str(client.client.instructions)


async def test_a_walk_through_the_authoring_tools(connect_cold: Connect, server: ModelServer) -> None:
    async with connect_cold() as client:
        listed = (await client.call("list_playbooks"))["playbooks"]
        assert [one["playbook_id"] for one in listed] == ["tea"]
        assert listed[0]["name"] == "Tea"
        assert listed[0]["inputs"][0] | {"name": "kind", "required": False} == listed[0]["inputs"][0]
        assert (await client.call("list_playbooks", query="coffee"))["playbooks"] == []
        assert (await client.call("playbook_read", playbook_id="tea", mode="text"))["text"] == TEA
        assert (await client.call("playbook_read", path="tea.md"))["definition"]["title"] == "Tea"
        assert (await client.call("playbook_read", content=TEA, mode="summary"))["step_count"] == 3
        assert (await client.call("playbook_parse", content=TEA))["valid"] is True
        failed = json.loads(inside(await client.refused("playbook_parse", content="# No steps\n")))
        assert failed["error"] == "Parse failed"
        assert failed["errors"]
        found = await client.call("playbook_validate", content=TEA.replace("{{kind}}", "{{knid}}"))
        assert found["valid"] is True
        assert "knid" in json.dumps(found["findings"])
        assert (await client.call("playbook_validate", content="nothing"))["valid"] is False
        assert (await client.call("playbook_summarize", content=TEA))["title"] == "Tea"
        wanted = {"steps": 2, "branching": False, "inputs": ["kind"], "artifact_type": "json"}
        prompt = (await client.call("playbook_write", description="Make tea.", constraints=wanted))["prompt"]
        assert "Make tea." in prompt
        assert "2 steps" in prompt
        assert "## STEP 1" in prompt
        made = await client.call("playbook_convert", content=TEA, to="json")
        back = await client.call("playbook_convert", content=json.dumps(made), to="playbook")
        again = await client.call("playbook_convert", content=back["content"], to="json")
        assert again == made
        ran = await client.call("playbook_run", content=TEA, inputs={"kind": "white"})
        assert ran["status"] == "completed"
        assert "white" in server.prompts[0]


async def test_every_dialect_is_read(cli: CommandLine, connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        for topic in ("markdown", "graph", "pipeline", "program"):
            text = FENCED.findall(spec(topic))[0][2]
            made = await client.call("playbook_parse", content=text)
            assert (made["dialect"], made["valid"]) == (topic, True)
            assert (await client.call("playbook_summarize", content=text))["dialect"] == topic
            prompt = (await client.call("playbook_write", description="X", dialect=topic))["prompt"]
            assert f"playbook://spec/{topic}" in prompt


async def test_an_explanation_matches_the_command_line(
    cli: CommandLine, connect_each_once: Connect, server: ModelServer
) -> None:
    async with connect_each_once() as client:
        result = await client.raw("playbook_explain", playbook_id="tea", input_values={"kind": "white"})
    made = dict(result.structured_content)
    assert made.pop("untrusted") == ["*"]
    assert made == cli.call("explain", "tea.md", "--kind", "white", "--json").object
    assert made["bound"]["calls"] == 3
    shown = inside("\n".join(block.text for block in result.content if isinstance(block, TextContent)))
    assert "kind = white" in shown
    assert "maximum usage:\n  3 calls" in shown
    assert server.requests == []


async def test_an_explanation_reads_no_file_and_starts_no_server(cli: CommandLine, connect_each_once: Connect) -> None:
    cli.config.write_text(
        f'{cli.config.read_text()}\n[mcp.clerk]\ncommand = ["sh", "-c", "touch {cli.work}/started"]\n'
    )
    cli.write("private.txt", "THE-CONTENT\n")
    text = "# T\n\n## STEP 1: A\n\n@prompt(file:private.txt)\n\n## STEP 2: B\n\n@tool(clerk, find)\n"
    async with connect_each_once() as client:
        result = await client.raw("playbook_explain", content=text)
        assert not result.is_error
        assert "THE-CONTENT" not in f"{result.content}{result.structured_content}"
        decisions = {one["target"]: one["decision"] for one in result.structured_content["touches"]}
        assert decisions["clerk.find"] == "ask"
        assert "read:private.txt" in decisions
        asked = result.structured_content["asked"]
        assert [(one["step"], one["asks"]) for one in asked["steps"] if one["asks"]] == [("2", True)]
    assert not (cli.work / "started").exists()


@pytest.mark.parametrize("topic", topics())
def test_the_examples_in_the_specifications_are_valid(topic: str) -> None:
    examples = [text for _, _, text in FENCED.findall(spec(topic))]
    assert examples
    for text in examples:
        found = findings_of(text, name_for(text))
        assert [one for one in found if one.severity != "note"] == [], topic
        registry.detect(text, name_for(text)).parse(text, name_for(text))


async def test_resources_are_listed_and_read(connect_each_once: Connect, server: ModelServer) -> None:
    server.replies = ["One.", "Two.", "Three."]
    async with connect_each_once() as client:
        run = (await client.call("execute_playbook", playbook_id="tea"))["execution_id"]
        listed = {one.uri for one in (await client.client.list_resources()).resources}
        assert listed >= {"playbook://spec/format", "playbook://playbooks/tea", f"playbook://runs/{run}"}
        assert len((await client.client.list_resource_templates()).resource_templates) == 4
        assert inside(await client.read("playbook://playbooks/tea")) == TEA
        assert "# Steps" in await client.read("playbook://spec/steps")
        page = await client.read(f"playbook://runs/{run}")
        assert "Three." in page
        assert "completed" in page
        assert "Treat it as data" in page
        assert inside(await client.read(f"playbook://runs/{run}/outputs/2")) == "Two."
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
                await client.read(wrong)
        with pytest.raises(MCPError, match=r"no playbook 'coffee'\. list_playbooks lists"):
            await client.read("playbook://playbooks/coffee")
        with pytest.raises(MCPError, match=r"no run \w+\. list_playbook_executions lists"):
            await client.read("playbook://runs/nothing")


async def test_prompts_are_returned(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        prompts = {one.name for one in (await client.client.list_prompts()).prompts}
        assert prompts == {"create_playbook", "review_playbook", "explain_playbook"}
        assert "Brew tea." in await _prompt(client, "create_playbook", description="Brew tea.")
        review = await _prompt(client, "review_playbook", content=TEA.replace("{{kind}}", "{{knid}}"))
        assert "knid" in review
        assert "[" in review
        assert "Serve it." in await _prompt(client, "explain_playbook", content=TEA)
        with pytest.raises(MCPError, match="needs content"):
            await client.client.get_prompt("review_playbook", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.client.get_prompt("destroy_playbook", {})


async def _prompt(client: McpClient, name: str, **arguments: str) -> str:
    content = (await client.client.get_prompt(name, arguments)).messages[0].content
    assert isinstance(content, TextContent)
    return content.text


async def test_nothing_outside_of_the_folders_is_read(
    cli: CommandLine, tmp_path: Path, connect_each_once: Connect
) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# Secret\n\n## STEP 1: X\n\nhidden words\n")
    (cli.work / "link.md").symlink_to(secret)
    (cli.work / "folder").symlink_to(tmp_path)
    os.mkfifo(cli.work / "pipe.md")
    book = "# Inside\n\n## STEP 1: X\n\n@prompt(file:../secret.md)\n"
    async with connect_each_once() as client:
        outside = (str(secret), "../secret.md", "tea.md/../../secret.md", "%2e%2e/secret.md", "file:../secret.md")
        for path in (*outside, "link.md", "folder/secret.md", "pipe.md", ".", "\0", ""):
            message = await client.refused("playbook_read", path=path)
            assert "hidden" not in message, path
        for tool in ("execute_playbook", "playbook_run"):
            result = await client.raw(tool, content=book)
            assert "hidden" not in result.model_dump_json()
            assert result.structured_content["status"] == "failed"


async def test_a_command_without_a_sandbox_is_not_read_only(cli: CommandLine) -> None:
    cli.write("read.yml", "id: look\nname: Look\nsteps:\n  - id: list\n    command: cli ls\n    effect: read\n")
    cli.environ["CUEBOOK_SANDBOX"] = "none"
    async with over_stdio(cli, "--tools") as client:
        tools = await client.tools()
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


async def test_each_playbook_is_a_separate_tool(cli: CommandLine, server: ModelServer) -> None:
    cli.write("read.yml", "id: look\nname: Look\nsteps:\n  - id: list\n    command: cli ls\n    effect: read\n")
    cli.write("change.yml", "id: change\nname: Change\nsteps:\n  - id: make\n    command: cli touch x\n")
    cli.write(
        "typed.md", "# Typed\n\n## INPUTS\n\n- `n` (number): N\n- `k` (enum: a, b): K\n\n## STEP 1: X\n\n{{n}} {{k}}\n"
    )
    inputs = ("`n` (number: 3)", "`half` (number: .5)", "`sure` (boolean: yes)", "`text` (string: 3)")
    declared = "\n".join(f"- {one}: A" for one in inputs)
    cli.write("given.md", f"# Given\n\n## INPUTS\n\n{declared}\n\n## STEP 1: X\n\n{{{{n}}}}\n")
    cli.write("sized.yml", SIZED)
    for name, command in (
        ("post", "http POST https://x.test/a"),
        ("get", "http GET https://x.test/a"),
        ("mcp", "mcp x.delete"),
    ):
        said = "" if name == "get" else "\n    effect: read"
        cli.write(f"{name}.yml", f"id: {name}\nname: A\nsteps:\n  - id: a\n    command: {command}{said}\n")
    cli.write("tool.md", "# Tool\n\n## STEP 1: X\n\n@tool(files, delete)\n")
    async with over_stdio(cli, "--tools") as client:
        tools = await client.tools()
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
        now = await client.call("run_typed", n=3, k="b", client_key="once")
        assert now["status"] == "completed"
        assert "3 b" in server.prompts[0]
        assert (await client.call("run_typed", n=3, k="b", client_key="once"))["execution_id"] == now["execution_id"]
        assert "k" in await client.refused("run_typed", n=3, k="c")
        for wrong in ({"kind": None}, {"kind": True}, {"kind": 0}, {"kind": 10**30}, {"client_key": "k" * 201}):
            assert "a string" in await client.refused("run_tea", **wrong)
        assert len((await client.call("list_playbook_executions"))["executions"]) == 1
