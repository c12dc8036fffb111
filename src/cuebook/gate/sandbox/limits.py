"""Limits on running processes, enforced from outside: resource limits of one process, and the size of a whole tree.

The kernel's own limits apply to one process each, and some of them not to root; `Watched` counts a whole tree. It
checks a few times a second, so it bounds what a tree can take, but not to the last byte.
"""

from __future__ import annotations

import os
import resource
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal

from cuebook.gate.sandbox import process_tree
from cuebook.kernel.ports import Limits


def hard_memory(limits: Limits) -> int:
    """The memory that one process may reserve. More than it may use: threads reserve stacks that they never touch."""
    return 2 * limits.memory


def lower(pid: int, what: int, most: int) -> None:
    """Lowers a limit of another process, unless it is lower already. `ProcessLookupError` if it is gone."""
    _, hard = resource.prlimit(pid, what)
    resource.prlimit(pid, what, lowered(what, most, hard))


def lowered(what: int, most: int, hard: int) -> tuple[int, int]:
    """The limit as it can be set, which is warned about, and the one above it, where there is no more."""
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    # The time on the processor is first warned about, then enforced.
    return allowed, allowed + 1 if what == resource.RLIMIT_CPU and allowed != hard else allowed


TAG = 15
"""RLIMIT_RTTIME. It never comes into effect at such values, children inherit it, and it can be kept from being changed:
so its value tells to which command a process belongs, whatever the process does to hide.
"""
_TAGS = 1 << 62


def new_tag() -> int | None:
    """A value for one command. None where the limit is taken, as within a command that has one."""
    return None if resource.getrlimit(TAG)[1] != resource.RLIM_INFINITY else _TAGS + secrets.randbelow(_TAGS)


def tagged(tag: int) -> list[int]:
    """The processes with a tag."""
    return [pid for entry in os.listdir("/proc") if entry.isdigit() and _tag_of(pid := int(entry)) == tag]


def _tag_of(pid: int) -> int:
    try:
        return resource.prlimit(pid, TAG)[1]
    except OSError:  # gone, or another user's
        return 0


Overrun = Literal["memory", "processes"]

_COUNTS = 3


class Watched:
    """One tree of processes, and the action when it takes too much."""

    def __init__(
        self, root: int, limits: Limits, overrun: Callable[[Overrun], None], *, spare: int = 0, tag: int | None = None
    ) -> None:
        self.root = root
        self._tag = tag
        self._born = process_tree.born(root)
        self._limits = limits
        self._overrun = overrun
        self._spare = spare
        """Processes that are the sandbox's own."""
        self._since = time.monotonic()
        self.due = self._since + 0.02
        self._looking = threading.Lock()
        self._tree = 0
        """The number of processes below the root at the last check, including zombies."""
        self._seen: dict[int, str] = {}
        """Every process that was ever found in the tree, with its start time: an orphaned one is no longer below the root."""

    def look(self) -> None:
        pids = self._members()
        if max(len(pids), self._tree) > self._limits.processes + self._spare:
            self._overrun("processes")
        elif process_tree.memory(pids) > self._limits.memory and self._holds_too_much(pids):
            self._overrun("memory")
        now = time.monotonic()
        age = now - self._since
        self.due = now + (0.02 if age < 1 else 0.1 if age < 10 else 0.5)

    def _holds_too_much(self, pids: list[int]) -> bool:
        """A page that moves between two of them while they are counted, since one begins or ends, counts twice: so it
        must be too much each time.
        """
        return all(process_tree.fair_memory(pids) > self._limits.memory for _ in range(_COUNTS))

    def leftovers(self) -> list[int]:
        """Those of the tree that are still there, its root left out."""
        return [pid for pid in self._members() if pid != self.root]

    def _members(self) -> list[int]:
        with self._looking:
            # A root that has ended has nothing below it any more, and its number may be another's by now.
            self._born = self._born or process_tree.born(
                self.root
            )  # it could not be looked at before: no descriptor was left
            living = process_tree.born(self.root) == self._born
            below = process_tree.below(self.root, self._limits.processes + self._spare) if living else []
            self._tree = len(below)
            for pid in (*below, *self._hiding()):
                if pid not in self._seen and (birth := process_tree.born(pid)):
                    self._seen[pid] = birth
            self._seen = {pid: birth for pid, birth in self._seen.items() if process_tree.born(pid) == birth}
            return list(self._seen)

    def _hiding(self) -> list[int]:
        """The members of the tree wherever they are now, if they are tagged."""
        try:
            return [] if self._tag is None else tagged(self._tag)
        except OSError:  # no descriptor is left
            return []


class Watch:
    """One thread for all trees of this process. It sleeps while there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        if not process_tree.visible():
            return
        with self._changed:
            self._watched.add(watched)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="cuebook-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, watched: Watched) -> None:
        with self._changed:
            self._watched.discard(watched)

    def _work(self) -> None:
        while True:
            for watched in self._next():
                watched.look()

    def _next(self) -> list[Watched]:
        """Sleeps until there is something to check."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = [watched for watched in self._watched if watched.due <= now]
                if due:
                    return due
                soonest = min((watched.due for watched in self._watched), default=None)
                self._changed.wait(None if soonest is None else soonest - now)


WATCH = Watch()
