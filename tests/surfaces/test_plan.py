"""`cuebook plan`: the steps of a pipeline as they would be performed, and what the gate would say to each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.desk import Desk

RELEASE = """\
name: Release
args:
  version: {type: string, required: true, description: Which version}
  draft: {type: boolean, default: false}
  token: {secret: true, required: true}
allowed_domains: [example.com]
steps:
  - id: tests
    command: cli echo "${version} ok"
    effect: read
  - id: notes
    command: llm
    llm: {model: default, prompt: "Notes from ${tests.stdout}", tools: {allow: [bash]}, max_tool_calls: 1}
    output: {type: json, schema: {type: object}}
  - id: tag
    command: cli touch v${version} ${tests.stdout}
    approval: required
    rollback_hint: Remove the file.
  - id: post
    command: http POST https://example.com/hook
    with: {headers: {Authorization: "Bearer ${token}"}, json: {version: "${version}"}}
    condition: ${draft} == false
    postcondition: {type: http_status, equals: 200}
  - id: look
    command: http GET https://other.example/x
"""
GIVEN = ("--version", "1.2", "--token", "env:GH_TOKEN")


@pytest.fixture
def release(desk: Desk) -> Path:
    return desk.write("release.yml", RELEASE)


def planned(desk: Desk, *args: str | Path) -> dict[str, Any]:
    ran = desk.call("plan", *args, "--json")
    assert ran.err == ""
    made: dict[str, Any] = ran.object
    return made


def steps_of(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in plan["steps"]}


def policy(desk: Desk, text: str) -> None:
    desk.config.with_name("policy.toml").write_text(text)


def test_steps_are_resolved_as_far_as_they_are_known(desk: Desk, release: Path) -> None:
    steps = steps_of(planned(desk, release, *GIVEN))
    assert steps["tests"]["action"]["argv"] == ["echo", "1.2 ok"]
    assert steps["tests"]["unknown"] == []
    assert steps["tag"]["action"]["argv"] == ["touch", "v1.2", "$tests.stdout"]
    assert steps["tag"]["unknown"] == ["$tests.stdout"]
    assert steps["notes"]["action"]["model"] is None
    assert steps["notes"]["action"]["prompt"].startswith("Notes from $tests.stdout\n\nAnswer with JSON only")
    assert steps["post"]["action"]["body"] == '{"version":"1.2"}'
    assert (steps["post"]["condition"], steps["post"]["runs"]) == ("${draft} == false", True)


def test_each_step_has_its_decision_and_the_rules(desk: Desk, release: Path) -> None:
    steps = steps_of(planned(desk, release, *GIVEN))
    decided = {name: step["decision"] for name, step in steps.items()}
    assert decided == {"tests": "allow", "notes": "allow", "tag": "ask", "post": "ask", "look": "ask"}
    assert steps["tag"]["rules"][0] == "the step asks for approval"
    assert "allowed_domains asks about every other host (release.yml)" in steps["look"]["rules"]
    assert "a secret is asked about (default)" in steps["post"]["rules"]
    assert steps["notes"]["tools"] == [{"tool": "Bash", "decision": "ask"}]


def test_secrets_hosts_and_what_is_lacking_are_told(desk: Desk, release: Path) -> None:
    plan = planned(desk, release, *GIVEN)
    steps = steps_of(plan)
    assert plan["secrets"] == ["env:GH_TOKEN"]
    assert steps["post"]["secrets"] == [{"at": "headers.Authorization", "handle": "env:GH_TOKEN"}]
    assert {"example.com", "other.example"} <= set(plan["hosts"])
    assert steps["post"]["lacks"] == ["rollback_hint"]
    assert steps["tag"]["lacks"] == ["postcondition"]
    assert (steps["tests"]["lacks"], steps["look"]["lacks"]) == ([], [])


def test_what_is_not_given_stands_for_itself(desk: Desk, release: Path) -> None:
    plan = planned(desk, release)
    steps = steps_of(plan)
    assert steps["tests"]["action"]["argv"] == ["echo", "${version} ok"]
    assert plan["secrets"] == ["${token}"]
    assert len(plan["notes"]) == 1
    assert "version (string), token (secret)" in plan["notes"][0]


def test_a_condition_that_is_known_not_to_hold_is_said(desk: Desk, release: Path) -> None:
    assert steps_of(planned(desk, release, *GIVEN, "--draft", "true"))["post"]["runs"] is False
    assert "which does not hold: it is skipped" in desk.call("plan", release, *GIVEN, "--draft", "true").out


def test_nothing_is_run_and_nothing_is_left_behind(desk: Desk, release: Path) -> None:
    before = desk.files()
    assert desk.call("plan", release, *GIVEN).code == 0
    assert desk.files() == before


def test_something_that_is_asked_about_is_no_failure_and_something_denied_is(desk: Desk, release: Path) -> None:
    assert desk.call("plan", release, *GIVEN).code == 0
    policy(desk, '[commands]\ndeny = ["touch *"]\n')
    ran = desk.call("plan", release, *GIVEN)
    assert ran.code == 1
    assert "denied:     tag" in ran.out
    assert "commands.deny 'touch *'" in ran.out
    plan = desk.call("plan", release, *GIVEN, "--json").object
    assert (plan["denied"], steps_of(plan)["tag"]["decision"]) == (True, "deny")


def test_what_was_allowed_beforehand_is_allowed(desk: Desk, release: Path) -> None:
    policy(desk, '[egress]\nallow = ["https://other.example/*"]\n')
    look = steps_of(planned(desk, release, *GIVEN))["look"]
    assert look["decision"] == "ask"  # the pipeline's own allowed_domains makes it stricter, and nothing looser
    desk.write("open.yml", RELEASE.replace("allowed_domains: [example.com]\n", ""))
    assert steps_of(planned(desk, "open.yml", *GIVEN))["look"]["decision"] == "allow"


def test_a_policy_that_requires_postconditions_refuses_the_run(desk: Desk, release: Path) -> None:
    policy(desk, 'postconditions = "require"\n')
    ran = desk.call("plan", release, *GIVEN)
    assert ran.code == 1
    assert "A run would not begin" in ran.out
    assert desk.call("run", release, *GIVEN).code == 2


def test_a_command_that_is_not_there_is_noted(desk: Desk) -> None:
    desk.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli no-such-program}\n")
    ran = desk.call("plan", "x.yml", "--json")
    step = steps_of(ran.object)["a"]
    assert (ran.code, step["decision"]) == (0, "unknown")
    assert "no-such-program" in step["notes"][0]


def test_a_value_of_a_secret_is_not_taken_and_not_repeated(desk: Desk, release: Path) -> None:
    ran = desk.call("plan", release, "--version", "1", "--token", "hunter2-hunter2")
    assert "hunter2" not in ran.out + ran.err
    assert "must be the handle of a secret" in ran.out


@pytest.mark.parametrize("folder", ["/etc", "../x"])
def test_an_option_that_does_not_fit_is_refused(desk: Desk, release: Path, folder: str) -> None:
    ran = desk.call("plan", release, *GIVEN, "--cwd", folder)
    assert (ran.code, "cwd" in ran.err) == (2, True)


def test_other_dialects_are_explained(desk: Desk) -> None:
    ran = desk.call("plan", "tea.md")
    assert (ran.code, "`cuebook explain tea.md`" in ran.err) == (2, True)
