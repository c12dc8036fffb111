"""Schedules from the command line: added with what their runs would ask, listed, paused, fired and removed."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.support.pseudo_terminal import TerminalSession

DEPLOY = """\
name: Deploy
args:
  to: {type: string, default: staging}
steps:
  - id: make
    command: cli touch made
"""
SURE = """\
name: Sure
steps:
  - id: make
    command: cli touch made
    approval: required
"""


def allow(cli: CommandLine, *more: str) -> Ran:
    """Allows what `show` lists, without a terminal."""
    digest = cli.call("schedule", "show", "deploy", "--json").object["digest"]
    return cli.call("schedule", "allow", "deploy", "--digest", digest, *more)


@pytest.fixture
def deploy(cli: CommandLine) -> CommandLine:
    (cli.work / "deploy.yml").write_text(DEPLOY)
    return cli


def test_a_schedule_is_added_listed_paused_resumed_and_removed(deploy: CommandLine) -> None:
    added = deploy.call("schedule", "add", "deploy.yml", "--cron", "30 6 * * 1-5", "--tz", "Europe/Berlin")
    assert added.code == 0, added.err
    assert "Added schedule deploy: active" in added.out
    assert "step make: command touch made: waits for approval" in added.out
    assert added.out.count("06:30 CE") == 5
    listed = deploy.call("schedule", "list", "--json").object
    assert [(one["name"], one["cron"], one["time_zone"], one["state"]) for one in listed] == [
        ("deploy", "30 6 * * 1-5", "Europe/Berlin", "active")
    ]
    assert deploy.call("schedule", "pause", "deploy").code == 0
    shown = deploy.call("schedule", "show", "deploy", "--json").object
    assert (shown["state"], shown["next"]) == ("paused", [])
    assert "paused" in deploy.call("schedule", "list").out
    assert deploy.call("schedule", "resume", "deploy").code == 0
    assert deploy.call("schedule", "remove", "deploy").code == 0
    assert deploy.call("schedule", "list", "--json").object == []
    acts = deploy.call("audit", "--admin", "--json").object["acts"]
    assert [one["what"] for one in acts] == [f"schedule.{verb}" for verb in ("add", "pause", "resume", "remove")]


def test_its_permission_covers_exactly_what_it_would_ask_until_the_playbook_changes(deploy: CommandLine) -> None:
    added = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--allow")
    assert "step make: command touch made: allowed in advance" in added.out
    ran = deploy.call("schedule", "run", "deploy")
    assert ran.code == 0, ran.err
    assert "No process has taken it yet." in deploy.call("show", ran.out.strip()).out
    assert deploy.call("resume", ran.out.strip(), "--no-ask").code == 0
    assert (deploy.work / "made").exists()
    assert "standing schedule:deploy" in deploy.call("audit", ran.out.strip()).out

    (deploy.work / "deploy.yml").write_text(f"{DEPLOY}# edited\n")
    ran = deploy.call("schedule", "run", "deploy")
    assert "The playbook has changed since." in ran.err
    assert "trigger.suspended" not in ran.err
    shown = deploy.call("schedule", "show", "deploy", "--json").object
    assert (shown["standing"]["holds"], shown["standing"]["problem"]) == (False, "The playbook has changed since.")
    assert not shown["asks"][0]["allowed"]

    assert shown["state"] == "suspended"

    resumed = deploy.call("schedule", "resume", "deploy")
    assert (resumed.code, resumed.out) == (0, "deploy is active.\n")
    assert "no longer holds. The playbook has changed since. Its next firing is skipped, and suspends" in resumed.err
    assert "`cuebook schedule allow deploy` shows what its runs ask now" in resumed.err
    assert allow(deploy).code == 0
    assert deploy.call("schedule", "resume", "deploy").err == ""
    ran = deploy.call("schedule", "run", "deploy")
    assert deploy.call("resume", ran.out.strip(), "--no-ask").code == 0
    assert deploy.call("schedule", "disallow", "deploy").code == 0
    assert deploy.call("schedule", "show", "deploy", "--json").object["standing"] is None
    ran = deploy.call("schedule", "run", "deploy")
    assert deploy.call("resume", ran.out.strip(), "--no-ask").code == 3


TWICE = """\
name: Twice
steps:
  - id: read
    command: cli cat said
    effect: read
  - {id: fixed, command: cli bash, stdin: touch fixed}
  - {id: piped, command: cli bash, stdin: $read.stdout}
"""


def test_the_same_command_with_an_input_that_only_the_run_knows_waits(cli: CommandLine) -> None:
    (cli.work / "said").write_text("touch piped")
    (cli.work / "twice.yml").write_text(TWICE)
    added = cli.call("schedule", "add", "twice.yml", "--cron", "@daily", "--allow")
    assert "step fixed: command bash: allowed in advance\n    stdin: touch fixed\n" in added.out
    assert "step piped: command bash: waits for approval each time (it depends on values that only" in added.out
    ran = cli.call("schedule", "run", "twice")
    assert cli.call("resume", ran.out.strip(), "--no-ask").code == 3
    assert ((cli.work / "fixed").exists(), (cli.work / "piped").exists()) == (True, False)


THINK = """\
name: Think
steps:
  - id: think
    command: llm
    llm: {model: local, prompt: Read the notes., tools: {allow: [Read]}, max_tool_calls: 3}
    output: {type: json, schema: {type: object}}
