"""Lets a Python program watch a run in terms of its playbook's format."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from cuebook.dialects.presentation.projection import ProgramRun, Projection, PublishedEvent, RunEvent, Said, Update
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow
from cuebook.service.service import Service
from cuebook.service.stream import Follower

Published: TypeAlias = PublishedEvent

T = TypeVar("T")

log = logging.getLogger("cuebook")


def published(update: Update) -> Sequence[Published]:
    """The events that the playbook's format defines."""
    return update.published


def said(update: Update) -> Sequence[Said]:
    """The playbook's messages to people."""
    return [one for one in update.said if one.by == "program"]


class Left(msgspec.Struct, frozen=True):
    """The results of a run in terms of its format."""

    trace: Mapping[str, Any] | None = None
    events: tuple[Published, ...] = ()
    program: ProgramRun | None = None


async def left_by(service: Service, row: RunRow, entries: Sequence[Entry]) -> Left:
    """The results of a run; `entries` are its valid entries."""
    playbook = await service.playbook_of(row)
    if playbook is None:
        return Left()
    projection = playbook.observed(run=row.id)
    events = tuple(event for entry in entries for event in projection.see(entry).published)
    if projection.conversation is not None:
        return Left(program=projection.conversation.program_run())
    trace = projection.trace()
    return Left(None if trace is None else trace["trace"], events)


def harmless(name: str, call: Callable[[T], None]) -> Callable[[T], None]:
    """Wrap an observer so that its errors do not affect the run. The first error is logged at debug level."""
    failed = False

    def safe(one: T) -> None:
        nonlocal failed
        try:
            call(one)
        except Exception:
            if not failed:
                failed = True
                log.debug("%s failed; the run continues. Further failures are not logged.", name, exc_info=True)

    return safe


class Watch(Generic[T]):
    """Calls a function with the events of a run, each once, however often the run waits and continues."""

    def __init__(self, name: str, call: Callable[[T], None], pick: Callable[[Update], Sequence[T]]) -> None:
        """`name` is the caller's name for the function; `pick` selects its arguments from an update."""
        self._call = harmless(name, call)
        self._pick = pick
        self._follower: Follower | None = None
        self._projection: Projection | None = None

    async def follow(self, service: Service, run: str) -> None:
        """Pass on all events so far, and then new ones until the service is closed."""
        seq = 0
        if self._follower is not None and self._follower.run == run:
            seq = self._follower.seq or 0
        else:
            playbook = await service.playbook_of(await service.get(run))
            self._projection = None if playbook is None else playbook.observed(run=run)
        self._follower = Follower(service.stream, run, self._see, seq)
        await self._follower.catch_up()
        self._follower.listen()

    def _see(self, event: RunEvent) -> None:
        if self._projection is None or self._follower is None:
            return
        update = self._projection.see(event)
        if event.run == self._follower.run:  # a fork's parent has already passed on its own records
            for one in self._pick(update):
                self._call(one)
