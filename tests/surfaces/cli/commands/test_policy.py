"""`cuebook policy` shows what would happen and which line decides, and stores overrides."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from cuebook.kernel.journal import Place
from cuebook.kernel.run import WaitRow
from cuebook.surfaces.cli.next_steps import approval_lines
from tests.support.command_line import CommandLine

PROJECT = """\
commands:
  allow: ["git *"]
  ask: ["git push*"]
"""


def users(cli: CommandLine, text: str) -> Path:
    path = cli.home / "config" / "cuebook" / "policy.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_test_says_what_would_happen_and_which_line_decides(bare_cli: CommandLine) -> None:
    path = users(bare_cli, '[commands]\nallow = ["ls *"]\ndeny = ["rm *"]\n')
    allowed = bare_cli.call("policy", "test", "command", "ls", "-la")
    assert (allowed.code, allowed.out.splitlines()[0]) == (0, "allow: command ls -la")
    denied = bare_cli.call("policy", "test", "command", "bash", "-c", "ls x && rm -rf y")
    assert denied.code == 5
    assert f"decided by: commands.deny 'rm *' ({path}:3)" in denied.out
    asked = bare_cli.call("policy", "test", "command", "git", "push", "-f", "--json", "-h")
    assert asked.code == 3
    assert "ask: command git push -f --json -h\n" in asked.out
    assert f"user: {path} has no rule for it" in asked.out
    assert "cuebook policy allow command 'git push*'" in asked.out


@pytest.mark.parametrize(
    ("words", "target", "code"),
    [
        (["http", "POST", "https://api.example.com/x?token=1#y"], "POST https://api.example.com/x", 3),
        (["http", "https://api.example.com/x"], "GET https://api.example.com/x", 3),
        (["egress", "get", "https://api.example.com\\@evil.net/"], "GET https://api.example.com\\@evil.net/", 5),
        (["tool", "github.create_issue"], "github.create_issue", 3),
        (["secret", "env:TOKEN"], "env:TOKEN", 3),
        (["file", "read:src/a.py"], "read:src/a.py", 0),
        (["files", "write:../a.py"], "write:../a.py", 5),
        (["model", "openai/gpt-5"], "openai/gpt-5", 0),
    ],
)
def test_every_kind_of_action_can_be_tested(bare_cli: CommandLine, words: list[str], target: str, code: int) -> None:
    ran = bare_cli.call("policy", "test", "--json", *words)
    assert ran.code == code
    assert ran.object["action"]["target"] == target
    assert ran.object["decided_by"][0]["where"] == "default"


def test_a_command_is_tested_in_the_folder_it_would_run_in(bare_cli: CommandLine) -> None:
    users(bare_cli, '[commands]\nallow = ["git status", "cd app && git log"]\n')
    elsewhere = bare_cli.call("policy", "test", "--cwd", "assets/x.git", "command", "git", "status")
    assert (elsewhere.code, elsewhere.out.splitlines()[0]) == (3, "ask: command cd assets/x.git && git status")
    assert "cuebook policy allow command 'cd assets/x.git && git status'" in elsewhere.out
    assert bare_cli.call("policy", "test", "--cwd", "./", "command", "git", "status").code == 0
    assert bare_cli.call("policy", "test", "--cwd", "app/", "command", "git", "log").code == 0
    assert bare_cli.call("policy", "test", "--cwd", "../app", "command", "git", "log").code == 2
    assert bare_cli.call("policy", "test", "--cwd", "app", "tool", "Read").code == 2


def test_a_repository_that_came_along_runs_nothing_by_a_rule_about_git(bare_cli: CommandLine) -> None:
    """Settings of a bare repository name a program that `git status` starts; a rule allows `git status`."""
    users(bare_cli, '[commands]\nallow = ["git status"]\n')
    repository = bare_cli.work / "assets" / "x.git"
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    with open(repository / "config", "a") as file:
        file.write(f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {bare_cli.work}/OWNED; true\n")
    playbook = bare_cli.write(
        "innocent.yml",
        "id: innocent\nname: Innocent\nversion: 1.0.0\nsteps:\n"
        "  - id: look\n    command: cli git status\n    cwd: assets/x.git\n",
    )
    ran = bare_cli.call("run", str(playbook))
    assert "approval" in ran.out + ran.err, ran
    assert not (bare_cli.work / "OWNED").exists()


def test_what_only_reads_is_tested_as_such(bare_cli: CommandLine) -> None:
    assert bare_cli.call("policy", "test", "tool", "look").code == 3
    assert bare_cli.call("policy", "test", "--reads-only", "tool", "look").code == 0


@pytest.mark.parametrize(
    "words",
    [
        *([], ["zork", "x"], ["tool"], ["tool", "a", "b"], ["command"], ["file", "a"]),
        *(["http"], ["http", "a", "b", "c"], ["http", "GET"], ["http", "example.com"], ["http", "POST", "example.com"]),
    ],
)
def test_an_action_that_cannot_be_read_is_bad_usage(bare_cli: CommandLine, words: list[str]) -> None:
    ran = bare_cli.call("policy", "test", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


def test_a_tool_is_tested_as_it_is_marked(bare_cli: CommandLine) -> None:
    read = bare_cli.call("policy", "test", "tool", "Read")
    assert (read.code, "note: It only reads." in read.out) == (0, True)
    assert bare_cli.call("policy", "test", "tool", "Write").code == 3
    marked = bare_cli.call("policy", "test", "--reads-only", "tool", "Write")
    assert (marked.code, "note: It may change something." in marked.out) == (3, True)
    unknown = bare_cli.call("policy", "test", "--json", "tool", "Raed").object
    assert unknown["notes"] == ["There is no tool named 'Raed'. The test assumes that it may change something."]
    assert bare_cli.call("policy", "test", "--json", "tool", "network").object["notes"] == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/x",
        "http://localhost/",
        "http://[::1]/",
        "http://10.0.0.7/",
        "http://169.254.169.254/latest/meta-data/",
        "http://printer.local/",
    ],
)
def test_an_address_that_is_out_of_bounds_is_denied_unless_a_rule_names_it(bare_cli: CommandLine, url: str) -> None:
    users(bare_cli, '[egress]\nallow = ["*"]\n')
    ran = bare_cli.call("policy", "test", "http", url)
    assert (ran.code, "refused unless an egress rule names the host" in ran.out) == (5, True)
    assert "policy allow" not in ran.out
    origin = "/".join(url.split("/")[:3])
    users(bare_cli, f'[egress]\nallow = ["{origin}/*"]\n')
    assert bare_cli.call("policy", "test", "http", url).code == 0


def test_no_override_brings_a_host_of_this_machine_within_reach(bare_cli: CommandLine) -> None:
    made = bare_cli.call("policy", "allow", "egress", "http://127.0.0.1:8080/*")
    assert (made.code, "stays unreachable" in made.err) == (0, True)
    assert bare_cli.call("policy", "test", "http", "http://127.0.0.1:8080/x").code == 5
    assert bare_cli.call("policy", "allow", "egress", "https://example.com/*").err == ""


def test_a_command_is_held_to_reading_only_where_something_holds_it(bare_cli: CommandLine) -> None:
    words = ["policy", "test", "--reads-only", "command", "ls"]
    assert bare_cli.call(*words).code == 0
    users(bare_cli, '[files]\ndeny = ["**/.env"]\n')
    kept = bare_cli.call(*words)
    assert (kept.code, "could read files that the policy protects" in kept.out) == (3, True)
    users(bare_cli, "")
    bare_cli.environ["CUEBOOK_SANDBOX"] = "none"
    loose = bare_cli.call(*words)
    assert (loose.code, "note: Without a sandbox" in loose.out) == (3, True)


def test_a_command_in_quotes_is_one_word_and_that_is_reported(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("policy", "test", "command", "git push")
    assert ran.err == "cuebook: 'git push' is treated as the name of a single program. Omit the quotes.\n"
    assert ran.out.startswith("ask: command 'git push'\n")
    assert bare_cli.call("policy", "test", "command", "git", "a b").err == ""


def test_looking_at_the_policy_leaves_no_store_even_on_a_disk_that_cannot_be_written(bare_cli: CommandLine) -> None:
    (bare_cli.work / "file").write_text("no folder can be made below it")
    for store in (bare_cli.store, bare_cli.work / "file" / "cuebook.db"):
        bare_cli.environ["CUEBOOK_STORE"] = str(store)
        before = bare_cli.files()
        for words, code in (
            (["policy", "test", "tool", "x"], 3),
            (["policy", "show"], 0),
            (["policy", "overrides"], 0),
            (["policy", "revoke", "o1"], 2),
            (["policy", "trust"], 2),
            (["policy", "trust", "missing.toml"], 2),
            (["policy", "trust", "--revoke", "missing.toml"], 0),
            (["policy", "allow", "tool", "deploy", "--as", "eve"], 2),
            (["secrets", "list"], 0),
            (["secrets", "check"], 0),
            (["secrets", "remove", "x"], 2),
            (["users", "list"], 0),
            (["users", "remove", "eve"], 2),
        ):
            ran = bare_cli.call(*words)
            assert (words, ran.code, ran.err.count("\n")) == (words, code, int(code == 2))
        assert bare_cli.files() == before


def test_a_mistake_in_a_file_is_reported_before_anything_is_decided(bare_cli: CommandLine) -> None:
    path = users(bare_cli, '[commands]\nalow = ["ls"]\n')
    for words in (["test", "tool", "x"], ["show"]):
        ran = bare_cli.call("policy", *words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"cuebook: {path}:2: there is no setting 'commands.alow'. Did you mean 'allow'?\n"


def test_a_projects_file_allows_only_what_was_trusted_as_it_was_shown(bare_cli: CommandLine) -> None:
    path = bare_cli.write("cuebook.policy.yaml", PROJECT)
    before = bare_cli.call("policy", "test", "command", "git", "log")
    assert (before.code, "ignored: the file is not trusted" in before.out) == (3, True)
    assert "not trusted" in bare_cli.call("policy", "show").out

    trusted = bare_cli.call("policy", "trust")
    assert trusted.code == 0
    assert '|   allow: ["git *"]\n' in trusted.out
    assert bare_cli.call("policy", "test", "command", "git", "log").code == 0
    assert bare_cli.call("policy", "test", "command", "git", "push").code == 3
    assert f"project: {path} (trusted)" in bare_cli.call("policy", "show").out

    path.write_text(PROJECT.replace("git *", "*"))
    assert bare_cli.call("policy", "test", "command", "git", "log").code == 3
    assert bare_cli.call("policy", "trust", path).code == 0
    assert bare_cli.call("policy", "test", "command", "git", "log").code == 0
    assert "is no longer trusted" in bare_cli.call("policy", "trust", "--revoke").out
    assert "was not trusted" in bare_cli.call("policy", "trust", "--revoke").out
    assert bare_cli.call("policy", "test", "command", "git", "log").code == 3


def test_files_above_count_too_and_are_trusted_one_by_one(bare_cli: CommandLine) -> None:
    above = bare_cli.work.parent / "cuebook.policy.toml"
    above.write_text('[commands]\nallow = ["git *"]\ndeny = ["rm *"]\n')
    below = bare_cli.write("cuebook.policy.yml", 'commands:\n  allow: ["git *", "rm *"]\n')
    trusted = bare_cli.call("policy", "trust")
    assert f"{below} is trusted as shown" in trusted.out
    assert (
        f"{above} also applies here, but this command does not trust it: cuebook policy trust {above}\n" in trusted.out
    )
    assert bare_cli.call("policy", "test", "command", "git", "log").code == 0
    assert bare_cli.call("policy", "test", "command", "rm", "x").code == 5
    shown = bare_cli.call("policy", "show").out
    assert f"project: {below} (trusted)" in shown
    assert (
        f"project: {above} (not trusted: it can only restrict actions; `cuebook policy trust {above}` trusts it)"
        in shown
    )


def test_a_file_is_shown_as_it_is_when_it_is_trusted(bare_cli: CommandLine) -> None:
    bare_cli.write("cuebook.policy.toml", '# \u202e\n[tools]\nallow = ["x"]\n')
    shown = bare_cli.call("policy", "trust").out
    assert "\u202e" not in shown
    assert "| # <U+202E>\n" in shown
    none = bare_cli.call("policy", "trust", "missing.toml")
    assert (none.code, "cannot be read" in none.err) == (2, True)
    bare_cli.write("cuebook.policy.toml", "[tools]\nalow = []\n")
    wrong = bare_cli.call("policy", "trust")
    assert (wrong.code, "tools.alow" in wrong.err) == (2, True)


def test_without_a_projects_file_there_is_nothing_to_trust(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("policy", "trust")
    assert (ran.code, ran.err.startswith("cuebook: There is no cuebook.policy.toml")) == (2, True)


def test_the_policy_in_force_is_shown_with_its_lines_and_defaults(bare_cli: CommandLine) -> None:
    empty = bare_cli.call("policy", "show")
    assert "There are no policy files" in empty.out
    path = users(
        bare_cli, 'allowed_domains = ["a.example"]\n[tools]\ndefault = "deny"\n[approvals]\nexpires_after = "8h"\n'
    )
    shown = bare_cli.call("policy", "show").out
    assert f"user: {path} (yours)\n" in shown
    assert "  tools.default 'deny'  (line 3)\n" in shown
    assert "  allowed_domains 'a.example'  (line 1)\n" in shown
    assert "expire: 8 h\n" in shown
    found = bare_cli.call("policy", "show", "--json").object
    assert found["layers"][0]["bundle"]["tools"] == {"default": "deny"}
    assert found["approvals"]["expires_after"] == 8 * 3600
    assert set(found["built_in"]) == {"tools", "commands", "egress", "secrets", "files", "models"}


def test_what_is_allowed_beforehand_holds_until_it_is_revoked(bare_cli: CommandLine) -> None:
    assert (
        bare_cli.call("policy", "overrides").out
        == "There are no overrides. `cuebook policy allow DOMAIN PATTERN` adds one.\n"
    )
    made = bare_cli.call("policy", "allow", "commands", "git push*", "--for", "8h", "--json")
    assert (made.code, made.object["domain"], made.object["state"]) == (0, "command", "holds")
    assert made.object["expires"] - made.object["created"] == 8 * 3600
    said = bare_cli.call("policy", "allow", "egress", "https://api.example.com/*", "--for", "never")
    assert "is allowed until it is revoked.\n" in said.out

    ran = bare_cli.call("policy", "test", "command", "git", "push", "origin")
    assert (ran.code, f"override {made.object['id']}" in ran.out) == (0, True)
    assert bare_cli.call("policy", "test", "http", "POST", "https://api.example.com/x").code == 0
    assert len(bare_cli.call("policy", "overrides").out.splitlines()) == 2

    revoked = bare_cli.call("policy", "revoke", made.object["id"])
    assert (revoked.code, revoked.out) == (0, f"{made.object['id']} is revoked.\n")
    assert bare_cli.call("policy", "test", "command", "git", "push", "origin").code == 3
    listed = json.loads(bare_cli.call("policy", "overrides", "--json").out)
    assert [one["state"] for one in listed] == ["revoked", "holds"]
    assert bare_cli.call("policy", "revoke", "nothing").code == 2


def test_what_is_allowed_beforehand_ends_after_a_week_if_nothing_else_is_said(bare_cli: CommandLine) -> None:
    made = bare_cli.call("policy", "allow", "tool", "deploy", "--json").object
    assert made["expires"] - made["created"] == 7 * 86400


def test_an_override_does_not_get_past_a_deny(bare_cli: CommandLine) -> None:
    users(bare_cli, '[commands]\ndeny = ["git push*"]\n')
    assert bare_cli.call("policy", "allow", "command", "git push origin").code == 0
    assert bare_cli.call("policy", "test", "command", "git", "push", "origin").code == 5


@pytest.mark.parametrize(
    "words",
    [
        ["command", "git *"],
        ["command", "*"],
        ["command", "bash -c*"],
        ["secret", "env:*"],
        ["egress", "https://*"],
        ["egress", "example.com"],
        ["secret", "nonsense"],
        ["command", "git -*"],
        ["tool", "x*"],
        ["zork", "x"],
        ["command", "git push", "--for", "soon"],
    ],
)
def test_an_override_that_is_too_wide_is_not_made(bare_cli: CommandLine, words: list[str]) -> None:
    ran = bare_cli.call("policy", "allow", *words)
    assert (ran.code, ran.out) == (2, "")
    assert (
        bare_cli.call("policy", "overrides").out
        == "There are no overrides. `cuebook policy allow DOMAIN PATTERN` adds one.\n"
    )


def test_only_who_may_can_allow_and_trust(bare_cli: CommandLine) -> None:
    bare_cli.write("cuebook.policy.toml", "")
    bare_cli.call("users", "add", "eve", "--role", "viewer")
    for words in (["allow", "tool", "x"], ["trust"]):
        ran = bare_cli.call("policy", *words, "--as", "eve")
        assert (ran.code, "eve may not" in ran.err, ran.out) == (5, True, "")


def test_what_to_type_for_always_can_be_pasted_into_a_shell() -> None:
    pattern = "git commit -m 'it'\\''s done'"
    wait = WaitRow(
        id="w1",
        run="r1",
        tenant="local",
        owner="local",
        place=Place(),
        kind="approval",
        prompt="Run it?",
        purpose="",
        details={"always": [["command", pattern]]},
    )
    line = next(line for line in approval_lines(wait) if line.startswith("always:"))
    assert shlex.split(line)[1:] == ["cuebook", "policy", "allow", "command", pattern]


def test_the_help_of_users_says_that_an_approver_may_allow_beforehand(bare_cli: CommandLine) -> None:
    said = " ".join(bare_cli.call("users", "add", "--help").out.split())
    assert "approver: approve or deny actions of runs, also in advance." in said
