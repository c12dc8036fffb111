"""A playbook may name models, but not a server that its own project configures."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

FLOW = """\
id: w
name: W
entry: a
nodes:
  a: {name: Read, instruction: Read it., model: theirs/m}
edges: []
"""


@pytest.mark.usefixtures("server")
def test_prompts_go_to_a_server_of_the_project_only_where_its_user_says_so(cli: CommandLine) -> None:
    theirs = ModelServer()
    theirs.replies = ["Done."]
    try:
        (cli.work / "cuebook.toml").write_text(f'[providers.theirs]\nbase_url = "{theirs.url}"\n')
        cli.write("w.yml", FLOW)
        refused = cli.call("run", "w.yml")
        assert (refused.code, len(theirs.requests)) == (2, 0)
        assert "every prompt would be sent there" in refused.err
        assert cli.call("run", "w.yml", "--model", "theirs/m").code == 0
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
def test_a_model_is_found_by_its_name_alone(cli: CommandLine, server: ModelServer, name: str) -> None:
    server.replies = ['{"ok": true}']
    cli.config.write_text(f'[providers.anthropic]\nbase_url = "{server.url}"\nprotocol = "openai"\n')
    cli.environ["ANTHROPIC_API_KEY"] = "sk-ant-0123456789"
    cli.write(name, BARE[name])
    ran = cli.call("run", name, "--model", "claude-opus-4-6")
    assert (ran.code, [one["model"] for one in server.requests]) == (0, ["claude-opus-4-6"]), ran.err
    assert "anthropic/" in ran.err + ran.out or name == "p.yml", "a run of a pipeline has no model of its own"


def test_a_name_alone_goes_to_the_configured_provider_in_every_dialect(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ['{"ok": true}', '{"ok": true}']
    servers = "".join(f'[providers.{name}]\nbase_url = "{server.url}"\n' for name in ("lab", "other"))
    cli.config.write_text(f'model = "lab/alpha"\n{servers}')
    for name in ("w.yml", "p.yml"):
        cli.write(name, BARE[name].replace("claude-opus-4-6", "beta"))
        ran = cli.call("run", name)
        assert (ran.code, server.requests[-1]["model"]) == (0, "beta"), ran.err
        assert "\nmodel: lab/" in ran.err, "a pipeline has no model of its own, so those of its steps are shown"


@pytest.mark.parametrize("name", BARE)
def test_a_name_without_any_provider_is_refused_before_a_run_begins(
    cli: CommandLine, server: ModelServer, name: str
) -> None:
    cli.config.write_text("")
    cli.write(name, BARE[name])
    ran = cli.call("run", name, "--model", "claude-opus-4-6")
    assert (ran.code, server.requests) == (2, [])
    assert "ANTHROPIC_API_KEY" in ran.err


def test_a_rule_about_a_model_holds_for_its_name_alone(cli: CommandLine, server: ModelServer) -> None:
    cli.config.write_text(f'[providers.anthropic]\nbase_url = "{server.url}"\nprotocol = "openai"\n')
    cli.environ["ANTHROPIC_API_KEY"] = "sk-ant-0123456789"
    (cli.config.parent / "policy.toml").write_text('version = 1\n[models]\ndeny = ["anthropic/*"]\n')
    cli.write("w.yml", BARE["w.yml"])
    ran = cli.call("run", "w.yml", "--model", "claude-opus-4-6")
    assert (ran.code != 0, server.requests) == (True, []), ran.err


PROGRAM = """\
# Desk
metadata:
model: theirs/m
---
Reads.

## Main() -> str
### Triggers
- T1:BGN At the beginning
### Steps
- 01:EXE Read $x:str
- 02:RET $x
"""
READ = 'recap – r\nplan – p\n`Step["Main:01:EXE"]` `Var[$x, "ok"]`\ntrig? no\nyld call'


def named_by(cli: CommandLine, dialect: str) -> str:
    """A playbook that names the model `theirs/m`."""
    pipeline = BARE["p.yml"].replace("claude-opus-4-6", "theirs/m")
    named = {"graph": ("w.yml", FLOW), "pipeline": ("p.yml", pipeline), "program": ("w.pbasm", PROGRAM)}
    name, text = named[dialect]
    cli.write(name, text)
    return name


@pytest.mark.parametrize("dialect", ["graph", "pipeline", "program"])
def test_the_model_of_a_run_wins_over_those_that_its_playbook_names(cli: CommandLine, dialect: str) -> None:
    ours, theirs = ModelServer(), ModelServer()
    for server in (ours, theirs):
        server.replies = [{"graph": "Done.", "pipeline": "{}", "program": READ}[dialect]] * 3
    try:
        providers = f'[providers.theirs]\nbase_url = "{theirs.url}"\n[providers.ours]\nbase_url = "{ours.url}"\n'
        cli.config.write_text(f'model = "ours/m"\n{providers}')
        name = named_by(cli, dialect)
        assert cli.call("run", name).code == 0
        assert (len(ours.requests), len(theirs.requests)) == (0, 1)  # what is configured does not win
        ran = cli.call("run", name, "--model", "ours/other", "--json")
        assert ran.code == 0
        assert (len(ours.requests), len(theirs.requests)) == (1, 1)
        assert ours.requests[0]["model"] == "other"
        explained = cli.call("explain", name, "--model", "ours/other")
        assert "ours/other" in explained.out
        assert "theirs/m" not in explained.out.partition("touches")[2]
    finally:
        ours.close()
        theirs.close()
