"""The guide to Cuebook from Python: every example in it runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, finished
from tests.support.model_server import ModelServer

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"
BLOCK = re.compile(r"(?:^`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks() -> list[tuple[str, str, str, int]]:
    """Each block's file name (if it has one), language, text and line."""
    text = GUIDE.read_text(encoding="utf-8")
    return [(one[1] or "", one[2], one[3], text.count("\n", 0, one.start(3)) + 1) for one in BLOCK.finditer(text)]


FILES = {name: text for name, _, text, _ in blocks() if name}
SCRIPTS = [(text, line) for name, language, text, line in blocks() if language == "python" and not name]


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line with a local model server and the guide's files in its working folder."""
    server = ModelServer()
    made = CommandLine(tmp_path, server.url)
    for name, text in FILES.items():
        made.write(name, text)
    yield made
    server.close()


def python(cli: CommandLine, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *args],
        cwd=cli.work,
        env=cli.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_guide_has_its_files_and_examples() -> None:
    assert set(FILES) == {"letter.md", "price.md", "mood.yml", "note.yml", "split.pbasm", "deploy.py"}
    assert len(SCRIPTS) >= 9


@pytest.mark.parametrize(("text", "line"), SCRIPTS, ids=[f"line {line}" for _, line in SCRIPTS])
def test_an_example_runs_as_printed(cli: CommandLine, text: str, line: int) -> None:
    ran = cli.fork(program=cli.write("example.py", text))
    assert ran is not None
    assert (ran.code, ran.err) == (0, "")


def test_a_program_of_effects_is_approved_from_the_command_line(cli: CommandLine) -> None:
    process = python(cli, "deploy.py")
    try:
        assert process.stdout is not None
        run, status = process.stdout.readline().split()
        assert status == "awaiting_approval"
        assert not (cli.work / "release-1.2").exists()
        assert run in cli.call("inbox").out
        decided = cli.call("decide", run, "approve", "--reason", "it is Tuesday")
        assert (decided.code, "continues when that program drives it" in decided.err) == (0, True)
        ran = finished(process)
        assert (ran.code, ran.out, ran.err) == (0, "completed 0\n", "")
    finally:
        process.kill()
        process.wait()
    assert (cli.work / "release-1.2").exists()
    assert "completed" in cli.call("show", run).out
    assert cli.call("verify", run).code == 0


def test_the_guide_shows_only_existing_commands() -> None:
    from cuebook.surfaces.cli import COMMANDS

    shown = re.findall(
        r"^cuebook (\w+)", "\n".join(text for _, language, text, _ in blocks() if language == "sh"), re.M
    )
    assert shown
    assert set(shown) <= set(COMMANDS)
    assert os.path.isfile(GUIDE.parent / "testing.md")
