"""A pipeline: a timeline of its steps, and for each one the evidence of what it did and whether that holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from markupsafe import Markup

from cuebook.dialects.pipeline.draw import doing
from cuebook.dialects.pipeline.model import Cli, Http, Llm, Mcp, Pipeline, Secret, Step
from cuebook.dialects.pipeline.references import as_written
from cuebook.dialects.pipeline.resolve import referred
from cuebook.kernel.events import Noted, Performed, Performing, Rewound, RunFinished, WaitClosed
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import CommandResult, HttpResponse, Reply, ToolResult
from cuebook.surfaces.summaries import action_line, note_words, outcome_lines
from cuebook.surfaces.web.cards import Card
from cuebook.surfaces.web.drawing import Arrow, Box, Drawing
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.rendering import duration, piece, words
from cuebook.surfaces.web.views import About, DialectView, Need

_TIMELINE = "timeline"
_EVIDENCE = "evidence-"
_MOST_BARS = 60
_AHEAD = 0.15
"""Of the time so far, how much room a timeline has for what is under way."""
_START, _END = "\0start", "\0end"


class Fact(NamedTuple):
    """Something that is known of a step."""

    seq: int
    kind: str
    words: str
    good: bool | None = None
    """Whether it is as it should be; None where that is no question."""
    assertions: tuple[dict[str, Any], ...] = ()


class Bar(NamedTuple):
    card: Card
    start: float
    """Of a hundred parts of the whole time."""
    wide: float
    words: str


def about(pipeline: Pipeline) -> About:
    calls = sum(isinstance(step.action, Llm) for step in pipeline.steps)
    return About(drawing(pipeline), tuple(_needs(pipeline)), calls)


def view(pipeline: Pipeline) -> PipelineView:
    return PipelineView(pipeline)


class PipelineView(DialectView):
    def __init__(self, pipeline: Pipeline) -> None:
        self._steps = {step.id: step for step in pipeline.steps}
        self._number = {step.id: number for number, step in enumerate(pipeline.steps)}
        self._facts: dict[str, list[Fact]] = {}
        self._told: dict[str, str] = {}
        self._now = 0.0
        """How long the run had been driven when the timeline was drawn last."""

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        step = entry.place.step
        if isinstance(entry.event, Rewound):
            self._now = run.work.now
            for id, facts in self._facts.items():
                self._facts[id] = [fact for fact in facts if fact.seq < entry.event.seq]
            return [_TIMELINE, *(f"{_EVIDENCE}{number}" for number in self._number.values())]
        if isinstance(entry.event, RunFinished):
            self._now = run.work.now
            return [_TIMELINE, *(f"{_EVIDENCE}{number}" for number in self._number.values())]
        if step not in self._steps:
            return ()
        facts = list(_facts(entry))
        self._facts.setdefault(step, []).extend(facts)
        card = run.card(entry.place.path, step, entry.place.visit)
        status = card.status if card is not None else "pending"
        changed = [_TIMELINE] if self._told.get(step) != status else []
        if changed:
            self._now = run.work.now
        if facts or changed:
            self._told[step] = status
            changed.append(f"{_EVIDENCE}{self._number[step]}")
        return changed

    def part(self, name: str, run: Picture) -> str:
        if name == _TIMELINE:
            return str(piece("view-timeline.html", bars=list(self._bars(run))))
        number = int(name.removeprefix(_EVIDENCE))
        step = next(step for step, place in self._number.items() if place == number)
        return str(self._evidence(self._steps[step], run))

    def panels(self, run: Picture) -> str:
        timeline = Markup(self.part(_TIMELINE, run))
        evidence = [self._evidence(step, run) for step in self._steps.values()]
        return str(piece("view-pipeline.html", timeline=timeline, evidence=evidence))

    # --- inside ---

    def _evidence(self, step: Step, run: Picture) -> Markup:
        card = run.card("", step.id, 1)
        return piece(
            "view-evidence.html",
            number=self._number[step.id],
            step=step,
            status=card.status if card is not None else "pending",
            doing=doing(step),
            facts=self._facts.get(step.id, []),
        )

    def _bars(self, run: Picture) -> Iterator[Bar]:
        begun = [card for card in run if card.row.started is not None][-_MOST_BARS:]
        if not begun:
            return
        first = min(card.begins for card in begun)
        last = max(card.ends if card.ends is not None else self._now for card in begun)
        if any(card.ends is None for card in begun):  # nobody knows yet how long they take: they reach to the end
            last += max(0.001, _AHEAD * (last - first))
        scale = 100 / max(0.001, last - first)
        for card in begun:
            end = card.ends if card.ends is not None else last
            told = words(card.status) if card.ends is None else duration(card.row.totals.seconds)
            yield Bar(card, (card.begins - first) * scale, max(0.6, (end - card.begins) * scale), told)


def _facts(entry: Entry) -> Iterator[Fact]:
    match entry.event:
        case Performing(effect=effect):
            words = action_line(effect)
            if words:
                yield Fact(entry.seq, "action", words)
        case Performed(outcome=CommandResult() as outcome):
            sandbox = f", in {outcome.sandbox}" if outcome.sandbox else ""
            yield Fact(entry.seq, "outcome", outcome_lines(outcome)[0] + sandbox, outcome.exit_code == 0)
        case Performed(outcome=HttpResponse() as outcome):
            yield Fact(entry.seq, "outcome", outcome_lines(outcome)[0], outcome.status < 400)
        case Performed(outcome=Reply(model=model, finish=finish)):
            yield Fact(entry.seq, "reply", f"by {model or 'a model'}, which ended by {finish}")
        case Performed(outcome=ToolResult()):
            yield Fact(entry.seq, "outcome", "the tool gave a result")
        case WaitClosed(kind="approval", how=how, by=by, answer=answer):
            said = {"approve": "approved", "deny": "denied"}.get(str(answer.get("decision", "")), how)
            reason = str(answer.get("reason", "")).strip()
            words = f"{said}{f' by {by}' if by else ''}{f': {reason}' if reason else ''}"
            yield Fact(entry.seq, "approval", words, said == "approved")
        case Noted(name="postcondition", data=data):
            good = {"passed": True, "failed": False}.get(str(data.get("verdict", "")))
            words = {True: "holds", False: "does not hold", None: "cannot be told"}[good]
            yield Fact(entry.seq, "postcondition", words, good, tuple(data.get("assertions", ())))
        case Noted(name=name, data=data):
            good = {"condition": data.get("held"), "attempt": False, "contract": False}.get(name)
            yield Fact(entry.seq, name, note_words(name, data), good if name != "condition" or good else None)
        case _:
            pass


def drawing(pipeline: Pipeline) -> Drawing:
    """The steps in order, each with what it does and what it takes from others."""
    boxes, arrows = [Box(_START, (pipeline.name,), "start")], list[Arrow]()
    before = _START
    for step in pipeline.steps:
        taken = [one for one in referred(step) if one in _ids(pipeline)]
        condition = (f"if {step.condition_text}",) if step.condition is not None else ()
        more = (*condition, doing(step), *((f"takes {', '.join(taken)}",) if taken else ()))
        kind = "person" if step.approval else "tool" if isinstance(step.action, Mcp) else "step"
        approval = ("asks you first",) if step.approval else ()
        boxes.append(Box(step.id, (step.name or step.id, *more, *approval), kind))
        arrows.append(Arrow(before, step.id))
        before = step.id
    boxes.append(Box(_END, ("end",), "end"))
    arrows.append(Arrow(before, _END))
    return Drawing(tuple(boxes), tuple(arrows))


def _ids(pipeline: Pipeline) -> frozenset[str]:
    return frozenset(step.id for step in pipeline.steps)


def _needs(pipeline: Pipeline) -> Iterator[Need]:
    found: dict[Need, None] = {}
    for step in pipeline.steps:
        for need in _needs_of(step):
            found.setdefault(need)
    yield from found
    asked = sum(step.approval for step in pipeline.steps)
    if asked:
        yield Need("you", "approves a step" if asked == 1 else f"approves {asked} steps")


def _needs_of(step: Step) -> Iterator[Need]:
    match step.action:
        case Cli(argv=argv):
            yield Need("command", as_written(argv[0]))
        case Http(url=url, headers=headers):
            host = urlsplit(as_written(url)).netloc
            yield Need("host", host if host and "$" not in host else "as its inputs say")
            yield from _secrets(headers.values())
        case Mcp(tool=tool):
            yield Need("tool", tool)
        case Llm(tools=tools):
            yield from (Need("tool", tool) for tool in tools)
    yield from _secrets(step.env.values())


def _secrets(values: Any) -> Iterator[Need]:
    yield from (Need("secret", one.handle or one.arg) for one in values if isinstance(one, Secret))
