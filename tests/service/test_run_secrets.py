"""Every process that drives a run knows its secrets before its first effect: canaries across dialects and processes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.gate.test_secret_canaries import forms, leaked
from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer

CANARY = 's3cr3t-Canary/with+chars&<x>"q"=Zz'
ALLOWED = '[commands]\nallow = ["*"]\n[secrets]\nallow = ["*"]\n'
HANDLE = "env:TOK"
LEAK = "leak.txt"

TEXTS = {
    "a secret argument": """
name: Across
args:
  tok: {secret: true, required: true}
  note: {type: string, default: ""}
steps:
  - {id: early, command: cli cat leak.txt, effect: read}
  - {id: use, command: cli sh -c 'test -n "$T"', env: {T: "${tok}"}, effect: read}
  - {id: gate, command: cli true, approval: required}
  - {id: late, command: cli cat leak.txt, effect: read}
""",
    "a handle in a step": """
name: Across
args:
  note: {type: string, default: ""}
steps:
  - {id: early, command: cli cat leak.txt, effect: read}
  - {id: gate, command: cli true, approval: required}
  - {id: late, command: cli cat leak.txt, effect: read}
  - {id: use, command: cli sh -c 'test -n "$T"', env: {T: "secret:env:TOK"}, effect: read}
""",
    "a name": """
name: Across
args:
  note: {type: string, default: ""}
steps:
  - {id: early, command: cli cat leak.txt, effect: read}
  - {id: gate, command: cli true, approval: required}
  - {id: late, command: cli cat leak.txt, effect: read}
  - id: use
    command: http GET https://example.com/
    with: {headers: {Authorization: "Bearer ${secret:deploy}"}}
    condition: $early.stdout == "never"
""",
}
GIVEN = {"a secret argument": ["--tok", HANDLE]}

FAR = """\
# Host
Speaks.

## Main($note="")
### Triggers
- BGN
### Steps
- 01:QUE Say("user", "hello")
- 02:RET

# There
metadata:
  remote:
    type: mcp
    url: https://there.example/mcp
    auth:
      type: bearer
      token: ${TOK}
