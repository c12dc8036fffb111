"""The contract of every store; each test runs with the SQLite and the in-memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import (
    AlreadyAnswered,
    AlreadyVoted,
    Busy,
    CuebookError,
    Fenced,
    Leased,
    NotFound,
    Refused,
    StoreError,
    WaitClosed,
    WaitExpired,
)
from cuebook.kernel.events import ArtifactMade, Checkpointed, Driven, RunFinished, RunStatus, StepStarted
from cuebook.kernel.journal import verify
from cuebook.kernel.ports import Batch, KeptRecord, Store
from cuebook.kernel.run import Lease, RunRow, Signal, StepRow
from tests.support.programs import eventually, new_row
from tests.support.records import (
    ELSEWHERE,
    RecordWriter,
    beat,
    claim,
    create,
    driven,
    fork,
    ids,
    killed,
    kinds,
    long,
    numbers,
    wait_row,
)


def as_row(status: RunStatus, run: str = "run") -> RunRow:
    row = new_row("hand", run)
    row.status = status
    return row


# --- creating and claiming ------------------------------------------------------------------------------


async def test_a_created_run_is_there_with_its_text_and_first_record(store: Store) -> None:
    await create(store)
    row = await store.run("run")
    assert (row.status, row.tenant, row.owner, row.epoch, row.driver) == ("pending", "local", "me", 0, "")
    assert await store.playbook(row.playbook) == "playbook of run"
    assert await kinds(store) == ["RunStarted"]


async def test_a_run_is_created_once(store: Store) -> None:
    await create(store)
    with pytest.raises(StoreError):
        await create(store)
    assert await kinds(store) == ["RunStarted"]


async def test_a_fork_needs_its_parent(store: Store) -> None:
    row = new_row("hand", "child")
    row.parent, row.parent_seq = "nobody", 2
    with pytest.raises(NotFound):
        await store.create(row, "text", RecordWriter("child").batch(*driven()))
    with pytest.raises(NotFound):
        await store.run("child")


async def test_a_claim_returns_everything_needed_to_continue(store: Store) -> None:
    await create(store)
    await store.signal(Signal("run", "message", {"channel": "c", "value": 1}, "you"))
    writer = await claim(store)
    step = StepRow("", "1", 1, status="running", seq=2)
    await store.append(writer.batch(StepStarted("1"), opened=[wait_row()], steps=[step], row=as_row("running")))
    taken = await store.claim("run", "d1", 1.0)
    assert (taken.row.epoch, taken.row.driver, taken.row.status) == (2, "d1", "running")
    assert taken.text == "playbook of run"
    assert [record.kind for record in taken.records] == ["RunStarted", "StepStarted"]
    assert taken.head == (writer.seq, writer.chain)
    assert taken.steps == [step]
    assert ids(taken.waits) == ["w"]
    assert [(s.kind, s.payload, s.by) for s in taken.signals] == [("message", {"channel": "c", "value": 1}, "you")]


async def test_a_run_is_busy_while_its_drivers_process_lives(store: Store) -> None:
    await create(store)
    await claim(store, driver="d1", now=100.0)
    for now in (109.0, 116.0, 1e9):
        with pytest.raises(Busy):
            await store.claim("run", "d2", now)
        assert await store.ready(now, "d2") == []
        assert await store.undriven(now) == []
    assert (await store.run("run")).driver == "d1"
    assert await store.alive("run")
    await killed(store, "d1")
    assert not await store.alive("run")
    assert (await store.claim("run", "d2", 101.0)).row.epoch == 2


OBSERVED = pytest.mark.parametrize("store", ["sqlite", "memory"], indirect=True)
"""Stores without a clock of their own: a process watches the heartbeats of drivers that it cannot inspect."""


class Watch:
    """A monotonic clock that is set by hand."""

    def __init__(self, store: Any) -> None:
        self.now = 50.0
        self._store = store
        store.leases.clock = lambda: self.now

    async def look_for(self, seconds: float) -> None:
        """Checks the run repeatedly for this long, as a server does."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            await self._store.alive("run")


@OBSERVED
async def test_a_driver_that_cannot_be_inspected_is_judged_by_the_heartbeats_seen_here(store: Store) -> None:
    watch = Watch(store)
    await create(store)
    await claim(store, driver="d1", now=100.0)
    await beat(store, "d1", ELSEWHERE, 100.0)
    for number in range(4):
        await watch.look_for(8.0)
        with pytest.raises(Busy):
            await store.claim("run", "d2", 100.0)
        await beat(store, "d1", ELSEWHERE, 101.0 + number)
    await watch.look_for(8.0)
    assert await store.alive("run")
    await watch.look_for(3.0)
    assert not await store.alive("run")
    assert await store.ready(100.0, "d2") == ["run"]
    await beat(store, "d1", ELSEWHERE, 200.0)
    assert await store.alive("run"), "it is back, and nobody has taken the run meanwhile"
    await watch.look_for(11.0)
    assert (await store.claim("run", "d2", 100.0)).row.epoch == 2


