"""The published events, trace and results of a run: a projection of its journal, and of nothing else. Pure.

`workflow:start` comes first and `workflow:end` last, also where a run failed, was cancelled, or was taken up again after a
crash. Every event has the run's id, a number of its own, its time, and what it took: seconds, tokens and cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from cuebook.dialects.graph.material import name_of, named_sources, origin_of
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.results import Status
from cuebook.dialects.graph.routing import END
from cuebook.dialects.graph.trace import Trace
from cuebook.dialects.graph.visits import Told, Visit
from cuebook.kernel.context import digest_of
from cuebook.kernel.events import (
    BranchFinished,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    Rewound,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
    Warned,
)
from cuebook.kernel.journal import ROOT, Entry, Place, parent_key, without_void
from cuebook.kernel.outcomes import EffectFailed, Reply, Resumed, Usage
from cuebook.kernel.outcomes import Source as Read

_STATUS: dict[str, Status] = {"completed": "success", "failed": "failed", "skipped": "skipped"}
_READING = "ReadSource "


class Projection:
    """Sees a run's entries in order, and says which events they are."""

    def __init__(self, workflow: Workflow, run: str = "") -> None:
        """`run` is the id to show; a fork's first entries are those of the run it came from."""
        self._workflow, self._run = workflow, run
        self.told = 0
        """Events so far: each is known by its number."""
        self._parts = 0
        """Pieces of text so far: together with the number of the event before it, one is known by its own."""
        self._now = 0.0
        self._began = 0.0
        self._inputs: Told = {}
        self._read: dict[str, tuple[str, float]] = {}
        self._open: dict[str, Visit] = {}
        """By the path of the line that is in it: a line is in one node at a time."""
        self._talking: dict[int, str] = {}
        """The node whose words a model call's text is, by the call's record; none for a judge, or a question of routing."""
        self._early: dict[int, list[TextChunk | TextReset]] = {}
        """Texts whose record is not there yet: they are shown at once, records when they are durable."""
        self._usage = Usage(cost=0.0)
        self._trace = Trace()

    def see(self, seen: Entry | TextChunk | TextReset) -> list[Told]:
        if isinstance(seen, TextChunk | TextReset):
            return self._streamed(seen)
        self._now = max(self._now, seen.at)
        handle = _HANDLERS.get(type(seen.event))
        return [] if handle is None else handle(self, seen, seen.event)

    def _told(self, entry: Entry, told: Told, **took: Any) -> Told:
        self.told += 1
        taken = {"duration": 0.0, "tokens": 0, "cost": 0.0, **took}
        return {**taken, **told, "run": self._run or entry.run, "sequence": self.told, "time": entry.at}

    # --- one method for each kind of entry that shows ---

    def _started(self, entry: Entry, event: RunStarted) -> list[Told]:
        self._began, self._inputs = entry.at, event.inputs
        return [self._told(entry, {"type": "workflow:start", "workflow": self._workflow.id})]

    def _noted(self, entry: Entry, event: Noted) -> list[Told]:
        data = event.data
        visit = self._open.get(entry.place.path)
        match event.name:
            case "sources":
                return [self._told(entry, {"type": "sources:resolved", "sources": self.sources()})]
            case "evals" if visit is not None:
                visit.evals = data["evals"]
                return []
            case "retry" if visit is not None:
                visit.retried()
                return [self._told(entry, {"type": "node:retry", **data})]
            case "repair" if visit is not None:
                visit.repairs += 1
                why = "; ".join(data["problems"])
                said = f"the reply cannot be used and is asked for again ({data['number']} of {data['most']}): {why}"
                return [
                    self._told(entry, {"type": "node:warning", "node": visit.node, "reason": said, "code": "repair"})
                ]
            case "warning":
                return [self._told(entry, {"type": "node:warning", **data})]
            case "route":
                if data["to"] != END:
                    self._trace.followed(entry.place.path, data)
                return [self._told(entry, {"type": "route", **data})]
        return []

    def _warned(self, entry: Entry, event: Warned) -> list[Told]:
        visit = self._visit_at(entry.place)
        if visit is None:
            return []
        said = {"type": "node:warning", "node": visit.node, "reason": event.message, "code": event.code}
        return [self._told(entry, said)]

    def _entered(self, entry: Entry, event: StepStarted) -> list[Told]:
        path = entry.place.path
        self._open[path] = Visit(event.label, path, entry.at)
        node = self._workflow.nodes[event.label]
        source = node.instruction
        text = source.value if source.kind == "inline" else self._read.get(name_of(source), ("", 0.0))[0]
        return [self._told(entry, {"type": "node:enter", "node": node.id, "instruction": text})]

    def _performed(self, entry: Entry, event: Performed) -> list[Told]:
        outcome, place = event.outcome, entry.place
        if isinstance(outcome, Reply):
            self._usage = _sum(self._usage, outcome.usage)
            visit = self._open.get(place.path)
            if visit is None or not outcome.calls:
                return []
            return [self._told(entry, told) for told in visit.called(place, outcome, entry.at)]
        if isinstance(outcome, Read) and event.fingerprint.startswith(_READING):
            content = str(outcome.content).removeprefix("\ufeff")
            self._read.setdefault(event.fingerprint[len(_READING) :], (content, entry.at))
            return []
        if isinstance(outcome, Resumed):
            self._trace.change(outcome.overrides)
            return []
        return self._answered(entry, outcome)

    def _forked(self, entry: Entry, event: Forked) -> list[Told]:
        self._trace.change(event.values)
        return []

    def _branch_finished(self, entry: Entry, event: BranchFinished) -> list[Told]:
        return self._answered(entry, event.failed or event.value)

    def _answered(self, entry: Entry, outcome: Any) -> list[Told]:
        visit = self._visit_at(entry.place)
        told = None if visit is None else visit.answered(entry.place, outcome, entry.at)
        return [] if told is None else [self._told(entry, told)]

    def _exited(self, entry: Entry, event: StepFinished) -> list[Told]:
        data = {} if event.output is None else msgspec.json.decode(str(event.output))
        return self._closed(entry, entry.place.path, _STATUS[event.status], data, event.seconds, event.usage)

    def _closed(
        self, entry: Entry, path: str, status: Status, data: Told, seconds: float, usage: Usage | None
    ) -> list[Told]:
        visit = self._open.pop(path, None)
        if visit is None:
            return []
        result = visit.result(status, data)
        self._trace.went(path, visit.steps(status), result)
        told = {"type": "node:exit", "node": visit.node, "result": result}
        return [self._told(entry, told, duration=seconds, **_taken(usage or Usage(cost=0.0)))]

    def _finished(self, entry: Entry, event: RunFinished) -> list[Told]:
        told: list[Told] = []
        why = event.error.message if event.error is not None else event.status
        for path, visit in list(self._open.items()):  # it ended in the middle of them
            told += self._closed(entry, path, "failed", {"error": why}, entry.at - visit.at, None)
        end: Told = {"type": "workflow:end", "results": self.results, "status": event.status}
        if event.error is not None:
            end["error"] = {"code": event.error.code, "message": str(event.error)}
        seconds = max(0.0, entry.at - self._began)
        return [*told, self._told(entry, end, duration=seconds, **_taken(self._usage))]

    def _asked(self, entry: Entry, event: ModelAsked) -> list[Told]:
        visit = self._open.get(entry.place.path)
        node = visit.node if visit is not None and visit.node == entry.place.step else ""
        self._talking[entry.seq] = node
        return [told for early in self._early.pop(entry.seq, ()) for told in self._streamed(early)]

    def _streamed(self, seen: TextChunk | TextReset) -> list[Told]:
        """Only a node's own words are its progress."""
        if seen.seq not in self._talking:
            self._early.setdefault(seen.seq, []).append(seen)
            return []
        node = self._talking[seen.seq]
        if not node:
            return []
        reset = {"reset": True} if isinstance(seen, TextReset) else {}
        message = seen.text if isinstance(seen, TextChunk) else ""
        told = {"type": "node:progress", "node": node, "message": message, **reset, **_taken(Usage(cost=0.0))}
        self._parts += 1
        told |= {"duration": 0.0, "run": self._run or seen.run, "part": self._parts}
        return [{**told, "sequence": self.told, "time": self._now}]

    # --- what it all comes to ---

    def sources(self) -> dict[str, Told]:
        found: dict[str, Told] = {}
        try:
            every = list(named_sources(self._workflow, self._inputs))
        except EffectFailed:  # the input brought something that is no source, and the run has said so
            every = list(named_sources(self._workflow, {}))
        for field, source in every:
            content, at = (source.value, 0.0) if source.kind == "inline" else self._read.get(name_of(source), ("", 0.0))
            one: Told = {"content": content, "kind": source.kind, "origin": origin_of(source)}
            one |= {"resolver": "fetch" if source.kind == "url" else source.kind, "hash": digest_of(content)[:16]}
            if source.kind == "url":
                one["fetchedAt"] = datetime.fromtimestamp(at, UTC).isoformat()
            if source.kind == "file":
                one["sourcePath"] = source.value
            found[field] = one
        return found

    def trace(self) -> Told:
        return self._trace.told(self.sources())

    @property
    def results(self) -> dict[str, Told]:
        return self._trace.results

    def _visit_at(self, place: Place) -> Visit | None:
        """The open visit of a node that a place belongs to."""
        path = place.path
        while path not in self._open and path != ROOT:
            path = parent_key(path)[0]
        return self._open.get(path)


