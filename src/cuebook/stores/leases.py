"""Decides whether a driver still owns its runs: by its process if that can be inspected, or else by its heartbeats.

Heartbeats are judged by this process's own monotonic clock. The wall clocks of two processes may be hours apart, and they
jump when a machine wakes up.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from cuebook.kernel.ports import Fate
from cuebook.system.process import birth_of, is_stopped, lives, this_host

LEASE = 10.0
"""Seconds without a new heartbeat after which a driver that cannot be inspected is considered gone."""
LONGEST_GAP = 1.0
"""The maximum number of seconds to count between two checks: this process and the driver may both have been asleep."""


class Holder(NamedTuple):
    """A driver as recorded in a store."""

    driver: str
    lease: float | None
    """When its last heartbeat expires by its own wall clock; None for a driver that left or never existed."""
    host: str = ""
    pid: int = 0
    born: str = ""

    @classmethod
    def here(cls, driver: str, now: float) -> Holder:
        """A driver in this process with a fresh heartbeat."""
        return cls(driver, now + LEASE, this_host(), os.getpid(), birth_of(os.getpid()))

    @property
    def fate(self) -> Fate:
        """Its current state, as far as is known."""
        if self.lease is None:
            return Fate("left")
        known = lives(self.host, self.pid, self.born)
        return Fate(_FATES[known], self.host.partition("|")[0], self.pid, bool(known) and is_stopped(self.pid))


_FATES: dict[bool | None, Literal["lives", "ended", "silent"]] = {True: "lives", False: "ended", None: "silent"}


def new_slot() -> int:
    """An id that is never used again: a driver that was taken for dead must not free another driver's slot."""
    return secrets.randbits(62) + 1


class _Watched:
    __slots__ = ("beat", "heard", "looked", "silent")

    def __init__(self, beat: float, looked: float, heard: bool) -> None:
        self.beat, self.looked, self.silent = beat, looked, 0.0
        self.heard = heard
        """Whether it sent a heartbeat while this process was watching it."""


class Leases:
    """One process's observations of a store's drivers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._watched: dict[str, _Watched] = {}

    def holds(self, holder: Holder) -> bool:
        """Whether its runs must not be taken over yet. A driver seen for the first time keeps them."""
        if not holder.driver or holder.lease is None:
            return False
        known = lives(holder.host, holder.pid, holder.born)
        return self._heard(holder.driver, holder.lease) if known is None else known

    def seems_to_hold(self, holder: Holder, now: float) -> bool:
        """Like `holds`, for display, where there is no time to watch: until a heartbeat is seen, the wall clock decides."""
        return self.surely_holds(holder) or (self.holds(holder) and holder.lease is not None and holder.lease > now)

    def surely_holds(self, holder: Holder) -> bool:
        """Whether it is known to be alive: by its process, or by a new heartbeat since this process began to watch it."""
        if not self.holds(holder):
            return False
        watched = self._watched.get(holder.driver)
        return watched is None or watched.heard

    def _heard(self, driver: str, beat: float) -> bool:
        now = self.clock()
        watched = self._watched.get(driver)
        if watched is None or watched.beat != beat:
            if len(self._watched) > 10_000:
                self._watched.clear()
            self._watched[driver] = _Watched(beat, now, heard=watched is not None)
            return True
        watched.silent += min(LONGEST_GAP, now - watched.looked)
        watched.looked = now
        return watched.silent < LEASE
