"""Runs whose wait is over, or whose driver was killed, and that no process has taken up: commands say so, and how they go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cuebook.decisions import approval
from cuebook.gate.people import Principal
from cuebook.kernel.run import Signal
from cuebook.stores.sqlite import SqliteStore
from tests.stores.pen import Pen, claim, create, driven, killed, wait_row
from tests.support import new_row
from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

ASKING = '# Ask\n\n## STEP 1: What\n\n@elicit(input, "What?")\n\n## STEP 2: Work\n\nWork.\n'
APPROVED = "name: Gate\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n"
FAILING = "name: Fails\nsteps:\n  - {id: a, command: cli test -e there}\n"


def on(desk: Desk, act: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Does something to the desk's store, as another process would."""

    async def work() -> None:
        store = SqliteStore(desk.store)
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


def check_interrupted(desk: Desk, run: str, because: str) -> None:
    (row,) = desk.call("runs", "--json").object
    assert row["interrupted"] is True
    assert "  interrupted  " in desk.call("runs").out
    assert [one["run"] for one in desk.call("runs", "--status", "interrupted", "--json").object] == [run]
    shown = desk.call("show", run).out
    assert "status:     interrupted\n" in shown
    assert because in shown
    assert f"next:       cuebook resume {run}\n" in shown
    told = desk.call("show", run, "--json").object
    assert (told["interrupted"], told["next"]) == (True, f"cuebook resume {run}")
    assert f"`cuebook resume {run}` goes on" in desk.call("inbox").out
    (listed,) = desk.call("inbox", "--json").object
    assert (listed["wait"], listed["run"], listed["kind"]) == (None, run, "interrupted")
    assert listed["next"] == f"cuebook resume {run}"


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_answered_and_not_taken_up_goes_on_when_it_is_resumed(
    taken: bool, desk: Desk, server: ModelServer
) -> None:
    desk.write("ask.md", ASKING)
    ran = desk.call("run", "ask.md", "--json").object
    run = ran["run"]
    assert (ran["interrupted"], desk.call("runs", "--json").object[0]["interrupted"]) == (False, False)
    on(desk, answered)
    if taken:
        on(desk, lambda store: taken_and_killed(store, run))
    check_interrupted(desk, run, "What it waited for is decided")
    for late in (desk.call("answer", run, "no"), desk.call("answer", ran["waits"][0]["wait"], "no")):
        assert (late.code != 0, f"`cuebook resume {run}`" in late.err) == (True, True)
    assert desk.call("resume", run).code == 0
    assert desk.call("inbox", "--json").object == []
    assert desk.call("runs", "--status", "interrupted", "--json").object == []


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_approved_and_not_taken_up_is_in_the_inbox(taken: bool, desk: Desk) -> None:
    desk.write("gate.yml", APPROVED)
    run = desk.call("run", "gate.yml", "--json").object["run"]
    on(desk, answered)
    if taken:
        on(desk, lambda store: taken_and_killed(store, run))
    check_interrupted(desk, run, "What it waited for is decided")
    late = desk.call("decide", run, "approve")
    assert f"`cuebook resume {run}`" in late.err
    assert desk.call("resume", run).code == 0
    assert (desk.work / "made.txt").exists()


def test_an_approval_that_expired_with_no_server_says_so(desk: Desk) -> None:
    desk.write("gate.yml", APPROVED)
    run = desk.call("run", "gate.yml", "--json").object["run"]

    async def overdue(store: SqliteStore) -> None:
        (wait,) = await store.waits()
        sql = "UPDATE waits SET expires = 1, body = json_set(body, '$.expires', 1.0) WHERE id = ?"
        store._connection.execute(sql, (wait.id,))

    on(desk, overdue)
    shown = desk.call("show", run).out
    assert "status:     interrupted\n" in shown
    assert f"next:       cuebook resume {run}\n" in shown
    (listed,) = desk.call("inbox", "--json").object
    assert (listed["kind"], listed["next"]) == ("interrupted", f"cuebook resume {run}"), "the approval is open no more"
    assert desk.call("resume", run).code == 5
    assert desk.call("runs", "--json").object[0]["status"] == "expired"


@pytest.mark.parametrize("command", ["retry", "resume"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_retry_whose_process_was_killed_can_be_asked_for_again(taken: bool, command: str, desk: Desk) -> None:
    desk.config.parent.mkdir(parents=True, exist_ok=True)
    (desk.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    desk.write("fails.yml", FAILING)
    run = desk.call("run", "fails.yml", "--json").object["run"]
    assert desk.call("runs", "--json").object[0]["interrupted"] is False
    on(desk, lambda store: store.signal(Signal(run, "retry", {}, "me")))
    if taken:
        on(desk, lambda store: taken_and_killed(store, run))
    check_interrupted(desk, run, "A retry was asked for")
    desk.write("there", "")
    again = desk.call(command, run)
    assert (again.code, "already" in again.err) == (0, False), again.err


def test_the_inbox_and_short_ids_leave_nothing_out(desk: Desk) -> None:
    desk.store.parent.mkdir(parents=True)

    async def many(store: SqliteStore) -> None:
        row = new_row("hand", "waits")
        await create(store, "waits", row)
        pen: Pen = await claim(store, "waits")
        opened = [wait_row(f"w{n:05}", "waits", tenant="local", opened=float(n)) for n in range(1200)]
        await store.append(pen.batch(*driven(), opened=opened))
        await asyncio.gather(*(create(store, f"{n:05}-run", new_row("hand", f"{n:05}-run")) for n in range(1200)))
        await store.retire("d1")

    on(desk, many)
    listed = desk.call("inbox", "--json").object
    assert [one["wait"] for one in listed if one["wait"]] == [f"w{n:05}" for n in range(1200)]
    assert desk.call("show", "00003", "--json").object["run"] == "00003-run"
    many_fit = desk.call("show", "0000")
    assert "fits 10 runs: 00000-run, 00001-run, " in many_fit.err
    assert "fits at least 20 runs" in desk.call("show", "00").err
    assert desk.call("inbox", "w01199", "--json").object["wait"] == "w01199"
