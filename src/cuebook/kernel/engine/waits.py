"""A run's open waits, the decisions about them, and the signals for the run.

It opens waits, parks branches on them, and wakes the branches that have news. The waiting effect interprets a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cuebook.kernel.capabilities import in_words
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import STATUS_OF_WAIT, RunStatus, WaitClosed, WaitKind, WaitOpened
from cuebook.kernel.journal import ROOT, Key, Place
from cuebook.kernel.ports import Claim, News
from cuebook.kernel.run import RunRow, Signal, WaitRow, overrides_in
from cuebook.kernel.short_ids import new_wait_id

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

_HOW: dict[str, Literal["answered", "expired", "cancelled"]] = {"answered": "answered", "expired": "expired"}


NEEDS: Literal["needs"] = "needs"
"""The reason of a run that waits for a process with other capabilities."""
ALLOWANCE = "allowance"
"""The code of a wait that an allowance causes, and how its purpose begins."""
WHOLE = "whole"
"""Key in a wait's details: the reference to the full text of what is to be decided."""


def in_full(wait: WaitRow, load: Callable[[str], str]) -> WaitRow:
    """The wait with its full preview, if that was stored."""
    kept = wait.details.get(WHOLE)
    if kept is None:
        return wait
    details = {name: value for name, value in wait.details.items() if name != WHOLE}
    with suppress(NotFound):
        details["preview"] = msgspec.json.decode(load(kept["digest"]))
    return msgspec.structs.replace(wait, details=details)


def opening(row: WaitRow) -> WaitOpened:
    """The record that a wait was opened."""
    return WaitOpened(
        row.id, row.kind, row.prompt, row.purpose, row.type, row.options, row.default, row.expires, row.details
    )


CHILD = "child"
"""Key in a wait's details: the child run that asks, its playbook, its step, and the runs between it and the outermost run."""


def is_of(row: WaitRow, child: str) -> bool:
    """Whether a wait of the outermost run was opened by this child run or by one of its own children."""
    asked = row.details.get(CHILD)
    return asked is not None and child in asked["chain"]


def asker_of(wait: WaitRow) -> tuple[str, str]:
    """The run and the step that ask: those of a child run, or else the wait's own."""
    asked = wait.details.get(CHILD)
    return (wait.run, wait.place.step) if asked is None else (asked["run"], asked["step"])


