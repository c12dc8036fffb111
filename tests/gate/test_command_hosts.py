"""The hosts of a command, from the policy through the approval to the wire."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate.policy import Layer, Policy, bundle_from, decide
from cuebook.gate.policy.overrides import suggested
from cuebook.kernel.effects import CallTool, RunCommand, SecretUse
from cuebook.kernel.events import Warned
from cuebook.kernel.journal import Entry
from cuebook.kernel.ports import Action
from tests.gate.harness import GateHarness, bytes_below, doing
from tests.support.git_servers import git_server

TOKEN = "push-token-4711"
GITHUB = Action("egress", "CONNECT https://github.com/")
PLAIN = Action("egress", "CONNECT http://github.com/")
ODD = Action("egress", "CONNECT https://127.0.0.1:8080/")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path, environ={"PUSH": TOKEN})
    yield made
    await made.close()


def ruled(action: Action, **egress: Any) -> str:
    return decide(
        action, [Policy((Layer("user", "policy.toml", bundle_from({"egress": egress}), may_allow=True),))]
    ).decision


@pytest.mark.parametrize(
    ("action", "pattern", "matches"),
    [
        (GITHUB, "github.com", True),
        (GITHUB, "https://github.com/*", True),
        (GITHUB, "https://github.com", True),
        (GITHUB, "*.com", True),
        (GITHUB, "CONNECT https://github.com/", True),
        (GITHUB, "CONNECT github.com", True),
        (GITHUB, "https://github.com:443/*", True),
        (GITHUB, "GET https://github.com/*", False),
        (GITHUB, "https://github.com/", False),
        (GITHUB, "https://github.com/me/*", False),
        (GITHUB, "http://github.com/*", False),
        (GITHUB, "github.com:8443", False),
        (GITHUB, "api.github.com", False),
        (PLAIN, "https://github.com/*", False),
        (PLAIN, "http://github.com/*", True),
        (ODD, "http://127.0.0.1:8080/*", True),
        (ODD, "https://127.0.0.1:8080/*", True),
        (ODD, "127.0.0.1:*", True),
        (ODD, "127.0.0.1", False),
    ],
)
def test_only_a_rule_for_everything_on_a_host_allows_a_command_to_reach_it(
    action: Action, pattern: str, matches: bool
) -> None:
    assert ruled(action, allow=[pattern]) == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("github.com", True),
        ("*", True),
        ("POST https://github.com/*", True),
        ("https://github.com/evil/*", True),
        ("wss://github.com", True),
        ("github.com:443", True),
        ("http://github.com/*", False),
        ("github.com:80", False),
        ("gitlab.com", False),
    ],
)
def test_a_rule_against_a_part_of_a_host_holds_for_a_command_that_can_reach_it(pattern: str, matches: bool) -> None:
    for decision in ("deny", "ask"):
        rules = {"allow": ["github.com"], decision: [pattern]}
        assert ruled(GITHUB, **rules) == (decision if matches else "allow")


def test_without_a_rule_a_host_is_asked_about_and_a_default_counts() -> None:
    assert ruled(GITHUB) == "ask"
    assert ruled(GITHUB, default="deny") == "deny"
    assert ruled(GITHUB, default="deny", allow=["github.com"]) == "allow"
    assert suggested(GITHUB) == ("CONNECT https://github.com/", "https://github.com/*")
    assert all(ruled(GITHUB, allow=[pattern]) == "allow" for pattern in suggested(GITHUB))


# --- approvals ---


async def test_an_approval_names_the_hosts_and_is_bound_to_them(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["*"]}})
    row = await harness.run(RunCommand(("true",), network=("pypi.org", "github.com")))
    assert row.status == "awaiting_approval"
    wait = await harness.wait(row.id)
    assert wait.details["preview"]["network"] == "only github.com, pypi.org"
    assert ["egress", "CONNECT https://github.com/"] in wait.details["always"]
    harness.make = doing(RunCommand(("true",), network=("pypi.org", "github.com", "evil.example")))
    assert (await harness.decide(row.id, "approve")).status == "awaiting_approval"  # for one host more
    harness.make = doing(RunCommand(("true",), network=("github.com", "pypi.org")))
    again = await harness.run()
    assert (await harness.decide(again.id, "approve")).status == "completed"


async def test_hosts_are_allowed_denied_and_asked_about_one_by_one(harness: GateHarness) -> None:
    rules: dict[str, Any] = {"commands": {"allow": ["*"]}, "egress": {"allow": ["a.example"], "deny": ["b.example"]}}
    harness.allow(rules)
    assert (await harness.run(RunCommand(("true",), network=("a.example",)))).status == "completed"
    denied = await harness.run(RunCommand(("true",), network=("a.example", "b.example")))
    assert denied.error is not None
    assert denied.error.code == "forbidden"
    asked = await harness.run(RunCommand(("true",), network=("a.example", "c.example")))
    assert asked.status == "awaiting_approval"
    harness.allow({**rules, "tools": {"deny": ["network"]}})
    kept_off = await harness.run(RunCommand(("true",), network=("a.example",)))
    assert kept_off.error is not None
    assert kept_off.error.code == "forbidden"


async def test_a_command_that_depends_on_outside_data_is_asked_about_although_its_hosts_are_allowed(
    harness: GateHarness,
) -> None:
    harness.allow({"commands": {"allow": ["*"]}, "egress": {"allow": ["a.example"]}})
    row = await harness.run(RunCommand(("true",), network=("a.example",), from_outside=True))
    assert row.status == "awaiting_approval"


async def test_the_bash_tool_asks_for_hosts(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["*"]}, "tools": {"allow": ["Bash"]}})
    row = await harness.run(CallTool("Bash", {"command": "true", "network": ["github.com"]}))
    assert row.status == "awaiting_approval"
    assert (await harness.wait(row.id)).details["preview"]["network"] == "only github.com"
    bad = await harness.run(CallTool("Bash", {"command": "true", "network": ["*.github.com"]}))
    assert bad.error is not None
    assert bad.error.code == "bad_host"


async def test_a_model_is_told_which_hosts_it_did_not_ask_for(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["*"]}, "tools": {"allow": ["Bash"]}, "egress": {"allow": ["github.com"]}})
    script = "python3 -c 'import urllib.request as it; it.urlopen(\"https://pypi.example/simple\")' 2>/dev/null"
    row = await harness.run(CallTool("Bash", {"command": script, "network": ["github.com"]}))
    assert row.status == "completed", row.error
    said = "It tried to reach pypi.example, but its network does not list that."
    assert said in str(await harness.result(row.id))
    entries = [one async for one in harness.service.events(row.id, follow=False) if isinstance(one, Entry)]
    warnings = [(one.event.code, one.event.message) for one in entries if isinstance(one.event, Warned)]
    assert warnings == [("host_refused", f"Step 1: {said}")]


# --- the read-only profile ---


@pytest.mark.needs("git")
async def test_a_command_that_can_neither_write_nor_reach_the_network_is_not_asked_about(harness: GateHarness) -> None:
    _repository(harness.workspace)
    script = "git log --format=%s && echo scratch > $TMPDIR/x && cat $TMPDIR/x"
    row = await harness.run(CallTool("Bash", {"command": script, "read_only": True}))
    assert row.status == "completed", row.error
    assert "scratch" in str(await harness.result(row.id))


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    "script", ["git log --output=made", "touch made", "echo x > made", "mkdir made", "cp file made", "mv file made"]
)
async def test_a_read_only_command_that_writes_fails_whatever_it_is_called(harness: GateHarness, script: str) -> None:
    _repository(harness.workspace)
    before = sorted(path.name for path in harness.workspace.iterdir())
    row = await harness.run(CallTool("Bash", {"command": script, "read_only": True}))
    assert row.status == "completed"
    assert "exit code" in str(await harness.result(row.id))
    assert sorted(path.name for path in harness.workspace.iterdir()) == before


async def test_a_read_only_command_is_asked_about_if_it_may_reach_a_host_or_a_rule_says_so(
    harness: GateHarness,
) -> None:
    looking = {"command": "cat file", "read_only": True}
    row = await harness.run(CallTool("Bash", {**looking, "network": ["github.com"]}))
    assert row.status == "awaiting_approval"
    for rules in (
        {"commands": {"ask": ["cat *"]}},
        {"tools": {"ask": ["Bash"]}},
        {"files": {"deny": ["read:.env"]}},
        {"commands": {"default": "ask"}},
    ):
        harness.allow(rules)
        assert (await harness.run(CallTool("Bash", looking))).status == "awaiting_approval", rules
    harness.allow({"commands": {"deny": ["cat *"]}})
    denied = await harness.run(CallTool("Bash", looking))
    assert denied.error is not None
    assert denied.error.code == "forbidden"
    harness.allow({})
    assert (await harness.run(CallTool("Bash", {"command": "cat file"}))).status == "awaiting_approval"


# --- git ---


def _repository(folder: Path, url: str = "") -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (folder / "file").write_text("hello\n")
    steps = [["init", "-q", "-b", "main"], ["add", "file"], ["commit", "-qm", "first"]]
    for words in [*steps, *([["remote", "add", "origin", url]] if url else [])]:
        subprocess.run([*git, *words], check=True)


def _push(port: int) -> RunCommand:
    """A push whose credentials are secrets of this one command."""
    helper = "credential.helper=!f() { echo username=x; echo password=$PUSH_TOKEN; }; f"
    return RunCommand(
        ("git", "-c", helper, "push", "-q", "origin", "main"),
        secrets=(SecretUse("env.PUSH_TOKEN", "env:PUSH"),),
        network=(f"127.0.0.1:{port}",),
    )


@pytest.mark.needs("git")
async def test_git_pushes_to_a_server_that_the_policy_allows(harness: GateHarness, tmp_path: Path) -> None:
    with git_server(tmp_path / "served", TOKEN) as server:
        _repository(harness.workspace, server.create("project"))
        with (harness.workspace / ".git" / "config").open("a") as config:
            config.write("[http]\n\tproxy = http://127.0.0.1:9\n")  # a repository's own setting does not apply
        rules = {"commands": {"allow": ["*"]}, "secrets": {"allow": ["*"]}}
        harness.allow({**rules, "egress": {"allow": [f"http://127.0.0.1:{server.port}/*"]}})
        off = await harness.run(msgspec.structs.replace(_push(server.port), network=()))
        assert "exit_code=128" in str(await harness.result(off.id)), off
        assert (server.log("project"), server.requests) == ([], [])
        row = await harness.run(_push(server.port))
        assert row.status == "completed", row.error
        assert server.log("project") == ["first"], await harness.result(row.id)
        assert TOKEN.encode() not in bytes_below(harness.workspace)
        harness.allow(rules)
        refused = await harness.run(_push(server.port))
        assert refused.error is not None
        assert refused.error.code == "refused_address"
