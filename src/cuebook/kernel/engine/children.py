"""Child runs: `RunPlaybook` starts a run with a journal of its own, which is driven inside the drive of its parent.

A child that waits is dropped from memory, as every run is; its parent then waits too. The next drive of the parent continues the
child where it stopped. Its id follows from its parent and the effect, so that it is started once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import RunPlaybook
from cuebook.kernel.engine.approval import CANCELLED
from cuebook.kernel.engine.budget import NO_BUDGET
from cuebook.kernel.engine.files import kept_in
from cuebook.kernel.errors import Busy, NotFound
from cuebook.kernel.events import (
    ENDED,
    WAITING,
    ArtifactMade,
    Performed,
    Performing,
    PinnedPlaybook,
    Rewound,
    RunFinished,
)
from cuebook.kernel.files import FileRef
from cuebook.kernel.journal import Key, Place, without_void
from cuebook.kernel.outcomes import CHILD, CHILD_FAILED, USED, AnyOutcome, Failed, PlaybookResult
from cuebook.kernel.ports import Claim
from cuebook.kernel.run import CHILD_TOTALS, RunRow, Settings, Signal, Totals, id_from

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

MOST_DEPTH = 5
"""How many runs may be inside one another, not counting the outermost one."""
_BETWEEN_TRIES = 0.05
"""Seconds before another try to claim a child that this process is about to release."""
_NOWHERE: Key = ("", "", 0, -1)
_ENDINGS = {"cancelled": "was cancelled", "expired": "expired"}


class ChildStart(NamedTuple):
    """Everything that a child run starts with."""

    row: RunRow
    text: str
    inputs: dict[str, Any]
    settings: Settings
    policy: str | None
    uses: dict[str, str]
    pinned: dict[str, PinnedPlaybook]
    sensitive: frozenset[str] = frozenset()
    """The inputs that its playbook marks as sensitive."""


class ChildRequest(NamedTuple):
    """A child run that a run asks for."""

    id: str
    parent: RunRow
    settings: Settings
    """Those of the parent."""
    policy: str | None
    """The policy that the parent started with."""
    playbook: PinnedPlaybook
    digest: str
    inputs: dict[str, Any]
    pinned: dict[str, PinnedPlaybook]


def child_id(parent: str, key: Key, rewinds: int) -> str:
    """The id of the child that an effect starts. A step that is repeated as a whole starts another one."""
    path, step, visit, index = key
    return id_from(f"{parent}\0{path}\0{step}\0{visit}\0{index}\0{rewinds}")


async def run_playbook(driver: Driver, line: Line, key: Key, effect: RunPlaybook) -> tuple[int | None, Any]:
    """Starts the child or finds it, and waits until it has ended. Its result, or its failure, is the outcome."""
    row, claimed = await _started(driver, key, effect)
    if isinstance(row, Failed):
        return await driver.record(key, effect.fingerprint, row)
    if key not in driver.recorded.intents:
        driver.writer.note(Performing(effect, effect.fingerprint), Place(*key))
    row = await _to_its_end(driver, line, key, row, claimed)
    driver.waits.withdraw(row.id)
    outcome = await _outcome(driver, key, row)
    if driver.stops(line) and row.status != "completed":
        used = outcome.details.get(USED, {}) if isinstance(outcome, Failed) else {}
        outcome = msgspec.structs.replace(CANCELLED, details={CHILD: row.id, USED: used})
    return await driver.record(key, effect.fingerprint, outcome)


async def end(driver: Driver, line: Line, key: Key) -> None:
    """Cancels the child that an effect of a cancelled run has started, if there is one that has not ended."""
    try:
        row = await driver.engine.store.run(child_id(driver.run_id, key, driver.recorded.rewinds))
    except NotFound:
        return
    if row.status not in ENDED:
        await _to_its_end(driver, line, key, row)
    driver.waits.withdraw(row.id)


async def end_all(driver: Driver) -> None:
    """Ends all children of a run that is cancelled immediately."""
    engine = driver.engine
    for child in driver.children.values():
        child.inherit_cancel()
    while driver.children:  # noqa: ASYNC110 - each is removed by the task that drives it
        await asyncio.sleep(_BETWEEN_TRIES / 5)
    if not driver.recorded.uses:
        return
    for row in await engine.store.runs(caller=driver.run_id, limit=None):
        if row.status not in ENDED:
            await engine.drive_child(row.id, driver, _NOWHERE, cancelled=True)


async def _started(driver: Driver, key: Key, effect: RunPlaybook) -> tuple[RunRow | Failed, Claim | None]:
    """The child, or why it cannot be started, and the claim on a child that is new."""
    engine, recorded = driver.engine, driver.recorded
    child = child_id(driver.run_id, key, recorded.rewinds)
    if key in recorded.intents or key in recorded.retried:
        try:
            return await engine.store.run(child), None
        except NotFound:
            pass  # its process was killed before it was created
    digest = recorded.uses.get(effect.playbook)
    playbook = recorded.pinned.get(digest or "")
    if digest is None or playbook is None or engine.children is None:
        words = f"The playbook '{effect.playbook}' was not pinned when run {driver.outermost.run_id} started."
        return Failed("no_playbook", words, "Only playbooks that the playbook itself names can be started."), None
    if len(driver.chain) >= MOST_DEPTH:
        words = f"Playbooks are nested more than {MOST_DEPTH} deep, at '{effect.playbook}'."
        return Failed("too_deep", words, "Call it from a playbook further out."), None
    asked = ChildRequest(
        child, driver.row, driver.settings_at(key[0]), recorded.policy, playbook, digest, effect.inputs, recorded.pinned
    )
    made = await engine.children(asked)
    if isinstance(made, Failed):
        return made, None
    claimed = await engine.start_child(made)
    return (claimed.row if claimed is not None else await engine.store.run(child)), claimed


async def _to_its_end(driver: Driver, line: Line, key: Key, row: RunRow, claimed: Claim | None = None) -> RunRow:
    engine, waits = driver.engine, driver.waits
    while True:
        cancelled = driver.stops(line)
        if row.status in ENDED:
            if cancelled or not await _is_to_retry(driver, key, row):
                return row
            await engine.store.signal(Signal(row.id, "retry", {}, driver.row.owner))
        elif (
            row.status in WAITING and not cancelled and not waits.has_news_of(row.id) and not _may_continue(driver, row)
        ):
            if driver.budget != NO_BUDGET:
                driver.resting[row.id] = await _used_below(driver, row)
            if waits.has_news_of(row.id) or driver.stops(line):
                continue
            await waits.park_child(row, line.cursor.path)
            driver.resting.pop(row.id, None)
            continue
        heard = [one.id for one in waits.concerns(row.id) if one.state != "open"]
        try:
            row = await engine.drive_child(row.id, driver, key, cancelled=cancelled, claimed=claimed)
            claimed = None
        except Busy:  # a drive of it that was aborted is about to end
            await asyncio.sleep(_BETWEEN_TRIES)
            row = await engine.store.run(row.id)
            continue
        waits.settle(heard)
        if engine.stopping and row.status not in ENDED and row.status not in WAITING:
            await driver.stop_here()


def _may_continue(driver: Driver, row: RunRow) -> bool:
    """Whether a child that waits for no one can be driven here."""
    offer = driver.engine.offer
    if offer is not None and offer.meets(row.needs):
        return True
    if row.reason == "needs":
        return offer is not None and not offer.lacks(row.needs)
    return row.reason == "non_determinism"


async def _is_to_retry(driver: Driver, key: Key, row: RunRow) -> bool:
    """Whether a child that failed is to continue, because its parent is retried: it has failed no more often than the effect."""
    failures = driver.recorded.retried.get(key, 0)
    if not failures or row.status == "completed":
        return False
    ends = [record.seq async for record in driver.engine.store.records(row.id, kinds=(RunFinished.__name__,))]
    return len(ends) <= failures


async def _used_below(driver: Driver, row: RunRow) -> list[Totals]:
    """What a child that waits and its own unfinished children have used."""
    found = [row.totals]
    for below in await driver.engine.store.runs(caller=row.id, limit=None):
        if below.status not in ENDED:
            found += await _used_below(driver, below)
    return found


async def _outcome(driver: Driver, key: Key, row: RunRow) -> AnyOutcome:
    engine = driver.engine
    before = driver.recorded.reported.get(key, Counter())
    used = {name: getattr(row.totals, name) - before.get(name, 0) for name in CHILD_TOTALS}
    used = {name: number for name, number in used.items() if number}
    if row.status != "completed":
        why = row.error or Failed(row.status, "")
        how = _ENDINGS.get(row.status, "failed")
        return Failed(
            CHILD_FAILED,
            f"The playbook '{row.name}' {how} in run {row.id}: {why.message}",
            f"`cuebook show {row.id}` shows what happened, and `cuebook retry {driver.outermost.run_id}` continues it there.",
            details={CHILD: row.id, "code": why.code, "status": row.status, USED: used},
        )
    kinds = (Performed.__name__, ArtifactMade.__name__, RunFinished.__name__, Rewound.__name__)
    entries = without_void([engine.codec.entry(one) async for one in engine.store.records(row.id, kinds=kinds)])
    artifact, value = None, None
    for entry in entries:
        if isinstance(entry.event, ArtifactMade):
            artifact = entry.event
        elif isinstance(entry.event, RunFinished):
            value = entry.event.result
    named = {one.name: FileRef(one.name, one.digest, one.size, one.filename) for one in kept_in(entries)}
    files = tuple(named.values())
    if artifact is not None:
        return PlaybookResult(row.id, artifact.content, artifact.type, value, used, files)
    text = "" if value is None else msgspec.json.encode(value).decode()
    return PlaybookResult(row.id, Text(text), "json" if text else "", value, used, files)
