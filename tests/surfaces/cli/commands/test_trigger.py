"""Triggers from the command line: webhooks, changed files and completed runs."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine

GREET = """\
name: Greet
args:
  title: {type: string, required: true}
steps:
  - id: say
    command: cli echo ${title}
    effect: read
"""
PLAIN = "name: Plain\nsteps:\n  - id: say\n    command: cli echo x\n    effect: read\n"


@pytest.fixture
def greet(cli: CommandLine) -> CommandLine:
    (cli.work / "greet.yml").write_text(GREET)
    (cli.work / "plain.yml").write_text(PLAIN)
    (cli.work / "inbox").mkdir()
    return cli


def test_each_kind_is_added_listed_and_shown(greet: CommandLine) -> None:
    greet.environ["SHARED"] = "a-long-shared-secret"
    greet.call("secrets", "add", "shared", "env:SHARED")
    added = greet.call(
        "trigger", "add", "greet.yml", "--github", "--secret", "shared", "--name", "push", "--map", "title=head_commit.message",
        "--only", "ref=refs/heads/main",
    )  # fmt: skip
    assert added.code == 0, added.err
    assert "POST /hooks/push, signed (github)" in added.out
    added = greet.call("trigger", "add", "greet.yml", "--files", "inbox", "--pattern", "*.csv", "--map", "title=file")
    assert added.code == 0, added.err
    added = greet.call("trigger", "add", "plain.yml", "--after", "greet.yml", "--name", "then")
    assert added.code == 0, added.err
    listed = {one["name"]: one["kind"] for one in greet.call("trigger", "list", "--json").object}
    assert listed == {"push": "webhook", "greet": "files", "then": "after"}
    shown = greet.call("trigger", "show", "push", "--json").object
    assert (shown["address"], shown["secret"], shown["only"]) == ("/hooks/push", "shared", {"ref": "refs/heads/main"})
    assert "a-long-shared-secret" not in greet.call("trigger", "show", "push").out
    pointed = greet.call("schedule", "show", "push")
    assert pointed.code == 2
    assert "There is no schedule named 'push', but a trigger (" in pointed.err
    assert "`cuebook trigger show push` shows it." in pointed.err
    for verb in ("pause", "resume", "remove"):
        assert greet.call("trigger", verb, "then").code == 0
    ran = greet.call("trigger", "run", "greet")
    assert ran.code == 1  # nothing fills in its input
    assert "title" in ran.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "Expected exactly one of --github, --slack, --hmac, --files and --after."),
        (["--github", "--files", "inbox", "--secret", "x"], "and --after, not --github and --files."),
        (["--hmac", "--github", "--secret", "x"], "and --after, not --github and --hmac."),
        (["--github"], "--secret is missing"),
        (["--github", "--secret", "env:SHARED"], "Expected the name of a secret, not a handle."),
        (["--hmac", "--secret", "nope"], "nope"),
        (["--files", "gone"], "There is no folder gone."),
        (["--files", ".."], "is not in the workspace"),
        (["--files", "inbox", "--map", "nope=file"], "declares no input 'nope'"),
        (["--files", "inbox", "--map", "title"], "expected INPUT=PATH. For example: --map title=pull_request.title"),
        (["--files", "inbox", "--only", "name"], "--only name: expected PATH=VALUE. For example: --only action=opened"),
        (["--files", "inbox", "--map", "title=a..b"], "expected a path"),
        (["--after", "greet.yml"], "again and again: greet.yml -> greet.yml"),
        (["--slack", "--secret", "x", "--event", "push"], "--event applies to --github"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_stored(greet: CommandLine, words: list[str], error: str) -> None:
    if not any("title" in one for one in words):
        words = [*words, "--map", "title=x"]
    refused = greet.call("trigger", "add", "greet.yml", *words)
    assert (refused.code, error in refused.err) == (2, True), refused.err
    assert greet.call("trigger", "list", "--json").object == []


def test_an_input_that_nothing_fills_in_is_named(greet: CommandLine) -> None:
    refused = greet.call("trigger", "add", "greet.yml", "--files", "inbox")
    assert (refused.code, "title" in refused.err) == (2, True)


def test_a_chain_of_playbooks_that_leads_back_is_refused(greet: CommandLine) -> None:
    (greet.work / "b.yml").write_text(PLAIN)
    assert greet.call("trigger", "add", "b.yml", "--after", "plain.yml").code == 0
    refused = greet.call("trigger", "add", "plain.yml", "--after", "b.yml")
    assert (refused.code, "b.yml -> plain.yml -> b.yml" in refused.err) == (2, True), refused.err


def test_a_runner_adds_no_webhook(greet: CommandLine) -> None:
    greet.call("users", "add", "bob", "--role", "runner")
    refused = greet.call(
        "trigger", "add", "plain.yml", "--hmac", "--secret", "x", "--map", "title=x", "--as", "bob"
    )  # fmt: skip
    assert refused.code in (2, 5)
    refused = greet.call("trigger", "add", "plain.yml", "--hmac", "--secret", "x", "--as", "bob")
    assert (refused.code, "requires the role admin" in refused.err) == (5, True)


STDIN = """\
name: Keep
args:
  text: {type: string, default: nothing}
  count: {type: integer, default: 1}
steps:
  - {id: plain, command: cli touch made}
  - {id: given, command: cli tee kept, stdin: "${text}"}
  - {id: often, command: 'cli touch times-${count}'}
"""


def test_what_depends_on_the_event_cannot_be_allowed_in_advance(greet: CommandLine) -> None:
    (greet.work / "keep.yml").write_text(STDIN)
    words = ("trigger", "add", "keep.yml", "--files", "inbox", "--map", "text=path", "--map", "count=size", "--allow")
    added = greet.call(*words, "--json")
    assert added.code == 0, added.err
    assert [(one["step"], one["allowed"], one["why_not"]) for one in added.object["asks"]] == [
        ("plain", False, "it depends on the event"),  # a command gets all arguments in its environment
        ("given", False, "it depends on the event"),
        ("often", False, "it depends on the event"),
    ]
    assert added.object["standing"] is None
    added = greet.call("trigger", "add", "keep.yml", "--name", "same", "--files", "inbox", "--allow", "--json")
    assert [one["allowed"] for one in added.object["asks"]] == [True, True, True]


def test_firing_by_hand_does_not_wait_for_the_end_of_earlier_runs(greet: CommandLine) -> None:
    greet.call("trigger", "add", "plain.yml", "--files", "inbox", "--overlap", "queue")
    first = greet.call("trigger", "run", "plain", "--json").object  # no process drives its run
    assert first["state"] == "started"
    second = greet.call("trigger", "run", "plain", "--json").object
    assert (second["state"], f"when run {first['run']}" in second["reason"]) == ("queued", True)
    assert greet.call("trigger", "show", "plain", "--json").object["waiting"] == 1


SECRET = """\
name: Use
args:
  token: {secret: true, default: "env:MINE"}
steps:
  - {id: use, command: cli printenv TOKEN, env: {TOKEN: "${token}"}}
"""


def test_an_event_chooses_no_secret(greet: CommandLine) -> None:
    book = greet.work / "use.yml"
    book.write_text(SECRET)
    words = ("trigger", "add", "use.yml", "--files", "inbox", "--map", "token=name")
    refused = greet.call(*words)
    assert (refused.code, "'token' takes the handle of a secret, which no event may choose" in refused.err) == (2, True)
    assert greet.call("trigger", "list", "--json").object == []
    book.write_text(SECRET.replace('secret: true, default: "env:MINE"', "type: string, default: x"))
    assert greet.call(*words).code == 0
