"""Read-only commands about runs change nothing and always print something."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from cuebook.stores.sqlite import SqliteStore
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.older_stores import take_back
from tests.support.programs import new_row
from tests.support.records import create
from tests.surfaces.cli.runs.test_interrupted import on


@pytest.fixture
def run(cli: CommandLine) -> str:
    return str(cli.call("run", "tea.md", "--json").object["run"])


def test_runs_are_listed(cli: CommandLine, run: str) -> None:
    ran = cli.call("runs")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[0] == run
    assert "completed" in ran.out
    assert "3 of 3" in ran.out
    assert [one["run"] for one in cli.call("runs", "--json", "--limit", "5").object] == [run]
    assert "No matching runs." in cli.call("runs", "--status", "failed").out
    assert cli.call("runs", "--limit", "1").err == ""
    cli.call("run", "tea.md")
    first = cli.call("runs", "--limit", "1")
    assert first.err.startswith("There are more; --limit shows more at once, and --cursor ")
    cursor = first.err.split()[-4]
    assert cli.call("runs", "--cursor", cursor).out.splitlines()[1].split()[0] == run
    assert cli.call("runs", "--limit", "1", "--json").object[0]["cursor"] == cursor
    assert "No matching runs." in cli.call("runs", "--status", "awaiting input").out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--status", "faild"), "--status: unknown status 'faild'. Did you mean failed?"),
        (("--since", "yesterday"), "--since: cannot read 'yesterday'. Write a time such as 30d"),
        (("--until", "2026-13-01"), "--until: cannot read '2026-13-01'."),
        (("--trigger", "cron"), "--trigger: unknown trigger 'cron'. Use schedule:NAME"),
        (("--search", "a " * 11), "--search: at most 10 words."),
        (("--owner", "x" * 501), "--owner: expected at most 500 characters"),
        (("--cursor", "abc"), "The cursor is not one of a list of runs."),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_meant_is_refused(
    cli: CommandLine, run: str, options: tuple[str, str], words: str
) -> None:
    ran = cli.call("runs", *options)
    assert (ran.code, ran.out) == (2, "")
    assert words in " ".join(ran.err.split())


def test_the_list_shows_who_or_what_started_a_run_if_that_differs(cli: CommandLine, run: str) -> None:
    assert cli.call("runs").out.splitlines()[0].split()[-2:] == ["COST", "PLAYBOOK"]

    async def change(store: SqliteStore) -> None:
        row = new_row("nightly.md", "other")
        row.owner, row.trigger = "ann", "schedule:nightly"
        await create(store, "other", row)

    on(cli, change)
    lines = cli.call("runs").out.splitlines()
    assert lines[0].split()[-4:] == ["OWNER", "STARTED", "BY", "PLAYBOOK"]
    assert lines[1].split()[-3:] == ["ann", "schedule:nightly", "nightly.md"]
    assert lines[2].split()[-3:] == ["local", "-", "tea.md"]


def test_runs_are_found_by_what_the_list_shows(cli: CommandLine, run: str) -> None:
    def found(*options: str) -> list[str]:
        return [one["run"] for one in cli.call("runs", "--json", *options).object]

    for options in (
        "--playbook tea.md",
        "--owner local",
        "--since 1h",
        "--until 2999-01-01",
        "--trigger person",
        f"--search {run[:6]}",
    ):
        assert found(*options.split()) == [run], options
    assert found("--search", "TEA loc") == [run]
    for options in (
        "--playbook tea",
        "--owner ann",
        "--since 2999-01-01",
        "--until 1h",
        "--trigger schedule",
        "--search coffee",
        "--search tea --status failed",
    ):
        assert found(*options.split()) == [], options


def test_a_step_without_a_title_is_named_once(cli: CommandLine) -> None:
    steps = "".join(f"  - {{id: {id}, command: cli true, effect: read}}\n" for id in ("list", "count"))
    cli.write("look.yml", f"name: Look\nsteps:\n{steps}")
    ran = cli.call("run", "look.yml", "--live")
    assert "\n· list\n" in ran.out
    run = cli.call("runs", "--json").object[0]["run"]
    assert "\nstep list\n  completed, " in cli.call("show", run).out


@pytest.mark.parametrize("group", ["keys", "policy", "secrets", "users", "serve", "mcp", "models"])
def test_the_list_of_a_group_has_whole_sentences(bare_cli: CommandLine, group: str) -> None:
    commands = bare_cli.call(group, "--help").out.partition("\nCommands:\n")[2]
    assert commands
    assert "..." not in commands


def test_a_run_is_shown_with_its_outputs(cli: CommandLine, run: str) -> None:
    shown = cli.call("show", run).out
    assert shown.startswith("Tea\ntea.md, started ")
    assert "step 2: Brew\n  completed, " in shown
    assert "Reply number 2." in shown
    assert "status:     completed" in shown
    assert cli.call("show", run, "--output").out == "Reply number 3.\n"
    assert cli.call("show", run, "--json").object["status"] == "completed"


def test_a_run_is_shown_with_its_inputs_and_who_started_it(cli: CommandLine, run: str) -> None:
    shown, json = cli.call("show", run).out, cli.call("show", run, "--json").object
    assert "\n\ninputs:\n  kind = green\n\nstep 1" in shown
    assert (json["inputs"], json["owner"]) == ({"kind": "green"}, "local")
    assert re.search(r"tea.md, started \S+ \S+\n", shown)

    async def change(store: SqliteStore) -> None:
        for name, trigger in (("other", ""), ("another", "schedule:nightly")):
            row = new_row("nightly.md", name)
            row.owner, row.trigger = "ann", trigger
            await create(store, name, row)

    on(cli, change)
    run = str(cli.call("run", "tea.md", "--kind", f"black{' and more' * 20}", "--json").object["run"])
    assert re.search(r"  kind = black and more[ a-z]{40,46}…\n", cli.call("show", run).out)
    assert " by ann\n" in cli.call("show", "other").out
    assert " by schedule:nightly for ann\n" in cli.call("show", "another").out


def test_a_run_whose_contents_were_purged_says_so(cli: CommandLine, run: str) -> None:
    assert cli.call("delete", run, "--contents").code == 0
    shown = cli.call("show", run).out
    assert f"Its contents were purged: its inputs, steps and outputs are gone; `cuebook audit {run} --verify`" in shown
    assert "purged" in cli.call("audit", run, "--verify").out


def test_events_are_shown_from_where_a_reader_left(cli: CommandLine, run: str) -> None:
    every = cli.call("events", run, "--json").events
    assert [event["id"] for event in every] == [str(number) for number in range(1, len(every) + 1)]
    rest = cli.call("events", run, "--json", "--after", "5", "--follow").events
    assert rest == every[5:]
    lines = cli.call("events", run).out.splitlines()
    assert len(lines) == len(every)
    assert "RunStarted" in lines[0]


def test_past_events_have_the_names_of_the_format_and_whole_texts(cli: CommandLine, run: str) -> None:
    named = [event for event in cli.call("events", run, "--json").events if "type" in event]
    assert [(event["type"], event["event"]) for event in named] == [
        ("content", "Performed"),
        ("done", "StepFinished"),
    ] * 3
    assert [event["content"] for event in named[::2]] == ["Reply number 1.", "Reply number 2.", "Reply number 3."]
    assert [event["status"] for event in named[1::2]] == ["completed"] * 3


def test_a_run_that_waits_is_shown_with_what_it_takes(cli: CommandLine) -> None:
    cli.write("q.md", '# Q\n\n## STEP 1: A\n\n@elicit(select, "Which?", "sky blue", "@rose", default:"@rose")\n')
    run = cli.call("run", "q.md", "--json").object["run"]
    shown = cli.call("show", run).out
    assert "question:   Which?\nanswers:    sky blue, @rose; default '@rose'\nuntil:      " in shown
    assert f"next:       cuebook answer {run} 'sky blue'|@@rose\n" in shown
    assert cli.call("answer", run, "@@rose", "--json").object["output"] == "@rose"


def test_a_journal_is_verified_and_a_changed_one_found_out(cli: CommandLine, run: str) -> None:
    ran = cli.call("verify", run)
    assert ran.code == 0
    assert " records, unbroken, head " in ran.out
    head = cli.call("verify", run, "--json").object
    assert head["broken_at"] is None
    assert head["head"] in ran.out
    with sqlite3.connect(cli.store) as connection:
        changed = connection.execute(
            "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'number 1', 'number 9') AS BLOB)"
        )
        assert changed.rowcount
    connection.close()
    broken = cli.call("verify", run)
    assert (broken.code, "it was changed" in broken.err) == (1, True)


def test_a_text_that_is_gone_is_named_and_breaks_nothing(cli: CommandLine, run: str) -> None:
    with sqlite3.connect(cli.store) as connection:
        gone = [row[0] for row in connection.execute("SELECT digest FROM texts WHERE body = 'Be brief.'")]
        connection.execute("DELETE FROM texts WHERE body = 'Be brief.'")
    connection.close()
    assert cli.call("verify", run, "--json").object["missing"] == gone
    for command in ("verify", "audit"):
        ran = cli.call(command, run)
        assert (ran.code, "unbroken" in ran.out, gone[0][:12] in ran.out) == (0, True, True)
        assert "1 referenced text, purged or removed" in ran.out


def test_a_sentence_among_other_words_ends_before_no_comma(cli: CommandLine) -> None:
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: http GET http://127.0.0.1:9/x}\n")
    run = cli.call("run", "x.yml", "--json").object["run"]
    printed = cli.call("show", run).out + cli.call("audit", run).out
    assert "loopback address, 0.0 s" in printed
    assert ".," not in printed


def test_a_replay_performs_nothing(cli: CommandLine, run: str) -> None:
    before = cli.call("events", run).out
    ran = cli.call("replay", run)
    assert (ran.code, "3 outcomes from the journal, up to its end; nothing was performed." in ran.out) == (0, True)
    assert cli.call("replay", run, "--json").object["complete"] is True
    assert cli.call("events", run).out == before


def test_the_store_is_private_and_models_are_listed(cli: CommandLine, run: str) -> None:
    assert cli.store.stat().st_mode & 0o077 == 0
    ran = cli.call("models")
    assert ran.out.startswith(f"model: test/echo-1 ({cli.config}:1)\n")
    assert "test/MODEL" in ran.out
    assert cli.call("models", "--json").object["model"] == "test/echo-1"


def test_a_reader_who_leaves_early_gets_no_complaint(cli: CommandLine, run: str) -> None:
    process = cli.begin("events", run, "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(30)
    assert process.stderr.read() == ""
    process.stderr.close()


BRANCHING = """# Ask

