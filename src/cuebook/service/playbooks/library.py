"""Playbooks in folders: stored playbooks, which can be run by id, and the library that pages and assistants show.

A playbook is a file, or a file named `playbook` in its own folder. Its id is the id in its text, or else its name
without the suffix and without `.playbook`, or the name of its folder.
"""

from __future__ import annotations

import asyncio
import errno
import operator
import os
import re
import stat
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Input
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.options import Option
from cuebook.dialects.playbook import Playbook, parsed
from cuebook.kernel.errors import BadInput, CuebookError, NotFound
from cuebook.kernel.events import PlannedStep

if TYPE_CHECKING:
    from cuebook.dialects.presentation.drawing import Drawing
    from cuebook.dialects.presentation.summary import Summary

_OWN_FOLDER = "playbook"
_SKILL = "SKILL"
"""The name of a skill, which has a folder of its own too."""
_OTHERS = frozenset(("build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"))
"""Folders of dependencies and build results, which are not searched: they can contain thousands of files."""
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_OTHER_FILE = re.compile(r"(readme|changelog|license|contributing)\b|.*\.(test|policy)\.", re.IGNORECASE)
_GLANCE = 100_000
"""The number of bytes to read in order to recognise a file."""
_LEVELS = 3
"""The number of folder levels that are searched for playbooks."""
_PATIENCE = 1.0
"""Seconds that a page waits for all files to be read."""
_SLICE = 50
"""The number of files after which the intermediate result is shown."""


class Listed(msgspec.Struct, frozen=True):
    """A playbook in one of the folders."""

    id: str
    path: Path
    playbook: Playbook
    problem: str = ""
    """Why it cannot be run."""

    @property
    def title(self) -> str:
        return self.playbook.title

    @property
    def dialect(self) -> str:
        return self.playbook.dialect.name

    @property
    def description(self) -> str:
        return self.playbook.description

    @property
    def name(self) -> str:
        """The name of its runs: its path relative to the folder of the library."""
        return self.playbook.name

    @property
    def text(self) -> str:
        return self.playbook.text

    @property
    def document(self) -> Any:
        return self.playbook.document

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.playbook.inputs

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        return self.playbook.steps

    @property
    def needed_options(self) -> tuple[Option, ...]:
        """The switches without which no run of it can start."""
        return self.playbook.dialect.needed_options(self.playbook.document)

    @property
    def needs_model(self) -> bool:
        return bool(self.playbook.document.needs_model)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it specifies."""
        dialect = self.playbook.dialect
        return tuple(dict.fromkeys(one.name for one in dialect.models(self.playbook.document)))

    @property
    def summary(self) -> Summary:
        return self.playbook.dialect.summary(self.playbook.document)

    @property
    def drawing(self) -> Drawing:
        return self.playbook.dialect.drawing(self.playbook.document)


class LeftOut(NamedTuple):
    """A file that is not a playbook or cannot be run, with the reason."""

    path: Path
    problem: str
    fix: str = ""


class Stored:
    """The playbooks in folders. If two have the same id, the first wins. A missing folder counts as empty."""

    def __init__(self, folders: Iterable[Path], *, levels: int = 0) -> None:
        """With `levels`, reads every file in that many levels of subfolders, except hidden ones."""
        self._folders = tuple(dict.fromkeys(folders))
        self._levels = levels
        self._read: dict[Path, tuple[tuple[int, ...], Listed | LeftOut]] = {}
        """The result for each file, with the file's status when it was read."""

    def all(self) -> list[Listed]:
        return self.found()[0]

    def found(self) -> tuple[list[Listed], list[LeftOut]]:
        """All playbooks that can be run, by id, and the files that were left out."""
        return sorted_out(self.each())

    def each(self) -> Iterator[Listed | LeftOut]:
        """The result for each file. A generator, so that the caller can do other work between two files."""
        for folder in self._folders:
            for path in _files(folder, self._levels):
                yield self._at(path, folder)

    def named(self, name: str) -> Listed | None:
        """The playbook with this id, or else the only one with this title."""
        found = self.all()
        by_title = [one for one in found if one.title == name]
        return next((one for one in found if one.id == name), by_title[0] if len(by_title) == 1 else None)

    def at(self, path: Path) -> Listed | None:
        """The playbook in this file. A relative path starts at one of the folders or at the current folder."""
        wanted = self._places(path)
        return next((one for one in self.all() if os.path.realpath(one.path) in wanted), None)

    def left_out(self, path: Path) -> LeftOut | None:
        """Why the file at this path, or with this id, was left out; None if there is no such file."""
        wanted, name = self._places(path), str(path)
        by_name = [one for one in self.found()[1] if id_by_name(one.path, self._folders) == name]
        by_path = (one for one in self.found()[1] if os.path.realpath(one.path) in wanted)
        return next(by_path, by_name[0] if by_name else None)

    def _places(self, path: Path) -> set[str]:
        return {os.path.realpath(path), *(os.path.realpath(folder / path) for folder in self._folders)}

    def _at(self, path: Path, folder: Path) -> Listed | LeftOut:
        try:
            status = path.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            known = self._read.get(path)
            if known is None or known[0] != seen:
                known = self._read[path] = (seen, _playbook(path, folder))
            return known[1]
        except OSError as error:
            return LeftOut(path, f"It cannot be read: {error.strerror}.")


