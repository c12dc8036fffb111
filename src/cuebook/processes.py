"""Which process is which, and whether it still lives: its number, its birth, and what both of them count in.

What outlives a process is known by these: a claim, a folder, a process that it started. Where there is no /proc, less is
known, and that is the answer.
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
    for told in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            parts.append(Path(told).read_text().strip())
        except (OSError, UnicodeError):
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


def lives(host: str, pid: int, born: str) -> bool | None:
    """Whether a process lives; None where that cannot be told from here, as of one on another machine."""
    if host != this_host():
        return False if _was_before_boot(host) else None
    if sys.platform == "win32":
        return None
    if surely_gone(pid, born):
        return False
    return True if born and birth_of(pid) == born else None


def _was_before_boot(host: str) -> bool:
    """Whether it is this machine as it was before it was started last."""
    here, there = this_host().split("|"), host.split("|")
    same_machine = len(here) == len(there) and here[:2] == there[:2] and bool(here[1])
    return same_machine and bool(here[2] and there[2]) and here[2] != there[2]


def surely_gone(pid: int, born: str) -> bool:
    """Whether a process that counted in what we count in has certainly ended."""
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
