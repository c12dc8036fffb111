"""How far a run is, in words: its plan, the step it is at, and what it has used so far.

It is fed with what happens and draws nothing: where the words go is for the view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from cuebook.kernel.events import (
    Driven,
    ModelAsked,
    Noted,
    Performed,
    Performing,
    Planned,
    PlannedStep,
    RunFinished,
    StepFinished,
    StepStarted,
    Suspended,
    TextChunk,
    TextReset,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Failed, Reply, Usage
from cuebook.kernel.run import RunRow, StepRow
from cuebook.performers.models.tokens import estimate_text
from cuebook.surfaces import wording
from cuebook.surfaces.summaries import note_words

MOST = 12
"""Steps that a list shows."""

MARKS = {"completed": "✓", "failed": "✗", "skipped": "–", "pending": "·", "in_doubt": "?"}
_DOING = {"RunCommand": "running", "SendHttp": "sending"}
_UNDER_WAY = "›"
_ASCII = str.maketrans({"✓": "+", "✗": "x", "–": "-", "·": ".", "›": ">", "…": "~"})


def in_ascii(text: str) -> str:
    """For terminals that know no other marks."""
    return text.translate(_ASCII)


class Progress:
    """How far one run is."""

    def __init__(
        self,
        row: RunRow,
        steps: Sequence[StepRow] = (),
        plan: Sequence[PlannedStep] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._titles = {step.label: step.title for step in plan} | {step.label: step.title for step in steps}
        self._plan = [step.label for step in plan]
        self._totals = msgspec.structs.replace(row.totals)
        self._driven = clock()
        """Since when the run is driven this time."""
        self._at = 0
        """The step of the plan that it is at, counted from 1."""
        self._label = ""
        self._since = clock()
        self._doing = ""
        self._written = ""
        """What has come of the reply under way."""
        self.running = False

    def see(self, event: Entry | TextChunk | TextReset) -> None:
        if isinstance(event, TextChunk):
            self._doing = "writing"
            self._written += event.text
        elif isinstance(event, TextReset):
            self._written = ""
        else:
            self._entry(event)

    def _entry(self, entry: Entry) -> None:
        match entry.event:
            case Planned(steps=steps):
                self._plan = [step.label for step in steps]
                self._titles |= {step.label: step.title for step in steps}
            case StepStarted(label=label, title=title):
                self._titles[label] = title
                self._come_to(label, entry.place.visit)
            case ModelAsked(model=model):
                self._act(entry, f"asking {model}")
            case Noted(name="model_attempt" as name, data=data):
                self._act(entry, note_words(name, data))
            case Performing(effect=effect):
                doing = _DOING.get(effect.kind, "calling")
                self._act(entry, f"{doing} {effect.subject}" if effect.subject else "at work")
            case Performed(outcome=outcome):
                self._count(outcome)
                self._doing, self._written = "", ""
            case StepFinished(label=label):
                if not self._label:  # it was taken up within the step
                    self._come_to(label, entry.place.visit)
                    self.running = False
                self._doing, self._written = "", ""
            case Driven():
                self._driven = self._clock()
            case Suspended() | RunFinished():
                self._totals.seconds += self._clock() - self._driven
                self.running = False
            case _:
                pass

    def _come_to(self, label: str, visit: int) -> None:
        self._label, self._since, self._doing = label, self._clock(), ""
        self.running = True
        places = [number for number, one in enumerate(self._plan, start=1) if one == label]
        if places:  # a sub-step is where the step around it is
            self._at = places[min(max(visit, 1), len(places)) - 1]

    def _act(self, entry: Entry, doing: str) -> None:
        if entry.place.step and (not self.running or entry.place.step != self._label):
            self._come_to(entry.place.step, entry.place.visit)
        self.running = True
        self._doing, self._written = doing, ""

    def _count(self, outcome: object) -> None:
        if isinstance(outcome, Reply):
            self._totals.add(outcome.usage)
        elif isinstance(outcome, Failed) and outcome.details.get("usage"):
            self._totals.add(msgspec.convert(outcome.details["usage"], Usage))

    # --- in words ---

    def title_of(self, label: str) -> str:
        return self._titles.get(label, "")

    def number(self) -> str:
        """The step it is at, and how many there are."""
        if not self._at:
            return self._label
        of = f"{self._at} of {len(self._plan)}"
        return of if self._label == str(self._at) else f"{self._label} ({of})"

    def line(self) -> str:
        """Everything at once, for a line that is shown while a step runs."""
        now = self._clock()
        step = " ".join(part for part in ("step", self.number(), self._doing) if part)
        tokens = self._totals.output + estimate_text(self._written).likely
        about = "~" if self._written else ""
        parts = [
            f"{step}, {_seconds(now - self._since)}",
            f"tokens {self._totals.input:,} in, {about}{tokens:,} out",
            _cost(wording.cost_of(self._totals)),
            f"in all {_seconds(self._totals.seconds + now - self._driven)}",
        ]
        return "   ".join(parts)


def _cost(words: str) -> str:
    return "cost unknown" if words == "unknown" else words


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else wording.duration(seconds)


# --- lists of steps -------------------------------------------------------------------------------------


def plan_lines(plan: Sequence[PlannedStep], steps: Sequence[StepRow]) -> list[str]:
    """The plan at the beginning: every step with its mark; a long one without what is done and what is far off."""
    statuses = {(step.label, step.visit): step.status for step in steps}
    visits: dict[str, int] = {}
    lines: list[tuple[str, str]] = []
    for planned in plan:
        visits[planned.label] = visits.get(planned.label, 0) + 1
        status = statuses.get((planned.label, visits[planned.label]), "pending")
        lines.append((status, f"{_mark(status)} {_named(planned)}"))
    if len(lines) <= MOST:
        return [words for _, words in lines]
    done = next((number for number, (status, _) in enumerate(lines) if status != "completed"), len(lines))
    shown = [words for _, words in lines[done : done + MOST - 2]]
    before = [f"{_mark('completed')} {wording.counted(done, 'step')}"] if done else []
    left = len(lines) - done - len(shown)
    return [*before, *shown, *([f"{_mark('pending')} and {left:,} more"] if left else [])]


def outcome_lines(steps: Sequence[StepRow]) -> list[str]:
    """The steps at the end, where not all of them were completed; of many, those that were not."""
    if all(step.status in ("completed", "pending") for step in steps) or len(steps) < 2:
        return []
    told = steps if len(steps) <= MOST else [step for step in steps if step.status != "completed"]
    lines = [f"{_mark(step.status)} {_named(step)}{_why(step)}" for step in told[:MOST]]
    left = len(told) - len(lines)
    return [*lines, *([f"… and {left:,} more"] if left else [])]


def _named(step: PlannedStep | StepRow) -> str:
    """One without a title of its own has its label as one."""
    return f"{step.label}  {step.title}" if step.title != step.label else step.label


def _mark(status: str) -> str:
    return MARKS.get(status, _UNDER_WAY)


def _why(step: StepRow) -> str:
    status = step.status.replace("_", " ")
    return "" if step.status in ("completed", "pending") else f"  {status}"
