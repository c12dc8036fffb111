"""The in-memory store: the same protocol and the same refusals as the SQLite store, for tests and experiments."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Unpack

import msgspec

from cuebook.kernel.capabilities import Offer, lasting
from cuebook.kernel.errors import Busy, NotFound, StoreError
from cuebook.kernel.events import ENDED, UNDER_WAY, TextChunk, TextReset
from cuebook.kernel.journal import GENESIS, PURGED, ROOT, Record, plain, purged, same_line
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import (
    Batch,
    Claim,
    Fate,
    Job,
    JobCount,
    KeptRecord,
    News,
    Notice,
    Removal,
    RunCopy,
    RunFilter,
    Space,
    Swept,
    Tally,
    Whole,
)
from cuebook.kernel.ports.admin_acts import GENESIS as GENESIS_ACT
from cuebook.kernel.ports.admin_acts import ActRecord, AdminAct, KeptChange, chained
from cuebook.kernel.run import Lease, RunRow, Signal, StepRow, WaitMark, WaitRow, copy_row
from cuebook.kernel.spending import Cap, Part, Spending, fits, sum_named
from cuebook.kernel.votes import counted
from cuebook.stores.leases import Holder, Leases, new_slot
from cuebook.stores.refusals import (
    ALIKE,
    ERASED,
    PURGED_RUN,
    RECENT,
    attach_late,
    changed_meanwhile,
    check_claim,
    check_removable,
    check_signal,
    damaged,
    does_not_follow,
    fenced,
    gap,
    in_order,
    no_run,
    no_wait,
    refusal,
    run_exists,
    take_lease,
    unfinished,
)
from cuebook.stores.rows import HEADS, wait_mark
from cuebook.stores.run_lists import is_listed

_DECIDED = ("answered", "expired", "cancelled")


class _Run:
    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.records: list[Record] = []
        self.steps: dict[tuple[str, str, int], StepRow] = {}
        self.checkpoints: set[tuple[str, int]] = set()
        self.signals: list[Signal] = []
        self.files: set[str] = set()
        self.texts: set[str] = set()
        self.news = False


class _Jobs:
    """The part of the store that keeps jobs."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str, str], Job] = {}

    async def put_job(self, job: Job) -> Job | None:
        key = (job.kind, job.tenant, job.name)
        known = self._jobs.get(key)
        if (0 if known is None else known.version) != job.version:
            return None
        self._jobs[key] = put = msgspec.structs.replace(copy.deepcopy(job), version=job.version + 1)
        return copy.deepcopy(put)

    async def take_jobs(self, kinds: Sequence[str], now: float, until: float, limit: int = 100) -> list[Job]:
        due = [job for job in self._jobs.values() if job.kind in kinds and job.due is not None and job.due <= now]
        due.sort(key=lambda job: (job.due or 0.0, job.name))
        taken = [msgspec.structs.replace(job, version=job.version + 1) for job in due[:limit]]
        for job in taken:
            self._jobs[job.kind, job.tenant, job.name] = msgspec.structs.replace(job, due=until)
        return copy.deepcopy(taken)

    async def drop_job(self, job: Job) -> bool:
        key = (job.kind, job.tenant, job.name)
        known = self._jobs.get(key)
        if known is None or known.version != job.version:
            return False
        del self._jobs[key]
        return True

    async def job(self, tenant: str, kind: str, name: str) -> Job | None:
        return copy.deepcopy(self._jobs.get((kind, tenant, name)))

    async def jobs(self, kind: str, tenant: str | None = None, after: str = "", limit: int | None = None) -> list[Job]:
        found = [
            job for job in self._jobs.values() if job.kind == kind and tenant in (None, job.tenant) and job.name > after
        ]
        return copy.deepcopy(sorted(found, key=lambda job: (job.tenant, job.name))[:limit])

    async def jobs_named(self, kind: str, name: str) -> list[Job]:
        return [one for one in await self.jobs(kind) if one.name == name]

    async def next_due(self, kinds: Sequence[str]) -> float | None:
        return min((job.due for job in self._jobs.values() if job.kind in kinds and job.due is not None), default=None)

    def _add_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._jobs.setdefault((job.kind, job.tenant, job.name), msgspec.structs.replace(job, version=1))


