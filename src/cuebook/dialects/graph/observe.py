"""The published events, the trace and the node results of a workflow run, as the format defines them. Pure.

`workflow:start` comes first and `workflow:end` last, even if a run failed, was cancelled, or continued after a crash.
Every event has the run's id, a sequence number, its time, and its duration, tokens and cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from cuebook.dialects.graph.changes import with_change
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.paths import node_in
from cuebook.dialects.graph.run.results import Status
from cuebook.dialects.graph.run.route import END
from cuebook.dialects.graph.run.sources import name_of, named_sources, origin_of
from cuebook.dialects.presentation.notes import Note, kernel_note, one_line
from cuebook.dialects.presentation.panels import Followed, Line, Listing, Panel
from cuebook.dialects.presentation.projection import Projection, RunEvent, Update
from cuebook.kernel.context import digest_of
from cuebook.kernel.conversation.subagents import result_of_branch
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
from cuebook.kernel.outcomes import EffectFailed, Reply, Resumed, ToolResult, Usage
from cuebook.kernel.outcomes import Source as Read
from cuebook.kernel.run import is_worktree_step

_STATUS: dict[str, Status] = {"completed": "success", "failed": "failed", "skipped": "skipped"}
_READING = "ReadSource "
_BRIEF = 60
"""The maximum length of a reason in a line."""
_ROUTES = "routes"
_DRAWING = "drawing"
PANELS = (Panel("drawing", _DRAWING, "Flow", within=(Panel("listing", _ROUTES, "Why this route"),)),)

Fields = dict[str, Any]
"""An event, a trace step or a result, as the format defines it."""


class GraphProjection(Projection):
    """The projection of a workflow run. A rewind removes events that were already published."""

    def __init__(self, workflow: Workflow, run: str = "") -> None:
        """`run` is the id to publish: the first entries of a fork have the id of the original run."""
        self._workflow, self._run = workflow, run
        self._fold = _Fold(workflow, run)
        self._entries: list[Entry] = []

    def see(self, event: RunEvent) -> Update:
        if isinstance(event, Entry):
            self._entries.append(event)
            if isinstance(event.event, Rewound):
                return self._rewind()
        is_route = isinstance(event, Entry) and isinstance(event.event, Noted) and event.event.name == "route"
        return Update(published=self._fold.see(event), panels=(_DRAWING, _ROUTES) if is_route else ())

    def trace(self) -> Fields:
        return {"trace": self._fold.trace(), "results": self._fold.results}

    def values(self) -> Fields:
        return {node: result["data"] for node, result in self._fold.results.items()}

    def panel(self, name: str) -> Followed | Listing:
        routes = self._fold.routes
        if name == _ROUTES:
            lines = tuple(
                Line(str(one.data.get("from", "")), route_words(one.data), key=str(one.seq)) for one in routes
            )
            return Listing(lines=lines, empty="No edge has been followed yet.", grows=True)
        counts: dict[str, int] = {}
        for one in routes:
            counts[one.arrow] = counts.get(one.arrow, 0) + 1
        return Followed(counts)

    def _rewind(self) -> Update:
        self._entries = without_void(self._entries)
        fresh = _Fold(self._workflow, self._run)
        for entry in self._entries:
            fresh.see(entry)
        fresh.count = self._fold.count
        self._fold = fresh
        return Update(panels=(_DRAWING, _ROUTES))


class Route(NamedTuple):
    """An edge that was followed."""

    seq: int
    data: Mapping[str, Any]

    @property
    def arrow(self) -> str:
        """The id of its arrow in the drawing."""
        if "edge" in self.data:
            return f"edge {self.data['edge']}"
        return f"{self.data.get('from')}\0{self.data.get('to')}"


class _Fold:
    """Turns the entries of a run, in order, into the events of the format. It does not handle rewinds."""

    def __init__(self, workflow: Workflow, run: str = "") -> None:
        """`run` is the id to publish: the first entries of a fork have the id of the original run."""
        self._workflow, self._run = workflow, run
        self.count = 0
        """The number of events so far, which is also the sequence number of the last event."""
        self._parts = 0
        """The number of text chunks so far. With the sequence number of the event before it, it identifies a chunk."""
        self._now = 0.0
        self._began = 0.0
        self._inputs: Fields = {}
        self._read: dict[str, tuple[str, float]] = {}
        self._open: dict[str, Visit] = {}
        """The open visits by branch path: a branch is in one node at a time."""
        self._talking: dict[int, str] = {}
        """The node whose reply a model call streams, by the call's record; empty for judges and routing questions."""
        self._early: dict[int, list[TextChunk | TextReset]] = {}
        """Text whose record has not arrived yet. Text is published immediately, a record only once it is durable."""
        self._usage = Usage(cost=0.0)
        self._trace = Trace()
        self.routes: list[Route] = []

    def see(self, seen: Entry | TextChunk | TextReset) -> list[Fields]:
        if isinstance(seen, TextChunk | TextReset):
            return self._streamed(seen)
        self._now = max(self._now, seen.at)
        handle = _HANDLERS.get(type(seen.event))
        return [] if handle is None else handle(self, seen, seen.event)

    def _event(self, entry: Entry, fields: Fields, **used: Any) -> Fields:
        self.count += 1
        taken = {"duration": 0.0, "tokens": 0, "cost": 0.0, **used}
        return {**taken, **fields, "run": self._run or entry.run, "sequence": self.count, "time": entry.at}

    # --- one method for each kind of entry ---

    def _started(self, entry: Entry, event: RunStarted) -> list[Fields]:
        self._began, self._inputs = entry.at, event.inputs
        return [self._event(entry, {"type": "workflow:start", "workflow": self._workflow.id})]

    def _noted(self, entry: Entry, event: Noted) -> list[Fields]:
        data = event.data
        visit = self._open.get(entry.place.path)
        match event.name:
            case "sources":
                return [self._event(entry, {"type": "sources:resolved", "sources": self.sources()})]
            case "evals" if visit is not None:
                visit.evals = data["evals"]
                return []
            case "retry" if visit is not None:
                visit.retried()
                return [self._event(entry, {"type": "node:retry", **data})]
            case "repair" if visit is not None:
                visit.repairs += 1
                why = "; ".join(data["problems"])
                said = f"the reply is unusable and is requested again ({data['number']} of {data['most']}): {why}"
                return [
                    self._event(entry, {"type": "node:warning", "node": visit.node, "reason": said, "code": "repair"})
                ]
            case "warning":
                return [self._event(entry, {"type": "node:warning", **data})]
            case "route":
                self.routes.append(Route(entry.seq, data))
                if data["to"] != END:
                    self._trace.followed(entry.place.path, data)
                return [self._event(entry, {"type": "route", **data})]
        return []

    def _warned(self, entry: Entry, event: Warned) -> list[Fields]:
        visit = self._visit_at(entry.place)
        if visit is None:
            return []
        said = {"type": "node:warning", "node": visit.node, "reason": event.message, "code": event.code}
        return [self._event(entry, said)]

    def _entered(self, entry: Entry, event: StepStarted) -> list[Fields]:
        path = entry.place.path
        if is_worktree_step(event.label):
            return []
        self._open[path] = Visit(event.label, path, entry.at)
        node = self._workflow.nodes[event.label]
        source = node.instruction
        text = source.value if source.kind == "inline" else self._read.get(name_of(source), ("", 0.0))[0]
        return [self._event(entry, {"type": "node:enter", "node": node.id, "instruction": text})]

    def _performed(self, entry: Entry, event: Performed) -> list[Fields]:
        outcome, place = event.outcome, entry.place
        if isinstance(outcome, Reply):
            self._usage = _sum(self._usage, outcome.usage)
            visit = self._open.get(place.path)
            if visit is None or not outcome.calls:
                return []
            return [self._event(entry, call) for call in visit.called(place, outcome, entry.at)]
        if isinstance(outcome, Read) and event.fingerprint.startswith(_READING):
            content = str(outcome.content).removeprefix("\ufeff")
            self._read.setdefault(event.fingerprint[len(_READING) :], (content, entry.at))
            return []
        if isinstance(outcome, Resumed):
            self._trace.change(outcome.overrides)
            return []
        return self._answered(entry, outcome)

    def _forked(self, entry: Entry, event: Forked) -> list[Fields]:
        self._trace.change(event.values)
        return []

    def _branch_finished(self, entry: Entry, event: BranchFinished) -> list[Fields]:
        return self._answered(entry, event.failed or event.value)

    def _answered(self, entry: Entry, outcome: Any) -> list[Fields]:
        visit = self._visit_at(entry.place)
        answer = None if visit is None else visit.answered(entry.place, outcome, entry.at)
        return [] if answer is None else [self._event(entry, answer)]

    def _exited(self, entry: Entry, event: StepFinished) -> list[Fields]:
        if is_worktree_step(event.label):
            return []
        data = {} if event.output is None else msgspec.json.decode(str(event.output))
        return self._closed(entry, entry.place.path, _STATUS[event.status], data, event.seconds, event.usage)

    def _closed(
        self, entry: Entry, path: str, status: Status, data: Fields, seconds: float, usage: Usage | None
    ) -> list[Fields]:
        visit = self._open.pop(path, None)
        if visit is None:
            return []
        result = visit.result(status, data)
        self._trace.went(path, visit.steps(status), result)
        end = {"type": "node:exit", "node": visit.node, "result": result}
        return [self._event(entry, end, duration=seconds, **_taken(usage or Usage(cost=0.0)))]

    def _finished(self, entry: Entry, event: RunFinished) -> list[Fields]:
        closed: list[Fields] = []
        why = event.error.message if event.error is not None else event.status
        for path, visit in list(self._open.items()):  # visits that were still open when the run ended
            closed += self._closed(entry, path, "failed", {"error": why}, entry.at - visit.at, None)
        end: Fields = {"type": "workflow:end", "results": self.results, "status": event.status}
        if event.error is not None:
            end["error"] = {"code": event.error.code, "message": str(event.error)}
        seconds = max(0.0, entry.at - self._began)
        return [*closed, self._event(entry, end, duration=seconds, **_taken(self._usage))]

    def _asked(self, entry: Entry, event: ModelAsked) -> list[Fields]:
        visit = self._open.get(entry.place.path)
        node = visit.node if visit is not None and visit.node == entry.place.step else ""
        self._talking[entry.seq] = node
        return [event for early in self._early.pop(entry.seq, ()) for event in self._streamed(early)]

    def _streamed(self, seen: TextChunk | TextReset) -> list[Fields]:
        """The progress event for a piece of a node's own reply."""
        if seen.seq not in self._talking:
            self._early.setdefault(seen.seq, []).append(seen)
            return []
        node = self._talking[seen.seq]
        if not node:
            return []
        reset = {"reset": True} if isinstance(seen, TextReset) else {}
        message = seen.text if isinstance(seen, TextChunk) else ""
        event = {"type": "node:progress", "node": node, "message": message, **reset, **_taken(Usage(cost=0.0))}
        self._parts += 1
        event |= {"duration": 0.0, "run": self._run or seen.run, "part": self._parts}
        return [{**event, "sequence": self.count, "time": self._now}]

    # --- results ---

    def sources(self) -> dict[str, Fields]:
        found: dict[str, Fields] = {}
        try:
            every = list(named_sources(self._workflow, self._inputs))
        except EffectFailed:  # an invalid source in an input, which the run has already reported
            every = list(named_sources(self._workflow, {}))
        for field, source in every:
            content, at = (source.value, 0.0) if source.kind == "inline" else self._read.get(name_of(source), ("", 0.0))
            one: Fields = {"content": content, "kind": source.kind, "origin": origin_of(source)}
            one |= {"resolver": "fetch" if source.kind == "url" else source.kind, "hash": digest_of(content)[:16]}
            if source.kind == "url":
                one["fetchedAt"] = datetime.fromtimestamp(at, UTC).isoformat()
            if source.kind == "file":
                one["sourcePath"] = source.value
            found[field] = one
        return found

    def trace(self) -> Fields:
        return self._trace.as_object(self.sources())

    @property
    def results(self) -> dict[str, Fields]:
        return self._trace.results

    def _visit_at(self, place: Place) -> Visit | None:
        """The open visit that a place belongs to."""
        path = place.path
        while path not in self._open and path != ROOT:
            path = parent_key(path)[0]
        return self._open.get(path)


