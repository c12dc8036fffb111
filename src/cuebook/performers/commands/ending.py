"""How a command ended: by itself, at a limit, or too late."""

from __future__ import annotations

import signal
import time

from cuebook.kernel.confinement import SandboxName
from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Call
from cuebook.performers.processes import Running

_LESS = "Give it less to do, or raise the limit in the configuration."


async def outcome_of(running: Running, call: Call, started: float, sandbox: SandboxName) -> CommandResult | Failed:
    """Waits for its end, and brings it about when its time is over."""
    limits = call.limits
    code = await running.ended(limits.seconds)
    late = code is None
    if late:
        await running.stop(limits.grace)
    await running.drained()
    seconds = time.monotonic() - started
    if late:
        return _failed(
            "timeout",
            f"The command was still running after {call.given:g} s, and was ended.",
            "Give it more time, or less to do.",
            running,
        )
    overrun = running.process.overrun
    if overrun == "memory":
        most = f"{limits.memory / (1 << 20):,.0f} MiB"
        return _failed("memory_limit", f"The command took more than {most} of memory, and was ended.", _LESS, running)
    if overrun == "processes":
        return _failed(
            "process_limit",
            f"The command became more than {limits.processes} processes, and was ended.",
            _LESS,
            running,
        )
    assert code is not None
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
    )


def _failed(code: str, message: str, fix: str, running: Running) -> Failed:
    details = {
        "stdout": running.stdout.text(),
        "stderr": running.stderr.text(),
        "truncated": running.stdout.truncated,
        "replaced": running.stdout.replaced,
        "stderr_truncated": running.stderr.truncated,
    }
    return Failed(code, message, fix, details=details)


def _signal(code: int) -> str:
    if code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
