"""Selects the runs that a prune removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from cuebook.kernel.events import ENDED
from cuebook.kernel.ports import RunFilter
from cuebook.kernel.run import RunRow


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What a run must be like to be removed. All criteria that are given must hold."""

    older_than: float | None = None
    """Seconds since it last changed."""
    status: tuple[str, ...] = ()
    """Without it, any status of a run that has ended."""
    playbook: str = ""
    larger_than: int | None = None
    """Bytes of its records and files."""
    keep: int | None = None
    """How many of the newest runs of each playbook stay, whatever else is said."""

    @property
    def says_something(self) -> bool:
        given = (self.older_than, self.larger_than, self.keep)
        return bool(self.status or self.playbook) or any(one is not None for one in given)

    def candidates(self, now: float) -> RunFilter:
        """What a list of runs must contain at least, so that everything that is to be removed is selected from it."""
        which = RunFilter(name=self.playbook or None, caller="")
        if self.keep is None:  # otherwise the others count, too
            which["status"] = self.status or sorted(ENDED)
            which["until"] = None if self.older_than is None else now - self.older_than
        return which

    def selected(
        self, rows: Sequence[RunRow], now: float, sizes: Mapping[str, int], seen: Counter[str]
    ) -> list[RunRow]:
        """The runs to remove, of a part of that list. Forks come before the runs they were forked from. `seen` counts the
        runs of each playbook, from part to part.
        """
        chosen = []
        for row in rows:
            seen[row.name] += 1
            if self.keep is not None and seen[row.name] <= self.keep:
                continue
            if self._fits(row, now) and (self.larger_than is None or sizes.get(row.id, 0) > self.larger_than):
                chosen.append(row)
        return chosen

    def _fits(self, row: RunRow, now: float) -> bool:
        if row.status not in (self.status or ENDED) or self.playbook not in ("", row.name):
            return False
        return self.older_than is None or now - row.updated > self.older_than
