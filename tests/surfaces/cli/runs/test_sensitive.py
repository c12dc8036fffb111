"""Sensitive inputs: models and commands get the values, and nothing that is stored or shown has them."""

from __future__ import annotations

import base64
import json
import sqlite3
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer

EMAIL = "ann.o'hara@example.com"
MAIL = """\
# Mail

## INPUTS

- `email` (string, sensitive): Whom to write to
- `topic` (string: tea): About what

## STEP 1: Write

Write to {{email}} about {{topic}}.

@output(letter)

## STEP 2: Check

@elicit(confirm, "Is this for {{email}} right?")

## STEP 3: End

Thank {{email}}.
"""


def stored(cli: CommandLine) -> bytes:
    """Everything that is in the store's files."""
    return b"".join(path.read_bytes() for path in cli.store.parent.iterdir() if path.name.startswith("cuebook.db"))


def shows(ran: Ran) -> bool:
    return any(form in ran.out + ran.err for form in (EMAIL, json.dumps(EMAIL)[1:-1], "hara@"))


@pytest.fixture
def waiting(cli: CommandLine, server: ModelServer) -> str:
    """A run that waits for an answer, after a model repeated the value."""
    cli.write("mail.md", MAIL)
    server.script = lambda request: f"Dear {EMAIL}, {len(server.requests)}."
    ran = cli.call("run", "mail.md", "--email", EMAIL, "--no-ask")
    assert ran.code == 3, ran.err
    assert not shows(ran)
    return str(cli.call("runs", "--json").object[0]["run"])


