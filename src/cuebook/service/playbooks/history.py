"""Finds the runs of each playbook in the library.

A run belongs to a playbook if it was started from its file, even if the file has changed since, or if it has the same text.
The name alone is not enough: any text can have any name, and the name of a file depends on the folder it is run from.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Unpack

from cuebook.kernel.context import digest_of
from cuebook.kernel.events import RunStarted
from cuebook.kernel.ports import RunFilter, RunMark
from cuebook.kernel.run import RunRow
from cuebook.service.playbooks.library import Library, Listed, Shelf
from cuebook.service.runs.lists import RunPage, cursor_of, mark_of, page_of
from cuebook.service.service import Principal, Service

_LOOKED_AT = 1000
"""The maximum number of runs with its names that are searched for a page of a playbook's runs."""
_REMEMBERED = 10_000
"""The maximum number of runs whose files are cached."""
_PARTS = 4
"""The number of trailing parts of a path that can be the name of a run: a file, and folders above it."""


class Histories:
    """The runs of each playbook in one library."""

    def __init__(self, service: Service, library: Library) -> None:
        self._service = service
        self._library = library
        self._files: dict[str, Path | None] = {}
        """The file that each run was started from."""
        self._seen: tuple[Shelf, _Known] | None = None

    async def of(
        self, one: Listed, *, limit: int = 100, who: Principal = Principal(), **which: Unpack[RunFilter]
    ) -> list[RunRow]:
        """The runs of a playbook, newest first."""
        return (await self.page(one, which, limit=limit, who=who)).rows

    async def page(
        self, one: Listed, which: RunFilter, *, limit: int = 100, cursor: str = "", who: Principal = Principal()
    ) -> RunPage:
        """A page of the runs of a playbook, newest first. It is shorter if many other runs have the playbook's name."""
        asked = which.copy()
        asked["names"] = _names(one)
        if cursor:
            asked["before"] = mark_of(cursor)
        known = await self._known()
        found: list[RunRow] = []
        at_once, looked_at = min(limit + 1, _LOOKED_AT), 0
        while True:
            rows = await self._service.runs(limit=at_once, who=who, **asked)
            found += [row for row in rows if await self._playbook(row, known) == one.id]
            looked_at += len(rows)
            if len(found) > limit or len(rows) < at_once:
                return page_of(found, limit)
            if looked_at >= _LOOKED_AT:
                return RunPage(found, cursor_of(rows[-1]))
            asked["before"] = RunMark(rows[-1].created, rows[-1].id)

    async def playbooks(self, rows: Iterable[RunRow], shelf: Shelf | None = None) -> dict[str, str]:
        """The id of each run's playbook, by run id. Runs without a playbook are left out."""
        known = await self._known(shelf)
        found = [(row.id, await self._playbook(row, known)) for row in rows]
        return {run: playbook for run, playbook in found if playbook}

    async def _known(self, shelf: Shelf | None = None) -> _Known:
        shelf = shelf or await self._library.read()
        if self._seen is None or self._seen[0] is not shelf:
            self._seen = shelf, await asyncio.to_thread(_Known, shelf.listed)
        return self._seen[1]

    async def _playbook(self, row: RunRow, known: _Known) -> str:
        """The id of a run's playbook; empty if there is none."""
        name = PurePath(row.name).name
        if name not in known.names:
            return ""
        same = known.texts.get((name, row.playbook), ())
        if len(same) == 1:
            return same[0]
        file = await self._file(row)  # needed only if the text is not enough
        own = "" if file is None else known.files.get(file, "")
        return own or next(iter(same), "")

    async def _file(self, row: RunRow) -> Path | None:
        """The file that a run was started from; None if it was started from text."""
        if row.id not in self._files:
            if len(self._files) > _REMEMBERED:
                self._files.clear()
            found = None
            async for entry in self._service.entries(row.id):
                settings = entry.event.settings if isinstance(entry.event, RunStarted) else {}
                if settings.get("folder") and not settings.get("from_text"):
                    found = Path(str(settings["folder"]), PurePath(row.name).name)
                break
            self._files[row.id] = found
        return self._files[row.id]


class _Known:
    """The playbooks of a library, indexed by file, name and text."""

    def __init__(self, listed: Iterable[Listed]) -> None:
        self.files: dict[Path, str] = {}
        self.names: set[str] = set()
        self.texts: dict[tuple[str, str], list[str]] = {}
        for one in listed:
            self.files[Path(os.path.realpath(one.path.parent), one.path.name)] = one.id
            self.names.add(one.path.name)
            self.texts.setdefault((one.path.name, digest_of(one.text)), []).append(one.id)


def _names(one: Listed) -> list[str]:
    """The names that runs of a playbook can have, depending on the folder they were started in."""
    parts = one.path.parts
    return [str(PurePath(*parts[-count:])) for count in range(1, min(_PARTS, len(parts) - 1) + 1)]
