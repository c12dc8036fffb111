"""Text for people is wrapped between words if it is wider than the terminal, and never otherwise."""

from __future__ import annotations

import re

import pytest

from cuebook.surfaces.cli.terminal.output import wrapped
from tests.support.command_line import CommandLine
from tests.support.pseudo_terminal import TerminalSession


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("It fits.", ["It fits."]),
        ("one two three four five six", ["one two three four", "five six"]),
        ("  one two three four five", ["  one two three four", "  five"]),
        ("- one two three four five", ["- one two three four", "  five"]),
        ("name:   one two three", ["name:   one two", "        three"]),
        ("a rather long name  one two", ["a rather long name", "one two"]),
        ("see /a/path/that/is/very/long now", ["see", "/a/path/that/is/very/long", "now"]),
        ("漢字漢字 漢字漢字 漢字", ["漢字漢字 漢字漢字", "漢字"]),
        ("\x1b[31mone two three four\x1b[0m", ["\x1b[31mone two three four\x1b[0m"]),
        (" " * 30, [""]),
    ],
)
def test_a_line_is_broken_between_words(line: str, lines: list[str]) -> None:
    assert list(wrapped(line, 20)) == lines


LONG = "Tell everything about the making of tea in mountains, slowly and with care"
ASKS = f'# Tea\n\n## STEP 1: Think\n\n{LONG}.\n\n## STEP 2: Ask\n\n@elicit(input, "{LONG}: what do you think?")\n'


@pytest.fixture
def waiting(cli: CommandLine) -> str:
    cli.write("ask.md", ASKS)
    return str(cli.call("run", "ask.md", "--json").object["run"])


@pytest.mark.parametrize(
    "args",
    [
        ["show", "RUN"],
        ["events", "RUN"],
        ["explain", "ask.md"],
        ["doctor"],
        ["policy", "show"],
        ["models"],
        ["run", "ask.md", "--dry-run"],
        ["run", "nothing-of-this-name.md"],
    ],
    ids=lambda args: " ".join(args),
)
def test_no_word_is_broken_at_the_edge_of_a_terminal(cli: CommandLine, waiting: str, args: list[str]) -> None:
    args = [waiting if word == "RUN" else word for word in args]
    elsewhere = cli.call(*args)
    with TerminalSession(cli, *args, width=50) as terminal:
        assert terminal.ended() == elsewhere.code
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip("\r") for line in terminal.raw.split("\n")]
    too_wide = [line for line in shown if len(line) > 50 and " " in line.strip()]
    assert too_wide == []
    if args[0] not in ("doctor", "models"):  # those two look again at what may change
        assert " ".join(shown).split() == (elsewhere.out + elsewhere.err).split()


def test_what_goes_to_a_file_is_not_wrapped(cli: CommandLine, waiting: str) -> None:
    cli.environ["COLUMNS"] = "30"
    assert any(LONG in line for line in cli.call("show", waiting).out.splitlines())
