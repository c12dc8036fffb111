"""A run as its page shows it, folded from its journal, one entry at a time.

The page is rendered from the picture after the last entry, the stream from the changes of each entry, so both show the
same thing. No HTML here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Input
from cuebook.kernel.capabilities import in_words
from cuebook.kernel.context import Text
from cuebook.kernel.engine.waits import NEEDS
from cuebook.kernel.events import (
    ENDED,
    STATUS_OF_WAIT,
    WAITING,
    ArtifactMade,
    CancelRequested,
    Driven,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    Planned,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    ValueSet,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.fold.state import RunState, before_first_record
from cuebook.kernel.journal import ROOT, Entry, Place, parent_key, same_line
from cuebook.kernel.outcomes import CommandResult, Failed, Reply, Resumed
from cuebook.kernel.run import RunOverride, RunRow, StepRow, WaitRow, overrides_in, stopped
from cuebook.service.runs.items import OVER
from cuebook.service.runs.objects import INTERRUPTED
from cuebook.service.runs.views import Answers, Nesting, changed_words
from cuebook.service.stream import Calls
from cuebook.surfaces.display import FOR_ASSISTANT
from cuebook.surfaces.web.live.calls import ShownCalls
from cuebook.surfaces.web.live.cards import BUSY, Card, Key, WorkTime, inside, slug, within
from cuebook.surfaces.web.live.loops import Loops

_NOT_FOR_PEOPLE = ("timer", "message", "needs")
_LIVE_NOTES = {"model_attempt": "The model is called again, ", "model_waiting": "The call to the model "}
"""Notes that are shown while a step runs, with the words before each."""
_UNSEEN = "__"
"""The name of a variable that readers do not see."""
FEW = 3
"""So many steps that are still to come are shown; more are folded."""


@dataclass
class Changes:
    """What one entry changed in the picture; the stream is rendered from this."""

    new: list[Card] = field(default_factory=list)
    statuses: list[Card] = field(default_factory=list)
    again: list[Card] = field(default_factory=list)
    """Cards whose text started again, or that must be drawn again."""
    gone: list[Card] = field(default_factory=list)
    rendered: Card | None = None
    parted: Card | None = None
    """The card in which a second text starts after the first."""
    values: list[tuple[str, Any, str]] = field(default_factory=list)
    """Names, values, and the keys of their steps."""
    opened: WaitRow | None = None
    closed: WaitRow | None = None
    noted: list[Card] = field(default_factory=list)
    """Cards with new content and the same status."""
    lost: list[Entry] = field(default_factory=list)
    """Model calls that ended without a reply."""
    calls: dict[str, Card | None] = field(default_factory=dict)
    """The keys of tool calls that are new or changed, each with its card; None if it is not shown any more."""
    plans: list[Card] = field(default_factory=list)
    """Cards whose plan changed, or how many of their tool calls are shown."""
    run: bool = False
    """Whether the run itself changed: it was cancelled, or continues after its end."""
    ended: bool = False


class Picture:
    """Everything that the page shows about one run."""

    def __init__(
        self,
        row: RunRow,
        title: str = "",
        *,
        order: Sequence[str] = (),
        talks: bool = False,
        makes: str = "",
        is_markdown: bool = False,
        branches: Mapping[str, str] | None = None,
        declared: Iterable[Input] = (),
    ) -> None:
        """`row` identifies the run; everything else comes from its entries. `makes` is its playbook's artifact type,
        `branches` has the conditions of the branches that steps belong to, by label.

        With an `order` of labels a step has one card, which shows its last visit, so the page stays small however long the
        run is. With `is_markdown`, outputs are Markdown even if no model wrote them.
        """
        self._tally = RunState(before_first_record(row))
        self.title = title or row.name
        self.talks = talks
        """Whether a panel shows its questions."""
        self.makes = makes
        self.is_markdown = is_markdown
        self.declared = {one.name: one for one in declared}
        """The inputs that its playbook declares."""
        self.interrupted = False
        """Whether no process is driving it; the journal does not record this."""
        self.waits_for = ""
        """What it waits for although it has work to do, such as a worker; the journal does not record this either."""
        self._rank = {label: place for place, label in enumerate(order)}
        self.cards: dict[Key, Card] = {}
        self.order: list[Card] = []
        self.inputs: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.notes: list[str] = []
        """Warnings without a step."""
        self.loops = Loops()
        self.branches = branches or {}
        self.calls = ShownCalls()
        self._counts: Counter[str] = Counter()
        """How many cards have each status."""
        self._at_work: dict[Card, None] = {}
        self._begun: dict[Card, None] = {}
        """The cards that have started, in that order."""
        self._unfolded: dict[Card, None] = {}
        """The same without items of loops that are over."""
        self.waits: dict[str, WaitRow] = {}
        """Open waits for people."""
        self._holders: dict[str, Card] = {}
        """The cards of waits."""
        self.overrides: list[RunOverride] = []
        """What was allowed for this run in advance."""
        self.revoked: Collection[str] = ()
        """The ids of those that were revoked; the journal does not record this."""
        self.artifact: ArtifactMade | None = None
        self.result: Any = None
        self.cancelled_by: str | None = None
        self.finished: float | None = None
        self._rewound = False
        self.seq = 0
        self.work = WorkTime()
        self.elapsed = 0.0
        """How long the run was running, without waits, until `since`."""
        self.since: float | None = None
        """Since when it is running; None if it waits or has ended."""
        self._last = 0.0
        self._unfinished: dict[Card, None] = {}
        self.latest: Card | None = None
        """The card that was started last."""
        self._before: dict[int, tuple[Card, str | None]] = {}
        self._calls = Calls()
        self._answers = Answers()
        self._nesting = Nesting()
        self._begins = 0
        """A fork's first own record; earlier ones are its parent's."""
        self._by_person: dict[str, Any] = {}
        """Values that a person changed and the program has not confirmed yet."""

    @property
    def row(self) -> RunRow:
        return self._tally.row

    @property
    def status(self) -> str:
        """The status on the page: a run is waiting as soon as none of its steps is working."""
        if self.interrupted:
            return INTERRUPTED
        if self.ended or (self.row.caller and self.row.status in WAITING):  # its parent lists what it waits for
            return self.row.status
        if self.rests:
            return "paused"
        kinds = {wait.kind for wait in self.waits.values()}
        if kinds and all(self._holds_wait(card) for card in self._at_work):
            return next(run for kind, (run, _) in STATUS_OF_WAIT.items() if kind in kinds)
        return "pending" if self.row.status == "pending" else "running"

    @property
    def status_words(self) -> str:
        """What the status means here, if it is not what its name says."""
        if self.rests and not self.interrupted:
            return f"waiting for {in_words(self.row.needs)}"
        kinds = {wait.kind for wait in self.waits.values()}
        return FOR_ASSISTANT if "model" in kinds and "question" not in kinds and self.status == "awaiting_input" else ""

    @property
    def rests(self) -> bool:
        """Whether no process drives it until one offers what it needs, such as the connection of a node."""
        return self.row.status == "paused" and self.row.reason == NEEDS

    def step_status(self, place: Place) -> str:
        """The status of the step at a place."""
        card = self.card(place.path, place.step, place.visit)
        return card.status if card is not None else "pending"

    def status_of(self, card: Card) -> str:
        """The status of a card as a page shows it: no step is working in a run that no process is driving."""
        if card.status not in BUSY:
            return card.status
        return INTERRUPTED if self.interrupted else "paused" if self.rests else card.status

    def _holds_wait(self, card: Card) -> bool:
        """Whether a step can continue only when a wait ends, on its branch or below."""
        return any(wait.place.path.startswith(card.row.path) for wait in self.waits.values())

    @property
    def ended(self) -> bool:
        """True from its end until it is rewound; the row changes only when it is driven again."""
        return self.row.status in ENDED and not self._rewound

    @property
    def has_output(self) -> bool:
        """Whether any step has an output."""
        return any(card.output is not None and card.row.status == "completed" for card in self.order)

    @property
    def loose_waits(self) -> list[WaitRow]:
        """The waits without a card."""
        return [wait for wait in self.waits.values() if self._holder(wait) is None]

    @property
    def at_work(self) -> list[Card]:
        """The cards of steps that are working."""
        return list(self._at_work)

    def latest_begun(self, most: int) -> list[Card]:
        """The cards that were started last, without those that are folded, in that order."""
        return list(islice(reversed(self._unfolded if self.loops.is_long else self._begun), most))[::-1]

    @property
    def tops(self) -> list[Card]:
        """The cards that are in no other card."""
        return [card for card in self.order if card.parent is None]

    @property
    def to_come(self) -> int:
        """How many steps the run has not reached."""
        return sum(card.is_unreached for card in self.order) if self.ended else self._counts["pending"]

    @property
    def sub_steps(self) -> int:
        """How many sub-steps were completed. They are not counted as steps."""
        return sum(1 for card in self.order if card.parent is not None and card.row.status == "completed")

    @property
    def answer(self) -> tuple[Card | None, Text] | None:
        """The result as text, with the card that shows it: the artifact, or the output of the last completed step."""
        ended = [card for card in self.tops if card.output is not None and card.row.status == "completed"]
        last = max(ended, key=lambda card: (card.row.finished or 0.0, card.row.seq), default=None)
        if self.artifact is not None:
            same = last is not None and last.output is not None and last.output.digest == self.artifact.content.digest
            return (last if same else None), self.artifact.content
        return (last, last.output) if last is not None and last.output is not None else None

    @property
    def failed(self) -> Card | None:
        """The step that ended the run: the innermost one that failed last."""
        ended = [card for card in self.order if card.row.status == "failed"]
        return max(ended, key=lambda card: card.row.seq, default=None)

    def streams(self, card: Card) -> int:
        """How many model calls of a card are open."""
        return sum(1 for asked in self._calls.open.values() if self.card_at(asked.place) is card)

    def _holder(self, wait: WaitRow) -> Card | None:
        card = self._holders.get(wait.id)
        return card if card is not None and wait.id in card.waits else None

    def card(self, path: str, label: str, visit: int) -> Card | None:
        return self.cards.get(self._key((path, label, visit)))

    def card_at(self, place: Place) -> Card | None:
        """The innermost card that contains this place."""
        path, label, visit = place.path, place.step, place.visit
        while True:
            card = self.card(path, label, visit)
            if card is not None or path == ROOT:
                return card
            path, label, visit, _ = parent_key(path)

    def apply(self, entry: Entry) -> Changes:
        """Apply the next entry, and return what it changed."""
        changes = Changes()
        self.seq = entry.seq
        self._before = {}
        self.work.advance(entry.at, self._busy())
        self.work.see(entry)
        replans = isinstance(entry.event, Forked) and entry.event.edit is not None
        if replans:
            self._replan(changes)
        rested = self.rests
        self._tally.apply(entry)
        if self.rests != rested:
            changes.run = True
            changes.noted += self.at_work
        _, rows, dropped = self._tally.take_changes()
        for seq, path in dropped:
            self._drop(seq, path, changes)
        for row in rows:
            self._keep(row, changes, planned=replans or isinstance(entry.event, Planned))
        self._fold(entry, changes)
        self._clock(entry)
        touched = [(card, status) for card, status in self._before.values() if card not in changes.gone]
        changes.statuses = [card for card, status in touched if status != card.status]
        return changes

    # --- inside ---

    def _clock(self, entry: Entry) -> None:
        """Start or stop the clock when the run begins to run, to wait or to be driven by another process."""
        last, self._last = self._last, entry.at
        if isinstance(entry.event, Forked):  # the parent's time does not count
            self.elapsed, self.since = 0.0, None
        running = self.status == "running"
        if self.since is not None and (not running or isinstance(entry.event, Driven)):
            self.elapsed += max(0.0, (last if running else entry.at) - self.since)
            self.since = None
        if running and self.since is None:
            self.since = entry.at

    def _busy(self) -> list[str]:
        """The innermost steps that are working, or in which a suspended run is waiting; otherwise the last step."""
        holders = (self._holder(wait) for wait in self.waits.values()) if self.work.waits else ()
        cards = list(dict.fromkeys(card for card in holders if card is not None))
        if not (self.work.waits and self.waits):
            cards = list(self._unfinished)
        if len(cards) > 1:
            cards = [card for card in cards if not any(inside(other.row, card.row) for other in cards)]
        own = self.latest is not None and self.latest.row.seq >= self._begins
        return [card.key for card in cards] or ([self.latest.key] if self.latest is not None and own else [])

    def _replan(self, changes: Changes) -> None:
        """Forget the steps that were planned and not begun: a changed text has a plan of its own."""
        for card in [card for card in self.order if not card.row.seq]:
            self._remove(card, changes)
        self._tally.begun = {card.row.label for card in self.order if card.row.path == ROOT}

    def _touch(self, card: Card, status: str | None = None) -> None:
        """Remember a card's status before this entry."""
        self._before.setdefault(id(card), (card, status))

    def _key(self, key: Key) -> Key:
        return (key[0], key[1], 1) if self._rank else key

    def _keep(self, row: StepRow, changes: Changes, *, planned: bool) -> None:
        key = self._key(row.key)
        card = self.cards.get(key)
        if card is None:
            card = self.cards[key] = Card(row, slug(*key), planned=planned)
            after = self._after(row, planned=planned)
            card.before = self.order[after].key if after >= 0 else ""
            self._nest(card, after, changes, planned=planned)
            self.order.insert(after + 1, card)
            changes.new.append(card)
            self._touch(card)
        else:
            self._count(card, -1)
        self._touch(card, card.status)
        if card.row.visit < row.visit:
            self._visit_again(card, changes)
        begins = row.status == "running" and card.row.started != row.started
        if row.started != card.row.started or card in changes.new:
            card.begins = self.work.now
        card.row, card.stopped = row, ""
        self._count(card, 1)
        self._time(card)
        if begins or (card in changes.new and row.status != "pending"):
            self.latest = card

    def _count(self, card: Card, by: int) -> None:
        """Count a card with its status; with -1, no longer."""
        self.loops.count(card, by)
        self._counts[card.row.status] += by
        if by > 0 and card.row.status in BUSY:
            self._at_work[card] = None
        else:
            self._at_work.pop(card, None)

    def _nest(self, card: Card, after: int, changes: Changes, *, planned: bool) -> None:
        """Put a new card into that of the step that it is a sub-step of: the innermost one that is open around it."""
        card.parent = None if self._rank or planned else self._around(card.row)
        if card.parent is not None:
            inner = card.parent.inner
            card.follows = inner[-1].key if inner else ""
            inner.append(card)
            words = self.branches.get(card.row.label)
            if words:
                card.parent.chosen[words] = None
                changes.noted.append(card.parent)
            return
        before = self.order[after] if after >= 0 else None
        while before is not None and before.parent is not None:
            before = before.parent
        card.follows = before.key if before is not None else ""

    def _around(self, row: StepRow) -> Card | None:
        path = row.path
        while True:
            found = [one for one in self._unfinished if one.row.path == path and one.row.seq < row.seq]
            if found:
                return found[-1]
            if path == ROOT:
                return None
            path = parent_key(path)[0]

    def _time(self, card: Card) -> None:
        """Record whether a card is open, and when it ended."""
        if card.row.started is None:
            self._begun.pop(card, None)
        else:
            self._begun[card] = None
        if card.row.started is None or (card.in_loop and card.row.status in OVER):
            self._unfolded.pop(card, None)
        else:
            self._unfolded[card] = None
        if card.row.started is not None and card.row.finished is None:
            self._unfinished[card] = None
        else:
            self._unfinished.pop(card, None)
        if card.row.finished is None:
            card.ends = None
        elif card.ends is None:
            card.ends = self.work.now

    def _after(self, row: StepRow, *, planned: bool) -> int:
        """The index after which a new card is inserted."""
        if self._rank:
            places = [self._rank.get(card.row.label, len(self._rank)) for card in self.order]
            place = self._rank.get(row.label, len(self._rank))
            return max((number for number, one in enumerate(places) if one <= place), default=-1)
        return self.order.index(self.latest) if self.latest is not None and not planned else len(self.order) - 1

    def _visit_again(self, card: Card, changes: Changes) -> None:
        """Clear a card for its next visit, and remove the cards on branches of the previous one."""
        card.cost_before += card.row.totals.cost
        card.output, card.errors, card.passed_on, card.attempt, card.plan = None, None, "", None, None
        card.hidden_calls += len(card.calls)
        self.calls.forget(card)
        for held in (card.texts, card.prompts, card.notes, card.answers, card.chosen):
            held.clear()
        changes.again.append(card)
        for other in [one for one in self.order if within(one.row.path, card.row.key)]:
            self._remove(other, changes)

    def _remove(self, card: Card, changes: Changes) -> None:
        """Remove a card, with its sub-steps."""
        if self.cards.pop(self._key(card.row.key), None) is None:
            return
        for one in list(card.inner):
            self._remove(one, changes)
        self._count(card, -1)
        self.order.remove(card)
        self._unfinished.pop(card, None)
        self._begun.pop(card, None)
        self._unfolded.pop(card, None)
        self.calls.forget(card)
        if card.parent is not None:
            card.parent.inner.remove(card)
        changes.gone.append(card)
        if self.latest is card:
            self.latest = self.order[-1] if self.order else None

    def _drop(self, seq: int, path: str, changes: Changes) -> None:
        """Remove everything that a rewind invalidates."""
        changes.run = True
        self.finished, self.artifact, self.result, self.cancelled_by = None, None, None, None
        for card in list(self.order):
            if not same_line(card.row.path, path):
                continue
            self._touch(card, card.status)
            if card.row.seq >= seq and not card.planned:
                self._remove(card, changes)
                continue
            if card.row.seq >= seq:
                row = card.row
                self._count(card, -1)
                card.row = StepRow(row.path, row.label, row.visit, row.title, position=row.position)
                self._count(card, 1)
                card.chosen.clear()
                card.stopped = ""
                self._time(card)
            if card.rewind(seq):
                changes.again.append(card)

    def _fold(self, entry: Entry, changes: Changes) -> None:
        event, card = entry.event, self.card_at(entry.place)
        self._nesting.see(entry)
        answered = self._answers.see(event)
        if answered is not None and card is not None:
            card.answers.append((entry.seq, answered))
            changes.noted.append(card)
        calls, plans = self.calls.see(entry, self)
        changes.calls |= calls
        changes.plans += plans
        under_way = dict(self._calls.open)
        call = self._calls.see(entry)
        replied = call if isinstance(event, Performed) and isinstance(event.outcome, Reply) else None
        self._lose([asked for seq, asked in under_way.items() if seq != replied], changes)
        match event:
            case RunStarted():
                self.inputs, self.settings = dict(event.inputs), dict(event.settings)
            case Forked():
                self.settings |= event.settings
                self._begins = entry.seq
                self.overrides.clear()
                self.waits.clear()
                for kept in self.order:
                    kept.cost_kept += kept.cost
                self._change(entry, event.values, event.owner, changes)
            case ModelAsked() if card is not None:
                self._ask(entry, event, card, changes)
            case Performed(outcome=Resumed(overrides=overrides, by=by)):
                self._change(entry, overrides, by, changes)
            case Performed(outcome=CommandResult() as ran) if card is not None:
                card.errors = ran.stderr if ran.exit_code and len(ran.stderr) else None
            case Performed(outcome=Reply() as reply) if card is not None and call is not None:
                card.texts[call] = reply.text[: reply.released]
            case Performed(outcome=Failed(details={"said": str(said)})) if card is not None and call is not None:
                card.texts[call] = said
            case StepFinished():
                self._finish(entry, event, changes)
            case ValueSet():
                self._hold(entry, event, card, changes)
            case Warned() if card is not None:
                card.notes.append((entry.seq, f"Warning: {event.message}"))
                changes.noted.append(card)
            case Warned():
                self.notes.append(f"Warning: {event.message}")
            case Noted() if card is not None:
                self._note(entry, event, card, changes)
            case ArtifactMade():
                self.artifact = event
            case WaitOpened() if event.kind not in _NOT_FOR_PEOPLE and not self.row.caller:
                changes.opened = self._open(entry, event, card)
            case WaitClosed():
                changes.closed = self._close(event, card)
                if entry.seq >= self._begins:
                    self.overrides += overrides_in(event.answer, event.by, entry.at)
            case CancelRequested():
                self.cancelled_by, changes.run = event.by, True
            case Rewound():
                self._rewound = changes.run = True
            case RunFinished():
                self._end(entry, event, changes)
            case _:
                pass

    def _lose(self, calls: list[Entry], changes: Changes) -> None:
        """Redraw the cards of calls that ended without a reply, with the recorded part of their text."""
        changes.lost = [asked for asked in calls if asked.seq not in self._calls.open]
        cards = [self.card_at(asked.place) for asked in changes.lost]
        changes.again += [card for card in cards if card is not None and card not in changes.again]

    def _ask(self, entry: Entry, event: ModelAsked, card: Card, changes: Changes) -> None:
        if entry.place.attempt > 1:
            card.texts.clear()
            changes.again.append(card)
        elif card.tail:
            changes.parted = card
        card.prompts[entry.seq] = event.prompt
        card.texts[entry.seq] = ""
        if card.row.finished is not None:  # the model chooses the next step
            changes.noted.append(card)

    def _finish(self, entry: Entry, event: StepFinished, changes: Changes) -> None:
        card = self.card(entry.place.path, event.label, entry.place.visit)
        if card is None:
            return
        if event.output is not None:
            card.output, card.passed_on = event.output, self._nesting.passed_on.get(event.label, "")
        if event.output is not None or card.errors is not None:
            changes.rendered = card
        self._release(card, changes)

    def _note(self, entry: Entry, event: Noted, card: Card, changes: Changes) -> None:
        note = registry.note(self.row.dialect, event.name, event.data)
        beginning = _LIVE_NOTES.get(event.name, "")
        match event:
            case Noted("model_attempt", {"number": int(number), "of": int(of)}):
                card.attempt = (entry.seq, number, of)
        if beginning or note.lasting:
            card.notes.append((entry.seq, f"{beginning}{note.words}"))
            changes.noted.append(card)

    def _hold(self, entry: Entry, event: ValueSet, card: Card | None, changes: Changes) -> None:
        """Hold a step's values until it has ended; they are shown after its status."""
        by_person = self._by_person.pop(event.name, self)
        if by_person == event.value:
            return
        if card is not None and card.row.finished is None and card.row.started is not None:
            card.held[event.name] = (entry.seq, event.value)
        else:
            self._set(event.name, event.value, card, changes)

    def _release(self, card: Card, changes: Changes) -> None:
        for name, (_, value) in card.held.items():
            self._set(name, value, card, changes)
        card.held.clear()

    def _set(self, name: str, value: Any, card: Card | None, changes: Changes) -> None:
        if name == _UNSEEN:
            return
        kept = self.inputs if name in self.inputs and name not in self.values else self.values
        kept[name] = value
        changes.values.append((name, value, card.key if card is not None else ""))

    def _change(self, entry: Entry, given: dict[str, Any], by: str, changes: Changes) -> None:
        card = self.card_at(entry.place)
        for name, value in given.items():
            self._by_person[name] = value
            self._set(name, value, card, changes)
            if card is not None:
                card.notes.append((entry.seq, changed_words(name, value, by)))
                changes.noted.append(card)

    def _open(self, entry: Entry, event: WaitOpened, card: Card | None) -> WaitRow:
        row = self.row
        wait = WaitRow(
            id=event.wait,
            run=row.id,
            tenant=row.tenant,
            owner=row.owner,
            place=entry.place,
            kind=event.kind,
            prompt=event.prompt,
            purpose=event.purpose,
            type=event.type,
            options=event.options,
            default=event.default,
            details=event.details,
            opened=entry.at,
            expires=event.expires,
        )
        self.waits[wait.id] = wait
        if card is not None:
            self._touch(card, card.status)
            card.waits[wait.id] = wait
            self._holders[wait.id] = card
        return wait

    def _close(self, event: WaitClosed, card: Card | None) -> WaitRow | None:
        if card is not None and event.wait in card.waits:
            self._touch(card, card.status)
            del card.waits[event.wait]
        self._holders.pop(event.wait, None)
        self.settings |= event.answer.get("settings", {})
        return self.waits.pop(event.wait, None)

    def _end(self, entry: Entry, event: RunFinished, changes: Changes) -> None:
        self.finished, self.result, changes.ended = entry.at, event.result, True
        self._rewound = False
        self.waits.clear()
        self._holders.clear()
        for card in self.order:
            self._touch(card, card.status)
            card.waits.clear()
            card.stopped = stopped(self.row, card.row)
            self._release(card, changes)
            if card.row.status == "pending":
                self._count(card, -1)
                card.row = msgspec.structs.replace(card.row, status="skipped")
                self._count(card, 1)

    def __iter__(self) -> Iterator[Card]:
        return iter(self.order)
