"""Inspects processes and their children through /proc; without /proc, it finds nothing, and `visible` is false.

It only inspects and signals processes by PID; what may run, and for how long, is decided elsewhere.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from cuebook.system.process import state_of

_PROC = Path("/proc")


def visible() -> bool:
    """Whether other processes can be inspected here."""
    return os.path.exists("/proc/self/stat")


def born(pid: int) -> str:
    """When a process started, which distinguishes it from a later process with the same PID; '' if it is gone."""
    fields = state_of(pid)
    return "" if not fields or fields[0] in ("Z", "X") else fields[19]


def below(root: int, most: int = 100_000) -> list[int]:
    """Returns `root` and its descendants, `root` first. Stops once it has found more than `most`."""
    found, at = [root], 0
    while at < len(found) <= most:
        found.extend(_children(found[at]))
        at += 1
    return found


def memory(pids: Iterable[int]) -> int:
    """Bytes of memory that processes use. Shared pages are counted once per process, so the sum may be too high."""
    return sum(_of_status(pid) for pid in pids)


def fair_memory(pids: Iterable[int]) -> int:
    """The same, but counting each shared page once. It is slower, so it only confirms a `memory` that is too high."""
    return sum(_of_rollup(pid) for pid in pids)


def marked(mark: str) -> list[int]:
    """Returns the processes that were started with `mark`, such as `NAME=value`, in their environment."""
    wanted = b"\0" + mark.encode() + b"\0"
    here = os.getpid()
    found = []
    for entry in os.listdir(_PROC) if visible() else ():
        if not entry.isdigit() or int(entry) == here:
            continue
        try:
            environment = (_PROC / entry / "environ").read_bytes()
        except OSError:  # another user's, or gone
            continue
        if wanted in b"\0" + environment:
            found.append(int(entry))
    return found


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def bury(pid: int) -> None:
    """Reaps an exited process that we inherited because its parent is gone: the first process of a container inherits all
    orphans, and nothing else would reap them. Does nothing for a process that is not our child.
    """
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def send_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return _children_by_parent(pid)
        except OSError:
            continue
    return found


def _children_by_parent(parent: int) -> list[int]:
    """For systems that do not list children: checks the parent of every process."""
    pids = [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]
    return [pid for pid in pids if (fields := state_of(pid)) and fields[1] == str(parent)]


def _of_status(pid: int) -> int:
    return _kilobytes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:", b"VmSwap:"))


def _of_rollup(pid: int) -> int:
    fair = _kilobytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:"))
    return fair or _of_status(pid)


def _kilobytes(path: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(path, "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names)) << 10
    except (OSError, ValueError, IndexError):
        return 0