def _sum(one: Usage, other: Usage) -> Usage:
    cost = None if one.cost is None or other.cost is None else one.cost + other.cost
    return Usage(one.input + other.input, one.output + other.output, cost=cost)


def _taken(usage: Usage) -> Fields:
    return {"tokens": usage.input + usage.output, "cost": usage.cost}


_HANDLERS: dict[type, Any] = {
    RunStarted: _Fold._started,
    Forked: _Fold._forked,
    ModelAsked: _Fold._asked,
    Noted: _Fold._noted,
    Warned: _Fold._warned,
    StepStarted: _Fold._entered,
    Performed: _Fold._performed,
    BranchFinished: _Fold._branch_finished,
    StepFinished: _Fold._exited,
    RunFinished: _Fold._finished,
}


class Visit:
    """An open visit to a node."""

    def __init__(self, node: str, path: str, at: float) -> None:
        self.node, self.path, self.at = node, path, at
        self.calls: list[Fields] = []
        """The tool calls of the last attempt."""
        self.under_way: dict[str, tuple[str, Fields, float]] = {}
        """Unfinished calls by the path of their branch, with their ids."""
        self.evals: list[Fields] = []
        self.repairs = 0
        """The number of repaired replies in the last attempt."""
        self.failures: list[Fields] = []
        """The attempts before the last attempt."""

    def called(self, place: Place, reply: Reply, at: float) -> list[Fields]:
        made = []
        for number, call in enumerate(reply.calls):
            # Malformed arguments are shown as received.
            one: Fields = {"tool": call.name, "input": call.malformed or call.arguments}
            self.calls.append(one)
            # The calls in a reply are the branches of the visit's next `All`.
            self.under_way[f"{place.index + 1}[{number}]"] = (call.id, one, at)
            flaw = {"malformed": True} if call.malformed else {}
            made.append({"type": "tool:call", "node": self.node, **one, "callId": call.id, **flaw})
        return made

    def answered(self, place: Place, outcome: Any, at: float) -> Fields | None:
        below = place.path[len(self.path) :].rstrip("/")
        branch = below.rpartition(".")[2]
        if "/" in below or branch not in self.under_way:  # the calls of a sub-agent are not the node's
            return None
        outcome = result_of_branch(outcome) or outcome
        call_id, call, began = self.under_way.pop(branch)
        event: Fields = {"type": "tool:result", "node": self.node, "tool": call["tool"], "callId": call_id}
        if isinstance(outcome, ToolResult) and not outcome.is_error:
            call |= {"output": outcome.value, "status": "success"}
            event |= {"output": outcome.value}
        else:
            said = outcome.value if isinstance(outcome, ToolResult) else str(outcome)
            call["status"] = "error"
            event |= {"output": {"error": said}}
        return {**event, "duration": max(0.0, at - began)}

    def retried(self) -> None:
        self.failures.append({**self._step("failed"), "retryAttempt": len(self.failures)})
        self.calls, self.under_way, self.evals, self.repairs = [], {}, [], 0

    def result(self, status: Status, data: Fields) -> Fields:
        found: Fields = {"status": status, "data": data, "toolCalls": self.calls}
        return {**found, "evals": self.evals} if self.evals else found

    def steps(self, status: Status) -> list[Fields]:
        """One step for each attempt. Attempts are numbered if there are several."""
        last = self._step(status)
        return [*self.failures, {**last, "retryAttempt": len(self.failures)} if self.failures else last]

    def _step(self, status: Status) -> Fields:
        """A step of the trace, with the number of repairs if there were any."""
        step: Fields = {"node": self.node, "status": status}
        return {**step, "repairs": self.repairs} if self.repairs else step


