"""What the playbook's own format calls what happens in a run, for a program that watches one. It knows no dialect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Conversing, Dialect, Publishing, Tracing
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow
from cuebook.service import Service

if TYPE_CHECKING:
    from cuebook.dialects.program.observe import Said
    from cuebook.dialects.program.told import ProgramRun

Published: TypeAlias = Mapping[str, Any]
"""An event of the format, with its name as `type`."""

T = TypeVar("T")

Names: TypeAlias = Callable[["Entry | TextChunk | TextReset"], Sequence[T]]
"""What a watcher is told of an event: often nothing, or several things."""
NamesOf: TypeAlias = Callable[[Dialect, Any, str], "Names[T] | None"]
"""Makes that for a run of a document; None where the dialect has nothing to tell."""

log = logging.getLogger("cuebook")


def named(dialect: Dialect, document: Any, run: str) -> Names[Published] | None:
    """The events that the playbook's format has."""
    return dialect.publisher(document, run) if isinstance(dialect, Publishing) else None


def saying(dialect: Dialect, document: Any, run: str) -> Names[Said] | None:
    """What the playbook says to people."""
    if not isinstance(dialect, Conversing):
        return None
    hear = dialect.saying(document)
    return lambda event: [said for said in hear(event) if said.by == "program"]


class Left(msgspec.Struct, frozen=True):
    """What a run has left behind, as its format has it; nothing where it has no words for that."""

    trace: Mapping[str, Any] | None = None
    events: tuple[Published, ...] = ()
    program: ProgramRun | None = None


async def left_by(service: Service, row: RunRow, entries: Sequence[Entry]) -> Left:
    """`entries` are those that count."""
    dialect = _dialect(row)
    if isinstance(dialect, Conversing):
        return Left(program=dialect.told(entries))
    if not isinstance(dialect, Tracing | Publishing):
        return Left()
    document = await _document(service, row, dialect)
    trace = dialect.trace(document, entries)["trace"] if isinstance(dialect, Tracing) else None
    if not isinstance(dialect, Publishing):
        return Left(trace)
    names = dialect.publisher(document, row.id)
    return Left(trace, tuple(told for entry in entries for told in names(entry)))


def harmless(what: str, tell: Callable[[T], None]) -> Callable[[T], None]:
    """The function, whose errors are swallowed: an observer never harms a run. The first is logged for debugging."""
    failed = False

    def told(one: T) -> None:
        nonlocal failed
        try:
            tell(one)
        except Exception:
            if not failed:
                failed = True
                log.debug("%s failed; the run continues. Its further failures are not logged.", what, exc_info=True)

    return told


class Watch(Generic[T]):
    """Tells a function what happens in a run, each thing once, however often the run waits and goes on in between."""

    def __init__(self, what: str, tell: Callable[[T], None], names_of: NamesOf[T]) -> None:
        """`what` is how the caller knows the function."""
        self._tell = harmless(what, tell)
        self._names_of = names_of
        self._run = ""
        self._seq = 0
        """The last record that was told."""
        self._names: Names[T] | None = None

    async def follow(self, service: Service, run: str) -> None:
        """Tells what has happened since, and then what happens, until the service is closed."""
        if self._run != run:
            self._run, self._seq, self._names = run, 0, None
            row = await service.get(run)
            dialect = _dialect(row)
            if dialect is not None:
                self._names = self._names_of(dialect, await _document(service, row, dialect), run)
        async for entry in service.engine.entries(run, self._seq):
            if entry.run != run and self._names is not None:  # what a fork has from its parent was told before
                self._seq = entry.seq
                self._names(entry)
            else:
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


def _dialect(row: RunRow) -> Dialect | None:
    """None for a program of one's own."""
    return next((one for one in registry.dialects() if one.name == row.dialect), None)


async def _document(service: Service, row: RunRow, dialect: Dialect) -> Any:
    return dialect.parse(await service.store.playbook(row.playbook), row.name)
