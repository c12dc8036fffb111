"""The run of a program shown later: waiting, failed, finished; in lists, in full, as JSON, and as a drawing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.doubling_program import ASK, DESK, JUMP, TAKE, THANK
from tests.support.model_server import ModelServer


@pytest.fixture
def waiting(cli: CommandLine, server: ModelServer) -> str:
    """A run that waits for the user, after a reply that was refused."""
    cli.write("desk.pbasm", DESK)
    server.replies += [JUMP, ASK]
    return str(cli.call("run", "desk.pbasm", "--json").object["run"])


def test_a_waiting_run_shows_conversation_listing_stack_and_variables(cli: CommandLine, waiting: str) -> None:
    shown = cli.call("show", waiting).out
    assert "\nDesk: Which number?\n\nDesk.Main() -> int\n   01:EXE $count:int = 0\n-> 02:QUE Say(user, Ask" in shown
    assert "\nstack:\n  Desk.Main():02 done\n\nvariables:\n  $count: int = 0\n" in shown
    assert "\nrefused:\n  refused by C4 at Main:02 (retry 1 of 2)\n" in shown
    assert "\nstatus:     awaiting input\nquestion:   Which number?\nlines:      2 executed, 1 without" in shown
    assert f"\nnext:       cuebook answer {waiting} VALUE\n" in shown
    assert "step Main" not in shown


def test_a_waiting_run_reads_well_in_lists(cli: CommandLine, waiting: str) -> None:
    head, line = cli.call("runs").out.splitlines()
    assert line[head.index("STEPS") :].startswith("1 ")
    assert line[head.index("STATUS") :].startswith("awaiting input ")
    head, line = cli.call("inbox").out.splitlines()
    assert line[head.index("STEP ") :].split() == ["Main:02", "Which", "number?"]


def test_a_finished_run_shows_what_came_of_it(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    server.replies += [TAKE, THANK]
    assert cli.call("answer", waiting, "21").code == 0
    shown = cli.call("show", waiting).out
    assert "\nDesk: Which number?\nyou: 21\nDesk: It is 42. Thanks!\n\nvariables:\n  $count: int = 1\n" in shown
    assert "\nstack:" not in shown
    assert "\nstatus:     completed\nresult:     42\nlines:      9 executed, 4 without a model\n" in shown
    assert cli.call("show", waiting, "--output").out == "42\n"


def test_a_failed_run_shows_where_it_failed(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    server.replies += ["no", "no", "no"]
    assert cli.call("answer", waiting, "21").code == 1
    shown = cli.call("show", waiting).out
    assert "\n-> 02:QUE Say(user, Ask" in shown
    assert "\nstack:\n  Desk.Main():02 done\n" in shown
    assert "\nrefused:\n  (1 earlier)\n  refused by S3 at Main:02 (retry 1 of 2)\n" in shown
    assert "refused by S3 at Main:02 (no retries left)" in shown
    assert f"\nnext:       cuebook retry {waiting}\n" in shown
    server.replies += [ASK, TAKE, THANK]
    assert cli.call("retry", waiting).code == 3, "the line that failed begins again, and asks again"
    assert cli.call("answer", waiting, "21").out == "42\n"
    printed = cli.call("show", waiting, "--json").object["program"]
    assert [one["text"] for one in printed["conversation"]] == ["Which number?", "21", "It is 42. Thanks!"]


def test_the_trace_has_every_line_and_message(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    server.replies += [TAKE, THANK]
    cli.call("answer", waiting, "21")
    printed: dict[str, Any] = cli.call("show", waiting, "--trace").object
    assert printed["status"] == "completed"
    lines = [f"Main:0{number}" for number in range(1, 8)]
    assert printed["trace"]["lines"] == [*lines[:4], "Twice:01", "Twice:02", *lines[4:]]
    assert [(one["by"], one["text"]) for one in printed["trace"]["conversation"]] == [
        ("program", "Which number?"),
        ("user", "21"),
        ("program", "It is 42. Thanks!"),
    ]
    assert {one["name"]: (one["type"], one["value"]) for one in printed["results"]["Desk"]} == {
        "count": ("int", 1),
        "number": ("int", 21),
        "product": ("int", 42),
        "twice": ("int", 42),
    }


def test_what_was_gone_through_is_drawn(cli: CommandLine, server: ModelServer, waiting: str) -> None:
    drawn = cli.call("graph", waiting).out
    assert "    class p1_1 current\n" in drawn
    assert "    class p1_0 success\n" in drawn
    server.replies += [TAKE, THANK]
    cli.call("answer", waiting, "21")
    drawn = cli.call("graph", "--run", waiting).out
    assert "    class p1_0,p1_1,p1_2,p1_3,p1_4,p1_5,p1_6,p2_0,p2_1 success\n" in drawn
    assert "current" not in drawn


def test_a_program_that_said_nothing_still_asks_in_words(cli: CommandLine, server: ModelServer) -> None:
    cli.write(
        "mute.pbasm",
        "# Desk\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:YLD for user\n- 02:RET\n",
    )
    ran = cli.call("run", "mute.pbasm")
    assert ran.code == 3
    assert "\n  Desk is waiting for your message.\n" in ran.err
    assert cli.call("inbox").out.rstrip().endswith("Desk is waiting for your message.")
