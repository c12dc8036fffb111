"""Text of replies under way, and how processes that share a store send it to each other.

The driver of a run sends text as it arrives. A process that has missed some of it asks, and the driver sends it again from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import ENDED, WAITING, TextChunk, TextReset
from cuebook.kernel.ports import Notice

_EVERY = 1.0
"""Seconds between two requests for the text of a run, and between two answers."""
_BEGUN = 0
"""In place of the record of a reply: all replies of a run that a reader has begun to follow."""


class Flow:
    """Streaming text: one model call's reply so far."""

    def __init__(self, step: str) -> None:
        self.step = step
        self._pieces: list[str] = []
        self.tries = 1
        """The number of attempts."""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def begin_again(self) -> None:
        self._pieces = []
        self.tries += 1

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class Pace:
    """Does something for a run at most once per interval. A request within an interval is served at its end."""

    def __init__(self, act: Callable[[str], None]) -> None:
        self._act = act
        self._intervals: dict[str, asyncio.TimerHandle] = {}
        self._again: set[str] = set()

    def request(self, run: str) -> None:
        if run in self._intervals:
            self._again.add(run)
            return
        self._intervals[run] = asyncio.get_running_loop().call_later(_EVERY, self._over, run)
        self._act(run)

    def close(self) -> None:
        for interval in self._intervals.values():
            interval.cancel()
        self._intervals.clear()
        self._again.clear()

    def _over(self, run: str) -> None:
        del self._intervals[run]
        if run in self._again:
            self._again.remove(run)
            self.request(run)


class SharedText:
    """Sends the text of runs that this process drives, and receives the text of runs that it follows."""

    def __init__(self, engine: Engine, flows: dict[str, dict[int, Flow]], follows: Callable[[str], bool]) -> None:
        self._engine = engine
        self._store = engine.store
        self._flows = flows
        self._follows = follows
        self._behind: dict[str, set[int]] = {}
        """The replies of each run whose text may have been missed."""
        self._requests = Pace(self._ask)
        self._answers = Pace(self._send_again)
        self._asking: set[asyncio.Task[None]] = set()

    def catch_up(self, run: str, seq: int = _BEGUN) -> None:
        """Asks the driver of a run that is followed here for the text so far."""
        if self._store.shared and self._follows(run) and not self._engine.drives(run):
            self._behind.setdefault(run, set()).add(seq)
            self._requests.request(run)

    def asked(self, run: str) -> None:
        """Answers the request of another process, if this process drives the run and its reply has begun."""
        if self._engine.drives(run) and any(flow.text for flow in self._flows.get(run, {}).values()):
            self._answers.request(run)

    def hear(self, notice: Notice) -> None:
        """Passes on the part of a notice that is new. What does not continue the text reveals that some was missed."""
        run, seq = notice.run, notice.seq
        if self._engine.drives(run) or not self._follows(run):
            return
        if notice.again:
            self._engine.publish(TextReset(run, seq, notice.step))
            return
        known = self._known(run, seq)
        if known[notice.offset : notice.offset + len(notice.text)] != notice.text[: max(0, len(known) - notice.offset)]:
            self._engine.publish(TextReset(run, seq, notice.step))  # the notice that the reply begins again was lost
            known = ""
        if notice.offset > len(known):
            self.catch_up(run, seq)
            return
        self._behind.get(run, set()).discard(seq)
        new = notice.text[len(known) - notice.offset :]
        if new:
            self._engine.publish(TextChunk(run, seq, notice.step, len(known), new))

    def forget(self, run: str) -> None:
        """Drops what is known about a run that is no longer followed."""
        self._behind.pop(run, None)

    async def close(self) -> None:
        self._requests.close()
        self._answers.close()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    # --- inside ---

    def _known(self, run: str, seq: int) -> str:
        flow = self._flows.get(run, {}).get(seq)
        return flow.text if flow is not None else ""

    def _ask(self, run: str) -> None:
        if self._behind.get(run):  # otherwise the missing text has arrived since the request
            task = asyncio.get_running_loop().create_task(self._ask_driver(run))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask_driver(self, run: str) -> None:
        self._behind.get(run, set()).discard(_BEGUN)
        with suppress(CuebookError):  # the text is shown when the reply is complete
            row = await self._store.run(run)
            if row.driver and row.status not in ENDED and row.status not in WAITING:
                await self._store.ask_for_text(run)

    def _send_again(self, run: str) -> None:
        """Sends the text through the queue for new text, so that both arrive in order."""
        if self._engine.drives(run):
            for seq, flow in self._flows.get(run, {}).items():
                if flow.text:
                    self._store.share(TextChunk(run, seq, flow.step, 0, flow.text))
