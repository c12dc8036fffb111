"""Traces of runs, with OpenTelemetry's conventions for generative AI: a span for each run, step, effect and wait.

All ids follow from the run and the place, so a process that continues a run after a restart continues its trace. A span is
made when what it describes has ended; until then there is nothing to lose.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallTool, PromptAgent, RunCommand, SendHttp
from cuebook.kernel.events import (
    ModelAsked,
    Noted,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import ROOT, Entry, Key, Place, parent_key
from cuebook.kernel.outcomes import CommandResult, Failed, HttpResponse, Reply, ToolResult, Usage
from cuebook.service.insight.run_log import label_of
from cuebook.service.insight.sight import Sight

_MOST = 20_000
"""Beginnings that are remembered; of what began earlier, the duration may be unknown."""
_LONGEST = 16_384
"""Characters of a text, if texts are exported."""

Attributes = dict[str, Any]
Measure = Callable[[Attributes, float, Usage | None], None]
"""Called with the attributes of each model call, its seconds and its usage."""


class RunIds(IdGenerator):
    """Gives the next span the ids that were chosen for it. All spans are made in the event loop, one after another."""

    trace = span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


def trace_id(run: str) -> int:
    return int.from_bytes(sha256(f"cuebook trace {run}".encode()).digest()[:16], "big") or 1


def span_id(*parts: object) -> int:
    return int.from_bytes(sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big") or 1


def _step_id(run: str, life: int, path: str, label: str, visit: int) -> int:
    return span_id(run, life, "step", path, label, visit)


def _effect_id(run: str, life: int, key: Key) -> int:
    return span_id(run, life, "effect", *key)


class Recent(OrderedDict[tuple[Any, ...], Any]):
    """What began lately, without growing for ever."""

    def note(self, key: tuple[Any, ...], value: Any) -> None:
        self[key] = value
        if len(self) > _MOST:
            self.popitem(last=False)


class Traces:
    """An observer of an engine."""

    def __init__(
        self,
        tracer: Tracer,
        ids: RunIds,
        sampler: Sampler,
        sight: Callable[[str], Sight | None],
        *,
        texts: bool = False,
        measure: Measure = lambda attributes, seconds, usage: None,
    ) -> None:
        """`sight` shows a run that this process drives. With `texts`, prompts, replies and the arguments and results of tools
        are exported too.
        """
        self._tracer, self._ids, self._sampler, self._sight = tracer, ids, sampler, sight
        self._texts, self._measure = texts, measure
        self._began = Recent()
        self._asked = Recent()
        self._attempts = Recent()
        self._epochs = Recent()

    def see(self, seen: Entry | TextChunk | TextReset) -> None:
        if not isinstance(seen, Entry):
            return
        if type(seen.event) is Rewound:  # the run begins again
            self._began.note((seen.run, "run"), seen.at)
            return
        note = _SEEN.get(type(seen.event))
        sight = None if note is None else self._sight(seen.run)
        if note is not None and sight is not None:
            self._take_up(sight)
            note(self, seen, seen.event, sight)

    def _take_up(self, sight: Sight) -> None:
        """Remembers what began before this process drove the run."""
        row = sight.row
        if self._epochs.get((row.id,)) == row.epoch:
            return
        self._epochs.note((row.id,), row.epoch)
        for step in sight.open_steps:
            if step.started is not None:
                self._began.note((row.id, sight.life, *step.key), step.started)

    # --- runs ---

    def _finished(self, entry: Entry, event: RunFinished, sight: Sight) -> None:
        row, totals = sight.row, sight.row.totals
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": row.name,
            "gen_ai.usage.input_tokens": totals.input,
            "gen_ai.usage.output_tokens": totals.output,
            "cuebook.dialect": row.dialect,
            "cuebook.run.status": event.status,
            "cuebook.run.work_seconds": round(totals.seconds, 3),
            "cuebook.cost.dollars": totals.cost,
            "cuebook.cost.unknown_calls": totals.unknown_costs,
        }
        if row.trigger:
            attributes["cuebook.run.trigger"] = row.trigger
        began = self._began.pop((entry.run, "run"), row.created)
        parent = None
        if sight.caller is not None:
            run, life, key = sight.caller
            parent = _effect_id(run, life, key)
        links = [_context(trace_id(row.parent), span_id(row.parent, 0, "run"))] if row.parent else []
        span = span_id(entry.run, sight.life, "run")
        self._end(entry, sight, f"run {row.name}", span, parent, began, attributes, event.error, links=links)

    # --- steps ---

    def _step_started(self, entry: Entry, event: StepStarted, sight: Sight) -> None:
        place = entry.place
        self._began.note((entry.run, sight.life, place.path, event.label, place.visit), entry.at)

    def _step_finished(self, entry: Entry, event: StepFinished, sight: Sight) -> None:
        place, label = entry.place, event.label
        began = self._began.pop((entry.run, sight.life, place.path, label, place.visit), entry.at - event.seconds)
        attributes: Attributes = {
            "cuebook.step": label_of(label),
            "cuebook.step.visit": place.visit,
            "cuebook.step.status": event.status,
            "cuebook.step.work_seconds": round(event.seconds, 3),
        }
        span = _step_id(entry.run, sight.life, place.path, label, place.visit)
        above = self._around(entry.run, sight.life, Place(place.path))
        failed = Failed("step_failed", "") if event.status == "failed" else None
        self._end(entry, sight, f"step {label_of(label)}", span, above, began, attributes, failed)

    # --- effects ---

    def _begun(self, entry: Entry, event: Performing | ModelAsked, sight: Sight) -> None:
        key = (entry.run, *entry.place.key)
        self._began.note(key, entry.at)
        self._asked.note(key, event if isinstance(event, ModelAsked) else event.effect)

    def _noted(self, entry: Entry, event: Noted, sight: Sight) -> None:
        if event.name in ("model_attempt", "model_fallback"):
            names = ("model", "to", "kind", "number", "wait")
            about = {f"cuebook.attempt.{name}": event.data[name] for name in names if event.data.get(name) is not None}
            key = (entry.run, *entry.place.key)
            self._attempts.note(key, [*self._attempts.get(key, ()), (event.name, about, entry.at)])

    def _performed(self, entry: Entry, event: Performed, sight: Sight) -> None:
        key = (entry.run, *entry.place.key)
        asked = self._asked.pop(key, None)
        began = self._began.pop(key, None)
        kind = event.fingerprint.partition(" ")[0]
        if began is None:
            began = sight.began(entry.place.key)
            if not began:
                return  # an answer, a clock or a file: nothing that took time
        attributes: Attributes = {"cuebook.effect": kind}
        name, role = _named(kind, event.fingerprint, asked, attributes)
        failed = event.outcome if isinstance(event.outcome, Failed) else None
        _outcome(event.outcome, attributes)
        if self._texts:
            _texts(asked, event.outcome, attributes)
        span = _effect_id(entry.run, sight.life, entry.place.key)
        events = self._attempts.pop(key, ())
        above = self._around(entry.run, sight.life, entry.place)
        self._end(entry, sight, name, span, above, began, attributes, failed, kind=role, events=events)
        if kind == "AskModel":
            usage = event.outcome.usage if isinstance(event.outcome, Reply) else None
            self._measure(attributes, max(0.0, entry.at - began), usage)

    # --- waits ---

    def _opened(self, entry: Entry, event: WaitOpened, sight: Sight) -> None:
        self._began.note((entry.run, "wait", event.wait), entry.at)

    def _closed(self, entry: Entry, event: WaitClosed, sight: Sight) -> None:
        began = self._began.pop((entry.run, "wait", event.wait), None) or sight.opened(event.wait)
        if not began:
            return
        attributes = {"cuebook.wait": event.wait, "cuebook.wait.kind": event.kind, "cuebook.wait.how": event.how}
        span = span_id(entry.run, sight.life, "wait", event.wait)
        above = self._around(entry.run, sight.life, entry.place)
        self._end(entry, sight, f"wait {event.kind}", span, above, began, attributes, None)

    # --- inside ---

    def _around(self, run: str, life: int, place: Place) -> int:
        """The span of the step around a place, or of the run."""
        path, label, visit = place.path, place.step, place.visit
        while not label and path != ROOT:
            path, label, visit, _ = parent_key(path)
        return _step_id(run, life, path, label, visit) if label else span_id(run, life, "run")

    def _end(
        self,
        entry: Entry,
        sight: Sight,
        name: str,
        span: int,
        above: int | None,
        began: float,
        attributes: Attributes,
        failed: Failed | None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[SpanContext] | tuple[SpanContext, ...] = (),
        events: Any = (),
    ) -> None:
        ids = self._ids
        ids.trace, ids.span = trace_id(sight.outermost), span
        if self._sampler.should_sample(None, ids.trace, name).decision is not Decision.RECORD_AND_SAMPLE:
            return
        context = Context() if above is None else set_span_in_context(NonRecordingSpan(_context(ids.trace, above)))
        if failed is not None:
            attributes["error.type"] = failed.code
        attributes |= {"cuebook.run": entry.run, "cuebook.playbook": sight.row.name}
        made = self._tracer.start_span(
            name,
            context,
            kind,
            attributes,
            links=[Link(one) for one in links],
            start_time=_nanoseconds(min(began, entry.at)),
        )
        for event, about, at in events:
            made.add_event(event, about, _nanoseconds(at))
        if failed is not None:
            made.set_status(Status(StatusCode.ERROR, failed.code))
        made.end(_nanoseconds(entry.at))


def _named(kind: str, fingerprint: str, asked: Any, attributes: Attributes) -> tuple[str, SpanKind]:
    """The name and role of an effect's span. What its conventions say about it is added to the attributes."""
    match asked:
        case ModelAsked(model=model):
            provider, _, plain = model.partition("/")
            attributes |= {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider}
            attributes["gen_ai.request.model"] = plain or model
            return f"chat {plain or model}", SpanKind.CLIENT
        case PromptAgent(model=model):
            agent = model.partition("/")[2] or model
            attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
            attributes["gen_ai.provider.name"] = agent
            return f"invoke_agent {agent}", SpanKind.CLIENT
        case CallTool(tool=tool, server=server):
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            attributes["gen_ai.tool.type"] = "function" if server is None else "extension"
            return f"execute_tool {tool}", SpanKind.INTERNAL
        case SendHttp(method=method):
            attributes["http.request.method"] = method
            return "request", SpanKind.CLIENT
        case RunCommand():
            return "command", SpanKind.INTERNAL
    if kind == "CallTool":  # begun by an earlier process
        tool = fingerprint.partition(" ")[2]
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        return f"execute_tool {tool}", SpanKind.INTERNAL
    return _WORDS.get(kind, kind), SpanKind.INTERNAL


