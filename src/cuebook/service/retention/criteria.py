"""Selects the runs that a prune removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from cuebook.kernel.events import ENDED
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

    def selected(self, rows: Sequence[RunRow], now: float, size: Callable[[str], int]) -> list[RunRow]:
        """The runs to remove, of runs that are given newest first. Forks come before the runs they were forked from."""
        seen: Counter[str] = Counter()
        chosen = []
        for row in rows:
            seen[row.name] += 1
            if self.keep is not None and seen[row.name] <= self.keep:
                continue
            if self._fits(row, now) and (self.larger_than is None or size(row.id) > self.larger_than):
                chosen.append(row)
        return chosen

    def _fits(self, row: RunRow, now: float) -> bool:
        if row.status not in (self.status or ENDED) or self.playbook not in ("", row.name):
            return False
        return self.older_than is None or now - row.updated > self.older_than
