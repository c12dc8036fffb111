"""What the playbook's own format calls what happens in a run, for a program that watches one. It knows no dialect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect, Publisher, Publishing, Tracing
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow
from cuebook.service import Service

Published: TypeAlias = Mapping[str, Any]
"""An event of the format, with its name as `type`."""

log = logging.getLogger("cuebook")


class Left(msgspec.Struct, frozen=True):
    """What a run has left behind, as its format has it; nothing where it has no words for that."""

    trace: Mapping[str, Any] | None = None
    events: tuple[Published, ...] = ()


async def left_by(service: Service, row: RunRow, entries: Sequence[Entry]) -> Left:
    """`entries` are those that count."""
    dialect = _dialect(row)
    if not isinstance(dialect, Tracing | Publishing):
        return Left()
    document = await _document(service, row, dialect)
    trace = dialect.trace(document, entries)["trace"] if isinstance(dialect, Tracing) else None
    if not isinstance(dialect, Publishing):
        return Left(trace)
    names = dialect.publisher(document, row.id)
    return Left(trace, tuple(told for entry in entries for told in names(entry)))


class Watch:
    """Tells a function the events of one run, each once, however often the run waits and goes on in between."""

    def __init__(self, tell: Callable[[Published], None]) -> None:
        self._tell_one = tell
        self._run = ""
        self._seq = 0
        """The last record that was told."""
        self._names: Publisher | None = None
        self._failed = False

    async def follow(self, service: Service, run: str) -> None:
        """Tells what has happened since, and then what happens, until the service is closed."""
        if not self._run:
            self._run = run
            row = await service.get(run)
            dialect = _dialect(row)
            if isinstance(dialect, Publishing):
                self._names = dialect.publisher(await _document(service, row, dialect), run)
        async for entry in service.engine.entries(run, self._seq):
            self._see(entry)
        service.observe(self._see)

    def _see(self, event: Entry | TextChunk | TextReset) -> None:
        if self._names is None or event.run != self._run:
            return
        if isinstance(event, Entry):
            if event.seq <= self._seq:
                return
            self._seq = event.seq
        for told in self._names(event):
            self._tell(told)

    def _tell(self, told: Published) -> None:
        try:
            self._tell_one(told)
        except Exception:  # who watches never harms a run
            if not self._failed:
                self._failed = True
                log.exception("on_published failed; the run goes on. Its further failures are not shown.")


def _dialect(row: RunRow) -> Dialect | None:
    """None for a program of one's own."""
    return next((one for one in registry.dialects() if one.name == row.dialect), None)


async def _document(service: Service, row: RunRow, dialect: Dialect) -> Any:
    return dialect.parse(await service.store.playbook(row.playbook), row.name)
