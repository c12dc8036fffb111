"""The playbooks of some folders, as they are shown and offered: what each is, what it takes and what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Choosing, Dialect, Input, InvalidPlaybook, NamingModels
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import PlannedStep
from cuebook.stored import Stored, StoredPlaybook, beginning_of, id_by_name

_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_STEP = re.compile(r"^#{2,3}\s*STEP\b", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"^(steps|nodes)\s*:|\"(steps|nodes)\"\s*:", re.MULTILINE)
_NO_PLAYBOOK = re.compile(r"(readme|changelog|license|contributing|skill)\b|.*\.(test|policy)\.", re.IGNORECASE)
_GLANCE = 100_000
"""Bytes of a file that tell what it is meant to be."""
_LEVELS = 3
"""Folders below a given one in which playbooks are looked for."""


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


class Library:
    """What lies in the folders, read again when it changed."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self.stored = Stored(self.folders, levels=_LEVELS)
        self._parsed: dict[Path, tuple[StoredPlaybook, Listed]] = {}

    def all(self) -> list[Listed]:
        return self.found()[0]

    def found(self) -> tuple[list[Listed], list[Broken]]:
        """Those that can be run, by title, and those that cannot."""
        found, left_out = self.stored.found()
        broken = [Broken(one.path, one.problem) for one in left_out if _is_meant(one.path)]
        listed: dict[str, Listed] = {}
        for one in map(self._listed, found):
            if one.problem:
                broken.append(Broken(one.path, one.problem))
            elif listed.setdefault(one.id, one) is not one:
                broken.append(Broken(one.path, f"The id '{one.id}' is taken by {listed[one.id].path}."))
        return sorted(listed.values(), key=lambda one: (one.title.lower(), one.id)), broken

    def named(self, id: str) -> Listed:
        """`NotFound` if there is none; `BadInput` if there is one and it cannot be run."""
        listed, broken = self.found()
        found = next((one for one in listed if one.id == id), None)
        if found is not None:
            return found
        for one in broken:
            if _address(id_by_name(one.path, self.folders)) == id:
                raise BadInput(
                    f"The playbook '{id}' cannot be run as written: {one.problem}",
                    fix=f"`cuebook validate {one.path.name}` tells all that is wrong in it.",
                )
        raise NotFound(f"There is no playbook '{id[:100]}'.", fix="The library lists those there are.")

    def _listed(self, one: StoredPlaybook) -> Listed:
        known = self._parsed.get(one.path)
        if known is not None and known[0] is one:
            return known[1]
        dialect = registry.named(one.dialect)
        document = dialect.parse(one.text, one.name)
        description = str(getattr(document, "description", "") or "")
        made = Listed(
            _address(one.id),
            one.title,
            one.dialect,
            description,
            one.name,
            one.path,
            one.text,
            document,
            _unfit(dialect, document, one.name),
        )
        self._parsed[one.path] = (one, made)
        return made


def _unfit(dialect: Dialect, document: Any, name: str) -> str:
    """Why a playbook that can be read cannot be run; empty if it can."""
    problems = dialect.unfit(document, {}) if isinstance(dialect, Choosing) else ()
    return InvalidPlaybook(name, problems).message if problems else ""


def _address(id: str) -> str:
    """An id that can stand in an address. What an address cannot hold is told apart by a checksum of it all."""
    plain = _PLAIN.sub("-", id).strip("-.")
    return plain if plain == id else f"{plain or 'playbook'}-{crc32(id.encode()):08x}"


def _is_meant(path: Path) -> bool:
    """Whether a file that is no playbook was meant to be one: it has what one is recognised by."""
    if _NO_PLAYBOOK.match(path.name):
        return False
    mark = _STEP if path.suffix.lower() in (".md", ".markdown") else _FIELD
    try:
        return mark.search(beginning_of(path, _GLANCE).decode("utf-8", "replace")) is not None
    except OSError:
        return False
