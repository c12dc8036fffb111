"""Indexes a journal for replay: outcomes by place, and where each branch begins.

Pure: it reads entries, answers look-ups and performs nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.kernel.effects import Effect
from cuebook.kernel.errors import NonDeterminism
from cuebook.kernel.events import (
    YIELDED_EVENTS,
    AnyEvent,
    BranchFinished,
    CancelRequested,
    Checkpointed,
    Driven,
    Forked,
    ModelAsked,
    Moved,
    Noted,
    Performed,
    Performing,
    PinnedPlaybook,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
    TextEdit,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import ROOT, Entry, Key, Place, parent_key, without_void
from cuebook.kernel.outcomes import CHILD, USED, Failed, PlaybookResult
from cuebook.kernel.run import RunOverride, Settings, overrides_in


class Frame(msgspec.Struct, gc=False):
    """A visit to a step: how many effects and events it has yielded."""

    label: str = ""
    visit: int = 0
    effects: int = 0
    events: int = 0
    open: bool = True


class Cursor(msgspec.Struct, gc=False):
    """The position of a branch: its open steps, and the number of visits to each step."""

    path: str = ROOT
    frames: list[Frame] = msgspec.field(default_factory=lambda: [Frame()])
    visits: dict[str, int] = {}
    cancelled: bool = False
    """Whether the branch has received its cancellation; everything that it yields afterwards is rollback."""

    def enter(self, label: str) -> None:
        top = self.frames[-1]
        if not top.open and len(self.frames) > 1:
            self.frames.pop()
        visit = self.visits.get(label, 0) + 1
        self.visits[label] = visit
        self.frames.append(Frame(label, visit))

    def leave(self) -> None:
        """Returns to the enclosing step. The outermost step stays, for later records that belong to it."""
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
    """A journal, indexed by place. A look-up consumes the records of its branch."""

    def __init__(self, entries: Iterable[Entry], inherited: int, *, checkpoints: bool = True) -> None:
        self.inputs: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.settings = Settings()
        self.policy: str | None = None
        self.overrides: list[RunOverride] = []
        """The approvals in advance for this run. A fork asks again: they were given for its parent."""
        self.outcomes: dict[Key, Entry] = {}
        self.intents: dict[Key, int] = {}
        """The last attempt of each effect that can change the world."""
        self.begun: dict[Key, tuple[int, float]] = {}
        """The number and the time of the record of that attempt."""
        self.doubtful: dict[Key, tuple[Effect, int]] = {}
        """Effects that began and have no outcome."""
        self.begun_by: dict[Key, str] = {}
        """The driver that wrote the last intent of each effect, if that part of the journal was read."""
        self._driver = ""
        self.asked: dict[Key, int] = {}
        """The last attempt of each model call."""
        self.opened: dict[tuple[Key, str], WaitOpened] = {}
        self.opened_at: dict[str, float] = {}
        """When each wait was opened."""
        self.closed: dict[str, WaitClosed] = {}
        self.retried: Counter[Key] = Counter()
        """Places of failures before the run was retried, and how often each effect failed."""
        self.uses: dict[str, str] = {}
        self.pinned: dict[str, PinnedPlaybook] = {}
        """The playbooks that the run may start as children: their digests by name, and the playbooks by digest."""
        self.reported: dict[Key, Counter[str]] = {}
        """What the child of each effect has reported as used."""
        self.edits: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.checkpoints: dict[str, Checkpointed] = {}
        self.branches: dict[str, BranchFinished] = {}
        self.cancel: CancelRequested | None = None
        self.finished: RunFinished | None = None
        self._begun: dict[Key, str] = {}
        """Fingerprints of effects that have begun, with or without an outcome."""
        self._before_steps: dict[Key, list[str]] = {}
        self._event_counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._effects_left: dict[str, set[Key]] = defaultdict(set)
        self._events_left: dict[str, int] = defaultdict(int)
        self._inherited = inherited
        self._is_edited = False
        self.kept: tuple[str, ...] = ()
        """The steps that an edited run takes over from its parent when it reaches them, without those that it has reached."""
        self.parent = ""
        begun: set[str] = set()
        self._from_checkpoints = checkpoints
        entries = list(entries)
        rewinds = [entry.event for entry in entries if isinstance(entry.event, Rewound)]
        self.rewinds = sum(not event.same for event in rewinds)
        self.rewound = len(rewinds)
        for entry in entries:
            self._set(entry.event)
            if entry.seq == inherited and isinstance(entry.event, Forked) and entry.event.edit is not None:
                self.kept, self.parent = entry.event.edit.kept, entry.event.parent
            elif entry.seq > inherited and isinstance(entry.event, _ENTERING):
                begun.add(entry.event.label)
            if isinstance(entry.event, WaitClosed) and entry.seq >= inherited:
                self.overrides += overrides_in(entry.event.answer, entry.event.by, entry.at)
            used = used_by_child(entry.event)
            if used:
                self.reported.setdefault(entry.place.key, Counter()).update(used)
        self.kept = tuple(label for label in self.kept if label not in begun)
        valid = without_void(entries) if rewinds else entries
        for entry in valid:
            self._add(entry)
        if rewinds:
            kept = {entry.seq for entry in valid}
            void = (entry for entry in entries if entry.seq not in kept)
            self.retried = Counter(entry.place.key for entry in void if _has_failed(entry.event))

    def _set(self, event: AnyEvent) -> None:
        """Applies settings. Users chose them, so a rewind does not undo them."""
        match event:
            case RunStarted():
                self.inputs, self.settings = event.inputs, self.settings.edited(event.settings)
                self.options = self.settings.options
                self._pin(event)
                self.policy = None if event.policy is None else str(event.policy)
            case Forked():
                self.settings = self.settings.edited(event.settings)
                if event.edit is not None:
                    self.inputs, self.options = event.edit.inputs, self.settings.options
                    self._pin(event.edit)
            case Moved():
                place = {"workspace": event.workspace, "workspace_label": event.workspace_label, "folder": event.folder}
                self.settings = self.settings.edited(place)
            case WaitClosed():
                self.settings = self.settings.edited(event.answer.get("settings", {}))
            case _:
                pass

    def _pin(self, event: RunStarted | TextEdit) -> None:
        self.uses, self.pinned = event.uses, event.pinned
        if event.uses:
            self.options = {
                **self.options,
                PLAYBOOKS: {name: event.pinned[one].about for name, one in event.uses.items()},
            }

    def _add(self, entry: Entry) -> None:
        event, place = entry.event, entry.place
        path = place.path
        key = (path, place.step, place.visit, place.index)
        if path != ROOT and path not in self._effects_left:
            parent = parent_key(path)
            self._begin(parent, ALL)
        own = entry.seq >= self._inherited  # a fork redoes what its parent had only begun
        match event:
            case Performed():
                self.outcomes[key] = entry
                self.doubtful.pop(key, None)
                self._begin(key, event.fingerprint)
            case Driven():
                self._driver = event.driver
            case Performing() if own:
                self.intents[key], self.begun_by[key] = place.attempt, self._driver
                self.begun[key] = (entry.seq, entry.at)
                self.doubtful[key] = (event.effect, place.attempt)
                self._begin(key, event.fingerprint)
            case ModelAsked() if own:
                self.asked[key] = place.attempt
                self._begin(key, event.fingerprint)
            case Noted(name="key_rejected") if own and place.index >= 0:
                self.asked[key] = place.attempt - 1  # it does not count as an attempt that was lost
            case WaitOpened() if own:
                self.opened[key, event.purpose] = event
                self.opened_at[event.wait] = entry.at
                if event.kind == "secret" and key == Place().key:  # belongs to the run, not to an effect of its program
                    return
                self._effects_left[path].add(key)
                if place.index < 0:
                    self._before_steps.setdefault(key, []).append(event.wait)
            case WaitClosed():
                self.closed[event.wait] = event
            case BranchFinished():
                self.branches[path] = event
            case Checkpointed() if self._from_checkpoints:
                self._restart(path, event)
            case Forked():
                self.edits[event.path, event.step, event.visit] = event.values
                self.cancel = None
                if event.edit is not None:  # what it yields before its first step differs from text to text
                    self._events_left[ROOT] -= self._event_counts[_BEFORE_STEPS]
                    self._event_counts[_BEFORE_STEPS] = 0
                    self._is_edited = True
            case CancelRequested():
                self.cancel = event
            case RunFinished():
                self.finished = event
            case _ if (
                isinstance(event, YIELDED_EVENTS) and place.index < 0
            ):  # a performer's warning is not an event of the program
                self._event_counts[path, place.step, place.visit] += 1
                self._events_left[path] += 1
            case _:
                pass

    def take_over(self, entries: Iterable[Entry]) -> None:
        """Adds records of a step that were copied from the parent, before the program reaches it."""
        for entry in entries:
            self._add(entry)

    def _begin(self, key: Key, fingerprint: str) -> None:
        self._begun[key] = fingerprint
        self._effects_left[key[0]].add(key)

    def _restart(self, path: str, event: Checkpointed) -> None:
        """Drops everything before a branch's checkpoint. Its cursor records how many events its open steps had."""
        self.checkpoints[path] = event
        self._effects_left[path], self._events_left[path] = set(), 0
        for frame in self.cursor(path).frames:
            self._event_counts[path, frame.label, frame.visit] = frame.events

    def cursor(self, path: str, *, cancelled: bool = False) -> Cursor:
        """The position where the replay of a branch begins."""
        checkpoint = self.checkpoints.get(path)
        return msgspec.convert(checkpoint.cursor, Cursor) if checkpoint else Cursor(path, cancelled=cancelled)

    def state(self, path: str) -> Any:
        """The state that a branch starts with."""
        checkpoint = self.checkpoints.get(path)
        if checkpoint is None:
            return None
        return (checkpoint.state, checkpoint.texts) if checkpoint.texts else checkpoint.state

    def take(self, key: Key, fingerprint: str) -> Entry | None:
        """The recorded outcome of the effect at this place. Raises `NonDeterminism` if the journal has a different effect."""
        recorded = self._begun.get(key)
        if recorded is not None and recorded != fingerprint:
            entry = self.outcomes.get(key)
            same_kind = recorded.partition(" ")[0] == fingerprint.partition(" ")[0]
            if not (same_kind and entry is not None and entry.seq < self._inherited):
                raise NonDeterminism(
                    f"At {Place(*key)} the journal contains '{recorded}', but the program now asks for '{fingerprint}'.",
                    fix=_OTHER_WAY,
                )
        self._effects_left[key[0]].discard(key)
        return self.outcomes.get(key)

    def was_recorded(self, where: tuple[str, str, int], number: int) -> bool:
        if self._is_edited and where == _BEFORE_STEPS:
            return True
        if number >= self._event_counts.get(where, 0):
            return False
        self._events_left[where[0]] -= 1
        return True

    def tell(self, cursor: Cursor, event: AnyEvent, *, live: bool = False) -> tuple[Place, bool, Any]:
        """Moves a branch past an event that it yields; returns its place, whether it was recorded before, and the
        reply."""
        starts = type(event) is StepStarted
        if isinstance(event, _ENTERING):
            cursor.enter(event.label)
        where, number = cursor.next_event()
        place = cursor.place()
        if starts:
            self._effects_left[cursor.path].discard((*where, -1))  # it may have waited before its first effect
        recorded = not live and self.was_recorded(where, number)
        if isinstance(event, _LEAVING):
            cursor.leave()
        return place, recorded, self.edits.get(where, {}) if starts else None

    def has_begun(self, path: str) -> bool:
        """Whether the journal has records of a branch."""
        return any(path in found for found in (self._events_left, self._effects_left, self.checkpoints, self.branches))

    def waits_at(self, key: Key) -> bool:
        """Whether a step waits before its first effect."""
        return any(wait not in self.closed for wait in self._before_steps.get(key, ()))

    def past(self, path: str) -> bool:
        """Whether the branch still has records ahead of it."""
        return bool(self._effects_left.get(path)) or self._events_left.get(path, 0) > 0

    def require_spent(self, path: str, asks: str) -> None:
        """Raises `NonDeterminism` if a program asks for something new, or ends, before it has used all its records."""
        left = self._effects_left.get(path)
        if left:
            key = min(left)
            raise NonDeterminism(
                f"The journal contains '{self._begun.get(key, 'a wait')}' at {Place(*key)}, but the program now {asks}.",
                fix=_OTHER_WAY,
            )


PLAYBOOKS = "playbooks"
"""The option that tells a program about the playbooks it may start, by the name that its author wrote."""


def used_by_child(event: AnyEvent) -> dict[str, float]:
    """What a child run has used, if the event is its outcome."""
    outcome = event.outcome if isinstance(event, Performed) else None
    if isinstance(outcome, PlaybookResult):
        return outcome.used
    return outcome.details.get(USED, {}) if isinstance(outcome, Failed) and CHILD in outcome.details else {}


def _has_failed(event: AnyEvent) -> bool:
    return isinstance(event, Performed) and isinstance(event.outcome, Failed)


_BEFORE_STEPS = (ROOT, "", 0)
_ENTERING = (StepStarted, StepSkipped)
_LEAVING = (StepFinished, StepSkipped)
ALL = "All"
_OTHER_WAY = "Run it with the version it was started with, or restart it from that step."
