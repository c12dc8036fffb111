"""The performer of `RunCommand`: describes what would run, and runs it in a sandbox.

It performs exactly what it describes, because both resolve the effect in the same way. The sandbox decides how a
process is confined, and the gate whether it may run at all.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cuebook.formats.addresses import Place, Private, check_host, parse_place
from cuebook.formats.shell import placed_in
from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import RunCommand, SecretUse
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Action, Call, Confinement, Description, Sandbox
from cuebook.kernel.run import Settings
from cuebook.performers.commands import credentials
from cuebook.performers.commands import files as command_files
from cuebook.performers.commands.folders import Folders
from cuebook.performers.commands.mentions import Named, named_by
from cuebook.performers.commands.process import Running, outcome_of
from cuebook.performers.commands.resolve import LOADING, Finder, Found, check_size, outside_paths
from cuebook.performers.files.digests import digest_aside


def environment_shown(effect: RunCommand) -> dict[str, str]:
    """The variables that an effect sets, with the handles of secrets."""
    secret = {use.at.partition(".")[2]: _with_handle(use) for use in effect.secrets if use.at.startswith("env.")}
    return {**effect.env, **secret}


def preview(
    effect: RunCommand,
    found: Found,
    environment: dict[str, str],
    named: Named,
    *,
    sandboxed: bool,
    network: Sequence[str],
    reads: Sequence[str],
) -> dict[str, str]:
    made = {"command": shlex.join(effect.argv), "program": found.program, "folder": found.cwd}
    if effect.credentials:
        made["credentials"] = credentials.shown(effect)
    if environment:
        made["environment"] = "\n".join(f"{name}={value}" for name, value in environment.items())
    given = [_with_handle(use) for use in effect.secrets if use.at == "stdin"]
    if effect.stdin or given:
        made["stdin"] = effect.stdin or given[0]
    made |= command_files.shown(effect)
    if named.files:
        shown = (f"{name} ({_short(digest)})" for name, digest in named.files.items())
        made["files as they are now"] = "\n".join(shown)
    if named.unbound:
        made["content not bound"] = "It may have changed by the time this runs: " + "; ".join(named.unbound) + "."
    if effect.timeout is not None:
        made["time limit"] = f"{effect.timeout:g} s"
    if not sandboxed:
        made["may change"] = "everything that you can change: it runs without a sandbox"
        made["network"] = "yes: it runs without a sandbox"
        return made
    made["may change"] = "nothing" if effect.reads_only else f"the workspace, {found.workspace}"
    if reads:
        made["may also read"] = "\n".join(reads)
    made["network"] = f"only {', '.join(network)}" if network else "no"
    return made


def _with_handle(use: SecretUse) -> str:
    return use.form.replace("{}", f"[secret {use.handle}]")


def _short(digest: str) -> str:
    return digest[:12] if re.fullmatch(r"[0-9a-f]{64}", digest) else digest


DEFAULT_PATH = os.pathsep.join(
    (
        *("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"),
        os.path.dirname(sys.executable),
    )
)
KEY = "CUEBOOK_IDEMPOTENCY_KEY"
ARGUMENT = "CUEBOOK_ARG_"
"""The prefix of the variables that pass the arguments of a run to a command: no program reads them on its own."""

_CANCEL_GRACE = 1.0


def no_private(host: str, port: int) -> bool:
    return False


class CommandPerformer:
    """Runs commands below one workspace. Their sandbox is prepared while the intent is written."""

    prepares: Literal[True] = True

    def needs(self, effect: RunCommand, settings: Settings) -> tuple[str, ...]:
        return (SANDBOX,)

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
        private: Private = no_private,
    ) -> None:
        self._sandbox = sandbox
        self._finder = Finder(workspace, path)
        self._pass_env = tuple(pass_env)
        self._readable = tuple(readable)
        """Absolute paths that commands may read in addition to the system's own."""
        self._hidden = tuple(str(path) for path in hidden)
        """Files that no command may read or change, in any folder."""
        self._fixed = tuple(str(path) for path in fixed)
        """Paths that no command may change, in any folder."""
        self._private_hosts = private
        self._private = Folders()

    async def outline(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            self._finder.require(effect)
            self._hosts(effect)
            outside_paths(effect.reads)
            command_files.actions(effect, self._finder.workspace)
        except BadInput as refused:
            return Failed.of(refused)
        return self._no_sandbox() or self._outlined(effect)

    async def describe(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            found = self._finder.find(effect)
            hosts = list(map(str, self._hosts(effect)))
            reads = outside_paths(effect.reads)
            command_files.actions(effect, self._finder.workspace)
        except BadInput as refused:
            return Failed.of(refused)
        if refusal := self._no_sandbox():
            return refusal
        sandboxed = self._sandbox.name != "none"
        environment = environment_shown(effect)
        named = await asyncio.to_thread(named_by, effect.argv, effect.stdin, found.cwd, found.workspace)
        return msgspec.structs.replace(
            self._outlined(effect),
            preview=preview(effect, found, environment, named, sandboxed=sandboxed, network=hosts, reads=reads),
            bound={
                "program": [found.program, await digest_aside(found.program)],
                "folder": found.cwd,
                "files": named.files,
                "loading": {name: value for name, value in environment.items() if LOADING.fullmatch(name)},
                "sandbox": self._sandbox.name,
                "network": hosts,
                "reads": reads,
                "reads_only": effect.reads_only,
                "timeout": effect.timeout,
                "max_output": effect.max_output,
            },
        )

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult | Failed:
        try:
            found = self._finder.find(effect)
            self._hosts(effect)
            reads = outside_paths(effect.reads)
        except BadInput as refused:
            return Failed.of(refused)
        if self._sandbox.name == "none":
            call.warn("unsandboxed", f"{shlex.join(effect.argv)} ran without a sandbox, as configured.")
        private = self._private.take()
        try:
            if effect.takes:
                await call.begin()
                await command_files.put(effect, self._finder.workspace, call)
            outcome = await self._run(effect, found, private, call, reads)
            if effect.files and isinstance(outcome, CommandResult) and outcome.exit_code == 0:
                kept = await command_files.collected(effect, self._finder.workspace, call)
                outcome = msgspec.structs.replace(outcome, files=kept)
            return outcome
        except CuebookError as error:
            return Failed.of(error)
        finally:
            self._private.give_back(private)

    def _no_sandbox(self) -> Failed | None:
        problem = self._sandbox.problem
        return Failed("no_sandbox", problem, fix="`cuebook doctor` shows what works here.") if problem else None

    def _outlined(self, effect: RunCommand) -> Description:
        line = shlex.join(effect.argv)
        # A variable can make a harmless command run another, so it counts as part of the command that rules must match.
        telling = [f"{name}={value}" for name, value in effect.env.items() if not name.startswith(ARGUMENT)]
        typed = shlex.join(("env", *telling, *effect.argv)) if telling else line
        # So can the settings in a folder.
        typed = placed_in(self._finder.place(effect), typed)
        # A command with network access can change things there, so it is not limited to reading.
        held = effect.reads_only and self._sandbox.name != "none" and not effect.network and not effect.takes
        command = Action("command", typed, reads_only=held)
        reached = [Action("egress", f"CONNECT {place.url.place}") for place in self._hosts(effect)]
        # The rules for hosts decide; this is for rules that keep commands off the network altogether.
        network = (Action("tool", "network", reads_only=True),) if reached else ()
        put = command_files.actions(effect, self._finder.workspace) if effect.takes else []
        outside = [Action("file", f"read:{path}", True, listed=True) for path in outside_paths(effect.reads)]
        return Description((command, *reached, *network, *outside, *put), f"Run {line}", reads_only=held)

    def _hosts(self, effect: RunCommand) -> list[Place]:
        """The hosts that it may reach, in normal form. Raises `BadInput` for one that it must not reach."""
        found = sorted({parse_place(host) for host in effect.network})
        for place in found:
            check_host(place.url, self._private_hosts)
        return found

    async def _run(
        self, effect: RunCommand, found: Found, private: str, call: Call, reads: Sequence[str]
    ) -> CommandResult | Failed:
        secrets = call.secrets() if effect.secrets else {}
        env = {**self._environment(private, call.key), **effect.env}
        env.update({at.partition(".")[2]: value for at, value in secrets.items() if at.startswith("env.")})
        env.update(credentials.environment(effect, secrets, env))
        started = time.monotonic()

        async def hold() -> None:
            nonlocal started
            await call.begin()
            started = time.monotonic()  # time spent waiting for the disk does not count

        confinement = Confinement(
            argv=(found.path, *effect.argv[1:]),
            cwd=found.cwd,
            env=env,
            writable=(private,) if effect.reads_only else (private, found.workspace),
            readable=(found.workspace, found.program, *self._finder.folders, *self._readable, *reads),
            hidden=self._hidden,
            fixed=self._fixed,
            reads_only=effect.reads_only,
            network=tuple(map(str, self._hosts(effect))),
            local_sockets=not reads,
            limits=call.limits,
            hold=hold,
        )
        try:
            check_size(confinement.argv, env)
            process = await self._sandbox.spawn(confinement)
        except CuebookError as error:
            return Failed.of(error)
        stdin = secrets.get("stdin", effect.stdin).encode()
        running = Running(process, stdin, call.limits.output, ends=effect.ends, sink=call.output, errors=call.errors)
        try:
            return await outcome_of(running, call, started, self._sandbox.name, own_time=effect.timeout is not None)
        except asyncio.CancelledError:
            await running.stop(min(call.limits.grace, _CANCEL_GRACE))
            raise
        finally:
            running.close()

    def _environment(self, private: str, key: str) -> dict[str, str]:
        """The environment of a command, without the variables of the effect."""
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