@OBSERVED
@pytest.mark.parametrize("ahead", [-7200.0, 7200.0, 1e8])
async def test_a_wrong_wall_clock_causes_no_takeover(ahead: float, store: Store) -> None:
    watch = Watch(store)
    await create(store)
    await claim(store, driver="d1", now=1000.0)
    await beat(store, "d1", ELSEWHERE, 1000.0)
    assert await store.ready(1000.0 + ahead, "d2") == []
    await watch.look_for(5.0)
    with pytest.raises(Busy):
        await store.claim("run", "d2", 1000.0 + ahead)
    assert await store.alive("run")


@OBSERVED
async def test_time_asleep_does_not_count_as_watching(store: Store) -> None:
    watch = Watch(store)
    await create(store)
    await claim(store, driver="d1")
    await beat(store, "d1", ELSEWHERE)
    assert await store.alive("run")
    watch.now += 3600.0
    assert await store.alive("run"), "the driver may have been stopped just as long"
    with pytest.raises(Busy):
        await store.claim("run", "d2", 0.0)


@OBSERVED
async def test_an_unseen_driver_elsewhere_is_shown_by_its_last_heartbeat(store: Store) -> None:
    await create(store)
    await claim(store, driver="d1", now=100.0)
    await beat(store, "d1", ELSEWHERE, 100.0)
    assert await store.undriven(1000.0) == ["run"], "nothing is done to it by that"
    with pytest.raises(Busy):
        await store.claim("run", "d2", 1000.0)
    assert await store.undriven(1000.0) == ["run"], "whatever else was looked at meanwhile"
    await beat(store, "d1", ELSEWHERE, 103.0)
    assert await store.undriven(1000.0) == [], "it was heard from here"


@OBSERVED
async def test_a_retry_that_no_live_driver_has_taken_can_be_sent_again(store: Store) -> None:
    """As after a restart in a new container: the process that should retry it cannot be inspected and sends nothing."""
    await taken_up(store, "retry")
    await beat(store, "d1", ELSEWHERE, 11.0)
    await store.signal(Signal("run", "retry", {"whole_step": True}, "you"))
    assert [signal.payload for signal in (await store.news("run")).signals] == [{"whole_step": True}]
    await store.alive("run")
    await beat(store, "d1", ELSEWHERE, 14.0)
    with pytest.raises(Refused, match="already being retried"):
        await store.signal(Signal("run", "retry", {}, "you"))


async def test_a_retired_driver_holds_nothing(store: Store) -> None:
    await create(store)
    await claim(store, driver="d1", now=100.0)
    await store.retire("d1")
    assert not await store.alive("run")
    assert (await store.claim("run", "d2", 100.0)).row.driver == "d2"


@pytest.mark.parametrize("since", ["nothing", "a signal", "a record", "a claim"])
async def test_a_claim_sees_what_has_happened_since_the_run_was_created(since: str, store: Store) -> None:
    writer = await create(store)
    if since == "a signal":
        await store.signal(Signal("run", "message", {"value": 1}, "you"))
    if since == "a record":
        await store.append(writer.batch(*driven()))
    if since == "a claim":
        await claim(store, driver="d1")
        await store.retire("d1")
    taken = await store.claim("run", "d2", 1.0)
    assert taken.row == await store.run("run")
    assert (taken.row.epoch, taken.row.status) == (2 if since == "a claim" else 1, "running")
    assert [record.seq for record in taken.records] == await numbers(store) == [1, 2][: 2 if since == "a record" else 1]
    assert len(taken.signals) == (since == "a signal")


async def test_many_runs_are_created_claimed_and_released_in_the_same_commits(store: Store) -> None:
    writers = await asyncio.gather(*(create(store, f"run{number}") for number in range(40)))
    await store.heartbeat("d1", 0.0)
    claims = await asyncio.gather(*(store.claim(writer.run, "d1", 0.0) for writer in writers))
    drivers = [RecordWriter.after(taken) for taken in claims]
    ends = [writer.batch(RunFinished("completed"), row=as_row("completed", writer.run)) for writer in drivers]
    assert all(await asyncio.gather(*(store.release(batch, unless_news=False) for batch in ends)))
    for row in await store.runs(limit=None):
        assert (row.status, row.driver, row.epoch) == ("completed", "", 2)
    with pytest.raises(Fenced):
        await store.append(drivers[0].batch(*driven()))


async def test_a_driver_may_claim_again_what_it_holds(store: Store) -> None:
    await create(store)
    await claim(store)
    assert (await store.claim("run", "d1", 1.0)).row.epoch == 2


@pytest.mark.parametrize("ask", ["claim", "run", "steps", "records", "news", "unclosed", "append", "release", "signal"])
async def test_an_unknown_run_is_not_found(ask: str, store: Store) -> None:
    async def records() -> None:
        await numbers(store, "nobody")

    async def append() -> None:
        await store.append(Batch("nobody", 1, []))

    asked: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "claim": lambda: store.claim("nobody", "d1", 0.0),
        "run": lambda: store.run("nobody"),
        "steps": lambda: store.steps("nobody"),
        "records": records,
        "news": lambda: store.news("nobody"),
        "unclosed": lambda: store.unclosed("nobody"),
        "append": append,
        "release": lambda: store.release(Batch("nobody", 1, []), unless_news=False),
        "signal": lambda: store.signal(Signal("nobody", "cancel")),
    }
    with pytest.raises(NotFound, match="nobody"):
        await asked[ask]()
    assert not await store.alive("nobody")
    assert await store.waits(run="nobody") == []


