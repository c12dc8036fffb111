"""Evidence: what each step did, its result, who approved it, and whether its checks passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Evidence, Fact, Panel, StepEvidence
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.events import Performed, Performing, Rewound, RunFinished, WaitClosed
from cuebook.kernel.files import files_of
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import CommandResult, HttpResponse, Page, Reply, ToolResult
from cuebook.kernel.votes import APPROVE, decided_words
from cuebook.surfaces.display import action_line, outcome_lines, size_words
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import piece
from cuebook.surfaces.web.panels.view import PanelView


class EvidenceView(PanelView):
    """Draws a part for each step, identified by its number."""

    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        self._numbers = {step.label: number for number, step in enumerate(self._steps())}
        self._facts: dict[str, list[Fact]] = {label: [] for label in self._numbers}
        """Facts from effects, outcomes and approvals; the dialect adds facts from its notes."""
        self._statuses: dict[str, str] = {}

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        step = entry.place.step
        if isinstance(entry.event, Rewound):
            seq = entry.event.seq
            self._facts = {label: [one for one in facts if one.seq < seq] for label, facts in self._facts.items()}
        if isinstance(entry.event, Rewound | RunFinished):
            return [str(number) for number in self._numbers.values()]
        if step not in self._numbers:
            return ()
        facts = list(_facts(entry))
        self._facts[step] += facts
        status = run.step_status(entry.place)
        if not facts and not changed and self._statuses.get(step) == status:
            return ()
        self._statuses[step] = status
        return (str(self._numbers[step]),)

    def part(self, name: str, run: Picture) -> str:
        return str(self._drawn(self._steps()[int(name)], int(name), run))

    def html(self, run: Picture) -> Markup:
        drawn = (self._drawn(step, number, run) for number, step in enumerate(self._steps()))
        return Markup('<div class="evidences">{}</div>').format(Markup("").join(drawn))

    # --- inside ---

    def _steps(self) -> tuple[StepEvidence, ...]:
        content = self.projection.panel(self.panel.name)
        assert isinstance(content, Evidence)
        return content.steps

    def _drawn(self, step: StepEvidence, number: int, run: Picture) -> Markup:
        card = run.card("", step.label, 1)
        return piece(
            "panels/evidence.html",
            number=number,
            step=step,
            run=run.row.id,
            status=card.status if card is not None else run.loops.status(step.label) or "pending",
            facts=sorted([*self._facts[step.label], *step.facts], key=lambda fact: fact.seq),
        )


def _facts(entry: Entry) -> Iterator[Fact]:
    yield from _own_facts(entry)
    for one in files_of(getattr(entry.event, "outcome", None)):
        yield Fact(entry.seq, "file", f"{one.name} ({size_words(one.size)})", file=one.digest, headline=True)


def _own_facts(entry: Entry) -> Iterator[Fact]:
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
        case Performed(outcome=Page() as outcome):
            words, good = outcome_lines(outcome)[0], (outcome.status or 0) < 400
            yield Fact(entry.seq, "page", words, good, page=outcome.picture is not None)
        case Performed(outcome=Reply(model=model, finish=finish)):
            yield Fact(entry.seq, "reply", f"by {model or 'a model'}, finish reason {finish}")
        case Performed(outcome=ToolResult()):
            yield Fact(entry.seq, "outcome", "the tool returned a result")
        case WaitClosed(kind="approval", how=how, by=by, answer=answer):
            reason = str(answer.get("reason", "")).strip()
            said = decided_words(answer, by) if "decision" in answer else f"{how} by {by}" if by else how
            words = f"{said}{f': {reason}' if reason else ''}"
            yield Fact(entry.seq, "approval", words, answer.get("decision") == APPROVE, headline=True)
        case _:
            pass
