"""A transport for the protocol's client over the streams of a confined child process: one JSON message per line.

If the process misbehaves (dies, floods us, writes garbage, never reads), the transport is closed and the process killed.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from cuebook.kernel.ports import Confined
from cuebook.performers.commands import folders
from cuebook.performers.mcp.limits import Flood, Measure
from cuebook.performers.mcp.results import readable, too_long

LINE_LIMIT = 4 << 20
"""The maximum size of one message, in bytes."""
UNSENT_LIMIT = 16 << 20
"""The maximum number of bytes waiting to be read by the server."""
_TOO_LONG = f"It sent a message of more than {LINE_LIMIT} bytes."
_GARBAGE_LIMIT = 100
_ERRORS_KEPT = 4_096
_LINE_SHOWN = 200
_CHUNK = 1 << 16
_ENDING_SECONDS = 1.0
_GONE_SECONDS = 10.0


class Pipes:
    """One process, from start to exit. An asynchronous context manager that returns the two streams."""

    def __init__(self, spawn: Callable[[str], Awaitable[Confined]]) -> None:
        self._spawn = spawn
        """Starts the process, which may use its own folder as long as it runs."""
        self._folder = ""
        self._measure = Measure()
        self._process: Confined | None = None
        self._ended: asyncio.Task[int] | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport | None = None
        self._errors = _LastLines()
        self._pushed = False
        """Whether we stopped it, in which case its exit code means nothing."""
        self._garbage: list[str] = []
        self.closed = asyncio.Event()
        """Set when nothing more can arrive."""
        self.violation = ""
        """How the server violated the protocol."""

    # --- how it ended ---

    @property
    def exit_code(self) -> int | None:
        ended = self._ended
        if ended is None or not ended.done() or ended.cancelled() or ended.exception() is not None:
            return None
        return ended.result()

    def last_words(self) -> str:
        """The end of its error output."""
        return readable(self._errors.text())

    def account(self) -> str:
        """Everything that is known about the failure, as sentences."""
        sentences = []
        if self.violation:
            sentences.append(self.violation)
        if self.exit_code is not None and not self._pushed:
            sentences.append(f"It exited with {_exit(self.exit_code)}.")
        if self._garbage and not self.violation:
            sentences.append(f"It wrote an invalid message: {self._garbage[0]!r}.")
        words = self.last_words().splitlines()[-3:]
        if words:
            sentences.append(f"Its last error output: {' / '.join(_whole(line) for line in words)}")
        return " ".join(sentences)

    def details(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.last_words():
            made["stderr"] = self.last_words()
        if self.exit_code is not None and not self._pushed:
            made["exit_code"] = self.exit_code
        return made

    # --- the transport ---

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        self._folder = folders.make()
        try:
            self._process = process = await self._spawn(self._folder)
        except BaseException:
            await self._end(at_once=True)
            raise
        self._ended = asyncio.create_task(process.wait())
        incoming, outgoing = anyio.create_memory_object_stream[Any](0)
        try:
            stdout, stderr = await self._open(process)
        except BaseException:
            incoming.close()
            outgoing.close()
            await self._end(at_once=True)
            raise
        self._readers = [
            asyncio.create_task(self._read_messages(stdout, incoming)),
            asyncio.create_task(self._read_errors(stderr)),
        ]
        return outgoing, _Outbox(self)

    async def __aexit__(self, *error: object) -> None:
        await self._end(at_once=isinstance(error[1], asyncio.CancelledError))

    async def _open(self, process: Confined) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
        loop = asyncio.get_running_loop()
        left = [process.stdin, process.stdout, process.stderr]
        try:
            self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(left.pop(0), "wb", 0))
            self._transports.append(self._stdin)
            readers = []
            while left:
                reader = asyncio.StreamReader()
                protocol = asyncio.StreamReaderProtocol(reader)
                transport, _ = await loop.connect_read_pipe(lambda it=protocol: it, os.fdopen(left.pop(0), "rb", 0))  # type: ignore[misc]
                self._transports.append(transport)
                readers.append(reader)
        except BaseException:
            for fd in left:
                os.close(fd)
            raise
        return readers[0], readers[1]

    def send(self, message: Any) -> bool:
        """Sends a message to the process. Returns False if the process is gone."""
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        stdin = self._stdin
        if stdin is None or stdin.is_closing() or self.violation:
            return False
        if stdin.get_write_buffer_size() + len(data) > UNSENT_LIMIT:
            self._break("It does not read its input.")
            return False
        self._measure.sent(message)
        stdin.write(data)
        return True

    async def _read_messages(self, stdout: asyncio.StreamReader, inbox: Any) -> None:
        import anyio

        lines = _Lines()
        try:
            while chunk := await stdout.read(_CHUNK):
                for line in lines.feed(chunk):
                    message = self._parsed(line)
                    if message is not None:
                        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                            await inbox.send(message)
                if lines.waiting > LINE_LIMIT:
                    self._break(_TOO_LONG)
                if self.violation:
                    return
        except OSError:
            pass  # a broken pipe means that the process has exited
        finally:
            inbox.close()
            self.closed.set()

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while chunk := await stderr.read(_CHUNK):
                self._errors.feed(chunk)
        if not self._pushed:  # otherwise it may have been in the middle of a line
            self._errors.end()

    def _parsed(self, line: bytes) -> Any:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if self.violation or not line.strip():
            return None
        if len(line) > LINE_LIMIT:
            self._break(_TOO_LONG)
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            return SessionMessage(message) if self._measure.passes(message) else None
        except Flood as flood:
            self._break(str(flood))
            return None
        except ValueError:
            self._garbage.append(readable(_whole(line.decode("utf-8", "replace"))))
            if len(self._garbage) > _GARBAGE_LIMIT:
                self._break(f"It writes lines that are not messages, such as {self._garbage[0]!r}.")
            return None

    def _break(self, why: str) -> None:
        """The process is no longer useful, so it is killed at once."""
        self.violation = self.violation or why
        self._pushed = True
        self.closed.set()
        if self._process is not None:
            self._process.kill()

    async def _end(self, *, at_once: bool) -> None:
        """Waits for the process to exit, then terminates it, then kills it, so that no process is left."""
        process, ended = self._process, self._ended
        try:
            if process is not None and ended is not None:
                await self._end_process(process, ended, at_once=at_once)
        finally:
            await asyncio.shield(asyncio.to_thread(folders.remove, self._folder))
            self.closed.set()

    async def _end_process(self, process: Confined, ended: asyncio.Task[int], *, at_once: bool) -> None:
        if self._stdin is not None:
            self._stdin.close()
        try:
            for step in (process.terminate, process.kill):
                if ended.done() or self.violation or at_once:
                    break
                await asyncio.wait({ended}, timeout=_ENDING_SECONDS)
                if not ended.done():
                    self._pushed = True
                    step()
        finally:
            # Its children may outlive it, and a cancellation may have interrupted the wait.
            self._pushed = self._pushed or not ended.done()
            process.kill()
        await asyncio.wait({ended}, timeout=_GONE_SECONDS)
        await self._close(ended)

    async def _close(self, ended: asyncio.Task[int]) -> None:
        for task in (*self._readers, ended):
            task.cancel()
        await asyncio.gather(*self._readers, ended, return_exceptions=True)
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()  # unread messages are dropped
        for transport in self._transports:
            transport.close()
        await asyncio.sleep(0)  # a closed transport releases its file in the next iteration of the loop


class _Lines:
    """Splits a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def waiting(self) -> int:
        """The number of bytes of the incomplete last line."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if b"\n" not in chunk:
            self._rest += chunk
            return
        first, *others = chunk.split(b"\n")
        yield bytes(self._rest + first)
        self._rest = bytearray(others.pop())
        yield from others


class _LastLines:
    """The end of a stream, in whole lines: half a line may begin or end in the middle of a secret."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._begun = bytearray()
        self._length = 0
        """The length of the current line, which is not kept once it is too long."""

    def feed(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        self._grow(first)
        for piece in others:
            self._close_line()
            self._grow(piece)

    def end(self) -> None:
        """Ends the stream, so the last line is complete."""
        if self._length:
            self._close_line()

    def text(self) -> str:
        return b"\n".join(self._lines).decode("utf-8", "replace")

    def _grow(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length <= _ERRORS_KEPT:
            self._begun += piece

    def _close_line(self) -> None:
        line = bytes(self._begun) if self._length <= _ERRORS_KEPT else too_long(self._length).encode()
        self._begun.clear()
        self._length = 0
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > _ERRORS_KEPT and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1


class _Outbox:
    """The stream that the client writes messages to. Writing never waits for the server."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    async def send(self, item: Any) -> None:
        import anyio

        if not self._pipes.send(item.message):
            raise anyio.BrokenResourceError
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> _Outbox:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code}"


def _whole(line: str) -> str:
    """The whole line or none of it: half a line may end in the middle of a secret, which would not be masked."""
    return line if len(line) <= _LINE_SHOWN else too_long(len(line))
