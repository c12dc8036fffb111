"""Approvals for a run and for all runs, at the command line and at a terminal, in processes of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import TerminalSession

PIPELINE = """\
name: P
steps:
  - {id: one, command: cli touch made}
  - {id: two, command: cli touch other}
  - {id: three, command: cli touch made}
"""
NODE = """\
id: one
name: One
entry: work
nodes:
  work: {name: Work, instruction: Do it.}
edges: []
"""


def shown(cli: CommandLine, run: str) -> dict[str, Any]:
    return dict(cli.call("show", run, "--json").object)


def begun(cli: CommandLine, book: str) -> str:
    cli.call("run", book, "--json")
    return str(cli.call("runs", "--json").object[0]["run"])


def test_approving_for_the_run_and_revoking_it(cli: CommandLine) -> None:
    run = begun(cli, str(cli.write("p.yml", PIPELINE)))
    asked = cli.call("inbox", run).out
    assert "offer 1:       would allow command 'touch made'\n" in asked
    assert "offer 2:       would allow command 'touch made*'\n" in asked
    assert "approve --for run" in asked
    cli.call("decide", run, "approve", "--for", "run")
    (override,) = shown(cli, run)["overrides"]
    assert (override["domain"], override["pattern"], override["state"]) == ("command", "touch made", "holds")
    assert override["id"] in cli.call("show", run).out
    assert cli.call("policy", "overrides").out.startswith("There are no overrides")
    assert override["id"] in cli.call("policy", "overrides", "--run", run).out
    ended = cli.call("decide", run, "approve")
    assert ended.code == 0, "the third step was asked about"
    audited = cli.call("audit", run).out
    assert f"for this run: command 'touch made' ({override['id']})" in audited
    assert f"by override {override['id']}: allowed for this run: 'touch made' by local" in audited


def test_what_is_revoked_or_forked_is_asked_about_again(cli: CommandLine) -> None:
    run = begun(cli, str(cli.write("p.yml", PIPELINE)))
    cli.call("decide", run, "approve", "--for", "run")
    (override,) = shown(cli, run)["overrides"]
    assert cli.call("policy", "revoke", override["id"]).code == 0
    assert cli.call("decide", run, "approve").code == 3
    assert shown(cli, run)["waits"][0]["prompt"] == "Run touch made"
    assert "revoked by local" in cli.call("show", run).out
    assert cli.call("decide", run, "approve", "--for", "run").code == 0
    assert len([one for one in shown(cli, run)["overrides"] if one["state"] == "holds"]) == 1
    forked = cli.call("restart", run, "three", "--json")
    assert forked.code == 3, "what was allowed for a run is not allowed for another"
    assert shown(cli, forked.object["run"])["overrides"] == []


def test_approving_always_shows_in_the_list_and_can_be_revoked(cli: CommandLine) -> None:
    book = str(cli.write("p.yml", PIPELINE))
    run = begun(cli, book)
    assert cli.call("decide", run, "approve", "--for", "always", "--offer", "2").code == 3
    (override,) = cli.call("policy", "overrides", "--json").object
    assert (override["pattern"], override["expires"], override["run"]) == ("touch made*", None, None)
    cli.call("decide", run, "approve", "--for", "always")
    assert cli.call("run", book).code == 0
    assert cli.call("policy", "revoke", override["id"]).code == 0
    assert cli.call("run", book).code == 3


def test_only_an_approver_allows_more(cli: CommandLine) -> None:
    run = begun(cli, str(cli.write("p.yml", PIPELINE)))
    cli.call("users", "add", "ben", "--role", "runner")
    refused = cli.call("decide", run, "approve", "--for", "run", "--as", "ben")
    assert refused.code == 5
    assert "requires the role approver" in refused.err
    assert shown(cli, run)["overrides"] == []


def test_what_can_only_be_approved_once_says_why(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [{"tool": "Bash", "arguments": {"command": "touch a*"}}]
    run = begun(cli, str(cli.write("one.yml", NODE)))
    asked = cli.call("inbox", run).out
    assert "only once:     no safe pattern matches it: it must not contain a ?" in asked
    assert "--for run" not in asked
    refused = cli.call("decide", run, "approve", "--for", "run")
    assert refused.code == 2
    assert "can only be approved once" in refused.err


def test_a_node_is_asked_about_a_command_once_for_the_run(cli: CommandLine, server: ModelServer) -> None:
    call = {"tool": "Bash", "arguments": {"command": "ls -a | tee listed"}}
    other = {"tool": "Bash", "arguments": {"command": "touch other"}}
    server.replies = [call, call, other, call, "Done."]
    run = begun(cli, str(cli.write("one.yml", NODE)))
    cli.call("decide", run, "approve", "--for", "run")
    assert shown(cli, run)["waits"][0]["approval"]["offers"][0] == [["command", "touch other"]]
    assert cli.call("decide", run, "approve").code == 0
    audited = json.dumps(cli.call("audit", run, "--json").object)
    assert audited.count("allowed for this run: 'Bash'") == 4


@pytest.mark.parametrize(
    ("typed", "patterns", "stored"),
    [("run", ["touch made"], []), ("run+", ["touch made*"], []), ("always because I know it", [], ["touch made"])],
)
def test_at_a_terminal_each_choice_shows_what_it_allows(
    cli: CommandLine, typed: str, patterns: list[str], stored: list[str]
) -> None:
    cli.write("p.yml", PIPELINE)
    with TerminalSession(cli, "run", "p.yml") as terminal:
        asked = terminal.until('approve, run, always, run+, always+, deny, or "later" (a reason may follow):')
        assert "run       and for the rest of this run: command 'touch made'\n" in asked
        assert "always+   and in all runs, until it is revoked: command 'touch made*'\n" in asked
        terminal.type("approve run\n")
        terminal.until('Type only "run" to allow that')
        terminal.type(f"{typed}\n")
        terminal.until("Run touch other")
        terminal.until("a reason may follow):")
        terminal.type("y\n")
        assert terminal.ended() == 0
    (run,) = cli.call("runs", "--json").object
    assert [one["pattern"] for one in shown(cli, run["run"])["overrides"]] == patterns
    assert [one["pattern"] for one in cli.call("policy", "overrides", "--json").object] == stored