_WORDS = {
    "AskModel": "chat",
    "RunCommand": "command",
    "SendHttp": "request",
    "Browse": "browse",
    "CallNode": "node",
    "RunPlaybook": "child",
    "Send": "send",
}


def _outcome(outcome: object, attributes: Attributes) -> None:
    match outcome:
        case Reply(usage=usage):
            attributes |= {
                "gen_ai.response.model": outcome.model.partition("/")[2] or outcome.model,
                "gen_ai.response.finish_reasons": [outcome.finish],
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
                "cuebook.retries": outcome.retries,
                "cuebook.cost.origin": usage.origin,
            }
            if usage.cached:
                attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached
            if usage.reasoning:
                attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
            if usage.cost is not None:
                attributes["cuebook.cost.dollars"] = usage.cost
        case CommandResult():
            attributes |= {"process.exit.code": outcome.exit_code, "cuebook.sandbox": outcome.sandbox}
        case HttpResponse(status=status):
            attributes["http.response.status_code"] = status
        case ToolResult(is_error=True):
            attributes["error.type"] = "tool_error"


def _texts(asked: Any, outcome: object, attributes: Attributes) -> None:
    """Adds what was asked and answered. All of it comes from the journal, so secrets are masked."""
    match asked:
        case ModelAsked(prompt=prompt) if prompt.loaded:
            attributes["gen_ai.input.messages"] = _message("user", prompt)
        case PromptAgent(prompt=prompt):
            attributes["gen_ai.input.messages"] = _message("user", prompt)
        case CallTool(arguments=arguments):
            attributes["gen_ai.tool.call.arguments"] = json.dumps(arguments, default=str)[:_LONGEST]
    match outcome:
        case Reply(content=content) if content.loaded:
            attributes["gen_ai.output.messages"] = _message("assistant", content, finish_reason=outcome.finish)
        case ToolResult(value=value):
            attributes["gen_ai.tool.call.result"] = json.dumps(value, default=str)[:_LONGEST]


def _message(role: str, text: Text | str, **more: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": str(text)[:_LONGEST]}], **more}])


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)


_SEEN: dict[type, Callable[[Traces, Entry, Any, Sight], None]] = {
    RunFinished: Traces._finished,
    StepStarted: Traces._step_started,
    StepFinished: Traces._step_finished,
    Performing: Traces._begun,
    ModelAsked: Traces._begun,
    Noted: Traces._noted,
    Performed: Traces._performed,
    WaitOpened: Traces._opened,
    WaitClosed: Traces._closed,
}
