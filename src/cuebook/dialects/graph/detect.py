"""Whether a text is a workflow graph, told by the names at its top level, so that a broken one is known too."""

from __future__ import annotations

from os.path import splitext

from cuebook.dialects.graph.parse import FIELDS
from cuebook.dialects.top_level import SUFFIXES, names


def recognises(text: str, name: str) -> bool:
    """Nodes and edges, an id and an entry, or an id and a name beside which nothing stands that no workflow has."""
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found: set[str] = set()
    for one in names(text):
        found.add(one)
        if {"nodes", "edges"} <= found or {"id", "entry"} <= found:
            return True
    return {"id", "name"} <= found <= set(FIELDS)
