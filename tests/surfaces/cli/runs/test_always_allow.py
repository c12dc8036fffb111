"""The `always:` line of an approval: after its commands, the same action is not asked about again."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import Any

import pytest

from tests.performers.mcp.harness import GOOD
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

NODE = """\
id: one
name: One
entry: work
nodes:
  work: {name: Work, instruction: Do it.}
edges: []
"""

CALLS: dict[str, dict[str, Any]] = {
    "one command": {"tool": "Bash", "arguments": {"command": "touch made"}},
    "a pipe": {"tool": "Bash", "arguments": {"command": "ls -a | tee listed && touch 'a b'"}},
    "a redirection": {"tool": "Bash", "arguments": {"command": "echo $HOME > made"}},
    "a file": {"tool": "Write", "arguments": {"path": "notes/made.txt", "content": "Made."}},
}


def asked(cli: CommandLine, book: str) -> str:
    """The `always:` line of a new run's approval, or the whole approval; empty if there is none."""
    run = begun(cli, book)
    if not run:
        return ""
    shown = cli.call("inbox", run).out
    assert "approve --reason WHY" in shown
    return str((re.findall(r"^always: +(.*)$", shown, re.MULTILINE) or [shown])[0])


def begun(cli: CommandLine, book: str) -> str:
    """A new run that waits for an approval; None if it has ended."""
    ran = cli.call("run", book)
    assert ran.code in (0, 3), ran.out + ran.err
    return ran.err.rpartition("\nrun: ")[2].partition("\n")[0] if ran.code else ""


def follow(cli: CommandLine, line: str) -> None:
    """Runs the commands of the line."""
    for command in line.split(" && cuebook policy "):
        ran = cli.call("policy", *shlex.split(command.removeprefix("cuebook policy ")))
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", CALLS)
def test_the_same_tool_call_is_not_asked_about_again(cli: CommandLine, server: ModelServer, name: str) -> None:
    flow = cli.write("one.yml", NODE)
    server.replies = [CALLS[name]]
    line = asked(cli, str(flow))
    assert line.startswith(f"cuebook policy allow tool {CALLS[name]['tool']} && cuebook policy allow "), line
    follow(cli, line)
    server.replies = [CALLS[name]]
    assert asked(cli, str(flow)) == ""
    assert cli.call("policy", "overrides").out.count("\n") >= 2


def test_another_call_of_an_allowed_tool_names_what_is_still_missing(cli: CommandLine, server: ModelServer) -> None:
    flow = cli.write("one.yml", NODE)
    server.replies = [CALLS["one command"]]
    follow(cli, asked(cli, str(flow)))
    other = {"tool": "Bash", "arguments": {"command": "touch other"}}
    server.replies = [other]
    line = asked(cli, str(flow))
    assert line == "cuebook policy allow command 'touch other'"
    follow(cli, line)
    server.replies = [other]
    assert asked(cli, str(flow)) == ""


def test_what_no_override_can_allow_has_no_such_line(cli: CommandLine, server: ModelServer) -> None:
    flow = cli.write("one.yml", NODE)
    server.replies = [{"tool": "Bash", "arguments": {"command": "touch a*"}}]
    assert "always:" not in asked(cli, str(flow))


@pytest.mark.parametrize("kind", ["command", "request", "tool server", "secret"])
def test_the_same_step_of_a_pipeline_is_not_asked_about_again(cli: CommandLine, server: ModelServer, kind: str) -> None:
    policy = ""
    origin = server.url.removesuffix("/v1")
    if kind == "tool server":
        with cli.config.open("a") as file:
            file.write(f"\n[mcp.good]\ncommand = {json.dumps([sys.executable, GOOD])}\n")
        book = "name: P\nsteps:\n  - {id: only, command: mcp good.say text=hello}\n"
    elif kind == "request":
        policy = f'version = 1\n[egress]\nallow = ["{origin}/*"]\nask = ["POST {origin}/*"]\n'
        book = f"name: P\nsteps:\n  - {{id: only, command: http POST {origin}/v1/made, with: {{body: '{{}}'}}}}\n"
    elif kind == "secret":
        cli.environ["MADE_KEY"] = "a-key-of-ours"
        key = "args: {key: {type: string, secret: true, default: 'env:MADE_KEY'}}"
        book = f"name: P\n{key}\nsteps:\n  - {{id: only, command: cli touch made, env: {{KEY: '${{key}}'}}}}\n"
    else:
        book = "name: P\nsteps:\n  - {id: only, command: cli touch made}\n"
    if policy:
        (cli.config.parent / "policy.toml").write_text(policy)
    path = str(cli.write("p.yml", book))
    if kind == "tool server":
        run = begun(cli, path)
        assert "always:" not in cli.call("inbox", run).out, "whether it is started is asked once anyway"
        cli.call("decide", run, "approve")
    line = asked(cli, path)
    assert line.startswith("cuebook policy allow "), line
    follow(cli, line)
    assert asked(cli, path) == ""


def test_neither_has_what_would_be_asked_about_all_the_same(cli: CommandLine, server: ModelServer) -> None:
    """A command that depends on a model's output; a run whose owner may not decide."""
    server.replies = ['{"name": "made"}']
    steps = "[{id: a, command: llm, output: json, llm: {model: default, prompt: Name it.}}, {id: b, command: 'cli touch ${a.json.name}'}]"
    assert "always:" not in asked(cli, str(cli.write("p.yml", f"name: P\nsteps: {steps}\n")))
    (cli.config.parent / "policy.toml").write_text("version = 1\n[approvals]\ndifferent_person = true\n")
    server.replies = [CALLS["one command"]]
    assert "always:" not in asked(cli, str(cli.write("one.yml", NODE)))


# --- what there is to ask about ---------------------------------------------------------------------------------


def test_listing_tools_is_not_asked_about_and_a_denied_one_is_not_listed(cli: CommandLine, server: ModelServer) -> None:
    policy = cli.config.parent / "policy.toml"
    policy.write_text('version = 1\n[tools]\nask = ["*"]\ndeny = ["Write"]\n')
    assert begun(cli, str(cli.write("one.yml", NODE))) == ""
    offered = {tool["function"]["name"] for tool in server.requests[0]["tools"]}
    assert {"Bash", "Read"} <= offered
    assert "Write" not in offered
    server.replies = [{"tool": "Read", "arguments": {"path": "one.yml"}}]
    assert "cuebook policy allow tool Read" in asked(cli, "one.yml")


def test_an_approval_of_a_model_shows_what_it_would_be_asked(cli: CommandLine, server: ModelServer) -> None:
    (cli.config.parent / "policy.toml").write_text('version = 1\n[models]\nask = ["test/*"]\n')
    shown = cli.call("inbox", begun(cli, str(cli.write("one.yml", NODE)))).out
    assert "Do it." in shown
    assert server.requests == []