def test_a_value_reaches_the_model_and_is_shown_nowhere(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    assert f"Write to {EMAIL} about tea." in server.prompts[0]
    for command in (
        ["show", waiting],
        ["show", waiting, "--json"],
        ["events", waiting],
        ["events", waiting, "--json"],
        ["audit", waiting],
        ["inbox"],
        ["runs", "--json"],
        ["replay", waiting],
    ):
        ran = cli.call(*command)
        assert ran.code == 0, ran.err
        assert not shows(ran), command
    assert cli.call("show", waiting, "--json").object["inputs"]["email"].startswith("[sensitive email ")
    assert "inputs:\n  email = [sensitive email " in cli.call("show", waiting).out
    assert cli.call("audit", waiting, "--export", "run.json").code == 0
    assert cli.call("export", waiting, "run.cuebook").code == 0
    for name in ("run.json", "run.cuebook"):
        assert b"hara@" not in (cli.work / name).read_bytes()


def echoes() -> list[str]:
    """The value as a model, a command or a site may repeat it."""
    cases = (EMAIL, EMAIL.lower(), EMAIL.upper(), EMAIL.swapcase(), EMAIL.title(), EMAIL[::-1], EMAIL[::-1].upper())
    found = list(cases)
    for case in (EMAIL, EMAIL.lower(), EMAIL.upper(), EMAIL[::-1]):
        data = case.encode()
        found += [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex(), data.hex(" ")]
        found += [quote(case), "".join(f"%{byte:02X}" for byte in data), json.dumps(case), repr(case), escape(case)]
        found += ["".join(f"\\u{ord(char):04x}" for char in case)]
    return found


def test_a_value_that_is_repeated_in_another_form_is_hidden(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    server.script = lambda request: "\n".join(echoes())
    ran = cli.call("run", "mail.md", "--email", EMAIL, "--no-ask")
    run = cli.call("runs", "--json").object[0]["run"]
    shown = cli.call("show", run, "--json").out + cli.call("events", run).out + cli.call("audit", run).out
    assert cli.call("answer", run, "yes").code == 0
    assert "[sensitive email " in shown
    everything = ran.out + ran.err + shown + stored(cli).decode("latin-1")
    assert [one for one in echoes() if one in everything] == []


def test_what_a_preview_or_mark_says_itself_cannot_be_hidden(cli: CommandLine) -> None:
    cli.write("mail.md", MAIL)
    for value in ("Sensitive", "EVITISNES"):
        for more in ([], ["--dry-run"]):
            ran = cli.call("run", "mail.md", "--email", value, *more)
            assert (ran.code, "cannot be its own name" in ran.err) == (2, True)


def test_a_message_about_it_has_the_mark(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    log = '\n[notifications.channels.log]\nkind = "command"\ncommand = ["tee", "-a", "messages.jsonl"]\n'
    cli.config.write_text(cli.config.read_text() + log)
    assert cli.call("run", "mail.md", "--email", EMAIL, "--no-ask").code == 3
    assert cli.call("notify", "send").code == 0
    sent = (cli.work / "messages.jsonl").read_text()
    assert "Is this for [sensitive email " in sent
    assert "hara@" not in sent


def test_it_is_purged_when_the_run_has_completed_and_the_journal_still_verifies(
    cli: CommandLine, server: ModelServer, waiting: str
) -> None:
    assert b"hara@" in stored(cli)  # the run needs it to continue
    ended = cli.call("answer", waiting, "yes")
    assert (ended.code, shows(ended)) == (0, False)
    assert cli.call("show", waiting, "--json").object["status"] == "completed"
    assert f"Thank {EMAIL}." in server.prompts[-1]
    assert b"hara@" not in stored(cli)
    assert cli.call("audit", waiting, "--verify").code == 0
    assert cli.call("replay", waiting).code == 0


def test_a_restart_keeps_the_mark_and_needs_the_value_again_once_it_is_purged(
    cli: CommandLine, server: ModelServer, waiting: str
) -> None:
    fork = cli.call("restart", waiting, "1", "--set", "topic=cake", "--json", "--no-ask")
    assert fork.code == 3, fork.err
    assert f"Write to {EMAIL} about cake." in server.prompts[-1]
    run = fork.object["run"]
    assert not shows(cli.call("show", run, "--json"))
    for one in (waiting, run):
        cli.call("answer", one, "yes")
    assert b"hara@" not in stored(cli)
    gone = cli.call("restart", run, "3")
    assert (gone.code, "was purged when it ended" in gone.err) == (2, True)
    again = cli.call("restart", run, "3", "--set", f"email={EMAIL}", "--json")
    assert (again.code, shows(again)) == (0, False)
    assert f"Thank {EMAIL}." in server.prompts[-1]
    assert b"hara@" not in stored(cli)


def test_an_edited_text_continues_with_the_value(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    cli.write("mail.md", MAIL.replace("Thank {{email}}", "Say goodbye to {{email}}"))
    edited = cli.call("resume", waiting, "--with", "mail.md", "--json", "--no-ask", "--yes")
    assert edited.code == 3, edited.err
    run = edited.object["run"]
    assert cli.call("answer", run, "yes").code == 0
    assert f"Say goodbye to {EMAIL}." in server.prompts[-1]
    assert not shows(cli.call("show", run, "--json"))
    assert b"hara@" not in stored(cli)  # neither for this run, nor for the one that it continued


def test_erase_finds_a_run_by_a_value_that_was_purged(cli: CommandLine, waiting: str) -> None:
    cli.call("answer", waiting, "yes")
    other = cli.call("erase", "--input", "email=somebody@example.com")
    assert other.out.startswith("0 runs deleted")
    words = "cuebook: no run, schedule or trigger with this value of the input 'email' was found in "
    assert (other.err.startswith(f"{words}{cli.store}"), "somebody@" in other.err) == (True, False), other.err
    nobody = cli.call("erase", "--owner", "nobody", "--dry-run", "--json")
    assert (nobody.object["deleted"], f"trigger of 'nobody' was found in {cli.store}." in nobody.err) == ([], True)
    ran = cli.call("erase", "--input", f"email={EMAIL}")
    assert (ran.code, ran.out.startswith("1 run deleted"), shows(ran)) == (0, True, False)
    assert "was found" not in ran.err


def test_an_input_is_marked_when_the_run_is_started(cli: CommandLine, server: ModelServer) -> None:
    cli.write("plain.md", MAIL.replace(", sensitive", ""))
    ran = cli.call("run", "plain.md", "--email", EMAIL, "--sensitive", "email", "--no-ask", "--json")
    assert (ran.code, shows(ran)) == (3, False)
    assert EMAIL in server.prompts[0]
    unknown = cli.call("run", "plain.md", "--email", EMAIL, "--sensitive", "mail")
    assert (unknown.code, "There is no input 'mail'" in unknown.err) == (2, True)
    cli.write("mail.md", MAIL)
    assert "[required; sensitive]" in " ".join(cli.call("run", "mail.md", "--help").out.split())
    assert "email (string; required; sensitive)" in cli.call("explain", "mail.md", "--summary").out
    cli.write("mail.md", MAIL)
    short = cli.call("run", "mail.md", "--email", "a@b.de")
    assert (short.code, "fewer than 8 characters" in short.err, "a@b.de" in short.err) == (2, True, False)


COMMAND = """\
name: Send
args:
  email: {sensitive: true, type: string}
steps:
  - {id: note, command: "cli printf %s ${email}"}
  - {id: again, command: "cli touch ${note.stdout}"}
"""


def test_a_command_gets_the_value_as_its_argument(cli: CommandLine) -> None:
    cli.write("send.yml", COMMAND)
    checked = cli.call("validate", "send.yml")
    assert checked.code == 0, checked.out
    cli.call("run", "send.yml", "--email", EMAIL, "--no-ask")
    run = cli.call("runs", "--json").object[0]["run"]
    while cli.call("show", run, "--json").object["status"] == "awaiting_approval":
        assert not shows(cli.call("inbox"))
        assert not shows(cli.call("decide", run, "approve"))
    shown = cli.call("show", run, "--json")
    assert shown.object["status"] == "completed", shown.out
    assert not shows(shown)
    assert "[sensitive email " in shown.out
    assert (cli.work / EMAIL).exists()  # also what a command returned can be passed on
    assert b"hara@" not in stored(cli)


def test_only_texts_can_be_sensitive(cli: CommandLine) -> None:
    cli.write("number.yml", COMMAND.replace("type: string", "type: number"))
    ran = cli.call("validate", "number.yml")
    assert (ran.code, "args.email is sensitive, but only texts can be" in ran.out) == (2, True)


def test_nothing_of_it_is_in_a_backup_of_a_completed_run(cli: CommandLine, waiting: str, tmp_path: Path) -> None:
    cli.call("answer", waiting, "yes")
    assert cli.call("backup", "all.cuebook").code == 0
    assert b"hara@" not in (cli.work / "all.cuebook").read_bytes()


GRAPH = """\
id: hello
name: Hello
description: Greets someone.
entry: greet
inputs:
  email: {type: string, required: true}
x_cuebook:
  sensitive: [email]
nodes:
  greet: {name: Greet, instruction: "Greet {input.email}."}
edges: []
"""
PARENT = """\
name: Parent
args:
  email: {sensitive: true, type: string}
steps:
  - {id: child, playbook: child.md, with: {email: "${email}", extra: "personal data"}}
"""
CHILD = """\
# Child

## INPUTS

- `email` (string): Whom
- `extra` (string, sensitive): More

## STEP 1: Write

Write to {{email}} about {{extra}}.
"""


def test_a_graph_names_its_sensitive_inputs(cli: CommandLine, server: ModelServer) -> None:
    cli.write("hello.yml", GRAPH)
    checked = cli.call("validate", "hello.yml")
    assert checked.code == 0, checked.out
    ran = cli.call("run", "hello.yml", "--email", EMAIL, "--json")
    assert not shows(ran)
    assert any(EMAIL in json.dumps(request["messages"]) for request in server.requests)
    cli.write("wrong.yml", GRAPH.replace("sensitive: [email]", "sensitive: [mail]"))
    assert "declares no input 'mail'" in cli.call("validate", "wrong.yml").out


def test_a_child_gets_the_values_of_its_parent_and_hides_its_own(cli: CommandLine, server: ModelServer) -> None:
    cli.write("parent.yml", PARENT)
    cli.write("child.md", CHILD)
    ran = cli.call("run", "parent.yml", "--email", EMAIL, "--json")
    assert (ran.code, shows(ran)) == (0, False), ran.err
    assert f"Write to {EMAIL} about personal data." in server.prompts[-1]
    for command in (["show"], ["events"], ["audit"]):
        assert not shows(cli.call(*command, ran.object["run"]))
    assert b"hara@" not in stored(cli)
    with sqlite3.connect(cli.store) as connection:
        ((child,),) = connection.execute("SELECT id FROM runs WHERE caller != ''").fetchall()
    shown = cli.call("show", child, "--json").out + cli.call("events", child).out
    assert "[sensitive extra " in shown
    assert "personal data" not in shown


def test_a_run_that_failed_keeps_its_values_and_is_retried_with_them(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    server.replies = [400]
    failed = cli.call("run", "mail.md", "--email", EMAIL, "--json", "--no-ask")
    assert (failed.code, shows(failed)) == (1, False)
    retried = cli.call("retry", failed.object["run"], "--json", "--no-ask")
    assert retried.code == 3, retried.err
    assert EMAIL in server.prompts[-1]
    cli.call("cancel", failed.object["run"])
    assert b"hara@" not in stored(cli)


def test_a_process_that_is_killed_leaves_the_value_to_the_next_one(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    server.hold_at = 1
    assert cli.until("run", "mail.md", "--email", EMAIL, kill_at=lambda event: event["event"] == "ModelAsked")
    server.release()
    run = cli.call("runs", "--json").object[0]["run"]
    resumed = cli.call("resume", run, "--json", "--no-ask")
    assert (resumed.code, shows(resumed)) == (3, False), resumed.err
    assert EMAIL in server.prompts[-1]


def test_a_run_in_another_store_says_that_the_value_is_not_there(cli: CommandLine, waiting: str) -> None:
    cli.call("export", waiting, "run.cuebook")
    other = ["--store", str(cli.store.with_name("other.db"))]
    assert cli.call("import", "run.cuebook", *other).code == 0
    ended = cli.call("answer", waiting, "yes", *other)
    assert (ended.code, "The sensitive input 'email' is not available" in ended.out + ended.err) == (1, True)
    assert cli.call("export", waiting, "whole.cuebook", "--with-sensitive").code == 0
    cli.call("users", "add", "bob", "--role", "runner")
    refused = cli.call("export", waiting, "bobs.cuebook", "--with-sensitive", "--as", "bob")
    assert (refused.code, "requires the role admin" in refused.err) == (5, True)
    third = ["--store", str(cli.store.with_name("third.db"))]
    assert cli.call("import", "whole.cuebook", *third).code == 0
    assert cli.call("answer", waiting, "yes", *third).code == 0
    assert b"hara@" not in cli.store.with_name("third.db").read_bytes()
    moved = ["--store", str(cli.store.with_name("moved.db"))]
    assert cli.call("store", "copy", cli.store, moved[1]).code == 0
    assert cli.call("answer", waiting, "yes", *moved).code == 0


def test_a_value_that_is_changed_at_a_pause_is_hidden_too(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    paused = cli.call("run", "mail.md", "--email", "first.o'hara@example.com", "--break", "1", "--json", "--no-ask")
    run = paused.object["run"]
    resumed = cli.call("resume", run, "--set", f"email={EMAIL}", "--json", "--no-ask")
    assert (resumed.code, shows(resumed)) == (3, False), resumed.err
    assert cli.call("answer", run, "yes").code == 0
    assert f"Thank {EMAIL}." in server.prompts[-1]
    assert not shows(cli.call("show", run, "--json"))
    assert not shows(cli.call("audit", run))
    assert b"hara@" not in stored(cli)


def test_prune_purges_what_a_failed_run_kept_for_too_long(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    server.replies = [400]
    failed = cli.call("run", "mail.md", "--email", EMAIL, "--json", "--no-ask").object["run"]
    cli.call("prune", "--older-than", "90d")
    assert b"hara@" in stored(cli)
    cli.environ["CUEBOOK_RETENTION_SENSITIVE"] = "0s"
    cli.call("prune", "--older-than", "90d")
    assert b"hara@" not in stored(cli)
    retried = cli.call("retry", failed, "--json", "--no-ask")
    assert "The sensitive input 'email' is not available" in retried.out + retried.err


def test_a_value_from_stdin_is_erased_by_the_value(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    assert cli.call("run", "mail.md", "--email", "-", "--no-ask", stdin=f"{EMAIL}\n").code == 3
    assert f"Write to {EMAIL} about tea." in server.prompts[0]
    gone = cli.call("erase", "--input", f"email={EMAIL}", "--force")
    assert gone.out.startswith("1 run deleted"), gone.err
    assert b"hara@" not in stored(cli)


KEEPS = """\
name: Keep
args:
  email: {sensitive: true}
steps:
  - {id: write, command: "cli tee kept.txt", stdin: "${email}"}
  - {id: keep, command: "cli true", files: {kept: kept.txt}}
"""


def test_a_value_that_another_input_contains_is_hidden_there_too(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    ran = cli.call("run", "mail.md", "--email", EMAIL, "--topic", f"the cake of {EMAIL}", "--no-ask")
    assert (ran.code, shows(ran)) == (3, False), ran.err
    assert f"Write to {EMAIL} about the cake of {EMAIL}." in server.prompts[0]
    run = cli.call("runs", "--json").object[0]["run"]
    assert cli.call("show", run, "--json").object["inputs"]["topic"].startswith("the cake of [sensitive email ")
    assert cli.call("answer", run, "yes").code == 0
    assert b"hara@" not in stored(cli)


def test_a_value_that_another_changed_input_contains_is_hidden(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    assert cli.call("run", "mail.md", "--email", EMAIL, "--break", "1", "--no-ask").code == 3
    run = cli.call("runs", "--json").object[0]["run"]
    fork = cli.call("restart", run, "1", "--set", f"topic=the cake of {EMAIL}", "--json", "--no-ask")
    assert (fork.code, shows(fork)) == (3, False), fork.err
    assert server.prompts[-1].endswith(f"about the cake of {EMAIL}.")
    assert cli.call("resume", run, "--set", f"topic=the tart of {EMAIL}", "--no-ask").code == 3
    for one in (run, fork.object["run"]):
        assert not shows(cli.call("show", one, "--json"))
        cli.call("resume", one)
        cli.call("answer", one, "yes")
    assert {one["status"] for one in cli.call("runs", "--json").object} == {"completed"}
    assert b"hara@" not in stored(cli)


def test_a_value_in_an_answer_given_in_advance_is_hidden(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL.replace('confirm, "Is this for {{email}} right?"', 'input, "Who else?"'))
    ran = cli.call("run", "mail.md", "--email", EMAIL, "--answer", f"2=also {EMAIL}", "--no-ask")
    assert (ran.code, shows(ran)) == (0, False), ran.err
    assert f"also {EMAIL}" in json.dumps(server.requests[-1]["messages"])
    assert b"hara@" not in stored(cli)


def test_an_error_about_a_value_does_not_repeat_it(cli: CommandLine) -> None:
    cli.write("wrong.yml", COMMAND.replace("type: string", "type: string, enum: [somebody, nobody12]"))
    ran = cli.call("run", "wrong.yml", "--email", EMAIL)
    assert (ran.code, shows(ran)) == (2, False), ran.err
    assert 'email must be one of "somebody", "nobody12", not "[sensitive email]"' in ran.err
    named = cli.write("named.yml", COMMAND.replace("sensitive: true, type: string", "type: string, enum: [somebody]"))
    assert not shows(cli.call("run", named, "--email", EMAIL, "--sensitive", "email"))


def test_an_error_that_is_cut_shows_no_part_of_it(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.md", MAIL)
    for status, length in ((400, 1_960), (503, 260)):
        server.replies = [status]
        server.refusal = "x" * length + EMAIL
        ran = cli.call("run", "mail.md", "--email", EMAIL, "--events", "--no-ask")
        shown = ran.out + ran.err + cli.call("audit", cli.call("runs", "--json").object[0]["run"]).out
        assert "x[sensi" in shown
        assert "xann" not in shown


def test_a_file_with_the_value_is_not_kept(cli: CommandLine) -> None:
    cli.write("keep.yml", KEEPS.replace("cli tee kept.txt", "cli tee kept.txt"))
    ran = cli.call("run", "keep.yml", "--email", EMAIL, "--policy", "agent", "--no-ask")
    run = cli.call("runs", "--json").object[0]["run"]
    while cli.call("show", run, "--json").object["status"] == "awaiting_approval":
        ran = cli.call("decide", run, "approve")
    assert not shows(ran)
    assert cli.call("show", run, "--json").object["status"] == "failed"
    assert (cli.work / "kept.txt").read_text() == EMAIL
    assert not shows(cli.call("events", run))
    cli.call("delete", run)
    assert b"hara@" not in stored(cli)


def test_an_approval_shows_no_part_of_it_where_its_preview_is_shortened(cli: CommandLine) -> None:
    text = "x" * 1490 + "${email}" + "y" * 3000
    cli.write(
        "long.yml",
        f"name: Long\nargs:\n  email: {{sensitive: true}}\nsteps:\n  - {{id: a, command: cli tee out.txt, stdin: '{text}'}}\n",
    )
    cli.call("run", "long.yml", "--email", EMAIL, "--no-ask")
    run = cli.call("runs", "--json").object[0]["run"]
    waiting = cli.call("inbox", "--json").out + cli.call("show", run, "--json").out
    assert "more characters" in waiting
    assert "ann." not in waiting
    assert '"suggestions":[]' in waiting
    assert cli.call("decide", run, "approve").code == 0
    assert EMAIL in (cli.work / "out.txt").read_text()


def test_a_refusal_shows_no_part_of_it(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\ndeny = ["touch *"]\n')
    cli.write("send.yml", COMMAND)
    long = "x" * 180 + EMAIL
    ran = cli.call("run", "send.yml", "--email", long, "--no-ask", "--json")
    run = cli.call("runs", "--json").object[0]["run"]
    while cli.call("show", run, "--json").object["status"] == "awaiting_approval":
        ran = cli.call("decide", run, "approve", "--json")
    shown = cli.call("show", run, "--json")
    assert shown.object["status"] == "failed"
    assert "the policy denies it" in shown.out
    assert "xxx" not in ran.out + shown.out + cli.call("events", run).out


CALLS = """\
name: Calls
args:
  email: {sensitive: true, type: string}
steps:
  - {id: note, command: "cli touch ${email}"}
  - {id: page, command: "http GET https://example.com/people?who=${email}"}
"""


@pytest.mark.parametrize(
    ("name", "text"), [("mail.md", MAIL), ("hello.yml", GRAPH), ("send.yml", COMMAND), ("calls.yml", CALLS)]
)
def test_a_preview_has_the_mark_and_is_ruled_by_the_value(cli: CommandLine, name: str, text: str) -> None:
    cli.write(name, text)
    for command in (["explain"], ["explain", "--plan"], ["run", "--dry-run"]):
        for form in ([], ["--json"]):
            ran = cli.call(*command, name, "--email", EMAIL, *form)
            assert ran.out, ran.err
            assert not shows(ran), (command, form)
            if command != ["explain"]:
                assert "[sensitive email " in ran.out, (command, form)
    (cli.config.parent / "policy.toml").write_text('[commands]\ndeny = ["touch *hara*"]\n')
    ran = cli.call("explain", "--plan", name, "--email", EMAIL)
    assert not shows(ran)
    assert ran.code == (1 if name == "calls.yml" else 0), ran.out
    assert cli.call("explain", "--plan", name, "--email", "somebody@example.com").code == 0


def test_a_dry_run_hides_what_is_marked_on_the_command_line(cli: CommandLine) -> None:
    cli.write("plain.md", MAIL.replace(", sensitive", ""))
    shown = cli.call("run", "plain.md", "--dry-run", "--email", EMAIL)
    assert shows(shown)
    marked = cli.call("run", "plain.md", "--dry-run", "--email", EMAIL, "--sensitive", "email")
    assert (marked.code, shows(marked), "[sensitive email " in marked.out) == (0, False, True)


PROGRAM = """\
# Desk

Greets people.

```python
@playbook
async def Note(text: str) -> str:
    await Say("user", f"Noted {text}, {len(text)} characters.")
    return text.upper()
```

## Main($email:str) -> str

### Triggers

- T1:BGN At the beginning

### Steps

- 01:QUE $noted:str = Note(text=$email)
- 02:YLD for call
- 03:QUE Say(user, Greet $email)
- 04:RET $email
"""


def test_a_program_passes_it_on_and_shows_the_mark(cli: CommandLine, server: ModelServer) -> None:
    cli.write("desk.pbasm", PROGRAM)
    server.replies.append(
        f'recap – it goes on\nplan – the next line\n`Step["Main:03:QUE"]` `Say("user", "Hello {EMAIL.lower()}!")`\n'
        'trig? no\n`Step["Main:04:RET"]` `Return[$email]` `Var[$__, "Greeted."]`\nyld return\n'
    )
    ran = cli.call("run", "desk.pbasm", "--email", EMAIL, "--sensitive", "email", "--json")
    assert (ran.code, shows(ran)) == (0, False), ran.err
    assert "Hello [sensitive email " in ran.err
    assert "'value': '[sensitive email " in str(ran.object)
    assert EMAIL in server.prompts[-1]
    run = ran.object["run"]
    for command in (["show", run], ["show", run, "--json"], ["events", run], ["audit", run], ["replay", run]):
        shown = cli.call(*command)
        assert (shown.code, shows(shown)) == (0, False), command
    assert b"hara@" not in stored(cli)
    assert cli.call("audit", run, "--verify").code == 0
