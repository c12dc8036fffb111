"""The results of a loop's items or of parallel branches, collected in parts that are stored by reference. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.run.memory import KEPT, kept_by
from cuebook.dialects.pipeline.run.results import Facts, Item, Result, encoded, without_line_end
from cuebook.kernel.context import Text
from cuebook.kernel.effects import WithTexts
from cuebook.kernel.outcomes import SUPERSEDED, Failed

SHOWN = 20
"""How many failed items a summary names."""
_NAMED = 3
"""How many of them a message quotes."""


def ended(result: Result, kept: Mapping[str, Any]) -> WithTexts:
    """The result of an item, and what it has kept, as `All` returns it."""
    return WithTexts({**msgspec.to_builtins(result.facts), **({KEPT: kept} if kept else {})}, (result.text,))


def outcome_of(outcome: Any) -> Result:
    """The result of an item or a branch, from what `All` returned."""
    if isinstance(outcome, Failed):
        skipped = outcome.code == SUPERSEDED and not outcome.details.get("in_doubt")
        return Result(facts=Facts(skipped=True)) if skipped else Result().failing(outcome, outcome.details.get("seq"))
    facts, (text,) = outcome
    return Result(text, msgspec.convert(facts, Facts))


def item(key: str, result: Result) -> Item:
    facts = result.facts
    status = "skipped" if facts.skipped else "failed" if facts.error else "completed"
    if facts.truncated or facts.replaced:
        return Item(key, status, None, facts.message, incomplete=True)
    value: Any = None
    if len(result.text) and status != "failed":  # what breaks its contract is not a result
        value = result.json() if result.has_json() else without_line_end(str(result.text))
    return Item(key, status, value, facts.message)


class Collected:
    """The results so far."""

    def __init__(self, parts: tuple[Text, ...] = (), state: Mapping[str, Any] | None = None) -> None:
        self.parts = parts
        state = state or {}
        self.counts: dict[str, int] = dict(state.get("counts", {"completed": 0, "failed": 0, "skipped": 0}))
        self.failures: list[dict[str, str]] = list(state.get("failures", ()))
        self.kept: dict[str, Any] = dict(state.get("kept", {}))
        """What the items or branches have kept for later runs; of several values with one name, the last in the list counts."""

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint needs in addition to the parts."""
        return {"counts": self.counts, "failures": self.failures, **({"kept": self.kept} if self.kept else {})}

    @property
    def summary(self) -> dict[str, Any]:
        return {"total": self.done, **self.counts, "failures": self.failures}

    def add(self, results: Iterable[tuple[str, Result]]) -> None:
        """Adds the next part."""
        items = [item(key, result) for key, result in results]
        for one in items:
            self.counts[one.status] += 1
            if one.status == "failed" and len(self.failures) < SHOWN:
                self.failures.append({"key": one.key, "error": one.error})
        self.parts = (*self.parts, Text(encoded(items)))

    def keep(self, outcomes: Iterable[Any]) -> None:
        """Adds what the next items or branches have kept."""
        for outcome in outcomes:
            self.kept.update(kept_by(outcome))

    def skip(self, keys: Iterable[str]) -> None:
        """Adds the items that did not begin."""
        left = [Item(key, "skipped") for key in keys]
        if left:
            self.counts["skipped"] += len(left)
            self.parts = (*self.parts, Text(encoded(left)))

    def result(self, first: Failed | None, label: str) -> Result:
        """The result of the whole step. `first` is the failure that stopped it."""
        made = Result(Text(encoded(self.summary)))
        made.parts = self.parts
        failed = self.counts["failed"]
        if not failed:
            return made
        named = "; ".join(f"{one['key']}: {one['error']}" for one in self.failures[:_NAMED])
        more = f"; and {failed - _NAMED} more" if failed > _NAMED else ""
        message = f"{failed} of {self.done} failed: {named}{more}"
        where = {"step": first.details["step"]} if first is not None and "step" in first.details else {}
        code = first.code if first is not None else "items_failed"
        fix = first.fix if first is not None else ""
        return made.failing(
            Failed(code, message, fix, details=where), first.details.get("seq") if first is not None else None
        )
