"""The files of a command: those that are put into its folder before it starts, and those that it must have produced."""

from __future__ import annotations

import os
from pathlib import Path

from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.files import FileRef
from cuebook.kernel.ports import Action, Call
from cuebook.performers.files import spool
from cuebook.performers.files.paths import OutsideRoot, name_inside, open_inside


def shown(effect: RunCommand) -> dict[str, str]:
    """The parts of a preview about files."""
    made: dict[str, str] = {}
    if effect.takes:
        made["files put there"] = "\n".join(f"{path}: {file}" for path, file in effect.takes.items())
    if effect.files:
        made["files kept"] = "\n".join(f"{name}: {path}" for name, path in effect.files.items())
    return made


def actions(effect: RunCommand, workspace: Path) -> list[Action]:
    """The files that are written before the command starts. Raises `BadInput` for a path that leads elsewhere."""
    return [Action("file", f"write:{name_inside(workspace, _path(effect, path))}") for path in effect.takes]


async def put(effect: RunCommand, workspace: Path, call: Call) -> None:
    """Puts the stored files into the workspace."""
    for path, file in effect.takes.items():
        _make_folder(workspace, _path(effect, path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        await spool.written(call.files, file, open_inside(workspace, _path(effect, path), flags))


async def collected(effect: RunCommand, workspace: Path, call: Call) -> tuple[FileRef, ...]:
    """Stores the files that the command has produced. Raises `BadInput` if one is missing or cannot be kept."""
    found: list[FileRef] = []
    for name, path in effect.files.items():
        try:
            descriptor = open_inside(workspace, _path(effect, path), os.O_RDONLY)
        except NotFound:
            message = f"The command succeeded, but there is no file {path!a}, which it should have produced."
            raise spool.NotAFile(message, fix="Correct the path under `files`, or the command.") from None
        except OutsideRoot:
            raise
        except BadInput as error:
            raise spool.NotAFile(error.message, fix=error.fix) from None
        found.append(await spool.kept(call.files, name, descriptor, path))
    return tuple(found)


def _path(effect: RunCommand, path: str) -> str:
    return f"{effect.cwd}/{path}" if effect.cwd else path


def _make_folder(workspace: Path, path: str) -> None:
    """Creates the folders above a file, one by one, so that no link leads out of the workspace."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        above = "/".join(parts[: depth - 1]) or "."
        folder = open_inside(workspace, above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if parts[depth - 1] not in ("", "."):
                os.mkdir(parts[depth - 1], dir_fd=folder)
        except FileExistsError:
            pass
        finally:
            os.close(folder)
