"""Questions and pauses whose time is over, seen and acted on by commands alone: nobody serves the store."""

from __future__ import annotations

import stat
import time

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

ASKING = '# Ask\n\n## STEP 1: What\n\n@elicit(input, "What?")\n\n## STEP 2: Work\n\nWork.\n'


def expired(desk: Desk, *args: str) -> str:
    desk.write("ask.md", ASKING)
    ran = desk.call("run", *(args or ("ask.md",)), "--pause-expiry", "1s", "--json")
    assert ran.code == 3
    time.sleep(1.0)
    return str(ran.object["run"])


@pytest.mark.parametrize("args", [("ask.md",), ("tea.md", "--break", "1")])
def test_whoever_looks_sees_that_it_expired(desk: Desk, server: ModelServer, args: tuple[str, ...]) -> None:
    run = expired(desk, *args)
    asked = len(server.requests)
    shown = desk.call("show", run)
    assert "status:     expired" in shown.out
    assert f"cuebook retry {run}" in shown.out
    (row,) = desk.call("runs", "--json").object
    assert row["status"] == "expired"
    assert desk.call("show", run, "--state").object["status"] != "awaiting_input"
    assert desk.call("inbox", "--json").object == []
    assert len(server.requests) == asked, "nothing was performed"
    assert desk.call("verify", run).code == 0


def test_the_list_is_right_at_the_first_look(desk: Desk) -> None:
    expired(desk)
    assert desk.call("inbox", "--json").object == []


def test_an_answer_that_comes_too_late_says_how_to_go_on(desk: Desk) -> None:
    run = expired(desk)
    late = desk.call("answer", run, "x")
    assert late.code == 5
    assert f"`cuebook retry {run}`" in late.err
    assert f"`cuebook restart {run} 1`" in late.err
    resumed = desk.call("resume", run)
    assert (resumed.code, f"cuebook retry {run}" in resumed.err) == (5, True)


def test_an_answer_to_the_wait_itself_comes_too_late_as_well(desk: Desk) -> None:
    desk.write("ask.md", ASKING)
    ran = desk.call("run", "ask.md", "--pause-expiry", "1s", "--json")
    time.sleep(1.0)
    late = desk.call("answer", ran.object["waits"][0]["wait"], "x")
    assert (late.code, f"`cuebook retry {ran.object['run']}`" in late.err) == (5, True)


def test_a_late_retry_waits_once_more(desk: Desk) -> None:
    run = expired(desk)
    again = desk.call("retry", run, "--json")
    assert (again.code, again.object["status"]) == (3, "awaiting_input")


def test_a_store_that_cannot_be_written_is_still_shown(desk: Desk) -> None:
    run = expired(desk)
    folder = desk.store.parent
    paths = [folder, *folder.iterdir()]
    modes = [path.stat().st_mode for path in paths]
    for path in reversed(paths):
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        shown = desk.call("show", run)
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    assert (shown.code, run in shown.out, "Traceback" in shown.err) == (0, True, False)
