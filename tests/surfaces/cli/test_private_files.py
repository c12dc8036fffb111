"""What coding agents, jobs and browsers leave of a run beside the store goes with the run, or with its sensitive inputs."""

from __future__ import annotations

from pathlib import Path

from cuebook.performers.agents.homes import Homes
from cuebook.performers.private_files import AGENTS, BROWSERS, JOBS, jobs_of, remove_private_files
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

ASKS = """\
# Ask

## INPUTS

- `email` (string): Whom

## STEP 1: Check

@elicit(confirm, "Go on?")
"""


def left_by(data: Path, run: str) -> list[Path]:
    """The files of a run, as its performers write them."""
    log = Homes(data / AGENTS).open(run, "coder").folder / "log.txt"
    output, state = data / JOBS / jobs_of(run) / "bash_1.out", data / BROWSERS / f"{run}.json"
    for path in (log, output, state):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("ann@example.com")
    return [log, output, state]


def test_they_go_with_a_run_that_is_deleted_or_purged(cli: CommandLine) -> None:
    for more in ([], ["--contents"]):
        assert cli.call("run", "tea.md", "--no-ask").code == 0
        run, data = cli.call("runs", "--json").object[0]["run"], cli.store.parent
        mine, others = left_by(data, run), left_by(data, "another")
        assert cli.call("delete", run, *more).code == 0
        assert [path for path in mine if path.exists()] == []
        assert all(path.exists() for path in others)


def test_they_go_when_a_run_with_a_sensitive_input_has_ended(cli: CommandLine, server: ModelServer) -> None:
    cli.write("ask.md", ASKS)
    for more in ([], ["--sensitive", "email"]):
        assert cli.call("run", "ask.md", "--email", "ann@example.com", "--no-ask", *more).code == 3
        run = cli.call("runs", "--json").object[0]["run"]
        mine = left_by(cli.store.parent, run)
        assert cli.call("answer", run, "yes").code == 0
        assert [path.exists() for path in mine] == [not more] * 3


def test_an_id_that_is_a_path_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside.json").touch()
    remove_private_files(tmp_path / "data", "../../outside")
    assert (tmp_path / "outside").exists()
    assert (tmp_path / "outside.json").exists()
