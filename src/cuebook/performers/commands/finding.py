"""Finds out what a command comes to on this machine: its folder and its program."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import BadInput
from cuebook.performers.commands.checking import BadCommand, check
from cuebook.performers.paths import OutsideRoot, inside, real


class NoSuchCommand(BadInput):
    """There is no such program."""

    code = "no_such_command"


class OutsideWorkspace(BadInput):
    """The path leads out of the workspace."""

    code = "outside_workspace"


class Found(msgspec.Struct, frozen=True):
    """What an effect comes to on this machine, now."""

    workspace: str
    cwd: str
    path: str
    """The program by its full path. Where that is a link, some programs look at the link's place."""
    program: str
    """What the path leads to."""


class Finder:
    """Finds programs in a workspace, and in the folders of a PATH."""

    def __init__(self, workspace: Path, path: str) -> None:
        self._workspace = workspace
        self.folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
        self.path = os.pathsep.join(self.folders)

    def require(self, effect: RunCommand) -> None:
        """Raises what `find` does, and looks no further: nobody is told yet where anything is."""
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
        """Reads the effect. Raises `BadInput` for what must not or cannot be run."""
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
        for folder in self.folders:
            if _is_program(path := os.path.join(folder, name)):
                return path
        raise _no_such_command(name, f" It was looked for in {self.path} (the PATH).")


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def _no_such_command(name: str, where: str = "") -> NoSuchCommand:
    return NoSuchCommand(
        f"There is no program {name!a} that can be run.", fix=f"Install it, or correct its name.{where}"
    )


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
