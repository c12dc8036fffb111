"""The steps of a long loop, folded: how many items there are, and those that failed or are under way. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from cuebook.kernel.journal import ROOT, parent_key
from cuebook.kernel.run import StepRow

SHORT = 20
"""How many steps of its items a loop may have and still be listed in full."""
MOST = 50
"""How many failures are listed, and how many steps under way."""
FAILED = ("failed", "in_doubt")
OVER = ("completed", "skipped", "pending")
"""The statuses of steps that are folded."""


class Folded(msgspec.Struct, frozen=True):
    """The steps of a loop's items."""

    loop: str
    """The label of the loop."""
    items: dict[str, int]
    """How many items there are, by status."""
    shown: tuple[StepRow, ...]
    """The steps that failed, then those under way."""
    hidden: int
    """How many other steps there are."""

    @property
    def words(self) -> str:
        return counted_words(self.items)


def folded(steps: Iterable[StepRow]) -> Iterator[StepRow | Folded]:
    """The steps in order, with those of each long loop folded in place of the first of them."""
    steps = list(steps)
    loops = _loops(steps)
    seen: set[str] = set()
    for step in steps:
        loop = loops.get(step.key)
        if loop is None:
            yield step
        elif loop[0] not in seen:
            seen.add(loop[0])
            yield _fold(loop[1], [one for one in steps if loops.get(one.key) == loop])


def counted_words(counts: Mapping[str, int]) -> str:
    """How many items there are, the failed ones first, then those under way."""
    order = sorted(counts, key=lambda status: (status not in FAILED, status in OVER, status))
    listed = ", ".join(f"{counts[status]:,} {status.replace('_', ' ')}" for status in order if counts[status])
    return f"{sum(counts.values()):,} items: {listed}"


def loop_of(step: StepRow) -> str:
    """The label of the loop that a step is an item of; empty if it is none."""
    if step.path == ROOT or not step.label.endswith("]"):
        return ""
    label = parent_key(step.path)[1]
    return label if step.label.startswith(f"{label}[") else ""


def _loops(steps: Sequence[StepRow]) -> dict[tuple[str, str, int], tuple[str, str]]:
    """The outermost long loop around each step, as a place and a label."""
    items = {step.path: loop for step in steps if (loop := loop_of(step))}
    found: dict[tuple[str, str, int], tuple[str, str]] = {}
    sizes: Counter[tuple[str, str]] = Counter()
    for step in steps:
        at, path = None, step.path
        while path != ROOT:
            above, label, visit, _ = parent_key(path)
            if path in items:
                at = (f"{above}{label}#{visit}", items[path])
            path = above
        if at is not None:
            found[step.key] = at
            sizes[at] += 1
    return {key: at for key, at in found.items() if sizes[at] > SHORT}


def _fold(loop: str, steps: list[StepRow]) -> Folded:
    whole = [step for step in steps if loop_of(step) == loop]
    counts = Counter[str](step.status for step in whole)
    inner = {step.path for step in steps if step.status in FAILED and loop_of(step) != loop}
    # An item that failed because of a step inside it is shown by that step.
    failed = [step for step in steps if step.status in FAILED and not (loop_of(step) == loop and step.path in inner)]
    busy = [step for step in steps if step.status not in (*FAILED, *OVER)]
    shown = (*failed[:MOST], *busy[:MOST])
    return Folded(loop, counts, shown, len(steps) - len(shown))
