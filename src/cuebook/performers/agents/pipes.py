"""A transport for the protocol over the streams of a confined process: one JSON object per line, within bounds.

If the process misbehaves (dies, floods us, writes garbage, never reads), the transport is closed and the process killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from typing import Any

from cuebook.kernel.ports import Confined

LINE_LIMIT = 4 << 20
"""The maximum size of one message, in bytes."""
TURN_LIMIT = 64 << 20
"""The maximum number of bytes that an agent may send between two prompts or answers."""
UNREAD_LIMIT = 16 << 20
"""The maximum number of bytes waiting to be read by the agent."""
_GARBAGE_LIMIT = 20
_ERRORS_KEPT = 4_096
_CHUNK = 1 << 16
_GONE_SECONDS = 10.0


class Pipes:
    """The streams of one process. Implements the package's `Transport`."""

    def __init__(self, process: Confined) -> None:
        self._process = process
        self._ended = asyncio.ensure_future(process.wait())
        self._inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(1_000)
        self._stdin: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._readers: list[asyncio.Task[None]] = []
        self._errors = b""
        self._garbage = 0
        self._left = TURN_LIMIT
        self._closing = False
        self.violation = ""
        """How the agent violated the protocol."""
        self.closed = asyncio.Event()
        """Set when nothing more can arrive."""

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        process = self._process
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(process.stdin, "wb", 0))
        self._transports.append(self._stdin)
        for descriptor, read in ((process.stdout, self._read_messages), (process.stderr, self._read_errors)):
            reader = asyncio.StreamReader(limit=_CHUNK)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda it=protocol: it, os.fdopen(descriptor, "rb", 0))  # type: ignore[misc]
            self._transports.append(transport)
            self._readers.append(asyncio.create_task(read(reader)))

    @property
    def account(self) -> str:
        """How the process ended, as sentences."""
        sentences = [self.violation] if self.violation else []
        if self._ended.done() and not self._closing and not self._ended.cancelled():
            code = self._ended.result()
            sentences.append(f"It exited with exit code {code}." if code >= 0 else f"It was killed by signal {-code}.")
        lines = [line.strip() for line in self._errors.decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            # What comes last is often the end of a stack trace; what went wrong is said above it.
            named = [line for line in lines if _ERROR.search(line)][:1]
            words = dict.fromkeys((*named, *lines[-3:]))
            sentences.append(f"Its last error output: {' / '.join(map(_whole, words))}")
        return " ".join(sentences)

    def renew(self) -> None:
        """A new prompt or answer: the agent may send as much again."""
        self._left = TURN_LIMIT

    # --- the transport ---

    async def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        stdin = self._stdin
        if stdin is None or stdin.is_closing() or self.violation:
            raise ConnectionError("The agent is gone.")
        if stdin.get_write_buffer_size() + len(data) > UNREAD_LIMIT:
            self.break_off("It does not read its input.")
            raise ConnectionError("The agent does not read.")
        stdin.write(data)

    async def receive(self) -> dict[str, Any] | None:
        return await self._inbox.get()

    async def close(self) -> None:
        """Ends the process with everything it started."""
        self._closing = True
        if self._stdin is not None:
            self._stdin.close()
        self._process.terminate()
        try:
            await asyncio.wait({self._ended}, timeout=0.3)
        finally:
            self._process.kill()
        await asyncio.wait({self._ended}, timeout=_GONE_SECONDS)
        for task in (*self._readers, self._ended):
            task.cancel()
        await asyncio.gather(*self._readers, self._ended, return_exceptions=True)
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()
        for transport in self._transports:
            transport.close()
        self.closed.set()
        await asyncio.sleep(0)  # a closed transport releases its file in the next iteration of the loop

    def break_off(self, why: str) -> None:
        """The process is no longer useful, so it is killed at once."""
        self.violation = self.violation or why
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self.closed.set()
        with suppress(asyncio.QueueFull):
            self._inbox.put_nowait(None)

    async def _read_messages(self, stdout: asyncio.StreamReader) -> None:
        rest = bytearray()
        try:
            while chunk := await stdout.read(_CHUNK):
                self._left -= len(chunk)
                if self._left < 0:
                    self.break_off(f"It sent more than {TURN_LIMIT >> 20} MiB in one turn.")
                rest += chunk
                *lines, tail = rest.split(b"\n")
                rest = bytearray(tail)
                for line in lines:
                    await self._take(bytes(line))
                if len(rest) > LINE_LIMIT:
                    self.break_off(f"It sent a message of more than {LINE_LIMIT >> 20} MiB.")
                if self.violation:
                    return
        except OSError:
            pass  # a broken pipe means that the process has exited
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._ended), 1.0)
            self._end()

    async def _take(self, line: bytes) -> None:
        if self.violation or not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            await self._inbox.put(message)
            return
        self._garbage += 1
        if self._garbage > _GARBAGE_LIMIT:
            self.break_off("It writes lines that are not messages of the protocol.")

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while chunk := await stderr.read(_CHUNK):
                self._errors += chunk
                if len(self._errors) > _ERRORS_KEPT:
                    self._errors = self._errors[-_ERRORS_KEPT:].partition(b"\n")[2]


_ERROR = re.compile(r"\w*(Error|Exception)\b.*:", re.ASCII)


def _whole(line: str) -> str:
    """The whole line or none of it: half a line may end in the middle of a secret, which would not be masked."""
    return line if len(line) <= 200 else f"[a line of {len(line):,} characters]"