class Trace:
    """The trace of a run: the steps, the edges between them, and the result of each node.

    Branches are listed where they began, in document order, not in the order in which they ran.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[Fields]] = {}
        """The steps, edges and new branches on each branch path, in order."""

    def went(self, path: str, steps: Sequence[Fields], result: Fields) -> None:
        """Adds a visit to a node, with a step for each attempt and the result of the last attempt."""
        *before, last = steps
        self._line_of(path).extend([*({"step": step} for step in before), {"step": last, "result": result}])

    def followed(self, path: str, edge: Fields) -> None:
        self._line_of(path).append({"edge": edge})

    def change(self, values: Mapping[str, Any]) -> None:
        """Applies the user's changes to results. The step lists the changed fields, or `*` for all."""
        for name, value in values.items():
            latest = {one["step"]["node"]: one for one in self._in_order(ROOT) if "result" in one}
            node, field = node_in(name, latest)
            if node:
                result, step = latest[node]["result"], latest[node]["step"]
                latest[node]["result"] = {**result, "data": with_change(result["data"], field, value)}
                latest[node]["step"] = {**step, "changed": [*step.get("changed", ()), field or "*"]}

    @property
    def results(self) -> dict[str, Fields]:
        """The last `NodeResult` of each node."""
        return {one["step"]["node"]: one["result"] for one in self._in_order(ROOT) if "result" in one}

    def as_object(self, sources: Mapping[str, Fields]) -> Fields:
        """The `ExecutionTrace` of the format."""
        line = list(self._in_order(ROOT))
        steps = [dict(one["step"]) for one in line if "step" in one]
        edges = [one["edge"] for one in line if "edge" in one]
        times: dict[str, int] = {}
        for step in steps:
            if not step.get("retryAttempt"):  # the first attempt of a visit
                times[step["node"]] = times.get(step["node"], 0) + 1
            step["iteration"] = times[step["node"]]
        asked = [edge for edge in edges if edge.get("asked")]
        saved = [edge for edge in edges if edge.get("saved")]
        return {
            "steps": steps,
            "edges": edges,
            "sources": sources,
            "routing": {"asked": len(asked), "saved": len(saved)},
        }

    # --- branches ---

    def _in_order(self, path: str) -> Iterator[Fields]:
        for one in self._lines.get(path, []):
            if "branches" not in one:
                yield one
            for branch in one.get("branches", ()):
                yield from self._in_order(branch)

    def _line_of(self, path: str) -> list[Fields]:
        if path not in self._lines:
            self._lines[path] = []
            if path != ROOT:
                self._begun_from(path)
        return self._lines[path]

    def _begun_from(self, path: str) -> None:
        parent, step, visit, index = parent_key(path)
        line = self._line_of(parent)
        at = (step, visit, index)
        for one in reversed(line):
            if one.get("at") == at:
                one["branches"] = sorted([*one["branches"], path], key=_branch_number)
                return
        line.append({"at": at, "branches": [path]})


