"""The performer of `RunCommand`: finds the program, says what would run, and runs it in a sandbox.

What it describes is what it performs: both start from the same reading of the effect. How a process is confined is the
sandbox's business, whether it may run at all the gate's.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from cuebook.kernel.confinement import Confinement, Sandbox
from cuebook.kernel.context import Text
from cuebook.kernel.effects import CommandResult, Failed, RunCommand, SecretUse
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers import private
from cuebook.performers.argument_sizes import check_size
from cuebook.performers.contents import digest_aside
from cuebook.performers.paths import OutsideRoot, inside, real
from cuebook.performers.processes import Running

DEFAULT_PATH = os.pathsep.join(
    (
        *("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"),
        os.path.dirname(sys.executable),
    )
)
KEY = "CUEBOOK_IDEMPOTENCY_KEY"
ARGUMENT = "CUEBOOK_ARG_"
"""What the variables begin with that tell a command the arguments of its run: no program reads them by itself."""

_LONG = 20_000
"""Characters of a command above which looking for files in it takes so long that nobody else should wait for it."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CANCEL_GRACE = 1.0
_SPARE = 4
_QUIET = 0.005
"""Seconds after a command in which the next one has begun, if there is one."""

# What they hold decides which code runs in a program, whatever the program is.
_LOADING = re.compile(
    r"LD_\w+|DYLD_\w+|GLIBC_TUNABLES|GCONV_PATH|PATH|PYTHON\w+|NODE_\w+|PERL\w+|RUBY\w+|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
    r"|CLASSPATH|BASH_ENV|ENV|SHELLOPTS|IFS|GIT_\w+|EDITOR|VISUAL|PAGER|HOME|TMPDIR"
)


class BadCommand(BadInput):
    """The command cannot be run as it is written."""

    code = "bad_command"


class NoSuchCommand(BadInput):
    """There is no such program."""

    code = "no_such_command"


class OutsideWorkspace(BadInput):
    """The path leads out of the workspace."""

    code = "outside_workspace"


