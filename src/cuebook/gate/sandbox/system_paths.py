"""The paths that every confined process may read: the system's programs, libraries, and the few files they need.
A confined Python function can read only the libraries.

No user files are included, and only the files of /etc that are listed here: much of the rest is secret, and root can read
it all.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Iterable
from functools import cache

from cuebook.gate.sandbox.child import NotStarted
from cuebook.kernel.ports import Confinement

_PROGRAMS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store", "/run/current-system"),
)
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/os-release", "/etc/java-*-openjdk"),
    *("/etc/debian_version", "/etc/lsb-release"),  # pip reads them, and fails if it may not
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/crypto-policies"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted"),
    "/etc/ca-certificates/extracted",
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)
_FOR_NETWORK = ("/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/resolv.conf", "/etc/protocols", "/etc/services")


_LIBRARIES = (
    *("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32"),
    *("/nix/store", "/gnu/store", "/run/current-system"),
)
_FOR_PYTHON = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")


@cache
def readable(*, network: bool, python: bool = False) -> tuple[str, ...]:
    """Returns the paths that exist, including those of the running Python: many tools are written in Python."""
    if python:
        own = [os.path.join(sys.base_prefix, name) for name in ("lib", "lib64")]
        return tuple(existing([*_LIBRARIES, *_FOR_PYTHON, *own]))
    wanted = [*_PROGRAMS, *_SETTINGS, *(_FOR_NETWORK if network else ())]
    named = [path for pattern in wanted for path in (sorted(glob.glob(pattern)) if "*" in pattern else [pattern])]
    prefixes = [path for path in (sys.prefix, sys.base_prefix) if path != "/"]
    return tuple(existing([*named, *prefixes]))


def existing(paths: Iterable[str]) -> list[str]:
    """Returns each existing path once, together with the path that its links resolve to."""
    return list(dict.fromkeys(one for path in paths for one in _ends_of(path)))


def _ends_of(path: str) -> tuple[str, ...]:
    """Returns an existing path and its real path. System paths are cached, since they are in every list."""
    known = _known.get(path)
    if known is not None:
        return known
    if not os.path.exists(path):
        return ()
    ends = (path, os.path.realpath(path))
    if path.startswith(_OWN) and len(_known) < _MOST_KNOWN:
        _known[path] = ends
    return ends


_OWN = ("/usr/", "/bin", "/sbin", "/lib")
_known: dict[str, tuple[str, ...]] = {}
_MOST_KNOWN = 1000


def readable_too(confinement: Confinement) -> list[str]:
    """The existing paths that a process may read in addition to the system's."""
    return _some(confinement.readable)


def writable(confinement: Confinement) -> list[str]:
    """The existing paths that a process may change."""
    return _some(confinement.writable)


def fixed(confinement: Confinement) -> list[str]:
    """The real paths that a process must not change although they are in a folder that it may change."""
    changeable = writable(confinement) if confinement.fixed else []
    found: dict[str, None] = {}
    for path in confinement.fixed:
        real = os.path.realpath(path)
        link = _link_within(os.path.abspath(path), changeable)
        if link:
            raise NotStarted(
                f"{path} must not be changed, but {link} is a link in a folder that commands may change.",
                fix="Replace the link with a real folder, or move it out of the workspace.",
            )
        if os.path.exists(real) and within(real, changeable):
            found.setdefault(real)
    return list(found)


def hidden(confinement: Confinement) -> list[str]:
    """The real paths of files that a process may neither read nor change, including other names (hard links) of such a
    file wherever the process could otherwise reach them.
    """
    found = [os.path.realpath(path) for path in existing(confinement.hidden)]
    linked = [status for status in map(_status, found) if stat.S_ISREG(status.st_mode) and status.st_nlink > 1]
    if linked:
        others = {(status.st_dev, status.st_ino) for status in linked}
        places = existing((*confinement.writable, *confinement.readable))
        # Hard links cannot cross file systems.
        devices = {status.st_dev for status in linked}
        found += _names_of(others, [place for place in places if _status(place).st_dev in devices])
    return list(dict.fromkeys(found))


_MOST_LOOKED_AT = 200_000
_GONE = os.stat_result((0,) * 10)


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        return _GONE


def _names_of(wanted: set[tuple[int, int]], places: Iterable[str]) -> list[str]:
    """The paths below some places that lead to one of the wanted files, each identified by device and inode."""
    found, left, waiting = [], _MOST_LOOKED_AT, list(places)
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:  # a file, or a folder that neither we nor our commands can read
            continue
        left -= len(entries)
        if left < 0:
            raise NotStarted(
                "The store of runs has another name (a hard link), and there are too many files to search for it.",
                fix="Find the link with `find . -samefile` and the path of the store, and remove it.",
            )
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.inode() in {number for _, number in wanted} and _identity(entry.path) in wanted:
                found.append(os.path.realpath(entry.path))
    return found


def _identity(path: str) -> tuple[int, int]:
    status = _status(path)
    return status.st_dev, status.st_ino


def _link_within(path: str, places: list[str]) -> str:
    """The first link in a path that could be replaced by another link; empty if there is none."""
    parts = path.split(os.sep)
    for depth in range(2, len(parts) + 1):
        step = os.sep.join(parts[:depth])
        if os.path.islink(step) and within(os.path.realpath(os.path.dirname(step)), places):
            return step
    return ""


def _some(paths: Iterable[str]) -> list[str]:
    found = existing(paths)
    if "/" in found:
        raise NotStarted(
            "A process would have access to the whole file system.",
            fix="Choose a folder other than / as the workspace, and allow access only to other folders than /.",
        )
    return found


def within(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of the roots or below one of them."""
    for root in roots:
        if path.startswith(root) and (path == root or root.endswith("/") or path[len(root)] == "/"):
            return True
    return False
