"""Parallel branches: lists of steps at the same time, until all have ended or any has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Lane, Parallel, Step
from cuebook.dialects.pipeline.run.flow.collected import Collected
from cuebook.dialects.pipeline.run.memory import KEPT, carrying, settled
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.kernel.effects import All, Branch, Program, WithTexts
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import SUPERSEDED, EffectFailed, Failed

Sequenced = Callable[[Progress], Program[None]]


def parallel(line: Progress, step: Step, action: Parallel, sequence: Sequenced) -> Program[Result]:
    """Runs the branches. The results of their steps are visible after it."""
    race = action.mode == "any"
    branches = tuple(Branch(_lane(line, step, lane, sequence)) for lane in action.lanes)
    outcomes = yield All(branches, until="success" if race else "")
    ending = next((one for one in outcomes if isinstance(one, Failed) and one.code in ENDING), None)
    won = next((lane.name for lane, one in zip(action.lanes, outcomes, strict=True) if not isinstance(one, Failed)), "")
    collected = Collected()
    collected.keep(one for one in outcomes if not (race and won and isinstance(one, Failed)))
    if ending is not None and not (race and won):
        line.scope.keep(collected.kept)
        raise EffectFailed(ending)
    first: Failed | None = None
    results: list[tuple[str, Result]] = []
    for lane, outcome in zip(action.lanes, outcomes, strict=True):
        if isinstance(outcome, Failed):
            cut = outcome.code == SUPERSEDED
            first = first or (None if cut else outcome)
            failed = Result().failing(outcome, outcome.details.get("seq"))
            results.append((lane.name, Result(facts=Facts(skipped=True)) if cut else failed))
            continue
        last, inner = _returned(outcome)
        line.keep_inner(inner)
        # Its last step may have failed without ending the branch; then the branch has no result.
        results.append((lane.name, Result() if last.facts.error else last))
    collected.add(results)
    yield from settled(line.scope, collected.kept, again=race)
    yield Noted("branches", {**collected.summary, **({"winner": won} if race and won else {})})
    if not race or not won:
        return collected.result(first, line.label(step)).but(keyed=True)
    made = Collected()
    made.counts, made.failures, made.parts = collected.counts, collected.failures, collected.parts
    result = Result(made.result(None, "").text, Facts(keyed=True, winner=won))
    result.parts = collected.parts
    return result


def _lane(line: Progress, step: Step, lane: Lane, sequence: Sequenced) -> Callable[[Any], Program[Any]]:
    outline = line.outlines.of(f"lane {step.id} {lane.name}", lane.steps)

    def start(state: Any) -> Program[Any]:
        inner = line.branch(outline)
        if state is not None:
            inner.restore(state)
        try:
            yield from carrying(inner.scope, sequence(inner))
            inner.leave()
        except EffectFailed as error:
            inner.leave()
            if error.failed.code in ENDING:
                raise
            details = {**error.failed.details, "seq": error.seq}
            raise EffectFailed(msgspec.structs.replace(error.failed, details=details), error.seq) from None
        results = inner.scope.results
        kept = {name: results[name] for name in outline.exported if name in results}
        if inner.last:
            kept = {**kept, "": results[inner.last]}
        facts: dict[str, Any] = {name: [msgspec.to_builtins(one.facts), len(one.parts)] for name, one in kept.items()}
        if inner.scope.kept:
            facts[KEPT] = inner.scope.kept
        return WithTexts(facts, tuple(text for one in kept.values() for text in (one.text, *one.parts)))

    return start


def _returned(outcome: Any) -> tuple[Result, dict[str, Result]]:
    """The last result of a branch, and those that are visible after it."""
    facts, texts = outcome if isinstance(outcome, tuple) else (outcome, ())
    left, found = list(texts), {}
    for name, (fact, count) in ((name, one) for name, one in facts.items() if name != KEPT):
        result = Result(left.pop(0), msgspec.convert(fact, Facts))
        result.parts, left = tuple(left[:count]), left[count:]
        found[name] = result
    return found.pop("", Result()), found