class SecretMisplaced(BadInput):
    """A secret is to be put where it would be seen."""

    code = "secret_misplaced"


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
        self._workspace = workspace
        self._folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
        self._path = os.pathsep.join(self._folders)
        self._pass_env = tuple(pass_env)
        self._readable = tuple(readable)
        """Absolute paths that commands may read besides the system's own."""
        self._hidden = tuple(str(path) for path in hidden)
        """Files that no command may read or change, wherever they lie."""
        self._fixed = tuple(str(path) for path in fixed)
        """What no command may change, wherever it lies."""
        self._network = network
        self._private = _Folders()

    async def outline(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            self._require(effect)
        except BadInput as refused:
            return Failed(refused.code, refused.message, refused.fix)
        return self._no_sandbox() or self._outlined(effect)

    async def describe(self, effect: RunCommand, settings: Settings) -> Description | Failed:
        try:
            found = self._found(effect)
        except BadInput as refused:
            return Failed(refused.code, refused.message, refused.fix)
        if refusal := self._no_sandbox():
            return refusal
        network, sandboxed = effect.network or self._network(), self._sandbox.name != "none"
        environment = {**effect.env, **{_name(use): _shown(use) for use in effect.secrets if use.at != "stdin"}}
        long = sum(map(len, effect.argv)) > _LONG
        named = await asyncio.to_thread(found.files, effect.argv) if long else found.files(effect.argv)
        files = {name: await digest_aside(file) for name, file in named.items()}
        return msgspec.structs.replace(
            self._outlined(effect),
            preview=_preview(effect, found, environment, files, sandboxed=sandboxed, network=network),
            bound={
                "program": [found.program, await digest_aside(found.program)],
                "folder": found.cwd,
                "files": files,
                "loading": {name: value for name, value in environment.items() if _LOADING.fullmatch(name)},
                "sandbox": self._sandbox.name,
                "network": network,
                "reads_only": effect.reads_only,
                "timeout": effect.timeout,
                "max_output": effect.max_output,
            },
        )

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult | Failed:
        try:
            found = self._found(effect)
        except BadInput as refused:
            return Failed(refused.code, refused.message, refused.fix)
        if self._sandbox.name == "none":
            call.warn("unsandboxed", f"{shlex.join(effect.argv)} ran without a sandbox, as the configuration says.")
        private = self._private.take()
        try:
            return await self._run(effect, found, private, call)
        finally:
            self._private.give_back(private)

    # --- finding out what would run ---

    def _no_sandbox(self) -> Failed | None:
        problem = self._sandbox.problem
        return Failed("no_sandbox", problem, fix="`cuebook doctor` tells what works here.") if problem else None

    def _outlined(self, effect: RunCommand) -> Description:
        line = shlex.join(effect.argv)
        # A variable can make a harmless command run another: as if it were typed, so no rule about the bare one fits.
        telling = [f"{name}={value}" for name, value in effect.env.items() if not name.startswith(ARGUMENT)]
        typed = shlex.join(("env", *telling, *effect.argv)) if telling else line
        # What can reach the network can change what is there, so it is not held to reading.
        held = effect.reads_only and self._sandbox.name != "none" and not (effect.network or self._network())
        command = Action("command", typed, reads_only=held)
        return Description((command, Action("tool", "network")) if effect.network else (command,), f"Run {line}")

    def _require(self, effect: RunCommand) -> None:
        """Raises what `_found` does, and looks no further: nobody is told yet where anything is."""
        _check(effect)
        if effect.cwd or "/" in effect.argv[0] or not os.path.isdir(self._workspace):
            self._found(effect)
        else:
            self._in_path(effect.argv[0])

    def _found(self, effect: RunCommand) -> _Found:
        """Reads the effect. Raises `BadInput` for what must not or cannot be run."""
        _check(effect)
        workspace = real(self._workspace)
        in_itself = not effect.cwd and os.path.isdir(workspace)
        cwd = workspace if in_itself else self._folder(effect.cwd)
        path = self._program(effect.argv[0], workspace, cwd)
        return _Found(workspace, cwd, path, real(path))

    def _folder(self, given: str) -> str:
        """The real path of a folder below the workspace."""
        try:
            cwd = str(inside(self._workspace, given or "."))
        except OutsideRoot as refused:
            raise OutsideWorkspace(refused.message, fix="Give a folder below the workspace.") from None
        except BadInput as refused:
            raise BadCommand(refused.message, fix=refused.fix) from None
        if not os.path.isdir(cwd):
            raise BadCommand(f"There is no folder {given!a} in the workspace.", fix="Make it first.")
        return cwd

    def _program(self, name: str, workspace: str, cwd: str) -> str:
        if "/" not in name:
            return self._in_path(name)
        path = name if name.startswith("/") else os.path.normpath(os.path.join(cwd, name))
        if not name.startswith("/") and not _below(path, workspace):
            raise OutsideWorkspace(
                f"The program {name!a} lies outside the workspace.",
                fix="Name a program of the workspace, one of the PATH, or one by its full path.",
            )
        if not _is_program(path):
            raise _no_such_command(name)
        return path

    def _in_path(self, name: str) -> str:
        for folder in self._folders:
            if _is_program(path := os.path.join(folder, name)):
                return path
        raise _no_such_command(name, f" It was looked for in {self._path} (the PATH).")

    # --- running it ---

    async def _run(self, effect: RunCommand, found: _Found, private: str, call: Call) -> CommandResult | Failed:
        secrets = call.secrets() if effect.secrets else {}
        env = {**self._environment(private, call.key), **effect.env}
        env.update({at.partition(".")[2]: value for at, value in secrets.items() if at != "stdin"})
        confinement = Confinement(
            argv=(found.path, *effect.argv[1:]),
            cwd=found.cwd,
            env=env,
            writable=(private,) if effect.reads_only else (private, found.workspace),
            readable=(found.workspace, found.program, *self._folders, *self._readable),
            hidden=self._hidden,
            fixed=self._fixed,
            network=effect.network or self._network(),
            limits=call.limits,
            hold=call.begin,
        )
        started = time.monotonic()
        try:
            check_size(confinement.argv, env)
            process = await self._sandbox.spawn(confinement)
        except CuebookError as error:
            return Failed(error.code, error.message, error.fix)
        running = Running(process, secrets.get("stdin", effect.stdin).encode(), call.limits.output)
        try:
            return await self._outcome(running, call, started)
        except asyncio.CancelledError:
            await running.stop(min(call.limits.grace, _CANCEL_GRACE))
            raise
        finally:
            running.close()

    async def _outcome(self, running: Running, call: Call, started: float) -> CommandResult | Failed:
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
            return _failed(
                "memory_limit", f"The command took more than {most} of memory, and was ended.", _LESS, running
            )
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
            sandbox=self._sandbox.name,
        )

    def _environment(self, private: str, key: str) -> dict[str, str]:
        """Everything that a command is told of its surroundings, before what the effect adds."""
        given = {name: os.environ[name] for name in ("TZ", *self._pass_env) if name in os.environ}
        return {
            "PATH": self._path,
            "HOME": private,
            "TMPDIR": private,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TERM": "dumb",
            KEY: key,
            **given,
        }


