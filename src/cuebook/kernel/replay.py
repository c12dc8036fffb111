"""What a journal holds for a program that is run again: outcomes by place, and where each branch begins.

Pure: it reads entries and answers look-ups, and performs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.kernel.effects import Effect
from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import (
    TOLD,
    BranchFinished,
    CancelRequested,
    Checkpointed,
    Forked,
    ModelAsked,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    RunStarted,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import ROOT, Entry, Key, Place, without_void
from cuebook.kernel.run import Settings


class Frame(msgspec.Struct, gc=False):
    """A visit of a step: how many effects and events it has yielded."""

    label: str = ""
    visit: int = 0
    effects: int = 0
    events: int = 0
    open: bool = True


class Cursor(msgspec.Struct, gc=False):
    """Where a branch is: the steps it stands in, and how often each was visited."""

    path: str = ROOT
    frames: list[Frame] = msgspec.field(default_factory=lambda: [Frame()])
    visits: dict[str, int] = {}

    def enter(self, label: str) -> None:
        top = self.frames[-1]
        if not top.open and len(self.frames) > 1:
            self.frames.pop()
        visit = self.visits.get(label, 0) + 1
        self.visits[label] = visit
        self.frames.append(Frame(label, visit))

    def leave(self) -> None:
        """Back to the enclosing step; a step with none around it stays, for what still belongs to it."""
        self.frames[-1].open = False
        if len(self.frames) > 2:
            self.frames.pop()

    def place(self, attempt: int = 1) -> Place:
        top = self.frames[-1]
        return Place(self.path, top.label, top.visit, -1, attempt)

    def next_effect(self) -> Key:
        top = self.frames[-1]
        top.effects += 1
        return (self.path, top.label, top.visit, top.effects - 1)

    def next_event(self) -> tuple[tuple[str, str, int], int]:
        top = self.frames[-1]
        top.events += 1
        return (self.path, top.label, top.visit), top.events - 1


class Recorded:
    """A journal, indexed by place."""

    def __init__(self, entries: Iterable[Entry], inherited: int, *, checkpoints: bool = True) -> None:
        self.inputs: dict[str, Any] = {}
        self.settings = Settings()
        self.outcomes: dict[Key, Entry] = {}
        self.intents: dict[Key, int] = {}
        self.asked: dict[Key, int] = {}
        self.opened: dict[tuple[Key, str], WaitOpened] = {}
        self.closed: dict[str, WaitClosed] = {}
        self.told: dict[tuple[str, str, int], int] = defaultdict(int)
        self.edits: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.checkpoints: dict[str, Checkpointed] = {}
        self.branches: dict[str, BranchFinished] = {}
        self.cancel: CancelRequested | None = None
        self.finished: RunFinished | None = None
        self._effects_left: dict[str, int] = defaultdict(int)
        self._events_left: dict[str, int] = defaultdict(int)
        self._inherited = inherited
        self._from_checkpoints = checkpoints
        entries = list(entries)
        self.rewinds = sum(isinstance(entry.event, Rewound) for entry in entries)
        for entry in without_void(entries):
            self._add(entry)
        if checkpoints:
            for path in self.branches:
                self._effects_left[path] = self._events_left[path] = 0

    def _add(self, entry: Entry) -> None:
        event, place = entry.event, entry.place
        key = (place.path, place.step, place.visit, place.index)
        match event:
            case Performed():
                self.outcomes[key] = entry
                self._effects_left[place.path] += 1
            case Performing():
                if entry.seq >= self._inherited:  # a fork redoes what its parent had only begun
                    self.intents[key] = place.attempt
            case ModelAsked():
                self.asked[key] = place.attempt
            case WaitOpened():
                if entry.seq >= self._inherited:
                    self.opened[key, event.purpose] = event
            case WaitClosed():
                self.closed[event.wait] = event
                self.settings = self.settings.edited(event.answer.get("settings", {}))
            case BranchFinished():
                self.branches[place.path] = event
            case Checkpointed() if self._from_checkpoints:
                self.checkpoints[place.path] = event
                self._effects_left[place.path] = self._events_left[place.path] = 0
            case RunStarted():
                self.inputs, self.settings = event.inputs, self.settings.edited(event.settings)
            case Forked():
                self.edits[event.path, event.step, event.visit] = event.values
                self.settings = self.settings.edited(event.settings)
                self.cancel = None
            case CancelRequested():
                self.cancel = event
            case RunFinished():
                self.finished = event
            case _ if isinstance(event, TOLD) and place.index < 0:  # a performer's warning is no event of the program
                self.told[place.path, place.step, place.visit] += 1
                self._events_left[place.path] += 1
            case _:
                pass

    def cursor(self, path: str) -> Cursor:
        """Where a branch begins to be replayed."""
        checkpoint = self.checkpoints.get(path)
        return msgspec.convert(checkpoint.cursor, Cursor) if checkpoint else Cursor(path)

    def state(self, path: str) -> Any:
        checkpoint = self.checkpoints.get(path)
        return checkpoint.state if checkpoint else None

    def outcome(self, key: Key, effect: Effect) -> Entry | None:
        """The recorded outcome of the effect at this place, if it is the same effect."""
        entry = self.outcomes.get(key)
        if entry is None:
            return None
        recorded: str = entry.event.fingerprint  # type: ignore[union-attr]
        if recorded != effect.fingerprint:
            same_kind = recorded.partition(" ")[0] == effect.kind
            if not (same_kind and entry.seq < self._inherited):
                raise NonDeterminism(
                    f"At {Place(*key)} the journal holds '{recorded}', but the program now asks '{effect.fingerprint}'.",
                    fix="Run it with the version it was started with, or restart it from that step.",
                )
        self._effects_left[key[0]] -= 1
        return entry

    def was_told(self, where: tuple[str, str, int], number: int) -> bool:
        if number >= self.told.get(where, 0):
            return False
        self._events_left[where[0]] -= 1
        return True

    def past(self, path: str) -> bool:
        """Whether the branch still has records ahead of it."""
        return self._effects_left.get(path, 0) > 0 or self._events_left.get(path, 0) > 0

    def require_end(self, key: Key, effect: Effect) -> None:
        """A program that asks for something new before it has used what was recorded took another way."""
        if self._effects_left.get(key[0], 0) > 0:
            raise NonDeterminism(
                f"At {Place(*key)} the program asks '{effect.fingerprint}', which its journal does not hold,"
                " while recorded outcomes are left over.",
                fix="Run it with the version it was started with, or restart it from that step.",
            )
