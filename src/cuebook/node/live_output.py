"""Sends the output of a request while it runs, in pieces, as far as there is a connection. Outcomes do not depend on it."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from cuebook.performers.nodes.protocol import Message, Output

Stream = Literal["stdout", "stderr"]
_EVERY = 0.1
_LARGEST = 64 << 10
"""The most characters of one message; escaped, they fit."""


class LiveOutput:
    """The live output of one request: at most `most` bytes of each stream."""

    def __init__(self, id: str, most: int, send: Callable[[Message], Awaitable[bool]]) -> None:
        """`send` returns whether there was a connection."""
        self._id = id
        self._left: dict[Stream, int] = {"stdout": most, "stderr": most}
        self._send = send
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._left}
        self._waiting: dict[Stream, str] = {"stdout": "", "stderr": ""}
        self._interrupted: set[Stream] = set()
        """The streams of which something was not sent. They continue at the next line: the server masks secrets, and would
        not recognise the second half of one."""
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    def add(self, stream: Stream, data: bytes) -> None:
        kept = data[: self._left[stream]]
        self._left[stream] -= len(kept)
        text = self._decoders[stream].decode(kept)
        if stream in self._interrupted:
            _, line_end, text = text.partition("\n")
            if line_end:
                self._interrupted.discard(stream)
        self._waiting[stream] += text
        if self._waiting[stream] and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_soon())

    async def close(self) -> None:
        """Sends the rest."""
        self._ending.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        await self._flush()

    async def _flush_soon(self) -> None:
        while any(self._waiting.values()):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _EVERY)
            await self._flush()
        self._task = None

    async def _flush(self) -> None:
        for stream, text in list(self._waiting.items()):
            self._waiting[stream] = ""
            for start in range(0, len(text), _LARGEST):
                if not await self._send(Output(id=self._id, stream=stream, text=text[start : start + _LARGEST])):
                    self._interrupted.add(stream)
                    break
