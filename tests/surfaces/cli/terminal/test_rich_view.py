"""The view of a run on a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from cuebook.kernel.context import Text as Told
from cuebook.kernel.events import (
    ModelAsked,
    Noted,
    Performed,
    Planned,
    PlannedStep,
    StepFinished,
    StepSkipped,
    StepStarted,
    Suspended,
    TextChunk,
    TextReset,
)
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import Reply, Usage
from cuebook.kernel.run import RunRow, StepRow, Totals
from cuebook.service.service import RunView
from cuebook.surfaces.cli.terminal.output import harmless
from cuebook.surfaces.cli.terminal.progress import Progress, outcome_lines, plan_lines
from cuebook.surfaces.cli.terminal.rich_view import Flow, Terminal
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import Screen, TerminalSession


def test_a_run_streams_under_headings_and_ends_in_a_summary(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha it is.", "Hot \x1b]0;owned\x07and \x1b[2Jstrong.", "Served."]
    with TerminalSession(cli, "run", "tea.md") as terminal:
        assert terminal.ended() == 0
        assert "\x1b]0;" not in terminal.raw
        assert "\x1b[2J" not in terminal.raw
        assert "\x1b[36m" in terminal.raw, "there are colours"
        seen = terminal.text
    assert re.match(r"Tea  test/echo-1, run \w{12}\n· 1  Choose\n· 2  Brew\n· 3  Serve\n\nStep 1 of 3  Choose ─", seen)
    assert re.search(
        r"Choose ─+\nSencha it is\.\n\d\.\d s, 10 tokens in, 5 out, cost unknown\n\nStep 2 of 3  Brew", seen
    )
    assert "Hot ]0;ownedand [2Jstrong.\n" in seen
    assert re.search(r"╭─+ completed ─+╮", seen)
    assert re.search(r"│ steps +3 of 3 +│\n│ model ", seen), "there is nothing to say of the steps"
    assert re.search(r"│ more +cuebook show \w{12} +│", seen)
    assert "in all" not in seen, "the line that says how far it is has left nothing behind"


def test_the_status_line_is_shown_below_while_a_step_runs(cli: CommandLine, server: ModelServer) -> None:
    line = "The kettle sings and the leaves unfold in the hot water"
    server.replies = ["Sencha.", f"{line}. {line}.\n\n{line}.", "Served."]
    server.hold_at = 2
    with TerminalSession(cli, "run", "tea.md", width=76) as terminal:
        assert server.holding.wait(30)
        seen = terminal.until("step 2 of 3 writing, ")
        last = seen.rstrip("\n").split("\n")[-1]
        assert re.fullmatch(r"step 2 of 3 writing, \d+ s   tokens 10 in, ~6 out   cost unknown   total \d+ s", last)
        server.release()
        assert terminal.ended() == 0
        seen = terminal.text
    wrapped = f"{line}. The kettle sings\n{line[17:]}.\n\n{line}.\n"
    assert f"\n{wrapped}" in seen, "and the text is as it would be without it"
    assert "in all" not in seen


def test_there_is_no_such_line_where_the_cursor_cannot_move(cli: CommandLine) -> None:
    ran = cli.call("run", "tea.md", "--live")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "in all" not in ran.out
    assert "Step 1 of 3  Choose ─" in ran.out
    with TerminalSession(cli, "run", "tea.md", TERM="dumb") as terminal:
        assert terminal.ended() == 0
        assert "\x1b" not in terminal.raw


def test_colours_can_be_turned_off(cli: CommandLine) -> None:
    with TerminalSession(cli, "run", "tea.md", "--break", "1", NO_COLOR="1") as terminal:
        terminal.until("Press Enter to continue")
        terminal.type("later\n")
        assert terminal.ended() == 3
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]", terminal.raw)
        assert "cuebook resume " in terminal.text


def test_a_run_that_is_taken_up_again_shows_what_is_done(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha.", 401, "Hot.", "Served."]
    with TerminalSession(cli, "run", "tea.md") as terminal:
        assert terminal.ended() == 1
        assert re.search(r"│ +✓ 1  Choose +│\n│ +✗ 2  Brew  failed +│\n│ +– 3  Serve  skipped +│", terminal.text)
        (run,) = re.findall(r"cuebook retry (\w+)", terminal.text)
    with TerminalSession(cli, "retry", run) as terminal:
        assert terminal.ended() == 0
        seen = terminal.text
    assert "\n✓ 1  Choose\n✗ 2  Brew\n– 3  Serve\n" in seen
    assert re.search(r"\n\nStep 2 of 3  Brew ─+\nHot\.\n", seen), "the step has a heading though it began elsewhere"


def test_a_branch_says_which_sub_step_it_is_at(cli: CommandLine) -> None:
    branching = """# B\n\n## STEP 7: First\n\n```if nothing != "x"```\n\n### STEP 7a: Inner\n\nWork.\n\n```endif```
