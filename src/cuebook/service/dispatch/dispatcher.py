"""`Dispatcher`, which brings runs to workers in other processes. Without one, each process drives its own runs.

A dispatcher only delivers. Correctness rests on the store: on its claims, leases and epochs.
"""

from __future__ import annotations

from typing import Protocol

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow


class Unreachable(CuebookError):
    """The server that brings runs to workers cannot be reached."""

    code = "dispatcher"
    exit_code = 2


class Dispatcher(Protocol):
    """Delivers runs to workers, at least once; a run may be delivered twice or to two workers at once."""

    async def connect(self) -> None:
        """Connects. Raises `Unreachable` if that is impossible."""

    async def wake(self, row: RunRow, *, ending: bool = False) -> bool:
        """Makes a worker look at a run. With `ending`, the run only has to end, which more workers can do.

        Returns False if the dispatcher could not be reached; a worker wakes the run again once that is possible.
        """

    async def has_worker(self, row: RunRow) -> bool:
        """Whether a worker that can drive the run seems to be up."""

    async def close(self) -> None: ...
