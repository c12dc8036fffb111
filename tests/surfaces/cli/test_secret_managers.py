"""Runs that use the secrets of a manager: they wait while it has none, and no file ever holds a value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.web_service import web_service

VALUE = "s3cr3t-value-0123"
BOOK = """\
name: Deploy
steps:
  - {id: first, command: cli true, effect: read}
  - id: wait
    input: {text: Ready?}
  - id: use
    command: cli sh -c 'printf %s "$TOKEN" | wc -c; echo "$TOKEN"'
    env: {TOKEN: "secret:deploy"}
    effect: read
"""


@pytest.fixture
def manager(bare_cli: CommandLine) -> Path:
    """The program of a secret manager, which the user's configuration names."""
    made = bare_cli.home / "pass"
    bare_cli.config.parent.mkdir(parents=True)
    bare_cli.config.write_text(f'[secrets]\ndeploy = "exec:{made} show deploy"\n')
    (bare_cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n\n[secrets]\nallow = ["*"]\n')
    _answers(made, f"echo {VALUE}")
    return made


def _answers(manager: Path, script: str) -> None:
    manager.write_text(f"#!/bin/sh\n{script}\n")
    manager.chmod(0o755)


def test_a_run_waits_while_its_manager_has_no_value_and_nothing_of_it_is_kept(
    bare_cli: CommandLine, manager: Path
) -> None:
    book = bare_cli.write("deploy.yml", BOOK)
    _answers(manager, "exit 1")
    begun = bare_cli.call("run", book, "--no-ask", "--json")
    assert (begun.code, begun.object["status"]) == (3, "paused")
    run = begun.object["run"]
    assert "failed with exit code 1" in bare_cli.call("show", run).out
    _answers(manager, f"echo {VALUE}")
    assert bare_cli.call("resume", run, "--no-ask", "--json").object["status"] == "awaiting_input"
    # The manager fails again before the step that uses the value begins.
    _answers(manager, "exit 1")
    answered = bare_cli.call("answer", run, "yes", "--no-ask", "--json")
    assert answered.object["status"] == "paused"
    _answers(manager, f"echo {VALUE}")
    ended = bare_cli.call("resume", run, "--no-ask", "--json")
    assert ended.object["status"] == "completed"
    shown = json.loads(bare_cli.call("show", run, "--json").out)
    assert "17" in json.dumps(shown)
    assert bare_cli.call("audit", run, "--verify").code == 0
    for path in bare_cli.home.parent.rglob("*"):
        if path.is_file() and path != manager:
            assert VALUE.encode() not in path.read_bytes(), path
    assert VALUE not in ended.out + ended.err


def test_the_configured_secrets_are_listed_and_checked(bare_cli: CommandLine, manager: Path) -> None:
    listed = bare_cli.call("secrets", "list")
    assert "deploy" in listed.out
    assert "exec:..." in listed.out
    assert str(manager) not in listed.out
    _answers(manager, "exit 1")
    assert bare_cli.call("secrets", "check").code == 2


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('deploy = "env:TOKEN"', "must say where a secret manager keeps the value"),
        ('deploy = "vault:kv/ci"', "does not say where a secret comes from"),
        ('"a b" = "exec:true"', "Invalid secret name"),
    ],
)
def test_a_mistake_in_the_table_is_reported_with_its_line(bare_cli: CommandLine, line: str, wrong: str) -> None:
    bare_cli.config.parent.mkdir(parents=True)
    bare_cli.config.write_text(f"[secrets]\n{line}\n")
    refused = bare_cli.call("secrets", "list")
    assert refused.code == 2
    assert wrong in refused.err
    assert "cuebook.toml:" in refused.err


def test_a_project_file_may_not_name_secrets(bare_cli: CommandLine) -> None:
    bare_cli.write("cuebook.toml", '[secrets]\ndeploy = "exec:touch /tmp/x"\n')
    refused = bare_cli.call("secrets", "list")
    assert refused.code == 2
    assert "A project file may not name secrets" in refused.err


@pytest.mark.parametrize(
    ("settings", "call"),
    [
        ('[search]\nprovider = "brave"\nkey = "secret:deploy"', 'WebSearch, {"query": "tea"}'),
        ('[skills.github]\nGITHUB_TOKEN = "secret:deploy"', 'github_get_issue, {"repo": "a/b", "number": 1}'),
        ('[skills.notification]\nNOTIFICATION_WEBHOOK_URL = "secret:deploy"', 'notify_webhook, {"payload": {"a": 1}}'),
    ],
)
def test_a_run_waits_for_the_secret_of_a_configured_tool(
    bare_cli: CommandLine, manager: Path, settings: str, call: str
) -> None:
    lab = '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"'
    bare_cli.config.write_text(f'model = "lab/small"\n{bare_cli.config.read_text()}\n{lab}\n{settings}\n')
    allowed = "".join(f'[{one}]\nallow = ["*"]\n' for one in ("tools", "egress", "secrets"))
    (bare_cli.config.parent / "policy.toml").write_text(allowed)
    book = bare_cli.write("call.md", f"# Call\n\n## STEP 1: Call\n\n@tool(builtin, {call})\n")
    _answers(manager, "exit 1")
    begun = bare_cli.call("run", book, "--no-ask", "--json")
    assert (begun.code, begun.object["status"]) == (3, "paused"), begun.object["error"]
    assert "failed with exit code 1" in bare_cli.call("show", begun.object["run"]).out


def test_a_skill_uses_an_address_that_a_manager_keeps(bare_cli: CommandLine, manager: Path) -> None:
    with web_service(lambda asked: (200, {"path": asked.path})) as service:
        lab = '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"'
        skill = '[skills.notification]\nNOTIFICATION_WEBHOOK_URL = "secret:deploy"'
        bare_cli.config.write_text(f'model = "lab/small"\n{bare_cli.config.read_text()}\n{lab}\n{skill}\n')
        hosts = f'[egress]\nallow = ["http://{service.place}/*"]\n'
        allowed = "".join(f'[{one}]\nallow = ["*"]\n' for one in ("tools", "secrets"))
        (bare_cli.config.parent / "policy.toml").write_text(hosts + allowed)
        _answers(manager, f"echo http://{service.place}/hook/{VALUE}")
        call = '@tool(builtin, notify_webhook, {"payload": {"a": 1}})'
        ran = bare_cli.call("run", bare_cli.write("call.md", f"# Call\n\n## STEP 1: Call\n\n{call}\n"), "--json")
    assert ran.code == 0, ran.err
    (asked,) = service.requests
    assert (asked.path, asked.json) == (f"/hook/{VALUE}", {"a": 1})
    assert VALUE not in ran.out + ran.err, "it comes back in the answer"