def _sum(one: Usage, other: Usage) -> Usage:
    cost = None if one.cost is None or other.cost is None else one.cost + other.cost
    return Usage(one.input + other.input, one.output + other.output, cost=cost)


def _taken(usage: Usage) -> Told:
    return {"tokens": usage.input + usage.output, "cost": usage.cost}


_HANDLERS: dict[type, Any] = {
    RunStarted: Projection._started,
    Forked: Projection._forked,
    ModelAsked: Projection._asked,
    Noted: Projection._noted,
    Warned: Projection._warned,
    StepStarted: Projection._entered,
    Performed: Projection._performed,
    BranchFinished: Projection._branch_finished,
    StepFinished: Projection._exited,
    RunFinished: Projection._finished,
}


class Publisher:
    """Names the events of one run as they happen. What a rewind makes void was told once, and counts no more."""

    def __init__(self, workflow: Workflow, run: str) -> None:
        self._workflow, self._run = workflow, run
        self._projection = Projection(workflow, run)
        self._counting: list[Entry] = []

    def __call__(self, seen: Entry | TextChunk | TextReset) -> list[Told]:
        if isinstance(seen, Entry):
            self._counting.append(seen)
            if isinstance(seen.event, Rewound):
                self._begin_again()
                return []
        return self._projection.see(seen)

    def _begin_again(self) -> None:
        self._counting = without_void(self._counting)
        fresh = Projection(self._workflow, self._run)
        for entry in self._counting:
            fresh.see(entry)
        fresh.told = self._projection.told
        self._projection = fresh


def events(workflow: Workflow, entries: Iterable[Entry]) -> list[Told]:
    """All events of a run, without its progress."""
    projection = Projection(workflow)
    return [told for entry in without_void(entries) for told in projection.see(entry)]


def trace(workflow: Workflow, entries: Iterable[Entry]) -> Told:
    """`ExecutionTrace`: the steps with their iterations and attempts, the edges followed, and the sources."""
    return seen(workflow, entries).trace()


def results(workflow: Workflow, entries: Iterable[Entry]) -> dict[str, Told]:
    """`NodeResult` of each node that ran; of one that ran again, the last."""
    return seen(workflow, entries).results


def seen(workflow: Workflow, entries: Iterable[Entry]) -> Projection:
    """A projection that has seen all of a run."""
    projection = Projection(workflow)
    for entry in without_void(entries):
        projection.see(entry)
    return projection
