"""Communicates with a running process: feeds its input, keeps its output up to a limit, and reports how it ended.

It uses descriptors and `Confined`, and does not know what the process is for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import UNANSWERED, CommandResult, Failed
from cuebook.kernel.ports import Call, Confined, SandboxName
from cuebook.performers.files.decoding import decoded, is_text

_CHUNK = 1 << 16


class Feeding:
    """Writes bytes to a descriptor as they are read, and closes it. A reader that hangs up is not an error."""

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
    """Reads a descriptor to its end and keeps the first bytes. The rest is read and discarded."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most
        self._kept = bytearray()
        self._open = True
        self.sink: Callable[[bytes], None] | None = None
        """Receives everything as it arrives."""
        self.size = 0
        """The number of bytes received."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def text(self) -> str:
        """The text that was kept, without a final character that the limit cut in two."""
        return decoded(bytes(self._kept), cut=self.truncated)

    @property
    def truncated(self) -> bool:
        return self.size > self._most

    @property
    def replaced(self) -> bool:
        """Whether the text has replacements for invalid UTF-8."""
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
        if self.sink is not None:
            self.sink(data)

    def _keep(self, data: bytes) -> None:
        self._kept += data[: self._most - len(self._kept)]
        self.size += len(data)


class KeepingLast(Keeping):
    """Keeps the last lines instead, which usually say why a process failed. Of a single endless line, it keeps the beginning.

    Lines are kept whole, so that no part of a secret is left at the beginning, where it would not be recognised.
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
    """Keeps the beginning and the last lines of longer output, each up to half of the limit.

    The last lines are kept whole, for the same reason as in `KeepingLast`. Only the beginning of a single endless line
    is kept.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        super().__init__(descriptor, most)
        self._last = bytearray()

    def text(self) -> str:
        if not self.tail():
            return super().text()
        return decoded(bytes(self._kept[: self._most - self._most // 2]), cut=True)

    def tail(self) -> str:
        """The last lines; empty if nothing was cut."""
        return decoded(bytes(self._last[-(self._most // 2) :].partition(b"\n")[2])) if self.truncated else ""

    def _keep(self, data: bytes) -> None:
        super()._keep(data)
        self._last += data
        if len(self._last) > 2 * self._most:
            del self._last[: -self._most]


class Running:
    """A running process and its streams. Closing it kills everything that the process started."""

    def __init__(
        self,
        process: Confined,
        stdin: bytes,
        most: int,
        *,
        ends: bool = False,
        sink: Callable[[bytes], None] | None = None,
        errors: Callable[[bytes], None] | None = None,
    ) -> None:
        """With `ends`, the end of long output is kept as well as its beginning. `sink` receives all output as it arrives,
        and `errors` the error output, if given."""
        self.process = process
        self._input = Feeding(process.stdin, stdin)
        self.stdout: Keeping = KeepingEnds(process.stdout, most) if ends else Keeping(process.stdout, most)
        self.stderr = KeepingLast(process.stderr, most)
        self.stdout.sink, self.stderr.sink = sink, errors or sink
        self._ending: asyncio.Future[int] | None = None

    def tail(self) -> str:
        """The last lines of output that was cut, if they are kept."""
        return self.stdout.tail() if isinstance(self.stdout, KeepingEnds) else ""

    async def ended(self, seconds: float) -> int | None:
        """Its exit code, or None if it is still running after that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.process.wait()
        except TimeoutError:
            return None

    async def stop(self, grace: float) -> None:
        """Terminates the process, kills it after the grace period or when interrupted, and waits for it to exit."""
        self.process.terminate()
        ending = self._ending = asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait({ending}, timeout=grace)
        finally:
            self.process.kill()
        await asyncio.wait({ending}, timeout=_ENDING)

    async def drained(self) -> None:
        """Waits for the rest of the output. The process is gone, so all of it is already there or never will be."""
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
"""Seconds that a killed process may take to disappear; it only takes longer if the disk hangs."""
_DRAINING = 2.0


