"""`cuebook resume RUN --with FILE`: the table, the confirmation, and the run that continues; children on the command line."""

from __future__ import annotations

import pytest

from tests.service.children.test_children import PIPELINE as KID
from tests.service.children.test_children import calls
from tests.service.test_edits import PIPELINE
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(bare_cli: CommandLine) -> CommandLine:
    bare_cli.config.parent.mkdir(parents=True)
    (bare_cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    return bare_cli


def test_a_run_continues_with_a_changed_file(cli: CommandLine) -> None:
    cli.write("log.yml", PIPELINE)
    run = cli.call("run", "log.yml", "--json").object["run"]
    cli.write("log.yml", PIPELINE.replace("echo four", "echo vier"))
    asked = cli.call("resume", run, "--with", "log.yml")
    assert asked.code == 2
    assert "needs your confirmation" in asked.err
    assert [line.split()[:2] for line in asked.err.splitlines()[:5]] == [
        ["STEP", "VERDICT"],
        ["one", "kept"],
        ["two", "kept"],
        ["three", "redone"],
        ["four", "changed"],
    ]
    assert cli.call("show", run, "--json").object["status"] == "awaiting_approval"
    made = cli.call("resume", run, "--with", "log.yml", "--yes", "--json").object
    assert made["parent"] == run
    assert "continued:" in cli.call("show", run).out
    assert cli.call("show", run, "--json").object["superseded_by"] == made["run"]
    refused = cli.call("retry", run)
    assert refused.code == 2
    assert made["run"] in refused.err
    assert cli.call("decide", made["run"], "approve", "--json").object["status"] == "completed"
    assert (cli.work / "log").read_text().split() == ["one", "two", "three", "vier"]


def test_show_links_a_parent_and_its_child(cli: CommandLine) -> None:
    cli.write("kid.yml", KID)
    cli.write("parent.yml", calls("kid.yml"))
    run = cli.call("run", "parent.yml", "--json").object["run"]
    shown = cli.call("show", run)
    child = cli.call("show", run, "--json").object["children"][0]["run"]
    assert f"started these runs:\n  {child}  kid.yml, awaiting approval" in shown.out
    assert f"started by run {run}" in cli.call("show", child).out
    inbox = cli.call("inbox").out
    assert run in inbox
    assert child not in inbox
    assert cli.call("cancel", child).code == 2
    assert "status: cancelled" in cli.call("cancel", run).err
    assert cli.call("show", child, "--json").object["status"] == "cancelled"