class Waits:
    """The waits of one run while it is being driven."""

    def __init__(self, driver: Driver, claim: Claim) -> None:
        self._driver = driver
        self._rows = {wait.id: wait for wait in claim.waits}
        self._signals = list(claim.signals)
        self._taken: set[int] = set()
        self._closed: set[str] = set()
        """Waits that were closed during this drive."""
        self._parked: dict[str, tuple[WaitRow, asyncio.Future[WaitRow | None]]] = {}
        self._children: dict[str, tuple[RunRow, str, asyncio.Future[None]]] = {}
        """The child runs that wait, each with the path of the branch that waits for it."""
        self._handed_over: list[tuple[str, tuple[str, ...], asyncio.Future[None]]] = []
        """The branches that wait for capabilities that this process lacks."""
        self.waited: dict[Key, float] = {}
        """How many seconds effects waited for what they need; these are part of their time."""
        self.lock = asyncio.Lock()
        """Held while news is fetched and while the run is given up, so no answer is lost between the two."""

    # --- for effects ---

    async def wait(
        self,
        line: Line,
        key: Key,
        kind: WaitKind,
        prompt: str,
        *,
        purpose: str = "",
        type: str = "",
        options: tuple[str, ...] = (),
        default: str | None = None,
        expires_after: float | None = None,
        details: dict[str, Any] | None = None,
        whole: Mapping[str, str] | None = None,
        until: Callable[[], bool] | None = None,
    ) -> WaitClosed:
        """Opens a wait (or finds one opened before a crash), waits until it is decided, and records the decision.

        `whole` is everything that is to be decided, if the preview in the details shows only part of it. `until` says
        whether what it waits for has come.
        """
        driver, recorded = self._driver, self._driver.recorded
        purpose = purpose or kind
        known = recorded.opened.get((key, purpose))
        if known is not None and known.wait in recorded.closed:
            return recorded.closed[known.wait]
        row = self._rows.get(known.wait) if known is not None else None
        if row is None:  # not opened yet, or closed when the run ended and opened again by its retry
            now = driver.clock()
            masked = driver.redactor.value
            prompt, options, default = masked((prompt, options, default))
            details = masked(details or {})
            if whole:
                parts = msgspec.json.encode(masked(dict(whole)))
                details = {**details, WHOLE: driver.writer.keep_text(parts.decode())}
            row = self._open(
                WaitRow(
                    id=new_wait_id(),
                    run=driver.run_id,
                    tenant=driver.row.tenant,
                    owner=driver.row.owner,
                    place=Place(*key),
                    kind=kind,
                    prompt=prompt,
                    purpose=purpose,
                    type=type,
                    options=options,
                    default=default,
                    details=details,
                    opened=now,
                    expires=None if expires_after is None else now + expires_after,
                )
            )
        return await self._decided(line, row, until)

    def _open(self, row: WaitRow) -> WaitRow:
        self._driver.writer.note(opening(row), row.place, opened=[row])
        return row

    async def hand_over(self, line: Line, key: Key, lacking: Sequence[str], seconds: float | None = None) -> None:
        """Waits for a process with other capabilities, which continues the run instead of this one. Returns if this process
        has gained them, if the branch is cancelled, or after these seconds.
        """
        if seconds is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._handed_over.append((line.cursor.path, tuple(lacking), future))
            self._driver.rest()
            await future
            return
        offer = self._driver.engine.offer
        assert offer is not None
        await self.wait(
            line,
            key,
            NEEDS,
            f"Waits for {in_words(lacking)}.",
            purpose=next(self._purposes(key)),
            expires_after=seconds,
            details={"needs": list(lacking)},
            until=lambda: not offer.lacks(lacking),
        )

    def _purposes(self, key: Key) -> Iterator[str]:
        """The purpose of the wait for what an effect needs, if one is open, or of the next one."""
        recorded = self._driver.recorded
        for number in count(1):
            opened = recorded.opened.get((key, f"{NEEDS}:{number}"))
            if opened is None or opened.wait not in recorded.closed:
                yield f"{NEEDS}:{number}"

    def came(self, key: Key, *, here: bool) -> bool:
        """Whether what an effect needs may still come. If it is here, the wait for it ends, and its time is remembered."""
        recorded = self._driver.recorded
        for number in count(1):
            purpose = f"{NEEDS}:{number}"
            opened = recorded.opened.get((key, purpose))
            if opened is None:
                return True
            closed = self.decided(key, purpose)
            row = self._rows.get(opened.wait)
            if closed is None and here and row is not None:
                closed = self._close(WaitClosed(row.id, "answered", NEEDS), row)
                self.waited[key] = max(0.0, self._driver.clock() - row.opened)
            if closed is not None and closed.how == "expired":
                return False
        raise AssertionError

    async def _decided(self, line: Line, row: WaitRow, until: Callable[[], bool] | None = None) -> WaitClosed:
        while True:
            message = self._message_for(row)
            if message is not None:
                self._take_message(message)
                closed = WaitClosed(row.id, "answered", row.kind, {"value": message.payload.get("value")}, message.by)
                return self._close(closed, row, [message.id])
            decided = self._rows.get(row.id, row)
            if until is not None and decided.state == "open" and until():
                return self._close(WaitClosed(row.id, "answered", row.kind), row)
            if decided.state == "open" and not self._is_cancelled(line):
                decided = await self._park(row) or row
            if decided.state != "open":
                how = _HOW.get(decided.state, "cancelled")
                return self._close(WaitClosed(row.id, how, row.kind, decided.answer, decided.by), row)
            if self._is_cancelled(line):
                return self._close(WaitClosed(row.id, "cancelled", row.kind), row)

    def _is_cancelled(self, line: Line) -> bool:
        """Whether there is a cancellation that the branch has not received yet."""
        return self._driver.stops(line)

    def _close(self, closed: WaitClosed, row: WaitRow, taken: list[int] | None = None) -> WaitClosed:
        driver = self._driver
        self._closed.add(row.id)
        driver.recorded.closed[row.id] = closed
        self._note_closed(closed, self._place_of(row), taken or [])
        driver.settings = driver.settings.edited(closed.answer.get("settings", {}))
        driver.recorded.overrides += overrides_in(closed.answer, closed.by, driver.clock())
        return closed

    def _note_closed(self, closed: WaitClosed, place: Place, taken: list[int]) -> None:
        self._driver.writer.note(closed, place, closed=[closed.wait], taken=taken)

    def _place_of(self, row: WaitRow) -> Place:
        return row.place

    def opened(self, key: Key, wait: str) -> WaitRow | WaitOpened | None:
        """A wait of this effect, as it was opened."""
        before = (one for (place, _), one in self._driver.recorded.opened.items() if place == key and one.wait == wait)
        return self._rows.get(wait) or next(before, None)

    def decided(self, key: Key, purpose: str) -> WaitClosed | None:
        """The decision about a wait that was opened earlier, recorded on first use; None if there is none."""
        opened = self._driver.recorded.opened.get((key, purpose))
        if opened is None or opened.wait in self._driver.recorded.closed:
            return None if opened is None else self._driver.recorded.closed[opened.wait]
        row = self._rows.get(opened.wait)
        if row is None or row.state not in _HOW:
            return None
        return self._close(WaitClosed(row.id, _HOW[row.state], row.kind, row.answer, row.by), row)

    def close_cancelled(self, key: Key, purposes: str = "") -> None:
        """Records that this effect's undecided waits from before a crash or a pause are cancelled; with `purposes`,
        only waits whose purpose begins with it.
        """
        recorded = self._driver.recorded
        for (place, purpose), opened in list(recorded.opened.items()):
            if place != key or not purpose.startswith(purposes) or opened.wait in recorded.closed:
                continue
            if opened.wait not in self._closed and self.decided(key, purpose) is None:
                self._closed.add(opened.wait)
                closed = recorded.closed[opened.wait] = WaitClosed(opened.wait, "cancelled", opened.kind)
                self._note_closed(closed, Place(*key), [])

    def next_purpose(self, kind: WaitKind) -> str:
        """The purpose of the run-wide open wait of this kind, or of the next such wait."""
        recorded, key = self._driver.recorded, Place().key
        for asked in count(1):
            opened = recorded.opened.get((key, f"{kind}:{asked}"))
            if opened is None or opened.wait not in recorded.closed:
                return f"{kind}:{asked}"
        raise AssertionError

    def close_met(self, kind: WaitKind, unless: str = "") -> None:
        """Records that the waits of a kind are fulfilled, except for the one with this prompt."""
        recorded = self._driver.recorded
        for opened in list(recorded.opened.values()):
            row = self._rows.get(opened.wait)
            if opened.kind != kind or opened.wait in recorded.closed or row is None or row.prompt == unless:
                continue
            self._close(WaitClosed(row.id, "answered", kind, row.answer, row.by), row)

    def late_outcome(self, key: Key) -> Any:
        """The late outcome of this effect from a fenced driver, or None."""
        signal = next((s for s in self._signals if s.kind == "late" and tuple(s.payload["key"]) == key), None)
        return signal.payload["outcome"] if signal is not None else None

    # --- for child runs ---

    def concerns(self, child: str) -> list[WaitRow]:
        """The undecided waits of a child run and of its own children."""
        return [row for row in self._rows.values() if is_of(row, child) and row.id not in self._closed]

    def has_news_of(self, child: str) -> bool:
        """Whether something was decided for a child run since it was last driven."""
        return any(row.state != "open" or self._message_for(row) is not None for row in self.concerns(child))

    async def park_child(self, row: RunRow, path: str) -> None:
        """Waits until there is news of a child run that waits, or until this run is cancelled."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._children[row.id] = (row, path, future)
        self._driver.rest()
        await future

    def withdraw(self, child: str) -> None:
        """Closes the waits of a child run that has ended."""
        for row in self.concerns(child):
            self._closed.add(row.id)
            closed = self._driver.recorded.closed[row.id] = WaitClosed(row.id, "cancelled", row.kind)
            self._driver.writer.note(closed, row.place, closed=[row.id])

    def settle(self, waits: Iterable[str]) -> None:
        """Records decisions that a child run used before its parent's process was killed."""
        for row in [self._rows[wait] for wait in waits if wait in self._rows and wait not in self._closed]:
            how = _HOW.get(row.state, "cancelled")
            self._close(WaitClosed(row.id, how, row.kind, row.answer, row.by), row)

    def wake_children(self, below: str | None = None) -> None:
        """Wakes the branches whose children have news, or all branches below a path."""
        for child, (_, path, future) in list(self._children.items()):
            wakes = self.has_news_of(child) if below is None else path.startswith(below)
            if wakes and not future.done():
                del self._children[child]
                self._driver.move()
                future.set_result(None)

    # --- for the driver ---

    def hear(self, news: News) -> list[Signal]:
        """Wakes the waits that have news; returns the new cancellations, each once."""
        for wait in news.waits:
            self._rows[wait.id] = wait
            if wait.state != "open":
                self._wake(wait.id, wait)
        self._signals = [signal for signal in news.signals if signal.id not in self._taken]
        for wait, _ in list(self._parked.values()):
            if self._message_for(wait) is not None:
                self._wake(wait.id, None)
        self.wake_children()
        cancels = [signal for signal in self._signals if signal.kind == "cancel"]
        for signal in cancels:
            self.take(signal)
        return cancels

    def late_for_parked(self) -> list[Signal]:
        """Late outcomes whose question is open by now and does not show them yet."""
        keys = [list(wait.place.key) for wait, _ in self._parked.values() if wait.kind == "in_doubt"]
        return [signal for signal in self._signals if signal.kind == "late" and signal.payload["key"] in keys]

    def take(self, signal: Signal) -> None:
        """Marks a signal as used: the store may still return it until the record of its use is written."""
        self._signals.remove(signal)
        self._taken.add(signal.id)

    def signal(self, kind: str) -> Signal | None:
        return next((signal for signal in self._signals if signal.kind == kind), None)

    def interrupt(self, path: str = ROOT) -> None:
        """Wakes all waits of a branch and of those below it, because it is cancelled."""
        for wait, _ in list(self._parked.values()):
            if wait.place.path.startswith(path):
                self._wake(wait.id, None)
        self.wake_children(path)
        for waiting, _, future in self._handed_over:
            if waiting.startswith(path) and not future.done():
                self._driver.move()
                future.set_result(None)

    def offered(self) -> None:
        """Wakes the branches that wait for capabilities which this process has gained."""
        offer = self._driver.engine.offer
        for wait, _ in list(self._parked.values()):
            if wait.kind == NEEDS:
                self._wake(wait.id, None)
        for _, lacking, future in self._handed_over:
            if offer is not None and not offer.lacks(lacking) and not future.done():
                self._driver.move()
                future.set_result(None)
        for child, (row, _, future) in list(self._children.items()):
            if offer is not None and offer.meets(row.needs) and not future.done():
                del self._children[child]
                self._driver.move()
                future.set_result(None)

    def lacking(self) -> tuple[str, ...]:
        """What the branches that rest still need from another process."""
        needs = {name for _, lacking, future in self._handed_over if not future.done() for name in lacking}
        needs.update(name for wait, _ in self._parked.values() for name in wait.details.get("needs", ()))
        needs.update(name for row, _, _ in self._children.values() for name in row.needs)
        return tuple(sorted(needs))

    def status(self) -> tuple[RunStatus, str]:
        """The status of the run while all its branches are waiting, and the reason."""
        kinds = {wait.kind for wait, _ in self._parked.values()}
        kinds |= {wait.kind for child in self._children for wait in self.concerns(child)}
        if not kinds:
            return "paused", NEEDS
        kind = next(kind for kind in STATUS_OF_WAIT if kind in kinds)
        return STATUS_OF_WAIT[kind][0], "" if kind in ("question", "approval", "breakpoint") else kind

    # --- inside ---

    async def _park(self, row: WaitRow) -> WaitRow | None:
        future: asyncio.Future[WaitRow | None] = asyncio.get_running_loop().create_future()
        self._parked[row.id] = (row, future)
        self._driver.rest()
        return await future

    def _wake(self, wait_id: str, decided: WaitRow | None) -> None:
        _, future = self._parked.pop(wait_id, (None, None))
        if future is not None and not future.done():
            self._driver.move()
            future.set_result(decided)

    def _take_message(self, message: Signal) -> None:
        self.take(message)

    def _message_for(self, wait: WaitRow) -> Signal | None:
        """The oldest message on the wait's channel that has not been consumed."""
        if wait.kind != "message":
            return None
        channel = wait.details.get("channel")
        return next((s for s in self._signals if s.kind == "message" and s.payload.get("channel") == channel), None)
