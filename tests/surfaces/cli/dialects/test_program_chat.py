"""A program at a terminal: a chat, its commands, and how it is left, answered elsewhere and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.doubling_program import AGAIN, ASK, DESK, HEAD, JUMP, TAKE, THANK
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import CTRL_D, TerminalSession


@pytest.fixture
def program(cli: CommandLine) -> Path:
    return cli.write("desk.pbasm", DESK)


def the_run(cli: CommandLine) -> dict[str, Any]:
    (row,) = cli.call("runs", "--json").object
    return dict(cli.call("show", row["run"], "--json").object)


def test_a_program_is_talked_to(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        asked = terminal.until("Desk: Which number?\nyou:")
        assert "Say(" not in asked
        assert "Step[" not in asked
        assert "recap" not in asked
        terminal.type("why?\n")
        terminal.until("you: why?\nDesk: That is none. Which?\nyou:")
        terminal.type("21\n")
        assert terminal.ended() == 0
    assert "you: 21\nDesk: It is 42. Thanks!\n" in terminal.text
    box = terminal.text.partition("─ completed ─")[2]
    assert "│ result  42 " in box
    assert "│ lines   10 executed, 4 without a model " in box
    assert "│ turns   4 by a model " in box
    assert "│ cost    unknown " in box
    assert terminal.text.count("Which number?") == 1, "what was shown while it streamed is not shown again"


def test_what_was_said_before_is_found_with_the_arrow_keys_in_a_later_session_too(
    cli: CommandLine, server: ModelServer, program: Path
) -> None:
    server.replies += [ASK, AGAIN, AGAIN, TAKE, THANK]
    up = "\x1b[A"
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        terminal.until("Which number?\nyou:")
        terminal.type("which one?\n")
        terminal.until("That is none. Which?\nyou:")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3
    with TerminalSession(cli, "resume", the_run(cli)["run"]) as terminal:
        terminal.until("Which?\nyou:")
        terminal.type(f"{up}\n")
        terminal.until("you: which one?", 2)
        terminal.until("Which?\nyou:", 2)
        terminal.type(f"2{up}{up}\x1b[B\x1b[B1\n")
        assert terminal.ended() == 0
    assert "│ result  42 " in terminal.text


def test_what_is_verified_is_shown_while_the_reply_still_streams(
    cli: CommandLine, server: ModelServer, program: Path
) -> None:
    server.replies.append('`Step["Main:02:QUE"]`\n`Say("user","Early?")`\ntrig? no\nyld user\n')
    server.hold_at = 1
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        seen = terminal.until("Desk: Early?")
        assert "you:" not in seen, "the reply is not over"
        server.release()
        terminal.until("Desk: Early?\nyou:")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3
    assert terminal.text.count("Desk: Early?") == 1


def test_what_is_refused_is_never_shown_and_why_says_what_was_wrong(
    cli: CommandLine, server: ModelServer, program: Path
) -> None:
    server.replies += [JUMP, ASK]
    with TerminalSession(cli, "run", "desk.pbasm", width=120) as terminal:
        terminal.until("refused by C4 at Main:02 (retry 1 of 2)\nDesk: Which number?\nyou:")
        terminal.type("/why\n")
        printed = terminal.until("retried   yes, with this feedback")
        assert "rule      C4: The first step continues where the last reply stopped." in printed
        assert 'in reply  line 3, column 1: `Step["Main:06:QUE"]`' in printed
        assert "position  Main:02, not yet executed" in printed
        assert "legal     Main:02:QUE Say(user, Ask for $number:int)" in printed
        terminal.type("/quit\n")
        assert terminal.ended() == 3
    assert "Nobody may see this" not in terminal.raw


def test_commands_show_listing_line_stack_and_variables(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK]
    with TerminalSession(cli, "run", "desk.pbasm", width=120) as terminal:
        terminal.until("you:")
        terminal.type("/help\n")
        terminal.until("/quit     leave the chat; the run waits, and `cuebook resume` continues it\n")
        terminal.type("/listing\n")
        terminal.until("   07:RET $twice\nyou:")
        assert "   01:EXE $count:int = 0\n-> 02:QUE Say(user, Ask for $number:int);" in terminal.text
        terminal.type("/line\n")
        terminal.until(
            "Main:02:QUE Say(user, Ask for $number:int); YLD for user; done when the user gave a number (done)"
        )
        terminal.type("/stack\n")
        terminal.until("/stack\nDesk.Main():02 done\nyou:")
        terminal.type("/vars\n")
        terminal.until("/vars\n$count: int = 0\nyou:")
        terminal.type("/why\n")
        terminal.until("/why\nNo reply was refused.\nyou:")
        terminal.type("/nothing\n")
        terminal.until("Unknown command /nothing; /help lists them.")
        terminal.type("/quit\n")
        assert terminal.ended() == 3
    assert len(server.requests) == 1, "no command is an answer"
    run = the_run(cli)
    assert f"next      cuebook resume {run['run']} " in terminal.text
    assert f"or        cuebook answer {run['run']} VALUE " in terminal.text


def test_an_answer_may_begin_with_a_slash(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, AGAIN]
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        terminal.until("Which number?\nyou:")
        terminal.type("/etc/hosts\n")
        terminal.until("Which?\nyou:")
        terminal.type("//help\n")
        terminal.until("//help\nDesk: That is none. Which?\nyou:")
        terminal.type(CTRL_D)
        terminal.ended()
    assert [one["text"] for one in the_run(cli)["program"]["conversation"] if one["by"] == "user"] == [
        "/etc/hosts",
        "/help",
    ]


def test_a_chat_that_was_left_is_answered_elsewhere_and_taken_up_again(
    cli: CommandLine, server: ModelServer, program: Path
) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        terminal.until("you:")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3
    run = the_run(cli)["run"]
    ran = cli.call("answer", run, "why?")
    assert ran.code == 3
    assert "\nyou: why?\nDesk: That is none. Which?\nstatus: awaiting input\n" in ran.err
    with TerminalSession(cli, "resume", run) as terminal:
        terminal.until("Desk: Which number?\nyou: why?\nDesk: That is none. Which?\nyou:")
        terminal.type("21\n")
        assert terminal.ended() == 0
    assert "you: 21\nDesk: It is 42. Thanks!\n" in terminal.text
    assert len(server.requests) == 4


def test_an_answer_from_elsewhere_continues_the_open_chat(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with TerminalSession(cli, "run", "desk.pbasm") as terminal:
        terminal.until("you:")
        assert cli.call("answer", the_run(cli)["run"], "why?").code == 3
        terminal.until("It was answered elsewhere by local: why?\nDesk: That is none. Which?\nyou:")
        terminal.type("21\n")
        assert terminal.ended() == 0
    assert "Desk: It is 42. Thanks!\n" in terminal.text


def test_lines_calls_and_variables_are_shown_as_they_come(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, TAKE, THANK]
    with TerminalSession(cli, "run", "desk.pbasm", "--lines", width=120) as terminal:
        terminal.until("you:")
        terminal.type("21\n")
        assert terminal.ended() == 0
    assert (
        "Main:04 YLD for call\n  call Twice(number=21), stack: Main:04 > Twice\nTwice:01 EXE $product:int = $number * 2\n"
        "  $product = 42\nTwice:02 RET $product\n  Twice returned 42, stack: Main:04\n  $twice = 42\n"
    ) in terminal.text
    assert "Main:02 QUE" in terminal.text.partition("Desk: Which number?")[0]


def test_without_a_terminal_it_is_plain_lines_and_the_result(
    cli: CommandLine, server: ModelServer, program: Path
) -> None:
    server.replies += [JUMP, ASK, TAKE, THANK]
    ran = cli.call("run", "desk.pbasm")
    assert (ran.code, ran.out) == (3, "")
    assert "\n  refused by C4 at Main:02 (retry 1 of 2)\nDesk: Which number?\nstatus: awaiting input\n" in ran.err
    assert "step Main" not in ran.err
    assert "warning" not in ran.err
    run = the_run(cli)["run"]
    ran = cli.call("answer", run, "21", "--lines")
    assert (ran.code, ran.out) == (0, "42\n")
    assert "\nyou: 21\n  asks test/echo-1\n  $number = 21\nMain:03 QUE" in ran.err
    assert "\nDesk: It is 42. Thanks!\n" in ran.err
    assert "\nresult: 42\nlines: 9 executed, 4 without a model\nturns: 4 by a model, 1 reply refused\n" in ran.err


def test_json_and_events_contain_all_of_it(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [JUMP, ASK, TAKE, THANK]
    ran = cli.call("run", "desk.pbasm", "--json")
    printed = ran.object["program"]
    assert printed["conversation"] == [{"by": "program", "text": "Which number?", "to": "user", "agent": "Desk"}]
    assert [(one["playbook"], one["line"], one["status"]) for one in printed["stack"]] == [("Main", "02", "done")]
    assert printed["variables"] == {"Desk": [{"name": "count", "type": "int", "value": 0}]}
    assert [(one["rule"], one["attempt"], one["retries"]) for one in printed["refused"]] == [("C4", 1, 2)]
    ran = cli.call("answer", ran.object["run"], "21", "--events")
    sent = [one["data"]["effect"]["text"] for one in ran.events if one["event"] == "Performing"]
    assert sent == ["It is 42. Thanks!"]


def test_a_run_that_fails_says_so_and_where(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += ["no", "no", "no"]
    with TerminalSession(cli, "run", "desk.pbasm", width=120) as terminal:
        assert terminal.ended() == 1
    assert "refused by S3 at Main:02 (retry 1 of 2)\nrefused by S3 at Main:02 (retry 2 of 2)\n" in terminal.text
    assert "refused by S3 at Main:02 (no retries left)" in terminal.text
    box = terminal.text.partition("─ failed ─")[2]
    assert "3 replies in a row were refused at Main:02" in box
    assert "3 by a model, 3 replies refused" in box


def test_at_a_breakpoint_the_program_can_be_looked_at(cli: CommandLine, server: ModelServer, program: Path) -> None:
    server.replies += [ASK]
    with TerminalSession(cli, "run", "desk.pbasm", "--break", "Main:01") as terminal:
        terminal.until("Press Enter to continue")
        terminal.type("/vars\n")
        terminal.until("$count: int = 0\nPress Enter to continue")
        terminal.type("\n")
        terminal.until("Desk: Which number?\nyou:")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3


def test_two_agents_are_distinguished_and_long_values_are_cut(cli: CommandLine, server: ModelServer) -> None:
    long = "x" * 500
    text = (
        f'# Desk\nAsks.\n\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:EXE $long:str = "{long}"\n'
        "- 02:QUE Shop.Greet()\n- 03:YLD for call\n- 04:QUE Say(user, Ask); YLD for user\n- 05:RET\n\n"
        '# Shop\nSells.\n\n## Greet\npublic: true\n### Steps\n- 01:EXE $hello:str = "Good day"\n- 02:QUE Say(user, $hello)\n- 03:YLD for call\n- 04:RET\n'
    )
    cli.write("two.pbasm", text)
    server.replies.append(f'{HEAD}`Step["Main:04:QUE"]` `Say("user", "And you?")`\ntrig? no\nyld user\n')
    with TerminalSession(cli, "run", "two.pbasm", width=160) as terminal:
        terminal.until("Shop: Good day\nDesk: And you?\nyou:")
        terminal.type("/vars\n")
        printed = terminal.until('Shop:\n  $hello: str = "Good day"\nyou:')
        assert "… (502 characters)" in printed
        assert long not in printed
        terminal.type(CTRL_D)
        terminal.ended()
