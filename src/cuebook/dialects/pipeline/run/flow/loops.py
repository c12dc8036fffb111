"""A loop: a step, or a list of steps, for each item of a list, so many at once.

The items run in branches. Their results are collected in parts, with a checkpoint after each, so that neither the cost of
an item nor that of resuming grows with the length of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Each, Group, LocalRef, Step
from cuebook.dialects.pipeline.run.flow.collected import Collected, ended, outcome_of
from cuebook.dialects.pipeline.run.memory import KEPT, carrying, settled
from cuebook.dialects.pipeline.run.resolve import all_refs
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result, written
from cuebook.dialects.pipeline.run.state import Outline, Progress
from cuebook.kernel.effects import All, Branch, Program
from cuebook.kernel.events import Noted, StepFinished, StepStarted
from cuebook.kernel.outcomes import EffectFailed, Failed

PART = 256
"""How many items are collected before a checkpoint."""
MOST_ITEMS = 100_000
LONGEST_KEY = 80

Visit = Callable[[Progress, Step], Program[Result]]
Sequenced = Callable[[Progress], Program[None]]


def each(
    line: Progress, step: Step, loop: Each, inside: Mapping[str, Any] | None, visit: Visit, sequence: Sequenced
) -> Program[Result]:
    """Runs a step for each item. The result of the step says how many succeeded; `inside` says where it continues."""
    items = _items(line, loop)
    keys = _keys(line, loop, items)
    collected = Collected(line.parts, inside)
    stops = step.on_error != "continue"
    body = _Body(line, step, loop, stops, visit, sequence)
    first: Failed | None = None
    while collected.done < len(items) and first is None:
        numbers = range(collected.done, min(collected.done + PART, len(items)))
        branches = tuple(Branch(body.item(items[number], number, keys[number])) for number in numbers)
        outcomes = yield All(branches, at_once=loop.concurrency, until="failure" if stops else "")
        ending = next((one for one in outcomes if isinstance(one, Failed) and one.code in ENDING), None)
        collected.keep(outcomes)
        if ending is not None:
            line.scope.keep(collected.kept)
            raise EffectFailed(ending)
        collected.add((keys[number], outcome_of(one)) for number, one in zip(numbers, outcomes, strict=True))
        first = next((one for one in outcomes if isinstance(one, Failed)), None)
        if first is None and collected.done < len(items) and not line.aside:
            yield line.checkpoint(collected.state, collected.parts)
    collected.skip(keys[collected.done :])
    yield from settled(line.scope, collected.kept, again=loop.concurrency > 1)
    yield Noted("items", collected.summary)
    return collected.result(first, line.label(step))


def _items(line: Progress, loop: Each) -> list[Any]:
    found = line.scope.field(loop.over)
    if not isinstance(found, list):
        kind = (
            "null"
            if found is None
            else {str: "text", dict: "a table", bool: "true or false"}.get(type(found), "a number")
        )
        fix = "Refer to a list, or have that step print one."
        raise EffectFailed(Failed("not_a_list", f"line {loop.line}: for_each needs a list, but this is {kind}.", fix))
    if len(found) > MOST_ITEMS:
        message = f"line {loop.line}: for_each has {len(found):,} items; the most is {MOST_ITEMS:,}."
        raise EffectFailed(Failed("too_many_items", message, "Split the list."))
    return found


def _keys(line: Progress, loop: Each, items: Sequence[Any]) -> list[str]:
    """The names of the items, each different from the others."""
    if loop.key is None:
        return [str(number) for number in range(len(items))]
    found: dict[str, int] = {}
    for number, item in enumerate(items):
        local = line.scope.inside(**_locals(loop, item, number, ""))
        key = written(local.value(loop.key)).strip()
        if not key or len(key) > LONGEST_KEY or not key.isprintable() or not set("[]").isdisjoint(key):
            message = f"line {loop.key.line}: the key of item {number} is not usable: '{key[:LONGEST_KEY]}'."
            fix = f"Use 1 to {LONGEST_KEY} printable characters other than [ and ]."
            raise EffectFailed(Failed("bad_key", message, fix))
        if key in found:
            message = f"line {loop.key.line}: the items {found[key]} and {number} have the same key '{key}'."
            raise EffectFailed(Failed("bad_key", message, "Use something that is different for each item."))
        found[key] = number
    return list(found)


def _locals(loop: Each, item: Any, number: int, key: str) -> dict[str, Any]:
    return {loop.name: item, "loop": {"index": number, "key": key, "name": loop.name}}


class _Body:
    """What a loop does for each item."""

    def __init__(self, line: Progress, step: Step, loop: Each, stops: bool, visit: Visit, sequence: Sequenced) -> None:
        self._line, self._step, self._loop, self._stops = line, step, loop, stops
        self._visit, self._sequence = visit, sequence
        names = (loop.name, "loop")
        about = any(isinstance(ref, LocalRef) and ref.name in names for ref in all_refs(step.condition))
        condition = {} if about else {"condition": None, "condition_text": ""}
        self._one = msgspec.structs.replace(step, each=None, on_error="continue", **condition)
        """The step for one item."""
        group = isinstance(step.action, Group)
        steps = step.action.steps if isinstance(step.action, Group) else (self._one,)
        self._outline: Outline = line.outlines.of(f"each {step.id}", steps, loop=True)
        self._item = self._several if group else self._single

    def item(self, item: Any, number: int, key: str) -> Callable[[Any], Program[Any]]:
        def start(state: Any) -> Program[Any]:
            line = self._line.branch(self._outline, f"[{key}]", **_locals(self._loop, item, number, key))
            if state is not None:
                line.restore(state)
            try:
                result = yield from carrying(line.scope, self._item(line, begun=state is not None))
            finally:
                line.leave()
            if result.failed is not None and self._stops:
                label = f"{self._step.id}{line.suffix}"
                kept = {KEPT: line.scope.kept} if line.scope.kept else {}
                where = {"step": label, "visit": 1, **result.failed.details, **kept, "seq": result.seq}
                raise EffectFailed(msgspec.structs.replace(result.failed, details=where), result.seq)
            return ended(result, line.scope.kept)

        return start

    def _single(self, line: Progress, *, begun: bool) -> Program[Result]:
        return self._visit(line, self._one)

    def _several(self, line: Progress, *, begun: bool) -> Program[Result]:
        """The list of steps for one item, as a step of its own."""
        step, label = self._one, line.label(self._one)
        if not begun:
            yield StepStarted(label, step.name)
            if step.condition is not None and not line.scope.holds(step.condition):
                yield StepFinished(label, "skipped", f"its condition does not hold: {step.condition_text}")
                return Result(facts=Facts(skipped=True))
        try:
            yield from self._sequence(line)
        except EffectFailed as error:
            if error.failed.code in ENDING:
                raise
            yield StepFinished(label, "failed", error.failed.message)
            return Result().failing(error.failed, error.seq)
        result = line.scope.results[line.last] if line.last else Result()
        yield StepFinished(label, output=result.text if len(result.text) else None)
        return result.but(skipped=False, error="", message="")
