"""Stored playbooks: those that can be run by an id. They are files in a few folders, read when somebody asks.

In such a folder a playbook is a file, or `playbook` with its suffix in a folder of its own. Its id is the one it gives
itself, otherwise its name without the suffix and without `.playbook`, or its folder's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cuebook.dialects import registry
from cuebook.kernel.errors import CuebookError

SUFFIXES = (".yml", ".yaml", ".json", ".md", ".markdown", ".pbasm", ".pb")
_OWN_FOLDER = "playbook"
_MARK = ".playbook"
"""What the name of a Markdown playbook may end in, besides its suffix."""
_OTHERS = frozenset(("build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"))
"""Folders of what others wrote or a tool made: there may be thousands of files in them."""


class StoredPlaybook(NamedTuple):
    id: str
    title: str
    dialect: str
    path: Path
    name: str
    """As its runs are called: its path from the folder it is stored in."""
    text: str
    document: Any
    """As it was parsed."""


class LeftOut(NamedTuple):
    """A file that is no playbook that can be run, and why."""

    path: Path
    problem: str
    fix: str = ""


class Stored:
    """The playbooks in some folders. Of two with one id the first counts; a folder that is not there holds none."""

    def __init__(self, folders: Iterable[Path], *, levels: int = 0) -> None:
        """With `levels`, any file is looked at in so many folders below each one; hidden ones are passed over."""
        self._folders = tuple(dict.fromkeys(folders))
        self._levels = levels
        self._read: dict[Path, tuple[tuple[int, ...], StoredPlaybook | LeftOut]] = {}
        """What each file came to, and what it was then."""

    def all(self) -> list[StoredPlaybook]:
        return self.found()[0]

    def found(self) -> tuple[list[StoredPlaybook], list[LeftOut]]:
        """All that can be run, by id, and what was left out."""
        return sorted_out(self.each())

    def each(self) -> Iterator[StoredPlaybook | LeftOut]:
        """What each file comes to, one after the other: whoever wants may do something else in between."""
        for folder in self._folders:
            for path in _files(folder, self._levels):
                yield self._at(path, folder)

    def named(self, name: str) -> StoredPlaybook | None:
        """The one with this id, or else the only one with this title."""
        found = self.all()
        by_title = [one for one in found if one.title == name]
        return next((one for one in found if one.id == name), by_title[0] if len(by_title) == 1 else None)

    def at(self, path: Path) -> StoredPlaybook | None:
        """The one in this file; a path that does not begin at the root begins at one of the folders, or where we are."""
        wanted = self._places(path)
        return next((one for one in self.all() if os.path.realpath(one.path) in wanted), None)

    def left_out(self, path: Path) -> LeftOut | None:
        """Why the file at this path, or the one with this id, is none of them; None where there is no such file."""
        wanted, name = self._places(path), str(path)
        by_name = [one for one in self.found()[1] if id_by_name(one.path, self._folders) == name]
        by_path = (one for one in self.found()[1] if os.path.realpath(one.path) in wanted)
        return next(by_path, by_name[0] if by_name else None)

    def _places(self, path: Path) -> set[str]:
        return {os.path.realpath(path), *(os.path.realpath(folder / path) for folder in self._folders)}

    def _at(self, path: Path, folder: Path) -> StoredPlaybook | LeftOut:
        try:
            status = path.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            known = self._read.get(path)
            if known is None or known[0] != seen:
                known = self._read[path] = (seen, _playbook(path, folder))
            return known[1]
        except OSError as error:
            return LeftOut(path, f"It cannot be read: {error.strerror}.")


def sorted_out(each: Iterable[StoredPlaybook | LeftOut]) -> tuple[list[StoredPlaybook], list[LeftOut]]:
    """Those that can be run, by id, and the others: of two with one id, the second is left out."""
    kept: dict[str, StoredPlaybook] = {}
    left_out: list[LeftOut] = []
    for one in each:
        if isinstance(one, LeftOut):
            left_out.append(one)
        elif one.id in kept:
            taken = f"The id '{one.id}' is taken by {kept[one.id].path}."
            left_out.append(LeftOut(one.path, taken, "Give one of them another id."))
        else:
            kept[one.id] = one
    return sorted(kept.values(), key=lambda one: one.id), left_out


def beginning_of(path: Path, limit: int) -> bytes:
    """What a file begins with. `OSError` for what is no file: of a pipe, say, nobody knows whether anything ever comes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file")
        return file.read(limit)


def _files(folder: Path, levels: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir():
            if entry.name.lower().endswith(SUFFIXES):
                yield folder / entry.name
        elif levels:
            if not entry.name.startswith((".", "_")) and entry.name not in _OTHERS and not entry.is_symlink():
                yield from _files(folder / entry.name, levels - 1)
        else:
            own = folder / entry.name
            yield from (path for suffix in SUFFIXES if (path := own / f"{_OWN_FOLDER}{suffix}").is_file())


def _playbook(path: Path, folder: Path) -> StoredPlaybook | LeftOut:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return LeftOut(path, "It is a link that leads out of the folder.")
    name = str(path.relative_to(folder))
    try:
        text = registry.text_of(beginning_of(path, registry.LARGEST + 1))
        dialect = registry.recognised(text, path.name)
        if dialect is None:
            return LeftOut(path, f"{path.name}: {registry.UNKNOWN.message}")
        document = dialect.parse(text, name)
    except UnicodeDecodeError:
        return LeftOut(path, "It is no UTF-8 text.")
    except CuebookError as error:
        return LeftOut(path, str(error))
    id = getattr(document, "id", "") or id_by_name(path, [folder])
    return StoredPlaybook(id, str(document.title), dialect.name, path, name, text, document)


def id_by_name(path: Path, folders: Container[Path]) -> str:
    """The id of a playbook in one of some folders that gives itself none."""
    if path.stem == _OWN_FOLDER and path.parent not in folders:
        return path.parent.name
    return path.stem.removesuffix(_MARK)
