"""Checks whether a command can be run as written, and finds its folder and program on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cuebook.kernel.effects import RunCommand, SecretUse
from cuebook.kernel.errors import BadInput
from cuebook.performers.files.paths import OutsideRoot, inside, real

LONGEST = 128 * 1024 - 1
"""The maximum size in bytes of one argument, or of one variable with its name, on Linux."""

_MOST = 2 << 20
"""The maximum total size in bytes, even if the system accepts more."""

_SPARE = 64 << 10
"""How many bytes of the total are reserved for what a sandbox adds."""

_EACH = 9
"""Additional bytes for each argument or variable: a pointer and a terminator."""


_WIDEST = 4
"""The maximum number of bytes of a character."""

_SURE = 64 << 10
"""A total size in bytes that always fits: Linux accepts at least twice as much."""


class TooLong(BadInput):
    """The arguments are longer than a program accepts."""

    code = "too_long"


def check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises `TooLong`. The error does not quote values, because they may be secrets."""
    count = len(argv) + len(env)
    characters = sum(map(len, argv)) + sum(map(len, env)) + sum(map(len, env.values()))
    if _WIDEST * characters + (_EACH + 1) * count <= _SURE:
        return  # fits, whatever the characters
    sizes = {f"Argument {number} of the command": _size(word) for number, word in enumerate(argv)}
    sizes |= {f"The variable {name}": _size(f"{name}={value}") for name, value in env.items()}
    for what, size in sizes.items():
        if size > LONGEST:
            raise _too_long(f"{what} has {size:,} bytes, but a program accepts at most {LONGEST:,}.")
    together, most = sum(sizes.values()) + _EACH * count, _most()
    if together > most:
        words = f"The arguments and variables of the command have {together:,} bytes in total"
        raise _too_long(f"{words}, but a program accepts at most {most:,}.")


def _too_long(message: str) -> TooLong:
    return TooLong(message, fix="Pass it through stdin or in a file.")


def _most() -> int:
    try:
        known = os.sysconf("SC_ARG_MAX")
    except (OSError, ValueError):
        known = -1
    return (min(known, _MOST) if known > 0 else _MOST) - _SPARE


def _size(text: str) -> int:
    return len(os.fsencode(text))


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

# Variables that decide which code runs, in any program.
LOADING = re.compile(
    r"LD_\w+|DYLD_\w+|GLIBC_TUNABLES|GCONV_PATH|PATH|PYTHON\w+|NODE_\w+|PERL\w+|RUBY\w+|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
    r"|CLASSPATH|BASH_ENV|ENV|SHELLOPTS|IFS|GIT_\w+|EDITOR|VISUAL|PAGER|HOME|TMPDIR"
)


class BadCommand(BadInput):
    """The command cannot be run as written."""

    code = "bad_command"


class SecretMisplaced(BadInput):
    """A secret would be visible in the place where it is used."""

    code = "secret_misplaced"


def check(effect: RunCommand) -> None:
    if not effect.argv or not effect.argv[0]:
        raise BadCommand("The command is empty.", fix="Specify a program.")
    given = "".join((*effect.argv, *effect.env, *effect.env.values()))
    if "\0" in given:
        raise BadCommand("The command contains a NUL character.", fix="Remove it, or pass it through stdin.")
    try:
        os.fsencode(given)
        effect.stdin.encode()
    except UnicodeEncodeError:
        raise BadCommand(
            "The command contains a character that cannot be passed to a program.", fix="Remove it."
        ) from None
    check_size(effect.argv, effect.env)
    for name in effect.env:
        # Some shells treat other names as functions, which rules about commands could not distinguish from programs.
        if not _VARIABLE.fullmatch(name):
            raise BadCommand(f"{name[:200]!a} is not a valid variable name.", fix="Use letters, digits and '_'.")
    for use in effect.secrets:
        _check_secret(use, effect)


def _check_secret(use: SecretUse, effect: RunCommand) -> None:
    kind, _, name = use.at.partition(".")
    if kind == "env" and LOADING.fullmatch(name):
        raise SecretMisplaced(
            f"The variable {name} decides which code runs, so it cannot contain a secret.", fix="Use another variable."
        )
    if (kind == "env" and _VARIABLE.fullmatch(name)) or (kind == "credentials" and name in effect.credentials):
        return
    if use.at != "stdin":
        raise SecretMisplaced(
            f"The secret {use.handle} would be used at {use.at!a}, where others could see it.",
            fix="Commands accept secrets at env.NAME or stdin: arguments are visible to every user.",
        )
    if effect.stdin:
        raise SecretMisplaced(
            f"The command has text for stdin, but the secret {use.handle} is assigned to stdin too.",
            fix="Put the text around the secret into its form, or pass the secret as a variable.",
        )