def sorted_out(each: Iterable[Listed | LeftOut]) -> tuple[list[Listed], list[LeftOut]]:
    """The playbooks that can be run, by id, and the others. If two have the same id, the second is left out."""
    kept: dict[str, Listed] = {}
    left_out: list[LeftOut] = []
    for one in each:
        if isinstance(one, LeftOut):
            left_out.append(one)
        elif one.id in kept:
            taken = f"The id '{one.id}' is taken by {kept[one.id].path}."
            left_out.append(LeftOut(one.path, taken, "Change one of the ids."))
        else:
            kept[one.id] = one
    return sorted(kept.values(), key=lambda one: one.id), left_out


def beginning_of(path: Path, limit: int) -> bytes:
    """The beginning of a regular file. Raises `OSError` for anything else: reading a pipe might never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(limit)


def suffixes() -> tuple[str, ...]:
    """The file suffixes of all dialects."""
    return tuple(dict.fromkeys(suffix for dialect in registry.dialects() for suffix in dialect.suffixes))


def _files(folder: Path, levels: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir():
            if entry.name.lower().endswith(suffixes()):
                yield folder / entry.name
        elif levels:
            if not entry.name.startswith((".", "_")) and entry.name not in _OTHERS and not entry.is_symlink():
                yield from _files(folder / entry.name, levels - 1)
        else:
            own = folder / entry.name
            yield from (path for suffix in suffixes() if (path := own / f"{_OWN_FOLDER}{suffix}").is_file())


def _playbook(path: Path, folder: Path) -> Listed | LeftOut:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return LeftOut(path, "It is a link to a file outside the folder.")
    name = str(path.relative_to(folder))
    try:
        text = registry.text_of(beginning_of(path, registry.LARGEST + 1))
        dialect = registry.recognised(text, path.name)
        if dialect is None:
            return LeftOut(path, f"{path.name}: {registry.UNKNOWN}")
        document = parsed(dialect, text, name)
    except UnicodeDecodeError:
        return LeftOut(path, "It is not UTF-8 text.")
    except CuebookError as error:
        return LeftOut(path, str(error))
    id = document.id or id_by_name(path, [folder])
    return Listed(id, path, Playbook(text, name, document, dialect, path))


def id_by_name(path: Path, folders: Container[Path]) -> str:
    """The id of a playbook whose text has none, derived from its name."""
    if path.stem in (_OWN_FOLDER, _SKILL) and path.parent not in folders:
        return path.parent.name
    suffix = max((one for one in suffixes() if path.name.lower().endswith(one)), key=len, default=path.suffix)
    return path.name[: -len(suffix)] if suffix else path.name


class Broken(msgspec.Struct, frozen=True):
    """A file that looks like a playbook but cannot be run."""

    path: Path
    problem: str


class Shelf(msgspec.Struct, frozen=True):
    """The contents of a library. It stays the same object while nothing changes."""

    listed: tuple[Listed, ...] = ()
    """The playbooks that can be run, by title."""
    broken: tuple[Broken, ...] = ()
    whole: bool = True
    """Whether all files have been read; the first time takes a while."""


class Library:
    """The playbooks that pages and assistants show, reloaded when files change.

    Files are read and parsed in a thread. In a coroutine, await `read` or `find`.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self.stored = Stored(self.folders, levels=_LEVELS)
        self._listed: dict[Path, tuple[Listed, Listed | None]] = {}
        self._shelf = Shelf(whole=False)
        self._seen: list[Listed | LeftOut] = []
        """The results for all files when the shelf was created."""
        self._reading: asyncio.Task[Shelf] | None = None

    async def read(self, patience: float | None = _PATIENCE) -> Shelf:
        """The current contents; after `patience` seconds, what has been read so far. With None, waits for
        everything."""
        fresh = asyncio.create_task(self._fresh())
        done, _ = await asyncio.wait([fresh], timeout=patience)
        return fresh.result() if done else self._shelf

    async def find(self, id: str) -> Listed:
        """Like `named`, after everything has been read."""
        return self._named(id, await self.read(None))

    def all(self) -> list[Listed]:
        return list(self._read().listed)

    def found(self) -> tuple[list[Listed], list[Broken]]:
        """The playbooks that can be run, by title, and those that cannot."""
        shelf = self._read()
        return list(shelf.listed), list(shelf.broken)

    def named(self, id: str) -> Listed:
        """The playbook with this id. Raises `NotFound` for an unknown id, `BadInput` if it cannot be run."""
        return self._named(id, self._read())

    def _named(self, id: str, shelf: Shelf) -> Listed:
        found = next((one for one in shelf.listed if one.id == id), None)
        if found is not None:
            return found
        for one in shelf.broken:
            if _address(id_by_name(one.path, self.folders)) == id:
                raise BadInput(
                    f"The playbook '{id}' cannot be run as written: {one.problem}",
                    fix=f"`cuebook validate {one.path.name}` lists all its problems.",
                )
        raise NotFound(f"There is no playbook '{id[:100]}'.", fix="The library lists all playbooks.")

    async def _fresh(self) -> Shelf:
        """Reads the files once more: a read that has already started may have missed the latest change."""
        before = self._reading
        if before is not None and not before.done() and before.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(before)
        if self._reading is before or self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        return await asyncio.shield(self._reading)

    def _read(self) -> Shelf:
        """Checks each file and parses those that changed. The results of a long first read are shown bit by bit."""
        seen: list[Listed | LeftOut] = []
        for one in self.stored.each():
            seen.append(one)
            if not self._shelf.whole:
                time.sleep(0)  # lets other threads run
                if len(seen) % _SLICE == 0:
                    self._shelf = self._made(seen, whole=False)
        if len(seen) != len(self._seen) or not all(map(operator.is_, seen, self._seen)):
            self._shelf, self._seen = self._made(seen, whole=True), seen
        elif not self._shelf.whole:
            self._shelf = self._made(seen, whole=True)
        return self._shelf

    def _made(self, seen: Iterable[Listed | LeftOut], *, whole: bool) -> Shelf:
        found, left_out = sorted_out(seen)
        broken = [Broken(one.path, one.problem) for one in left_out if _is_meant(one.path)]
        listed: dict[str, Listed] = {}
        for one in filter(None, map(self._made_of, found)):
            if one.problem:
                broken.append(Broken(one.path, one.problem))
            elif listed.setdefault(one.id, one) is not one:
                broken.append(Broken(one.path, f"The id '{one.id}' is taken by {listed[one.id].path}."))
        by_title = sorted(listed.values(), key=lambda one: (one.title.lower(), one.id))
        return Shelf(tuple(by_title), tuple(broken), whole)

    def _made_of(self, one: Listed) -> Listed | None:
        """The library entry of a file. Returns None for a page that only contains example playbooks."""
        known = self._listed.get(one.path)
        if known is not None and known[0] is one:
            return known[1]
        made: Listed | None = None
        if not _only_shows(one):
            made = Listed(_address(one.id), one.path, one.playbook, _unfit(one.playbook))
        self._listed[one.path] = (one, made)
        return made


