"""Which finished steps after the first difference between two texts can still be kept.

A step can be kept if its text is the same, nothing that it uses is done again, and its order relative to every other step
makes no difference: two steps commute if neither changes what the other reads or changes. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from cuebook.dialects.dialect import EditableSteps
from cuebook.kernel.journal import ROOT
from cuebook.kernel.run import StepRow


class Later(NamedTuple):
    """The finished steps after the point where a run continues."""

    kept: tuple[str, ...]
    because: dict[str, str]
    """Why each of the other unchanged steps is done again, as a clause, if that is known."""


def later_kept(
    visits: Sequence[StepRow],
    prefix: Collection[str],
    before: EditableSteps,
    after: EditableSteps,
    acted: Collection[str],
) -> Later:
    """The steps that can be kept although they come after the first difference. `prefix` are those before it, and `acted`
    those that did something in the world.
    """
    roots = [visit for visit in visits if visit.path == ROOT]
    labels = [visit.label for visit in roots]
    if len(set(labels)) < len(labels):
        return Later((), {})  # a step was done several times, so it is not known which visits belong together
    done = {visit.label for visit in roots if visit.status == "completed"}
    order = [*after.order, *(label for label in after.uses if label not in after.order)]
    kept: list[str] = []
    because: dict[str, str] = {}
    for label in order:
        if label in prefix or label not in done or before.digests.get(label) != after.digests[label]:
            continue
        why = "it depends on everything before it"
        if label in after.uses and label in after.world:
            why = _obstacle(label, labels, prefix, kept, before, after, acted)
        if why:
            because[label] = why
        else:
            kept.append(label)
    return Later(tuple(kept), because)


def _obstacle(
    label: str,
    visited: Sequence[str],
    prefix: Collection[str],
    kept: Sequence[str],
    before: EditableSteps,
    after: EditableSteps,
    acted: Collection[str],
) -> str:
    """Why an unchanged step must be done again; empty if it need not be."""
    own, uses = after.world[label], after.uses.get(label, frozenset())
    position = visited.index(label)
    now = after.order.index(label) if label in after.order else len(after.order)
    for other in after.order[:now]:
        if other in prefix:
            continue
        moved = other in visited and visited.index(other) > position
        if other not in kept and other in uses:
            return f"it uses step {other}, which {_fate(other, before, after)}"
        if (other not in kept or moved) and _conflict(
            own, "writes" if other in acted and after.world.get(other) == "none" else after.world.get(other)
        ):
            return f"step {other} before it {_fate(other, before, after, moved=moved)}, and their order matters"
    for other in visited:
        if other == label or other in prefix:
            continue
        earlier = visited.index(other) < position
        first = other in after.order[:now]
        unknown = other not in before.digests and other in acted
        if (earlier and not first) or (unknown and not earlier):
            world = before.world.get(other) if other in before.digests or other in acted else "none"
            if other not in after.digests and world == "reads":
                continue  # it left nothing behind
            if other in acted and world == "none":
                world = "writes"
            if _conflict(own, world):
                return f"step {other} {_fate(other, before, after, moved=True)}, and their order matters"
    return ""


def _conflict(one: str, other: str | None) -> bool:
    if one == "none" or other == "none":
        return False
    return other is None or "writes" in (one, other)


def _fate(label: str, before: EditableSteps, after: EditableSteps, *, moved: bool = False) -> str:
    if label not in before.digests:
        return "is new" if label in after.digests else "followed it"
    if label not in after.digests:
        return "was removed"
    if before.digests[label] != after.digests[label]:
        return "changed"
    return "moved" if moved else "is done again"
