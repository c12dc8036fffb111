"""Inspects processes and their children through /proc. Where there is none, it finds nothing and says so.

It only inspects and signals by pid; what may run, and for how long, is decided elsewhere.
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
    """When a process started, which tells it from a later one of the same number; '' for one that is gone."""
    fields = state_of(pid)
    return "" if not fields or fields[0] in ("Z", "X") else fields[19]


def below(root: int, most: int = 100_000) -> list[int]:
    """The processes that descend from `root`, itself first. Stops looking once it has found more than `most`."""
    found, at = [root], 0
    while at < len(found) <= most:
        found.extend(_children(found[at]))
        at += 1
    return found


def memory(pids: Iterable[int]) -> int:
    """Bytes that processes hold for themselves. What several share is counted for each, so it may be too much."""
    return sum(_of_status(pid) for pid in pids)


def fair_memory(pids: Iterable[int]) -> int:
    """The same with each shared page counted once. Slower, for when the other figure looks like too much."""
    return sum(_of_rollup(pid) for pid in pids)


def marked(mark: str) -> list[int]:
    """The processes that have `mark`, as in `NAME=value`, in the environment they were started with."""
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
    """Reaps an ended process that we inherited because its parent is gone: the first process of a container inherits all
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
    """For systems that do not list children: every process is asked for its parent."""
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
