"""Ends runs whose waits have expired, when a process opens a store that no server uses.

It ends only runs that are certain to end: the run has one open wait, and a dry replay shows that its program finishes
once that wait expires. All other runs are left to the process that drives them.
"""

from __future__ import annotations

from contextlib import suppress

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.engine.handlers import unanswered
from cuebook.kernel.engine.waits import CHILD
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import WAITING, WaitOpened
from cuebook.kernel.fold.replay import Recorded
from cuebook.kernel.journal import Key

_ENDING = ("question", "breakpoint", "model")
"""The kinds of waits that fail when they expire, under every policy."""


async def settle(engine: Engine) -> None:
    """Ends the runs whose only wait has expired. Does nothing if the store cannot be written."""
    with suppress(CuebookError):
        for run in await _candidates(engine):
            with suppress(CuebookError):
                if await _ends(engine, run):
                    await engine.store.expire(engine.clock(), run)
                    await engine.drive(run, prepared=True)


async def _candidates(engine: Engine) -> list[str]:
    """Runs with an expired wait, and ready runs, whose wait may have expired earlier."""
    now, store = engine.clock(), engine.store
    first = await store.next_expiry()
    open_waits = await store.waits() if first is not None and first <= now else []
    due = [wait.run for wait in open_waits if wait.expires is not None and wait.expires <= now]
    return list(dict.fromkeys([*due, *await store.ready(now, engine.driver)]))


async def _ends(engine: Engine, run: str) -> bool:
    row = await engine.store.run(run)
    if row.status not in WAITING or await engine.store.alive(run):
        return False
    entries = [entry async for entry in engine.entries(run)]
    unclosed = _unclosed(Recorded(entries, 0))
    if len(unclosed) != 1:
        return False
    key, opened = unclosed[0]
    if CHILD in opened.details:  # a child run asks, and only a drive shows what becomes of it
        return False
    wait = await engine.store.wait(opened.wait)
    over = wait.state == "expired" or (
        wait.state == "open" and wait.expires is not None and wait.expires <= engine.clock()
    )
    if not over or wait.kind not in _ENDING:
        return False
    text = await engine.store.playbook(row.playbook)
    from cuebook.kernel.fold.dry_replay import rehearse

    shown = rehearse(engine.programs, row, text, entries, {key: unanswered("expired", wait.kind)})
    return shown.complete and shown.failed is not None and shown.failed.code == "expired"


def _unclosed(recorded: Recorded) -> list[tuple[Key, WaitOpened]]:
    return [(key, opened) for (key, _), opened in recorded.opened.items() if opened.wait not in recorded.closed]
