"""What a run would be asked, before it starts: `explain`, `--policy`, `policy preset` and `run --unattended`."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
PIPELINE = """\
name: P
steps:
  - {id: look, command: cli ls, effect: read}
  - {id: change, command: cli touch made}
  - {id: send, command: 'http POST https://api.example.com/x'}
  - {id: never, command: cli rm made}
"""
WORK: list[dict[str, Any] | str] = [
    {"tool": "Write", "arguments": {"path": "src/a.sh", "content": "exit 0\n"}},
    {"tool": "Bash", "arguments": {"command": "for f in src/*.sh; do sh $f; done > out"}},
    "Done.",
]


def asked(cli: CommandLine, *args: str) -> dict[str, Any]:
    return dict(cli.call("explain", *args, "--json").object["asked"])


def by_step(found: dict[str, Any]) -> dict[str, str]:
    return {one["step"]: one["decision"] for one in found["steps"]}


def test_each_step_says_what_the_gate_would_decide(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\ndeny = ["rm *"]\n')
    book = str(cli.write("p.yml", PIPELINE))
    found = asked(cli, book)
    assert by_step(found) == {"look": "allow", "change": "ask", "send": "ask", "never": "deny"}
    assert (found["asks"], found["known"]) == (True, True)
    assert any("rm *" in rule for rule in found["steps"][3]["rules"])
    shown = cli.call("explain", book).out
    assert "An unattended run may wait for approval in: change, send." in shown


def test_a_node_says_what_its_tools_could_ask_by_kind(cli: CommandLine, server: ModelServer) -> None:
    policy = cli.config.parent / "policy.toml"
    policy.write_text('[tools]\nallow = ["Bash"]\n[commands]\nallow = ["git status"]\ndeny = ["git push*"]\n')
    book = str(cli.write("one.yml", NODE))
    (step,) = asked(cli, book)["steps"]
    tools = {one["tool"]: one for one in step["tools"]}
    decided = {name: one["decision"] for name, one in tools.items()}
    assert decided == {
        "Read": "allow",
        "Glob": "allow",
        "Grep": "allow",
        "Write": "ask",
        "Edit": "ask",
        "Bash": "ask",
        "BashOutput": "allow",
        "KillBash": "allow",
        "TodoWrite": "allow",
        "WebFetch": "ask",
    }
    kind, hosts = tools["Bash"]["kinds"]
    assert (kind["kind"], hosts["kind"]) == ("command lines", "hosts that a command names")
    assert kind["except"] == [
        f"commands.deny 'git push*' ({policy}:5)",
        f"commands.allow 'git status' ({policy}:4)",
    ]
    assert server.requests == [], "nothing is called"


def test_what_is_foretold_is_what_happens(cli: CommandLine, server: ModelServer) -> None:
    book = str(cli.write("one.yml", NODE))
    assert asked(cli, book)["asks"]
    server.replies = list(WORK)
    assert cli.call("run", book).code == 3
    found = asked(cli, book, "--policy", "agent")
    asking = {one["tool"]: one["kinds"] for one in found["steps"][0]["tools"] if one["decision"] == "ask"}
    assert list(asking) == ["Bash", "WebFetch"]
    assert [one["decision"] for one in asking["Bash"]] == ["allow", "ask"], "only if it names hosts"
    server.replies = list(WORK)
    ran = cli.call("run", book, "--policy", "agent", "--json")
    assert ran.code == 0, ran.err
    assert (cli.work / "out").exists()


def test_a_run_keeps_the_policy_that_was_chosen_for_it_in_every_process(cli: CommandLine, server: ModelServer) -> None:
    book = str(cli.write("one.yml", NODE))
    fetch = {"tool": "WebFetch", "arguments": {"url": "https://example.invalid/"}}
    server.replies = [fetch, *WORK]
    assert cli.call("run", book, "--policy", "agent").code == 3
    (wait,) = cli.call("inbox", "--json").object
    assert wait["prompt"].startswith("GET https://example.invalid/") or "example.invalid" in wait["prompt"]
    (cli.config.parent / "policy.toml").write_text('[commands]\ndeny = ["sh *"]\n')
    cli.call("decide", wait["wait"], "approve")
    audited = json.dumps(cli.call("audit", wait["run"], "--json").object)
    assert "preset agent: files.allow 'write:**' (--policy agent)" in audited
    assert "commands.deny 'sh *'" in audited, "a deny of today's file wins"


@pytest.mark.parametrize("file", ["", "version = 1\n\n[commands]\ndeny = ['git push*']\n"])
def test_a_preset_is_written_to_the_policy_file_and_removed_again(cli: CommandLine, file: str) -> None:
    path = cli.config.parent / "policy.toml"
    if file:
        path.write_text(file)
    assert "commands.allow '*'" in cli.call("policy", "preset").out
    assert cli.call("policy", "test", "command", "touch", "x").code == 3
    assert cli.call("policy", "preset", "agent").code == 0
    assert cli.call("policy", "preset", "agent").code == 0
    assert path.read_text() == f'preset = "agent"\n{file}'
    assert cli.call("policy", "test", "command", "touch", "x").code == 0
    assert cli.call("policy", "test", "tool", "github.create_issue").code == 3
    if file:
        assert cli.call("policy", "test", "command", "git", "push").code == 5
    assert cli.call("policy", "preset", "none").code == 0
    assert path.read_text() == file


def test_without_a_sandbox_the_preset_does_not_allow_commands(cli: CommandLine, server: ModelServer) -> None:
    with cli.config.open("a") as config:
        config.write('\nsandbox = "none"\n')
    config_text = cli.config.read_text()
    if config_text.index("sandbox") > config_text.find("[") >= 0:
        cli.config.write_text('sandbox = "none"\n' + config_text.replace('\nsandbox = "none"\n', ""))
    book = str(cli.write("one.yml", NODE))
    cli.call("policy", "preset", "agent")
    assert "Commands have no sandbox here" in cli.call("policy", "show").out
    assert cli.call("policy", "test", "command", "touch", "x").code == 3
    for flags in ([], ["--policy", "agent"]):
        server.replies = [WORK[1], "Done."]
        assert cli.call("run", book, *flags).code == 3


def test_an_unattended_run_says_first_where_it_may_wait(cli: CommandLine, server: ModelServer) -> None:
    book = str(cli.write("one.yml", NODE))
    said = cli.call("run", book, "--unattended").err
    assert "may wait for approval in: work (Write, Edit, Bash, WebFetch)" in said
    assert "cuebook explain" in said
    quiet = str(cli.write("q.yml", "name: Q\nsteps:\n  - {id: look, command: cli ls, effect: read}\n"))
    assert "may wait for approval" not in cli.call("run", quiet, "--unattended").err
    assert "may wait for approval" not in cli.call("run", book).err


AGENT = """\
id: two
name: Two
entry: fix
nodes:
  fix: {name: Fix, instruction: Fix it., model: acp/helper}
  look: {name: Look, instruction: Look.}
