"""The evidence from a run: what was done, who allowed it, and the outcome, folded from its journal alone. Pure.

It works for every dialect. Actions that a later retry superseded are included, because they happened. Texts are
identified by their digests and secrets by their handles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.effects import Send
from cuebook.kernel.engine.in_doubt import never_began
from cuebook.kernel.events import (
    STATUS_OF_WAIT,
    ArtifactMade,
    CancelRequested,
    Driven,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
    Suspended,
    ValueSet,
    WaitClosed,
    WaitOpened,
    Warned,
)
from cuebook.kernel.fold.state import Stopwatch
from cuebook.kernel.journal import ROOT, Entry, Place, parent_key, same_line, without_void
from cuebook.kernel.outcomes import (
    Answer,
    AnyOutcome,
    CommandResult,
    Done,
    Failed,
    HttpResponse,
    Page,
    Reply,
    Resumed,
    Source,
    ToolResult,
    Usage,
)
from cuebook.kernel.run import FOR_RUN, Totals
from cuebook.kernel.votes import votes_of

_SHOWN = 500
"""The maximum length of text shown in an action; longer text is identified by its digest."""

_NOT_DONE = frozenset({"preview", "approval", "witnessed", "is"})
"""Fields of an effect that do not describe the action."""

_SHOWN_ALONE = (Source, ToolResult, CommandResult, HttpResponse, Page, Answer, Failed, Done)
"""Outcomes that are shown if the journal has no record of their action: texts, answers and refusals."""


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, identified by its digest."""

    sha256: str
    characters: int
    truncated: bool = False


class Decision(msgspec.Struct, omit_defaults=True):
    """A question to someone before an action, and their decision."""

    wait: str
    kind: str
    prompt: str
    purpose: str = ""
    rules: list[str] = []
    digest: str = ""
    """The digest of everything that was shown and approved."""
    preview: dict[str, Any] = {}
    opened: float = 0.0
    closed: float | None = None
    decision: str = ""
    """The decision, or `expired` or `cancelled`. Empty while it is open."""
    by: str = ""
    through: str = ""
    """The program that they used to decide, if it is not part of Cuebook."""
    reason: str = ""
    votes: list[dict[str, Any]] = []
    """Everyone's votes, oldest first, if one was not enough: who, what, when and why."""
    lasts: str = ""
    """`run` or `always`, if the approval also allowed something in advance."""
    allows: list[dict[str, str]] = []
    """What it allowed in advance, by id, domain and pattern."""


class Act(msgspec.Struct, omit_defaults=True):
    """One action, performed once: a retry is a separate action."""

    kind: str
    """The kind of effect, such as `RunCommand`."""
    action: dict[str, Any] = {}
    """The resolved action; empty if the journal has only its outcome."""
    attempt: int = 1
    model: str = ""
    ruling: dict[str, Any] = {}
    """The gate's ruling: the decision, the rules, and the digest of the approval behind it."""
    began: float | None = None
    ended: float | None = None
    outcome: dict[str, Any] = {}
    usage: Usage | None = None
    record: int = 0
    """The number of its record in the journal."""
    begun: bool = True
    """False if the action was refused or failed before it began."""
    voided: bool = False
    """Whether a retry replaced it."""


class StepEvidence(msgspec.Struct, omit_defaults=True):
    """One visit to a step."""

    step: str
    title: str = ""
    visit: int = 1
    path: str = ""
    status: str = "running"
    reason: str = ""
    started: float | None = None
    finished: float | None = None
    acts: list[Act] = []
    decisions: list[Decision] = []
    notes: dict[str, list[dict[str, Any]]] = {}
    """Notes from the dialect, by name: `postcondition`, `contract`, `attempt`, `repair`, `condition`, `route`."""
    warnings: list[str] = []
    values: dict[str, Named] = {}
    """The values that it set, by name."""
    output: Named | None = None
    cost: Totals | None = None
    """None if no model was called."""
    voided: bool = False


