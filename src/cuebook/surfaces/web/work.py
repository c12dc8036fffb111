"""How a run's time went: what each of its steps worked and waited, every second once.

A second in which several steps are at work is shared among them; one in which nobody drives the run is waiting. It knows
entries and the names of steps, and nothing of how they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.kernel.events import Driven, Forked, RunFinished, Suspended
from cuebook.kernel.journal import Entry


class Work:
    """Told what goes on between entries, and then each entry."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds for which the run was driven."""
        self.worked: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self._counted: dict[str, float] | None = None
        """What time is added to now: none before a run is taken up, and after its end."""
        self._at = 0.0

    @property
    def waits(self) -> bool:
        return self._counted is self.waited

    def pass_on(self, at: float, steps: Sequence[str]) -> None:
        """Time went by until then, in which these steps were at work, or waited."""
        passed, self._at = max(0.0, at - self._at), at
        if self._counted is None:
            return
        if not self.waits:
            self.now += passed
        for step in steps:
            self._counted[step] = self._counted.get(step, 0.0) + passed / len(steps)

    def see(self, entry: Entry) -> None:
        match entry.event:
            case Driven():
                self._counted = self.worked
            case Suspended():
                self._counted = self.waited
            case RunFinished():
                self._counted = None
            case Forked():  # what was kept of another run is none of this one's time
                self.worked, self.waited, self._counted = {}, {}, None
            case _:
                pass