# --- appending ------------------------------------------------------------------------------------------


async def test_records_appended_together_appear_together(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    steps = [StepRow("", "1", 1, status="running", seq=3), StepRow("", "2", 1, position=1), StepRow("", "3", 1)]
    await store.append(writer.batch(*driven(3), steps=steps, row=as_row("running"), opened=[wait_row()]))
    assert await numbers(store) == [1, 2, 3, 4]
    assert [step.label for step in await store.steps("run")] == ["1", "3", "2"], "begun ones first, then as planned"
    assert (await store.run("run")).status == "running"
    assert ids(await store.waits(run="run")) == ["w"]
    assert verify([r async for r in store.records("run")]).broken_at is None


async def test_a_stale_epoch_is_refused_and_changes_nothing(store: Store) -> None:
    await create(store)
    await store.signal(Signal("run", "message", {"channel": "c"}))
    late = await claim(store, driver="d1", now=0.0)
    await killed(store, "d1")
    await claim(store, driver="d2", now=20.0)
    before = (await kinds(store), await store.run("run"), await store.steps("run"))
    batch = late.batch(
        ArtifactMade(long()),
        row=as_row("completed"),
        steps=[StepRow("", "1", 1, seq=2)],
        opened=[wait_row()],
        taken=[1],
        checkpoints=[("", 2)],
    )
    with pytest.raises(Fenced):
        await store.append(batch)
    with pytest.raises(Fenced):
        await store.release(batch, unless_news=False)
    with pytest.raises(Fenced):
        await store.release(batch, unless_news=True)
    assert (await kinds(store), await store.run("run"), await store.steps("run")) == before
    assert await store.waits() == []
    assert [signal.kind for signal in (await store.news("run")).signals] == ["message"]
    with pytest.raises(NotFound):
        store.text(long().digest)


async def test_the_first_write_of_a_number_wins(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(Driven("first")))
    again = RecordWriter("run", writer.epoch, (1, b""))
    with pytest.raises(StoreError):
        await store.append(again.batch(Driven("second"), opened=[wait_row()]))
    assert [record.chain async for record in store.records("run")][-1] == writer.chain
    assert await store.waits() == []
    await store.append(writer.batch(*driven()))
    assert await numbers(store) == [1, 2, 3]


async def test_a_journal_has_no_gaps(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    writer.batch(*driven())
    with pytest.raises(StoreError):
        await store.append(writer.batch(*driven()))
    assert await numbers(store) == [1]


async def test_appends_of_one_run_stay_in_order_and_those_of_others_do_not_mix(store: Store) -> None:
    await create(store, "a")
    await create(store, "b")
    writers = [await claim(store, "a"), await claim(store, "b")]
    await asyncio.gather(*(store.append(writer.batch(*driven())) for _ in range(50) for writer in writers))
    assert await numbers(store, "a") == await numbers(store, "b") == list(range(1, 52))


async def test_the_rows_of_runs_written_together_are_each_as_they_were_given(store: Store) -> None:
    writers = []
    for run in ("a", "b", "c"):
        await create(store, run)
        writers.append(await claim(store, run))
    given = [as_row("running", "a"), as_row("paused", "b"), as_row("running", "c")]
    for number, row in enumerate(given):
        row.step, row.updated = f"step {number}", 5.0 + number
        row.totals.steps_done = number
    await asyncio.gather(
        *(store.append(writer.batch(*driven(), row=row)) for writer, row in zip(writers, given, strict=True))
    )
    for row in given:
        kept = await store.run(row.id)
        assert (kept.status, kept.step, kept.updated, kept.totals) == (row.status, row.step, row.updated, row.totals)


async def test_records_can_be_read_from_any_number_on(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(2500)))
    assert await numbers(store, after=2499) == [2500, 2501]
    assert await numbers(store, after=2501) == []
    assert len(await numbers(store)) == 2501


async def test_a_long_text_is_stored_once_by_its_digest(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(ArtifactMade(long()), ArtifactMade(long())))
    await store.append(writer.batch(ArtifactMade(long())))
    records = [r async for r in store.records("run")]
    assert all(len(record.body) < 200 for record in records)
    assert store.text(long().digest) == str(long())
    with pytest.raises(NotFound):
        store.text("0" * 64)


async def test_a_playbook_is_stored_once(store: Store) -> None:
    await create(store, "a")
    await create(store, "b")
    assert await store.playbook(digest_of("text")) == "playbook of a"


# --- lineage --------------------------------------------------------------------------------------------


async def test_a_fork_of_a_fork_reads_as_one_chain(store: Store) -> None:
    await create(store)
    await store.append((await claim(store)).batch(*driven(8)))
    await fork(store, "run", "child", 6)
    await store.append((await claim(store, "child")).batch(*driven(4)))
    await fork(store, "child", "grandchild", 8)
    await fork(store, "child", "early", 3)
    await store.append((await claim(store, "early")).batch(*driven(1)))
    assert [(r.run, r.seq) async for r in store.records("grandchild")] == [
        *[("run", n) for n in range(1, 6)],
        *[("child", n) for n in range(6, 8)],
        ("grandchild", 8),
    ]
    assert [(r.run, r.seq) async for r in store.records("early")] == [
        ("run", 1), ("run", 2), ("early", 3), ("early", 4),
    ]  # fmt: skip
    assert await numbers(store, "grandchild", after=6) == [7, 8]
    for run in ("run", "child", "grandchild", "early"):
        assert verify([r async for r in store.records(run)]).broken_at is None
    taken = await store.claim("grandchild", "d9", 0.0)
    assert (taken.inherited, [r.seq for r in taken.records]) == (8, list(range(1, 9)))


async def test_a_claim_starts_each_branch_at_its_last_checkpoint(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(2)))
    await store.append(writer.batch(Checkpointed(1, {}), checkpoints=[("", writer.seq + 1)]))
    await store.append(writer.batch(*driven(2), path="#0.0[0]/"))
    branch = writer.batch(Checkpointed(2, {}), path="#0.0[0]/", checkpoints=[("#0.0[0]/", writer.seq + 1)])
    await store.append(branch)
    await store.append(writer.batch(*driven(1), path="#0.0[1]/"))
    await store.append(writer.batch(*driven(1), path="#0.0[0]/"))
    assert [r.seq for r in (await store.claim("run", "d1", 0.0)).records] == [1, 4, 7, 8, 9]