def _branch_number(path: str) -> int:
    return int(path[:-1].rpartition("[")[2].rstrip("]"))


_REASONS = {"fan out": "parallel branches begin", "join": "its branch has ended"}
"""Readable forms of the reasons that the format defines."""


def route_words(data: Mapping[str, Any]) -> str:
    """A description of where a run continued after a step, and why."""
    to, reason = str(data.get("to", "")), str(data.get("reason", ""))
    reason = _REASONS.get(reason, reason)
    if data.get("asked") and reason == "only path":
        reason = "the default"
    words = f"ends here: {reason}" if to == "(end)" else f"continues with {to}: {reason}"
    if data.get("saved"):
        return f"{words} (proved; no model was called)"
    said = " ".join(str(data.get("rationale") or "").split())
    default = "the model named no edge in two attempts" if data.get("unusable") else "no condition holds"
    parts = ([default] if data.get("default") else []) + ([f"the model says: {said}"] if said else [])
    parts += ["self-judged by the assistant"] if data.get("self_judged") else []
    return f"{words} ({'; '.join(parts)})" if parts else words


def note(name: str, data: Mapping[str, Any]) -> Note:
    match name, data:
        case "route", _:
            words = route_words(data)
            return Note(words, words, lasting=True)
        case "changes", {"by": by, "feedback": feedback, "step": step}:
            words = f"{by} asked for changes, back to node {step}: {one_line(feedback)}"
            return Note(words, words, lasting=True)
        case "retry", _:
            again = f"retries ({data.get('attempt')}): {_brief(data.get('reason', ''))}"
            return Note(kernel_note(name, data).words, again)
    return kernel_note(name, data)


def _brief(text: Any) -> str:
    line = one_line(text)
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 1]}…"


def events(workflow: Workflow, entries: Iterable[Entry]) -> list[Fields]:
    """All events of a run except progress events."""
    projection = GraphProjection(workflow)
    return [dict(event) for entry in without_void(entries) for event in projection.see(entry).published]
