"""Cancelling, retrying and resuming many runs from the command line."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.runs.test_interrupted import ASKING, answered, on


def paused(cli: CommandLine, count: int) -> list[str]:
    return [str(cli.call("run", "tea.md", "--break", "1", "--json").object["run"]) for _ in range(count)]


def statuses(cli: CommandLine) -> dict[str, str]:
    return {one["run"]: one["status"] for one in cli.call("runs", "--json").object}


def test_waiting_runs_are_cancelled_together_after_a_look(cli: CommandLine) -> None:
    first, second = paused(cli, 2)
    done = str(cli.call("run", "tea.md", "--json").object["run"])
    before = statuses(cli)
    shown = cli.call("cancel", "--status", "paused", "--playbook", "tea.md", "--dry-run")
    assert (shown.code, shown.out) == (0, f"{second}\n{first}\n2 runs would be cancelled.\n")
    asked = cli.call("cancel", "--status", "paused")
    assert (asked.code, asked.out) == (2, "")
    assert "to cancel 2 runs needs your confirmation. Repeat the command with --yes." in asked.err
    assert first in asked.err
    assert statuses(cli) == before, "nothing has happened so far"
    ran = cli.call("cancel", "--status", "paused", "--status", "completed", "--reason", "clean up", "--yes")
    assert (ran.code, ran.out) == (1, "2 runs cancelled, 1 run refused.\n")
    assert f"refused {done}: Run {done} is already completed: there is nothing to cancel." in ran.err
    assert statuses(cli) == {first: "cancelled", second: "cancelled", done: "completed"}
    (act,) = cli.call("audit", "--admin", "--json").object["acts"]
    assert act["what"] == "runs.cancel"
    assert act["details"] == {"status": "paused, completed", "reason": "clean up", "done": 2, "refused": 1}
    assert "clean up" in cli.call("events", first).out, "each run's journal says why"


def test_failed_runs_are_retried_and_driven_to_their_ends(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [401, "Sencha.", 401, *["Well."] * 6]
    runs = [str(cli.call("run", "tea.md", "--json").object["run"]) for _ in range(2)]
    assert set(statuses(cli).values()) == {"failed"}
    ran = cli.call("retry", "--since", "1h", "--yes", "--json")
    assert ran.code == 0
    assert sorted(one["run"] for one in ran.object["done"]) == sorted(runs)
    assert {one["status"] for one in ran.object["done"]} == {"completed"}
    nothing = cli.call("retry", "--since", "1h", "--yes")
    assert (nothing.code, nothing.out) == (0, "0 runs retried.\n")


def test_a_retry_after_which_runs_have_failed_again_says_so_with_its_exit_code(
    cli: CommandLine, server: ModelServer
) -> None:
    server.replies = [401] * 4
    for _ in range(2):
        cli.call("run", "tea.md")
    ran = cli.call("retry", "--status", "failed", "--yes")
    assert (ran.code, ran.out) == (1, "2 runs retried.\nNow 2 failed.\n")


def test_paused_runs_are_resumed_together(cli: CommandLine) -> None:
    runs = paused(cli, 2)
    ran = cli.call("resume", "--search", "tea", "--yes")
    assert (ran.code, ran.out) == (0, "2 runs resumed.\nNow 2 completed.\n")
    assert statuses(cli) == dict.fromkeys(runs, "completed")


def test_interrupted_runs_are_resumed_together(cli: CommandLine, server: ModelServer) -> None:
    cli.write("ask.md", ASKING)
    run = str(cli.call("run", "ask.md", "--json").object["run"])
    on(cli, answered)
    (waiting,) = paused(cli, 1)
    ran = cli.call("resume", "--status", "interrupted", "--yes")
    assert (ran.code, ran.out) == (0, "1 run resumed.\nNow 1 completed.\n")
    assert statuses(cli) == {run: "completed", waiting: "paused"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("cancel",), "Missing argument 'RUN'. Name a run, or select many"),
        (("retry", "abc", "--status", "failed"), "RUN cannot be combined with options that select runs."),
        (("cancel", "abc", "--dry-run"), "--dry-run is for options that select runs."),
        (("resume", "--status", "paused", "--set", "kind=black"), "Values and settings can be changed for one run at a time."),
        (("cancel", "--status", "waiting"), "--status: unknown status 'waiting'."),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_meant_must_be_clear(cli: CommandLine, args: tuple[str, ...], words: str) -> None:
    (run,) = paused(cli, 1)
    ran = cli.call(*args)
    assert (ran.code, ran.out) == (2, "")
    assert words in " ".join(ran.err.split())
    assert statuses(cli) == {run: "paused"}