class _SpendingTable:
    """The part of the store that knows what runs used."""

    def __init__(self) -> None:
        super().__init__()
        self._spending: dict[tuple[str, str, str, str, str], Spending] = {}

    async def spending(self, tenant: str | None = None, since: str = "", until: str = "9999") -> list[Spending]:
        found = [one for key, one in sorted(self._spending.items()) if tenant in (None, key[0])]
        return [copy.copy(one) for one in found if since <= one.day <= until]

    async def spent(
        self, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> Spending:
        total = Spending(tenant, since, "", "")
        for one in self._spending.values():
            mine = one.tenant == tenant and owner in (None, one.owner) and playbook in (None, one.playbook)
            if mine and since <= one.day <= until:
                total.add(one)
        return total

    async def spending_by(
        self, part: Part, tenant: str, since: str, until: str, owner: str | None = None, playbook: str | None = None
    ) -> list[Spending]:
        found: dict[str, Spending] = {}
        for one in self._spending.values():
            mine = one.tenant == tenant and owner in (None, one.owner) and playbook in (None, one.playbook)
            if mine and since <= one.day <= until:
                name = getattr(one, part)
                found.setdefault(name, sum_named(part, tenant, name)).add(one)
        return [found[name] for name in sorted(found)]

    async def hold(self, more: Spending, caps: Sequence[Cap]) -> int | None:
        for number, cap in enumerate(caps):
            used = await self.spent(more.tenant, more.day, more.day, cap.owner, cap.playbook)
            if not fits(cap, used, more):
                return number
        self._spend([more])
        return None

    async def add_spending(self, more: Sequence[Spending]) -> None:
        self._spend(more)

    async def take_spending(self, rows: Sequence[Spending]) -> int:
        new = [one for one in rows if one.key not in self._spending]
        self._spend(new)
        return len(new)

    async def forget_owner(self, tenant: str, owner: str) -> None:
        mine = [key for key in self._spending if (key[0], key[2]) == (tenant, owner)]
        self._spend([msgspec.structs.replace(self._spending.pop(key), owner="") for key in mine])

    def _spend(self, rows: Sequence[Spending]) -> None:
        for one in rows:
            if one.key in self._spending:
                self._spending[one.key].add(one)
            else:
                self._spending[one.key] = copy.copy(one)


class MemoryStore(_SpendingTable, _Jobs):
    """Keeps everything in dictionaries, for one process and one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, _Run] = {}
        self._order: dict[str, int] = {}
        """Which runs were added before others, also of those that are gone."""
        self._waits: dict[str, WaitRow] = {}
        self._texts: dict[str, str] = {}
        self._files: dict[tuple[str, str], int] = {}
        self._touched: dict[tuple[str, str], float] = {}
        self._removals: dict[str, Removal] = {}
        self._pieces: dict[tuple[str, str, int], bytes] = {}
        self._playbooks: dict[str, str] = {}
        self._drivers: dict[str, Holder] = {}
        self.leases = Leases()
        self._signals = 0
        self._kept: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._slots: dict[int, tuple[str, str, float | None]] = {}
        """Name, driver and the end of each slot that lasts."""
        self._acts: dict[str, list[ActRecord]] = {}
        self._closed = False

    # --- writing ---

    shared = False

    def now(self) -> float:
        return time.time()

    async def listen(self, heard: Callable[[Notice], None]) -> None:
        """No other process shares it."""

    def share(self, event: TextChunk | TextReset) -> None:
        """No other process shares it."""

    async def ask_for_text(self, run: str) -> None:
        """No other process shares it."""

    async def create(self, row: RunRow, text: str, batch: Batch, ending: Batch | None = None) -> None:
        if row.id in self._runs:
            raise run_exists(row.id)
        if ending is not None and self._run(ending.run).row.epoch != ending.epoch:
            raise fenced(ending.run)
        if row.parent:
            self._run(row.parent)
        self._playbooks.setdefault(row.playbook, text)
        run = self._runs[row.id] = _Run(copy.deepcopy(row))
        self._order.pop(row.id, None)
        self._order[row.id] = 1 + next(reversed(self._order.values()), 0)
        if row.parent:  # a fork refers to all files of its parent
            run.files |= self._run(row.parent).files
        self._put(run, batch)
        if ending is not None:
            await self.release(ending, unless_news=False)

    async def claim(self, run: str, driver: str, now: float) -> Claim:
        held = self._run(run)
        if held.row.driver != driver and self.leases.holds(self._holder(held)):
            raise Busy(f"Run {run} is being driven by another process.", fix="Follow it, or signal it.")
        self._expire(now, run)
        held.row.epoch += 1
        held.row.driver, held.news = driver, False
        if held.row.status == "pending":
            held.row.status = "running"
        records = self._for_replay(held)
        return Claim(
            row=copy.deepcopy(held.row),
            text=self._playbooks[held.row.playbook],
            records=records,
            inherited=held.row.parent_seq if held.row.parent else 0,
            steps=in_order(copy.deepcopy([s for s in held.steps.values() if unfinished(s)])),
            waits=self._waits_of(run),
            signals=list(held.signals),
            head=(records[-1].seq, records[-1].chain) if records else (0, GENESIS),
        )

    def append(self, batch: Batch) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._append(batch)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    async def release(self, batch: Batch, *, unless_news: bool) -> bool:
        await asyncio.sleep(0)  # as in a real store, earlier writes are acknowledged first
        held = self._run(batch.run)
        if held.row.epoch != batch.epoch:
            raise fenced(batch.run)
        if unless_news and held.news:
            return False
        self._append(batch)
        held.row.driver = ""
        held.row.epoch += 1  # further appends by this driver are rejected
        held.news = held.news or bool(lasting(held.row.needs))
        if not batch.records:  # the drive had no result, so its cause is still pending
            decided = any(wait.run == batch.run and wait.state in _DECIDED for wait in self._waits.values())
            sent = any(signal.kind == "retry" or held.row.status not in ENDED for signal in held.signals)
            held.news = held.news or decided or sent
            return True
        if held.row.status in ENDED:
            held.news = False
            held.signals = [signal for signal in held.signals if signal.kind != "cancel"]
            for wait in self._waits.values():
                if wait.run == batch.run:
                    wait.state = "closed"
        return True

    async def news(self, run: str) -> News:
        held = self._run(run)
        held.news = False
        return News(self._waits_of(run), list(held.signals))

    async def unclosed(self, run: str) -> list[WaitRow]:
        self._run(run)
        return self._waits_of(run)

    async def complete_wait(
        self,
        wait: str,
        answer: dict[str, Any],
        by: str,
        now: float,
        keep: Sequence[KeptRecord] = (),
        *,
        claim: str | None = None,
    ) -> WaitRow:
        row = self._open_wait(wait, now)
        check_claim(row, claim, by)
        row.state, row.answer, row.by = "answered", plain(answer), by
        for one in keep:
            self._kept[one.tenant, one.kind, one.name] = plain(one.body)
        self._run(row.run).news = True
        return copy.deepcopy(row)

    async def vote(self, wait: str, answer: dict[str, Any], by: str, now: float) -> WaitRow:
        row = self._open_wait(wait, now)
        decided, kept = counted(row.details, row.owner, row.answer, plain(answer), by, now)
        row.answer = kept
        if decided:
            row.state, row.by = "answered", by
            self._run(row.run).news = True
        return copy.deepcopy(row)

    async def lease_wait(self, wait: str, lease: Lease, now: float) -> WaitRow:
        row = self._open_wait(wait, now)
        take_lease(row, lease, now)
        return copy.deepcopy(row)

    def _open_wait(self, wait: str, now: float) -> WaitRow:
        row = self._waits.get(wait)
        if row is None:
            raise no_wait(wait)
        over = row.expires is not None and row.expires <= now
        if row.state != "open" or over:
            raise refusal(wait, row.state, row.by, over)
        return row

    async def signal(self, signal: Signal) -> None:
        held = self._run(signal.run)
        before = [waiting for waiting in held.signals if signal.kind == waiting.kind == "retry"]
        check_signal(signal, held.row.status, under_way=bool(before) and self.leases.surely_holds(self._holder(held)))
        held.signals = [waiting for waiting in held.signals if waiting not in before]
        mine = [wait for wait in self._waits.values() if wait.run == signal.run and wait.state == "open"]
        if signal.kind == "late" and any(attach_late(wait, signal.payload) for wait in mine):
            return
        self._signals += 1
        held.signals.append(Signal(signal.run, signal.kind, plain(signal.payload), signal.by, self._signals))
        if signal.kind == "cancel":
            for wait in mine:
                wait.state = "cancelled"
        held.news = True

    async def expire(self, now: float, run: str | None = None) -> list[str]:
        over = self._expire(now, run)
        for name in over:
            self._run(name).news = True
        return over

    def _expire(self, now: float, run: str | None) -> list[str]:
        mine = [wait for wait in self._waits.values() if run in (None, wait.run)]
        over = [w for w in mine if w.state == "open" and w.expires is not None and w.expires <= now]
        for wait in over:
            wait.state = "expired"
        return sorted({wait.run for wait in over})

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        self._kept[tenant, kind, name] = plain(body)

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        return (tenant, kind, name) in self._kept

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        found = sorted((key[2], body) for key, body in self._kept.items() if key[:2] == (tenant, kind))
        return {name: plain(body) for name, body in found}

    async def tenants(self, kind: str) -> list[str]:
        return sorted({key[0] for key in self._kept if key[1] == kind})

    async def forget(self, tenant: str, kind: str, name: str, *, overwrite: bool = False) -> bool:
        return self._kept.pop((tenant, kind, name), None) is not None

    async def record_act(self, act: AdminAct, changes: Sequence[KeptChange] = ()) -> ActRecord:
        for change in changes:
            if self._kept.get((change.tenant, change.kind, change.name)) != change.before:
                raise changed_meanwhile(change.kind, change.name)
        for change in changes:
            if change.after is None:
                await self.forget(change.tenant, change.kind, change.name)
            else:
                await self.keep(change.tenant, change.kind, change.name, change.after)
        seq, chain = await self.act_head(act.tenant)
        made = chained(act, seq + 1, chain)
        self._acts.setdefault(act.tenant, []).append(made)
        return made

    async def acts(
        self, tenant: str, *, after: int = 0, since: float = 0.0, newest: bool = False, limit: int | None = 1000
    ) -> list[ActRecord]:
        found = [one for one in self._acts.get(tenant, ()) if one.seq > after and one.act.at >= since]
        return found[:limit] if limit is None or not newest else found[max(0, len(found) - limit) :]

    async def act_head(self, tenant: str) -> tuple[int, str]:
        acts = self._acts.get(tenant)
        return (acts[-1].seq, acts[-1].chain) if acts else (0, GENESIS_ACT)

    async def act_tenants(self) -> list[str]:
        return sorted(self._acts)

    async def bring_in_acts(self, tenant: str, records: Sequence[ActRecord]) -> None:
        if (await self.act_head(tenant))[0] != records[0].seq - 1:
            raise does_not_follow(tenant)
        self._acts.setdefault(tenant, []).extend(records)

    async def heartbeat(self, driver: str, now: float) -> None:
        self._drivers[driver] = Holder.here(driver, now)

    async def retire(self, driver: str) -> None:
        self._drivers.pop(driver, None)
        mine = [id for id, (_, holder, until) in self._slots.items() if holder == driver and until is None]
        for slot in mine:
            del self._slots[slot]

    async def take_slot(self, name: str, most: int, driver: str, lasts: float | None = None) -> int | None:
        now = self.now()
        taken = 0
        for id, (of, holder, until) in list(self._slots.items()):
            if of != name:
                continue
            counts = until > now if until is not None else self._is_held(holder, driver)
            taken += counts
            if not counts:
                del self._slots[id]
        if taken >= most:
            return None
        slot = new_slot()
        self._slots[slot] = (name, driver, None if lasts is None else now + lasts)
        return slot

    def _is_held(self, holder: str, by: str) -> bool:
        """Whether a slot's holder is alive; the driver that asks is."""
        return holder == by or self.leases.holds(self._holder_of(holder))

    async def free_slot(self, slot: int) -> None:
        self._slots.pop(slot, None)

    async def taken_slots(self, name: str) -> int:
        now = self.now()
        held = [(holder, until) for of, holder, until in self._slots.values() if of == name]
        return sum(until > now if until is not None else self._is_held(holder, "") for holder, until in held)

    # --- reading ---

    async def ready(self, now: float, driver: str, run: str | None = None, offer: Offer | None = None) -> list[str]:
        holds = self.leases.holds
        return [
            one.row.id
            for one in self._to_do(now, run, offer)
            if (one.row.driver == driver or not holds(self._holder(one)))
            and (offer is None or offer.fits(one.row, ending=any(signal.kind == "cancel" for signal in one.signals)))
        ]

    async def undriven(self, now: float, run: str | None = None) -> list[str]:
        seems_held = self.leases.seems_to_hold
        due = [one for one in self._to_do(now, run) if not lasting(one.row.needs)]
        return [one.row.id for one in due if not seems_held(self._holder(one), now)]

    def _to_do(self, now: float, only: str | None, offer: Offer | None = None) -> list[_Run]:
        """Runs with work that is pending or in progress."""
        overdue = {
            w.run for w in self._waits.values() if w.state == "open" and w.expires is not None and w.expires <= now
        }
        return [
            run
            for run in self._runs.values()
            if only in (None, run.row.id)
            and not run.row.caller
            and (
                run.news
                or run.row.driver
                or run.row.status in UNDER_WAY
                or run.row.id in overdue
                or _met(run.row, offer)
            )
            and (run.row.status not in ENDED or any(signal.kind == "retry" for signal in run.signals))
        ]

    def _holder(self, run: _Run) -> Holder:
        return self._holder_of(run.row.driver)

    def _holder_of(self, driver: str) -> Holder:
        return self._drivers.get(driver) or Holder(driver, None)

    async def fate(self, driver: str) -> Fate:
        return self._holder_of(driver).fate

    async def called(self, driver: str) -> list[str]:
        return [run.row.id for run in self._runs.values() if run.news and run.row.driver == driver]

    async def next_expiry(self) -> float | None:
        return min(
            (w.expires for w in self._waits.values() if w.state == "open" and w.expires is not None), default=None
        )

    async def alive(self, run: str) -> bool:
        return run in self._runs and self.leases.holds(self._holder(self._runs[run]))

    async def run(self, run: str) -> RunRow:
        return copy.deepcopy(self._run(run).row)

    async def runs(self, *, limit: int | None = 100, **which: Unpack[RunFilter]) -> list[RunRow]:
        found = [run.row for run in self._runs.values() if is_listed(run.row, which)]
        found.sort(key=self._position, reverse=True)
        position = which.get("before")
        if position is not None:
            last = (position.created, self._order.get(position.run, 0))
            found = [row for row in found if self._position(row) < last]
        return copy.deepcopy(found[:limit])

    async def tenants_with_runs(self) -> list[str]:
        return sorted({run.row.tenant for run in self._runs.values()})

    def _position(self, row: RunRow) -> tuple[float, int]:
        return row.created, self._order[row.id]

    async def runs_called(self, tenant: str, beginning: str) -> list[RunRow]:
        found = [
            run.row for run in self._runs.values() if run.row.id.startswith(beginning) and run.row.tenant == tenant
        ]
        return copy.deepcopy(sorted(found, key=lambda row: row.id)[:ALIKE])

    async def steps(self, run: str) -> list[StepRow]:
        return in_order(copy.deepcopy(list(self._run(run).steps.values())))

    async def waits(
        self,
        *,
        run: str | None = None,
        tenant: str | None = None,
        visible: Collection[str] | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> list[WaitRow]:
        found = [
            wait
            for wait in self._waits.values()
            if wait.state == "open"
            and run in (None, wait.run)
            and tenant in (None, wait.tenant)
            and (visible is None or wait.owner in visible)
            and (not kinds or wait.kind in kinds)
        ]
        found.sort(key=lambda wait: (wait.opened, wait.id))
        return copy.deepcopy(found[offset:][:limit])

    async def wait_ids(self, tenant: str, kinds: Sequence[str]) -> list[str]:
        return [wait.id for wait in self._open_waits(tenant, kinds)]

    async def wait_marks(self, tenant: str, kinds: Sequence[str]) -> list[WaitMark]:
        return [wait_mark(msgspec.json.encode(wait)) for wait in self._open_waits(tenant, kinds)]

    def _open_waits(self, tenant: str, kinds: Sequence[str]) -> list[WaitRow]:
        waits = self._waits.values()
        found = [wait for wait in waits if wait.state == "open" and wait.tenant == tenant and wait.kind in kinds]
        return sorted(found, key=lambda wait: (wait.opened, wait.id))

    async def waits_called(self, tenant: str, beginning: str) -> list[WaitRow]:
        found = [wait for wait in self._waits.values() if wait.id.startswith(beginning) and wait.tenant == tenant]
        return copy.deepcopy(sorted(found, key=lambda wait: (wait.state != "open", wait.id))[:ALIKE])

    async def wait(self, wait: str) -> WaitRow:
        if wait not in self._waits:
            raise no_wait(wait)
        return copy.deepcopy(self._waits[wait])

    async def records(self, run: str, after: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        for record in self._lineage(self._run(run)):
            if record.seq > after and (not kinds or record.kind in kinds):
                yield record

    async def whole(self, run: str) -> Whole:
        held = self._run(run)
        waits = [wait for wait in self._waits.values() if wait.run == run]
        return copy.deepcopy(Whole(held.row, in_order(list(held.steps.values())), waits, list(self._lineage(held))))

    async def take_out(self, run: str) -> RunCopy:
        held = self._run(run)
        return copy.deepcopy(
            RunCopy(
                row=held.row,
                text=self._playbooks[held.row.playbook],
                records=held.records,
                steps=in_order(list(held.steps.values())),
                waits=[wait for wait in self._waits.values() if wait.run == run],
                signals=held.signals,
                checkpoints=sorted(held.checkpoints),
                files=sorted(held.files),
            )
        )

    async def bring_in(self, copy: RunCopy) -> None:
        row = copy.row
        batch = Batch(
            row.id,
            row.epoch,
            copy.records,
            steps=copy.steps,
            texts=copy.texts,
            checkpoints=copy.checkpoints,
            files=copy.files,
        )
        await self.create(msgspec.structs.replace(row, driver=""), copy.text, batch)
        held = self._runs[row.id]
        held.signals, held.news = list(copy.signals), copy.has_news
        self._waits.update({wait.id: wait for wait in copy.waits})

    # --- removing ---

    async def remove(self, removals: Sequence[Removal], *, force: bool = False) -> None:
        going = {one.run for one in removals}
        for one in removals:
            held = self._run(one.run)
            forks = [name for name, run in self._runs.items() if run.row.parent == one.run and name not in going]
            alive = bool(held.row.driver) and self.leases.holds(self._holder(held))
            check_removable(one.run, held.row.status, alive, forks, force)
        for one in removals:
            held = self._runs.pop(one.run)
            self._note_removal(one, held)

    async def purge(self, batch: Batch, removal: Removal) -> None:
        await self.release(batch, unless_news=False)
        held = self._run(batch.run)
        self._note_removal(removal, held)
        held.records = [one if one.seq == batch.records[-1].seq else _emptied(one) for one in held.records]
        error = held.row.error
        held.row.error = None if error is None else Failed(error.code, ERASED)
        held.row.reason, held.news, held.signals = PURGED_RUN, False, []
        held.steps, held.texts, held.files = {}, set(), set()
        held.checkpoints = set()

    def _note_removal(self, removal: Removal, held: _Run) -> None:
        head = held.records[-1].chain.hex() if held.records else ""
        self._removals[removal.run] = msgspec.structs.replace(removal, records=len(held.records), head=head)
        self._waits = {name: wait for name, wait in self._waits.items() if wait.run != removal.run}

    async def sweep(self, now: float) -> Swept:
        texts = {digest for run in self._runs.values() for digest in run.texts}
        files = {(run.row.tenant, digest) for run in self._runs.values() for digest in run.files}
        gone = [one for one in self._files if one not in files and self._touched.get(one, 0.0) < now - RECENT]
        swept = Swept(texts=len(self._texts.keys() - texts), files=len(gone))
        self._texts = {digest: text for digest, text in self._texts.items() if digest in texts}
        for one in gone:
            del self._files[one]
        self._pieces = {key: data for key, data in self._pieces.items() if key[:2] not in gone}
        used = {run.row.playbook for run in self._runs.values()}
        self._playbooks = {digest: text for digest, text in self._playbooks.items() if digest in used}
        return swept

    async def removals(self, tenant: str, run: str = "", limit: int | None = 100) -> list[Removal]:
        found = [one for one in self._removals.values() if one.tenant == tenant and run in ("", one.run)]
        return sorted(found, key=lambda one: one.at, reverse=True)[:limit]

    async def bring_in_removals(self, removals: Sequence[Removal]) -> None:
        for one in removals:
            self._removals.setdefault(one.run, one)

    async def sizes(self, tenant: str, runs: Collection[str]) -> dict[str, int]:
        found = {name: self._runs[name] for name in runs if name in self._runs}
        mine = {name: run for name, run in found.items() if run.row.tenant == tenant}
        return {name: _size(run.records) + self._size_of_files(tenant, run.files) for name, run in mine.items()}

    async def tally(self, now: float) -> Tally:
        rows = [run.row for run in self._runs.values()]
        waits = [wait.kind for wait in self._waits.values() if wait.state == "open"]
        jobs = {}
        for kind in {job.kind for job in self._jobs.values()}:
            dues = [job.due for job in self._jobs.values() if job.kind == kind]
            over = [now - due for due in dues if due is not None and due <= now]
            jobs[kind] = JobCount(len(dues), len(over), max(over, default=0.0))
        queued = sum(row.status in UNDER_WAY and not row.driver for row in rows)
        return Tally(dict(Counter(row.status for row in rows)), queued, dict(Counter(waits)), jobs)

    async def usage(self, tenant: str) -> list[Space]:
        by_name: dict[str, list[_Run]] = {}
        for run in self._runs.values():
            if run.row.tenant == tenant:
                by_name.setdefault(run.row.name, []).append(run)
        found = []
        for name, runs in sorted(by_name.items()):
            records = [record for run in runs for record in run.records]
            found.append(Space(name, "records", len(records), _size(records), len(runs)))
            texts = {digest for run in runs for digest in run.texts if digest in self._texts}
            files = {digest for run in runs for digest in run.files}
            if texts:
                found.append(Space(name, "texts", len(texts), sum(len(self._texts[one]) for one in texts)))
            if files:
                found.append(Space(name, "files", len(files), self._size_of_files(tenant, files)))
        used = {run.row.playbook for runs in by_name.values() for run in runs}
        found.append(Space("", "playbooks", len(used), sum(len(self._playbooks[one]) for one in used)))
        return [*found, Space("", "free", 0, 0)]

    def _size_of_files(self, tenant: str, digests: Collection[str]) -> int:
        return sum(self._files.get((tenant, digest), 0) for digest in digests)

    async def put_piece(self, tenant: str, digest: str, number: int, data: bytes) -> None:
        self._pieces.setdefault((tenant, digest, number), data)

    async def put_file(self, tenant: str, digest: str, size: int) -> None:
        self._files.setdefault((tenant, digest), size)
        self._touched[tenant, digest] = self.now()

    async def has_file(self, tenant: str, digest: str) -> bool:
        return (tenant, digest) in self._files

    async def piece(self, tenant: str, digest: str, number: int) -> bytes | None:
        return self._pieces.get((tenant, digest, number))

    async def files(self, run: str) -> list[str]:
        return sorted(self._run(run).files)

    async def playbook(self, digest: str) -> str:
        if digest not in self._playbooks:
            raise damaged(f"The playbook {digest} is not in the store.")
        return self._playbooks[digest]

    def text(self, digest: str) -> str:
        if digest not in self._texts:
            raise NotFound(f"The text {digest} was purged.")
        return self._texts[digest]

    async def close(self) -> None:
        self._closed = True

    # --- inside ---

    def _run(self, run: str) -> _Run:
        if run not in self._runs:
            raise no_run(run)
        return self._runs[run]

    def _append(self, batch: Batch) -> None:
        if self._closed:
            raise StoreError("The store is closed.")
        held = self._run(batch.run)
        if held.row.epoch != batch.epoch:
            raise fenced(batch.run)
        self._put(held, batch)

    def _put(self, held: _Run, batch: Batch) -> None:
        if held.records and batch.records and batch.records[0].seq != held.records[-1].seq + 1:
            raise gap(batch, held.records[-1].seq)
        held.records.extend(batch.records)
        if batch.row is not None:
            row = copy_row(batch.row)
            row.epoch, row.driver = held.row.epoch, held.row.driver
            held.row = row
        for seq, path in batch.dropped:
            held.steps = {k: s for k, s in held.steps.items() if s.seq < seq or not same_line(k[0], path)}
            held.checkpoints = {c for c in held.checkpoints if c[1] < seq or not same_line(c[0], path)}
        for step in batch.steps:
            held.steps[step.key] = copy_row(step)
        self._texts.update(batch.texts or {})
        held.texts.update(batch.texts or (), batch.stored)
        held.files.update(batch.files)
        for wait in batch.opened:
            self._waits[wait.id] = copy.deepcopy(wait)
        for closed in batch.closed:
            self._waits[closed].state = "closed"
        held.signals = [signal for signal in held.signals if signal.id not in batch.taken]
        held.checkpoints.update(batch.checkpoints)
        self._add_jobs(batch.jobs)
        self._spend(batch.spent)

    def _waits_of(self, run: str) -> list[WaitRow]:
        return copy.deepcopy([wait for wait in self._waits.values() if wait.run == run and wait.state != "closed"])

    def _lineage(self, held: _Run) -> list[Record]:
        if not held.row.parent:
            return held.records
        parents = self._lineage(self._run(held.row.parent))
        return [record for record in parents if record.seq < held.row.parent_seq] + held.records

    def _checkpoints(self, held: _Run, before: float = float("inf")) -> list[tuple[str, int]]:
        own = [checkpoint for checkpoint in held.checkpoints if checkpoint[1] < before]
        if not held.row.parent:
            return own
        return own + self._checkpoints(self._run(held.row.parent), min(before, held.row.parent_seq))

    def _for_replay(self, held: _Run) -> list[Record]:
        last: dict[str, int] = {}
        for path, seq in self._checkpoints(held):
            last[path] = max(seq, last.get(path, 0))
        start = last.get(ROOT, 0)
        return [
            record
            for record in self._lineage(held)
            if (record.seq < start and record.kind in HEADS)
            or (
                record.seq >= start
                and (record.kind in ("WaitClosed", "Moved") or record.seq >= last.get(record.path, 0))
            )
        ]


def _met(row: RunRow, offer: Offer | None) -> bool:
    return offer is not None and offer.meets(row.needs)


def _emptied(record: Record) -> Record:
    return record if record.body.startswith(PURGED) else purged(record)


def _size(records: Sequence[Record]) -> int:
    return sum(len(one.head) + len(one.body) + len(one.chain) for one in records)
