"""The names of tools: those that are built in, and how a model is shown any."""

from __future__ import annotations

import re

BUILT_IN = ("Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch", "WebSearch")
READING = frozenset({"Read", "Glob", "Grep", "WebFetch", "WebSearch"})
"""Those of them that change nothing."""

UNFIT = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_LONGEST = 64


def visible(name: str) -> str:
    """The name as a model is shown it: providers take letters, digits, `_` and `-`."""
    return UNFIT.sub("_", name)[:_LONGEST]
