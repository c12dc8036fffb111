"""Ending runs whose time to wait is over, for whoever opens a store that nobody serves.

Only what certainly comes to an end is ended: the run waits for one answer or one pause, and its program, tried on the
journal alone, asks for nothing more once it hears that nobody came. Whatever could go on is left to who drives it.
"""

from __future__ import annotations

from contextlib import suppress

from cuebook.kernel.acts import unanswered
from cuebook.kernel.engine import Engine
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import WAITING, WaitOpened
from cuebook.kernel.journal import Key
from cuebook.kernel.rehearsal import rehearse
from cuebook.kernel.replay import Recorded

_ENDING = ("question", "breakpoint")
"""Kinds of waits that fail when they expire, whatever a policy says."""


async def settle(engine: Engine) -> None:
    """Ends the runs that wait for nothing but what has expired. A store that cannot be written stays as it is."""
    with suppress(CuebookError):
        for run in await _candidates(engine):
            with suppress(CuebookError):
                if await _ends(engine, run):
                    await engine.store.expire(engine.clock(), run)
                    await engine.drive(run, prepared=True)


async def _candidates(engine: Engine) -> list[str]:
    """Runs with a wait that is due, and waiting ones for which there is news: their wait may have been due before."""
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
    wait = await engine.store.wait(opened.wait)
    over = wait.state == "expired" or (
        wait.state == "open" and wait.expires is not None and wait.expires <= engine.clock()
    )
    if not over or wait.kind not in _ENDING:
        return False
    text = await engine.store.playbook(row.playbook)
    shown = rehearse(engine.programs, row, text, entries, {key: unanswered("expired", wait.kind)})
    return shown.complete and shown.failed is not None and shown.failed.code == "expired"


def _unclosed(recorded: Recorded) -> list[tuple[Key, WaitOpened]]:
    return [(key, opened) for (key, _), opened in recorded.opened.items() if opened.wait not in recorded.closed]
