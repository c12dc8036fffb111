"""The steps that a run with a changed text takes over from its parent, although a step before them is done again.

Their records are copied into the run's own journal when its program reaches them, so that the journal is in the order in
which the program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuebook.kernel.events import (
    YIELDED_EVENTS,
    BranchFinished,
    ModelAsked,
    Performed,
    Performing,
    StepStarted,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import ROOT, Entry, root_step, without_void

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

_COPIED = (*YIELDED_EVENTS, BranchFinished, ModelAsked, Performed, Performing, WaitClosed, WaitOpened)


async def read(driver: Driver) -> dict[str, list[Entry]]:
    """The records of the steps that are still to be taken over, by step."""
    kept, parent = driver.recorded.kept, driver.recorded.parent
    if not kept:
        return {}
    found: dict[str, list[Entry]] = {label: [] for label in kept}
    for entry in without_void([entry async for entry in driver.engine.entries(parent)]):
        step = root_step(entry.place)
        if step in found and isinstance(entry.event, _COPIED):
            found[step].append(entry)
    return found


def take_over(driver: Driver, line: Line, event: StepStarted) -> None:
    """Copies the records of a step that the program is about to begin for the first time."""
    entries = driver.kept.pop(event.label, None) if line.cursor.path == ROOT else None
    if not entries:
        return
    copies = []
    for entry in entries:
        seq = driver.writer.note(entry.event, entry.place)
        copies.append(Entry(driver.run_id, seq, entry.at, entry.place, entry.event))
    driver.recorded.take_over(copies)
    line.live = False
