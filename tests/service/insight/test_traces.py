"""The spans of effects, as the conventions for generative AI name and describe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind

from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallTool, PromptAgent, SendHttp, ServerSpec
from cuebook.kernel.events import (
    AnyEvent,
    ModelAsked,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    StepFinished,
    StepStarted,
)
from cuebook.kernel.journal import Entry, Key, Place, branch_path
from cuebook.kernel.outcomes import Answer, Failed, HttpResponse, Reply, ToolResult, Usage
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service.insight.traces import RunIds, Traces, trace_id
from tests.support.programs import new_row

BRANCH = branch_path("", "many", 1, 0, 2)


class Seen:
    """What a driver knows, set by hand."""

    def __init__(self, run: str = "r1") -> None:
        self.row: RunRow = new_row("hand", run)
        self.row.name, self.row.created = "tea.md", 1.0
        self.life = 0
        self.open_steps: Sequence[StepRow] = ()
        self.outermost = run
        self.caller: tuple[str, int, Key] | None = None
        self.earlier: dict[Key, float] = {}

    def began(self, effect: Key) -> float:
        return self.earlier.get(effect, 0.0)


class Traced:
    """One process that observes runs."""

    def __init__(self, *, texts: bool = False, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        ids = RunIds()
        provider = TracerProvider(sampler=sampler, id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.seen = Seen()
        self.traces = Traces(provider.get_tracer("test"), ids, sampler, lambda run: self.seen, texts=texts)  # type: ignore[arg-type,return-value]

    def see(self, *events: AnyEvent, at: float = 2.0, path: str = "", step: str = "one", index: int = 0) -> None:
        for event in events:
            self.traces.see(Entry(self.seen.row.id, 1, at, Place(path, step, 1, index), event))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.spans[name].attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def performing(effect: Any) -> Performing:
    return Performing(effect, effect.fingerprint)


def test_a_tool_call_is_execute_tool() -> None:
    traced = Traced()
    for tool, server in (("Read", None), ("mcp__github__list", ServerSpec("github"))):
        effect = CallTool(tool, {"path": "canary"}, server)
        traced.see(performing(effect), at=2.0)
        traced.see(Performed(ToolResult("canary", is_error=server is not None), effect.fingerprint), at=3.5)
    about = traced.attributes("execute_tool Read")
    assert (about["gen_ai.operation.name"], about["gen_ai.tool.name"], about["gen_ai.tool.type"]) == (
        "execute_tool",
        "Read",
        "function",
    )
    other = traced.attributes("execute_tool mcp__github__list")
    assert (other["gen_ai.tool.type"], other["error.type"]) == ("extension", "tool_error")
    span = traced.spans["execute_tool Read"]
    assert span.kind is SpanKind.INTERNAL
    assert (span.end_time or 0) - (span.start_time or 0) == 1_500_000_000
    assert "canary" not in str([one.to_json() for one in traced.exporter.get_finished_spans()])


def test_a_coding_agent_is_invoke_agent() -> None:
    traced = Traced(texts=True)
    effect = PromptAgent(model="agent/claude", asked="agent/claude", prompt="Fix it.")
    reply = Reply(Text("Fixed."), model="agent/claude", usage=Usage(7, 3, 2, 1, cost=0.5, origin="reported"))
    traced.see(performing(effect), Performed(reply, effect.fingerprint))
    about = traced.attributes("invoke_agent claude")
    assert (about["gen_ai.operation.name"], about["gen_ai.agent.name"]) == ("invoke_agent", "claude")
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (7, 3)
    assert about["gen_ai.usage.cache_read.input_tokens"] == 2
    assert about["gen_ai.usage.reasoning.output_tokens"] == 1
    assert about["cuebook.cost.dollars"] == 0.5
    assert "Fix it." in about["gen_ai.input.messages"]
    assert "Fixed." in about["gen_ai.output.messages"]


def test_a_request_has_its_method_and_status_and_a_failure_its_code() -> None:
    traced = Traced()
    effect = SendHttp(method="POST", url="https://example.com/?canary")
    traced.see(performing(effect), Performed(HttpResponse(503), effect.fingerprint))
    about = traced.attributes("request")
    assert (about["http.request.method"], about["http.response.status_code"]) == ("POST", 503)
    traced.exporter.clear()
    traced.see(performing(effect), Performed(Failed("timeout", "canary"), effect.fingerprint))
    span = traced.spans["request"]
    assert (span.status.is_ok, span.status.description) == (False, "timeout")
    assert "canary" not in span.to_json()


def test_what_takes_no_time_has_no_span() -> None:
    traced = Traced()
    traced.see(Performed(Answer("yes"), "AskHuman"))
    assert not traced.spans


def test_steps_on_a_branch_are_below_the_step_that_began_it() -> None:
    traced = Traced()
    traced.see(StepStarted("inner[canary]"), at=2.0, path=BRANCH, step="inner[canary]")
    traced.see(StepFinished("inner[canary]"), at=3.0, path=BRANCH, step="inner[canary]")
    traced.see(StepFinished("many", seconds=2.0), at=4.0, step="many")
    traced.see(RunFinished("completed"), at=5.0, step="")
    spans = traced.spans
    assert parent_of(spans["step inner"]) == id_of(spans["step many"])
    assert parent_of(spans["step many"]) == id_of(spans["run tea.md"])
    assert spans["step many"].start_time == 2_000_000_000, "its beginning was not seen, but how long it worked is known"
    assert spans["run tea.md"].start_time == 1_000_000_000
    assert "canary" not in str([one.to_json() for one in traced.exporter.get_finished_spans()])


def test_another_process_continues_the_trace_with_the_same_ids() -> None:
    first, second = Traced(), Traced()
    effect = CallTool("Read", {})
    first.see(StepStarted("one"), at=2.0)
    first.see(performing(effect), at=2.5)
    first.see(StepFinished("one"), RunFinished("completed"), at=9.0)
    second.seen.open_steps = [StepRow("", "one", 1, started=2.0)]
    second.seen.earlier = {("", "one", 1, 0): 2.5}
    second.see(Performed(ToolResult(1), effect.fingerprint), at=8.0)
    second.see(StepFinished("one"), RunFinished("completed"), at=9.0)
    tool = second.spans["execute_tool Read"]
    assert tool.start_time == 2_500_000_000
    assert parent_of(tool) == id_of(first.spans["step one"]) == id_of(second.spans["step one"])
    assert second.spans["step one"].start_time == 2_000_000_000
    assert id_of(first.spans["run tea.md"]) == id_of(second.spans["run tea.md"])


def test_a_retry_has_spans_of_its_own_and_begins_when_it_was_asked_for() -> None:
    traced = Traced()
    traced.see(RunFinished("failed", error=Failed("timeout", "Late.")), at=5.0)
    before = traced.spans["run tea.md"]
    traced.exporter.clear()
    traced.see(Rewound(3, "", "ada"), at=7.0)
    traced.seen.life = 1
    traced.see(RunFinished("completed"), at=8.0)
    after = traced.spans["run tea.md"]
    assert id_of(after) != id_of(before)
    assert after.start_time == 7_000_000_000
    assert (before.status.is_ok, after.status.is_ok) == (False, True)


def test_a_fork_links_to_its_parent() -> None:
    traced = Traced()
    traced.see(RunFinished("completed"))
    parent = traced.spans["run tea.md"]
    other = Traced()
    other.seen = Seen("r2")
    other.seen.row.parent = "r1"
    other.see(RunFinished("completed"))
    (link,) = other.spans["run tea.md"].links
    assert (link.context.trace_id, link.context.span_id) == (trace_id("r1"), id_of(parent))


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_a_trace_is_sampled_whole_or_not_at_all(ratio: float) -> None:
    traced = Traced(sampler=ParentBased(TraceIdRatioBased(ratio)))
    kept: dict[str, int] = {}
    for number in range(40):
        traced.seen = Seen(f"run-{number}")
        traced.exporter.clear()
        traced.see(StepStarted("one"), ModelAsked("lab/small", "", Text("?"), "AskModel"))
        traced.see(Performed(Reply(Text("!"), model="lab/small"), "AskModel"), StepFinished("one"))
        traced.see(RunFinished("completed"))
        kept[traced.seen.row.id] = len(traced.exporter.get_finished_spans())
    assert set(kept.values()) == ({0, 3} if ratio == 0.5 else {3 if ratio else 0})
