"""The library's tiles: what is shown of each playbook, worked out once for as long as it does not change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from cuebook.dialects.findings import Finding
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.surfaces.library import Listed, Shelf
from cuebook.surfaces.reading.findings import checked
from cuebook.surfaces.web import formatted
from cuebook.surfaces.web.views import About, Need, about_of

_PATIENCE = 1.0
"""Seconds that a page waits for tiles."""


class Face(msgspec.Struct, frozen=True):
    """What is shown of a playbook whatever runs it had."""

    listed: Listed
    needs: tuple[Need, ...]
    flaws: int
    """What is wrong or odd in it."""
    summary: str
    """Its description without the marks of Markdown."""
    words: str
    """What a search looks in."""


class Tile(NamedTuple):
    """A playbook in the library."""

    face: Face
    last: RunRow | None
    status: str
    """Of that run, as people read it."""


class Faces:
    """Those of one library, made beside the event loop."""

    def __init__(self) -> None:
        self._made: dict[Path, Face] = {}
        self._making: asyncio.Task[None] | None = None

    async def of(self, shelf: Shelf, patience: float = _PATIENCE) -> tuple[list[Face], bool]:
        """Those that are ready after so many seconds at most, and whether these are all."""
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
            time.sleep(0)  # lets others have their turn


def _face(one: Listed) -> Face:
    needs = needs_of(one, about(one))
    named = " ".join(need.name for need in needs)
    words = " ".join(f"{one.title} {one.id} {one.dialect} {one.description} {named}".lower().split())
    flaws = len(grave(findings(one.text, str(one.path))))
    return Face(one, needs, flaws, formatted.markdown(one.description).striptags(), words)


def about(one: Listed) -> About:
    try:
        return about_of(one.dialect, one.document)
    except CuebookError:
        return About()


def needs_of(one: Listed, shown: About) -> tuple[Need, ...]:
    models = tuple(Need("model", name) for name in one.models) or ((Need("model", "any"),) if one.needs_model else ())
    return (*models, *shown.needs)


def grave(found: Iterable[Finding]) -> list[Finding]:
    """Those that matter to whoever runs a playbook; notes are for whoever writes it."""
    return [one for one in found if one.severity != "note"]


def findings(text: str, path: str) -> list[Finding]:
    """What is wrong or odd in a playbook, as `cuebook validate` tells it."""
    try:
        return checked(text, path)
    except CuebookError as error:  # not the playbook, but something that it is checked by
        return [Finding(error.code, "error", error.message, fix=error.fix)]
