"""Sends and receives notices with LISTEN and NOTIFY. Streamed text is buffered briefly before it is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.ports import Notice
from cuebook.stores.postgres.database import Database, literal
from cuebook.stores.postgres.notices import LONGEST, Message, read, ready_notice, resend_notice

log = logging.getLogger("cuebook")

_TEXT_EVERY = 0.06
"""Seconds for which text is buffered before it is sent."""
_CHECK_EVERY = 30.0
"""Seconds without a notice after which the connection for notices is checked: it may be open and carry nothing."""
_PIECE = LONGEST // 8
"""Maximum characters of text in one notice. A character can take several bytes, and more once it is JSON."""


class Bus:
    """The notices of one process."""

    def __init__(self, database: Database, sender: str) -> None:
        self._database = database
        self._sender = sender
        self._heard: Callable[[Notice], None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._events: list[TextChunk | TextReset] = []
        """Text that has not been sent yet."""
        self._latest: dict[tuple[str, int], int] = {}
        """The index in `_events` of each reply's latest event, by run and record."""
        self._sending: asyncio.Task[None] | None = None

    async def listen(self, heard: Callable[[Notice], None]) -> None:
        """Calls `heard` with the notices of other processes until the bus is closed. A lost connection is replaced."""
        self._heard = heard
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(ready))
        await asyncio.wait([self._listening, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)

    async def announce(self, run: str) -> None:
        """Announces that a run is ready. If that fails, the others notice a little later."""
        with suppress(CuebookError):
            await self._notify([ready_notice(self._sender, run)])

    async def ask_for_text(self, run: str) -> None:
        """Asks the driver of a run for the text under way. If that fails, it is shown when the reply is complete."""
        with suppress(CuebookError):
            await self._notify([resend_notice(self._sender, run)])

    def share(self, event: TextChunk | TextReset) -> None:
        """Sends a piece of a reply to other processes, merged with the pieces that follow shortly."""
        key = (event.run, event.seq)
        at = self._latest.get(key)
        before = None if at is None else self._events[at]
        if isinstance(event, TextChunk) and isinstance(before, TextChunk) and _follows(before, event):
            self._events[at or 0] = msgspec.structs.replace(before, text=before.text + event.text)
        else:
            self._latest[key] = len(self._events)
            self._events.append(event)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_texts())

    async def close(self) -> None:
        for task in (self._listening, self._sending):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._listening = self._sending = None

    # --- inside ---

    async def _send_texts(self) -> None:
        while self._events:
            await asyncio.sleep(_TEXT_EVERY)
            events, self._events, self._latest = self._events, [], {}
            with suppress(CuebookError):
                await self._notify([said for event in events for said in self._pieces(event)])

    def _pieces(self, event: TextChunk | TextReset) -> list[str]:
        if isinstance(event, TextReset):
            return [self._said((event.run, event.seq, event.step, 0, "", True))]
        cuts = range(0, len(event.text), _PIECE)
        return [
            self._said((event.run, event.seq, event.step, event.offset + at, event.text[at : at + _PIECE], False))
            for at in cuts
        ]

    def _said(self, text: tuple[str, int, str, int, str, bool]) -> str:
        return msgspec.json.encode(Message(self._sender, text=text)).decode()

    async def _notify(self, payloads: list[str]) -> None:
        async def work(connection: AsyncConnection[Any]) -> None:
            async with connection.pipeline():
                for payload in payloads:
                    await connection.execute("SELECT pg_notify(%s, %s)", (self._database.channel, payload))

        await self._database.use(work)

    async def _listen(self, ready: asyncio.Event) -> None:
        away = False
        while True:
            try:
                connection = await self._database.connect()
                try:
                    await connection.execute(literal(f"LISTEN {self._database.channel}"))
                    ready.set()
                    if away:
                        log.warning("Postgres at %s responds again.", self._database.url.shown)
                    away = False
                    self._pass_on(Notice("records", ""))  # something may have been missed
                    while True:
                        async for notify in connection.notifies(timeout=_CHECK_EVERY):
                            for notice in read(notify.payload):
                                if notice.sender != self._sender:
                                    self._pass_on(notice)
                        with self._database.answered(connection):
                            await connection.execute("SELECT 1")
                finally:
                    await connection.close()
            except psycopg.Error as error:
                if not away:  # once, not with every attempt
                    log.warning("%s", self._database.translate(error))
                away = True
            ready.set()
            await asyncio.sleep(1.0)

    def _pass_on(self, notice: Notice) -> None:
        if self._heard is not None:
            try:
                self._heard(notice)
            except Exception:
                log.exception("A notice of another process could not be used.")


def _follows(before: TextChunk, event: TextChunk) -> bool:
    return before.offset + len(before.text) == event.offset