"""


def test_a_tool_whose_arguments_a_model_writes_is_not_allowed_in_advance(cli: CommandLine) -> None:
    (cli.work / "think.yml").write_text(THINK)
    (cli.config.parent / "policy.toml").write_text('version = 1\n\n[tools]\nask = ["Read"]\n')
    added = cli.call("schedule", "add", "think.yml", "--cron", "@daily", "--allow", "--json").object
    assert [(one["asks"], one["allowed"], one["why_not"]) for one in added["asks"]] == [
        ("tool Read", False, "the model chooses what it does")
    ]
    assert added["standing"] is None


def test_its_history_has_the_times_of_its_zone(deploy: CommandLine) -> None:
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--tz", "Asia/Kolkata")
    assert deploy.call("schedule", "run", "deploy").code == 0
    assert " IST  started by local  " in deploy.call("schedule", "show", "deploy").out


def test_what_is_refused_is_said_beforehand(deploy: CommandLine) -> None:
    (deploy.config.parent / "policy.toml").write_text('version = 1\n\n[commands]\ndeny = ["touch*"]\n')
    added = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily")
    assert "what is refused, so that its runs fail there:\n  step make: run touch made" in added.out, added
    (denied,) = deploy.call("schedule", "show", "deploy", "--json").object["denied"]
    assert denied.startswith("step make: run touch made")


def test_a_permission_with_a_digest_is_for_what_was_shown_or_for_nothing(deploy: CommandLine) -> None:
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily")
    digest = deploy.call("schedule", "show", "deploy", "--json").object["digest"]
    assert f"--digest {digest}" in deploy.call("schedule", "show", "deploy").out
    (deploy.work / "deploy.yml").write_text(DEPLOY.replace("touch made", "rm -rf precious"))
    refused = deploy.call("schedule", "allow", "deploy", "--digest", digest)
    assert (refused.code != 0, "is not what you saw; nothing was allowed" in refused.err) == (True, True), refused.err
    assert deploy.call("schedule", "show", "deploy", "--json").object["standing"] is None
    (deploy.work / "deploy.yml").write_text(DEPLOY)
    assert deploy.call("schedule", "allow", "deploy", "--digest", digest).code == 0


def test_without_a_terminal_nothing_is_allowed_that_is_not_named(deploy: CommandLine) -> None:
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily")
    shown = deploy.call("schedule", "show", "deploy", "--json").object
    for more in ([], ["--json"]):
        refused = deploy.call("schedule", "allow", "deploy", *more)
        assert (refused.code, "Nothing was allowed" in refused.err) == (2, True), refused.err
        assert f"`cuebook schedule allow deploy --digest {shown['digest']}`" in refused.err
    assert deploy.call("schedule", "show", "deploy", "--json").object["standing"] is None


def test_at_a_terminal_what_would_be_allowed_is_shown_and_asked(deploy: CommandLine) -> None:
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily")
    for answer, allowed in (("n", False), ("y", True)):
        with TerminalSession(deploy, "schedule", "allow", "deploy") as terminal:
            terminal.until("step make: command touch made")
            terminal.until("Allow this in advance to the runs of deploy? [y/N]:")
            terminal.type(f"{answer}\n")
            terminal.ended()
        standing = deploy.call("schedule", "show", "deploy", "--json").object["standing"]
        assert (standing is not None) == allowed


def test_nobody_allows_their_own_runs_if_the_policy_wants_another_person(deploy: CommandLine) -> None:
    (deploy.config.parent / "policy.toml").write_text("[approvals]\ndifferent_person = true\n")
    deploy.call("users", "add", "ann", "--role", "runner", "--role", "approver")
    deploy.call("users", "add", "bob", "--role", "approver")
    refused = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--allow", "--as", "ann")
    assert (refused.code, "the policy wants another person" in refused.err) == (5, True), refused.err
    assert deploy.call("schedule", "list", "--json").object == []
    assert deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--as", "ann").code == 0
    refused = allow(deploy, "--as", "ann")
    assert (refused.code, "the policy wants another person" in refused.err) == (5, True), refused.err
    shown = deploy.call("schedule", "show", "deploy", "--json").object
    assert (shown["standing"], shown["asks"][0]["allowed"]) == (None, False)
    assert allow(deploy, "--as", "bob").code == 0
    ran = deploy.call("schedule", "run", "deploy", "--as", "ann")
    assert deploy.call("resume", ran.out.strip(), "--no-ask").code == 0
    assert (deploy.work / "made").exists()


def test_what_somebody_allowed_ends_with_their_role(deploy: CommandLine) -> None:
    deploy.call("users", "add", "bob", "--role", "viewer", "--role", "approver")
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--overlap", "parallel")
    assert allow(deploy, "--as", "bob").code == 0
    ran = deploy.call("schedule", "run", "deploy").out.strip()
    assert deploy.call("users", "revoke", "bob", "--role", "approver").code == 0
    assert deploy.call("resume", ran, "--no-ask").code == 3
    shown = deploy.call("schedule", "show", "deploy", "--json").object
    assert (shown["standing"]["holds"], shown["standing"]["problem"]) == (False, "bob may no longer approve.")
    assert deploy.call("schedule", "run", "deploy").code == 0
    assert deploy.call("schedule", "show", "deploy", "--json").object["state"] == "active"
    deploy.call("users", "grant", "bob", "--role", "approver")
    assert deploy.call("schedule", "show", "deploy", "--json").object["standing"]["holds"]


def test_a_schedule_of_somebody_whose_runs_one_does_not_see_is_not_found(deploy: CommandLine) -> None:
    deploy.call("users", "add", "ann", "--role", "runner")
    deploy.call("users", "add", "fay", "--role", "approver")
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--as", "ann")
    deploy.environ["CUEBOOK_ACCESS_RUNS"] = "owner"
    assert deploy.call("schedule", "list", "--as", "fay", "--json").object == []
    for verb in ("show", "allow", "disallow"):
        refused = deploy.call("schedule", verb, "deploy", "--as", "fay")
        assert (refused.code, "There is no schedule named 'deploy'" in refused.err) == (2, True), verb
    assert [one["name"] for one in deploy.call("schedule", "list", "--as", "ann", "--json").object] == ["deploy"]


def test_a_run_that_a_person_starts_has_no_part_of_it(deploy: CommandLine) -> None:
    deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--allow")
    assert deploy.call("run", "deploy.yml", "--no-ask").code == 3


def test_a_step_that_asks_for_approval_itself_is_asked_each_time(cli: CommandLine) -> None:
    (cli.work / "sure.yml").write_text(SURE)
    added = cli.call("schedule", "add", "sure.yml", "--cron", "@daily", "--allow")
    assert (added.code, "waits for approval each time (the step asks for approval" in added.out) == (0, True)
    refused = cli.call("schedule", "allow", "sure")
    assert (refused.code, "There is nothing that 'sure' could be allowed in advance." in refused.err) == (2, True)


def test_only_an_approver_allows_in_advance(deploy: CommandLine) -> None:
    deploy.call("users", "add", "bob", "--role", "runner")
    refused = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--allow", "--as", "bob")
    assert (refused.code, "requires the role approver" in refused.err) == (5, True)
    assert deploy.call("schedule", "list", "--json").object == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--cron", "30 6 * *"], "expected 5 fields, got 4"),
        (["--cron", "61 * * * *"], "'61 * * * *' is not a cron expression"),
        (["--cron", "0 0 31 2 *"], "invalid day-of-month"),
        (["--cron", "@daily", "--tz", "Europe/Berlni"], "Did you mean 'Europe/Berlin'?"),
        (["--cron", "@daily", "--input", "too=x"], "Did you mean 'to'?"),
        (["--cron", "@daily", "--name", "no way"], "'no way' is not a valid name"),
        (["--cron", "@daily", "--catch-up", "soon"], "expected a time such as"),
        (["--cron", "@hourly", "--jitter", "2h"], "A jitter of 7200 s is not shorter"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_stored(deploy: CommandLine, words: list[str], error: str) -> None:
    refused = deploy.call("schedule", "add", "deploy.yml", *words)
    assert (refused.code, error in refused.err) == (2, True), refused.err
    assert deploy.call("schedule", "list", "--json").object == []


def test_no_secret_and_no_sensitive_value_is_stored_with_a_schedule(deploy: CommandLine) -> None:
    deploy.environ["TOKEN"] = "a-secret-value-123"
    deploy.call("secrets", "add", "token", "env:TOKEN")
    refused = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--input", "to=a-secret-value-123")
    assert (refused.code, "The value of a secret is in an input" in refused.err) == (2, True), refused.err
    (deploy.work / "deploy.yml").write_text(DEPLOY.replace("default: staging", "default: staging, sensitive: true"))
    refused = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--input", "to=ann")
    assert (refused.code, "The input 'to' is sensitive" in refused.err) == (2, True), refused.err
    assert deploy.call("schedule", "list", "--json").object == []


def test_a_dry_run_only_shows_what_would_be_asked(deploy: CommandLine) -> None:
    shown = deploy.call("schedule", "add", "deploy.yml", "--cron", "@daily", "--dry-run")
    assert (shown.code, "step make: command touch made: waits for approval" in shown.out) == (0, True)
    assert not deploy.store.exists()


def test_a_schedule_that_does_not_exist_is_named(deploy: CommandLine) -> None:
    for verb in ("show", "pause", "resume", "run", "remove", "allow", "disallow"):
        refused = deploy.call("schedule", verb, "nope")
        assert (refused.code, "There is no schedule named 'nope'" in refused.err) == (2, True)
