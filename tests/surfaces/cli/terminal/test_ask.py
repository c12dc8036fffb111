"""Questions, approvals and pauses at a terminal, with and without a person."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import CTRL_C, CTRL_D, TerminalSession
from tests.support.sampling import many

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
def letter(cli: CommandLine) -> CommandLine:
    cli.write("letter.md", LETTER)
    return cli


def the_run(cli: CommandLine) -> dict[str, Any]:
    (row,) = cli.call("runs", "--json").object
    return dict(cli.call("show", row["run"], "--json").object)


def test_every_kind_of_question_is_asked_at_its_step(letter: CommandLine, server: ModelServer) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        asked = terminal.until('By number or name [warm] (or type "later"):')
        assert "How should it sound?\n   1  warm\n   2  very plain\nBy number" in asked
        terminal.type("loud\n")
        terminal.until("'loud' is not one of the options. Choose one of: warm, very plain.\nBy number")
        terminal.type("2\n")
        terminal.until("Anything else?\nYour answer (Ctrl-D to answer later):")
        terminal.type("\n")
        terminal.until("This answer is empty. Press Enter again to send it.\nYour answer")
        terminal.type("later\n")
        terminal.until('Send it?\nyes or no (or type "later"):')
        terminal.type("perhaps\n")
        terminal.until("'perhaps' is neither yes nor no. Answer yes or no.\nyes or no")
        terminal.type("Y\n")
        assert terminal.ended() == 0
    assert server.prompts == ["Write a very plain letter with later."]
    shown = the_run(letter)
    assert shown["outputs"]["4"] == "yes"


def test_enter_takes_the_default_and_an_empty_answer_is_given_twice(letter: CommandLine, server: ModelServer) -> None:
    with TerminalSession(letter, "run", "letter.md", "--answer", "4=no") as terminal:
        terminal.until("By number")
        terminal.type("\n")
        terminal.until("Your answer")
        terminal.type("\n")
        terminal.until("Press Enter again")
        terminal.type("\n")
        assert terminal.ended() == 0
    assert server.prompts == ["Write a warm letter with ."]


@pytest.mark.parametrize("word", [CTRL_D, "later\n"])
def test_what_is_left_for_later_waits_and_is_asked_again(letter: CommandLine, word: str) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        terminal.until("By number")
        terminal.type(word)
        assert terminal.ended() == 3
        run = the_run(letter)["run"]
        assert f"cuebook answer {run} warm|'very plain'" in terminal.text
        assert "awaiting input" in terminal.text
    with TerminalSession(letter, "resume", run) as terminal:
        terminal.until("How should it sound?")
        terminal.until("By number")
        terminal.type("very plain\n")
        terminal.until("Your answer")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3


def test_what_is_typed_while_a_step_runs_is_not_shown_in_its_text(letter: CommandLine, server: ModelServer) -> None:
    letter.write("typed.md", "# T\n\n## STEP 1: A\n\nWork.\n")
    server.hold_at = 1
    with TerminalSession(letter, "run", "typed.md", then="stty -a") as terminal:
        assert server.holding.wait(30)
        terminal.type("xyzzy\n")
        server.release()
        terminal.until(" echo ")
        assert terminal.ended() == 0
    assert "xyzzy" not in terminal.text
    assert " -echo " not in terminal.text, "the terminal is left as it was"


def test_what_was_typed_before_the_question_does_not_answer_it(letter: CommandLine, server: ModelServer) -> None:
    letter.write("typed.md", '# T\n\n## STEP 1: A\n\nWork.\n\n## STEP 2: B\n\n@elicit(confirm, "Go?", default:"yes")\n')
    server.hold_at = 1
    with TerminalSession(letter, "run", "typed.md") as terminal:
        assert server.holding.wait(30)
        terminal.type("\n")
        server.release()
        terminal.until('yes or no [yes] (or type "later"):')
        terminal.type("no\n")
        assert terminal.ended() == 0
    assert the_run(letter)["outputs"]["2"] == "no"


LEFT, UP, DOWN, HOME, DELETE = "\x1b[D", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[3~"


def test_keys_move_within_a_line_and_change_it_there(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md", "--answer", "1=warm") as terminal:
        terminal.until("Your answer")
        terminal.type(f"ab{LEFT}c{HOME}{DELETE}x\n")
        terminal.until("yes or no")
        terminal.type(CTRL_D)
        assert terminal.ended() == 3
    assert the_run(letter)["outputs"]["2"] == "xcb"


def asking(cli: CommandLine, *kinds: str) -> None:
    """Writes a playbook that asks a question of each kind, in order."""
    steps = (f'## STEP {number}: S\n\n@elicit({kind}, "Number {number}?")\n' for number, kind in enumerate(kinds, 1))
    cli.write("many.md", "\n".join(["# Many\n", *steps]))


def test_earlier_answers_of_the_same_kind_are_found_with_the_arrow_keys(cli: CommandLine) -> None:
    asking(cli, "input", "input", "confirm", "input", "input")
    typed = ["first", "second", "yes", f"{UP}{UP} again", f"{UP}{UP}{DOWN}"]
    with TerminalSession(cli, "run", "many.md") as terminal:
        for number, keys in enumerate(typed, start=1):
            terminal.until(f"Number {number}?\n{'yes or no' if number == 3 else 'Your answer'}")
            terminal.type(f"{keys}\n")
        assert terminal.ended() == 0
    assert list(the_run(cli)["outputs"].values())[3:] == ["first again", "first again"]


def test_a_choice_among_numbers_is_made_by_the_number_itself(cli: CommandLine) -> None:
    cli.write("n.md", '# N\n\n## STEP 1: A\n\n@elicit(select, "How many?", "3", "2", "1")\n')
    with TerminalSession(cli, "run", "n.md") as terminal:
        assert "How many?\n  3\n  2\n  1\nOne of these" in terminal.until('One of these (or type "later"):')
        terminal.type("1\n")
        assert terminal.ended() == 0
    assert the_run(cli)["output"] == "1"


def test_another_process_answers_first_and_the_run_continues(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        terminal.until("By number")
        terminal.type("half a wo")
        run = the_run(letter)["run"]
        other = letter.call("answer", run, "very plain")
        assert (other.code, "awaiting input" in other.err) == (3, True)
        terminal.until("It was answered elsewhere by local: very plain")
        terminal.until("Anything else?\nYour answer (Ctrl-D to answer later):")
        terminal.type("x\n")
        terminal.until("yes or no")
        finished = letter.call("answer", run, "yes", "--json")
        assert finished.object["status"] == "completed"
        terminal.until("It was answered elsewhere by local: yes")
        assert terminal.ended() == 0
    assert the_run(letter)["outputs"]["2"] == "x"


def test_another_process_cancels_while_the_question_is_asked(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        terminal.until("By number")
        assert letter.call("cancel", the_run(letter)["run"]).code == 5
        assert terminal.ended() == 5
        assert "It was closed elsewhere" in terminal.text
        assert "─ cancelled ─" in terminal.text


def test_a_question_that_is_not_answered_in_time_expires_while_it_is_asked(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md", "--pause-expiry", "3s") as terminal:
        terminal.until("By number")
        assert terminal.ended() == 5
        assert "The wait has expired." in terminal.text
        run = the_run(letter)["run"]
        assert f"cuebook retry {run}" in terminal.text


def test_a_kill_while_asking_loses_nothing(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        terminal.until("By number")
        terminal.process.send_signal(signal.SIGKILL)
        terminal.ended()
    shown = the_run(letter)
    assert (shown["status"], shown["waits"][0]["prompt"]) == ("awaiting_input", "How should it sound?")
    assert letter.call("answer", shown["run"], "warm").code == 3
    assert letter.call("verify", shown["run"]).code == 0


def test_an_interrupt_while_asking_leaves_the_question(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md") as terminal:
        terminal.until("By number")
        terminal.type(CTRL_C)
        assert terminal.ended() == 130
        run = the_run(letter)["run"]
        assert f"cuebook: interrupted. `cuebook resume {run}` continues where it stopped." in terminal.text
        assert "Traceback" not in terminal.text
    assert the_run(letter)["status"] == "awaiting_input"


def test_a_process_that_was_stopped_while_it_asks_takes_the_terminal_over_again(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md", "--answer", "1=warm", "--answer", "4=no") as terminal:
        terminal.until("Your answer")
        terminal.type("one ")
        terminal.until("later): one")
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.stty("sane")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until("later): one", 2)
        terminal.type("two\x7f\x7f\x7fthree\n")
        assert terminal.ended() == 0
    assert the_run(letter)["outputs"]["2"] == "one three"


def test_a_breakpoint_waits_for_enter(cli: CommandLine, server: ModelServer) -> None:
    with TerminalSession(cli, "run", "tea.md", "--break", "1,2") as terminal:
        terminal.until('Paused after step 1.\nPress Enter to continue, or type "later" to leave it paused:')
        assert len(server.requests) == 1
        terminal.type("kind=black\n")
        terminal.until("--set NAME=VALUE` changes a value and continues.")
        terminal.type("\n")
        terminal.until('Paused after step 2.\nPress Enter to continue, or type "later" to leave it paused:')
        terminal.type("later\n")
        assert terminal.ended() == 3
        assert f"cuebook resume {the_run(cli)['run']}" in terminal.text


@pytest.mark.parametrize("flags", [["--no-ask"], ["--json"], ["--events"]])
def test_no_ask_asks_nothing(letter: CommandLine, flags: list[str]) -> None:
    with TerminalSession(letter, "run", "letter.md", *flags) as terminal:
        assert terminal.ended() == 3
        assert "By number" not in terminal.text


def test_an_unattended_run_asks_nothing(letter: CommandLine, server: ModelServer) -> None:
    with TerminalSession(letter, "run", "letter.md", "--unattended", "--break", "3") as terminal:
        assert terminal.ended() == 0
        assert "The breakpoint after step 3 was skipped" in " ".join(terminal.text.split())
    assert server.prompts == ["Write a warm letter with ."]


def test_a_run_in_the_background_of_a_terminal_asks_nothing(letter: CommandLine) -> None:
    with TerminalSession(letter, "run", "letter.md", background=True) as terminal:
        assert terminal.ended() == 3
        assert "By number" not in terminal.text


def test_results_may_go_to_a_file_while_a_person_answers(letter: CommandLine) -> None:
    with TerminalSession(
        letter, "run", "letter.md", "--answer", "1=warm", "--answer", "2=x", out=letter.work / "out"
    ) as terminal:
        terminal.until('Send it?\nyes or no (or type "later"):')
        terminal.type("no\n")
        assert terminal.ended() == 0
    assert (letter.work / "out").read_text() == "no\n"


def test_without_a_person_the_valid_answers_are_listed(letter: CommandLine) -> None:
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


def test_a_long_answer_is_kept_whole(cli: CommandLine) -> None:
    cli.write("one.md", ONE)
    text = "0123456789" * many(500, 2_000)  # a line of a terminal in its usual mode ends after 4,095 bytes
    with TerminalSession(cli, "run", "one.md") as terminal:
        terminal.until("Your answer")
        terminal.type(f"{text}\n")
        assert terminal.ended() == 0
    assert the_run(cli)["output"] == text


def test_a_text_that_is_pasted_is_one_answer(cli: CommandLine) -> None:
    cli.write("one.md", ONE)
    with TerminalSession(cli, "run", "one.md") as terminal:
        terminal.until("Your answer")
        assert "\x1b[?2004h" in terminal.raw
        terminal.type(f"Dear {PASTE}you,\rhow are you?\r{PASTED}")
        terminal.until("how are you?")
        terminal.type("Me\n")
        assert terminal.ended() == 0
        assert terminal.raw.rindex("\x1b[?2004l") > terminal.raw.rindex("\x1b[?2004h")
    assert the_run(cli)["output"] == "Dear you,\nhow are you?\nMe"


def test_what_is_left_of_a_paste_is_not_for_the_shell(cli: CommandLine) -> None:
    cli.write("one.md", ONE)
    with TerminalSession(
        cli, "run", "one.md", then='echo Shell; read -r it; echo "Got <$it>"', TERM="dumb"
    ) as terminal:
        terminal.until("Your answer")
        assert "2004" not in terminal.raw
        terminal.type("first\necho second\necho third\n")
        terminal.until("Shell")
        terminal.type("mine\n")
        terminal.until("Got <mine>")
        terminal.ended()
    assert the_run(cli)["output"] == "first"


def test_the_usual_keys_erase(cli: CommandLine) -> None:
    cli.write("one.md", ONE)
    with TerminalSession(cli, "run", "one.md") as terminal:
        terminal.until("Your answer")
        terminal.type("nonsense\x15two wrong words\x17\x17\x17one\x7f\x7f漢字\x7f\n")
        assert terminal.ended() == 0
        assert "Your answer (Ctrl-D to answer later): o漢\n" in "\n".join(
            line.rstrip() for line in terminal.text.splitlines()
        )
    assert the_run(cli)["output"] == "o漢"


def test_a_key_without_a_letter_is_not_part_of_the_answer(cli: CommandLine) -> None:
    keys = ("\x1b", "\x1bOP", "\x1b[1;5C", "\x1bb", "\x1b[24~", "\t")
    asking(cli, *["input"] * len(keys))
    with TerminalSession(cli, "run", "many.md") as terminal:
        for number, key in enumerate(keys, start=1):
            terminal.until(f"Number {number}?\nYour answer")
            terminal.type(f"a{key}\n")
        assert terminal.ended() == 0
    assert list(the_run(cli)["outputs"].values()) == ["a"] * len(keys)


def test_control_characters_that_are_pasted_are_refused(cli: CommandLine) -> None:
    cli.write("one.md", ONE)
    with TerminalSession(cli, "run", "one.md") as terminal:
        terminal.until("Your answer")
        terminal.type(f"{PASTE}red \x1b[31m text{PASTED}\n")
        terminal.until("An answer must not contain control characters.")
        terminal.type("text\n")
        assert terminal.ended() == 0
    assert the_run(cli)["output"] == "text"


def test_a_run_that_is_taken_up_within_a_step_says_which(cli: CommandLine) -> None:
    cli.write("two.md", ONE + '\n## STEP 2: B\n\n@elicit(input, "And?")\n')
    run = cli.call("run", "two.md", "--json").object["run"]
    with TerminalSession(cli, "resume", run) as terminal:
        terminal.until("Your answer")
        terminal.type("x\n")
        terminal.until("And?\nYour answer")
        assert "Step 1 of 2  A" in terminal.text
        terminal.type(CTRL_D)
        assert terminal.ended() == 3


# --- approvals --------------------------------------------------------------------------------------------


@pytest.fixture
def tooled(cli: CommandLine) -> CommandLine:
    """A command line with a tool that leaves a trace."""
    folder = cli.home / "modules"
    folder.mkdir()
    trace = cli.home / "trace"
    (folder / "my_tools.py").write_text(
        "import os\n\n\n"
        "def change(what: str) -> str:\n"
        f"    with open({str(trace)!r}, 'a') as file:\n"
        "        file.write(what)\n"
        "    if os.environ.get('DIE'):\n"
        "        os._exit(9)\n"
        "    return 'changed ' + what\n"
    )
    cli.environ["PYTHONPATH"] += f":{folder}"
    cli.config.write_text(f'{cli.config.read_text()}\n[tools]\nchange = "my_tools:change"\n')
    cli.write("tool.md", TOOL)
    return cli


def test_an_approval_is_shown_in_full_and_given(tooled: CommandLine) -> None:
    with TerminalSession(tooled, "run", "tool.md") as terminal:
        seen = terminal.until('approve, run, always, deny, or "later" (a reason may follow):')
        assert "everything" in seen
        assert "digest:" in seen
        terminal.type("\n")
        terminal.until('Expected "approve", "run", "always", "deny" or "later".')
        assert not (tooled.home / "trace").exists()
        terminal.type("approve looks fine\n")
        assert terminal.ended() == 0
    assert (tooled.home / "trace").read_text() == "everything"
    assert "approved by local: looks fine" in tooled.call("show", the_run(tooled)["run"]).out


@pytest.mark.parametrize(("word", "code"), [("deny\n", 5), ("later\n", 3), (CTRL_D, 3)])
def test_what_is_not_approved_does_not_happen(tooled: CommandLine, word: str, code: int) -> None:
    with TerminalSession(tooled, "run", "tool.md") as terminal:
        terminal.until("always, deny, or")
        terminal.type(word)
        assert terminal.ended() == code
    assert not (tooled.home / "trace").exists()


def test_what_is_in_doubt_is_asked_when_the_run_is_taken_up_again(tooled: CommandLine) -> None:
    with TerminalSession(tooled, "run", "tool.md", DIE="1") as terminal:
        terminal.until("always, deny, or")
        terminal.type("a\n")
        assert terminal.ended() == 9
    assert (tooled.home / "trace").read_text() == "everything"
    run = the_run(tooled)["run"]
    with TerminalSession(tooled, "resume", run) as terminal:
        seen = terminal.until('repeat, stop, or "later" (a reason may follow):')
        assert "done --outcome JSON" in seen
        terminal.type("repeat\n")
        assert terminal.ended() == 0
    assert (tooled.home / "trace").read_text() == "everythingeverything"


def test_a_child_without_its_own_terminal_is_not_asked(letter: CommandLine) -> None:
    """As with `script` or in an editor: the streams are terminals, but there is no keyboard."""
    with TerminalSession(letter, "run", "letter.md", own=False) as terminal:
        assert terminal.ended() == 3


def test_a_closed_keyboard_is_not_asked(letter: CommandLine) -> None:
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
