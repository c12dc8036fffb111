"""The page on troubleshooting: what it quotes is what Cuebook says, and its commands exist."""

from __future__ import annotations

import re
from contextlib import suppress

import click
import pytest

from tests.docs.test_operations_guide import parsed, words_of
from tests.support.documentation import DOCS

PAGE = (DOCS / "guides" / "troubleshooting.md").read_text()
SOURCE = DOCS.parent / "src" / "cuebook"
SEEN = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)
QUOTED = [words for cell in SEEN for words in re.findall(r'"([^"]+)"', cell)]
COMMANDS = sorted(set(re.findall(r"`(cuebook [^`]+)`", PAGE)))


@pytest.fixture(scope="module")
def source() -> str:
    """All texts of the program, those over several lines joined."""
    files = [path.read_text() for path in sorted(SOURCE.rglob("*")) if path.suffix in (".py", ".html", ".js")]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(files))


@pytest.mark.parametrize("words", QUOTED)
def test_what_is_quoted_is_what_is_said(words: str, source: str) -> None:
    """Values, behind a colon or in parentheses, are not part of the source."""
    parts = [re.split(r"[:(]", part)[0].strip(" ;") for part in words.split("...")]
    assert [part for part in parts if part not in source] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_exist(command: str) -> None:
    with suppress(click.MissingParameter):  # the page names some without what they are called with
        parsed(words_of(command.replace(" ...", " 5")))
