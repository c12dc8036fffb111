"""The preset `agent`: work flows inside the workspace, and whatever leaves it is asked about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.policy import Decision, Layer, Policy, bundle_from, decide
from cuebook.gate.policy.presets import PRESETS, unconfined
from cuebook.kernel.effects import CallTool, RunCommand
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports import Action
from tests.gate.harness import GateHarness


def policy(may_allow: bool = True, **own: Any) -> Policy:
    return Policy((Layer("user", "policy.toml", bundle_from({"preset": "agent", **own}), may_allow),))


CASES: list[tuple[Action, Decision]] = [
    (Action("tool", "Read", True), "allow"),
    (Action("tool", "Bash"), "allow"),
    (Action("tool", "Write"), "allow"),
    (Action("tool", "github.list_issues", True), "ask"),
    (Action("tool", "github_create_pr"), "ask"),
    (Action("tool", "network", True), "allow"),
    (Action("egress", "CONNECT https://github.com/"), "ask"),
    (Action("command", "pytest -q"), "allow"),
    (Action("command", "bash -c 'for x in *; do cat $x; done > all'"), "allow"),
    (Action("command", "cd app && make test"), "allow"),
    (Action("file", "read:src/a.py", True), "allow"),
    (Action("file", "write:src/a.py"), "allow"),
    (Action("file", "write:.git/hooks/pre-commit"), "ask"),
    (Action("file", "write:lib/.git/config"), "ask"),
    (Action("file", "write:lib/.git"), "ask"),
    (Action("file", "write:.git"), "ask"),
    (Action("file", "write:.gitignore"), "allow"),
    (Action("file", "read:/etc/passwd", True), "deny"),
    (Action("file", "write:/etc/passwd"), "deny"),
    (Action("file", "write:../out"), "deny"),
    (Action("egress", "GET https://example.com/", True), "ask"),
    (Action("egress", "POST https://api.github.com/repos"), "ask"),
    (Action("secret", "env:TOKEN"), "ask"),
    (Action("secret", "env:TOKEN", True), "allow"),
    (Action("model", "openai/gpt-5", True), "allow"),
]


@pytest.mark.parametrize(("action", "decision"), CASES, ids=lambda one: getattr(one, "target", one))
def test_what_the_preset_decides(action: Action, decision: Decision) -> None:
    assert decide(action, [policy()]).decision == decision


def test_the_rules_of_the_file_take_precedence_over_the_defaults_of_the_preset() -> None:
    own = policy(
        tools={"allow": ["github.list_*"]},
        commands={"deny": ["git push*"]},
        egress={"allow": ["https://pypi.org/*"]},
        allowed_domains=["api.example.com"],
        from_outside="ask",
    )
    assert decide(Action("tool", "github.list_issues", True), [own]).decision == "allow"
    assert decide(Action("command", "git push origin main"), [own]).decision == "deny"
    assert decide(Action("egress", "GET https://pypi.org/simple"), [own]).decision == "allow"
    assert decide(Action("egress", "GET https://api.example.com/x"), [own]).decision == "allow"
    assert decide(Action("egress", "GET https://other.example/x"), [own]).decision == "ask"
    assert own.asks_from_outside
    assert not policy().asks_from_outside


def test_a_decision_names_the_preset_and_its_file() -> None:
    (reason,) = decide(Action("command", "ls"), [policy()]).reasons
    assert (reason.rule, reason.where) == ("preset agent: commands.allow '*'", "policy.toml")
    (reason,) = decide(Action("tool", "a.b"), [policy()]).reasons
    assert reason.rule == "preset agent: tools.default 'ask'"


@pytest.mark.parametrize("whose", ["project", "playbook"])
def test_a_file_that_may_not_allow_cannot_allow_anything_with_a_preset(whose: Any) -> None:
    untrusted = Policy((Layer(whose, "p.toml", bundle_from({"preset": "agent"}), False),))
    assert decide(Action("command", "touch x"), [untrusted]).decision == "ask"
    assert decide(Action("file", "write:x"), [untrusted]).decision == "ask"
    assert untrusted.asks_from_outside


def test_without_a_sandbox_the_preset_allows_no_commands() -> None:
    bare = unconfined(policy())
    assert decide(Action("command", "touch x"), [bare]).decision == "ask"
    assert decide(Action("file", "write:x"), [bare]).decision == "allow"
    assert bare.asks_from_outside
    assert unconfined(Policy()) == Policy()


def test_an_unknown_preset_is_refused_in_a_file_and_in_a_journal() -> None:
    with pytest.raises(BadInput, match="preset must be one of"):
        bundle_from({"preset": "agentic"})
    with pytest.raises(BadInput, match="preset must be one of"):
        bundle_from({"preset": "agent without a sandbox"})
    stored = policy().snapshot()
    assert Policy.from_snapshot(stored) == policy()
    with pytest.raises(CuebookError, match="cannot be read"):
        Policy.from_snapshot(stored.replace('"agent"', '"other"'))
    assert set(PRESETS) == {"agent", "agent without a sandbox"}


# --- for one run ---


def test_what_is_chosen_for_a_run_never_beats_a_file() -> None:
    strict = Policy(
        (Layer("user", "policy.toml", bundle_from({"commands": {"ask": ["git *"], "deny": ["rm *"]}}), True),)
    )
    chosen = strict.for_run("agent")
    assert decide(Action("command", "pytest"), [chosen]).decision == "allow"
    assert decide(Action("command", "git push"), [chosen]).decision == "ask"
    assert decide(Action("command", "rm -r x"), [chosen]).decision == "deny"


def test_the_defaults_of_what_is_chosen_for_a_run_are_for_what_the_files_say_nothing_about() -> None:
    own = Policy((Layer("user", "policy.toml", bundle_from({"tools": {"allow": ["github.list_*"]}}), True),))
    chosen = own.for_run("agent")
    assert decide(Action("tool", "github.list_issues"), [chosen]).decision == "allow"
    assert decide(Action("tool", "github.read_file", True), [chosen]).decision == "ask"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


async def test_under_the_preset_a_node_edits_and_tests_without_being_asked(harness: GateHarness) -> None:
    harness.allow({"preset": "agent"})
    run = await harness.run(
        CallTool("Write", {"path": "a.sh", "content": "exit 0\n"}),
        CallTool("Bash", {"command": "for f in *.sh; do sh $f; done > out"}),
        RunCommand(("sh", "a.sh"), from_outside=True),
    )
    assert run.status == "completed"
    assert (await harness.run(CallTool("WebFetch", {"url": "https://example.com/"}))).status == "awaiting_approval"