_LESS = "Give it less to do, or raise the limit in the configuration."


class _Found(msgspec.Struct, frozen=True):
    """What an effect comes to on this machine, now."""

    workspace: str
    cwd: str
    path: str
    """The program by its full path. Where that is a link, some programs look at the link's place."""
    program: str
    """What the path leads to."""

    def files(self, argv: Sequence[str]) -> dict[str, str]:
        """The files of the workspace that the arguments name, by their name there."""
        named = {os.path.join(self.cwd, word) for word in _words(argv) if _fits(word)}
        found = {real(path) for path in named if _is_file(path)}
        return {os.path.relpath(path, self.workspace): path for path in sorted(found) if _below(path, self.workspace)}


class _Folders:
    """Folders that commands have to themselves, each as home and for temporary files.

    One that a command has left as it was is given to another: making and removing them takes longer than all the rest.
    They are looked at in a quiet moment, while the next command runs.
    """

    def __init__(self) -> None:
        self._spare: list[str] = []
        self._used: list[str] = []
        self._fresh: dict[str, int] = {}
        """When each was last changed: by us, when it was made."""
        weakref.finalize(self, _remove_all, self._spare, self._used)

    def take(self) -> str:
        if self._spare:
            return self._spare.pop()
        folder = private.make()
        self._fresh[folder] = os.stat(folder).st_ctime_ns
        return folder

    def give_back(self, folder: str) -> None:
        self._used.append(folder)
        asyncio.get_running_loop().call_later(_QUIET, self._tidy)

    def _tidy(self) -> None:
        while self._used:
            folder = self._used[-1]
            if len(self._spare) < _SPARE and _is_untouched(folder, self._fresh[folder]):
                self._spare.append(self._used.pop())
            else:
                # By a thread that is waited for when the program ends, whatever else ends before.
                threading.Thread(target=private.remove, args=(folder,), name="cuebook-tidy").start()
                del self._fresh[self._used.pop()]


def _is_untouched(folder: str, since: int) -> bool:
    """Nothing in it, nothing about it that another command could read, and no change since: clocks alone are too coarse."""
    try:
        status = os.stat(folder)
        if status.st_ctime_ns != since or status.st_mode & 0o7777 != 0o700:
            return False
        if hasattr(os, "listxattr") and os.listxattr(folder):
            return False
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _remove_all(*folders: list[str]) -> None:
    for folder in chain(*folders):
        private.remove(folder)


