"""A program at a terminal: a chat, its commands, and how it is left, answered elsewhere and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer
from tests.surfaces.program_talk import AGAIN, ASK, DESK, HEAD, JUMP, TAKE, THANK
from tests.surfaces.sitting import CTRL_D, Sitting


@pytest.fixture
def program(desk: Desk) -> Path:
    return desk.write("desk.pbasm", DESK)


def the_run(desk: Desk) -> dict[str, Any]:
    (row,) = desk.call("runs", "--json").object
    return dict(desk.call("show", row["run"], "--json").object)


def test_a_program_is_talked_to(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with Sitting(desk, "run", "desk.pbasm") as sitting:
        asked = sitting.until("Desk: Which number?\nyou:")
        assert "Say(" not in asked
        assert "Step[" not in asked
        assert "recap" not in asked
        sitting.type("why?\n")
        sitting.until("you: why?\nDesk: That is none. Which?\nyou:")
        sitting.type("21\n")
        assert sitting.ended() == 0
    assert "you: 21\nDesk: It is 42. Thanks!\n" in sitting.text
    box = sitting.text.partition("─ completed ─")[2]
    assert "│ result  42 " in box
    assert "│ lines   10 gone through, 4 without a model " in box
    assert "│ turns   4 of a model " in box
    assert "│ cost    unknown " in box
    assert sitting.text.count("Which number?") == 1, "what was shown while it streamed is not shown again"


def test_what_is_verified_is_shown_while_the_reply_still_streams(
    desk: Desk, server: ModelServer, program: Path
) -> None:
    server.replies.append('`Step["Main:02:QUE"]`\n`Say("user","Early?")`\ntrig? no\nyld user\n')
    server.hold_at = 1
    with Sitting(desk, "run", "desk.pbasm") as sitting:
        seen = sitting.until("Desk: Early?")
        assert "you:" not in seen, "the reply is not over"
        server.release()
        sitting.until("Desk: Early?\nyou:")
        sitting.type(CTRL_D)
        assert sitting.ended() == 3
    assert sitting.text.count("Desk: Early?") == 1


def test_what_is_refused_is_never_shown_and_why_says_what_was_wrong(
    desk: Desk, server: ModelServer, program: Path
) -> None:
    server.replies += [JUMP, ASK]
    with Sitting(desk, "run", "desk.pbasm", width=120) as sitting:
        sitting.until("refused by C4 at Main:02 (retry 1 of 2)\nDesk: Which number?\nyou:")
        sitting.type("/why\n")
        told = sitting.until("asked     to go on from there")
        assert "rule      C4: The first step goes on where the last reply stopped." in told
        assert 'in reply  line 3, column 1: `Step["Main:06:QUE"]`' in told
        assert "stands at Main:02, still to be executed" in told
        assert "legal     Main:02:QUE Say(user, Ask for $number:int)" in told
        sitting.type("/quit\n")
        assert sitting.ended() == 3
    assert "Nobody may see this" not in sitting.raw


def test_commands_show_listing_line_stack_and_variables(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK]
    with Sitting(desk, "run", "desk.pbasm", width=120) as sitting:
        sitting.until("you:")
        sitting.type("/help\n")
        sitting.until("/quit     leave; the run waits, and `cuebook resume` goes on with it\n")
        sitting.type("/listing\n")
        sitting.until("   07:RET $twice\nyou:")
        assert "   01:EXE $count:int = 0\n-> 02:QUE Say(user, Ask for $number:int);" in sitting.text
        sitting.type("/line\n")
        sitting.until(
            "Main:02:QUE Say(user, Ask for $number:int); YLD for user; done when the user gave a number (done)"
        )
        sitting.type("/stack\n")
        sitting.until("/stack\nDesk.Main():02 done\nyou:")
        sitting.type("/vars\n")
        sitting.until("/vars\n$count: int = 0\nyou:")
        sitting.type("/why\n")
        sitting.until("/why\nNo reply was refused.\nyou:")
        sitting.type("/nothing\n")
        sitting.until("There is no command /nothing; /help lists them.")
        sitting.type("/quit\n")
        assert sitting.ended() == 3
    assert len(server.requests) == 1, "no command is an answer"
    run = the_run(desk)
    assert f"next      cuebook resume {run['run']} " in sitting.text
    assert f"or        cuebook answer {run['run']} VALUE " in sitting.text


def test_an_answer_may_begin_with_a_slash(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, AGAIN]
    with Sitting(desk, "run", "desk.pbasm") as sitting:
        sitting.until("Which number?\nyou:")
        sitting.type("/etc/hosts\n")
        sitting.until("Which?\nyou:")
        sitting.type("//help\n")
        sitting.until("//help\nDesk: That is none. Which?\nyou:")
        sitting.type(CTRL_D)
        sitting.ended()
    assert [one["text"] for one in the_run(desk)["program"]["conversation"] if one["by"] == "user"] == [
        "/etc/hosts",
        "/help",
    ]


def test_a_chat_that_was_left_is_answered_elsewhere_and_taken_up_again(
    desk: Desk, server: ModelServer, program: Path
) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with Sitting(desk, "run", "desk.pbasm") as sitting:
        sitting.until("you:")
        sitting.type(CTRL_D)
        assert sitting.ended() == 3
    run = the_run(desk)["run"]
    ran = desk.call("answer", run, "why?")
    assert ran.code == 3
    assert "\nyou: why?\nDesk: That is none. Which?\nstatus: awaiting input\n" in ran.err
    with Sitting(desk, "resume", run) as sitting:
        sitting.until("Desk: Which number?\nyou: why?\nDesk: That is none. Which?\nyou:")
        sitting.type("21\n")
        assert sitting.ended() == 0
    assert "you: 21\nDesk: It is 42. Thanks!\n" in sitting.text
    assert len(server.requests) == 4


def test_an_answer_from_elsewhere_goes_on_with_the_open_chat(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, AGAIN, TAKE, THANK]
    with Sitting(desk, "run", "desk.pbasm") as sitting:
        sitting.until("you:")
        assert desk.call("answer", the_run(desk)["run"], "why?").code == 3
        sitting.until("It was answered elsewhere by local: why?\nDesk: That is none. Which?\nyou:")
        sitting.type("21\n")
        assert sitting.ended() == 0
    assert "Desk: It is 42. Thanks!\n" in sitting.text


def test_lines_calls_and_variables_are_shown_as_they_come(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK, TAKE, THANK]
    with Sitting(desk, "run", "desk.pbasm", "--lines", width=120) as sitting:
        sitting.until("you:")
        sitting.type("21\n")
        assert sitting.ended() == 0
    assert (
        "Main:04 YLD for call\n  call Twice(number=21), stack: Main:04 > Twice\nTwice:01 EXE $product:int = $number * 2\n"
        "  $product = 42\nTwice:02 RET $product\n  Twice returned 42, stack: Main:04\n  $twice = 42\n"
    ) in sitting.text
    assert "Main:02 QUE" in sitting.text.partition("Desk: Which number?")[0]


def test_where_nobody_sits_it_is_plain_lines_and_the_result(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [JUMP, ASK, TAKE, THANK]
    ran = desk.call("run", "desk.pbasm")
    assert (ran.code, ran.out) == (3, "")
    assert "\n  refused by C4 at Main:02 (retry 1 of 2)\nDesk: Which number?\nstatus: awaiting input\n" in ran.err
    assert "step Main" not in ran.err
    assert "warning" not in ran.err
    run = the_run(desk)["run"]
    ran = desk.call("answer", run, "21", "--lines")
    assert (ran.code, ran.out) == (0, "42\n")
    assert "\nyou: 21\n  asks test/echo-1\n  $number = 21\nMain:03 QUE" in ran.err
    assert "\nDesk: It is 42. Thanks!\n" in ran.err
    assert "\nresult: 42\nlines: 9 gone through, 4 without a model\nturns: 4 of a model, 1 reply refused\n" in ran.err


def test_json_and_events_tell_all_of_it(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [JUMP, ASK, TAKE, THANK]
    ran = desk.call("run", "desk.pbasm", "--json")
    told = ran.object["program"]
    assert told["conversation"] == [{"by": "program", "text": "Which number?", "to": "user", "agent": "Desk"}]
    assert [(one["playbook"], one["line"], one["status"]) for one in told["stack"]] == [("Main", "02", "done")]
    assert told["variables"] == {"Desk": [{"name": "count", "type": "int", "value": 0}]}
    assert [(one["rule"], one["attempt"], one["retries"]) for one in told["refused"]] == [("C4", 1, 2)]
    ran = desk.call("answer", ran.object["run"], "21", "--events")
    sent = [one["data"]["effect"]["text"] for one in ran.events if one["event"] == "Performing"]
    assert sent == ["It is 42. Thanks!"]


def test_a_run_that_fails_says_so_and_where(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += ["no", "no", "no"]
    with Sitting(desk, "run", "desk.pbasm", width=120) as sitting:
        assert sitting.ended() == 1
    assert "refused by S3 at Main:02 (retry 1 of 2)\nrefused by S3 at Main:02 (retry 2 of 2)\n" in sitting.text
    assert "refused by S3 at Main:02 (no retry is left)" in sitting.text
    box = sitting.text.partition("─ failed ─")[2]
    assert "3 replies in a row were refused at Main:02" in box
    assert "3 of a model, 3 replies refused" in box


def test_at_a_breakpoint_the_program_can_be_looked_at(desk: Desk, server: ModelServer, program: Path) -> None:
    server.replies += [ASK]
    with Sitting(desk, "run", "desk.pbasm", "--break", "Main:01") as sitting:
        sitting.until("Press Enter to continue")
        sitting.type("/vars\n")
        sitting.until("$count: int = 0\nPress Enter to continue")
        sitting.type("\n")
        sitting.until("Desk: Which number?\nyou:")
        sitting.type(CTRL_D)
        assert sitting.ended() == 3


def test_two_agents_are_told_apart_and_long_values_are_cut(desk: Desk, server: ModelServer) -> None:
    long = "x" * 500
    text = (
        f'# Desk\nAsks.\n\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:EXE $long:str = "{long}"\n'
        "- 02:QUE Shop.Greet()\n- 03:YLD for call\n- 04:QUE Say(user, Ask); YLD for user\n- 05:RET\n\n"
        '# Shop\nSells.\n\n## Greet\npublic: true\n### Steps\n- 01:EXE $hello:str = "Good day"\n- 02:QUE Say(user, $hello)\n- 03:YLD for call\n- 04:RET\n'
    )
    desk.write("two.pbasm", text)
    server.replies.append(f'{HEAD}`Step["Main:04:QUE"]` `Say("user", "And you?")`\ntrig? no\nyld user\n')
    with Sitting(desk, "run", "two.pbasm", width=160) as sitting:
        sitting.until("Shop: Good day\nDesk: And you?\nyou:")
        sitting.type("/vars\n")
        told = sitting.until('Shop:\n  $hello: str = "Good day"\nyou:')
        assert "… (502 characters)" in told
        assert long not in told
        sitting.type(CTRL_D)
        sitting.ended()
