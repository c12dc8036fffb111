"""Expired questions and pauses, seen and handled by commands alone: no server is running."""

from __future__ import annotations

import stat
import time

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

ASKING = '# Ask\n\n## STEP 1: What\n\n@elicit(input, "What?")\n\n## STEP 2: Work\n\nWork.\n'


def expired(cli: CommandLine, *args: str) -> str:
    cli.write("ask.md", ASKING)
    ran = cli.call("run", *(args or ("ask.md",)), "--pause-expiry", "1s", "--json")
    assert ran.code == 3
    time.sleep(1.0)
    return str(ran.object["run"])


@pytest.mark.parametrize("args", [("ask.md",), ("tea.md", "--break", "1")])
def test_every_command_shows_that_it_expired(cli: CommandLine, server: ModelServer, args: tuple[str, ...]) -> None:
    run = expired(cli, *args)
    asked = len(server.requests)
    shown = cli.call("show", run)
    assert "status:     expired" in shown.out
    assert f"cuebook retry {run}" in shown.out
    (row,) = cli.call("runs", "--json").object
    assert row["status"] == "expired"
    assert cli.call("show", run, "--state").object["status"] != "awaiting_input"
    assert cli.call("inbox", "--json").object == []
    assert len(server.requests) == asked, "nothing was performed"
    assert cli.call("verify", run).code == 0


def test_the_list_is_right_at_the_first_look(cli: CommandLine) -> None:
    expired(cli)
    assert cli.call("inbox", "--json").object == []


def test_the_error_for_a_late_answer_says_how_to_continue(cli: CommandLine) -> None:
    run = expired(cli)
    late = cli.call("answer", run, "x")
    assert late.code == 5
    assert f"`cuebook retry {run}`" in late.err
    assert f"`cuebook restart {run} 1`" in late.err
    resumed = cli.call("resume", run)
    assert (resumed.code, f"cuebook retry {run}" in resumed.err) == (5, True)


def test_an_answer_to_the_wait_itself_comes_too_late_as_well(cli: CommandLine) -> None:
    cli.write("ask.md", ASKING)
    ran = cli.call("run", "ask.md", "--pause-expiry", "1s", "--json")
    time.sleep(1.0)
    late = cli.call("answer", ran.object["waits"][0]["wait"], "x")
    assert (late.code, f"`cuebook retry {ran.object['run']}`" in late.err) == (5, True)


def test_a_late_retry_waits_once_more(cli: CommandLine) -> None:
    run = expired(cli)
    again = cli.call("retry", run, "--json")
    assert (again.code, again.object["status"]) == (3, "awaiting_input")


def test_a_store_that_cannot_be_written_is_still_shown(cli: CommandLine) -> None:
    run = expired(cli)
    folder = cli.store.parent
    paths = [folder, *folder.iterdir()]
    modes = [path.stat().st_mode for path in paths]
    for path in reversed(paths):
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        shown = cli.call("show", run)
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    assert (shown.code, run in shown.out, "Traceback" in shown.err) == (0, True, False)