def _words(argv: Sequence[str]) -> Iterable[str]:
    """Whatever could be a file's name: each argument, what follows its `=`, and the words of a text such as a script."""
    for argument in argv:
        yield argument
        yield argument.partition("=")[2]
        if re.search(r"\s", argument):
            yield from re.split(r"[\s;|&<>()'\"`]+", argument)


def _fits(word: str) -> bool:
    return bool(word) and len(word) < 4096 and "\0" not in word


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def _no_such_command(name: str, where: str = "") -> NoSuchCommand:
    return NoSuchCommand(
        f"There is no program {name!a} that can be run.", fix=f"Install it, or correct its name.{where}"
    )


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _check(effect: RunCommand) -> None:
    if not effect.argv or not effect.argv[0]:
        raise BadCommand("The command is empty.", fix="Name a program.")
    given = "".join((*effect.argv, *effect.env, *effect.env.values()))
    if "\0" in given:
        raise BadCommand("The command holds a NUL character.", fix="Remove it, or hand it over by stdin.")
    try:
        os.fsencode(given)
        effect.stdin.encode()
    except UnicodeEncodeError:
        raise BadCommand("The command holds a character that no program can be given.", fix="Remove it.") from None
    check_size(effect.argv, effect.env)
    for name in effect.env:
        # Some shells take others for functions, and rules about commands could not tell them from a program.
        if not _VARIABLE.fullmatch(name):
            raise BadCommand(f"{name[:200]!a} cannot be the name of a variable.", fix="Use letters, digits and '_'.")
    for use in effect.secrets:
        _check_secret(use, effect)


def _check_secret(use: SecretUse, effect: RunCommand) -> None:
    kind, _, name = use.at.partition(".")
    if kind == "env" and _LOADING.fullmatch(name):
        raise SecretMisplaced(
            f"The variable {name} decides what is run, so it takes no secret.", fix="Use another variable."
        )
    if kind == "env" and _VARIABLE.fullmatch(name):
        return
    if use.at != "stdin":
        raise SecretMisplaced(
            f"The secret {use.handle} is meant for {use.at!a}, where others could see it.",
            fix="Commands take secrets at env.NAME or stdin: what stands among the arguments can be read by everybody.",
        )
    if effect.stdin:
        raise SecretMisplaced(
            f"The command has a text for its stdin, and the secret {use.handle} is meant for it too.",
            fix="Write the text around the secret into its form, or hand the secret over as a variable.",
        )


def _name(use: SecretUse) -> str:
    return use.at.partition(".")[2]


def _shown(use: SecretUse) -> str:
    return use.form.replace("{}", f"[secret {use.handle}]")


def _preview(
    effect: RunCommand,
    found: _Found,
    environment: dict[str, str],
    files: dict[str, str],
    *,
    sandboxed: bool,
    network: bool,
) -> dict[str, str]:
    made = {"command": shlex.join(effect.argv), "program": found.program, "folder": found.cwd}
    if environment:
        made["environment"] = "\n".join(f"{name}={value}" for name, value in environment.items())
    given = [_shown(use) for use in effect.secrets if use.at == "stdin"]
    if effect.stdin or given:
        made["stdin"] = effect.stdin or given[0]
    if files:
        made["files as they are now"] = "\n".join(f"{name} ({_short(digest)})" for name, digest in files.items())
    if effect.timeout is not None:
        made["time limit"] = f"{effect.timeout:g} s"
    if not sandboxed:
        made["may change"] = "everything that you can change: it runs without a sandbox"
        made["network"] = "yes: it runs without a sandbox"
        return made
    made["may change"] = "nothing" if effect.reads_only else f"the workspace, {found.workspace}"
    made["network"] = "yes" if network else "no"
    return made


def _short(digest: str) -> str:
    return digest[:12] if re.fullmatch(r"[0-9a-f]{64}", digest) else digest


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
