"""The tiles of the library page, computed once for each version of a playbook."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.findings import Finding
from cuebook.dialects.presentation.summary import Need
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service.playbooks.library import Listed, Shelf
from cuebook.surfaces.web.pages import formatted
from cuebook.wiring.surroundings import MachineSurroundings

_PATIENCE = 1.0
"""Seconds that a page waits for tiles."""


class Face(msgspec.Struct, frozen=True):
    """The part of a playbook's tile that does not depend on its runs."""

    listed: Listed
    needs: tuple[Need, ...]
    flaws: int
    """The number of its findings."""
    summary: str
    """Its description without Markdown markup."""
    words: str
    """The text that a search matches."""


class Tile(NamedTuple):
    """A playbook in the library."""

    face: Face
    last: RunRow | None
    status: str
    """The readable status of that run."""


class Faces:
    """The faces of one library's playbooks, computed in a thread."""

    def __init__(self) -> None:
        self._made: dict[Path, Face] = {}
        self._making: asyncio.Task[None] | None = None

    async def of(self, shelf: Shelf, patience: float = _PATIENCE) -> tuple[list[Face], bool]:
        """The faces that are ready within the time limit, and whether these are all of them."""
        missing = [one for one in shelf.listed if self._ready(one) is None]
        if missing:
            if self._making is None or self._making.done():
                self._making = asyncio.create_task(asyncio.to_thread(self._make, missing))
            await asyncio.wait([self._making], timeout=patience)
        faces = [face for face in map(self._ready, shelf.listed) if face is not None]
        return faces, shelf.whole and len(faces) == len(shelf.listed)

    def _ready(self, one: Listed) -> Face | None:
        face = self._made.get(one.path)
        return face if face is not None and face.listed is one else None

    def _make(self, missing: Iterable[Listed]) -> None:
        for one in missing:
            self._made[one.path] = _face(one)
            time.sleep(0)  # gives other tasks a turn


def _face(one: Listed) -> Face:
    needs = one.summary.needs
    named = " ".join(need.name for need in needs)
    words = " ".join(f"{one.title} {one.id} {one.dialect} {one.description} {named}".lower().split())
    flaws = len(grave(findings(one.text, str(one.path))))
    return Face(one, needs, flaws, formatted.markdown(one.description).striptags(), words)


def grave(found: Iterable[Finding]) -> list[Finding]:
    """The findings that matter to people who run a playbook; notes are for its authors."""
    return [one for one in found if one.severity != "note"]


def findings(text: str, path: str) -> list[Finding]:
    """The findings of a playbook, the same as those of `cuebook validate`."""
    try:
        return registry.check(text, path, MachineSurroundings(path))
    except CuebookError as error:  # a failure of the check, not of the playbook
        return [Finding(error.code, "error", error.message, fix=error.fix)]
