"""How many runs one person may start in a time. Going on with a run is free; restarts and forks count. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from cuebook.kernel.errors import Refused
from cuebook.kernel.run import RunRow

_WRITTEN = re.compile(r"([1-9]\d{0,5})\s*(?:/|per)\s*(minute|hour|day)", re.ASCII)
_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}


class TooManyRuns(Refused):
    """Too many runs were started."""

    code = "rate_limited"

    def __init__(self, message: str, *, fix: str, retry_after: int) -> None:
        super().__init__(message, fix=fix)
        self.retry_after = retry_after
        """Seconds until one more may be started."""


class Rate(msgspec.Struct, frozen=True):
    """So many starts within so many seconds."""

    starts: int
    per: str

    @classmethod
    def written(cls, text: str) -> Rate | None:
        """From `20/hour`; None for a text that is no rate."""
        found = _WRITTEN.fullmatch(text.strip().lower())
        return None if found is None else cls(int(found[1]), found[2])

    def check(self, newest: Sequence[RunRow], now: float) -> None:
        """`newest` are the last runs that this person started, at least `starts` of them if there are so many."""
        if len(newest) < self.starts:
            return
        left = newest[self.starts - 1].created + _SECONDS[self.per] - now
        if left > 0:
            wait = math.ceil(left)
            raise TooManyRuns(
                f"{_counted(self.starts)} started within the last {self.per}, which is the limit.",
                fix=f"Try again in {_lasting(wait)}, or set `rate_limit` higher.",
                retry_after=wait,
            )


def _lasting(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} minutes"


def _counted(starts: int) -> str:
    return "1 run was" if starts == 1 else f"{starts:,} runs were"
