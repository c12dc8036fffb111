"""`cuebook audit --admin`, and the audit of many runs as one file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.support.command_line import CommandLine


def store_of(cli: CommandLine) -> Path:
    return next(cli.home.rglob("cuebook.db"))


def test_what_was_done_to_users_secrets_and_policy_is_listed(cli: CommandLine) -> None:
    assert cli.call("users", "add", "ann", "--role", "viewer").code == 0
    assert cli.call("users", "grant", "ann", "--role", "admin").code == 0
    assert cli.call("users", "join", "ann", "--team", "ops").out == "ann: viewer, admin; in ops\n"
    token = cli.call("users", "token", "ann", "--as", "ann", "--json").object["token"]
    assert cli.call("secrets", "add", "mail", "env:MAIL_TOKEN").code == 0
    assert cli.call("policy", "preset", "agent").code == 0
    refused = cli.call("users", "add", "ann", "--role", "admin")
    assert (refused.code, "users grant ann" in refused.err) == (2, True)
    assert cli.call("users", "remove", "ann").code == 0

    shown = cli.call("audit", "--admin")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert [line.split("  ")[1].split(" by ")[0] for line in lines[:4]] == [
        "user.add ann",
        "user.grant ann",
        "user.join ann",
        "user.token ann",
    ]
    assert ": roles viewer, now viewer, admin" in lines[1]
    assert " by ann (terminal, " in lines[3]
    assert "secret.add mail by local" in shown.out
    assert "policy.preset " in shown.out
    assert lines[-1].startswith(f"{len(lines) - 1} acts, unbroken, head ")
    assert token not in shown.out

    found = cli.call("audit", "--admin", "--json").object
    assert found["chain"]["broken"] is None
    assert {act["what"] for act in found["acts"]} >= {"user.remove", "secret.add"}
    assert cli.call("audit", "--admin", "--since", "2999-01-01", "--json").object["acts"] == []
    wrong = cli.call("audit", "--admin", "--since", "yesterday")
    assert (wrong.code, "--since: cannot read 'yesterday'" in wrong.err) == (2, True)


def test_a_deleted_act_is_noticed(cli: CommandLine) -> None:
    for name in ("ann", "bob", "eve"):
        cli.call("users", "add", name, "--role", "viewer")
    with sqlite3.connect(store_of(cli)) as connection:
        connection.execute("DROP TRIGGER admin_acts_stay")
        connection.execute("DELETE FROM admin_acts WHERE seq = 2")
    ran = cli.call("audit", "--admin", "--verify")
    assert (ran.code, "the audit is broken at act 2: act 2 is missing" in ran.err) == (1, True)


def test_an_export_says_that_acts_are_missing_at_the_end(cli: CommandLine) -> None:
    cli.call("evidence", "keygen", "key")
    cli.config.write_text(f'{cli.config.read_text()}\n[evidence]\nkey = "file:{cli.work}/key"\n')
    for name in ("ann", "bob"):
        cli.call("users", "add", name, "--role", "viewer")
    with sqlite3.connect(store_of(cli)) as connection:
        connection.execute("DROP TRIGGER admin_acts_stay")
        connection.execute("DELETE FROM admin_acts WHERE seq = 2")
    for number, flags in enumerate(([], ["--admin"], ["--since", "2999-01-01"])):
        written = cli.call("audit", "--export", f"{number}.jsonl", *flags)
        assert (written.code, "2 acts were recorded, but 1 are there" in written.err) == (1, True)
        for read in (
            cli.call("audit", "--file", f"{number}.jsonl"),
            cli.call("evidence", "verify", f"{number}.jsonl", "--key", "key.pub"),
        ):
            assert (read.code, "acts was already broken when the file was written" in read.err) == (1, True), read.err


def test_only_an_admin_reads_it(cli: CommandLine) -> None:
    cli.call("users", "add", "ann", "--role", "viewer")
    ran = cli.call("audit", "--admin", "--as", "ann")
    assert (ran.code, "requires the role admin" in ran.err) == (5, True)


def test_the_audit_of_many_runs_is_one_file_that_anyone_can_verify(cli: CommandLine) -> None:
    runs = {cli.call("run", "tea.md", "--json").object["run"] for _ in range(2)}
    cli.call("users", "add", "ann", "--role", "viewer")
    written = cli.call("audit", "--export", "all.jsonl", "--since", "1h")
    assert (written.code, written.err) == (0, "")
    assert written.out.startswith("2 runs and 1 administrative act in all.jsonl, head of the acts ")
    assert (cli.work / "all.jsonl").stat().st_mode & 0o777 == 0o600

    store_of(cli).unlink()
    read = cli.call("audit", "--file", "all.jsonl")
    assert read.code == 0, read.err
    assert {line.split("  ")[0] for line in read.out.splitlines()[:2]} == runs
    assert "2 runs and 1 administrative act, unbroken" in read.out
    assert cli.call("audit", "--file", "all.jsonl", "--json").object["broken"] == []

    whole = (cli.work / "all.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    for changed, words in (
        (whole.replace('\\"subject\\":\\"ann\\"', '\\"subject\\":\\"eve\\"'), "administrative act 1: it was changed"),
        ("".join(lines[:1] + lines[2:]), "the lines do not match the last one"),
        ("".join(lines[:-1]), "the end is missing"),
        (whole + lines[1], "there are lines after the end"),
        (whole.replace("Choose a ", "Choose no "), "is broken at record"),
    ):
        assert changed != whole
        (cli.work / "changed.jsonl").write_text(changed)
        ran = cli.call("audit", "--file", "changed.jsonl")
        assert (ran.code, words in ran.err) == (1, True), (words, ran.err)
    again = cli.call("audit", "--export", "all.jsonl")
    assert again.code == 2


def test_acts_alone_can_be_exported(cli: CommandLine) -> None:
    for name in ("ann", "bob"):
        cli.call("users", "add", name, "--role", "viewer")
    assert cli.call("audit", "--admin", "--export", "acts.jsonl").out.startswith("0 runs and 2 administrative acts")
    assert cli.call("audit", "--file", "acts.jsonl").code == 0
