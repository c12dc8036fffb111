"""What runs of a playbook leave to later ones: the outputs of the last that completed, and small values by name; and what
a run itself has noted.

All are read and written through the store, outside the gate, because they never leave it. Every value is one that a
journal already holds with its secrets masked.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import Recall, Remember
from cuebook.kernel.events import Noted, Performed, StepFinished
from cuebook.kernel.journal import ROOT, Key, plain, without_void
from cuebook.kernel.outcomes import AnyOutcome, Done, Failed, Source, is_incomplete
from cuebook.kernel.run import RunRow

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

STATE = "state"
"""The kind under which the store keeps the values."""
LARGEST = 64_000
"""The maximum size of a value in bytes, as JSON."""
MOST = 100
"""The maximum number of values of a playbook."""
_LOOKED_AT = 500
"""How many completed runs of that name are looked at for one of the same workspace."""


async def recall(driver: Driver, line: Line, key: Key, effect: Recall) -> tuple[int | None, Any]:
    row = driver.row
    outcome: AnyOutcome = Done()
    if effect.kind == "state":
        body = (await driver.engine.store.kept(row.tenant, STATE)).get(_place(row) + effect.name)
        outcome = Done(body["value"] if body is not None else None)
    elif effect.kind == "notes":
        outcome = await _notes(driver, effect.name)
    else:
        run = await _previous(driver, row)
        if run:
            outcome = await _output(driver, run, effect.name) or outcome
    return await driver.record(key, effect.fingerprint, outcome)


async def remember(driver: Driver, line: Line, key: Key, effect: Remember) -> tuple[int | None, Any]:
    row, store, place = driver.row, driver.engine.store, _place(driver.row)
    value = plain(driver.redactor.value(effect.value))
    size = len(msgspec.json.encode(value))
    kept = await store.kept(row.tenant, STATE)
    if size > LARGEST:
        message = f"The value of '{effect.name}' has {size:,} bytes, but at most {LARGEST:,} are kept between runs."
        outcome: AnyOutcome = Failed("state_too_large", message, "Keep less, such as a digest, or write a file.")
    elif value is None:
        await store.forget(row.tenant, STATE, place + effect.name)
        outcome = Done()
    elif place + effect.name not in kept and sum(name.startswith(place) for name in kept) >= MOST:
        message = f"The playbook already keeps {MOST} values."
        outcome = Failed("state_too_large", message, "Keep fewer, or set some of them to null.")
    else:
        body = {"workspace": row.workspace, "playbook": row.name, "name": effect.name, "value": value, "run": row.id}
        await store.keep(row.tenant, STATE, place + effect.name, body)
        outcome = Done()
    return await driver.record(key, effect.fingerprint, outcome)


async def _notes(driver: Driver, name: str) -> Source:
    """The notes of a name, in the order in which they were made, each with its place. Those that a retry made void are left
    out."""
    await driver.writer.settle()
    entries = without_void([entry async for entry in driver.engine.entries(driver.run_id)])
    found = [
        {
            "seq": one.seq,
            "path": one.place.path,
            "step": one.place.step,
            "visit": one.place.visit,
            "data": one.event.data,
        }
        for one in entries
        if isinstance(one.event, Noted) and one.event.name == name
    ]
    return Source(Text(msgspec.json.encode(found).decode()))


def _place(row: RunRow) -> str:
    """The prefix of the values of a run's playbook."""
    return sha256(f"{row.workspace}\n{row.name}".encode()).hexdigest()[:24] + "/"


async def _previous(driver: Driver, row: RunRow) -> str:
    """The id of the last run of the same playbook that completed; empty if there is none."""
    found = await driver.engine.store.runs(tenant=row.tenant, name=row.name, status=("completed",), limit=_LOOKED_AT)
    same = (one for one in found if one.workspace == row.workspace and one.dialect == row.dialect and one.id != row.id)
    return next((one.id for one in same), "")


async def _output(driver: Driver, run: str, step: str) -> AnyOutcome | None:
    """The output of a completed step; None if it has none. An output that was cut is a failure, as it is within a run."""
    found: AnyOutcome | None = None
    incomplete = False
    async for record in driver.engine.store.records(run, kinds=(StepFinished.__name__, Performed.__name__)):
        if record.path != ROOT:
            continue
        entry = driver.engine.codec.entry(record)
        match entry.event:
            case Performed(outcome=outcome) if entry.place.step == step:
                incomplete = is_incomplete(outcome)
            case StepFinished(label=label, status="completed", output=output) if label == step and output is not None:
                found = Source(output, run)
                if incomplete:
                    found = Done({"incomplete": True})
    return found
