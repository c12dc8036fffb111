"""Projects a pipeline run for the web pages: the facts about each step, and whether they are as expected. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.describe import doing
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.pipeline.parse.undo import UNDO
from cuebook.dialects.presentation.notes import Note, kernel_note, one_line
from cuebook.dialects.presentation.panels import Evidence, Fact, Panel, StepEvidence
from cuebook.dialects.presentation.projection import NOTHING, Projection, RunEvent, Update
from cuebook.kernel.events import Noted, Rewound
from cuebook.kernel.journal import Entry

_EVIDENCE = "evidence"
PANELS = (Panel("timeline", "timeline", "Timeline"), Panel("evidence", _EVIDENCE, "Evidence"))
_VERDICTS = {"passed": "holds", "failed": "does not hold"}
_UNKNOWN = "cannot be determined"
_GOOD = {"passed": True, "failed": False}
_MOST_FACTS = 50
"""How many facts about the items of a loop are shown."""


class PipelineProjection(Projection):
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._facts: dict[str, list[Fact]] = {step.id: [] for step in pipeline.every}

    def see(self, event: RunEvent) -> Update:
        if not isinstance(event, Entry):
            return NOTHING
        step, bracket, key = event.place.step.removeprefix(UNDO).partition("[")  # undoing is evidence about its step
        match event.event:
            case Noted(name="undoable"):
                return NOTHING  # it is about what may happen later
            case Noted(name=name, data=data) if step in self._facts:
                fact = _fact(event.seq, name, data)
                if bracket and (fact.good is not False or len(self._facts[step]) >= _MOST_FACTS):
                    return NOTHING  # of the items of a loop, only failures are shown
                if bracket:
                    fact = msgspec.structs.replace(fact, words=f"[{key} {fact.words}")
                self._facts[step].append(fact)
            case Rewound(seq=seq):
                self._facts = {id: [one for one in facts if one.seq < seq] for id, facts in self._facts.items()}
            case _:
                return NOTHING
        return Update(panels=(_EVIDENCE,))

    def panel(self, name: str) -> Evidence | None:
        if name != _EVIDENCE:
            return None
        return Evidence(
            tuple(
                StepEvidence(
                    step.id, step.name or step.id, doing(step), tuple(self._facts[step.id]), step.rollback_hint
                )
                for step in self._pipeline.every
            )
        )


def _fact(seq: int, name: str, data: Mapping[str, Any]) -> Fact:
    words = note(name, data).words
    match name:
        case "postcondition":
            verdict = str(data.get("verdict", ""))
            details = tuple(_assertion(seq, one) for one in data.get("assertions", ()))
            return Fact(seq, name, _VERDICTS.get(verdict, _UNKNOWN), _GOOD.get(verdict), details, headline=True)
        case "condition":
            return Fact(seq, name, words, True if data.get("held") else None)
        case "items" | "branches":
            failures = tuple(
                Fact(seq, one.get("key", ""), one.get("error", ""), False) for one in data.get("failures", ())
            )
            return Fact(seq, name, words, not data.get("failed"), failures, headline=True)
        case "until":
            return Fact(seq, name, words, bool(data.get("held")))
        case "attempt" | "contract":
            return Fact(seq, name, words, False, headline=name == "contract")
    return Fact(seq, name, words)


def _assertion(seq: int, one: Mapping[str, Any]) -> Fact:
    message = f" ({one['message']})" if one.get("message") else ""
    seen = {"observed": one["observed"]} if "observed" in one else {}
    return Fact(seq, one.get("kind", ""), f"{one.get('status', '')}{message}", _GOOD.get(one.get("status", "")), **seen)


def note(name: str, data: Mapping[str, Any]) -> Note:
    match name, data:
        case "condition", {"text": text, "held": held}:  # the skipped step already shows this while the run is followed
            return Note(f"{text} ({'holds' if held else 'does not hold'})")
        case "attempt", {"number": number, "message": message}:
            delay = f"; next attempt after {data['delay']:.1f} s" if data.get("delay") else ""
            return _live(name, f"{number} failed ({data.get('code', '')}): {one_line(message)}{delay}")
        case "undoable", _:
            return Note("can be undone" if not data.get("partly") else "can be undone; it may be done in part")
        case "rollback", {"fates": fates}:
            return _live(name, "; ".join(f"{step}: {fate}" for step, fate in fates.items()))
        case "changes", {"by": by, "feedback": feedback, "step": step}:
            return _live(name, f"{by} asked for changes, back to step {step}: {one_line(feedback)}")
        case "contract", {"problems": problems}:
            return _live(name, f"violated: {'; '.join(map(one_line, problems))}")
        case "postcondition", {"verdict": verdict, "assertions": assertions}:
            found = "; ".join(_assertion_words(one) for one in assertions)
            return _live(name, f"{_VERDICTS.get(verdict, _UNKNOWN)}: {found}")
        case "items" | "branches", {"total": total, "completed": completed}:
            counts = [f"{completed} of {total} completed"]
            counts += [f"{data[key]} {key}" for key in ("failed", "skipped") if data.get(key)]
            counts += [f"{data['winner']} was first"] if data.get("winner") else []
            return _live(name, ", ".join(counts))
        case "until", {"text": text, "held": held, "attempts": count}:
            return _live(name, f"{text} {'holds' if held else 'did not hold in time'} after {count} attempts")
    return kernel_note(name, data)


def _live(name: str, words: str) -> Note:
    return Note(words, f"{name}: {words}")


def _assertion_words(one: Mapping[str, Any]) -> str:
    message = f" ({one_line(one['message'])})" if one.get("message") else ""
    return f"{one.get('kind', '')} {one.get('status', '')}{message}".strip()
