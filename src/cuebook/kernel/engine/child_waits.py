"""The waits of a child run. They belong to the outermost run, which lists them, so that a person sees each of them once.

Both journals record them: the outermost run's first, so that after a crash the child finds the wait that it had opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from cuebook.kernel.engine.waits import CHILD, Waits, opening
from cuebook.kernel.events import WaitClosed, WaitOpened
from cuebook.kernel.journal import Key, Place
from cuebook.kernel.ports import Claim
from cuebook.kernel.run import Signal, WaitRow, overrides_in

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver

_STATES: dict[str, Literal["answered", "expired", "cancelled"]] = {
    "answered": "answered",
    "expired": "expired",
    "cancelled": "cancelled",
}


class ChildWaits(Waits):
    """The waits of a child run while it is being driven."""

    def __init__(self, driver: Driver, claim: Claim, outermost: Driver, at: Key, chain: tuple[str, ...]) -> None:
        """`at` is the effect of the outermost run that started the child, or its ancestor; `chain` ends with the child."""
        super().__init__(driver, claim)
        self._outermost = outermost
        self._at = at
        self._chain = chain
        self._rows = outermost.waits._rows
        self._places: dict[str, Place] = {}

    def look(self) -> None:
        """Wakes the waits that were decided; the outermost run has heard the news."""
        for wait, _ in list(self._parked.values()):
            if self._rows[wait.id].state != "open":
                self._wake(wait.id, self._rows[wait.id])
            elif self._message_for(wait) is not None:
                self._wake(wait.id, None)
        self.wake_children()

    def _open(self, row: WaitRow) -> WaitRow:
        outer, place = self._outermost, row.place
        purpose = f"{self._driver.run_id}/{place.path}{place.step}#{place.visit}.{place.index}/{row.purpose}"
        known = outer.recorded.opened.get((self._at, purpose))
        if known is None:
            asked = {"run": row.run, "name": self._driver.row.name, "step": place.step, "chain": list(self._chain)}
            details = {**row.details, CHILD: asked}
            listed = msgspec.structs.replace(
                row, run=outer.run_id, owner=outer.row.owner, place=Place(*self._at), purpose=purpose, details=details
            )
            outer.writer.note(opening(listed), listed.place, opened=[listed])
        else:
            listed = self._rows.get(known.wait) or self._decided_before(row, known, purpose)
        self._rows[listed.id] = listed
        self._places[listed.id] = place
        self._driver.writer.note(msgspec.structs.replace(opening(listed), purpose=row.purpose), place)
        return listed

    def _decided_before(self, row: WaitRow, known: WaitOpened, purpose: str) -> WaitRow:
        """A wait that the outermost run recorded as closed before its process was killed."""
        closed = self._outermost.recorded.closed.get(known.wait)
        how = "cancelled" if closed is None else closed.how
        return msgspec.structs.replace(
            row,
            id=known.wait,
            run=self._outermost.run_id,
            place=Place(*self._at),
            purpose=purpose,
            details=known.details,
            state=_STATES[how],
            answer={} if closed is None else closed.answer,
            by="" if closed is None else closed.by,
        )

    def _note_closed(self, closed: WaitClosed, place: Place, taken: list[int]) -> None:
        outer = self._outermost
        self._driver.writer.note(closed, place)
        if closed.wait in outer.recorded.closed:
            return
        outer.recorded.closed[closed.wait] = closed
        outer.waits._closed.add(closed.wait)
        outer.writer.note(closed, Place(*self._at), closed=[closed.wait], taken=taken)
        outer.settings = outer.settings.edited(closed.answer.get("settings", {}))
        outer.recorded.overrides += overrides_in(closed.answer, closed.by, self._driver.clock())

    def _place_of(self, row: WaitRow) -> Place:
        if row.id not in self._places:
            opened = self._driver.recorded.opened.items()
            self._places[row.id] = next(Place(*key) for (key, _), event in opened if event.wait == row.id)
        return self._places[row.id]

    def concerns(self, child: str) -> list[WaitRow]:
        return self._outermost.waits.concerns(child)

    def withdraw(self, child: str) -> None:
        self._outermost.waits.withdraw(child)

    def settle(self, waits: Iterable[str]) -> None:
        self._outermost.waits.settle(waits)

    def _message_for(self, wait: WaitRow) -> Signal | None:
        return self._outermost.waits._message_for(wait)

    def _take_message(self, message: Signal) -> None:
        self._outermost.waits.take(message)
