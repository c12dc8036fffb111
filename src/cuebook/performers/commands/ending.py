"""How a command ended: by itself, at a limit, or too late."""

from __future__ import annotations

import os
import signal
import time

from cuebook.kernel.confinement import SandboxName
from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import UNANSWERED, CommandResult, Failed
from cuebook.kernel.ports import Call
from cuebook.performers.processes import Running


def _raising(key: str) -> str:
    """How a limit is raised that holds for every command."""
    return f"Give it less to do, or raise `{key}` under [limits] in the configuration (CUEBOOK_LIMITS_{key.upper()})."


def _more_time(own: bool) -> str:
    most = "up to `max_seconds` under [limits] in the configuration (CUEBOOK_LIMITS_MAX_SECONDS)"
    if own:
        return f"Give it a longer time limit, {most}, or less to do."
    return f"Give it a time limit of its own, {most}, or raise `seconds` there for all."


async def outcome_of(
    running: Running, call: Call, started: float, sandbox: SandboxName, *, own_time: bool
) -> CommandResult | Failed:
    """Waits for its end, and brings it about when its time is over. `own_time`: the limit was set for this one."""
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
            f"The command was still running after {call.given:g} s, and was ended.",
            _more_time(own_time),
            running,
        )
    overrun = running.process.overrun
    if overrun == "memory":
        most = f"{limits.memory / (1 << 20):,.0f} MiB"
        message = f"The command took more than {most} of memory, and was ended."
        return _failed("memory_limit", message, _raising("memory"), running)
    if overrun == "processes":
        message = f"The command became more than {limits.processes} processes, and was ended."
        return _failed("process_limit", message, _raising("processes"), running)
    assert code is not None
    if _spent_processor(code, seconds, limits.cpu_seconds):
        message = f"The command used more than {limits.cpu_seconds} s of processor time, and was ended."
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
    """Nothing is lost without a word: what was cut off and what was replaced is said on the step."""
    for name, stream in (("output", running.stdout), ("error output", running.stderr)):
        if stream.truncated:
            part = "last" if stream is running.stderr else "first and last" if running.tail() else "first"
            call.warn(
                "output_cut", f"Its {name} has {stream.size:,} bytes; the {part} {call.limits.output:,} are kept."
            )
    if running.stdout.replaced:
        call.warn("bytes_replaced", "Its output is not UTF-8 throughout: the bytes that are not were replaced.")


def _spent_processor(code: int, seconds: float, most: int) -> bool:
    """Whether the limit of processor time ended it. A shell gives 128 and the signal for a command that it started, and
    any program may give that number: one that cannot have used so much has.
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
