"""Recognises a pipeline by the names at its top level, so a broken pipeline is recognised too."""

from __future__ import annotations

import re
from difflib import get_close_matches
from os.path import splitext

from cuebook.dialects.findings import Problem
from cuebook.dialects.pipeline.parse import FIELDS
from cuebook.formats.yaml import SUFFIXES, top_level_names

_COMMAND = re.compile(r"(?:^|[\s{,-])[\"']?command[\"']?[ \t]*:", re.ASCII)
_OWN = frozenset(("steps", "args", "allowed_domains", "consent_boundary"))
_MOST_READ = 50_000
"""Maximum length, in characters, of text that is checked for missing steps."""
_OF_GRAPHS = frozenset(("nodes", "edges", "entry"))


def recognises(text: str, name: str) -> bool:
    """Whether the text has steps with a command (even if `steps` is misspelt), or a name, a field that only pipelines have, and
    no field that they lack. Other data may have a name and `stops`, or a `step`.
    """
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found = set(top_level_names(text))
    if found & _OF_GRAPHS:
        return False
    written = {"steps" if one.lower() == "steps" else one for one in found}
    if "name" in found and written & _OWN and written <= set(FIELDS):
        return True
    meant = "name" in found and any(get_close_matches("steps", (one.lower(),), cutoff=0.75) for one in found)
    return ("steps" in found or meant) and _COMMAND.search(text) is not None


def lacks_steps(text: str, name: str) -> Problem | None:
    """Returns a problem if the text looks like a pipeline but has no steps."""
    found = set(top_level_names(text)) if splitext(name)[1].lower() in SUFFIXES and len(text) <= _MOST_READ else set()
    if "name" not in found or not found <= set(FIELDS):
        return None
    return Problem(
        "this is not a playbook: it has a name, but neither steps nor nodes.",
        fix="A pipeline has a name and a list of steps, each with an id and a command; a workflow graph has id, name, entry,"
        " nodes and edges.",
        code="UNKNOWN_PLAYBOOK",
    )
