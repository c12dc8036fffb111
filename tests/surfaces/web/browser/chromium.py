"""Finds the browser of this machine, or says how to get one."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

MISSING = (
    "The pages are tested in a real browser, and none is here. Install Debian's with `apt-get install chromium`,"
    " or name one: CHROMIUM=/path/to/chromium."
)


class NoBrowser(Exception):
    pass


def find_chromium() -> str:
    """The path of the browser: the one in CHROMIUM, otherwise an installed one."""
    named = os.environ.get("CHROMIUM", "")
    if named:
        if not os.access(named, os.X_OK):
            raise NoBrowser(f"CHROMIUM is {named}, which cannot be run. {MISSING}")
        return named
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise NoBrowser(MISSING)
