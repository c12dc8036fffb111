"""The rate limit: how many runs one user may start in a given period. Continuing a run is free; restarts and forks
count."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cuebook.config.settings import Rate
from cuebook.kernel.errors import Refused
from cuebook.kernel.run import RunRow


class TooManyRuns(Refused):
    """Too many runs were started."""

    code = "rate_limited"

    def __init__(self, message: str, *, fix: str, retry_after: int) -> None:
        super().__init__(message, fix=fix)
        self.retry_after = retry_after
        """Seconds until another run may be started."""


def check_rate(rate: Rate, newest: Sequence[RunRow], now: float) -> None:
    """Raises `TooManyRuns` if the limit is reached. `newest` contains the last `rate.starts` or more runs that this
    user started."""
    if len(newest) < rate.starts:
        return
    left = newest[rate.starts - 1].created + rate.seconds - now
    if left > 0:
        wait = math.ceil(left)
        raise TooManyRuns(
            f"{_counted(rate.starts)} started within the last {rate.per}, which is the limit.",
            fix=f"Try again in {_lasting(wait)}, or set `rate_limit` higher.",
            retry_after=wait,
        )


def _lasting(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} minutes"


def _counted(starts: int) -> str:
    return "1 run was" if starts == 1 else f"{starts:,} runs were"