---
Lives elsewhere.
"""


@pytest.fixture
def leaky_cli(cli: CommandLine) -> CommandLine:
    cli.environ["TOK"] = CANARY
    (cli.config.parent / "policy.toml").write_text(ALLOWED)
    cli.write(LEAK, "\n".join(forms(CANARY).values()))
    return cli


def run_of(cli: CommandLine) -> str:
    return str(cli.call("runs", "--json").object[0]["run"])


def called_from(folder: Path, cli: CommandLine, *args: str) -> Ran:
    home, cli.work = cli.work, folder
    try:
        return cli.call(*args)
    finally:
        cli.work = home


def stored(cli: CommandLine) -> bytes:
    """Everything that Cuebook wrote: the store with its files, and everything else in the home folder."""
    return b"".join(path.read_bytes() for path in cli.home.rglob("*") if path.is_file())


def assert_clean(cli: CommandLine, *said: Ran) -> None:
    run = run_of(cli)
    for one in (*said, *(cli.call(command, run, "--json") for command in ("show", "events", "audit"))):
        assert leaked(one.out + one.err, CANARY) == []
    assert leaked(stored(cli), CANARY) == []


# --- every process --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
def test_a_secret_is_masked_before_its_first_use_and_by_the_next_process(leaky_cli: CommandLine, kind: str) -> None:
    leaky_cli.call("secrets", "add", "deploy", HANDLE)
    if kind != "a name":
        leaky_cli.call("secrets", "remove", "deploy")
    book = leaky_cli.write("across.yml", TEXTS[kind])
    began = leaky_cli.call("run", book, *GIVEN.get(kind, []), "--no-ask")
    assert began.code == 3, began.err
    waits = leaky_cli.call("inbox", "--json")
    approved = leaky_cli.call("decide", run_of(leaky_cli), "approve")
    assert approved.code == 0, approved.out + approved.err
    assert approved.out.count("[secret env:TOK]") >= len(forms(CANARY))
    assert_clean(leaky_cli, began, waits, approved)


@pytest.mark.parametrize("kind", ["a secret argument", "a name"])
def test_a_process_without_the_secret_waits_for_it_and_does_nothing(leaky_cli: CommandLine, kind: str) -> None:
    leaky_cli.call("secrets", "add", "deploy", HANDLE)
    book = leaky_cli.write("across.yml", TEXTS[kind])
    leaky_cli.call("run", book, *GIVEN.get(kind, []), "--no-ask")
    run = run_of(leaky_cli)
    del leaky_cli.environ["TOK"]
    for tried in (("decide", run, "approve"), ("resume", run)):
        refused = leaky_cli.call(*tried)
        assert refused.code == 3
        told = leaky_cli.call("show", run, "--json").object
        assert (told["status"], told["reason"]) == ("paused", "secret")
        assert told["next"] == f"cuebook resume {run}"
        assert "env:TOK has no value" in refused.out + refused.err
        assert "env:TOK has no value" in leaky_cli.call("inbox").out
    leaky_cli.environ["TOK"] = CANARY
    resumed = leaky_cli.call("resume", run)
    assert (resumed.code, leaky_cli.call("inbox", "--json").object) == (0, [])
    assert leaky_cli.call("verify", run).code == 0
    assert leaky_cli.call("replay", run).code == 0
    assert_clean(leaky_cli, resumed)


def test_a_secret_missing_in_another_folder_is_left_to_the_runs_folder(leaky_cli: CommandLine, tmp_path: Path) -> None:
    """Approving a run from another folder does not make it wait for a secret that its own folder has."""
    leaky_cli.call(
        "run", leaky_cli.write("across.yml", TEXTS["a secret argument"]), *GIVEN["a secret argument"], "--no-ask"
    )
    run = run_of(leaky_cli)
    del leaky_cli.environ["TOK"]
    away = tmp_path / "away"
    away.mkdir()
    approved = called_from(away, leaky_cli, "decide", run, "approve")
    assert (approved.code, f"cuebook resume {run}" in approved.err) == (2, True), approved.err
    told = leaky_cli.call("show", run, "--json").object
    assert (told["interrupted"], told["reason"], told["waits"]) == (True, "", [])
    leaky_cli.environ["TOK"] = CANARY
    assert leaky_cli.call("resume", run).code == 0
    assert_clean(leaky_cli, approved)


def test_a_run_can_be_cancelled_from_anywhere_without_its_secrets(leaky_cli: CommandLine, tmp_path: Path) -> None:
    book = leaky_cli.write("across.yml", TEXTS["a secret argument"])
    for folder in (leaky_cli.work, tmp_path):
        leaky_cli.environ["TOK"] = CANARY
        leaky_cli.call("run", book, *GIVEN["a secret argument"], "--no-ask")
        run = run_of(leaky_cli)
        del leaky_cli.environ["TOK"]
        assert called_from(folder, leaky_cli, "cancel", run).code == 5
        assert leaky_cli.call("show", run, "--json").object["status"] == "cancelled"
        assert leaky_cli.call("verify", run).code == 0


def test_a_run_that_waits_for_a_secret_can_be_cancelled(leaky_cli: CommandLine) -> None:
    del leaky_cli.environ["TOK"]
    began = leaky_cli.call("run", leaky_cli.write("across.yml", TEXTS["a handle in a step"]), "--no-ask")
    assert (began.code, "env:TOK has no value" in began.err) == (3, True)
    run = run_of(leaky_cli)
    assert leaky_cli.call("cancel", run).code == 5
    told = leaky_cli.call("show", run, "--json").object
    assert (told["status"], [step["status"] for step in told["steps"]]) == ("cancelled", [])
    leaky_cli.environ["TOK"] = CANARY
    assert leaky_cli.call("retry", run, "--no-ask").code == 3, "it begins, and comes to its approval"
    assert_clean(leaky_cli)


def test_a_killed_process_passes_on_its_secrets_through_the_journal(leaky_cli: CommandLine) -> None:
    slow = TEXTS["a secret argument"].replace("cli true, approval: required", "cli sleep 60, effect: read")
    process = leaky_cli.begin("run", leaky_cli.write("across.yml", slow), "--tok", HANDLE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runs = leaky_cli.call("runs", "--json").object
        steps = leaky_cli.call("show", runs[0]["run"], "--json").object["steps"] if runs else []
        if [step["label"] for step in steps if step["status"] == "running"] == ["gate"]:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    run = run_of(leaky_cli)
    del leaky_cli.environ["TOK"]
    assert leaky_cli.call("resume", run, "--no-ask").code == 3
    assert leaky_cli.call("show", run, "--json").object["reason"] == "secret"
    leaky_cli.environ["TOK"] = CANARY
    assert_clean(leaky_cli, leaky_cli.call("cancel", run))


def test_a_restart_and_a_fork_know_the_secrets_of_their_parent(leaky_cli: CommandLine) -> None:
    book = leaky_cli.write("across.yml", TEXTS["a secret argument"])
    leaky_cli.call("run", book, "--tok", HANDLE, "--no-ask")
    run = run_of(leaky_cli)
    again = leaky_cli.call("restart", run, "early", "--no-ask")
    assert again.code == 3, again.err
    assert_clean(leaky_cli, again)
    refused = leaky_cli.call("fork", run, "use", "--set", f"note=it is {CANARY}", "--no-ask")
    assert (refused.code, "The value of a secret" in refused.err) == (2, True)
    leaky_cli.environ["OTHER"] = "another-s3cr3t-word"
    leaky_cli.write(LEAK, "another-s3cr3t-word")
    forked = leaky_cli.call("fork", run, "early", "--set", "tok=env:OTHER", "--no-ask")
    assert forked.code == 3, forked.err
    assert b"another-s3cr3t-word" not in stored(leaky_cli), "what a fork is given is masked from its first step on"
    assert "[secret env:OTHER]" in forked.err
    assert leaked(refused.out + refused.err, CANARY) == []


# --- other dialects --------------------------------------------------------------------------------------------------

TEA = "# Tea\n\n## STEP 1: Choose\n\nChoose one.\n\n## STEP 2: Brew\n\nBrew it.\n"
GRAPH = """\
id: sort
name: Sort
entry: read
inputs: {note: {type: string}}
skills:
  shop:
    name: Shop
    mcp: {type: stdio, command: shop-server, env: {TOK: The token of the shop.}}