def _raising(key: str) -> str:
    """The fix for exceeding a limit that applies to every command."""
    return f"Give it less to do, or raise `{key}` under [limits] in the configuration (CUEBOOK_LIMITS_{key.upper()})."


def _more_time(own: bool) -> str:
    most = "up to `max_seconds` under [limits] in the configuration (CUEBOOK_LIMITS_MAX_SECONDS)"
    if own:
        return f"Give it a longer time limit, {most}, or less to do."
    return f"Give it its own time limit, {most}, or raise `seconds` there for all commands."


async def outcome_of(
    running: Running, call: Call, started: float, sandbox: SandboxName, *, own_time: bool
) -> CommandResult | Failed:
    """Waits for the command, and stops it when its time is up. `own_time` means that it has its own time limit."""
    limits = call.limits
    code = await running.ended(limits.seconds)
    late = code is None
    if late:
        await running.stop(limits.grace)
    await running.drained()
    seconds = time.monotonic() - started
    _warn(running, call)
    if late:
        return _failed(
            "timeout",
            f"The command was still running after {call.given:g} s and was stopped.",
            _more_time(own_time),
            running,
        )
    overrun = running.process.overrun
    if overrun == "memory":
        most = f"{limits.memory / (1 << 20):,.0f} MiB"
        message = f"The command used more than {most} of memory and was stopped."
        return _failed("memory_limit", message, _raising("memory"), running)
    if overrun == "processes":
        message = f"The command started more than {limits.processes} processes and was stopped."
        return _failed("process_limit", message, _raising("processes"), running)
    assert code is not None
    if _spent_processor(code, seconds, limits.cpu_seconds):
        message = f"The command used more than {limits.cpu_seconds} s of CPU time and was stopped."
        return _failed("cpu_limit", message, _raising("cpu_seconds"), running)
    return CommandResult(
        exit_code=code,
        stdout=Text(running.stdout.text()),
        stderr=Text(running.stderr.text()),
        truncated=running.stdout.truncated,
        replaced=running.stdout.replaced,
        stderr_truncated=running.stderr.truncated,
        signal=_signal(code),
        seconds=seconds,
        sandbox=sandbox,
        size=running.stdout.size if running.stdout.truncated else 0,
        tail=Text(running.tail()),
    )


def _warn(running: Running, call: Call) -> None:
    """Warns on the step about output that was cut off or replaced, and about hosts that it was kept from."""
    for name, stream in (("output", running.stdout), ("error output", running.stderr)):
        if stream.truncated:
            part = "last" if stream is running.stderr else "first and last" if running.tail() else "first"
            call.warn(
                "output_cut", f"Its {name} has {stream.size:,} bytes; the {part} {call.limits.output:,} are kept."
            )
    if running.stdout.replaced:
        call.warn("bytes_replaced", "Its output is not entirely UTF-8: invalid bytes were replaced.")
    if running.process.refused:
        hosts = ", ".join(running.process.refused)
        call.warn("host_refused", f"It tried to reach {hosts}, but its network does not list that.")


def _spent_processor(code: int, seconds: float, most: int) -> bool:
    """Whether the CPU time limit ended it. A shell returns 128 plus the signal for a command that it started, but any
    program may return that number, so it only counts if that much CPU time could have been used.
    """
    return code in (-signal.SIGXCPU, 128 + signal.SIGXCPU) and seconds * (os.cpu_count() or 1) >= most


def _failed(code: str, message: str, fix: str, running: Running) -> Failed:
    details = {
        "stdout": running.stdout.text(),
        "stderr": running.stderr.text(),
        "truncated": running.stdout.truncated,
        "replaced": running.stdout.replaced,
        "stderr_truncated": running.stderr.truncated,
        UNANSWERED: True,
        **({"size": running.stdout.size, "tail": running.tail()} if running.stdout.truncated else {}),
    }
    return Failed(code, message, fix, details=details)


def _signal(code: int) -> str:
    if code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
