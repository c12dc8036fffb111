"""Recognises workflow graphs by their top-level keys, so that broken workflows are recognised too."""

from __future__ import annotations

from os.path import splitext

from cuebook.dialects.graph.parse import FIELDS
from cuebook.formats.yaml import SUFFIXES, top_level_names


def recognises(text: str, name: str) -> bool:
    """Whether the text has nodes and edges, or an id and an entry, or an id, a name and only keys that workflows
    have."""
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found: set[str] = set()
    for one in top_level_names(text):
        found.add(one)
        if {"nodes", "edges"} <= found or {"id", "entry"} <= found:
            return True
    return {"id", "name"} <= found <= set(FIELDS)
