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
    """Steps with a command, or a name and something that only pipelines have, beside which nothing else stands. `steps` may
    be misspelt in both.
    """
    if splitext(name)[1].lower() not in SUFFIXES:
        return False
    found = set(names(text))
    if found & _OF_GRAPHS:
        return False
    steps = {one for one in found if get_close_matches("steps", (one.lower(),), cutoff=0.75)}
    if "name" in found and found & _OWN | steps and found <= {*FIELDS, *steps}:
        return True
    return ("steps" in found or ("name" in found and bool(steps))) and _COMMAND.search(text) is not None