edges:
  - {from: fix, to: look}
"""
HELPER = """
[agents.helper]
command = ["helper", "--acp"]
hosts = ["api.example.com"]
secret_env = {HELPER_KEY = "env:HELPER_KEY"}
secret_files = {".helper/auth.json" = "env:HELPER_FILE"}
"""


def test_a_coding_agent_is_shown_with_what_it_gets_and_not_with_our_tools(cli: CommandLine) -> None:
    cli.config.write_text(cli.config.read_text() + HELPER)
    found = cli.call("explain", str(cli.write("two.yml", AGENT)), "--json").object
    fix, look = found["asked"]["steps"]
    decided = {one["tool"]: one["decision"] for one in fix["tools"]}
    assert decided == {
        "WebFetch": "ask",
        "agent_permission": "ask",
        "agent_read": "allow",
        "agent_write": "ask",
        "agent_run": "ask",
    }
    assert (fix["decision"], look["decision"]) == ("ask", "allow"), "its host has to be approved"
    assert "Bash" in {one["tool"] for one in look["tools"]}
    assert found["agents"] == [
        {
            "agent": "acp/helper",
            "hosts": ["https://api.example.com/"],
            "variables": {"HELPER_KEY": "env:HELPER_KEY"},
            "files": {".helper/auth.json": "env:HELPER_FILE"},
            "readable": [],
            "optional": [],
        }
    ]
    assert {"host": "api.example.com", "for": "coding agent acp/helper"} in found["hosts"]
    assert found["nodes"][0]["tools"] == ["WebFetch"]


@pytest.mark.parametrize(
    "policy", ["", '[tools]\ndeny = ["KillBash"]\nask = ["Read"]\n[egress]\nallow = ["https://example.org/*"]\n']
)
def test_what_it_touches_and_what_would_be_asked_decide_alike(cli: CommandLine, policy: str) -> None:
    (cli.config.parent / "policy.toml").write_text(policy)
    found = cli.call("explain", str(cli.write("one.yml", NODE)), "--json").object
    touched = {one["target"]: one["decision"] for one in found["touches"] if one["kind"] == "tool"}
    asked_about = {one["tool"]: one["decision"] for step in found["asked"]["steps"] for one in step["tools"]}
    assert touched == asked_about
    assert touched.get("KillBash") == (None if policy else "allow"), "a model is not offered a tool that is denied"
    assert touched["Read"] == ("ask" if policy else "allow")


@pytest.mark.needs("git")
def test_explain_takes_the_options_of_run_and_foretells_the_merge(cli: CommandLine) -> None:
    found = cli.call("explain", str(cli.write("one.yml", NODE)), "--worktree", "--strict", "--json").object
    assert found["asked"]["steps"][-1]["step"] == "worktree.merge"
    assert found["asked"]["steps"][-1]["decision"] == "ask"
    assert any("is not a git repository" in note for note in found["notes"])
