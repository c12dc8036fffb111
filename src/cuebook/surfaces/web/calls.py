"""Which calls of models are under way in a run, as its journal tells."""

from __future__ import annotations

from collections.abc import Callable

from cuebook.kernel.events import ModelAsked, Performed, Rewound, RunFinished, Suspended
from cuebook.kernel.journal import Entry, same_line


class Calls:
    """The calls that have begun and not ended, each by its record, in their order."""

    def __init__(self) -> None:
        self.open: dict[int, Entry] = {}

    def see(self, entry: Entry) -> int | None:
        """Takes the next entry in; gives the record of the call that it ends."""
        match entry.event:
            case ModelAsked():
                self._leave(lambda asked: asked.place.key == entry.place.key)  # the one before was lost
                self.open[entry.seq] = entry
            case Performed():
                return self.ended_by(entry, forget=True)
            case Rewound(seq=seq, path=path):
                self._leave(lambda asked: asked.seq >= seq and same_line(asked.place.path, path))
            case RunFinished() | Suspended():
                self.open.clear()
            case _:
                pass
        return None

    def ended_by(self, entry: Entry, *, forget: bool = False) -> int | None:
        """The record of the call whose outcome this is."""
        if not isinstance(entry.event, Performed):
            return None
        seq = next((seq for seq, asked in self.open.items() if asked.place == entry.place), None)
        if seq is not None and forget:
            del self.open[seq]
        return seq

    def _leave(self, lost: Callable[[Entry], bool]) -> None:
        for seq in [seq for seq, asked in self.open.items() if lost(asked)]:
            del self.open[seq]
