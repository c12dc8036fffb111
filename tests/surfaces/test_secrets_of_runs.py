"""A run's secrets are known to every process that drives it, before its first effect: canaries over dialects and processes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.gate.test_canary import forms, leaked
from tests.surfaces.desk import Desk, Ran
from tests.surfaces.model_server import ModelServer

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
def office(desk: Desk) -> Desk:
    desk.environ["TOK"] = CANARY
    (desk.config.parent / "policy.toml").write_text(ALLOWED)
    desk.write(LEAK, "\n".join(forms(CANARY).values()))
    return desk


def run_of(desk: Desk) -> str:
    return str(desk.call("runs", "--json").object[0]["run"])


def called_from(folder: Path, desk: Desk, *args: str) -> Ran:
    home, desk.work = desk.work, folder
    try:
        return desk.call(*args)
    finally:
        desk.work = home


def stored(desk: Desk) -> bytes:
    """Everything that Cuebook wrote: the store with what belongs to it, and whatever else lies in the home."""
    return b"".join(path.read_bytes() for path in desk.home.rglob("*") if path.is_file())


def assert_clean(desk: Desk, *said: Ran) -> None:
    run = run_of(desk)
    for one in (*said, *(desk.call(command, run, "--json") for command in ("show", "events", "audit"))):
        assert leaked(one.out + one.err, CANARY) == []
    assert leaked(stored(desk), CANARY) == []


# --- every process --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
def test_a_secret_is_masked_before_its_first_use_and_by_the_next_process(office: Desk, kind: str) -> None:
    office.call("secrets", "add", "deploy", HANDLE)
    if kind != "a name":
        office.call("secrets", "remove", "deploy")
    book = office.write("across.yml", TEXTS[kind])
    began = office.call("run", book, *GIVEN.get(kind, []), "--no-ask")
    assert began.code == 3, began.err
    waits = office.call("inbox", "--json")
    approved = office.call("decide", run_of(office), "approve")
    assert approved.code == 0, approved.out + approved.err
    assert approved.out.count("[secret env:TOK]") >= len(forms(CANARY))
    assert_clean(office, began, waits, approved)


@pytest.mark.parametrize("kind", ["a secret argument", "a name"])
def test_a_process_without_the_secret_waits_for_it_and_does_nothing(office: Desk, kind: str) -> None:
    office.call("secrets", "add", "deploy", HANDLE)
    book = office.write("across.yml", TEXTS[kind])
    office.call("run", book, *GIVEN.get(kind, []), "--no-ask")
    run = run_of(office)
    del office.environ["TOK"]
    for tried in (("decide", run, "approve"), ("resume", run)):
        refused = office.call(*tried)
        assert refused.code == 3
        told = office.call("show", run, "--json").object
        assert (told["status"], told["reason"]) == ("paused", "secret")
        assert told["next"] == f"cuebook resume {run}"
        assert "env:TOK has no value" in refused.out + refused.err
        assert "env:TOK has no value" in office.call("inbox").out
    office.environ["TOK"] = CANARY
    resumed = office.call("resume", run)
    assert (resumed.code, office.call("inbox", "--json").object) == (0, [])
    assert office.call("verify", run).code == 0
    assert office.call("replay", run).code == 0
    assert_clean(office, resumed)


def test_what_lacks_in_another_folder_is_left_to_the_folder_of_the_run(office: Desk, tmp_path: Path) -> None:
    """Whoever approves a run from where they happen to be does not make it wait for what its own folder has."""
    office.call("run", office.write("across.yml", TEXTS["a secret argument"]), *GIVEN["a secret argument"], "--no-ask")
    run = run_of(office)
    del office.environ["TOK"]
    away = tmp_path / "away"
    away.mkdir()
    approved = called_from(away, office, "decide", run, "approve")
    assert (approved.code, f"cuebook resume {run}" in approved.err) == (2, True), approved.err
    told = office.call("show", run, "--json").object
    assert (told["interrupted"], told["reason"], told["waits"]) == (True, "", [])
    office.environ["TOK"] = CANARY
    assert office.call("resume", run).code == 0
    assert_clean(office, approved)


def test_a_run_can_be_cancelled_from_anywhere_without_its_secrets(office: Desk, tmp_path: Path) -> None:
    book = office.write("across.yml", TEXTS["a secret argument"])
    for folder in (office.work, tmp_path):
        office.environ["TOK"] = CANARY
        office.call("run", book, *GIVEN["a secret argument"], "--no-ask")
        run = run_of(office)
        del office.environ["TOK"]
        assert called_from(folder, office, "cancel", run).code == 5
        assert office.call("show", run, "--json").object["status"] == "cancelled"
        assert office.call("verify", run).code == 0


def test_a_run_that_waits_for_a_secret_can_be_cancelled(office: Desk) -> None:
    del office.environ["TOK"]
    began = office.call("run", office.write("across.yml", TEXTS["a handle in a step"]), "--no-ask")
    assert (began.code, "env:TOK has no value" in began.err) == (3, True)
    run = run_of(office)
    assert office.call("cancel", run).code == 5
    told = office.call("show", run, "--json").object
    assert (told["status"], [step["status"] for step in told["steps"]]) == ("cancelled", [])
    office.environ["TOK"] = CANARY
    assert office.call("retry", run, "--no-ask").code == 3, "it begins, and comes to its approval"
    assert_clean(office)


def test_a_killed_process_hands_its_secrets_on_by_the_journal(office: Desk) -> None:
    slow = TEXTS["a secret argument"].replace("cli true, approval: required", "cli sleep 60, effect: read")
    process = office.begin("run", office.write("across.yml", slow), "--tok", HANDLE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runs = office.call("runs", "--json").object
        steps = office.call("show", runs[0]["run"], "--json").object["steps"] if runs else []
        if [step["label"] for step in steps if step["status"] == "running"] == ["gate"]:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    run = run_of(office)
    del office.environ["TOK"]
    assert office.call("resume", run, "--no-ask").code == 3
    assert office.call("show", run, "--json").object["reason"] == "secret"
    office.environ["TOK"] = CANARY
    assert_clean(office, office.call("cancel", run))


def test_a_restart_and_a_fork_know_the_secrets_of_their_parent(office: Desk) -> None:
    book = office.write("across.yml", TEXTS["a secret argument"])
    office.call("run", book, "--tok", HANDLE, "--no-ask")
    run = run_of(office)
    again = office.call("restart", run, "early", "--no-ask")
    assert again.code == 3, again.err
    assert_clean(office, again)
    refused = office.call("fork", run, "use", "--set", f"note=it is {CANARY}", "--no-ask")
    assert (refused.code, "The value of a secret" in refused.err) == (2, True)
    office.environ["OTHER"] = "another-s3cr3t-word"
    office.write(LEAK, "another-s3cr3t-word")
    forked = office.call("fork", run, "early", "--set", "tok=env:OTHER", "--no-ask")
    assert forked.code == 3, forked.err
    assert b"another-s3cr3t-word" not in stored(office), "what a fork is given is masked from its first step on"
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
def test_what_a_model_says_of_a_secret_is_masked_by_every_process(office: Desk, server: ModelServer, kind: str) -> None:
    name, text, more = SAID[kind]
    if text is FILED:
        (office.work / ".claude/skills/shop").mkdir(parents=True)
        office.write(".claude/skills/shop/SKILL.md", SKILL)
    office.config.write_text(office.config.read_text() + more)
    server.replies = ["\n".join(forms(CANARY).values()), "\n".join(forms(CANARY).values())]
    first = "read" if name.endswith("yml") else "1"
    began = office.call("run", office.write(name, text), "--break", first, "--no-ask")
    assert began.code == 3, began.err
    said = [began]
    while said[-1].code == 3 and len(said) < 5:  # a server is only started once a person has agreed to it
        asked = office.call("show", run_of(office), "--json").object["status"] == "awaiting_approval"
        said.append(office.call(*(("decide", run_of(office), "approve") if asked else ("resume", run_of(office)))))
    assert said[-1].code == 0, said[-1].err
    assert office.call("events", run_of(office), "--json").out.count("[secret env:TOK]") >= len(forms(CANARY))
    assert_clean(office, *said)


def test_a_program_waits_for_the_secret_of_an_agent_that_lives_elsewhere(office: Desk) -> None:
    book = office.write("far.pbasm", FAR)
    refused = office.call("run", book, "--note", f"it is {CANARY}", "--no-ask")
    assert (refused.code, office.call("runs", "--json").object) == (2, [])
    del office.environ["TOK"]
    assert office.call("run", book, "--no-ask").code == 3
    told = office.call("show", run_of(office), "--json").object
    assert (told["status"], told["reason"]) == ("paused", "secret")
    assert leaked(refused.out + refused.err + json.dumps(told), CANARY) == []


# --- what people hand in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
def test_an_input_that_holds_the_value_is_refused_and_nothing_is_stored(office: Desk, kind: str) -> None:
    office.call("secrets", "add", "deploy", HANDLE)
    book = office.write("across.yml", TEXTS[kind])
    for note in (f"pre {CANARY}", forms(CANARY)["base64 at 1"]):
        refused = office.call("run", book, *GIVEN.get(kind, []), "--note", note, "--no-ask")
        assert (refused.code, "the input 'note'" in refused.err) == (2, True), refused.err
        assert leaked(refused.out + refused.err, CANARY) == []
    assert office.call("runs", "--json").object == []
    assert leaked(stored(office), CANARY) == []


def test_a_short_secret_is_refused(office: Desk) -> None:
    office.environ["TOK"] = "short"
    office.write(LEAK, "nothing")
    began = office.call("run", office.write("across.yml", TEXTS["a secret argument"]), "--tok", HANDLE, "--no-ask")
    assert (began.code, "fewer than 8 characters" in began.err) == (3, True)
    told = office.call("show", run_of(office), "--json").object
    assert (told["status"], told["reason"]) == ("paused", "secret")


def test_a_denied_secret_is_not_read(office: Desk, tmp_path: Path) -> None:
    (office.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n[secrets]\ndeny = ["*"]\n')
    del office.environ["TOK"]
    office.write(LEAK, "nothing")
    began = office.call("run", office.write("across.yml", TEXTS["a handle in a step"]), "--no-ask")
    assert began.code == 3
    assert office.call("show", run_of(office), "--json").object["status"] == "awaiting_approval"
