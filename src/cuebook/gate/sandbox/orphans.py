"""Kills processes left running by a Cuebook process that was killed; a mark on each identifies its owner.

The kernel kills bubblewrap, and a command in Landlock, together with us. Nothing else kills the processes that a command
in Landlock started, a sandbox that was still being set up, or a command without a sandbox. The search uses /proc and finds
nothing on systems without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import select
import signal
from functools import cache

from cuebook.gate.sandbox import process_tree
from cuebook.system.process import namespace, surely_gone

NAME = "cuebook-sandbox"
"""The process name of bubblewrap, to which the owner is appended."""
MARK = "CUEBOOK_PROCESS"
"""An environment variable of processes outside bubblewrap and their children: the owner, and a random part."""

_LOOKS = 20
_PATIENCE = 2_000
"""How many milliseconds to wait for a killed process to disappear."""

log = logging.getLogger("cuebook")

_NAMED = re.compile(rb"cuebook-sandbox:(\d+)\.(\d+)\.(\d+)\0")
_MARKED = re.compile(rb"(?:^|\0)CUEBOOK_PROCESS=(\d+)\.(\d+)\.(\d+)\.")


def owner() -> str:
    """Identifies this process by its namespaces, PID and start time."""
    return _owner(os.getpid())


def mark() -> str:
    """Returns a value of the variable for one process and everything it starts."""
    return f"{owner()}.{secrets.token_hex(16)}"


def end() -> list[int]:
    """Kills all processes whose owner is gone. Returns their PIDs.

    It repeats the search until nothing is left, because a process may start another during the search.
    """
    found: list[int] = []
    for _ in range(_LOOKS):
        ended = _end_once()
        if not ended:
            break
        found += ended
    return found


def _end_once() -> list[int]:
    if not process_tree.visible() or not hasattr(os, "pidfd_open"):
        return []
    try:
        others = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError as error:  # a failed search must not fail a run
        log.warning("Cannot search for processes that a killed Cuebook left running: %s.", error)
        return []
    return [pid for pid in others if pid != os.getpid() and _ended(pid)]  # another Cuebook may have started this one


async def clear() -> None:
    """Does the same in a background thread."""
    try:
        await asyncio.to_thread(end)
    except RuntimeError as error:  # no thread can be started
        log.warning("Cannot search for processes that a killed Cuebook left running: %s.", error)


async def clear_once() -> None:
    """Runs before this process starts its first child: a retried command must not run next to its orphaned first attempt."""
    global _cleared
    if _cleared != os.getpid():
        await clear()
        _cleared = os.getpid()


_cleared = 0
"""The PID of the process that did so; a process forked from it must do so itself."""


def _ended(pid: int) -> bool:
    if not _is_stray(pid):
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_stray(pid):  # its PID may have been reused before the descriptor was opened
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        over = select.poll()
        over.register(handle, select.POLLIN)
        return bool(over.poll(_PATIENCE))
    except OSError:
        return False
    finally:
        os.close(handle)


def _is_stray(pid: int) -> bool:
    found = _NAMED.match(_read(pid, "cmdline")) or _MARKED.search(_read(pid, "environ"))
    if found is None or found[1].decode() != _space():
        return False
    return surely_gone(int(found[2]), found[3].decode())


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # gone, or another user's
        return b""


@cache
def _owner(pid: int) -> str:
    return f"{_space()}.{pid}.{process_tree.born(pid) or 0}"


def _space() -> str:
    """The namespaces that PIDs and start times refer to."""
    return namespace("pid") + namespace("time")