def _unfit(playbook: Playbook) -> str:
    """Why a playbook that can be read cannot be run with any option; empty if it can."""
    needed = playbook.dialect.needed_options(playbook.document)
    problems = playbook.dialect.unfit(playbook.document, {option.name: True for option in needed})
    return InvalidPlaybook(playbook.name, problems).message if problems else ""


def _address(id: str) -> str:
    """An id that fits into a URL. If characters had to be replaced, a checksum keeps it unique."""
    plain = _PLAIN.sub("-", id).strip("-.")
    return plain if plain == id else f"{plain or 'playbook'}-{crc32(id.encode()):08x}"


def _only_shows(one: Listed) -> bool:
    """Whether a file is a page with example playbooks. It can still be run by its name."""
    return not one.playbook.dialect.claims(one.text, one.path.name) or _is_other(one.path)


def _is_other(path: Path) -> bool:
    """Whether a file has a name that no playbook has, such as README.md."""
    return _OTHER_FILE.match(path.name) is not None


def _is_meant(path: Path) -> bool:
    """Whether a file that is not a playbook was meant to be one."""
    if _is_other(path):
        return False
    try:
        text = beginning_of(path, _GLANCE).decode("utf-8", "replace")
    except OSError:
        return False
    return any(dialect.resembles(text, path.name) for dialect in registry.dialects())
