"""What a Cuebook that was killed has left running: it is known by a mark that names its owner, and ended by the next one.

bubblewrap ends with us once it is set up; in the few milliseconds before, in Landlock, and without a sandbox, nobody else
would. It looks through /proc, and where there is none it finds nothing.
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

from cuebook.gate.sandbox import tree
from cuebook.processes import namespace, surely_gone

NAME = "cuebook-sandbox"
"""What such a process is called, followed by its owner."""
MARK = "CUEBOOK_PROCESS"
"""A variable that one outside of bubblewrap carries, and whatever it starts: its owner, and something random."""

_LOOKS = 20
_PATIENCE = 2_000
"""Milliseconds in which one that was told to end has gone, unless the system is in its way."""

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
    """Ends whatever belongs to an owner that is gone. Gives the numbers of what it has ended.

    It looks again until there is nothing left: one that starts another in the moment in which it is looked for has gone by
    the time the other is there.
    """
    found: list[int] = []
    for _ in range(_LOOKS):
        ended = _end_once()
        if not ended:
            break
        found += ended
    return found


def _end_once() -> list[int]:
    if not tree.visible() or not hasattr(os, "pidfd_open"):
        return []
    try:
        others = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError as error:  # what cannot be looked for is not found, and nobody's run fails for it
        log.warning("What a killed process may have left running could not be looked for: %s.", error)
        return []
    return [pid for pid in others if pid != os.getpid() and _ended(pid)]  # we may be what another one started


async def clear() -> None:
    """The same, beside whatever else happens here."""
    try:
        await asyncio.to_thread(end)
    except RuntimeError as error:  # no thread can be had
        log.warning("What a killed process may have left running was not looked for: %s.", error)


async def clear_once() -> None:
    """Before this process starts its first: what is repeated must not run beside what it repeats."""
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
    return f"{_space()}.{pid}.{tree.born(pid) or 0}"


def _space() -> str:
    """What process numbers count in, and their births."""
    return namespace("pid") + namespace("time")
