"""The performer of `RunPython`: runs a function of a playbook in a confined process.

The process has no network, cannot change files, and does not see our environment. The sandbox confines it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import RunPython
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import Called, Failed, PythonCall, Returned
from cuebook.kernel.ports import Call, Confinement, Sandbox
from cuebook.kernel.run import Settings
from cuebook.performers.commands.process import Running

_PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
"""The interpreter outside any virtual environment, which the process cannot read."""
_CHILD = str(Path(__file__).with_name("child.py"))
_LOOP = str(Path(__file__).with_name("loop.py"))
_MOST = 8_000_000
"""The maximum size of a function's result, in bytes."""
_SHOWN = 500
_CHECK = "Give it less to do, or raise the limits in the configuration."


class PythonPerformer:
    """Runs functions, each time in a new process."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def needs(self, effect: RunPython, settings: Settings) -> tuple[str, ...]:
        return (SANDBOX,)

    async def perform(self, effect: RunPython, call: Call) -> Called | Returned | Failed:
        if self._sandbox.name == "none":
            call.warn("unsandboxed", f"{effect.function} ran without a sandbox, as configured.")
        confinement = Confinement(
            argv=(_PYTHON, "-I", "-S", "-B", _CHILD),  # without the packages that are installed here
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": os.environ.get("TZ", "")},
            readable=(_PYTHON, _CHILD, _LOOP),
            reads_only=True,
            python=True,
            limits=call.limits,
        )
        try:
            running = Running(await self._sandbox.spawn(confinement), _asked(effect), _MOST)
        except CuebookError as error:
            return Failed.of(error)
        try:
            code = await running.ended(call.limits.seconds)
            if code is None:
                await running.stop(0.0)
                words = f"{effect.function} was still running after {call.given:g} s and was stopped."
                return Failed("timeout", words, _CHECK)
            await running.drained()
            if running.process.overrun == "memory":
                most = f"{call.limits.memory / (1 << 20):,.0f} MiB"
                return Failed(
                    "memory_limit", f"{effect.function} used more than {most} of memory and was stopped.", _CHECK
                )
            if running.process.overrun == "processes":
                words = f"{effect.function} started more than {call.limits.processes} processes and was stopped."
                return Failed("processes_limit", words, _CHECK)
            return _outcome(effect, running, code, call)
        finally:
            running.close()


def _asked(effect: RunPython) -> bytes:
    return msgspec.json.encode(
        {
            "function": effect.function,
            "source": effect.source,
            "args": effect.arguments.get("args", []),
            "named": effect.arguments.get("named", {}),
            "replies": effect.replies,
            "names": effect.names,
            "moment": effect.moment,
        }
    )


def _outcome(effect: RunPython, running: Running, code: int, call: Call) -> Called | Returned | Failed:
    try:
        result: dict[str, Any] = msgspec.json.decode(running.stdout.text())
    except msgspec.DecodeError:
        said = call.masked(running.stderr.text()).strip()[-_SHOWN:]
        if running.stdout.truncated:
            return Failed("too_large", f"{effect.function} returned more than {_MOST} bytes.", "Make it return less.")
        words = f"{effect.function} exited its process (exit code {code}) without returning. {said}".rstrip()
        return Failed("python_error", words, "It must return or raise an exception instead of exiting its process.")
    if "returned" in result:
        return Returned(result["returned"])
    if "called" in result:
        return Called(tuple(PythonCall(one["name"], tuple(one["args"]), one["named"]) for one in result["called"]))
    if "differs" in result:
        return Failed(
            "non_determinism",
            f"{effect.function} is not deterministic: {result['differs']}.",
            "Its calls must depend only on its arguments and on the results of earlier calls.",
        )
    where = f" (line {result['line']})" if result.get("line") else ""
    said = call.masked(str(result["raised"]))[:_SHOWN]
    return Failed(
        "python_error",
        f"{effect.function} raised {result['type']}: {said}{where}",
        "Correct the function or its arguments.",
        details={"type": result["type"]},
    )
