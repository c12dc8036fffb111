"""Questions, approvals and pauses at a terminal where somebody sits, and where nobody does."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer
from tests.surfaces.sitting import CTRL_C, CTRL_D, Sitting

LETTER = """\
# Letter

## STEP 1: Tone

@elicit(select, "How should it sound?", "warm", "very plain", default:"warm")
@output(tone)

## STEP 2: Extra

@elicit(input, "Anything else?")
@output(extra)

## STEP 3: Write

Write a {{tone}} letter with {{extra}}.

## STEP 4: Send

@elicit(confirm, "Send it?")
"""

TOOL = """\
# Tool

## STEP 1: Change

@tool(python, change, {"what": "everything"})
"""


@pytest.fixture
def letter(desk: Desk) -> Desk:
    desk.write("letter.md", LETTER)
    return desk


def the_run(desk: Desk) -> dict[str, Any]:
    (row,) = desk.call("runs", "--json").object
    return dict(desk.call("show", row["run"], "--json").object)


def test_every_kind_of_question_is_asked_where_the_run_stands(letter: Desk, server: ModelServer) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        asked = sitting.until('By number or name [warm] (or type "later"):')
        assert "How should it sound?\n   1  warm\n   2  very plain\nBy number" in asked
        sitting.type("loud\n")
        sitting.until("'loud' is not one of the options. Choose one of: warm, very plain.\nBy number")
        sitting.type("2\n")
        sitting.until("Anything else?\nYour answer (Ctrl-D to answer later):")
        sitting.type("\n")
        sitting.until("That would be an empty answer; Enter once more gives it.\nYour answer")
        sitting.type("later\n")
        sitting.until('Send it?\nyes or no (or type "later"):')
        sitting.type("perhaps\n")
        sitting.until("'perhaps' is neither yes nor no. Answer yes or no.\nyes or no")
        sitting.type("Y\n")
        assert sitting.ended() == 0
    assert server.prompts == ["Write a very plain letter with later."]
    shown = the_run(letter)
    assert shown["outputs"]["4"] == "yes"


def test_enter_takes_the_default_and_an_empty_answer_is_given_twice(letter: Desk, server: ModelServer) -> None:
    with Sitting(letter, "run", "letter.md", "--answer", "4=no") as sitting:
        sitting.until("By number")
        sitting.type("\n")
        sitting.until("Your answer")
        sitting.type("\n")
        sitting.until("once more")
        sitting.type("\n")
        assert sitting.ended() == 0
    assert server.prompts == ["Write a warm letter with ."]


@pytest.mark.parametrize("word", [CTRL_D, "later\n"])
def test_what_is_left_for_later_waits_and_is_asked_again(letter: Desk, word: str) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        sitting.until("By number")
        sitting.type(word)
        assert sitting.ended() == 3
        run = the_run(letter)["run"]
        assert f"cuebook answer {run} warm|'very plain'" in sitting.text
        assert "awaiting input" in sitting.text
    with Sitting(letter, "resume", run) as sitting:
        sitting.until("How should it sound?")
        sitting.until("By number")
        sitting.type("very plain\n")
        sitting.until("Your answer")
        sitting.type(CTRL_D)
        assert sitting.ended() == 3


def test_what_is_typed_while_a_step_runs_is_not_shown_in_its_text(letter: Desk, server: ModelServer) -> None:
    letter.write("typed.md", "# T\n\n## STEP 1: A\n\nWork.\n")
    server.hold_at = 1
    with Sitting(letter, "run", "typed.md", then="stty -a") as sitting:
        assert server.holding.wait(30)
        sitting.type("xyzzy\n")
        server.release()
        sitting.until(" echo ")
        assert sitting.ended() == 0
    assert "xyzzy" not in sitting.text
    assert " -echo " not in sitting.text, "the terminal is left as it was"


def test_what_was_typed_before_the_question_does_not_answer_it(letter: Desk, server: ModelServer) -> None:
    letter.write("typed.md", '# T\n\n## STEP 1: A\n\nWork.\n\n## STEP 2: B\n\n@elicit(confirm, "Go?", default:"yes")\n')
    server.hold_at = 1
    with Sitting(letter, "run", "typed.md") as sitting:
        assert server.holding.wait(30)
        sitting.type("\n")
        server.release()
        sitting.until('yes or no [yes] (or type "later"):')
        sitting.type("no\n")
        assert sitting.ended() == 0
    assert the_run(letter)["outputs"]["2"] == "no"


def test_keys_that_edit_a_line_are_not_taken_for_text(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md", "--answer", "1=warm") as sitting:
        sitting.until("Your answer")
        sitting.type("ab\x1b[Dc\n")
        sitting.until("cannot be used here")
        sitting.type("abc\n")
        sitting.until("yes or no")
        sitting.type(CTRL_D)
        assert sitting.ended() == 3
    assert the_run(letter)["outputs"]["2"] == "abc"


def test_a_choice_among_numbers_is_made_by_the_number_itself(desk: Desk) -> None:
    desk.write("n.md", '# N\n\n## STEP 1: A\n\n@elicit(select, "How many?", "3", "2", "1")\n')
    with Sitting(desk, "run", "n.md") as sitting:
        assert "How many?\n  3\n  2\n  1\nOne of these" in sitting.until('One of these (or type "later"):')
        sitting.type("1\n")
        assert sitting.ended() == 0
    assert the_run(desk)["output"] == "1"


def test_another_process_answers_first_and_the_run_goes_on(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        sitting.until("By number")
        sitting.type("half a wo")
        run = the_run(letter)["run"]
        other = letter.call("answer", run, "very plain")
        assert (other.code, "awaiting input" in other.err) == (3, True)
        sitting.until("It was answered elsewhere by local: very plain")
        sitting.until("Anything else?\nYour answer (Ctrl-D to answer later):")
        sitting.type("x\n")
        sitting.until("yes or no")
        finished = letter.call("answer", run, "yes", "--json")
        assert finished.object["status"] == "completed"
        sitting.until("It was answered elsewhere by local: yes")
        assert sitting.ended() == 0
    assert the_run(letter)["outputs"]["2"] == "x"


def test_another_process_cancels_while_the_question_is_asked(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        sitting.until("By number")
        assert letter.call("cancel", the_run(letter)["run"]).code == 5
        assert sitting.ended() == 5
        assert "It was ended elsewhere" in sitting.text
        assert "─ cancelled ─" in sitting.text


def test_a_question_that_is_not_answered_in_time_expires_while_it_is_asked(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md", "--pause-expiry", "3s") as sitting:
        sitting.until("By number")
        assert sitting.ended() == 5
        assert "Its time is over." in sitting.text
        run = the_run(letter)["run"]
        assert f"cuebook retry {run}" in sitting.text


def test_a_kill_while_asking_loses_nothing(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        sitting.until("By number")
        sitting.process.send_signal(signal.SIGKILL)
        sitting.ended()
    shown = the_run(letter)
    assert (shown["status"], shown["waits"][0]["prompt"]) == ("awaiting_input", "How should it sound?")
    assert letter.call("answer", shown["run"], "warm").code == 3
    assert letter.call("verify", shown["run"]).code == 0


def test_an_interrupt_while_asking_leaves_the_question(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md") as sitting:
        sitting.until("By number")
        sitting.type(CTRL_C)
        assert sitting.ended() == 130
        run = the_run(letter)["run"]
        assert f"cuebook: interrupted. `cuebook resume {run}` continues where it stopped." in sitting.text
        assert "Traceback" not in sitting.text
    assert the_run(letter)["status"] == "awaiting_input"


def test_a_breakpoint_waits_for_enter(desk: Desk, server: ModelServer) -> None:
    with Sitting(desk, "run", "tea.md", "--break", "1,2") as sitting:
        sitting.until('Paused after step 1.\nPress Enter to continue, or type "later" to leave it paused:')
        assert len(server.requests) == 1
        sitting.type("kind=black\n")
        sitting.until("--set NAME=VALUE` changes a value and goes on.")
        sitting.type("\n")
        sitting.until('Paused after step 2.\nPress Enter to continue, or type "later" to leave it paused:')
        sitting.type("later\n")
        assert sitting.ended() == 3
        assert f"cuebook resume {the_run(desk)['run']}" in sitting.text


@pytest.mark.parametrize("flags", [["--no-ask"], ["--json"], ["--events"]])
def test_nobody_is_asked_who_does_not_want_to_be(letter: Desk, flags: list[str]) -> None:
    with Sitting(letter, "run", "letter.md", *flags) as sitting:
        assert sitting.ended() == 3
        assert "By number" not in sitting.text


def test_an_unattended_run_asks_nothing(letter: Desk, server: ModelServer) -> None:
    with Sitting(letter, "run", "letter.md", "--unattended", "--break", "3") as sitting:
        assert sitting.ended() == 0
        assert "The breakpoint after step 3 was passed" in " ".join(sitting.text.split())
    assert server.prompts == ["Write a warm letter with ."]


def test_a_run_in_the_background_of_a_terminal_asks_nothing(letter: Desk) -> None:
    with Sitting(letter, "run", "letter.md", background=True) as sitting:
        assert sitting.ended() == 3
        assert "By number" not in sitting.text


def test_results_may_go_to_a_file_while_a_person_answers(letter: Desk) -> None:
    with Sitting(
        letter, "run", "letter.md", "--answer", "1=warm", "--answer", "2=x", out=letter.work / "out"
    ) as sitting:
        sitting.until('Send it?\nyes or no (or type "later"):')
        sitting.type("no\n")
        assert sitting.ended() == 0
    assert (letter.work / "out").read_text() == "no\n"


def test_without_a_person_the_answers_that_fit_are_told(letter: Desk) -> None:
    ran = letter.call("run", "letter.md")
    run = the_run(letter)["run"]
    assert ran.code == 3
    assert "question: How should it sound?\nanswers: warm, very plain; default 'warm'\nuntil: " in ran.err
    assert f"next: cuebook answer {run} warm|'very plain'\n" in ran.err
    assert letter.call("inbox", run).out.splitlines()[2] == "answers:    warm, very plain; default 'warm'"
    assert letter.call("answer", run, "very plain").code == 3
    again = letter.call("answer", run, "@letter.md")
    assert (again.code, f"next: cuebook answer {run} yes|no" in again.err) == (3, True)


# --- what is typed and pasted -----------------------------------------------------------------------------

ONE = '# One\n\n## STEP 1: A\n\n@elicit(input, "What?")\n'
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


def test_a_long_answer_is_kept_whole(desk: Desk) -> None:
    desk.write("one.md", ONE)
    text = "0123456789" * 2_000
    with Sitting(desk, "run", "one.md") as sitting:
        sitting.until("Your answer")
        sitting.type(f"{text}\n")
        assert sitting.ended() == 0
    assert the_run(desk)["output"] == text


def test_a_text_that_is_pasted_is_one_answer(desk: Desk) -> None:
    desk.write("one.md", ONE)
    with Sitting(desk, "run", "one.md") as sitting:
        sitting.until("Your answer")
        assert "\x1b[?2004h" in sitting.raw
        sitting.type(f"Dear {PASTE}you,\rhow are you?\r{PASTED}")
        sitting.until("how are you?")
        sitting.type("Me\n")
        assert sitting.ended() == 0
        assert sitting.raw.rindex("\x1b[?2004l") > sitting.raw.rindex("\x1b[?2004h")
    assert the_run(desk)["output"] == "Dear you,\nhow are you?\nMe"


def test_what_is_left_of_a_paste_is_not_for_the_shell(desk: Desk) -> None:
    desk.write("one.md", ONE)
    with Sitting(desk, "run", "one.md", then='echo Shell; read -r it; echo "Got <$it>"', TERM="dumb") as sitting:
        sitting.until("Your answer")
        assert "2004" not in sitting.raw
        sitting.type("first\necho second\necho third\n")
        sitting.until("Shell")
        sitting.type("mine\n")
        sitting.until("Got <mine>")
        sitting.ended()
    assert the_run(desk)["output"] == "first"


def test_the_usual_keys_erase(desk: Desk) -> None:
    desk.write("one.md", ONE)
    with Sitting(desk, "run", "one.md") as sitting:
        sitting.until("Your answer")
        sitting.type("nonsense\x15two wrong words\x17\x17\x17one\x7f\x7f漢字\x7f\n")
        assert sitting.ended() == 0
        assert "Your answer (Ctrl-D to answer later): o漢\n" in "\n".join(
            line.rstrip() for line in sitting.text.splitlines()
        )
    assert the_run(desk)["output"] == "o漢"


def test_no_key_hides_the_end_of_a_line(desk: Desk) -> None:
    desk.write("one.md", ONE)
    with Sitting(desk, "run", "one.md") as sitting:
        sitting.until("Your answer")
        for times, key in enumerate(("\x1b", "\x1b[", "\x1bO", "\x1bOP", "\x1b[1;5C", "\x1bb"), 1):
            sitting.type(f"a{key}\n")
            sitting.until("cannot be used here", times)
        sitting.type("b\n")
        assert sitting.ended() == 0
    assert the_run(desk)["output"] == "b"


def test_a_run_that_is_taken_up_within_a_step_says_which(desk: Desk) -> None:
    desk.write("two.md", ONE + '\n## STEP 2: B\n\n@elicit(input, "And?")\n')
    run = desk.call("run", "two.md", "--json").object["run"]
    with Sitting(desk, "resume", run) as sitting:
        sitting.until("Your answer")
        sitting.type("x\n")
        sitting.until("And?\nYour answer")
        assert "Step 1 of 2  A" in sitting.text
        sitting.type(CTRL_D)
        assert sitting.ended() == 3


# --- approvals --------------------------------------------------------------------------------------------


@pytest.fixture
def tooled(desk: Desk) -> Desk:
    """A desk with a tool of its own, which leaves a trace."""
    folder = desk.home / "modules"
    folder.mkdir()
    trace = desk.home / "trace"
    (folder / "my_tools.py").write_text(
        "import os\n\n\n"
        "def change(what: str) -> str:\n"
        f"    with open({str(trace)!r}, 'a') as file:\n"
        "        file.write(what)\n"
        "    if os.environ.get('DIE'):\n"
        "        os._exit(9)\n"
        "    return 'changed ' + what\n"
    )
    desk.environ["PYTHONPATH"] += f":{folder}"
    desk.config.write_text(f'{desk.config.read_text()}\n[tools]\nchange = "my_tools:change"\n')
    desk.write("tool.md", TOOL)
    return desk


def test_an_approval_is_shown_in_full_and_given(tooled: Desk) -> None:
    with Sitting(tooled, "run", "tool.md") as sitting:
        seen = sitting.until('approve, deny, or "later" (a reason may follow):')
        assert "everything" in seen
        assert "digest:" in seen
        sitting.type("\n")
        sitting.until('Expected "approve", "deny" or "later".')
        assert not (tooled.home / "trace").exists()
        sitting.type("approve looks fine\n")
        assert sitting.ended() == 0
    assert (tooled.home / "trace").read_text() == "everything"
    assert "approved by local: looks fine" in tooled.call("show", the_run(tooled)["run"]).out


@pytest.mark.parametrize(("word", "code"), [("deny\n", 5), ("later\n", 3), (CTRL_D, 3)])
def test_what_is_not_approved_does_not_happen(tooled: Desk, word: str, code: int) -> None:
    with Sitting(tooled, "run", "tool.md") as sitting:
        sitting.until("approve, deny, or")
        sitting.type(word)
        assert sitting.ended() == code
    assert not (tooled.home / "trace").exists()


def test_what_is_in_doubt_is_asked_when_the_run_is_taken_up_again(tooled: Desk) -> None:
    with Sitting(tooled, "run", "tool.md", DIE="1") as sitting:
        sitting.until("approve, deny, or")
        sitting.type("a\n")
        assert sitting.ended() == 9
    assert (tooled.home / "trace").read_text() == "everything"
    run = the_run(tooled)["run"]
    with Sitting(tooled, "resume", run) as sitting:
        seen = sitting.until('repeat, stop, or "later" (a reason may follow):')
        assert "done --outcome JSON" in seen
        sitting.type("repeat\n")
        assert sitting.ended() == 0
    assert (tooled.home / "trace").read_text() == "everythingeverything"


def test_a_child_without_a_terminal_of_its_own_is_nobody(letter: Desk) -> None:
    """As under `script` or in an editor: the streams are terminals, but no keys come from them."""
    with Sitting(letter, "run", "letter.md", own=False) as sitting:
        assert sitting.ended() == 3


def test_a_closed_keyboard_is_nobody(letter: Desk) -> None:
    shell = subprocess.run(
        ["sh", "-c", "python -m cuebook run letter.md <&-"],
        cwd=letter.work,
        env={**letter.environ, "PATH": f"{_python_folder()}:{letter.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shell.returncode, "Traceback" in shell.stderr) == (3, False)


def _python_folder() -> str:
    import sys
    from pathlib import Path

    return str(Path(sys.executable).parent)
