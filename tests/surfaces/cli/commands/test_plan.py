"""`cuebook plan`: the steps of a pipeline as they would be performed, and the gate's decision on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine

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
def release(cli: CommandLine) -> Path:
    return cli.write("release.yml", RELEASE)


def planned(cli: CommandLine, *args: str | Path) -> dict[str, Any]:
    ran = cli.call("plan", *args, "--json")
    assert ran.err == ""
    made: dict[str, Any] = ran.object
    return made


def steps_of(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in plan["steps"]}


def policy(cli: CommandLine, text: str) -> None:
    cli.config.with_name("policy.toml").write_text(text)


def test_steps_are_resolved_as_far_as_they_are_known(cli: CommandLine, release: Path) -> None:
    steps = steps_of(planned(cli, release, *GIVEN))
    assert steps["tests"]["action"]["argv"] == ["echo", "1.2 ok"]
    assert steps["tests"]["unknown"] == []
    assert steps["tag"]["action"]["argv"] == ["touch", "v1.2", "$tests.stdout"]
    assert steps["tag"]["unknown"] == ["$tests.stdout"]
    assert steps["notes"]["action"]["model"] is None
    assert steps["notes"]["action"]["prompt"].startswith("Notes from $tests.stdout\n\nAnswer with JSON only")
    assert steps["post"]["action"]["body"] == '{"version":"1.2"}'
    assert (steps["post"]["condition"], steps["post"]["runs"]) == ("${draft} == false", True)


def test_each_step_has_its_decision_and_the_rules(cli: CommandLine, release: Path) -> None:
    steps = steps_of(planned(cli, release, *GIVEN))
    decided = {name: step["decision"] for name, step in steps.items()}
    assert decided == {"tests": "allow", "notes": "allow", "tag": "ask", "post": "ask", "look": "ask"}
    assert steps["tag"]["rules"][0] == "the step asks for approval"
    assert "allowed_domains asks about every other host and port (release.yml)" in steps["look"]["rules"]
    assert "a secret needs approval (default)" in steps["post"]["rules"]
    assert steps["notes"]["tools"] == [{"tool": "Bash", "decision": "ask"}]
    assert "\nasked:      notes (tool calls), tag, post, look\n" in cli.call("plan", release, *GIVEN).out


def test_a_step_that_asks_for_approval_is_asked_about_also_where_everything_is_allowed(cli: CommandLine) -> None:
    policy(cli, '[tools]\nallow = ["*"]\n[models]\nallow = ["*"]\n')
    asking = """\
name: Asking
steps:
  - {id: ask, command: llm, llm: {model: default, prompt: Hello}, output: json, approval: required}
  - {id: call, command: mcp chat.say text=hello, approval: required}