async def test_a_rewind_drops_steps_and_checkpoints_of_its_line_only(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    one, other = "#0.0[0]/", "#0.0[1]/"
    steps = [StepRow(path, label, 1, seq=seq) for path, label, seq in (("", "a", 2), (one, "b", 3), (other, "c", 4))]
    await store.append(writer.batch(*driven(3), steps=steps, checkpoints=[(one, 3), (other, 4)]))
    await store.append(writer.batch(*driven(1), dropped=[(3, one)]))
    assert [step.label for step in await store.steps("run")] == ["a", "c"]
    await store.append(writer.batch(*driven(1), dropped=[(3, "")]))
    assert [step.label for step in await store.steps("run")] == ["a"], "the root's line holds every branch"


# --- letting go -----------------------------------------------------------------------------------------


async def test_release_gives_the_run_up(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    assert await store.release(writer.batch(*driven(), row=as_row("paused")), unless_news=True)
    row = await store.run("run")
    assert (row.driver, row.status) == ("", "paused")
    with pytest.raises(Fenced):
        await store.append(writer.batch(*driven()))
    assert (await store.claim("run", "d2", 0.0)).row.epoch > writer.epoch


async def test_a_run_given_up_together_with_its_last_append_keeps_the_row_of_that_append(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    row = as_row("running")
    row.step = "last"
    appended = store.append(writer.batch(*driven(), row=row))
    assert await store.release(writer.batch(), unless_news=False)
    await appended
    kept = await store.run("run")
    assert (kept.driver, kept.step) == ("", "last")


async def test_a_run_with_news_is_not_released(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(), opened=[wait_row()], row=as_row("running")))
    await store.complete_wait("w", {"value": "yes"}, "you", 2.0)
    before = await kinds(store)
    last = RecordWriter("run", writer.epoch, (writer.seq, writer.chain))
    assert not await store.release(last.batch(*driven(), row=as_row("paused")), unless_news=True)
    row = await store.run("run")
    assert (await kinds(store), row.driver, row.status) == (before, "d1", "running")
    assert [(w.id, w.state, w.answer) for w in (await store.news("run")).waits] == [("w", "answered", {"value": "yes"})]
    assert await store.release(writer.batch(*driven(), row=as_row("paused")), unless_news=True), "the news were taken"


async def test_an_ended_run_has_no_open_waits_and_no_news(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(), opened=[wait_row()]))
    await store.signal(Signal("run", "message", {"channel": "c"}))
    assert await store.release(writer.batch(RunFinished("failed"), row=as_row("failed")), unless_news=False)
    assert await store.waits() == []
    assert await store.ready(0.0, "d2") == []


# --- waits ----------------------------------------------------------------------------------------------


async def test_waits_are_found_by_id_prefix_even_if_decided(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    opened = [wait_row("wab1"), wait_row("wab2"), wait_row("wac"), wait_row("wab3", tenant="there")]
    await store.append(writer.batch(*driven(), opened=opened))
    await store.complete_wait("wab2", {"value": "yes"}, "her", 2.0)
    found = await store.waits_called("here", "wab")
    assert [(wait.id, wait.state, wait.by) for wait in found] == [("wab1", "open", ""), ("wab2", "answered", "her")]
    assert ids(await store.waits_called("here", "wac")) == ["wac"]
    assert await store.waits_called("here", "wac0") == []


async def test_waits_belong_to_a_tenant_and_an_owner(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    opened = [
        wait_row("late", opened=3.0, tenant="there", owner="her"),
        wait_row("early", opened=1.0),
        wait_row("next", opened=2.0),
    ]
    await store.append(writer.batch(*driven(), opened=opened))
    assert ids(await store.waits()) == ["early", "next", "late"], "oldest first"
    assert ids(await store.waits(tenant="here")) == ["early", "next"]
    assert ids(await store.waits(limit=1)) == ["early"]
    assert (await store.wait("late")).owner == "her"
    with pytest.raises(NotFound):
        await store.wait("nothing")


async def test_runs_are_listed_newest_first_by_tenant_and_status(store: Store) -> None:
    for number, tenant in enumerate(["local", "there", "local"]):
        row = new_row("hand", f"run{number}")
        row.created, row.tenant = float(number), tenant
        await create(store, row.id, row)
    running = await store.run("run2")
    running.status = "running"
    await store.append((await claim(store, "run2")).batch(*driven(), row=running))
    assert ids(await store.runs()) == ["run2", "run1", "run0"]
    assert ids(await store.runs(tenant="there")) == ["run1"]
    assert ids(await store.runs(status=["running", "failed"])) == ["run2"]
    assert len(await store.runs(limit=2)) == 2


async def test_a_wait_is_decided_once(store: Store) -> None:
    await create(store)
    await store.append((await claim(store)).batch(*driven(), opened=[wait_row()]))
    decided = await store.complete_wait("w", {"value": "yes"}, "you", 2.0)
    assert (decided.state, decided.answer, decided.by) == ("answered", {"value": "yes"}, "you")
    with pytest.raises(AlreadyAnswered, match="by you"):
        await store.complete_wait("w", {"value": "no"}, "me", 3.0)
    assert (await store.wait("w")).answer == {"value": "yes"}
    assert await store.waits() == []
    with pytest.raises(NotFound):
        await store.complete_wait("nothing", {}, "me", 0.0)


async def test_what_follows_from_a_decision_is_kept_only_with_the_one_that_counts(store: Store) -> None:
    await create(store)
    await store.append((await claim(store)).batch(*driven(), opened=[wait_row()]))
    await store.complete_wait("w", {}, "you", 2.0, [KeptRecord("local", "override", "o1", {"pattern": "a"})])
    with pytest.raises(AlreadyAnswered):
        await store.complete_wait("w", {}, "me", 3.0, [KeptRecord("local", "override", "o2", {"pattern": "b"})])
    assert await store.kept("local", "override") == {"o1": {"pattern": "a"}}


async def test_a_wait_is_leased_by_one_user_under_one_claim(store: Store) -> None:
    await create(store)
    await store.append((await claim(store)).batch(*driven(), opened=[wait_row(), wait_row("w2", expires=50.0)]))
    with pytest.raises(Leased, match="No one has taken"):
        await store.complete_wait("w", {}, "you", 2.0, claim="a")
    await store.lease_wait("w", Lease("a", "you", 2.0, 10.0), 2.0)
    for other in (Lease("b", "you", 3.0, 10.0), Lease("a", "me", 3.0, 10.0)):
        with pytest.raises(Leased, match="in 7 s"):
            await store.lease_wait("w", other, 3.0)
    renewed = await store.lease_wait("w", Lease("a", "you", 4.0, 12.0, refused=("no",)), 4.0)
    assert renewed.lease == Lease("a", "you", 2.0, 12.0, refused=("no",))
    taken = await store.lease_wait("w", Lease("b", "me", 12.0, 20.0, "Editor"), 12.0)
    assert taken.lease == Lease("b", "me", 12.0, 20.0, "Editor", ("no",))
    with pytest.raises(Leased, match="Editor has taken over"):
        await store.complete_wait("w", {}, "you", 13.0, claim="a")
    assert (await store.wait("w")).lease == taken.lease
    done = await store.complete_wait("w", {"text": "x"}, "me", 30.0, claim="b")
    assert (done.state, done.answer, done.lease) == ("answered", {"text": "x"}, taken.lease)
    with pytest.raises(AlreadyAnswered):
        await store.lease_wait("w", Lease("b", "me", 31.0, 40.0), 31.0)
    with pytest.raises(WaitExpired):
        await store.lease_wait("w2", Lease("c", "you", 51.0, 60.0), 51.0)
    with pytest.raises(NotFound):
        await store.lease_wait("nothing", Lease("c", "you", 1.0, 2.0), 1.0)


async def test_an_answer_marks_the_run_for_its_driver_or_the_next_one(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(), opened=[wait_row(), wait_row("w2")], row=as_row("running")))
    await store.complete_wait("w", {}, "you", 2.0)
    assert [(wait.id, wait.state) for wait in await store.unclosed("run")] == [("w", "answered"), ("w2", "open")]
    assert await store.called("d1") == ["run"]
    assert await store.ready(2.0, "d2") == [], "its driver lives"
    await store.news("run")
    assert await store.called("d1") == []
    assert await store.release(writer.batch(*driven(), row=as_row("paused")), unless_news=True)
    assert await store.ready(2.0, "d2") == []
    await store.complete_wait("w2", {}, "you", 2.0)
    assert await store.ready(2.0, "d2") == ["run"]


@pytest.mark.parametrize("closed", [False, True])
async def test_each_refusal_of_an_answer_says_why(closed: bool, store: Store) -> None:
    """Whether or not the run has noticed in the meantime."""
    await create(store)
    writer = await claim(store)
    waits = [wait_row("expired", expires=10.0), wait_row("answered"), wait_row("cancelled")]
    await store.append(writer.batch(*driven(), opened=waits))
    await store.complete_wait("answered", {}, "you", 2.0)
    with pytest.raises(WaitExpired):
        await store.complete_wait("expired", {}, "you", 10.0)
    await store.expire(10.0)
    await store.signal(Signal("run", "cancel"))
    if closed:
        await store.append(writer.batch(*driven(), closed=["expired", "answered", "cancelled"]))
    refusals: dict[str, type[CuebookError]] = {
        "expired": WaitExpired, "answered": AlreadyAnswered, "cancelled": WaitClosed,
    }  # fmt: skip
    for wait, refusal in refusals.items():
        with pytest.raises(refusal, match=f"The wait {wait} "):
            await store.complete_wait(wait, {}, "me", 11.0)


async def test_expiry_marks_only_expired_waits(store: Store) -> None:
    await create(store)
    opened = [wait_row("soon", expires=10.0), wait_row("later", expires=20.0), wait_row("never")]
    await store.append((await claim(store)).batch(*driven(), opened=opened))
    assert await store.next_expiry() == 10.0
    assert await store.expire(9.0) == []
    assert await store.expire(10.0) == ["run"]
    assert await store.expire(10.0) == [], "once"
    assert [(w.id, w.state) for w in (await store.news("run")).waits if w.state != "open"] == [("soon", "expired")]
    assert await store.next_expiry() == 20.0
    await store.complete_wait("later", {}, "me", 11.0)
    assert await store.next_expiry() is None


# --- signals --------------------------------------------------------------------------------------------


async def test_signals_wait_in_order_until_they_are_taken(store: Store) -> None:
    await create(store)
    for number in range(3):
        await store.signal(Signal("run", "message", {"value": number}, "you"))
    writer = await claim(store)
    first, *rest = (await store.news("run")).signals
    await store.append(writer.batch(*driven(), taken=[first.id]))
    assert [signal.payload["value"] for signal in (await store.news("run")).signals] == [1, 2]
    assert (await store.claim("run", "d1", 1.0)).signals == rest


async def test_a_cancel_closes_open_waits(store: Store) -> None:
    await create(store)
    await store.append((await claim(store)).batch(*driven(), opened=[wait_row()]))
    await store.signal(Signal("run", "cancel", {"reason": "enough"}, "you"))
    assert await store.waits() == []
    assert (await store.wait("w")).state == "cancelled"
    assert await store.called("d1") == ["run"]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "expired"])
