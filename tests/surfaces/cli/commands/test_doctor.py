"""`cuebook doctor` reports what is installed, where each value comes from, and what is missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.support.command_line import CommandLine
from tests.support.oidc_provider import oidc_provider


def test_a_machine_that_is_ready(cli: CommandLine) -> None:
    before = cli.files()
    ran = cli.call("doctor")
    assert ran.code == 0
    assert "model     test/echo-1 (ready)" in ran.out
    assert f"store     {cli.store} (does not exist yet; the first run creates it)" in ran.out
    assert "CUEBOOK_STORE" in ran.out
    assert cli.files() == before
    found = cli.call("doctor", "--json").object
    assert found["ready"] is True
    assert found["settings"]["model"] == {"value": "test/echo-1", "origin": f"{cli.config}:1"}
    assert found["keyring"]["usable"] is False
    names = [provider["name"] for provider in found["providers"]]
    assert names == ["local", "openai", "anthropic", "openrouter", "ollama", "test"]


def test_a_machine_that_is_not(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("doctor")
    assert ran.code == 2
    assert "model     local/smollm2-135m (not usable)" in ran.out
    assert "Run `cuebook models install local` once (98 MB)." in ran.out
    bare_cli.write("notes.db", "This is no store. " * 100)
    broken = bare_cli.call("doctor", "--store", "notes.db", "--json").object
    assert "Cannot read" in broken["store"]["problem"]


def test_a_database_of_another_program_is_not_a_store(cli: CommandLine) -> None:
    with closing(sqlite3.connect(cli.work / "other.db")) as other, other:
        other.execute("CREATE TABLE contacts (name TEXT)")
    ran = cli.call("doctor", "--store", "other.db")
    assert ran.code == 2
    assert "not a Cuebook store" in ran.out


def test_a_policy_that_cannot_be_read_keeps_a_run_from_starting(cli: CommandLine) -> None:
    path = cli.write("cuebook.policy.toml", "[tools]\nalow = []\n")
    ran = cli.call("doctor")
    assert ran.code == 2
    assert f"policy    BROKEN: {path}:2: there is no setting 'tools.alow'." in ran.out
    assert cli.call("run", "tea.md").code == 2
    found = cli.call("doctor", "--json").object
    assert (found["ready"], found["policy"]) == (False, [])
    assert "tools.alow" in found["policy_problem"]


def test_the_trust_of_the_projects_policy_is_reported(cli: CommandLine) -> None:
    path = cli.write("cuebook.policy.toml", '[tools]\nallow = ["x"]\n')
    assert f"policy    {path} (project, not trusted: it can only restrict actions)" in cli.call("doctor").out
    cli.call("policy", "trust")
    before = cli.files()
    assert f"policy    {path} (project, trusted)" in cli.call("doctor").out
    assert cli.files() == before
    path.write_text("")
    assert cli.call("doctor", "--json").object["policy"] == [{"whose": "project", "path": str(path), "trusted": False}]


def test_python_tools_are_listed_with_whether_they_load(cli: CommandLine) -> None:
    (cli.home / "mods").mkdir()
    (cli.home / "mods" / "my_tools.py").write_text("def greet(name: str) -> str:\n    return name\n")
    cli.environ["PYTHONPATH"] += f":{cli.home / 'mods'}"
    cli.config.write_text(cli.config.read_text() + '[tools]\ngreet = "my_tools:greet"\ngone = "no_such:tool"\n')
    ran = cli.call("doctor")
    assert ran.code == 0
    assert "tools     greet: my_tools:greet (loads)\n" in ran.out
    assert "tools     gone: no_such:tool (cannot be loaded)\n" in ran.out
    assert "The tool 'gone' cannot be loaded from no_such:tool: No module named 'no_such'." in ran.out


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PAUSE_EXPIRY", "", "24 h"),
        ("PAUSE_EXPIRY", "never", "never"),
        ("PAUSE_EXPIRY", "7d", "7 d"),
        ("PAUSE_EXPIRY", "90", "90 s"),
        ("RETENTION_OLDER_THAN", "90d", "90 d"),
        ("RETENTION_OLDER_THAN", "", "none"),
        ("RETENTION_LARGER_THAN", "1MB", "1 MiB"),
        ("RETENTION_SENSITIVE", "", "7 d"),
        ("RATE_LIMIT", "60/hour", "60/hour"),
        ("LIMITS_MEMORY", "", "1 GiB"),
        ("LIMITS_REPLY", "", "8 MiB"),
        ("LIMITS_MEMORY", "1000001", "1,000,001 bytes"),
        ("LIMITS_OUTPUT", "", "32 KiB"),
        ("LIMITS_TENANT_RUNS", "", "none"),
        ("LIMITS_TENANT_RUNS", "5", "5"),
        ("PASS_ENV", "", "none"),
        ("PASS_ENV", "LANG,EDITOR", "LANG, EDITOR"),
    ],
)
def test_values_are_shown_as_a_person_would_say_them(cli: CommandLine, name: str, value: str, shown: str) -> None:
    cli.environ[f"CUEBOOK_{name}"] = value
    setting = name.lower().replace("limits_", "limits.").replace("retention_", "retention.")
    line = next(line for line in cli.call("doctor").out.splitlines() if line.strip().startswith(f"{setting} "))
    assert line.strip().removeprefix(setting).strip().startswith(f"{shown}  ")


def test_the_limits_of_providers_are_shown(cli: CommandLine) -> None:
    with cli.config.open("a") as file:
        file.write("at_once = 8\nrequests_per_minute = 500\n")
    line = next(line for line in cli.call("doctor").out.splitlines() if line.startswith("  test "))
    assert line.endswith("needs no key; at most 8 calls at once, at most 500 calls a minute")
    found = {one["name"]: one for one in cli.call("doctor", "--json").object["providers"]}
    assert (found["test"]["at_once"], found["test"]["requests_per_minute"]) == (8, 500)
    assert (found["openai"]["at_once"], found["openai"]["requests_per_minute"]) == (None, None)


def test_a_store_in_the_workspace_is_reported(cli: CommandLine) -> None:
    assert "It is inside the workspace." not in cli.call("doctor").out
    assert "It is inside the workspace." in cli.call("doctor", "--store", cli.work / "runs.db").out


def test_a_user_with_a_reserved_name_is_reported(cli: CommandLine) -> None:
    cli.call("users", "add", "ann", "--role", "viewer")
    with sqlite3.connect(cli.store) as store:
        store.execute("UPDATE kept SET name = 'local' WHERE kind = 'user'")
    store.close()
    assert "`cuebook users remove local`" in cli.call("doctor").out


def test_coding_agents_are_listed_with_their_program_or_what_is_missing(cli: CommandLine) -> None:
    (cli.home / "bin").mkdir()
    program = cli.home / "bin" / "opencode"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    cli.environ["PATH"] = f"{cli.home / 'bin'}:/usr/bin:/bin"
    found = cli.call("doctor", "--json").object["agents"]
    by_name = {one["name"]: one for one in found}
    assert (by_name["opencode"]["program"], by_name["opencode"]["problem"]) == (str(program), "")
    assert "npm install -g @agentclientprotocol/codex-acp" in by_name["codex"]["problem"]
    assert f"agent     opencode: {program}" in cli.call("doctor").out


def test_the_identity_provider_is_asked(cli: CommandLine) -> None:
    with oidc_provider() as provider:
        cli.environ |= {"CUEBOOK_OIDC_ISSUER": provider.address, "CUEBOOK_OIDC_CLIENT_ID": "cuebook"}
        assert f"sign-in   {provider.address} (ready)" in cli.call("doctor").out
        assert cli.call("doctor", "--json").object["sign_in"] == {"issuer": provider.address, "problem": ""}
        provider.issuer = "https://evil.example"
        assert "calls itself https://evil.example" in cli.call("doctor").out
        provider.issuer = ""
        cli.environ["CUEBOOK_OIDC_CLIENT_SECRET"] = "env:NOT_SET_HERE"
        assert "NOT_SET_HERE" in cli.call("doctor").out


USED = """
[evidence]
key = "file:{key}"
[metrics]
token = "env:METRICS"
[otel]
endpoint = "http://127.0.0.1:4318"
headers = "env:HEADERS"
"""


def test_what_a_server_needs_to_start_and_to_sign_is_tried(cli: CommandLine) -> None:
    key = cli.work / "key"
    assert cli.call("evidence", "keygen", str(key)).code == 0
    cli.config.write_text(f'signing_key = "env:SIGNING"\n{cli.config.read_text()}{USED.format(key=key)}')
    broken = cli.call("doctor")
    for name in ("SIGNING", "METRICS", "HEADERS"):
        assert f"{name} is not set" in broken.out.partition("missing")[2], broken.out
    assert broken.code == 2, "no run starts without the key and the headers"
    cli.environ |= {"SIGNING": "s" * 32, "METRICS": "a-key-for-metrics", "HEADERS": "x-tenant=operations"}
    ready = cli.call("doctor")
    assert ready.code == 0, ready.out
    for name in ("signing_key", "evidence.key", "metrics.token", "otel.endpoint"):
        assert any(
            line.startswith(f"uses      {name}: ") and line.endswith("(ready)") for line in ready.out.splitlines()
        )
    key.chmod(0o644)
    assert "other users of this machine can access" in cli.call("doctor").out
    key.unlink()
    found = cli.call("doctor", "--json").object
    (problem,) = [one["problem"] for one in found["in_use"] if one["problem"]]
    assert str(key) in problem
    assert problem in found["missing"]
    assert found["ready"] is True, "runs start, only exports fail"