"""
    steps = steps_of(planned(cli, cli.write("asking.yml", asking)))
    for step in steps.values():
        assert (step["decision"], step["rules"]) == ("ask", ["the step asks for approval"])


def test_secrets_hosts_and_missing_fields_are_listed(cli: CommandLine, release: Path) -> None:
    plan = planned(cli, release, *GIVEN)
    steps = steps_of(plan)
    assert plan["secrets"] == ["env:GH_TOKEN"]
    assert steps["post"]["secrets"] == [{"at": "headers.Authorization", "handle": "env:GH_TOKEN"}]
    assert {"example.com", "other.example"} <= set(plan["hosts"])
    assert steps["post"]["lacks"] == ["rollback_hint"]
    assert steps["tag"]["lacks"] == ["postcondition"]
    assert (steps["tests"]["lacks"], steps["look"]["lacks"]) == ([], [])


def test_a_missing_value_is_shown_as_its_reference(cli: CommandLine, release: Path) -> None:
    plan = planned(cli, release)
    steps = steps_of(plan)
    assert steps["tests"]["action"]["argv"] == ["echo", "${version} ok"]
    assert plan["secrets"] == ["${token}"]
    assert len(plan["notes"]) == 1
    assert "version (string), token (secret)" in plan["notes"][0]


def test_a_condition_that_is_known_not_to_hold_is_said(cli: CommandLine, release: Path) -> None:
    assert steps_of(planned(cli, release, *GIVEN, "--draft", "true"))["post"]["runs"] is False
    assert "which is false, so the step is skipped" in cli.call("plan", release, *GIVEN, "--draft", "true").out


def test_a_condition_that_depends_on_the_run_is_left_open(cli: CommandLine) -> None:
    asking = "name: A\nsteps:\n  - {id: a, command: cli true}\n  - {id: b, command: cli true, condition: $a.error}\n"
    assert steps_of(planned(cli, cli.write("asking.yml", asking)))["b"]["runs"] is None


@pytest.mark.parametrize("handle", ["env:GH_TOKEN", "file:/no/such/file"])
def test_a_secret_without_a_value_is_reported_before_a_person_is_asked(
    cli: CommandLine, release: Path, handle: str
) -> None:
    ran = cli.call("plan", release, "--version", "1.2", "--token", handle)
    assert (ran.code, "fails:      post" in ran.out) == (1, True)
    assert f"The secret {handle} has no value" in ran.out
    assert steps_of(planned(cli, release, *GIVEN))["post"]["decision"] == "ask"
    cli.environ["GH_TOKEN"] = "a-token-of-some-length"
    assert cli.call("plan", release, *GIVEN).code == 0
    tool = f"name: T\nsteps:\n  - {{id: a, command: mcp srv.tool, with: {{arguments: {{t: secret:{handle}}}}}}}\n"
    del cli.environ["GH_TOKEN"]
    assert f"The secret {handle} has no value" in cli.call("plan", cli.write("tool.yml", tool)).out


def test_nothing_is_run_and_nothing_is_left_behind(cli: CommandLine, release: Path) -> None:
    before = cli.files()
    cli.environ["GH_TOKEN"] = "a-token-of-some-length"
    assert cli.call("plan", release, *GIVEN).code == 0
    assert cli.files() == before


def test_a_pending_approval_is_not_a_failure_and_a_denial_is(cli: CommandLine, release: Path) -> None:
    cli.environ["GH_TOKEN"] = "a-token-of-some-length"
    assert cli.call("plan", release, *GIVEN).code == 0
    policy(cli, '[commands]\ndeny = ["touch *"]\n')
    ran = cli.call("plan", release, *GIVEN)
    assert ran.code == 1
    assert "denied:     tag" in ran.out
    assert "commands.deny 'touch *'" in ran.out
    plan = cli.call("plan", release, *GIVEN, "--json").object
    assert (plan["denied"], steps_of(plan)["tag"]["decision"]) == (True, "deny")


def test_what_was_allowed_beforehand_is_allowed(cli: CommandLine, release: Path) -> None:
    policy(cli, '[egress]\nallow = ["https://other.example/*"]\n')
    look = steps_of(planned(cli, release, *GIVEN))["look"]
    assert look["decision"] == "ask"  # the pipeline's own allowed_domains makes it stricter, and nothing looser
    cli.write("open.yml", RELEASE.replace("allowed_domains: [example.com]\n", ""))
    assert steps_of(planned(cli, "open.yml", *GIVEN))["look"]["decision"] == "allow"


def test_a_policy_that_requires_postconditions_refuses_the_run(cli: CommandLine, release: Path) -> None:
    policy(cli, 'postconditions = "require"\n')
    ran = cli.call("plan", release, *GIVEN)
    assert ran.code == 1
    assert "The run would not start" in ran.out
    run = cli.call("run", release, *GIVEN)
    assert run.code == 2
    for printed in (ran.out, run.err):
        assert "Nothing checks whether the step 'tag' worked." in printed
        assert f'(postconditions = "require" in {cli.config.with_name("policy.toml")}' in printed


def test_a_policy_that_requires_postconditions_makes_it_a_mistake_to_have_none(cli: CommandLine, release: Path) -> None:
    before = cli.call("validate", release, "--json").object
    assert before["valid"] is True
    policy(cli, 'postconditions = "require"\n')
    ran = cli.call("validate", release)
    assert ran.code == 2
    error = next(line for line in ran.out.splitlines() if "whether the step 'tag' worked" in line)
    assert ": error:" in error
    assert f'postconditions = "require" in {cli.config.with_name("policy.toml")}' in error
    cli.write("reading.yml", "name: R\nsteps:\n  - {id: a, command: cli true, effect: read}\n")
    assert cli.call("validate", "reading.yml").code == 0


def test_a_step_that_is_skipped_is_neither_denied_nor_asked_about(cli: CommandLine) -> None:
    step = "{id: a, command: cli touch x, condition: '${on} == true'}"
    cli.write("x.yml", f"name: X\nargs: {{on: {{type: boolean, default: false}}}}\nsteps:\n  - {step}\n")
    policy(cli, '[commands]\ndeny = ["touch *"]\n')
    ran = cli.call("plan", "x.yml")
    assert ran.code == 0
    assert "  would be:    denied: commands.deny 'touch *'" in ran.out
    assert "denied:     none\n" in ran.out
    assert cli.call("plan", "x.yml", "--on", "true").code == 1


def test_a_command_that_is_not_there_is_noted(cli: CommandLine) -> None:
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli no-such-program}\n")
    ran = cli.call("plan", "x.yml", "--json")
    step = steps_of(ran.object)["a"]
    assert (ran.code, step["decision"]) == (1, "unknown")
    assert "no-such-program" in step["notes"][0]
    # One of the workspace may be made by a step before it.
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli ./made-later}\n")
    assert cli.call("plan", "x.yml").code == 0


def test_a_value_of_a_secret_is_not_taken_and_not_repeated(cli: CommandLine, release: Path) -> None:
    ran = cli.call("plan", release, "--version", "1", "--token", "hunter2-hunter2")
    assert "hunter2" not in ran.out + ran.err
    assert "must be the handle of a secret" in ran.out


@pytest.mark.parametrize("folder", ["/etc", "../x"])
def test_an_option_that_does_not_fit_is_refused(cli: CommandLine, release: Path, folder: str) -> None:
    ran = cli.call("plan", release, *GIVEN, "--cwd", folder)
    assert (ran.code, "cwd" in ran.err) == (2, True)


def test_steps_of_other_dialects_are_planned_too(cli: CommandLine) -> None:
    policy(cli, '[models]\nask = ["*"]\n')
    steps = steps_of(planned(cli, "tea.md", "--kind", "black"))
    assert [(step["prompt"], step["decision"]) for step in steps.values()] == [
        ("Choose a black tea.", "ask"),
        ("Brew the black tea.", "ask"),
        ("Serve it.", "ask"),
    ]
    policy(cli, '[models]\ndeny = ["*"]\n')
    assert cli.call("plan", "tea.md").code == 1


def test_a_plan_is_a_view_of_the_explanation(cli: CommandLine, release: Path) -> None:
    assert cli.call("explain", "--plan", release, *GIVEN).out == cli.call("plan", release, *GIVEN).out


# --- what is not known yet, and what is certain ---------------------------------------------------------------------


def one_step(cli: CommandLine, step: str, *args: str, head: str = "") -> tuple[int, dict[str, Any]]:
    """The exit code, and the last step of a plan."""
    cli.write("one.yml", f"name: One\n{head}steps:\n  - {{id: first, command: cli echo, effect: read}}\n  - {step}\n")
    ran = cli.call("plan", "one.yml", *args, "--json")
    assert ran.err == ""
    return ran.code, ran.object["steps"][-1]


@pytest.mark.parametrize(
    "step",
    [
        '{id: a, command: cli echo hi, env: {T: "${token}"}}',
        '{id: a, command: cli cat, stdin: "${token}"}',
        '{id: a, command: "http https://example.com/x", with: {headers: {X: "Bearer ${token}"}}}',
        '{id: a, command: mcp srv.tool, with: {arguments: {t: "${token}"}}}',
    ],
)
def test_a_secret_that_is_not_given_is_one_all_the_same(cli: CommandLine, step: str) -> None:
    everything = '[commands]\nallow = ["*"]\n[egress]\nallow = ["*"]\n[tools]\nallow = ["*"]\n'
    policy(cli, everything)
    head = "args: {token: {secret: true}}\n"
    _, planned = one_step(cli, step, head=head)
    assert (planned["decision"], planned["rules"]) == ("ask", ["a secret needs approval (default)"])
    policy(cli, f'{everything}[secrets]\nallow = ["*"]\n')
    assert one_step(cli, step, head=head)[1]["decision"] == "allow"
    policy(cli, f'{everything}[secrets]\nallow = ["*"]\ndeny = ["env:OTHER"]\n')
    _, planned = one_step(cli, step, head=head)
    assert planned["decision"] == "unknown"
    assert "secrets.deny 'env:OTHER'" in planned["rules"][0]
    assert one_step(cli, step, "--token", "env:MINE", head=head)[1]["decision"] == "allow"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git ${n}", "unknown"),
        ("git ${first.stdout}", "unknown"),
        ("git pu${n}", "unknown"),
        ("sh -c 'echo ${n}'", "unknown"),
        ("env ${n}", "unknown"),
        ("git log ${n}", "allow"),
        ("git log", "allow"),
        ("git push ${n}", "deny"),
        ("sh -c 'git log' sh ${n}", "ask"),
    ],
)
def test_a_stricter_rule_that_an_unknown_word_could_meet_is_named(
    cli: CommandLine, command: str, decision: str
) -> None:
    policy(cli, '[commands]\nallow = ["git *", "sh *", "env *", "echo *"]\ndeny = ["git push*"]\n')
    step = f'{{id: a, command: "cli {command}"}}'
    code, planned = one_step(cli, step, head="args: {n: {type: string}}\n")
    assert (planned["decision"], code) == (decision, 1 if decision == "deny" else 0)
    if decision == "unknown":
        assert "commands.deny 'git push*'" in planned["rules"][0]
        assert (
            "is:          not known yet: it may depend on commands.deny 'git push*'" in cli.call("plan", "one.yml").out
        )


def test_a_word_that_is_known_meets_the_rule_or_does_not(cli: CommandLine) -> None:
    policy(cli, '[commands]\nallow = ["git *"]\ndeny = ["git push*"]\n')
    head = "args: {n: {type: string}}\n"
    assert one_step(cli, '{id: a, command: "cli git ${n}"}', "--n", "log", head=head)[1]["decision"] == "allow"
    assert one_step(cli, '{id: a, command: "cli git ${n}"}', "--n", "push", head=head)[1]["decision"] == "deny"


def test_a_part_of_a_path_that_is_unknown_meets_only_what_it_could(cli: CommandLine) -> None:
    policy(cli, '[egress]\nallow = ["https://example.com/*"]\ndeny = ["DELETE https://example.com/users/*"]\n')
    for command, decision in (
        ("DELETE https://example.com/${n}/x", "unknown"),
        ("DELETE https://example.com/groups/${n}", "allow"),
        ("GET https://example.com/${n}/x", "allow"),
        ("DELETE https://example.com/users/${n}", "deny"),
    ):
        head = "args: {n: {type: string}}\n"
        assert one_step(cli, f'{{id: a, command: "http {command}"}}', head=head)[1]["decision"] == decision, command


@pytest.mark.parametrize(
    "step",
    [
        "{id: a, command: http http://127.0.0.1:9/x}",
        "{id: a, command: http http://169.254.169.254/x}",
        "{id: a, command: http http://localhost/x}",
        "{id: a, command: cli echo hi, cwd: link}",
        "{id: a, command: cli ../outside}",
    ],
)
def test_what_no_run_would_get_past_is_denied(cli: CommandLine, step: str) -> None:
    (cli.work / "link").symlink_to("/")
    policy(cli, '[commands]\nallow = ["*"]\n[egress]\nallow = ["*"]\n')
    code, planned = one_step(cli, step)
    assert (code, planned["decision"], len(planned["rules"])) == (1, "deny", 1)
    assert "denied:     a\n" in cli.call("plan", "one.yml").out


@pytest.mark.parametrize("url", ["https://${first.json.host}/x", "${first.stdout}", "${first.stdout}/x"])
def test_an_unknown_host_is_not_an_error(cli: CommandLine, url: str) -> None:
    code, planned = one_step(cli, f'{{id: a, command: "http {url}"}}')
    assert (code, planned["decision"]) == (0, "unknown")
    assert planned["notes"] == ["The host is not known before the run."]
    assert planned["hosts"] == []
    assert planned["action"]["url"] == url.replace("{", "").replace("}", "")


def test_an_unknown_program_is_not_an_error(cli: CommandLine) -> None:
    code, planned = one_step(cli, "{id: a, command: 'cli ${first.stdout} x'}")
    assert (code, planned["decision"]) == (0, "unknown")
    assert planned["notes"] == ["The program is not known before the run."]


def test_a_message_about_something_unknown_names_it_as_it_is_written(cli: CommandLine) -> None:
    _, planned = one_step(cli, "{id: a, command: 'cli no-such-program ${first.stdout}', cwd: none}")
    assert planned["decision"] == "unknown"
    assert "unknown.example" not in str(planned)


@pytest.mark.parametrize(
    ("step", "args"),
    [
        ("{id: a, command: mcp srv.tool}", ()),
        ('{id: a, command: cli echo hi, env: {T: "${token}"}}', ("--token", "secret:nowhere")),
        ('{id: a, command: cli echo hi, env: {T: "${token}"}}', ("--token", "bad:handle")),
    ],
)
def test_a_step_that_is_certain_to_fail_is_not_a_success(cli: CommandLine, step: str, args: tuple[str, ...]) -> None:
    head = "args: {token: {secret: true, required: false}}\n"
    code, planned = one_step(cli, step, *args, head=head)
    assert code == 1
    assert planned["decision"] != "deny"
    assert one_step(cli, "{id: a, command: cli echo hi}", "--token", "env:MINE", head=head)[0] == 0


def test_a_rule_of_an_untrusted_file_is_pointed_out(cli: CommandLine) -> None:
    step = "{id: a, command: http http://127.0.0.1:9/x}"
    _, planned = one_step(cli, step)
    assert '[egress] allow = ["http://127.0.0.1:9/*"]' in planned["notes"][0]
    path = cli.write("cuebook.policy.toml", '[egress]\nallow = ["http://127.0.0.1:9/*"]\n')
    code, planned = one_step(cli, step)
    assert (code, planned["decision"]) == (1, "deny")
    assert f"`cuebook policy trust {path}`" in planned["notes"][0]
    assert f"cuebook policy trust {path}" in cli.call("run", "one.yml").err
    assert cli.call("policy", "trust", path).code == 0
    assert one_step(cli, step)[1]["decision"] == "allow"
