"""Files, rollbacks, children, earlier runs and edits together, through the real command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.command_line import CommandLine

CHILD = """\
name: Child
steps:
  - id: make
    command: cli cp made.bin out.bin
    files: {report: out.bin}
"""
PARENT = """\
name: Parent
steps:
  - id: check
    playbook: child.yml
  - id: use
    command: cli cp got.bin used.bin
    takes: {got.bin: $check.files.report}
    files: {same: used.bin}
"""
RESTORE = """\
name: Restore
steps:
  - id: backup
    command: cli cat config.bin
    effect: read
    output: {type: text, truncated: accept}
    files: {old: config.bin}
  - id: change
    command: cli tee config.bin
    stdin: new
    rollback:
      command: cli wc -c config.bin
      takes: {config.bin: $backup.files.old}
  - id: fail
    command: cli false
"""
WATCH = """\
name: Watch
args: {size: {type: integer, default: 0}}
steps:
  - id: build
    command: cli tee a.txt
    stdin: "${default(state.runs, 0)} ${default(previous.build.stdout, 'nothing')}"
    files: {a: a.txt}
    state: {digest: "${build.files.a.digest}", runs: "${build.files.a.size}"}
  - id: check
    command: cli false
"""
BINARY = bytes(range(256)) * 4


@pytest.fixture
def allowed(cli: CommandLine) -> CommandLine:
    cli.config.parent.mkdir(parents=True, exist_ok=True)
    (cli.config.parent / "policy.toml").write_text(
        'from_outside = "allow"\n\n[commands]\nallow = ["*"]\n[files]\nallow = ["read:**", "write:**"]\n'
    )
    return cli


def run(cli: CommandLine, text: str, *more: str) -> Any:
    cli.write("book.yml", text)
    return cli.call("run", "book.yml", "--no-ask", "--json", *more).object


def test_a_file_of_a_child_is_taken_by_its_parent(allowed: CommandLine) -> None:
    cli = allowed
    cli.write("child.yml", CHILD)
    (cli.work / "made.bin").write_bytes(BINARY)
    done = run(cli, PARENT)
    assert done["status"] == "completed", done["error"]
    assert (cli.work / "used.bin").read_bytes() == BINARY
    listed = {(one["step"], one["name"]): one["digest"] for one in done["files"]}
    assert listed["check", "report"] == listed["use", "same"]
    assert cli.call("audit", done["run"], "--verify").code == 0
    missing = run(cli, PARENT.replace("files.report", "files.reprot"))
    assert "it takes the file reprot of step check, which did not produce it" in missing["error"]["message"]


def test_a_rollback_restores_a_file_of_an_earlier_step(allowed: CommandLine) -> None:
    cli = allowed
    (cli.work / "config.bin").write_bytes(BINARY)
    failed = run(cli, RESTORE)
    (offer,) = failed["waits"]
    (old,) = failed["files"]
    assert (cli.work / "config.bin").read_bytes() == b"new"
    assert old["digest"][:12] in str(offer["approval"]["preview"])
    ended = cli.call("decide", offer["short_id"], "approve", "--json").object
    assert "Undone: change." in ended["error"]["message"]
    assert (cli.work / "config.bin").read_bytes() == BINARY


def test_an_edited_run_keeps_its_files_and_what_it_kept_for_later(allowed: CommandLine) -> None:
    cli = allowed
    failed = run(cli, WATCH)
    (first,) = failed["files"]
    assert (cli.work / "a.txt").read_text() == "0 nothing"
    cli.write("fixed.yml", WATCH.replace("cli false", "cli cat b.txt\n    takes: {b.txt: $build.files.a}"))
    edited = cli.call("resume", failed["run"], "--with", "fixed.yml", "--yes", "--json").object
    assert (edited["status"], edited["outputs"]["check"]) == ("completed", "0 nothing")
    assert [(one["step"], one["digest"]) for one in edited["files"]] == [("build", first["digest"])]  # not built again
    kept = cli.call("state", "show", "book.yml", "--json").object[0]["values"]
    assert {one["name"]: one["value"] for one in kept} == {"digest": first["digest"], "runs": 9}
    run(cli, WATCH)
    assert (cli.work / "a.txt").read_text() == "9 0 nothing"  # the edited run is the last that completed


def test_what_playbooks_keep_is_shown_and_cleared_with_a_record(allowed: CommandLine) -> None:
    cli = allowed
    run(cli, WATCH)
    for name, role in (("vera", "viewer"), ("rose", "runner")):
        cli.call("users", "add", name, "--role", role)
    listed = cli.call("state", "list", "--as", "vera")
    assert (listed.code, listed.out) == (0, f"book.yml  {cli.work}  digest, runs\n")
    refused = cli.call("state", "clear", "book.yml", "--as", "vera")
    assert (refused.code, "requires the role runner" in refused.err) == (5, True)
    unknown = cli.call("state", "clear", "book.yml", "rnus", "--as", "rose")
    assert "keeps no value 'rnus'. It keeps digest, runs." in unknown.err
    assert cli.call("state", "clear", "book.yml", "runs", "--as", "rose").code == 0
    shown = cli.call("state", "show", "book.yml").out
    assert "runs: cleared by rose on " in shown
    assert "digest = " in shown
    assert cli.call("state", "clear", "book.yml", "--workspace", str(cli.home)).code != 0
    assert cli.call("state", "clear", "book.yml").out == f"Cleared digest of book.yml in {cli.work}.\n"
    run(cli, WATCH)
    assert (cli.work / "a.txt").read_text() == "0 nothing"
    assert "No playbook keeps values" not in cli.call("state", "list").out
