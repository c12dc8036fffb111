"""Runs whose wait is over or whose process was killed, and that no process drives: commands show it, and how to continue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cuebook.gate.roles import Principal
from cuebook.kernel.run import Signal
from cuebook.service.waits.decisions import approval
from cuebook.stores.sqlite import SqliteStore
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.programs import new_row
from tests.support.records import RecordWriter, claim, create, driven, killed, wait_row

ASKING = '# Ask\n\n## STEP 1: What\n\n@elicit(input, "What?")\n\n## STEP 2: Work\n\nWork.\n'
APPROVED = "name: Gate\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n"
FAILING = "name: Fails\nsteps:\n  - {id: a, command: cli test -e there}\n"


def on(cli: CommandLine, act: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Changes the store as another process would."""

    async def work() -> None:
        store = SqliteStore(cli.store)
        await act(store)
        await store.close()

    asyncio.run(work())


async def answered(store: SqliteStore) -> None:
    (wait,) = await store.waits()
    said = {"value": "tea"} if wait.kind == "question" else approval(wait, "approve", "", Principal())
    await store.complete_wait(wait.id, said, "me", 0.0)


async def taken_and_killed(store: SqliteStore, run: str) -> None:
    """A process claims the run and is killed before it has written anything."""
    await claim(store, run, "gone")
    await killed(store, "gone")


def check_interrupted(cli: CommandLine, run: str, because: str) -> None:
    (row,) = cli.call("runs", "--json").object
    assert row["interrupted"] is True
    assert "  interrupted  " in cli.call("runs").out
    assert [one["run"] for one in cli.call("runs", "--status", "interrupted", "--json").object] == [run]
    shown = cli.call("show", run).out
    assert "status:     interrupted\n" in shown
    assert because in shown
    assert f"next:       cuebook resume {run}\n" in shown
    printed = cli.call("show", run, "--json").object
    assert (printed["interrupted"], printed["next"]) == (True, f"cuebook resume {run}")
    assert f"`cuebook resume {run}` continues it" in cli.call("inbox").out
    (listed,) = cli.call("inbox", "--json").object
    assert (listed["wait"], listed["run"], listed["kind"]) == (None, run, "interrupted")
    assert listed["next"] == f"cuebook resume {run}"


@pytest.mark.parametrize("taken", [False, True])
def test_an_answered_run_that_was_not_taken_up_continues_when_resumed(
    taken: bool, cli: CommandLine, server: ModelServer
) -> None:
    cli.write("ask.md", ASKING)
    ran = cli.call("run", "ask.md", "--json").object
    run = ran["run"]
    assert (ran["interrupted"], cli.call("runs", "--json").object[0]["interrupted"]) == (False, False)
    on(cli, answered)
    if taken:
        on(cli, lambda store: taken_and_killed(store, run))
    check_interrupted(cli, run, "Its wait was decided")
    for late in (cli.call("answer", run, "no"), cli.call("answer", ran["waits"][0]["wait"], "no")):
        assert (late.code != 0, f"`cuebook resume {run}`" in late.err) == (True, True)
    assert cli.call("resume", run).code == 0
    assert cli.call("inbox", "--json").object == []
    assert cli.call("runs", "--status", "interrupted", "--json").object == []


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_approved_and_not_taken_up_is_in_the_inbox(taken: bool, cli: CommandLine) -> None:
    cli.write("gate.yml", APPROVED)
    run = cli.call("run", "gate.yml", "--json").object["run"]
    on(cli, answered)
    if taken:
        on(cli, lambda store: taken_and_killed(store, run))
    check_interrupted(cli, run, "Its wait was decided")
    late = cli.call("decide", run, "approve")
    assert f"`cuebook resume {run}`" in late.err
    assert cli.call("resume", run).code == 0
    assert (cli.work / "made.txt").exists()


def test_an_approval_that_expired_with_no_server_says_so(cli: CommandLine) -> None:
    cli.write("gate.yml", APPROVED)
    run = cli.call("run", "gate.yml", "--json").object["run"]

    async def overdue(store: SqliteStore) -> None:
        (wait,) = await store.waits()
        sql = "UPDATE waits SET expires = 1, body = json_set(body, '$.expires', 1.0) WHERE id = ?"
        store._connection.execute(sql, (wait.id,))

    on(cli, overdue)
    shown = cli.call("show", run).out
    assert "status:     interrupted\n" in shown
    assert f"next:       cuebook resume {run}\n" in shown
    (listed,) = cli.call("inbox", "--json").object
    assert (listed["kind"], listed["next"]) == ("interrupted", f"cuebook resume {run}"), "the approval is open no more"
    assert cli.call("resume", run).code == 5
    assert cli.call("runs", "--json").object[0]["status"] == "expired"


@pytest.mark.parametrize("command", ["retry", "resume"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_retry_whose_process_was_killed_can_be_asked_for_again(taken: bool, command: str, cli: CommandLine) -> None:
    cli.config.parent.mkdir(parents=True, exist_ok=True)
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("fails.yml", FAILING)
    run = cli.call("run", "fails.yml", "--json").object["run"]
    assert cli.call("runs", "--json").object[0]["interrupted"] is False
    on(cli, lambda store: store.signal(Signal(run, "retry", {}, "me")))
    if taken:
        on(cli, lambda store: taken_and_killed(store, run))
    check_interrupted(cli, run, "A retry was requested")
    cli.write("there", "")
    again = cli.call(command, run)
    assert (again.code, "already" in again.err) == (0, False), again.err


def test_the_inbox_and_short_ids_leave_nothing_out(cli: CommandLine) -> None:
    cli.store.parent.mkdir(parents=True)

    async def many(store: SqliteStore) -> None:
        row = new_row("hand", "waits")
        await create(store, "waits", row)
        writer: RecordWriter = await claim(store, "waits")
        opened = [wait_row(f"w{n:05}", "waits", tenant="local", opened=float(n)) for n in range(1200)]
        await store.append(writer.batch(*driven(), opened=opened))
        await asyncio.gather(*(create(store, f"{n:05}-run", new_row("hand", f"{n:05}-run")) for n in range(1200)))
        await store.retire("d1")

    on(cli, many)
    listed = cli.call("inbox", "--json").object
    assert [one["wait"] for one in listed if one["wait"]] == [f"w{n:05}" for n in range(1200)]
    assert cli.call("show", "00003", "--json").object["run"] == "00003-run"
    many_fit = cli.call("show", "0000")
    assert "matches 10 runs: 00009-run, 00008-run, " in many_fit.err
    assert "matches at least 20 runs" in cli.call("show", "00").err
    assert cli.call("inbox", "w01199", "--json").object["wait"] == "w01199"
