"""Which process is which, and whether it still lives: its number, its birth, and what both of them count in.

What outlives a process is known by these: a claim, a folder, a process that it started. Where there is no /proc, less can be
told, and it says so.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path


@cache
def this_host() -> str:
    """Machine, boot and namespaces: process numbers and their births mean the same only within the same ones."""
    import platform

    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    except OSError:
        parts.append("")
    for kind in ("pid", "time"):
        try:
            parts.append(os.readlink(f"/proc/self/ns/{kind}"))
        except OSError:
            parts.append("")
    return "|".join(parts)


@cache
def namespace(kind: str) -> str:
    """The number of the namespace that we are in, of a kind such as `pid` or `time`. What counts in another one, as that of
    another container, means nothing here. Where there are none of that kind, all are in the same: 0.
    """
    try:
        return str(os.stat(f"/proc/self/ns/{kind}").st_ino)
    except OSError:
        return "0"


def state_of(pid: int) -> list[str]:
    """What the system says of a process, its state first; nothing where that cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return []


def birth_of(pid: int) -> str:
    """When a process started, in the system's own words; '' where that cannot be told."""
    state = state_of(pid)
    return state[19] if state else ""


def surely_dead(host: str, pid: int, born: str) -> bool:
    """True only where it is certain; a lease decides everywhere else."""
    return host == this_host() and sys.platform != "win32" and surely_gone(pid, born)


def surely_gone(pid: int, born: str) -> bool:
    """The same of a process that counted in what we count in."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    state = state_of(pid)
    if state and state[0] in ("Z", "X"):  # it has ended, and its parent has not noticed
        return True
    return bool(born and state) and state[19] != born