async def test_an_ended_run_accepts_only_a_retry(status: RunStatus, store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.release(writer.batch(RunFinished(status), row=as_row(status)), unless_news=False)
    for late in (Signal("run", "cancel"), Signal("run", "message")):
        with pytest.raises(Refused, match=status):
            await store.signal(late)
    if status == "completed":
        with pytest.raises(Refused):
            await store.signal(Signal("run", "retry"))
        return
    await store.signal(Signal("run", "retry", {"whole_step": False}))
    await store.signal(Signal("run", "retry", {"whole_step": True}))
    assert await store.ready(0.0, "d2") == ["run"]
    taken = await store.claim("run", "d1", 0.0)
    assert [signal.payload for signal in taken.signals] == [{"whole_step": True}], "the last word counts"
    with pytest.raises(Refused, match="already"):
        await store.signal(Signal("run", "retry"))
    await killed(store, "d1")
    await store.signal(Signal("run", "retry"))
    assert await store.ready(0.0, "d2") == ["run"]


async def test_a_late_outcome_is_attached_to_its_question(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    doubt = wait_row("w", kind="in_doubt", details={"attempt": 1})
    await store.append(writer.batch(*driven(), opened=[doubt]))
    outcome = {"is": "Done", "value": 1}
    await store.signal(Signal("run", "late", {"key": ["", "1", 1, 0], "outcome": outcome}))
    assert (await store.wait("w")).details == {"attempt": 1, "late": outcome}
    await store.signal(Signal("run", "late", {"key": ["", "2", 1, 0], "outcome": outcome}))
    assert (await store.wait("w")).details == {"attempt": 1, "late": outcome}
    assert [s.payload["key"][1] for s in (await store.news("run")).signals] == ["2"], "one without a question waits"


# --- what is to be done ---------------------------------------------------------------------------------


async def test_new_runs_and_runs_of_lost_drivers_are_ready(store: Store) -> None:
    for run in ("new", "held", "paused"):
        await create(store, run)
    await store.append((await claim(store, "held", "d1", 0.0)).batch(*driven(), row=as_row("running", "held")))
    paused = await claim(store, "paused", "d1", 0.0)
    await store.release(paused.batch(*driven(), row=as_row("paused", "paused")), unless_news=True)
    assert await store.ready(1.0, "d2") == ["new"]
    assert await store.ready(1.0, "d1") == ["new", "held"], "who holds it knows whether it is being driven"
    await store.retire("d1")
    assert await store.ready(1.0, "d2") == ["new", "held"]


WAITS: dict[str, RunStatus] = {
    "answer": "awaiting_input",
    "expiry": "awaiting_approval",
    "overdue": "paused",
    "cancel": "awaiting_input",
    "message": "paused",
    "retry": "failed",
}
"""What a driver takes a run up for, and what the run is called until it has written something."""


async def taken_up(store: Store, why: str) -> RecordWriter:
    """A run that waited or had failed, and that a driver has just claimed because of news."""
    await create(store)
    writer = await claim(store, driver="d0")
    ended = WAITS[why] == "failed"
    opened = [] if ended else [wait_row(expires=10.0)]
    events = [RunFinished("failed")] if ended else driven()
    await store.release(writer.batch(*events, opened=opened, row=as_row(WAITS[why])), unless_news=not ended)
    match why:
        case "answer":
            await store.complete_wait("w", {"value": "yes"}, "you", 1.0)
        case "expiry":
            await store.expire(11.0)
        case "cancel" | "message" | "retry":
            await store.signal(Signal("run", why, {}, "you"))
    assert await store.ready(11.0, "d2") == ["run"]
    assert await store.undriven(11.0) == ["run"]
    taken = await claim(store, driver="d1", now=11.0)
    assert await store.ready(11.0, "d2") == []
    return taken


@pytest.mark.parametrize("why", WAITS)
async def test_runs_claimed_by_a_killed_driver_are_ready_for_any_reason(why: str, store: Store) -> None:
    await taken_up(store, why)
    assert (await store.run("run")).status == WAITS[why], "the driver has written nothing"
    await killed(store, "d1")
    assert await store.ready(11.0, "d2") == ["run"]
    assert await store.undriven(11.0) == ["run"]
    again = await store.claim("run", "d2", 11.0)
    assert [wait.state for wait in again.waits] == {
        "answer": ["answered"], "expiry": ["expired"], "overdue": ["expired"], "cancel": ["cancelled"],
        "message": ["expired"], "retry": [],
    }[why]  # fmt: skip
    assert [signal.kind for signal in again.signals] == ([why] if why in ("cancel", "message", "retry") else [])


@pytest.mark.parametrize("why", WAITS)
async def test_work_that_a_driver_gives_up_silently_is_still_pending(why: str, store: Store) -> None:
    """For example, it was interrupted or could not read a secret before it had written anything."""
    writer = await taken_up(store, why)
    assert await store.release(Batch("run", writer.epoch, []), unless_news=False)
    assert (await store.run("run")).driver == ""
    assert await store.ready(11.0, "d2") == ["run"]


async def test_an_ended_run_that_was_claimed_is_not_ready(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.release(writer.batch(RunFinished("completed"), row=as_row("completed")), unless_news=False)
    await claim(store, driver="d1")
    await store.signal(Signal("run", "late", {"key": ["", "1", 1, 0], "outcome": {}}))
    await killed(store, "d1")
    assert await store.ready(0.0, "d2") == []
    again = await claim(store, driver="d2")
    await store.release(Batch("run", again.epoch, []), unless_news=False)
    assert await store.ready(0.0, "d3") == []


async def test_values_returned_by_a_store_are_copies(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.append(writer.batch(*driven(), opened=[wait_row(details={"a": 1})], steps=[StepRow("", "1", 1, seq=2)]))
    (await store.run("run")).status = "failed"
    (await store.wait("w")).details["a"] = 2
    (await store.steps("run"))[0].label = "changed"
    assert (await store.run("run")).status == "running"
    assert (await store.wait("w")).details == {"a": 1}
    assert (await store.steps("run"))[0].label == "1"


async def test_a_closed_store_says_so(store: Store) -> None:
    await create(store)
    writer = await claim(store)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.append(writer.batch(*driven()))


# --- what is decided for all runs ---------------------------------------------------------------------------


async def test_stored_decisions_are_found_by_tenant_and_kind(store: Store) -> None:
    await store.keep("a", "user", "ann", {"roles": ["viewer"]})
    await store.keep("a", "user", "bob", {"roles": []})
    await store.keep("a", "secret", "ann", {"handle": "env:X"})
    await store.keep("b", "user", "ann", {"roles": ["admin"]})
    assert await store.kept("a", "user") == {"ann": {"roles": ["viewer"]}, "bob": {"roles": []}}
    assert await store.kept("b", "secret") == {}


async def test_storing_a_decision_again_replaces_it(store: Store) -> None:
    await store.keep("a", "trust", "server", {"digest": "1"})
    await store.keep("a", "trust", "server", {"digest": "2"})
    assert await store.kept("a", "trust") == {"server": {"digest": "2"}}


async def test_a_forgotten_decision_is_gone(store: Store) -> None:
    await store.keep("a", "user", "ann", {})
    assert await store.forget("a", "user", "ann")
    assert not await store.forget("a", "user", "ann")
    assert not await store.forget("b", "user", "ann")
    assert await store.kept("a", "user") == {}


# --- slots of limits -----------------------------------------------------------------------------------------


async def test_at_most_so_many_slots_of_a_name_are_taken(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    await store.heartbeat("d2", 0.0)
    first = await store.take_slot("x", 2, "d1")
    second = await store.take_slot("x", 2, "d2")
    assert None not in (first, second)
    assert first != second
    assert await store.take_slot("x", 2, "d1") is None
    assert await store.take_slot("x", 2, "d2") is None
    assert await store.taken_slots("x") == 2
    assert await store.take_slot("x", 3, "d2") is not None, "each asks with its own limit"
    assert await store.take_slot("x", 4, "d2", 600.0) is not None
    assert await store.taken_slots("x") == 4
    await store.retire("d2")
    assert await store.taken_slots("x") == 2, "what lasts is taken whatever becomes of its driver"
    assert await store.take_slot("y", 1, "d1") is not None, "another limit has its own slots"


async def test_a_freed_slot_can_be_taken_again(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    slot = await store.take_slot("x", 1, "d1")
    assert slot is not None
    assert await store.take_slot("x", 1, "d1") is None
    await store.free_slot(slot)
    await store.free_slot(slot)
    again = await store.take_slot("x", 1, "d1")
    assert again not in (None, slot), "an id is used once"
    await store.free_slot(slot)
    assert await store.take_slot("x", 1, "d1") is None, "the old id frees nothing"


async def test_a_dead_drivers_slots_do_not_count(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    assert await store.take_slot("x", 1, "d1") is not None
    await store.heartbeat("d2", 0.0)
    assert await store.take_slot("x", 1, "d2") is None
    await killed(store, "d1")
    assert await store.take_slot("x", 1, "d2") is not None
    await store.heartbeat("d1", 0.0)
    assert await store.take_slot("x", 1, "d1") is None, "its old slot was removed"


async def test_a_driver_elsewhere_keeps_its_slots_while_its_lease_is_valid(store: Store) -> None:
    await beat(store, "d1", ELSEWHERE, 0.0)
    assert await store.take_slot("x", 1, "d1") is not None
    await store.heartbeat("d2", 0.0)
    assert await store.take_slot("x", 1, "d2") is None
    assert await store.take_slot("x", 1, "d2") is None


@OBSERVED
async def test_slots_of_a_driver_that_is_silent_for_too_long_do_not_count(store: Store) -> None:
    watch = Watch(store)
    await beat(store, "d1", ELSEWHERE, 0.0)
    assert await store.take_slot("x", 1, "d1") is not None
    await store.heartbeat("d2", 0.0)
    taken = []
    for _ in range(22):
        watch.now += 0.5
        taken.append(await store.take_slot("x", 1, "d2") is not None)
    assert taken.index(True) > 18


async def test_a_driver_that_leaves_frees_its_slots(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    await store.heartbeat("d2", 0.0)
    assert await store.take_slot("x", 1, "d1") is not None
    await store.retire("d1")
    assert await store.take_slot("x", 1, "d2") is not None


async def test_a_slot_that_lasts_counts_whatever_becomes_of_its_driver(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    await store.heartbeat("d2", 0.0)
    assert await store.take_slot("x", 1, "d1", lasts=0.3) is not None
    await store.retire("d1")
    assert await store.take_slot("x", 1, "d2", lasts=60.0) is None

    async def over() -> int | None:
        return await store.take_slot("x", 1, "d2", lasts=60.0)

    assert await eventually(over) is not None
    assert await store.take_slot("x", 1, "d2", lasts=60.0) is None


async def test_concurrent_takers_get_no_more_slots_than_there_are(store: Store) -> None:
    await store.heartbeat("d1", 0.0)
    for round in range(3):
        taken = await asyncio.gather(*(store.take_slot(f"x{round}", 3, "d1") for _ in range(20)))
        assert len([slot for slot in taken if slot is not None]) == 3


async def test_text_may_be_asked_for_whether_or_not_a_store_can_send_it(store: Store) -> None:
    await create(store)
    before = [record async for record in store.records("run")]
    await store.ask_for_text("run")
    await store.ask_for_text("unknown")
    assert [record async for record in store.records("run")] == before


async def test_votes_are_counted_until_they_decide(store: Store) -> None:
    await create(store)
    asked = wait_row(kind="approval", details={"rule": {"votes": 2}, "digest": "d"})
    await store.append((await claim(store)).batch(*driven(), opened=[asked]))
    yes = {"decision": "approve", "digest": "d", "reason": ""}
    first = await store.vote("w", yes, "bob", 2.0)
    assert (first.state, first.by, [one["by"] for one in first.answer["votes"]]) == ("open", "", ["bob"])
    with pytest.raises(AlreadyVoted):
        await store.vote("w", yes, "bob", 3.0)
    both = await asyncio.gather(
        *(store.vote("w", yes, name, 3.0) for name in ("cleo", "dan", "eve")), return_exceptions=True
    )
    assert sum(isinstance(one, AlreadyAnswered) for one in both) == 2
    done = await store.wait("w")
    assert done.state == "answered"
    assert len(done.answer["votes"]) == 2
    assert done.answer["decision"] == "approve"
    assert [one.id for one in (await store.news("run")).waits if one.state == "answered"] == ["w"]
