"""`@prompt(mcp:server/name)` on the command line: a person approves the server first, and previews start none."""

from __future__ import annotations

import sys

from tests.performers.mcp.harness import GOOD, running
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

BOOK = """\
# Greeting

## INPUTS

- `name` (string: Ada): Whom to greet

## STEP 1: Greet

@prompt(mcp:good/{prompt})
@output(greeting)

In one line.
"""


def served(cli: CommandLine, prompt: str) -> None:
    """A playbook that reads a prompt, and a server that has some."""
    cli.write("greet.md", BOOK.replace("{prompt}", prompt))
    server = f"[mcp.good]\ncommand = [{sys.executable!r}, {GOOD!r}]\n"
    cli.config.write_text(f"{cli.config.read_text()}\n{server}")


def test_a_person_agrees_to_the_server_and_its_prompt_goes_before_the_step(
    cli: CommandLine, server: ModelServer
) -> None:
    served(cli, "greeting")
    asked = cli.call("run", "greet.md")
    assert asked.code == 3
    assert "Start the tool server 'good'?" in asked.out + asked.err
    assert server.prompts == []
    (wait,) = cli.call("inbox", "--json").object
    assert cli.call("decide", wait["wait"], "approve").code == 0
    assert server.prompts == ["Greet Ada kindly.\n\nIn one line."]
    assert cli.call("run", "greet.md", "--name", "Bo").code == 0, "who has agreed is not asked again"
    assert server.prompts[1:] == ["Greet Bo kindly.\n\nIn one line."]


def test_a_prompt_that_the_server_does_not_have_is_left_out_with_a_warning(
    cli: CommandLine, server: ModelServer
) -> None:
    served(cli, "greetin")
    cli.call("run", "greet.md")
    (wait,) = cli.call("inbox", "--json").object
    ran = cli.call("decide", wait["wait"], "approve")
    assert ran.code == 0
    assert "Did you mean greeting?" in ran.out + ran.err
    assert server.prompts == ["In one line."]


def test_looking_ahead_starts_no_server(cli: CommandLine, server: ModelServer) -> None:
    served(cli, "greeting")
    explained = cli.call("explain", "greet.md")
    assert explained.code == 0
    assert "good.prompt:greeting" in explained.out
    assert "The tool server 'good' is started" in explained.out
    rehearsed = cli.call("run", "greet.md", "--dry-run")
    assert rehearsed.code == 0
    assert "mcp:good/greeting" in rehearsed.out
    assert not cli.store.exists()
    assert running(str(cli.work)) == []
    assert server.prompts == []


def test_a_policy_that_denies_a_servers_tools_denies_its_prompts(cli: CommandLine, server: ModelServer) -> None:
    served(cli, "greeting")
    (cli.config.parent / "policy.toml").write_text('version = 1\n\n[tools]\ndeny = ["good.*"]\n')
    ran = cli.call("run", "greet.md")
    assert ran.code == 5
    assert "the policy denies it" in ran.err
    assert server.prompts == []
