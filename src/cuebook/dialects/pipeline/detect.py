"""Whether a text is a pipeline, told by the names at its top level, so that a broken one is known too."""

from __future__ import annotations

import re
from difflib import get_close_matches
from os.path import splitext

from cuebook.dialects.pipeline.parse import FIELDS
from cuebook.dialects.top_level import SUFFIXES, names

_COMMAND = re.compile(r"(?:^|[\s{,-])[\"']?command[\"']?[ \t]*:", re.ASCII)
_OWN = frozenset(("steps", "args", "allowed_domains", "consent_boundary"))
_OF_GRAPHS = frozenset(("nodes", "edges", "entry"))


def recognises(text: str, name: str) -> bool:
    """Steps with a command, even if `steps` is misspelt, or a name and something that only pipelines have, beside which
    nothing else stands. Other data has a name and stops, or a step.
    """
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found = set(names(text))
    if found & _OF_GRAPHS:
        return False
    written = {"steps" if one.lower() == "steps" else one for one in found}
    if "name" in found and written & _OWN and written <= set(FIELDS):
        return True
    meant = "name" in found and any(get_close_matches("steps", (one.lower(),), cutoff=0.75) for one in found)
    return ("steps" in found or meant) and _COMMAND.search(text) is not None
