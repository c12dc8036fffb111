"""The guide to people in playbooks: its playbooks have no findings and run as it says."""

from __future__ import annotations

import json

import pytest

from cuebook.dialects.pipeline.check import check
from tests.support.command_line import CommandLine, Ran
from tests.support.documentation import DOCS, Block, blocks
from tests.support.model_server import ModelServer

BLOCKS = blocks(DOCS / "guides" / "people.md")
PIPELINES = [block for block in BLOCKS if block.language == "yaml" and "\nsteps:\n" in block.text]
each = pytest.mark.parametrize("block", PIPELINES, ids=[f"line {one.line}" for one in PIPELINES])


@each
def test_nothing_is_wrong_with_a_pipeline_of_the_guide(block: Block) -> None:
    assert [one for one in check(block.text, "count.yml") if one.severity != "note"] == []


@each
def test_strict_mode_refuses_it(block: Block, cli: CommandLine) -> None:
    cli.write("a.yml", block.text)
    ran = cli.call("run", "a.yml", "--strict-spec")
    assert ran.code == 2
    assert "not in the published format" in ran.err


def test_a_question_is_answered_as_the_guide_says(cli: CommandLine) -> None:
    cli.write("maintenance.yml", PIPELINES[0].text)
    ran = cli.call("run", "maintenance.yml", "--no-ask", "--json")
    assert ran.code == 3
    (wait,) = ran.object["waits"]
    assert (wait["type"], wait["schema"]["required"]) == ("form", ["minutes"])
    wrong = cli.call("answer", wait["short_id"], '{"minutes": 90}')
    assert wrong.code == 2
    assert "90 is greater than the maximum of 60" in wrong.err
    done = cli.call("answer", wait["short_id"].upper(), '{"minutes": 5}', "--json")
    assert done.object["outputs"]["log"] == "down for 5 minutes\n"
    again = cli.call("run", "maintenance.yml", "--answer", 'window={"minutes": 6}', "--json")
    assert again.object["outputs"]["log"] == "down for 6 minutes\n"


def test_two_people_decide_as_the_guide_says(cli: CommandLine) -> None:
    for name, role in (("alice", "approver"), ("bob", "approver"), ("cleo", "approver"), ("boss", "admin")):
        assert cli.call("users", "add", name, "--role", role).code == 0
    cli.write("announce.yml", PIPELINES[1].text)
    asked = cli.call("run", "announce.yml", "--no-ask", "--json")
    assert asked.code == 3
    (wait,) = asked.object["waits"]
    short = wait["short_id"]
    assert wait["approval"]["preview"]["The announcement"].startswith("Version 1.2 is out.")

    def decide(who: str, decision: str = "approve", *more: str) -> Ran:
        return cli.call("decide", short, decision, "--as", who, "--json", *more)

    assert "cleo may not decide this: it is for alice, bob, role:admin" in decide("cleo").err
    assert decide("alice", "changes", "--reason", "Shorter").code == 3
    short = cli.call("inbox", "--json").object[0]["short_id"]
    assert decide("alice").object["waits"][0]["approval"]["votes_words"] == "1 of 2 approved: alice"
    assert "1 of 2 approved: alice" in cli.call("inbox").out
    assert "1 of 2 approved: alice" in cli.call("inbox", short).out
    assert "alice has already voted" in decide("alice").err
    assert decide("boss").object["status"] == "completed"
    assert (cli.work / "announcement.txt").read_text() == "Version 1.2 is out. Shorter\n"


def test_a_run_is_undone_as_the_guide_says(cli: CommandLine) -> None:
    cli.write("deploy.yml", PIPELINES[2].text)
    policy = cli.config.parent / "policy.toml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text('[commands]\nallow = ["*"]\n')
    asked = cli.call("run", "deploy.yml", "--no-ask", "--json")
    assert asked.code == 3
    run = asked.object["run"]
    assert asked.object["waits"][0]["step"] == "undo.tag"
    assert cli.call("decide", run, "approve", "--json").code == 3
    done = cli.call("decide", run, "deny", "--json")
    assert done.code == 1
    assert "Undone: tag. Not undone: build (not undone: local denied it.)." in done.object["error"]["message"]
    assert (cli.work / "build.txt").exists()
    assert not (cli.work / "tag.txt").exists()


def test_offers_are_decided_in_a_test(cli: CommandLine) -> None:
    cli.write("deploy.yml", PIPELINES[2].text)
    cli.write(
        "deploy.test.yml",
        "- name: undone\n"
        "  commands: {build: '', tag: '', deploy: {exit_code: 1}, undo.tag: '', undo.build: ''}\n"
        "  approvals: {undo.tag: approve, undo.build: deny}\n"
        "  expect: {status: failed}\n",
    )
    ran = cli.call("test", "deploy.yml")
    assert ran.code == 0, ran.out + ran.err


def test_the_items_of_a_loop_are_undone_as_the_guide_says(cli: CommandLine) -> None:
    cli.write("bookings.yml", PIPELINES[3].text)
    cli.write(
        "bookings.test.yml",
        "- name: undone\n"
        "  commands: {reserve: '', confirm: {exit_code: 1}, 'undo.reserve[A1]': '', 'undo.reserve[A2]': ''}\n"
        "  approvals: {undo.reserve: approve, 'undo.reserve[A2]': deny Keep it}\n"
        "  expect: {status: failed}\n",
    )
    ran = cli.call("test", "bookings.yml")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize("name", ["outage.md", "outage.yml"])
def test_other_dialects_ask_as_the_guide_says(name: str, cli: CommandLine, server: ModelServer) -> None:
    for who in ("alice", "bob"):
        assert cli.call("users", "add", who, "--role", "approver").code == 0
    (text,) = [one.text for one in BLOCKS if one.text.startswith("# Outage" if name.endswith("md") else "id: outage")]
    cli.write(name, text)
    assert cli.call("validate", "--strict", name).code == 0
    assert "can send the run back to" in cli.call("explain", name).out
    assert "changes" in cli.call("graph", name).out or name.endswith("md")
    step = "1" if name.endswith("md") else "window"
    wrong = cli.call("run", name, "--answer", f'{step}={{"minutes": 90}}')
    assert "90 is greater than the maximum of 60" in wrong.err
    ran = cli.call("run", name, "--no-ask", "--json")
    (wait,) = ran.object["waits"]
    assert (ran.code, wait["type"]) == (3, "form")
    given = {"minutes": 9} | ({"kind": "planned"} if step == "1" else {})
    assert (
        "90 is greater than the maximum of 60"
        in cli.call("answer", wait["short_id"], json.dumps({**given, "minutes": 90})).err
    )
    asked = cli.call("answer", f"`{wait['short_id'].upper()}`", json.dumps(given), "--json")
    assert asked.code == 3, asked.err
    (wait,) = asked.object["waits"]
    assert "Send this announcement?" in wait["prompt"]
    back = cli.call("decide", wait["short_id"], "changes", "--reason", "Kinder", "--as", "alice", "--json")
    assert back.code == 3, back.err
    assert "Kinder" in json.dumps(server.requests[-1])
    (wait,) = back.object["waits"]
    half = cli.call("decide", wait["short_id"], "approve", "--as", "alice", "--json")
    assert half.object["waits"][0]["approval"]["votes_words"] == "1 of 2 approved: alice"
    done = cli.call("decide", wait["short_id"], "approve", "--as", "bob", "--json")
    assert done.object["status"] == "completed", done.err