\n## STEP 9: Last\n\n```if nothing == "x"```\n\nNever.\n\n```endif```\n"""
    cli.write("branch.md", branching)
    with TerminalSession(cli, "run", "branch.md") as terminal:
        assert terminal.ended() == 0
        seen = terminal.text
    assert "Step 7 (1 of 2)  First ─" in seen
    assert "Step 7a (1 of 2)  Inner ─" in seen
    assert re.search(r"\nstep 7: \d\.\d s\n", seen)
    assert seen.count("Reply number 1.") == 1
    assert "Step 9 (2 of 2)  Last ─" in seen
    assert re.search(r"│ +✓ 7a  Inner +│\n│ +– 9  Last  skipped +│", seen)


def flowed(width: int, *pieces: str) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    flow = Flow(console, width)
    for piece in pieces:
        flow.write(piece)
    flow.close()
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_streamed_text_breaks_between_words_however_it_is_cut() -> None:
    whole = flowed(20, "The quick brown fox jumps over the lazy dog.\n\nEnd")
    assert whole == "The quick brown fox\njumps over the lazy\ndog.\n\nEnd\n"
    assert flowed(20, *"The quick brown fox jumps over the lazy dog.\n\nEnd") == whole


def test_a_long_word_and_wide_letters_fit() -> None:
    assert flowed(10, "a " + "x" * 25 + " b") == "a \n" + "x" * 25 + "\nb\n"
    assert flowed(10, "茶茶茶 茶茶茶") == "茶茶茶 \n茶茶茶\n"


def test_control_characters_are_taken_out() -> None:
    assert harmless("a\x1b[31mb\x07\r\nc\td\x9b") == "a[31mb\nc\td"


def test_a_step_that_another_process_did_is_shown_when_it_is_finished() -> None:
    written = io.StringIO()
    view = Terminal(console=Console(file=written, width=60, force_terminal=False))
    view.see(entry(Planned((PlannedStep("1", "Choose"),))))
    view.see(entry(StepStarted("1", "Choose")))
    view.see(entry(StepFinished("1", output=Told("Sencha."), seconds=1.0)))
    view.see(entry(StepStarted("2", "Brew")))
    view.see(TextChunk("r", 5, "2", 0, "Hot"))
    view.see(TextReset("r", 6, "2"))
    view.see(TextChunk("r", 6, "2", 0, "Hotter"))
    view.see(entry(StepFinished("2", output=Told("Hotter"), seconds=1.0)))
    assert written.getvalue().count("Sencha.") == 1
    assert written.getvalue().count("Hotter") == 1
    assert "the reply starts again" in written.getvalue()


def test_a_skipped_step_is_shown() -> None:
    written = io.StringIO()
    view = Terminal(console=Console(file=written, width=60, force_terminal=False))
    view.see(entry(StepSkipped("3", "Serve", "nobody is thirsty")))
    assert "Step 3  Serve ─" in written.getvalue()
    assert "skipped: nobody is thirsty" in written.getvalue()


def test_marks_are_plain_letters_where_there_are_no_others() -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    view = Terminal(console=Console(file=written, width=60, force_terminal=False))
    view.begin("T", a_run(), [StepRow("", "1", 1, "A", "completed")], (PlannedStep("1", "A"), PlannedStep("2", "B")))
    written.flush()
    raw = written.buffer
    assert isinstance(raw, io.BytesIO)
    assert raw.getvalue().decode("ascii").splitlines()[1:] == ["+ 1  A", ". 2  B"]


# --- how far a run is ---------------------------------------------------------------------------------------