class Intervention(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that someone did to the run, other than a decision."""

    at: float
    what: str
    by: str = ""
    step: str = ""
    details: dict[str, Any] = {}


class Evidence(msgspec.Struct, omit_defaults=True):
    """A run for an auditor."""

    run: str = ""
    playbook: str = ""
    """The digest of its playbook's source."""
    dialect: str = ""
    interpreter: int = 0
    policy: str = ""
    """The digest of the policy at its start."""
    parent: str = ""
    status: str = "pending"
    reason: str = ""
    error: Failed | None = None
    started: float | None = None
    ended: float | None = None
    inputs: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    drivers: list[str] = []
    """The processes that drove it."""
    steps: list[StepEvidence] = []
    interventions: list[Intervention] = []
    artifact: Named | None = None
    totals: Totals = msgspec.field(default_factory=Totals)


def evidence_of(entries: Iterable[Entry]) -> Evidence:
    """Folds a whole journal, including the parent's part of a fork."""
    every = list(entries)
    folding = _Folding({entry.seq for entry in without_void(every)})
    for entry in every:
        folding.apply(entry)
    folding.settle()
    return folding.evidence


def named(text: Text | str, *, truncated: bool = False) -> Named:
    return Named(text.digest if isinstance(text, Text) else digest_of(text), len(text), truncated)


class _Folding:
    def __init__(self, valid: set[int]) -> None:
        self.evidence = Evidence()
        self._watch = Stopwatch()
        self._valid = valid
        """The records that no retry supersedes."""
        self._open: dict[tuple[str, str, int], StepEvidence] = {}
        self._latest: dict[tuple[str, str, int], StepEvidence] = {}
        """Open and finished steps: events after the end of a step, such as its breakpoint, still belong to it."""
        self._ended: dict[tuple[str, str, int], int] = {}
        """The records that ended the steps."""
        self._begun: dict[Place, Act] = {}
        self._asked: dict[str, Decision] = {}
        self._waiting: dict[str, tuple[str, StepEvidence]] = {}
        """The kind and the step of each open wait."""

    def settle(self) -> None:
        """Sets the status of steps according to their open waits."""
        for kind in STATUS_OF_WAIT:  # most urgent first
            for waits_for, step in self._waiting.values():
                if waits_for == kind and step.status == "running":
                    step.status = STATUS_OF_WAIT[kind][1]

    def apply(self, entry: Entry) -> None:
        event, made = entry.event, self.evidence
        made.totals.seconds = self._watch.see(entry)
        self._note_wait(entry)
        match event:
            case RunStarted():
                made.run, made.started = entry.run, entry.at
                made.playbook, made.dialect, made.interpreter = event.playbook, event.dialect, event.interpreter
                made.policy = event.policy.digest if event.policy is not None else ""
                made.inputs, made.settings = event.inputs, event.settings
            case Forked():
                made.run, made.parent, made.status = entry.run, event.parent, "pending"
                edits = {"values": event.values, "settings": event.settings}
                self._intervened(entry, "fork", details={name: one for name, one in edits.items() if one})
            case Driven(driver=driver):
                made.status, made.reason, made.error = "running", "", None
                if driver not in made.drivers:
                    made.drivers.append(driver)
            case Suspended(status=status, reason=reason):
                made.status, made.reason = status, reason
            case RunFinished():
                made.status, made.error, made.ended = event.status, event.error, entry.at
                made.reason = event.error.code if event.error is not None else ""
                self._cut_short(entry, event.status)
            case CancelRequested(by=by, reason=reason, hard=hard):
                details = {"reason": reason} if reason else {}
                self._intervened(entry, "cancel at once" if hard else "cancel", by, details)
            case Rewound(by=by, seq=seq):
                self._intervened(entry, "retry", by, {"from_record": seq})
                self._take_up(event)
            case ArtifactMade(content=content):
                made.artifact = named(content)
            case _:
                self._within_step(entry)

    def _note_wait(self, entry: Entry) -> None:
        match entry.event:
            case WaitOpened(wait=wait, kind=kind):
                step = self._known(entry)
                if step is not None:
                    self._waiting[wait] = (kind, step)
            case WaitClosed(wait=wait):
                self._waiting.pop(wait, None)
            case RunFinished() | Forked() | Rewound():
                self._waiting.clear()
            case _:
                pass

    def _within_step(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case StepStarted(label=label, title=title):
                step = self._visit(entry, label, title)
                step.started = entry.at
                self._open[entry.place.path, label, entry.place.visit] = step
            case StepSkipped(label=label, title=title, reason=reason):
                step = self._visit(entry, label, title)
                step.status, step.reason, step.finished = "skipped", reason, entry.at
            case StepFinished(label=label):
                self._finished(entry, event, self._open.pop((entry.place.path, label, entry.place.visit), None))
            case Noted(name=name, data=data):
                self._step(entry).notes.setdefault(name, []).append(data)
            case Warned(message=message):
                self._step(entry).warnings.append(message)
            case ValueSet(name=name, value=value):
                self._step(entry).values[name] = _of_value(value)
            case Performing(effect=effect, ruling=ruling):
                act = self._act(entry, effect.kind)
                act.action, act.ruling = _resolved(effect), ruling
            case ModelAsked(model=model, prompt=prompt, context=context, ruling=ruling):
                act = self._act(entry, "AskModel")
                act.ruling = ruling
                asked = msgspec.to_builtins(named(prompt))
                act.model, act.action = model, {"prompt": asked, **({"context": context} if context else {})}
            case Performed():
                self._performed(entry, event)
            case WaitOpened(kind="approval" | "in_doubt" | "budget"):
                self._opened(entry, event)
            case WaitClosed(kind="model", how="answered"):
                self._answered(entry, event)
            case WaitClosed(wait=wait) if wait in self._asked:
                _decided(self._asked.pop(wait), event, entry.at)
            case _:
                pass

    def _answered(self, entry: Entry, event: WaitClosed) -> None:
        """Notes which assistant answered a model call."""
        calls = [act for act in self._step(entry).acts if act.kind == "AskModel" and act.ended is None]
        if calls:
            through = event.answer.get("through")
            calls[-1].action |= {"by": event.by, **({"through": through} if through else {})}

    # --- steps ---

    def _visit(self, entry: Entry, label: str, title: str) -> StepEvidence:
        place = entry.place
        step = StepEvidence(label, title, place.visit, place.path, voided=entry.seq not in self._valid)
        self.evidence.steps.append(step)
        self._latest[place.path, label, place.visit] = step
        return step

    def _step(self, entry: Entry) -> StepEvidence:
        """The innermost step in which this happened; before the first step, an unnamed step."""
        step = self._known(entry)
        if step is None:
            *_, (_, label, _) = _ancestry(entry.place)
            step = self._visit(entry, label, "")
        return step

    def _known(self, entry: Entry) -> StepEvidence | None:
        return next((self._latest[key] for key in _ancestry(entry.place) if key in self._latest), None)

    def _finished(self, entry: Entry, event: StepFinished, step: StepEvidence | None) -> None:
        if step is not None:
            step.status, step.reason, step.finished = event.status, event.reason, entry.at
            step.output = named(event.output) if event.output is not None else None

            self._ended[step.path, step.step, step.visit] = entry.seq

    def _cut_short(self, entry: Entry, status: str) -> None:
        """Ends the open steps with their run. Effects in doubt stay in doubt."""
        for key, step in self._open.items():
            if step.status != "in_doubt":
                step.status = "completed" if status == "completed" else "failed"
            step.reason, step.finished = self.evidence.reason, entry.at
            self._ended[key] = entry.seq
        self._open.clear()

    def _take_up(self, rewound: Rewound) -> None:
        """Reopens steps whose end, but not start, was voided by a retry."""
        for key, seq in self._ended.items():
            step = self._latest[key]
            if seq >= rewound.seq and not step.voided and same_line(step.path, rewound.path):
                step.status, step.reason, step.finished = "running", "", None
                self._open[key] = step

    # --- actions ---

    def _act(self, entry: Entry, kind: str) -> Act:
        act = Act(kind, attempt=entry.place.attempt, began=entry.at, record=entry.seq)
        act.voided = entry.seq not in self._valid
        self._step(entry).acts.append(act)
        self._begun[entry.place] = act
        return act

    def _performed(self, entry: Entry, event: Performed) -> None:
        outcome = event.outcome
        if isinstance(outcome, Resumed):
            if outcome.overrides or outcome.by:
                self._intervened(
                    entry, "resume", outcome.by, {"values": outcome.overrides} if outcome.overrides else {}
                )
            return
        act = self._begun.pop(entry.place, None)
        if act is None:
            kind, _, subject = event.fingerprint.partition(" ")
            if kind == "AskApproval" or not isinstance(outcome, _SHOWN_ALONE):
                return  # it is among the decisions
            act = self._act(entry, kind)
            act.began, act.action = None, {"subject": subject} if subject else {}
            self._begun.pop(entry.place)
        act.ended, act.outcome = entry.at, _outcome(outcome)
        if isinstance(outcome, Failed):
            act.begun = act.began is not None and not never_began(act.kind, outcome)
            self._doubted(entry, outcome)
        self._spent(entry, act, outcome)

    def _doubted(self, entry: Entry, failed: Failed) -> None:
        """Marks the innermost open step as in doubt until it ends."""
        step = next((self._open[key] for key in _ancestry(entry.place) if key in self._open), None)
        if step is not None and failed.details.get("in_doubt"):
            step.status = "in_doubt"

    def _spent(self, entry: Entry, act: Act, outcome: AnyOutcome) -> None:
        if isinstance(outcome, Reply):
            act.usage, act.model = outcome.usage, outcome.model or act.model
        elif isinstance(outcome, Failed) and outcome.details.get("usage"):
            act.usage = msgspec.convert(outcome.details["usage"], Usage)
        if act.usage is not None:
            step = self._step(entry)
            step.cost = step.cost or Totals()
            step.cost.add(act.usage)
            self.evidence.totals.add(act.usage)

    # --- people ---

    def _opened(self, entry: Entry, event: WaitOpened) -> None:
        details = event.details
        decision = Decision(
            event.wait,
            event.kind,
            event.prompt,
            str(details.get("purpose", "")),
            list(details.get("rules", [])),
            str(details.get("digest", "")),
            dict(details.get("preview", {})),
            entry.at,
        )
        self._asked[event.wait] = decision
        self._step(entry).decisions.append(decision)

    def _intervened(self, entry: Entry, what: str, by: str = "", details: dict[str, Any] | None = None) -> None:
        done = Intervention(entry.at, what, by, entry.place.step, details or {})
        self.evidence.interventions.append(done)


def _ancestry(place: Place) -> Iterator[tuple[str, str, int]]:
    """The step at a place and the enclosing steps, innermost first."""
    path, label, visit = place.path, place.step, place.visit
    yield path, label, visit
    while path != ROOT:
        path, label, visit, _ = parent_key(path)
        yield path, label, visit


def _decided(decision: Decision, closed: WaitClosed, at: float) -> None:
    decision.closed, decision.by = at, closed.by
    said = str(closed.answer.get("decision", "resumed")) if closed.how == "answered" else closed.how
    decision.decision = {"approve": "approved", "deny": "denied"}.get(said, said)
    decision.reason = str(closed.answer.get("reason", ""))
    decision.through = str(closed.answer.get("through", ""))
    decision.votes = votes_of(closed.answer)
    decision.lasts = str(closed.answer.get("lasts", ""))
    decision.allows = [*closed.answer.get(FOR_RUN, ()), *closed.answer.get("for_all", ())]


def _resolved(effect: Any) -> dict[str, Any]:
    """The action, with handles in place of secrets and digests in place of long texts."""
    made = msgspec.to_builtins(effect, enc_hook=str)
    if isinstance(effect, Send):
        made["to"] = effect.to  # the recipient is always shown
    return {name: _short(value) for name, value in made.items() if name not in _NOT_DONE}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else msgspec.to_builtins(named(value))
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return value


def _outcome(outcome: AnyOutcome) -> dict[str, Any]:
    fields = msgspec.to_builtins(_fields_of(outcome))
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _fields_of(outcome: AnyOutcome) -> dict[str, Any]:
    match outcome:
        case CommandResult():
            return {
                "exit_code": outcome.exit_code,
                "signal": outcome.signal,
                "stdout": named(outcome.stdout, truncated=outcome.truncated),
                "stderr": named(outcome.stderr, truncated=outcome.stderr_truncated) if len(outcome.stderr) else None,
                "sandbox": outcome.sandbox,
                "seconds": outcome.seconds,
            }
        case HttpResponse():
            body = named(outcome.body, truncated=outcome.truncated)
            return {"status": outcome.status, "url": outcome.url, "body": body}
        case Page():
            return {
                "status": outcome.status,
                "url": outcome.url,
                "text": named(outcome.text, truncated=outcome.truncated),
                "elements": named(outcome.html, truncated=outcome.html_truncated) if len(outcome.html) else None,
                "picture": named(outcome.picture.data) if outcome.picture is not None else None,
            }
        case Reply():
            calls = [call.name for call in outcome.calls]
            return {
                "reply": named(outcome.content),
                "finish": outcome.finish,
                "seconds": outcome.seconds,
                **({"calls": calls} if calls else {}),
                **({"retries": outcome.retries} if outcome.retries else {}),
            }
        case ToolResult(value=value, is_error=is_error):
            return {"error" if is_error else "value": _of_value(value)}
        case Source(content=content):
            return {"text": named(content)}
        case Answer(value=value, by=by):
            return {"answer": named(value), "by": by}
        case Failed(code=code, message=message, details=details):
            return {"in_doubt" if details.get("in_doubt") else "failed": {"code": code, "message": message}}
        case Done(value=value):
            return {"done": True if value is None else _of_value(value)}
        case _:
            return {}


def _of_value(value: Any) -> Named:
    return named(value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode())
