"""Identifies processes by PID and start time, and determines whether they are still alive.

Claims, folders and child processes that outlive a process are matched by both. Without /proc, the functions report some
answers as unknown.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path


@cache
def this_host() -> str:
    """Machine, boot and namespaces: PIDs and start times are comparable only if all of these are the same."""
    import platform

    parts = [platform.node()]
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            parts.append(Path(path).read_text().strip())
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
    """The id of this process's namespace of a kind such as `pid` or `time`. PIDs from another namespace, such as
    another container's, mean nothing here. Returns 0 if the system has no namespaces of that kind.
    """
    try:
        return str(os.stat(f"/proc/self/ns/{kind}").st_ino)
    except OSError:
        return "0"


def state_of(pid: int) -> list[str]:
    """The system's status fields for a process, starting with its state; empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return []


def birth_of(pid: int) -> str:
    """When a process started, in the system's format; empty if unknown."""
    state = state_of(pid)
    return state[19] if state else ""


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, as by Ctrl-Z, or by a debugger."""
    return state_of(pid)[:1] in (["T"], ["t"])


def lives(host: str, pid: int, born: str) -> bool | None:
    """Whether a process is alive; None if that is unknown here, for example on another machine."""
    if host != this_host():
        return False if _was_before_boot(host) else None
    if sys.platform == "win32":
        return None
    if surely_gone(pid, born):
        return False
    return True if born and birth_of(pid) == born else None


def _was_before_boot(host: str) -> bool:
    """Whether `host` identifies this machine before its last boot."""
    here, there = this_host().split("|"), host.split("|")
    same_machine = len(here) == len(there) and here[:2] == there[:2] and bool(here[1])
    return same_machine and bool(here[2] and there[2]) and here[2] != there[2]


def surely_gone(pid: int, born: str) -> bool:
    """Whether a process in our namespaces has certainly exited."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    state = state_of(pid)
    if state and state[0] in ("Z", "X"):  # it has exited, but its parent has not reaped it
        return True
    return bool(born and state) and state[19] != born
