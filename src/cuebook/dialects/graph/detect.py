"""Recognises workflow graphs by the names at their top level, so that a broken one is recognised too."""

from __future__ import annotations

from os.path import splitext

from cuebook.dialects.graph.parse import FIELDS
from cuebook.formats.yaml import SUFFIXES, top_level_names


def recognises(text: str, name: str) -> bool:
    """Whether a text has nodes and edges, or an id and an entry, or an id and a name and nothing foreign to workflows."""
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found: set[str] = set()
    for one in top_level_names(text):
        found.add(one)
        if {"nodes", "edges"} <= found or {"id", "entry"} <= found:
            return True
    return {"id", "name"} <= found <= set(FIELDS)
