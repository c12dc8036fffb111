"""The progress of a run as text: its plan, the current step, and what it has used so far.

It is updated by events and prints nothing; the view does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from cuebook.dialects.presentation.notes import kernel_note
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
from cuebook.performers.models.model import estimate_text
from cuebook.surfaces import display

MOST = 12
"""The maximum number of steps in a list."""

MARKS = {"completed": "✓", "failed": "✗", "skipped": "–", "pending": "·", "in_doubt": "?"}
_DOING = {"RunCommand": "running", "SendHttp": "sending", "Browse": "browsing", "CallNode": "on a node"}
_UNDER_WAY = "›"
_ASCII = str.maketrans({"✓": "+", "✗": "x", "–": "-", "·": ".", "›": ">", "…": "~"})


def in_ascii(text: str) -> str:
    """The text with ASCII marks, for terminals without Unicode."""
    return text.translate(_ASCII)


class Progress:
    """The progress of one run."""

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
        """When the run was last resumed."""
        self._at = 0
        """The current step of the plan, counted from 1."""
        self._label = ""
        self._since = clock()
        self._doing = ""
        self._written = ""
        """The text of the current reply so far."""
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
            case Noted(name="model_attempt" | "model_fallback" | "model_waiting" | "model_waited" as name, data=data):
                self._act(entry, kernel_note(name, data).words)
            case Performing(effect=effect):
                doing = _DOING.get(effect.kind, "calling")
                self._act(entry, f"{doing} {effect.subject}" if effect.subject else "working")
            case Performed(outcome=outcome):
                self._count(outcome)
                self._doing, self._written = "", ""
            case StepFinished(label=label):
                if not self._label:  # the run was resumed within the step
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
        if places:  # a sub-step is not in the plan and counts as the step around it
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

    # --- as text ---

    def title_of(self, label: str) -> str:
        return self._titles.get(label, "")

    def number(self) -> str:
        """The current step and the number of steps."""
        if not self._at:
            return self._label
        of = f"{self._at} of {len(self._plan)}"
        return of if self._label == str(self._at) else f"{self._label} ({of})"

    def line(self) -> str:
        """The status line that is shown while a step runs."""
        now = self._clock()
        step = " ".join(part for part in ("step", self.number(), self._doing) if part)
        tokens = self._totals.output + estimate_text(self._written).likely
        about = "~" if self._written else ""
        parts = [
            f"{step}, {_seconds(now - self._since)}",
            f"tokens {self._totals.input:,} in, {about}{tokens:,} out",
            _cost(display.cost_of(self._totals)),
            f"total {_seconds(self._totals.seconds + now - self._driven)}",
        ]
        return "   ".join(parts)


def _cost(words: str) -> str:
    return "cost unknown" if words == "unknown" else words


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else display.duration(seconds)


# --- lists of steps -------------------------------------------------------------------------------------


def plan_lines(plan: Sequence[PlannedStep], steps: Sequence[StepRow]) -> list[str]:
    """The plan with a mark for each step. A long plan omits completed steps and those far ahead."""
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
    before = [f"{_mark('completed')} {display.counted(done, 'step')}"] if done else []
    left = len(lines) - done - len(shown)
    return [*before, *shown, *([f"{_mark('pending')} and {left:,} more"] if left else [])]


def outcome_lines(steps: Sequence[StepRow]) -> list[str]:
    """The steps to show for a run that did not complete all of them; if there are many, only the incomplete ones."""
    if all(step.status in ("completed", "pending") for step in steps) or len(steps) < 2:
        return []
    shown = steps if len(steps) <= MOST else [step for step in steps if step.status != "completed"]
    lines = [f"{_mark(step.status)} {_named(step)}{_why(step)}" for step in shown[:MOST]]
    left = len(shown) - len(lines)
    return [*lines, *([f"… and {left:,} more"] if left else [])]


def _named(step: PlannedStep | StepRow) -> str:
    """The label and the title of a step; only the label if it has no separate title."""
    return f"{step.label}  {step.title}" if step.title != step.label else step.label


def _mark(status: str) -> str:
    return MARKS.get(status, _UNDER_WAY)


def _why(step: StepRow) -> str:
    status = step.status.replace("_", " ")
    return "" if step.status in ("completed", "pending") else f"  {status}"
