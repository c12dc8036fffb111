"""Limits on running processes, enforced from outside: resource limits of one process, and the size of a whole tree.

The kernel's own limits apply to one process each, and some of them not to root; `Watched` counts a whole tree. It
checks a few times a second, so a tree can briefly exceed its limits.
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
    """The memory that one process may reserve. It is more than the process may use, since threads reserve stacks that they
    never touch.
    """
    return 2 * limits.memory


def lower(pid: int, what: int, most: int) -> None:
    """Lowers another process's limit, unless it is lower already. Raises `ProcessLookupError` if the process is gone."""
    _, hard = resource.prlimit(pid, what)
    resource.prlimit(pid, what, lowered(what, most, hard))


def lowered(what: int, most: int, hard: int) -> tuple[int, int]:
    """Returns the soft and the hard limit to set, given the present hard limit."""
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    # At the soft CPU limit, a process gets a signal that it can handle; at the hard limit, it is killed.
    return allowed, allowed + 1 if what == resource.RLIMIT_CPU and allowed != hard else allowed


TAG = 15
"""RLIMIT_RTTIME. It has no effect at such high values, children inherit it, and a filter can keep processes from changing
it, so its value shows which command a process belongs to, whatever the process does to hide.
"""
_TAGS = 1 << 62


def new_tag() -> int | None:
    """Returns a tag for one command, or None if the limit is already in use, as inside a tagged command."""
    return None if resource.getrlimit(TAG)[1] != resource.RLIM_INFINITY else _TAGS + secrets.randbelow(_TAGS)


def tagged(tag: int) -> list[int]:
    """Returns the processes that have the tag."""
    return [pid for entry in os.listdir("/proc") if entry.isdigit() and _tag_of(pid := int(entry)) == tag]


def _tag_of(pid: int) -> int:
    try:
        return resource.prlimit(pid, TAG)[1]
    except OSError:  # gone, or another user's
        return 0


Overrun = Literal["memory", "processes"]

_COUNTS = 3


class Watched:
    """A process tree, and what to do when it exceeds a limit."""

    def __init__(
        self, root: int, limits: Limits, overrun: Callable[[Overrun], None], *, spare: int = 0, tag: int | None = None
    ) -> None:
        self.root = root
        self._tag = tag
        self._born = process_tree.born(root)
        self._limits = limits
        self._overrun = overrun
        self._spare = spare
        """The number of processes that belong to the sandbox itself."""
        self._since = time.monotonic()
        self.due = self._since + 0.02
        self._looking = threading.Lock()
        self._tree = 0
        """The number of processes below the root at the last check, including zombies."""
        self._seen: dict[int, str] = {}
        """Every process found in the tree so far, with its start time. Orphaned processes are no longer below the root."""

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
        """A page can be counted twice if a process starts or exits during the count, so several counts in a row must
        exceed the limit.
        """
        return all(process_tree.fair_memory(pids) > self._limits.memory for _ in range(_COUNTS))

    def leftovers(self) -> list[int]:
        """The processes of the tree that are still running, except the root."""
        return [pid for pid in self._members() if pid != self.root]

    def _members(self) -> list[int]:
        with self._looking:
            # Nothing is left below a root that has exited, and its PID may belong to another process by now.
            # The start time is missing if there was no free descriptor to read it with.
            self._born = self._born or process_tree.born(self.root)
            living = process_tree.born(self.root) == self._born
            below = process_tree.below(self.root, self._limits.processes + self._spare) if living else []
            self._tree = len(below)
            for pid in (*below, *self._hiding()):
                if pid not in self._seen and (birth := process_tree.born(pid)):
                    self._seen[pid] = birth
            self._seen = {pid: birth for pid, birth in self._seen.items() if process_tree.born(pid) == birth}
            return list(self._seen)

    def _hiding(self) -> list[int]:
        """The tagged processes, wherever they are now; none if there is no tag."""
        try:
            return [] if self._tag is None else tagged(self._tag)
        except OSError:  # there are no free descriptors
            return []


class Watch:
    """Checks all trees of this process in one thread, which sleeps while there are none."""

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
