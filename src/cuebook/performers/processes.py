"""What it takes to talk with a running process: feeding its input, keeping its output up to a limit, ending it.

It knows descriptors and `Confined`, and nothing of what the process is for.
"""

from __future__ import annotations

import asyncio
import os

from cuebook.kernel.confinement import Confined
from cuebook.performers.decoding import decoded, is_text

_CHUNK = 1 << 16


class Feeding:
    """Writes bytes to a descriptor as they are taken, and closes it. A reader that hangs up is no error."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._left = memoryview(data)
        self._open = True
        os.set_blocking(descriptor, False)
        self._write()
        if self._open:
            self._loop.add_writer(descriptor, self._write)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self._descriptor, self._left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it has closed its input, or is gone
            pass
        self.close()


class Keeping:
    """Reads a descriptor to its end and keeps the first bytes of it. What comes after them is read and thrown away."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most
        self._kept = bytearray()
        self._open = True
        self.size = 0
        """The bytes that came."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def text(self) -> str:
        """What was kept. A character that the limit has cut in two is left out."""
        return decoded(bytes(self._kept), cut=self.truncated)

    @property
    def truncated(self) -> bool:
        return self.size > self._most

    @property
    def replaced(self) -> bool:
        """Whether bytes that are no UTF-8 are replaced in the text."""
        return not is_text(bytes(self._kept), cut=self.truncated)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            if not self.ended.done():
                self.ended.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._kept += data[: self._most - len(self._kept)]
        self.size += len(data)


class KeepingLast(Keeping):
    """Keeps the last lines instead: they say why a process failed. Of a single endless line it keeps the beginning.

    Lines are kept whole, so that no secret is left in part at the beginning, where nobody would know it again.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        super().__init__(descriptor, most)
        self._last = bytearray()

    def text(self) -> str:
        lines = self._last[-self._most :].partition(b"\n")[2] if self.truncated else b""
        return decoded(bytes(lines)) if lines else super().text()

    def _keep(self, data: bytes) -> None:
        super()._keep(data)
        self._last += data
        if len(self._last) > 2 * self._most:
            del self._last[: -self._most]


class KeepingEnds(Keeping):
    """Keeps the beginning and the last lines of what is longer, half of the limit each.

    The last lines are kept whole, for the reason that `KeepingLast` has. Of a single endless line the beginning is kept.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        super().__init__(descriptor, most)
        self._last = bytearray()

    def text(self) -> str:
        if not self.tail():
            return super().text()
        return decoded(bytes(self._kept[: self._most - self._most // 2]), cut=True)

    def tail(self) -> str:
        """The last lines; none where nothing was cut."""
        return decoded(bytes(self._last[-(self._most // 2) :].partition(b"\n")[2])) if self.truncated else ""

    def _keep(self, data: bytes) -> None:
        super()._keep(data)
        self._last += data
        if len(self._last) > 2 * self._most:
            del self._last[: -self._most]


class Running:
    """A process whose streams are served, from its start to its end. Closing it leaves nothing of it."""

    def __init__(self, process: Confined, stdin: bytes, most: int, *, ends: bool = False) -> None:
        """With `ends`, the end of a long output is kept as well as its beginning."""
        self.process = process
        self._input = Feeding(process.stdin, stdin)
        self.stdout: Keeping = KeepingEnds(process.stdout, most) if ends else Keeping(process.stdout, most)
        self.stderr = KeepingLast(process.stderr, most)
        self._ending: asyncio.Future[int] | None = None

    def tail(self) -> str:
        """The last lines of an output that was cut, where they are kept."""
        return self.stdout.tail() if isinstance(self.stdout, KeepingEnds) else ""

    async def ended(self, seconds: float) -> int | None:
        """Its exit code, or None if it still runs after that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.process.wait()
        except TimeoutError:
            return None

    async def stop(self, grace: float) -> None:
        """Asks it to end, makes it end, and waits until it has, however often the waiting is interrupted."""
        self.process.terminate()
        ending = self._ending = asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait({ending}, timeout=grace)
        finally:
            self.process.kill()
        await asyncio.wait({ending}, timeout=_ENDING)

    async def drained(self) -> None:
        """Waits for the rest of the output. Nothing of the process is left, so it is there or never comes."""
        left = {stream.ended for stream in (self.stdout, self.stderr) if not stream.ended.done()}
        if left:
            await asyncio.wait(left, timeout=_DRAINING)

    def close(self) -> None:
        self.process.kill()
        self._input.close()
        self.stdout.close()
        self.stderr.close()
        if self._ending is not None:
            self._ending.cancel()


_ENDING = 10.0
"""Seconds that a process may take to vanish once it was killed; more only if the disk hangs."""
_DRAINING = 2.0