## STEP 1: Ask

@elicit(select, "How, {{who:string:Ada}}?", "warm", "cold")
@output(how)

## STEP 2: Brew

```if how == "warm"```

### STEP 2a: Heat

Heat it.

```endif```

## STEP 3: Never

```if how == "cold"```

### STEP 3a: Cool

Cool it.

```endif```
"""


def test_a_question_is_shown_with_its_answer_and_no_text_twice(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Heated."]
    cli.write("ask.md", BRANCHING)
    assert cli.call("run", "ask.md").code == 3
    run = cli.call("runs", "--json").object[0]["run"]
    assert cli.call("answer", run, "warm").code == 0
    shown = cli.call("show", run).out
    assert "  asked: How, Ada?\n  answered by " in shown
    assert ": warm\n" in shown
    assert shown.count("Heated.") == 1
    assert "\n  its output is this answer\n" in shown
    assert "same output as step 2a" in shown
    assert "steps:      2 of 3, 1 skipped\n" in shown
    (row,) = cli.call("runs", "--json").object
    assert (row["steps_done"], row["steps_total"], row["steps_skipped"]) == (2, 3, 1)
    again = cli.call("run", "ask.md", "--answer", "1=warm")
    assert again.code == 0
    run = cli.call("runs", "--json").object[0]["run"]
    assert "  answered by an answer given in advance: warm\n" in cli.call("show", run).out
    assert cli.call("run", "ask.md", "--unattended", "--answer", "1=warm").code == 0
    run = cli.call("runs", "--json").object[0]["run"]
    assert "  answered by an answer given in advance: warm\n" in cli.call("show", run).out
    assert "answered in advance" in cli.call("audit", run).out


def test_what_a_model_was_sent_can_be_looked_at(cli: CommandLine, run: str) -> None:
    first, second = (cli.call("show", run, "--sent", step, "--json").object for step in ("1", "2"))
    assert [one["role"] for one in second][-2:] == ["system", "user"]
    assert "Reply number 1." in second[-2]["text"]
    assert "Reply number 1." not in str(first)
    assert "has no model call at 99. Steps with model calls: 1, 2, 3." in cli.call("show", run, "--sent", "99").err


def test_events_have_a_time_and_plain_values(cli: CommandLine, run: str) -> None:
    lines = cli.call("events", run).out.splitlines()
    assert all(re.match(r" +\d+  \d\d:\d\d:\d\d\.\d{3}  ", line) for line in lines)
    assert any("outcome.content=Reply number 1." in line for line in lines)
    assert "{'" not in "".join(lines)


def test_a_store_of_an_older_version_is_brought_up_to_date(cli: CommandLine, run: str) -> None:
    fork = str(cli.call("restart", run, "2", "--json").object["run"])
    listed = cli.call("runs", "--json").object
    take_back(cli.store, version=2)
    with closing(sqlite3.connect(cli.store)) as connection, connection:
        connection.execute("UPDATE runs SET totals = json_remove(totals, '$.completed')")
        connection.execute("UPDATE steps SET body = json_remove(body, '$.counted')")
    assert cli.call("runs", "--json").object == listed
    for one in (run, fork):
        assert "unbroken" in cli.call("verify", one).out
