"""Undoes what a run has done when it ends without completing: each step that says how, the last one first.

Every rollback is offered to a person, who sees why and decides; it is performed, checked and recorded like any other step.
What steps inside others have done is noted in the journal as they complete, because their branches end in many ways.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Approval, LocalRef, Step, Words
from cuebook.dialects.pipeline.run.action import hint_of
from cuebook.dialects.pipeline.run.attempt import attempt
from cuebook.dialects.pipeline.run.resolve import all_refs, undo_refs
from cuebook.dialects.pipeline.run.results import Facts, Result
from cuebook.dialects.pipeline.run.retry import nothing_done
from cuebook.dialects.pipeline.run.state import Progress
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Program, Recall
from cuebook.kernel.events import Noted, StepFinished, StepStarted
from cuebook.kernel.fold.retry import RETRY_FROM
from cuebook.kernel.outcomes import Cancelled, EffectFailed, Failed, Source

GROUP = "undo"
NOTE = "undoable"
"""The note of a step inside another that can be undone."""
_UNANSWERED = frozenset({"expired"})
_DONE = "undone"
_SAID = 300
_NAMED = 10
"""How many steps a message names."""


class Offer(msgspec.Struct, frozen=True):
    """A step that can be undone."""

    label: str
    step: Step
    line: Progress
    """What its rollback can refer to."""
    visit: int
    path: str | None = None
    """Its branch; None if the whole pipeline has only one."""
    partly: bool = False
    """Whether it failed, and may have been done in part."""

    @property
    def rollback(self) -> Step:
        assert self.step.rollback is not None
        return self.step.rollback


# --- what can be undone ---


def noted(line: Progress, step: Step, result: Result) -> Program[None]:
    """Notes that a step was done and can be undone, with what its rollback refers to."""
    if step.rollback is None or step.each is not None or not line.outlines.undo_inside or result.facts.skipped:
        return
    if result.failed is not None and nothing_done(step, result.failed, result.facts):
        return
    scope = line.scope
    names = {ref.name for ref in all_refs(step.rollback) if isinstance(ref, LocalRef)}
    if "loop" in scope.locals:  # its approver sees the item
        names |= {"loop", scope.locals["loop"]["name"]}
    found = {**scope.results, step.id: result}
    used = {name for name in undo_refs(step) if name == step.id or name not in line.outlines.at_root}
    data: dict[str, Any] = {
        "id": step.id,
        "suffix": line.suffix,
        "partly": result.failed is not None,
        "args": {name: value for one in _inner(scope.args) for name, value in one.items()},
        "locals": {name: scope.locals[name] for name in names if name in scope.locals},
        "results": {name: _plain(found[name]) for name in used if name in found},
    }
    yield Noted(NOTE, {name: value for name, value in data.items() if value})


def _inner(values: Any) -> list[Mapping[str, Any]]:
    """What was changed inside branches, the innermost last."""
    return list(values.maps[-2::-1]) if isinstance(values, ChainMap) else []


def _plain(result: Result) -> list[Any]:
    return [msgspec.to_builtins(result.facts), str(result.text), *map(str, result.parts)]


def _restored(kept: Sequence[Any]) -> Result:
    facts, text, *parts = kept
    result = Result(Text(text), msgspec.convert(facts, Facts))
    result.parts = tuple(map(Text, parts))
    return result


def _offers(line: Progress, partly: str) -> Iterator[Offer]:
    """The completed steps, and the step that failed if it may be done in part, the last one first."""
    for name in [*([partly] if partly else []), *(name for name in reversed(line.to_undo) if name != partly)]:
        step = line.outline.by_id[name]
        if step.rollback is not None:
            yield Offer(name, step, line, line.requests.visit(step), partly=name == partly)


def _offers_inside(line: Progress, notes: Sequence[Mapping[str, Any]]) -> Iterator[Offer]:
    """The steps that were noted in any branch, the last one first. A step that was done again is offered once."""
    seen: set[tuple[str, str]] = set()
    for note in reversed(notes):
        where, data = (note["path"], note["step"]), note["data"]
        if where in seen:
            continue
        seen.add(where)
        inner = line.branch(line.outline, data.get("suffix", ""), **data.get("locals", {}))
        inner.scope.args.update(data.get("args", {}))
        inner.scope.results.update({name: _restored(one) for name, one in data.get("results", {}).items()})
        step = line.outlines.by_id[data["id"]]
        yield Offer(note["step"], step, inner, note["visit"], note["path"], data.get("partly", False))


# --- offering it ---


def undone(line: Progress, failed: Failed, *, partly: str = "") -> Program[Failed]:
    """Offers to undo what was done (`partly` is the step that failed, if it may be done in part). Returns the failure with what
    became of each step.
    """
    if line.outlines.undo_inside:
        source: Source = yield Recall("notes", NOTE)
        offers = list(_offers_inside(line, msgspec.json.decode(str(source.content))))
    else:
        offers = list(_offers(line, partly))
    if not offers:
        return failed
    fates: dict[str, str] = {}
    yield StepStarted(GROUP, "Undo what was done")
    unanswered = False
    for number, offer in enumerate(offers, start=1):
        if unanswered:
            fates[offer.label] = "not offered"
            continue
        fates[offer.label] = yield from _one(offer, _words_of(offer, failed, number, len(offers)))
        unanswered = fates[offer.label].startswith("not answered")
    done = [offer for offer in offers if fates[offer.label] == _DONE]
    yield Noted("rollback", {"fates": fates})
    left = {name: fate for name, fate in fates.items() if fate != _DONE}
    yield StepFinished(GROUP, "failed" if left else "completed", _words([one.label for one in done], left))
    return _with(line, failed, offers, done, left)


def _words_of(offer: Offer, failed: Failed, number: int, of: int) -> str:
    counted = f" ({number} of {of})" if offer.path is not None and of > 1 else ""
    part = "It may be done in part. " if offer.partly else ""
    return f"{_ended(failed.message)} {part}Undo step {offer.label}?{counted}"


def _ended(words: str) -> str:
    """A sentence with a full stop."""
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _one(offer: Offer, words: str) -> Program[str]:
    """What became of one rollback."""
    step = msgspec.structs.replace(offer.rollback, asked=Approval(Words((words,)), ()))
    label = offer.line.label(step)
    yield StepStarted(label, step.name)
    fate, status = _DONE, "completed"
    result = Result()
    try:
        result = yield from attempt(offer.line, step, 1)
        if result.failed is not None:
            fate = f"failed: {result.failed.message[:_SAID]}"
    except EffectFailed as error:
        said = error.failed.message[:_SAID]
        fate = "not answered in time" if error.failed.code in _UNANSWERED else f"not undone: {said}"
    if fate != _DONE:
        status = "skipped" if fate.startswith("not ") else "failed"
    yield StepFinished(label, status, "" if fate == _DONE else fate, result.text if len(result.text) else None)  # type: ignore[arg-type]
    return fate


def _words(done: list[str], left: dict[str, str]) -> str:
    parts = [f"Undone: {_listed(done, ', ')}."] if done else []
    parts += [f"Not undone: {_listed([f'{name} ({fate})' for name, fate in left.items()], '; ')}."] if left else []
    return " ".join(parts)


def _listed(names: list[str], joint: str) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{joint.join(names[:_NAMED])}{more}"


def _with(line: Progress, failed: Failed, offers: list[Offer], done: list[Offer], left: dict[str, str]) -> Failed:
    """The failure of the run, with what was undone, what was not, and what to do next."""
    names = [offer.label for offer in done]
    details: dict[str, Any] = {**failed.details, "undone": names, "not_undone": left}
    run = line.scope.run.get("id") or "RUN"
    fix = failed.fix
    if done and line.outlines.undo_inside:
        details[RETRY_FROM] = [{"path": one.path, "step": one.label, "visit": one.visit} for one in done]
        again = _listed(names[::-1], ", ")
        fix = (
            f"{fix} `cuebook retry {run}` does {again} again, because it was undone, and the steps after that.".strip()
        )
    elif done:
        first = min(done, key=lambda offer: line.place_of(offer.label))
        details[RETRY_FROM] = {"step": first.label, "visit": first.visit}
        fix = (
            f"{fix} `cuebook retry {run}` does everything again from step {first.label}, because it was undone.".strip()
        )
    if left:
        hints = {one.label: hint for one in offers if one.label in left and (hint := hint_of(one.step, one.line.scope))}
        by_hand = _listed([f"{name}: {hint}" for name, hint in hints.items()], " ")
        also = f" To undo it by hand: {by_hand}" if by_hand else ""
        fix = f"{fix} `cuebook show {run}` shows what was not undone.{also}".strip()
    return msgspec.structs.replace(
        failed, message=f"{_ended(failed.message)} {_words(names, left)}", fix=fix, details=details
    )


def cancelled(error: Cancelled) -> Failed:
    return Failed("cancelled", str(error) or "Cancelled.")
