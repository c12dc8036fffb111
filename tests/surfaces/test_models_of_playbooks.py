"""A playbook may name models, but not a server that its own project brought."""

from __future__ import annotations

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

FLOW = """\
id: w
name: W
entry: a
nodes:
  a: {name: Read, instruction: Read it., model: theirs/m}
edges: []
"""


@pytest.mark.usefixtures("server")
def test_prompts_go_to_a_server_of_the_project_only_where_its_user_says_so(desk: Desk) -> None:
    theirs = ModelServer()
    theirs.replies = ["Done."]
    try:
        (desk.work / "cuebook.toml").write_text(f'[providers.theirs]\nbase_url = "{theirs.url}"\n')
        desk.write("w.yml", FLOW)
        refused = desk.call("run", "w.yml")
        assert (refused.code, len(theirs.requests)) == (2, 0)
        assert "every prompt would go there" in refused.err
        assert desk.call("run", "w.yml", "--model", "theirs/m").code == 0
        assert len(theirs.requests) == 1
    finally:
        theirs.close()


BARE = {
    "w.yml": FLOW.replace("theirs/m", "claude-opus-4-6"),
    "p.yml": """\
name: p
steps:
  - id: ask
    command: llm
    llm: {prompt: Say it., model: claude-opus-4-6}
    output: json
""",
    "m.playbook.md": "# M\n\n## STEP 1: Ask\n\nSay it.\n",
}


@pytest.mark.parametrize("name", BARE)
def test_a_model_is_found_by_its_name_alone(desk: Desk, server: ModelServer, name: str) -> None:
    server.replies = ['{"ok": true}']
    desk.config.write_text(f'[providers.anthropic]\nbase_url = "{server.url}"\nprotocol = "openai"\n')
    desk.environ["ANTHROPIC_API_KEY"] = "sk-ant-0123456789"
    desk.write(name, BARE[name])
    ran = desk.call("run", name, "--model", "claude-opus-4-6")
    assert (ran.code, [one["model"] for one in server.requests]) == (0, ["claude-opus-4-6"]), ran.err
    assert "anthropic/" in ran.err + ran.out or name == "p.yml", "a run of a pipeline has no model of its own"


@pytest.mark.parametrize("name", BARE)
def test_a_name_without_any_provider_is_refused_before_a_run_begins(desk: Desk, server: ModelServer, name: str) -> None:
    desk.config.write_text("")
    desk.write(name, BARE[name])
    ran = desk.call("run", name, "--model", "claude-opus-4-6")
    assert (ran.code, server.requests) == (2, [])
    assert "ANTHROPIC_API_KEY" in ran.err


def test_a_rule_about_a_model_holds_for_its_name_alone(desk: Desk, server: ModelServer) -> None:
    desk.config.write_text(f'[providers.anthropic]\nbase_url = "{server.url}"\nprotocol = "openai"\n')
    desk.environ["ANTHROPIC_API_KEY"] = "sk-ant-0123456789"
    (desk.config.parent / "policy.toml").write_text('version = 1\n[models]\ndeny = ["anthropic/*"]\n')
    desk.write("w.yml", BARE["w.yml"])
    ran = desk.call("run", "w.yml", "--model", "claude-opus-4-6")
    assert (ran.code != 0, server.requests) == (True, []), ran.err
