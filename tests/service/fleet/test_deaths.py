"""Workers that are killed or stopped: the others continue their runs, and nothing that happened is repeated."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

import psycopg
import pytest

from cuebook.kernel.events import ModelAsked
from cuebook.stores.postgres.database import is_lost
from tests.service.fleet.fleet import PATIENCE, Fleet, steps, written
from tests.support.model_server import ModelServer
from tests.support.sampling import many

pytestmark = pytest.mark.needs("postgres")


async def test_a_worker_is_killed_in_the_middle_of_many_runs(fleet: Fleet) -> None:
    """It counts as another machine, so the lease in the database decides when its runs are taken over."""
    runs, length = many(10, 40), many(6, 20)
    killed, other = fleet.hire_elsewhere("--at-once", str(runs // 2)), fleet.hire("--at-once", str(runs))
    killed.until_up()
    started = [await fleet.start(steps(length, sleep=0.1), n=number) for number in range(runs)]
    other.until_up()
    await fleet.lines_reach(runs * length // 4)
    held = [run for run in started if await fleet.is_held_by(run, killed)]
    killed.kill()
    doubts = await fleet.settle(started)
    assert held
    assert {wait.run for wait in doubts} <= set(held), "only what was under way on the killed worker is in doubt"
    assert all("may still be running there" in wait.prompt for wait in doubts)
    assert fleet.logged() == written(length, runs)
    await fleet.check(started)
    for run in held:
        assert await fleet.repeats(run) <= 1


async def test_workers_are_killed_again_and_again(fleet: Fleet) -> None:
    """Every second one is on another machine."""
    chance = random.Random(many(7, 11))
    runs, length = many(4, 40), many(3, 20)
    started = [await fleet.start(steps(length, sleep=0.1), n=number) for number in range(runs)]
    for number in range(many(2, 20)):
        worker = fleet.hire_elsewhere() if number % 2 else fleet.hire()
        worker.until_up()
        await asyncio.sleep(chance.uniform(0, 0.5))
        worker.kill()
    fleet.hire()
    await fleet.settle(started)
    assert fleet.logged() == written(length, runs)
    await fleet.check(started)


async def test_a_model_call_of_a_killed_worker_is_made_again(fleet: Fleet, server: ModelServer) -> None:
    await fleet.use_model(server.url)
    server.hold_at = 1
    killed = fleet.hire_elsewhere().until_up()
    run = await fleet.start("# Two\n\n## STEP 1: A\n\nSay one.\n\n## STEP 2: B\n\nSay two.\n")
    await asyncio.to_thread(server.holding.wait, PATIENCE)
    killed.kill()
    server.release()
    fleet.hire()
    await fleet.finish([run])
    assert [prompt.strip() for prompt in server.prompts] == ["Say one.", "Say one.", "Say two."]
    assert len([e async for e in fleet.service.entries(run) if isinstance(e.event, ModelAsked)]) == 3
    await fleet.check([run])


async def test_a_worker_that_was_stopped_during_a_model_call_is_fenced(fleet: Fleet, server: ModelServer) -> None:
    """Its reply arrives while it is stopped. When it wakes up, it can neither record the reply nor make the next call."""
    await fleet.use_model(server.url)
    server.hold_at = 1
    stopped = fleet.hire_elsewhere().until_up()
    run = await fleet.start("# Two\n\n## STEP 1: A\n\nSay one.\n\n## STEP 2: B\n\nSay two.\n")
    await asyncio.to_thread(server.holding.wait, PATIENCE)
    stopped.send(signal.SIGSTOP)
    server.release()
    fleet.hire()
    await fleet.finish([run])
    stopped.send(signal.SIGCONT)
    another = await fleet.start("# One\n\n## STEP 1: C\n\nSay three.\n")
    await fleet.finish([another])
    assert stopped.stop() == 0
    assert sorted(prompt.strip() for prompt in server.prompts) == ["Say one.", "Say one.", "Say three.", "Say two."]
    await fleet.check([run, another])


async def test_a_worker_that_was_stopped_between_two_steps_is_fenced_before_it_acts(fleet: Fleet) -> None:
    stopped = fleet.hire_elsewhere().until_up()
    runs = [await fleet.start(steps(many(8, 20), sleep=0.05), n=number) for number in range(3)]
    await fleet.lines_reach(3)
    stopped.send(signal.SIGSTOP)
    other = fleet.hire().until_up()
    await fleet.settle(runs)
    before = fleet.lines()
    stopped.send(signal.SIGCONT)
    more = [await fleet.start(steps(1), n=number) for number in (3, 4)]
    await fleet.finish(more)
    assert [stopped.stop(), other.stop()] == [0, 0]
    assert fleet.lines()[: len(before)] == before
    assert len(fleet.lines()) == len(before) + 2, "the stopped worker has done nothing for the runs that it lost"
    await fleet.check(runs + more)


async def test_a_process_that_is_stopped_in_a_transaction_does_not_block_the_others(fleet: Fleet) -> None:
    """The database ends its transaction, and with it its locks."""
    fleet.hire().until_up()
    run = await fleet.start("name: W\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n")
    await fleet.until(run, "awaiting_approval")
    (wait,) = await fleet.service.waits(run)
    store: Any = fleet.service._store
    stopped = await store._database.connect()

    async def hold_a_lock() -> None:
        async with store._database.transaction(stopped) as transaction:
            await transaction.all("SELECT set_config('idle_in_transaction_session_timeout', '300', true)")
            await transaction.all("SELECT 1 FROM runs WHERE id = %s FOR UPDATE", (run,))
            await fleet.service.decide(wait.id, "approve")
            await fleet.finish([run])
            await transaction.all("SELECT 1")

    with pytest.raises(psycopg.Error) as caught:
        await hold_a_lock()
    assert is_lost(caught.value), "so what the stopped process was doing is done again with a new connection"
    await stopped.close()