class NoSuchCommand(BadInput):
    """There is no such program."""

    code = "no_such_command"


class OutsideWorkspace(BadInput):
    """The path leads out of the workspace."""

    code = "outside_workspace"


class Found(msgspec.Struct, frozen=True):
    """The folder and program that an effect currently refers to on this machine."""

    workspace: str
    cwd: str
    path: str
    """The full path of the program. If it is a link, some programs depend on the location of the link."""
    program: str
    """The path with links resolved."""


class Finder:
    """Finds programs in a workspace, and in the folders of a PATH."""

    def __init__(self, workspace: Path, path: str) -> None:
        self.workspace = self._workspace = workspace
        self.folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
        self.path = os.pathsep.join(self.folders)

    def require(self, effect: RunCommand) -> None:
        """Raises the errors of `find`, without the details that are not needed yet."""
        check(effect)
        if effect.cwd or "/" in effect.argv[0] or not os.path.isdir(self._workspace):
            self.find(effect)
        else:
            self._in_path(effect.argv[0])

    def place(self, effect: RunCommand) -> str:
        """The folder it runs in, as seen from the workspace and without links; empty for the workspace itself."""
        folder = os.path.relpath(self._folder(effect.cwd), real(self._workspace)) if effect.cwd else ""
        return "" if folder == "." else folder

    def find(self, effect: RunCommand) -> Found:
        """Finds the folder and program. Raises `BadInput` for a command that must not or cannot be run."""
        check(effect)
        workspace = real(self._workspace)
        in_itself = not effect.cwd and os.path.isdir(workspace)
        cwd = workspace if in_itself else self._folder(effect.cwd)
        path = self._program(effect.argv[0], workspace, cwd)
        return Found(workspace, cwd, path, real(path))

    def _folder(self, given: str) -> str:
        """The real path of a folder below the workspace."""
        try:
            cwd = str(inside(self._workspace, given or "."))
        except OutsideRoot as refused:
            raise OutsideWorkspace(refused.message, fix="Use a folder below the workspace.") from None
        except BadInput as refused:
            raise BadCommand(refused.message, fix=refused.fix) from None
        if not os.path.isdir(cwd):
            raise BadCommand(f"There is no folder {given!a} in the workspace.", fix="Create it first.")
        return cwd

    def _program(self, name: str, workspace: str, cwd: str) -> str:
        if "/" not in name:
            return self._in_path(name)
        path = name if name.startswith("/") else os.path.normpath(os.path.join(cwd, name))
        if not name.startswith("/") and not is_below(path, workspace):
            raise OutsideWorkspace(
                f"The program {name!a} is outside the workspace.",
                fix="Use a program in the workspace, a program in the PATH, or a full path.",
            )
        if not _is_program(path):
            raise _no_such_command(name)
        return path

    def _in_path(self, name: str) -> str:
        for folder in self.folders:
            if _is_program(path := os.path.join(folder, name)):
                return path
        raise _no_such_command(name, f" The PATH is {self.path}.")


def outside_paths(given: Sequence[str]) -> list[str]:
    """The paths that a command lists to read, and where their links lead. Raises `BadCommand` for one that it must not
    read."""
    found: dict[str, None] = {}
    for one in given:
        path = os.path.expanduser(one)
        if not os.path.isabs(path) or os.path.normpath(path) == "/" or ".." in path.split("/"):
            raise BadCommand(f"{one!a} is not a path that a command can be given to read.", fix="Write its full path.")
        end = os.path.realpath(path)
        if not (os.path.isfile(end) or os.path.isdir(end)):
            raise BadCommand(f"There is no file or folder {one!a} to read.", fix="Create it, or correct the path.")
        if end == "/" or any(is_below(end, root) for root in _OF_THE_SYSTEM):
            raise BadCommand(f"{one!a} describes the running system, so no command reads it.", fix="Remove it.")
        found |= dict.fromkeys((os.path.normpath(path), end))
    return list(found)


_OF_THE_SYSTEM = ("/proc", "/dev", "/sys")


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def _no_such_command(name: str, where: str = "") -> NoSuchCommand:
    return NoSuchCommand(
        f"There is no program {name!a} that can be run.", fix=f"Install it, or correct its name.{where}"
    )


def is_below(path: str, root: str) -> bool:
    """Whether a path is a folder or inside it, judged by the string alone."""
    return path == root or path.startswith(root.rstrip("/") + "/")
