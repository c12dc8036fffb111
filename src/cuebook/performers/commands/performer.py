"""The performer of `RunCommand`: says what would run, and runs it in a sandbox.

What it describes is what it performs: both start from the same reading of the effect. How a process is confined is the
sandbox's business, whether it may run at all the gate's.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cuebook.kernel.confinement import Confinement, Sandbox
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.commands.argument_sizes import check_size
from cuebook.performers.commands.checking import LOADING
from cuebook.performers.commands.ending import outcome_of
from cuebook.performers.commands.finding import Finder, Found
from cuebook.performers.commands.folders import Folders
from cuebook.performers.commands.mentions import named_by
from cuebook.performers.commands.showing import environment_shown, preview
from cuebook.performers.contents import digest_aside
from cuebook.performers.processes import Running
from cuebook.shell import placed_in

DEFAULT_PATH = os.pathsep.join(
    (
        *("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"),
        os.path.dirname(sys.executable),
    )
)
KEY = "CUEBOOK_IDEMPOTENCY_KEY"
ARGUMENT = "CUEBOOK_ARG_"
"""What the variables begin with that tell a command the arguments of its run: no program reads them by itself."""

_CANCEL_GRACE = 1.0


def no_network() -> bool:
    return False


class CommandPerformer:
    """Runs commands below one workspace. Their sandbox is made ready while the intent is written."""

    prepares: Literal[True] = True

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Path,
        *,
        path: str = DEFAULT_PATH,
        pass_env: Sequence[str] = (),
        readable: Sequence[str] = (),
        hidden: Sequence[Path] = (),
        fixed: Sequence[Path] = (),
        network: Callable[[], bool] = no_network,
    ) -> None:
        self._sandbox = sandbox
        self._finder = Finder(workspace, path)
        self._pass_env = tuple(pass_env)
        self._readable = tuple(readable)
        """Absolute paths that commands may read besides the system's own."""
        self._hidden = tuple(str(path) for path in hidden)
        """Files that no command may read or change, wherever they lie."""
        self._fixed = tuple(str(path) for path in fixed)
        """What no command may change, wherever it lies."""
        self._network = network
        self._private = Folders()

    async def outline(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            self._finder.require(effect)
        except BadInput as refused:
            return Failed.of(refused)
        return self._no_sandbox() or self._outlined(effect)

    async def describe(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            found = self._finder.find(effect)
        except BadInput as refused:
            return Failed.of(refused)
        if refusal := self._no_sandbox():
            return refusal
        network, sandboxed = effect.network or self._network(), self._sandbox.name != "none"
        environment = environment_shown(effect)
        named = await asyncio.to_thread(named_by, effect.argv, effect.stdin, found.cwd, found.workspace)
        return msgspec.structs.replace(
            self._outlined(effect),
            preview=preview(effect, found, environment, named, sandboxed=sandboxed, network=network),
            bound={
                "program": [found.program, await digest_aside(found.program)],
                "folder": found.cwd,
                "files": named.files,
                "loading": {name: value for name, value in environment.items() if LOADING.fullmatch(name)},
                "sandbox": self._sandbox.name,
                "network": network,
                "reads_only": effect.reads_only,
                "timeout": effect.timeout,
                "max_output": effect.max_output,
            },
        )

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult | Failed:
        try:
            found = self._finder.find(effect)
        except BadInput as refused:
            return Failed.of(refused)
        if self._sandbox.name == "none":
            call.warn("unsandboxed", f"{shlex.join(effect.argv)} ran without a sandbox, as the configuration says.")
        private = self._private.take()
        try:
            return await self._run(effect, found, private, call)
        finally:
            self._private.give_back(private)

    def _no_sandbox(self) -> Failed | None:
        problem = self._sandbox.problem
        return Failed("no_sandbox", problem, fix="`cuebook doctor` tells what works here.") if problem else None

    def _outlined(self, effect: RunCommand) -> Description:
        line = shlex.join(effect.argv)
        # A variable can make a harmless command run another: as if it were typed, so no rule about the bare one fits.
        telling = [f"{name}={value}" for name, value in effect.env.items() if not name.startswith(ARGUMENT)]
        typed = shlex.join(("env", *telling, *effect.argv)) if telling else line
        # So can the settings that lie in a folder.
        typed = placed_in(self._finder.place(effect), typed)
        # What can reach the network can change what is there, so it is not held to reading.
        held = effect.reads_only and self._sandbox.name != "none" and not (effect.network or self._network())
        command = Action("command", typed, reads_only=held)
        return Description((command, Action("tool", "network")) if effect.network else (command,), f"Run {line}")

    async def _run(self, effect: RunCommand, found: Found, private: str, call: Call) -> CommandResult | Failed:
        secrets = call.secrets() if effect.secrets else {}
        env = {**self._environment(private, call.key), **effect.env}
        env.update({at.partition(".")[2]: value for at, value in secrets.items() if at != "stdin"})
        started = time.monotonic()

        async def hold() -> None:
            nonlocal started
            await call.begin()
            started = time.monotonic()  # waiting for the disk is no time of the command's

        confinement = Confinement(
            argv=(found.path, *effect.argv[1:]),
            cwd=found.cwd,
            env=env,
            writable=(private,) if effect.reads_only else (private, found.workspace),
            readable=(found.workspace, found.program, *self._finder.folders, *self._readable),
            hidden=self._hidden,
            fixed=self._fixed,
            reads_only=effect.reads_only,
            network=effect.network or self._network(),
            limits=call.limits,
            hold=hold,
        )
        try:
            check_size(confinement.argv, env)
            process = await self._sandbox.spawn(confinement)
        except CuebookError as error:
            return Failed.of(error)
        running = Running(process, secrets.get("stdin", effect.stdin).encode(), call.limits.output, ends=effect.ends)
        try:
            return await outcome_of(running, call, started, self._sandbox.name, own_time=effect.timeout is not None)
        except asyncio.CancelledError:
            await running.stop(min(call.limits.grace, _CANCEL_GRACE))
            raise
        finally:
            running.close()

    def _environment(self, private: str, key: str) -> dict[str, str]:
        """Everything that a command is told of its surroundings, before what the effect adds."""
        given = {name: os.environ[name] for name in ("TZ", *self._pass_env) if name in os.environ}
        return {
            "PATH": self._finder.path,
            "HOME": private,
            "TMPDIR": private,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TERM": "dumb",
            KEY: key,
            **given,
        }