def test_what_was_used_adds_up_over_the_steps() -> None:
    now = [0.0]
    plan = (PlannedStep("1", "A"), PlannedStep("1", "B"), PlannedStep("2", "C"))
    done = Totals(input=100, output=10, cost=0.5, seconds=7.0)
    progress = Progress(a_run(totals=done), (), plan, clock=lambda: now[0])
    assert not progress.running
    progress.see(entry(StepStarted("1", "B"), Place(step="1", visit=2)))
    progress.see(entry(ModelAsked("m/x", "", Told("?"), ""), Place(step="1", visit=2)))
    now[0] = 3.0
    assert progress.running
    assert progress.line() == "step 1 (2 of 3) asking m/x, 3 s   tokens 100 in, 10 out   $0.5000   total 10 s"
    about = {"number": 2, "of": 5, "reason": "Busy.", "model": "m/x", "kind": "overloaded", "wait": 3.7}
    progress.see(entry(Noted("model_attempt", about), Place(step="1", visit=2)))
    assert progress.line().startswith("step 1 (2 of 3) attempt 2 of 5 in 4 s: Busy., 3 s")
    progress.see(
        entry(Noted("model_fallback", {"model": "m/x", "to": "n/y", "kind": "overloaded"}), Place(step="1", visit=2))
    )
    assert progress.line().startswith("step 1 (2 of 3) asking n/y, because m/x is unavailable, 3 s")
    progress.see(TextChunk("r", 2, "1", 0, "x" * 40))
    assert progress.line() == "step 1 (2 of 3) writing, 3 s   tokens 100 in, ~20 out   $0.5000   total 10 s"
    progress.see(TextReset("r", 2, "1"))
    assert ", 10 out" in progress.line()
    progress.see(entry(Performed(Reply(Told("x"), usage=Usage(5, 3, cost=0.25)), "")))
    progress.see(entry(StepFinished("1")))
    assert progress.line() == "step 1 (2 of 3), 3 s   tokens 105 in, 13 out   $0.7500   total 10 s"
    progress.see(entry(Performed(Reply(Told("x"), usage=Usage(1, 1, cost=None)), "")))
    assert "$0.7500 and 1 call of unknown cost" in progress.line()
    progress.see(entry(Suspended("paused", seconds=60.0)))
    assert not progress.running


def test_a_long_plan_is_kept_short() -> None:
    plan = [PlannedStep(str(number), f"Step {number}") for number in range(1, 201)]
    fresh = plan_lines(plan, [])
    assert (len(fresh), fresh[0], fresh[-1]) == (11, "· 1  Step 1", "· and 190 more")
    rows = [StepRow("", str(number), 1, status="completed") for number in range(1, 196)]
    rows.append(StepRow("", "196", 1, status="awaiting_input"))
    assert plan_lines(plan, rows) == [
        "✓ 195 steps", "› 196  Step 196", "· 197  Step 197", "· 198  Step 198", "· 199  Step 199", "· 200  Step 200",
    ]  # fmt: skip
    assert plan_lines(plan[:12], rows) == [f"✓ {number}  Step {number}" for number in range(1, 13)]
    assert plan_lines(plan, rows[:-1] + [StepRow("", str(n), 1, status="completed") for n in range(196, 201)]) == [
        "✓ 200 steps"
    ]


def test_the_steps_are_listed_at_the_end_where_not_all_were_completed() -> None:
    rows = [StepRow("", str(number), 1, f"S{number}", "completed") for number in range(1, 101)]
    assert outcome_lines(rows) == []
    rows[41].status = "failed"
    for row in rows[42:]:
        row.status = "skipped"
    lines = outcome_lines(rows)
    assert lines[:2] == ["✗ 42  S42  failed", "– 43  S43  skipped"]
    assert lines[-1] == "… and 47 more"
    assert len(lines) == 13
    assert outcome_lines(rows[40:42]) == ["✓ 41  S41", "✗ 42  S42  failed"]
    assert outcome_lines([StepRow("", "1", 1, "A", "failed")]) == [], "the box says it already"


@pytest.mark.parametrize("width", [20, 40, 79, 80, 81, 200])
def test_the_line_below_never_touches_the_text(width: int) -> None:
    """Words of every length, cut anywhere, on terminals of every width: the text is the same as without the line."""
    text = "a bb ccc\n" + "dddd " * 50 + "e" * 300 + " f\n\n" + "茶" * 70 + " g " + "hh " * 60
    seen: list[str] = []
    for below in (False, True):
        screen = Screen(width)
        file = Tty(screen) if below else io.StringIO()
        console = Console(file=file, width=width, force_terminal=below, color_system=None, legacy_windows=False)
        view = Terminal(console=console)
        view.begin("T", a_run(), [])
        view.see(entry(StepStarted("1", "A"), Place(step="1", visit=1)))
        for start in range(0, len(text), 7):
            view.see(TextChunk("r", 2, "1", start, text[start : start + 7]))
            view.tick()
        view.see(entry(StepFinished("1")))
        view.end(RunView(a_run(status="completed"), [], [], {}, {}, None, None))
        if not below:
            assert isinstance(file, io.StringIO)
            screen.write(file.getvalue().replace("\n", "\r\n"))
        seen.append(screen.text)
    assert seen[0] == seen[1]


class Tty(io.StringIO):
    """A file that claims to be a terminal."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._screen.write(text.replace("\n", "\r\n"))
        return len(text)


def a_run(**more: Any) -> RunRow:
    made = {
        "id": "r",
        "tenant": "",
        "owner": "",
        "dialect": "markdown",
        "interpreter": 1,
        "playbook": "",
        "name": "t.md",
    }
    return RunRow(**made, created=0.0, updated=0.0, model="m/x", **more)  # type: ignore[arg-type]


def entry(event: Any, place: Place | None = None) -> Entry:
    return Entry("r", 1, 0.0, place or Place(), event)
