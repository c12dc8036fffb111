"""The playbooks of some folders, as they are shown and offered: what each is, what it takes and what it needs."""

from __future__ import annotations

import asyncio
import operator
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Choosing, Dialect, Input, InvalidPlaybook, NamingModels
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import PlannedStep
from cuebook.stored import LeftOut, Stored, StoredPlaybook, beginning_of, id_by_name, sorted_out

_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_STEP = re.compile(r"^#{2,3}\s*STEP\b", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"^(steps|nodes)\s*:|\"(steps|nodes)\"\s*:", re.MULTILINE)
_NO_PLAYBOOK = re.compile(r"(readme|changelog|license|contributing|skill)\b|.*\.(test|policy)\.", re.IGNORECASE)
_MARKDOWN = (".md", ".markdown")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_GLANCE = 100_000
"""Bytes of a file that tell what it is meant to be."""
_LEVELS = 3
"""Folders below a given one in which playbooks are looked for."""
_PATIENCE = 1.0
"""Seconds that a page waits for the rest."""
_SLICE = 50
"""Files after which what was read so far is shown."""


class Listed(msgspec.Struct, frozen=True):
    """A playbook of the library."""

    id: str
    """As in its address."""
    title: str
    dialect: str
    description: str
    name: str
    """As its runs are called."""
    path: Path
    text: str
    document: Any
    problem: str = ""
    """Why it cannot be run as it is written."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(self.document.inputs)

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        return tuple(self.document.plan)

    @property
    def needs_model(self) -> bool:
        return bool(getattr(self.document, "needs_model", True))

    @property
    def models(self) -> tuple[str, ...]:
        """Those it names itself."""
        dialect = registry.named(self.dialect)
        named = dialect.models(self.document) if isinstance(dialect, NamingModels) else ()
        return tuple(dict.fromkeys(one.name for one in named))


class Broken(msgspec.Struct, frozen=True):
    """A file that is meant as a playbook and cannot be run."""

    path: Path
    problem: str


class Shelf(msgspec.Struct, frozen=True):
    """What was found. It is the same object as long as nothing changed."""

    listed: tuple[Listed, ...] = ()
    """Those that can be run, by title."""
    broken: tuple[Broken, ...] = ()
    whole: bool = True
    """Whether everything was read: the first time that takes a while."""


class Library:
    """What lies in the folders, read again when it changed.

    Files are read and parsed beside the event loop, which has others to serve; from a coroutine, await `read` or `find`.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self.stored = Stored(self.folders, levels=_LEVELS)
        self._listed: dict[Path, tuple[StoredPlaybook, Listed | None]] = {}
        self._shelf = Shelf(whole=False)
        self._seen: list[StoredPlaybook | LeftOut] = []
        """What the files came to when the shelf was made."""
        self._reading: asyncio.Task[Shelf] | None = None

    async def read(self, patience: float | None = _PATIENCE) -> Shelf:
        """Everything as it is now; after so many seconds, what was read by then. None waits as long as it takes."""
        fresh = asyncio.create_task(self._fresh())
        done, _ = await asyncio.wait([fresh], timeout=patience)
        return fresh.result() if done else self._shelf

    async def find(self, id: str) -> Listed:
        """As `named`, once everything is read."""
        return self._named(id, await self.read(None))

    def all(self) -> list[Listed]:
        return list(self._read().listed)

    def found(self) -> tuple[list[Listed], list[Broken]]:
        """Those that can be run, by title, and those that cannot."""
        shelf = self._read()
        return list(shelf.listed), list(shelf.broken)

    def named(self, id: str) -> Listed:
        """`NotFound` if there is none; `BadInput` if there is one and it cannot be run."""
        return self._named(id, self._read())

    def _named(self, id: str, shelf: Shelf) -> Listed:
        found = next((one for one in shelf.listed if one.id == id), None)
        if found is not None:
            return found
        for one in shelf.broken:
            if _address(id_by_name(one.path, self.folders)) == id:
                raise BadInput(
                    f"The playbook '{id}' cannot be run as written: {one.problem}",
                    fix=f"`cuebook validate {one.path.name}` tells all that is wrong in it.",
                )
        raise NotFound(f"There is no playbook '{id[:100]}'.", fix="The library lists those there are.")

    async def _fresh(self) -> Shelf:
        """What lies there now: what is being read already may have missed the latest change."""
        before = self._reading
        if before is not None and not before.done() and before.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(before)
        if self._reading is before or self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        return await asyncio.shield(self._reading)

    def _read(self) -> Shelf:
        """Looks at each file, and parses those that changed. Where it takes long, others see what there is so far."""
        seen: list[StoredPlaybook | LeftOut] = []
        for one in self.stored.each():
            seen.append(one)
            if not self._shelf.whole:
                time.sleep(0)  # lets others have their turn
                if len(seen) % _SLICE == 0:
                    self._shelf = self._made(seen, whole=False)
        if len(seen) != len(self._seen) or not all(map(operator.is_, seen, self._seen)):
            self._shelf, self._seen = self._made(seen, whole=True), seen
        elif not self._shelf.whole:
            self._shelf = self._made(seen, whole=True)
        return self._shelf

    def _made(self, seen: Iterable[StoredPlaybook | LeftOut], *, whole: bool) -> Shelf:
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

    def _made_of(self, one: StoredPlaybook) -> Listed | None:
        """None for a page that only shows what playbooks look like."""
        known = self._listed.get(one.path)
        if known is not None and known[0] is one:
            return known[1]
        made: Listed | None = None
        if not _only_shows(one.path, one.text):
            made = Listed(
                _address(one.id),
                one.title,
                one.dialect,
                str(getattr(one.document, "description", "") or ""),
                one.name,
                one.path,
                one.text,
                one.document,
                _unfit(registry.named(one.dialect), one.document, one.name),
            )
        self._listed[one.path] = (one, made)
        return made


def _unfit(dialect: Dialect, document: Any, name: str) -> str:
    """Why a playbook that can be read cannot be run; empty if it can."""
    problems = dialect.unfit(document, {}) if isinstance(dialect, Choosing) else ()
    return InvalidPlaybook(name, problems).message if problems else ""


def _address(id: str) -> str:
    """An id that can stand in an address. What an address cannot hold is told apart by a checksum of it all."""
    plain = _PLAIN.sub("-", id).strip("-.")
    return plain if plain == id else f"{plain or 'playbook'}-{crc32(id.encode()):08x}"


def _only_shows(path: Path, text: str) -> bool:
    """Whether a Markdown file is a page about something, with playbooks for examples: a README, or one whose steps all are in
    blocks of code. Run by its name it is a playbook all the same.
    """
    if path.suffix.lower() not in _MARKDOWN or path.stem.endswith(".playbook"):
        return False
    if _NO_PLAYBOOK.match(path.name):
        return True
    return _STEP.search(text) is not None and _STEP.search(_without_code(text)) is None


def _without_code(text: str) -> str:
    kept: list[str] = []
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
        else:
            kept.append(line)
    return "\n".join(kept)


def _is_meant(path: Path) -> bool:
    """Whether a file that is no playbook was meant to be one: it has what one is recognised by."""
    if _NO_PLAYBOOK.match(path.name):
        return False
    markdown = path.suffix.lower() in _MARKDOWN
    try:
        text = beginning_of(path, _GLANCE).decode("utf-8", "replace")
    except OSError:
        return False
    return (_STEP if markdown else _FIELD).search(_without_code(text) if markdown else text) is not None