nodes:
  read: {name: Read, instruction: Say it.}
  again: {name: Again, instruction: Say it again.}
edges:
  - {from: read, to: again}
"""
FILED = GRAPH.replace(GRAPH[GRAPH.index("skills:") : GRAPH.index("nodes:")], "").replace(
    "instruction: Say it.}", "instruction: Say it., skills: [shop]}"
)
SKILL = """\
---
name: shop
description: Sells things.
mcp: {type: stdio, command: shop-server, env: {TOK: The token of the shop.}}
---
Sell it.
"""
SAID = {
    "markdown, given to a configured server": ("tea.md", TEA, '[mcp.shop]\ncommand = ["shop-server"]\nsecret_env = {T = "env:TOK"}\n'),
    "markdown, given to a skill": ("tea.md", TEA, '[skills.github]\nGITHUB_TOKEN = "env:TOK"\n'),
    "graph, given to a server of its own": ("sort.yml", GRAPH, ""),
    "graph, given to a server of a skill in a file": ("sort.yml", FILED, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAID)
def test_a_secret_in_a_reply_is_masked_by_every_process(leaky_cli: CommandLine, server: ModelServer, kind: str) -> None:
    name, text, more = SAID[kind]
    if text is FILED:
        (leaky_cli.work / ".claude/skills/shop").mkdir(parents=True)
        leaky_cli.write(".claude/skills/shop/SKILL.md", SKILL)
    leaky_cli.config.write_text(leaky_cli.config.read_text() + more)
    server.replies = ["\n".join(forms(CANARY).values()), "\n".join(forms(CANARY).values())]
    first = "read" if name.endswith("yml") else "1"
    began = leaky_cli.call("run", leaky_cli.write(name, text), "--break", first, "--no-ask")
    assert began.code == 3, began.err
    said = [began]
    while said[-1].code == 3 and len(said) < 5:  # a server is only started once a person has agreed to it
        asked = leaky_cli.call("show", run_of(leaky_cli), "--json").object["status"] == "awaiting_approval"
        said.append(
            leaky_cli.call(*(("decide", run_of(leaky_cli), "approve") if asked else ("resume", run_of(leaky_cli))))
        )
    assert said[-1].code == 0, said[-1].err
    assert leaky_cli.call("events", run_of(leaky_cli), "--json").out.count("[secret env:TOK]") >= len(forms(CANARY))
    assert_clean(leaky_cli, *said)


def test_a_program_waits_for_the_secret_of_a_remote_agent(leaky_cli: CommandLine) -> None:
    book = leaky_cli.write("far.pbasm", FAR)
    refused = leaky_cli.call("run", book, "--note", f"it is {CANARY}", "--no-ask")
    assert (refused.code, leaky_cli.call("runs", "--json").object) == (2, [])
    del leaky_cli.environ["TOK"]
    assert leaky_cli.call("run", book, "--no-ask").code == 3
    told = leaky_cli.call("show", run_of(leaky_cli), "--json").object
    assert (told["status"], told["reason"]) == ("paused", "secret")
    assert leaked(refused.out + refused.err + json.dumps(told), CANARY) == []


# --- what people hand in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
def test_an_input_that_contains_a_secret_value_is_refused_and_nothing_is_stored(
    leaky_cli: CommandLine, kind: str
) -> None:
    leaky_cli.call("secrets", "add", "deploy", HANDLE)
    book = leaky_cli.write("across.yml", TEXTS[kind])
    for note in (f"pre {CANARY}", forms(CANARY)["base64 at 1"]):
        refused = leaky_cli.call("run", book, *GIVEN.get(kind, []), "--note", note, "--no-ask")
        assert (refused.code, "the input 'note'" in refused.err) == (2, True), refused.err
        assert leaked(refused.out + refused.err, CANARY) == []
    assert leaky_cli.call("runs", "--json").object == []
    assert leaked(stored(leaky_cli), CANARY) == []


def test_a_short_secret_is_refused(leaky_cli: CommandLine) -> None:
    leaky_cli.environ["TOK"] = "short"
    leaky_cli.write(LEAK, "nothing")
    began = leaky_cli.call(
        "run", leaky_cli.write("across.yml", TEXTS["a secret argument"]), "--tok", HANDLE, "--no-ask"
    )
    assert (began.code, "fewer than 8 characters" in began.err) == (3, True)
    told = leaky_cli.call("show", run_of(leaky_cli), "--json").object
    assert (told["status"], told["reason"]) == ("paused", "secret")


def test_a_denied_secret_is_not_read(leaky_cli: CommandLine, tmp_path: Path) -> None:
    (leaky_cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n[secrets]\ndeny = ["*"]\n')
    del leaky_cli.environ["TOK"]
    leaky_cli.write(LEAK, "nothing")
    began = leaky_cli.call("run", leaky_cli.write("across.yml", TEXTS["a handle in a step"]), "--no-ask")
    assert began.code == 3
    assert leaky_cli.call("show", run_of(leaky_cli), "--json").object["status"] == "awaiting_approval"
