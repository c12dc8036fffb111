"""`@prompt(mcp:server/name)` on the command line: a person agrees to the server first, and looking ahead starts none."""

from __future__ import annotations

import sys

from tests.performers.mcp_bench import GOOD, running
from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

BOOK = """\
# Greeting

## INPUTS

- `name` (string: Ada): Whom to greet

## STEP 1: Greet

@prompt(mcp:good/{prompt})
@output(greeting)

In one line.
"""


def served(desk: Desk, prompt: str) -> None:
    """A playbook that reads a prompt, and a server that has some."""
    desk.write("greet.md", BOOK.replace("{prompt}", prompt))
    server = f"[mcp.good]\ncommand = [{sys.executable!r}, {GOOD!r}]\n"
    desk.config.write_text(f"{desk.config.read_text()}\n{server}")


def test_a_person_agrees_to_the_server_and_its_prompt_goes_before_the_step(desk: Desk, server: ModelServer) -> None:
    served(desk, "greeting")
    asked = desk.call("run", "greet.md")
    assert asked.code == 3
    assert "Start the tool server 'good'?" in asked.out + asked.err
    assert server.prompts == []
    (wait,) = desk.call("inbox", "--json").object
    assert desk.call("decide", wait["wait"], "approve").code == 0
    assert server.prompts == ["Greet Ada kindly.\n\nIn one line."]
    assert desk.call("run", "greet.md", "--name", "Bo").code == 0, "who has agreed is not asked again"
    assert server.prompts[1:] == ["Greet Bo kindly.\n\nIn one line."]


def test_a_prompt_that_the_server_does_not_have_is_left_out_with_a_warning(desk: Desk, server: ModelServer) -> None:
    served(desk, "greetin")
    desk.call("run", "greet.md")
    (wait,) = desk.call("inbox", "--json").object
    ran = desk.call("decide", wait["wait"], "approve")
    assert ran.code == 0
    assert "Did you mean greeting?" in ran.out + ran.err
    assert server.prompts == ["In one line."]


def test_looking_ahead_starts_no_server(desk: Desk, server: ModelServer) -> None:
    served(desk, "greeting")
    explained = desk.call("explain", "greet.md")
    assert explained.code == 0
    assert "good.prompt:greeting" in explained.out
    assert "The tool server 'good' is started" in explained.out
    rehearsed = desk.call("run", "greet.md", "--dry-run")
    assert rehearsed.code == 0
    assert "mcp:good/greeting" in rehearsed.out
    assert not desk.store.exists()
    assert running(str(desk.work)) == []
    assert server.prompts == []


def test_a_policy_that_denies_a_servers_tools_denies_its_prompts(desk: Desk, server: ModelServer) -> None:
    served(desk, "greeting")
    (desk.config.parent / "policy.toml").write_text('version = 1\n\n[tools]\ndeny = ["good.*"]\n')
    ran = desk.call("run", "greet.md")
    assert ran.code == 5
    assert "the policy denies it" in ran.err
    assert server.prompts == []
