"""Which process this is, and whether another one still lives: what makes a crashed driver's lease end at once."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path


@cache
def this_host() -> str:
    """Machine, boot and namespaces: process numbers and their births mean the same only within the same ones."""
    parts = [platform.node()]
    for source in ("/proc/sys/kernel/random/boot_id",):
        try:
            parts.append(Path(source).read_text().strip())
        except OSError:
            parts.append("")
    for namespace in ("pid", "time"):
        try:
            parts.append(os.readlink(f"/proc/self/ns/{namespace}"))
        except OSError:
            parts.append("")
    return "|".join(parts)


def birth_of(pid: int) -> str:
    """When a process started, in the system's own words; '' where that cannot be told."""
    stat = _stat(pid)
    return stat[19] if stat else ""


def _stat(pid: int) -> list[str]:
    """What the system says of a process, its state first; nothing where that cannot be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def surely_dead(host: str, pid: int, born: str) -> bool:
    """True only where it is certain; a lease decides everywhere else."""
    if host != this_host() or sys.platform == "win32":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    stat = _stat(pid)
    if stat and stat[0] in ("Z", "X"):  # it has ended, and its parent has not noticed
        return True
    return bool(born and stat) and stat[19] != born
