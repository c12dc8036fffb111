"""Orphaned processes of a Cuebook that was killed: a mark names their owner, and the next Cuebook ends them.

bubblewrap ends with us once it is set up, and so does a command in Landlock; what that one started, either of them in the
few milliseconds before, and commands without a sandbox are ended by nothing else. It searches /proc, and finds nothing
where there is none.
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
"""The name of such a process, followed by its owner."""
MARK = "CUEBOOK_PROCESS"
"""An environment variable of processes outside of bubblewrap and their children: the owner, and a random part."""

_LOOKS = 20
_PATIENCE = 2_000
"""Milliseconds in which a killed process is gone, unless the system delays it."""

log = logging.getLogger("cuebook")

_NAMED = re.compile(rb"cuebook-sandbox:(\d+)\.(\d+)\.(\d+)\0")
_MARKED = re.compile(rb"(?:^|\0)CUEBOOK_PROCESS=(\d+)\.(\d+)\.(\d+)\.")


def owner() -> str:
    """Us, by what numbers count in here, our number, and when we began."""
    return _owner(os.getpid())


def mark() -> str:
    """A value of the variable, for one process and what it starts."""
    return f"{owner()}.{secrets.token_hex(16)}"


def end() -> list[int]:
    """Ends all processes whose owner is gone. Returns their pids.

    It searches again until nothing is left: a process may start another one during the search.
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
    except OSError as error:  # no run fails because the search failed
        log.warning("Cannot search for processes that a killed Cuebook left running: %s.", error)
        return []
    return [pid for pid in others if pid != os.getpid() and _ended(pid)]  # we may be what another one started


async def clear() -> None:
    """The same in a background thread."""
    try:
        await asyncio.to_thread(end)
    except RuntimeError as error:  # no thread can be had
        log.warning("No search for processes that a killed Cuebook left running: %s.", error)


async def clear_once() -> None:
    """Runs before this process starts its first one: a repeated command must not run next to its orphaned first attempt."""
    global _cleared
    if _cleared != os.getpid():
        await clear()
        _cleared = os.getpid()


_cleared = 0
"""The process in which that was done: another one may have been forked from it."""


def _ended(pid: int) -> bool:
    if not _is_stray(pid):
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_stray(pid):  # its number may have been given to another before we held it
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
    """The host that pids and start times refer to."""
    return namespace("pid") + namespace("time")
