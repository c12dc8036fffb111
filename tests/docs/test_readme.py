"""The README and the quickstart: their playbooks have no findings, and every command and program in them runs."""

from __future__ import annotations

import pytest

from cuebook.dialects.markdown.check import check
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, Reader, blocks
from tests.support.model_server import ModelServer
from tests.surfaces.web.test_serve import Serving

README = blocks(DOCS.parent / "README.md")
QUICKSTART = blocks(DOCS / "quickstart.md")
SERVE = "cuebook serve"


def shown(page: list[Block], language: str) -> list[str]:
    return [block.text for block in page if block.language == language]


def commands(page: list[Block]) -> list[str]:
    """All commands except those that need a key, and the one that runs until it is stopped."""
    typed = [command for block in page for command in block.commands]
    return [command for command in typed if "openai" not in command and not command.startswith(SERVE)]


def assert_serves(cli: CommandLine, page: list[Block]) -> None:
    """The page's server shows the page's playbook, and the runs of the terminal."""
    (command,) = [one for block in page for one in block.commands if one.startswith(SERVE)]
    serving = Serving(cli, *command.removeprefix(SERVE).split())
    try:
        assert "Thank-you letter" in serving.client.get("/playbooks/letter").text
        assert {one["playbook"] for one in serving.client.get("/api/runs").json()["runs"]} >= {"letter.md"}
    finally:
        assert serving.end()[0] == 130


def assert_runs(cli: CommandLine, program: str) -> None:
    ran = cli.fork(program=cli.write("program.py", program))
    assert ran is not None
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("completed ")


@pytest.mark.timeout(400)  # dozens of processes
def test_the_readme_shows_what_runs(cli: CommandLine, server: ModelServer) -> None:
    (playbook,) = shown(README, "markdown")
    (cases,) = shown(README, "yaml")
    (program,) = shown(README, "python")
    assert check(playbook, "README.md") == []
    cli.write("reply.playbook.md", playbook)
    cli.write("reply.test.yaml", cases)
    typed = commands(README)
    for word in ("validate", "explain", "run", "answer", "test", "graph"):
        assert any(command.split()[1] == word for command in typed)
    waiting = Reader(cli, server).types_all(typed)
    assert waiting == [
        'cuebook run reply.playbook.md --shop "Light House"',
        "cuebook run reply.playbook.md --break 1",
        "cuebook resume RUN --set kind=question",
        "cuebook run reply.playbook.md --budget-tokens 2000",
        "cuebook policy test command git push",
    ]
    assert_runs(cli, program)


@pytest.mark.timeout(400)  # dozens of processes
def test_the_quickstart_shows_what_runs(cli: CommandLine, server: ModelServer) -> None:
    playbook, question = shown(QUICKSTART, "markdown")
    (cases,) = shown(QUICKSTART, "yaml")
    (program,) = shown(QUICKSTART, "python")
    reader = Reader(cli, server)
    cli.write("letter.md", playbook)
    before = [block for block in QUICKSTART if block.text != question and block.line < line_of(question)]
    assert reader.types_all(commands(before)) == [
        "cuebook run letter.md --name Maria --tone formal --break 1",
        "cuebook run letter.md --name Maria --tone formal --budget-tokens 700 --budget-money 0.05",
    ]
    assert check(playbook + "\n" + question, "letter.md") == []
    cli.write("letter.md", f"{playbook}\n{question}")
    cli.write("letter.test.yaml", cases)
    after = [block for block in QUICKSTART if block.line > line_of(question)]
    assert reader.types_all(commands(after)) == []
    assert_serves(cli, after)
    assert_runs(cli, program)


def line_of(text: str) -> int:
    return next(block.line for block in QUICKSTART if block.text == text)
